/* Descriptors: each rule with the argument it names, and what a layout reduces to. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "fake.h"

enum { N = 6, K = 10, LD = 12 };

/* A context on each backend, and operands that no rule objects to. */
typedef struct fixture {
  tglu_context *cpu, *cuda;
  uint16_t gate[2 * N * LD], up[N * LD], bias[2 * N], up_bias[N], down[K * N],
    down_bias[K];
} fixture;

static fixture f;

static int open_both(void **state)
{
  (void)state;
  fake_reset();
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.tune_cache = "";
  options.backend = TGLU_BACKEND_CPU;
  assert_ok(tglu_context_create(&options, &f.cpu));
  options.backend = TGLU_BACKEND_CUDA;
  assert_ok(tglu_context_create(&options, &f.cuda));
  return 0;
}

static int close_both(void **state)
{
  (void)state;
  tglu_context_destroy(f.cpu);
  tglu_context_destroy(f.cuda);
  assert_int_equal(fake.opens, fake.closes);
  assert_int_equal(fake.plans, fake.destroyed);
  return 0;
}

static tglu_glu_desc separate(void)
{
  tglu_glu_desc d;
  tglu_glu_desc_init(&d);
  d.hidden = K;
  d.intermediate = N;
  d.dtype = TGLU_DTYPE_BF16;
  d.activation = TGLU_ACTIVATION_SILU;
  d.layout = TGLU_LAYOUT_SEPARATE;
  d.gate = f.gate;
  d.up = f.up;
  d.ld = LD;
  return d;
}

static tglu_glu_desc merged(tglu_layout layout)
{
  tglu_glu_desc d = separate();
  d.layout = layout;
  d.gate = d.up = NULL;
  d.gate_up = f.gate;
  d.gate_up_bias = f.bias;
  return d;
}

static tglu_mlp_desc whole(void)
{
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu = separate();
  d.down = f.down;
  d.down_bias = f.down_bias;
  return d;
}

static tglu_linear_desc linear(void)
{
  tglu_linear_desc d;
  tglu_linear_desc_init(&d);
  d.in_features = N;
  d.out_features = K;
  d.dtype = TGLU_DTYPE_F16;
  d.weight = f.down;
  d.bias = f.down_bias;
  return d;
}

static tglu_status try_glu(const tglu_glu_desc *desc)
{
  tglu_glu *glu = (tglu_glu *)&f;
  const tglu_status status = tglu_glu_create(f.cpu, desc, &glu);
  if (status) assert_null(glu);
  tglu_glu_destroy(glu);
  return status;
}

static tglu_status try_mlp(const tglu_mlp_desc *desc)
{
  tglu_mlp *mlp = (tglu_mlp *)&f;
  const tglu_status status = tglu_mlp_create(f.cpu, desc, &mlp);
  if (status) assert_null(mlp);
  tglu_mlp_destroy(mlp);
  return status;
}

static tglu_status try_linear(const tglu_linear_desc *desc)
{
  tglu_linear *object = (tglu_linear *)&f;
  const tglu_status status = tglu_linear_create(f.cpu, desc, &object);
  if (status) assert_null(object);
  tglu_linear_destroy(object);
  return status;
}

/* Changes one field of a good descriptor: refused about `argument`. */
#define REFUSE_AS(make, try, field, value, argument)                               \
  do {                                                                             \
    __typeof__(make) d = make;                                                     \
    d.field = value;                                                               \
    assert_refused(try(&d), TGLU_ERR_INVALID_ARGUMENT, argument);                  \
  } while (0)
#define REFUSE(make, field, value) REFUSE_AS(make, try_glu, field, value, #field)

static void sizes_and_enums(void **state)
{
  (void)state;
  tglu_glu_desc good = separate();
  assert_ok(try_glu(&good));
  REFUSE(separate(), hidden, 0);
  REFUSE(separate(), hidden, -1);
  REFUSE(separate(), hidden, INT64_MAX);
  REFUSE(separate(), intermediate, -1);
  REFUSE(separate(), intermediate, INT64_MIN);
  REFUSE(separate(), dtype, (tglu_dtype)0);
  REFUSE(separate(), dtype, (tglu_dtype)4);
  REFUSE(separate(), activation, (tglu_activation)0);
  REFUSE(separate(), activation, (tglu_activation)7);
  REFUSE(separate(), layout, (tglu_layout)0);
  REFUSE(separate(), layout, (tglu_layout)5);
  REFUSE(separate(), ld, K - 1);
  REFUSE(separate(), ld, -LD);
  REFUSE(separate(), ld, INT64_MAX);
  assert_says("hidden = 10");
}

static void overflowing_sizes(void **state)
{
  (void)state;
  const tglu_glu_desc base = separate();
  const int64_t big = INT64_C(1) << 40;
  tglu_glu_desc d = base;
  d.hidden = d.intermediate = d.ld = big;
  assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "gate");
  d = base;
  d.intermediate = INT64_C(1) << 30; /* 2^62 bytes: countable, but no memory has them */
  d.hidden = d.ld = INT64_C(1) << 31;
  assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "gate");
  d = base;
  d.intermediate = INT64_C(1) << 60;
  assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "gate");
  d = base;
  d.up = (const void *)(UINTPTR_MAX - 20); /* begins in the address space, ends beyond */
  assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "up");
  d = base;
  d.up_bias = (const void *)(UINTPTR_MAX - 3);
  assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "up_bias");
  for (int layout = TGLU_LAYOUT_STACKED_GATE_FIRST; layout <= TGLU_LAYOUT_INTERLEAVED;
       layout++) { /* room for one half, not for both */
    d = merged((tglu_layout)layout);
    d.gate_up = (const void *)(UINTPTR_MAX - N * LD * sizeof(uint16_t) - 8);
    assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "gate_up");
    d = merged((tglu_layout)layout);
    d.gate_up_bias = (const void *)(UINTPTR_MAX - N * sizeof(uint16_t) - 2);
    assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "gate_up_bias");
  }
  d = merged(TGLU_LAYOUT_INTERLEAVED);
  d.ld = INT64_C(1) << 60;
  assert_refused(try_glu(&d), TGLU_ERR_INVALID_ARGUMENT, "gate_up");
  tglu_mlp_desc m = whole();
  m.ld_down = INT64_C(1) << 60;
  assert_refused(try_mlp(&m), TGLU_ERR_INVALID_ARGUMENT, "down");
}

static void pointers_follow_the_layout(void **state)
{
  (void)state;
  REFUSE(separate(), gate, NULL);
  REFUSE(separate(), up, NULL);
  REFUSE(separate(), gate_up, f.gate);
  REFUSE(separate(), gate_up_bias, f.bias);
  const tglu_layout layouts[] = {TGLU_LAYOUT_STACKED_GATE_FIRST,
                                 TGLU_LAYOUT_STACKED_UP_FIRST, TGLU_LAYOUT_INTERLEAVED};
  for (size_t i = 0; i < 3; i++) {
    const tglu_glu_desc good = merged(layouts[i]);
    assert_ok(try_glu(&good));
    REFUSE(merged(layouts[i]), gate_up, NULL);
    assert_says(tglu_layout_name(layouts[i]));
    REFUSE(merged(layouts[i]), gate, f.gate);
    REFUSE(merged(layouts[i]), up, f.up);
    REFUSE(merged(layouts[i]), gate_bias, f.bias);
    REFUSE(merged(layouts[i]), up_bias, f.up_bias);
  }
}

static void parameters_belong_to_swigluoai(void **state)
{
  (void)state;
  tglu_glu_desc oai = separate();
  oai.activation = TGLU_ACTIVATION_SWIGLUOAI;
  oai.alpha = 1.25f;
  oai.limit = INFINITY;
  oai.offset = 0.0f;
  assert_ok(try_glu(&oai));
  assert_true(fake.problem.alpha == 1.25f && isinf(fake.problem.limit) &&
              fake.problem.offset == 0.0f);
  REFUSE(oai, alpha, NAN);
  REFUSE(oai, limit, NAN);
  REFUSE(oai, offset, NAN);
  REFUSE(oai, alpha, INFINITY);
  REFUSE(oai, offset, -INFINITY);
  REFUSE(oai, limit, 0.0f);
  REFUSE(oai, limit, -7.0f);
  for (int a = TGLU_ACTIVATION_SILU; a <= TGLU_ACTIVATION_SIGMOID; a++) {
    tglu_glu_desc other = separate();
    other.activation = (tglu_activation)a;
    assert_ok(try_glu(&other));
    REFUSE(other, alpha, 1.0f);
    REFUSE(other, limit, 8.0f);
    REFUSE(other, offset, 0.0f);
    assert_says(tglu_activation_name((tglu_activation)a));
  }
}

static void mlp_rules(void **state)
{
  (void)state;
  const tglu_mlp_desc good = whole();
  assert_ok(try_mlp(&good));
  assert_true(fake.problem.has_down && fake.problem.ld_down == N);
#define REFUSE_MLP(field, value, argument) REFUSE_AS(whole(), try_mlp, field, value, argument)
  REFUSE_MLP(down, NULL, "down");
  REFUSE_MLP(ld_down, N - 1, "ld_down");
  REFUSE_MLP(ld_down, -1, "ld_down");
  REFUSE_MLP(glu.hidden, 0, "hidden");
  REFUSE_MLP(glu.gate, NULL, "gate");
  REFUSE_MLP(glu.size, 0, "desc.glu");
  REFUSE_MLP(glu.size, sizeof(tglu_glu_desc) + 8, "desc.glu");
  REFUSE_MLP(size, 8, "desc");
}

static void linear_rules(void **state)
{
  (void)state;
  const tglu_linear_desc good = linear();
  assert_ok(try_linear(&good));
  assert_true(fake.problem.has_down && !fake.problem.gate);
  assert_int_equal(fake.problem.n, N);
  assert_int_equal(fake.problem.k, K);
  assert_ptr_equal(fake.problem.down, f.down);
  assert_ptr_equal(fake.problem.down_bias, f.down_bias);
#define REFUSE_LINEAR(field, value) REFUSE_AS(linear(), try_linear, field, value, #field)
  REFUSE_LINEAR(in_features, 0);
  REFUSE_LINEAR(out_features, 0);
  REFUSE_LINEAR(out_features, -3);
  REFUSE_LINEAR(dtype, (tglu_dtype)0);
  REFUSE_LINEAR(weight, NULL);
  REFUSE_LINEAR(ld, N - 1);
  REFUSE_AS(linear(), try_linear, size, 1, "desc");
}

/* ---- what reaches the backend ---- */

static void layouts_reduce_to_a_triple(void **state)
{
  (void)state;
  const uint16_t *w = f.gate, *b = f.bias;
  const struct {
    tglu_layout layout;
    const uint16_t *gate, *up, *gate_bias, *up_bias;
    int64_t ld, bias_stride;
  } cases[] = {
    {TGLU_LAYOUT_STACKED_GATE_FIRST, w, w + N * LD, b, b + N, LD, 1},
    {TGLU_LAYOUT_STACKED_UP_FIRST, w + N * LD, w, b + N, b, LD, 1},
    {TGLU_LAYOUT_INTERLEAVED, w, w + LD, b, b + 1, 2 * LD, 2},
  };
  for (size_t i = 0; i < 3; i++) {
    const tglu_glu_desc d = merged(cases[i].layout);
    assert_ok(try_glu(&d));
    assert_ptr_equal(fake.problem.gate, cases[i].gate);
    assert_ptr_equal(fake.problem.up, cases[i].up);
    assert_ptr_equal(fake.problem.gate_bias, cases[i].gate_bias);
    assert_ptr_equal(fake.problem.up_bias, cases[i].up_bias);
    assert_int_equal(fake.problem.ld, cases[i].ld);
    assert_int_equal(fake.problem.bias_stride, cases[i].bias_stride);
  }
  tglu_glu_desc d = merged(TGLU_LAYOUT_INTERLEAVED);
  d.gate_up_bias = NULL; /* no bias must not become a pointer near NULL */
  d.ld = 0;
  assert_ok(try_glu(&d));
  assert_null(fake.problem.gate_bias);
  assert_null(fake.problem.up_bias);
  assert_int_equal(fake.problem.ld, 2 * K);
  d = separate();
  d.up_bias = f.up_bias;
  assert_ok(try_glu(&d));
  assert_null(fake.problem.gate_bias);
  assert_ptr_equal(fake.problem.up_bias, f.up_bias);
}

static void empty_intermediate_needs_no_weights(void **state)
{
  (void)state;
  tglu_mlp_desc m = whole();
  m.glu.intermediate = 0;
  m.glu.gate = m.glu.up = m.down = NULL;
  assert_ok(try_mlp(&m));
  assert_ok(try_glu(&m.glu));
  assert_int_equal(fake.plans, 0);
  m.glu.gate_up = f.gate;
  assert_refused(try_glu(&m.glu), TGLU_ERR_INVALID_ARGUMENT, "gate_up");
  m.glu.gate_up = NULL;
  /* What is written is memory of the device: so a plan of the backend's. */
  tglu_mlp *mlp = NULL;
  assert_ok(tglu_mlp_create(f.cuda, &m, &mlp));
  assert_int_equal(fake.plans, 1);
  assert_int_equal(fake.problem.n, 0);
  tglu_mlp_destroy(mlp);
}

static void cuda_has_rules_of_its_own(void **state)
{
  (void)state;
  tglu_glu *glu = NULL;
  tglu_glu_desc d = separate();
  d.dtype = TGLU_DTYPE_F32;
  assert_refused(tglu_glu_create(f.cuda, &d, &glu), TGLU_ERR_UNSUPPORTED, "dtype");
  assert_says("f32");
  assert_ok(try_glu(&d));
  d = separate();
  d.gate = (const char *)f.gate + 1;
  assert_refused(tglu_glu_create(f.cuda, &d, &glu), TGLU_ERR_INVALID_ARGUMENT, "gate");
  assert_ok(try_glu(&d)); /* the cpu takes any address */
  d = separate();
  d.up_bias = (const char *)f.up_bias + 1;
  assert_refused(tglu_glu_create(f.cuda, &d, &glu), TGLU_ERR_INVALID_ARGUMENT, "up_bias");
  tglu_linear_desc l = linear();
  tglu_linear *object = NULL;
  l.weight = (const char *)f.down + 1;
  assert_refused(tglu_linear_create(f.cuda, &l, &object), TGLU_ERR_INVALID_ARGUMENT,
                 "weight");
  assert_null(glu);
}

static void handles_and_sizes(void **state)
{
  (void)state;
  const tglu_glu_desc good = separate();
  const tglu_mlp_desc mlp_good = whole();
  const tglu_linear_desc linear_good = linear();
  tglu_glu *glu = NULL;
  tglu_mlp *mlp = NULL;
  tglu_linear *object = NULL;
  size_t bytes = 0;
#define NULLS(kind, handle, desc)                                                        \
  assert_refused(tglu_##kind##_create(NULL, desc, handle), TGLU_ERR_INVALID_ARGUMENT,    \
                 "context");                                                             \
  assert_refused(tglu_##kind##_create(f.cpu, NULL, handle), TGLU_ERR_INVALID_ARGUMENT,   \
                 "desc");                                                                \
  assert_refused(tglu_##kind##_create(f.cpu, desc, NULL), TGLU_ERR_INVALID_ARGUMENT,     \
                 "out");                                                                 \
  assert_refused(tglu_##kind##_run(NULL, NULL), TGLU_ERR_INVALID_ARGUMENT, #kind);       \
  assert_refused(tglu_##kind##_workspace_bytes(NULL, 1, &bytes),                         \
                 TGLU_ERR_INVALID_ARGUMENT, #kind);                                      \
  tglu_##kind##_destroy(NULL)
  NULLS(glu, &glu, &good);
  NULLS(mlp, &mlp, &mlp_good);
  NULLS(linear, &object, &linear_good);
  assert_refused(tglu_glu_explain(NULL, NULL, NULL, 0), TGLU_ERR_INVALID_ARGUMENT, "glu");
  assert_refused(tglu_mlp_explain(NULL, NULL, NULL, 0), TGLU_ERR_INVALID_ARGUMENT, "mlp");
  assert_refused(tglu_glu_get_info(NULL, NULL), TGLU_ERR_INVALID_ARGUMENT, "glu");
  assert_refused(tglu_mlp_get_info(NULL, NULL), TGLU_ERR_INVALID_ARGUMENT, "mlp");
  assert_refused(tglu_glu_get_plan(NULL, 1, NULL), TGLU_ERR_INVALID_ARGUMENT, "glu");
  assert_refused(tglu_mlp_get_plan(NULL, 1, NULL), TGLU_ERR_INVALID_ARGUMENT, "mlp");

  struct {
    tglu_glu_desc d;
    unsigned char tail[24];
  } wide;
  memset(&wide, 0, sizeof wide);
  wide.d = good;
  wide.d.size = sizeof wide;
  assert_ok(try_glu(&wide.d));
  wide.tail[0] = 1;
  assert_refused(try_glu(&wide.d), TGLU_ERR_INVALID_ARGUMENT, "desc");
  wide.d.size = sizeof wide.d - 1;
  assert_refused(try_glu(&wide.d), TGLU_ERR_INVALID_ARGUMENT, "desc");
}

static void a_failing_plan_leaves_nothing(void **state)
{
  (void)state;
  fake.plan_status = TGLU_ERR_DEVICE;
  const tglu_glu_desc d = separate();
  assert_refused(try_glu(&d), TGLU_ERR_DEVICE, "plan");
  assert_int_equal(fake.plans, 0);
}

static void a_context_lives_as_long_as_its_objects(void **state)
{
  (void)state;
  tglu_context *context = NULL;
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  assert_ok(tglu_context_create(&options, &context));
  const int closed = fake.closes;
  tglu_glu *glu = NULL;
  tglu_mlp *mlp = NULL;
  const tglu_glu_desc d = separate();
  const tglu_mlp_desc m = whole();
  assert_ok(tglu_glu_create(context, &d, &glu));
  assert_ok(tglu_mlp_create(context, &m, &mlp));
  tglu_context_destroy(context);
  assert_int_equal(fake.closes, closed);
  tglu_run_args args;
  tglu_run_args_init(&args);
  uint16_t x[K] = {1}, out[K] = {0};
  args.x = x;
  args.out = out;
  args.tokens = 1;
  assert_ok(tglu_mlp_run(mlp, &args));
  tglu_mlp_destroy(mlp);
  assert_ok(tglu_glu_run(glu, &args));
  assert_int_equal(fake.closes, closed);
  tglu_glu_destroy(glu);
  assert_int_equal(fake.closes, closed + 1);
}

static void object_info(void **state)
{
  (void)state;
  tglu_mlp *mlp = NULL;
  const tglu_mlp_desc m = whole();
  tglu_object_info info;
  tglu_object_info_init(&info);
  assert_ok(tglu_mlp_create(f.cpu, &m, &mlp));
  assert_ok(tglu_mlp_get_info(mlp, &info));
  assert_int_equal(info.hidden, K);
  assert_int_equal(info.intermediate, N);
  assert_int_equal(info.dtype, TGLU_DTYPE_BF16);
  assert_int_equal(info.activation, TGLU_ACTIVATION_SILU);
  assert_int_equal(info.weight_bytes, 3 * N * K * 2);
  assert_int_equal(info.copied_bytes, 77);
  assert_refused(tglu_mlp_get_info(mlp, NULL), TGLU_ERR_INVALID_ARGUMENT, "info");
  tglu_mlp_destroy(mlp);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)
  const struct CMUnitTest tests[] = {
    TEST(sizes_and_enums),
    TEST(overflowing_sizes),
    TEST(pointers_follow_the_layout),
    TEST(parameters_belong_to_swigluoai),
    TEST(mlp_rules),
    TEST(linear_rules),
    TEST(layouts_reduce_to_a_triple),
    TEST(empty_intermediate_needs_no_weights),
    TEST(cuda_has_rules_of_its_own),
    TEST(handles_and_sizes),
    TEST(a_failing_plan_leaves_nothing),
    TEST(a_context_lives_as_long_as_its_objects),
    TEST(object_info),
  };
  return cmocka_run_group_tests_name("object", tests, NULL, NULL);
}
