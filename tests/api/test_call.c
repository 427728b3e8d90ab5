/* One call: each rule with the argument it names, and what reaches the backend. */
#include <stdlib.h>

#include "check.h"
#include "fake.h"

enum { N = 10, K = 8, M = 5, POOL = 4096 };

static tglu_context *cpu, *cuda;
static tglu_glu *glu, *cuda_glu;
static tglu_mlp *mlp;
static tglu_linear *linear;
/* Everything lies in one pool, so that any two operands can be made to overlap. */
static _Alignas(64) unsigned char pool[POOL];
static uint16_t *const weights = (uint16_t *)(void *)pool;        /* gate, up, down      */
static unsigned char *const x = pool + 1024, *const out = pool + 1536;
static unsigned char *const residual = pool + 2048, *const workspace = pool + 3072;

static int open_all(void **state)
{
  (void)state;
  fake_reset();
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.tune_cache = "";
  options.backend = TGLU_BACKEND_CPU;
  assert_ok(tglu_context_create(&options, &cpu));
  options.backend = TGLU_BACKEND_CUDA;
  assert_ok(tglu_context_create(&options, &cuda));
  tglu_mlp_desc m;
  tglu_mlp_desc_init(&m);
  m.glu.hidden = K;
  m.glu.intermediate = N;
  m.glu.dtype = TGLU_DTYPE_F16;
  m.glu.activation = TGLU_ACTIVATION_RELU;
  m.glu.layout = TGLU_LAYOUT_SEPARATE;
  m.glu.gate = weights;
  m.glu.up = weights + N * K;
  m.glu.gate_bias = weights + 2 * N * K;
  m.glu.up_bias = weights + 2 * N * K + N;
  assert_ok(tglu_glu_create(cpu, &m.glu, &glu));
  assert_ok(tglu_glu_create(cuda, &m.glu, &cuda_glu));
  m.down = weights + 2 * N * K + 2 * N;
  m.down_bias = weights + 3 * N * K + 2 * N;
  assert_ok(tglu_mlp_create(cpu, &m, &mlp));
  tglu_linear_desc l;
  tglu_linear_desc_init(&l);
  l.in_features = N;
  l.out_features = K;
  l.dtype = TGLU_DTYPE_F16;
  l.weight = m.down;
  l.bias = m.down_bias;
  assert_ok(tglu_linear_create(cpu, &l, &linear));
  return 0;
}

static int close_all(void **state)
{
  (void)state;
  tglu_glu_destroy(glu);
  tglu_glu_destroy(cuda_glu);
  tglu_mlp_destroy(mlp);
  tglu_linear_destroy(linear);
  tglu_context_destroy(cpu);
  tglu_context_destroy(cuda);
  return 0;
}

static tglu_run_args good(void)
{
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = x;
  a.out = out;
  a.tokens = M;
  return a;
}

/* Refused, and the backend is not reached. */
#define REFUSE(object, kind, field, value, status, argument)                       \
  do {                                                                             \
    tglu_run_args a = good();                                                      \
    a.field = value;                                                               \
    const int before = fake.runs;                                                  \
    assert_refused(tglu_##kind##_run(object, &a), status, argument);               \
    assert_int_equal(fake.runs, before);                                           \
  } while (0)
#define INVALID(object, kind, field, value)                                        \
  REFUSE(object, kind, field, value, TGLU_ERR_INVALID_ARGUMENT, #field)

static void strides_resolve(void **state)
{
  (void)state;
  tglu_run_args a = good();
  assert_ok(tglu_glu_run(glu, &a));
  assert_int_equal(fake.call.ldx, K);
  assert_int_equal(fake.call.ldo, N);
  assert_ok(tglu_mlp_run(mlp, &a));
  assert_int_equal(fake.call.ldo, K);
  assert_int_equal(fake.call.ldr, K);
  assert_ok(tglu_linear_run(linear, &a));
  assert_int_equal(fake.call.ldx, N);
  assert_int_equal(fake.call.ldo, K);
  a.ldx = 20;
  a.ldo = 21;
  a.residual = residual;
  a.ldr = 22;
  assert_ok(tglu_mlp_run(mlp, &a));
  assert_int_equal(fake.call.ldx, 20);
  assert_int_equal(fake.call.ldo, 21);
  assert_int_equal(fake.call.ldr, 22);
  assert_ptr_equal(fake.call.residual, residual);
  assert_int_equal(fake.call.tokens, M);
}

static void bad_numbers_and_pointers(void **state)
{
  (void)state;
  INVALID(glu, glu, tokens, -1);
  INVALID(glu, glu, tokens, INT64_MIN);
  INVALID(glu, glu, x, NULL);
  INVALID(glu, glu, out, NULL);
  INVALID(glu, glu, residual, residual);
  INVALID(glu, glu, ldx, K - 1);
  INVALID(glu, glu, ldx, -K);
  INVALID(glu, glu, ldo, N - 1);
  INVALID(glu, glu, ldo, 1); /* column-major is no row stride */
  INVALID(mlp, mlp, ldo, K - 1);
  INVALID(mlp, mlp, ldr, K - 1);
  INVALID(linear, linear, ldx, N - 1);
  INVALID(glu, glu, stream, x);
  REFUSE(glu, glu, tokens, INT64_MAX / 2, TGLU_ERR_INVALID_ARGUMENT, "x");
  /* x and the result of an mlp could just be, what lies between them not. */
  REFUSE(mlp, mlp, tokens, (INT64_C(1) << 61) / (2 * K), TGLU_ERR_INVALID_ARGUMENT,
         "tokens");
  REFUSE(glu, glu, ldx, INT64_MAX / 4, TGLU_ERR_INVALID_ARGUMENT, "x");
  REFUSE(glu, glu, ldo, INT64_MAX, TGLU_ERR_INVALID_ARGUMENT, "out");
  REFUSE(glu, glu, size, 8, TGLU_ERR_INVALID_ARGUMENT, "args");
  assert_refused(tglu_glu_run(glu, NULL), TGLU_ERR_INVALID_ARGUMENT, "args");
  struct {
    tglu_run_args a;
    unsigned char tail[8];
  } wide;
  memset(&wide, 0, sizeof wide);
  wide.a = good();
  wide.a.size = sizeof wide;
  assert_ok(tglu_glu_run(glu, &wide.a));
  wide.tail[7] = 1;
  assert_refused(tglu_glu_run(glu, &wide.a), TGLU_ERR_INVALID_ARGUMENT, "args");
}

static void cuda_wants_whole_elements(void **state)
{
  (void)state;
  INVALID(cuda_glu, glu, x, x + 1);
  INVALID(cuda_glu, glu, out, out + 1);
  tglu_run_args a = good();
  a.stream = pool; /* never looked into here */
  assert_ok(tglu_glu_run(cuda_glu, &a));
  assert_ptr_equal(fake.call.stream, pool);
  a = good();
  a.x = x + 1;
  assert_ok(tglu_glu_run(glu, &a)); /* the cpu takes any address */
  assert_ptr_equal(fake.call.x, x + 1);
}

static void no_tokens_touch_nothing(void **state)
{
  (void)state;
  tglu_run_args a;
  tglu_run_args_init(&a);
  assert_ok(tglu_glu_run(glu, &a));
  assert_ok(tglu_mlp_run(mlp, &a));
  assert_ok(tglu_linear_run(linear, &a));
  a.ldx = 1; /* strides of nothing do not count either */
  assert_ok(tglu_glu_run(glu, &a));
  assert_int_equal(fake.runs, 0);
  fake.workspace = 64;
  size_t bytes = 1;
  assert_ok(tglu_glu_workspace_bytes(glu, 0, &bytes));
  assert_int_equal(bytes, 0);
  assert_ok(tglu_glu_run(glu, &a));
  assert_int_equal(fake.runs, 0);
  fake.workspace = 0;
  a = good();
  a.tokens = 3;
  assert_ok(tglu_glu_run(glu, &a));
  assert_int_equal(fake.runs, 1);
  assert_int_equal(fake.call.tokens, 3);
}

/* ---- workspace ---- */

static void workspace_is_counted(void **state)
{
  (void)state;
  fake.workspace = 200;
  size_t bytes = 0;
  assert_ok(tglu_mlp_workspace_bytes(mlp, M, &bytes));
  assert_int_equal(bytes, 200);
  tglu_run_args a = good();
  assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE, "workspace");
  assert_says("200 bytes");
  assert_says("NULL");
  a.workspace_bytes = 200; /* a size without an address is none */
  assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE, "workspace");
  a.workspace = workspace;
  a.workspace_bytes = 199;
  assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE, "workspace");
  assert_says("200 bytes");
  assert_says("199 were given");
  a.workspace_bytes = SIZE_MAX;
  assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_INVALID_ARGUMENT, "workspace_bytes");
  assert_says("18446744073709551615");
  assert_int_equal(fake.runs, 0);
  a.workspace_bytes = 200;
  for (int shift = 0; shift < 64; shift++) {
    a.workspace = workspace + shift;
    assert_ok(tglu_mlp_run(mlp, &a));
    assert_ptr_equal(fake.call.workspace, workspace + shift);
    assert_int_equal(fake.call.workspace_bytes, 200);
  }
  assert_refused(tglu_mlp_workspace_bytes(mlp, -1, &bytes), TGLU_ERR_INVALID_ARGUMENT,
                 "tokens");
  assert_refused(tglu_mlp_workspace_bytes(mlp, INT64_MAX, &bytes),
                 TGLU_ERR_INVALID_ARGUMENT, "tokens");
  assert_refused(tglu_mlp_workspace_bytes(mlp, 1, NULL), TGLU_ERR_INVALID_ARGUMENT,
                 "bytes");
  a.workspace = (void *)(UINTPTR_MAX - 100);
  assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_INVALID_ARGUMENT, "workspace");
}

/* ---- overlaps ---- */

static tglu_status run_with(unsigned char *to, int64_t ldo)
{
  tglu_run_args a = good();
  a.out = to;
  a.ldo = ldo;
  return tglu_mlp_run(mlp, &a);
}

#define OVERLAP(call, argument, other)                                             \
  do {                                                                             \
    const int before = fake.runs;                                                  \
    assert_refused(call, TGLU_ERR_OVERLAP, argument);                              \
    assert_says(other);                                                            \
    assert_int_equal(fake.runs, before);                                           \
  } while (0)

static void out_may_overlap_nothing(void **state)
{
  (void)state;
  unsigned char *const w = pool;
  const int row = 2 * K, whole = M * row, matrix = 2 * N * K;
  OVERLAP(run_with(x, 0), "out", "overlaps x");
  OVERLAP(run_with(x + whole - row, 0), "out", "overlaps x");
  OVERLAP(run_with(x + whole - 1, 0), "out", "overlaps x");
  OVERLAP(run_with(x - whole + 1, 0), "out", "overlaps x");
  assert_ok(run_with(x + whole, 0));
  assert_ok(run_with(x - whole, 0));
  OVERLAP(run_with(w, 0), "out", "overlaps gate");
  OVERLAP(run_with(w + matrix, 0), "out", "overlaps up");
  OVERLAP(run_with(w + 2 * matrix, 0), "out", "overlaps gate_bias");
  OVERLAP(run_with(w + 2 * matrix + 2 * N, 0), "out", "overlaps up_bias");
  OVERLAP(run_with(w + 2 * matrix + 4 * N, 0), "out", "overlaps down");
  OVERLAP(run_with(w + 3 * matrix + 4 * N, 0), "out", "overlaps down_bias");
  assert_ok(run_with(w + 3 * matrix + 4 * N + row, 0));
}

static void column_blocks_are_apart(void **state)
{
  (void)state;
  tglu_run_args a = good();
  a.ldx = a.ldo = 2 * K; /* x and out: halves of one wider buffer */
  a.out = x + 2 * K;
  assert_ok(tglu_mlp_run(mlp, &a));
  a.out = x + 2 * K - 2;
  OVERLAP(tglu_mlp_run(mlp, &a), "out", "overlaps x");
  a.out = x + 2 * K + 2;
  OVERLAP(tglu_mlp_run(mlp, &a), "out", "overlaps x");
  a.ldo = 3 * K; /* other strides: their ranges must be apart */
  a.out = x + 2 * K;
  OVERLAP(tglu_mlp_run(mlp, &a), "out", "overlaps x");
}

static void residual_may_be_out_itself(void **state)
{
  (void)state;
  tglu_run_args a = good();
  a.residual = a.out;
  assert_ok(tglu_mlp_run(mlp, &a));
  assert_ok(tglu_linear_run(linear, &a));
  a.ldo = K + 2;
  OVERLAP(tglu_mlp_run(mlp, &a), "out", "overlaps residual");
  a.ldr = K + 2;
  assert_ok(tglu_mlp_run(mlp, &a));
  a.residual = out + 2;
  OVERLAP(tglu_mlp_run(mlp, &a), "out", "overlaps residual");
  a.residual = x; /* inputs may be the same memory */
  a.ldr = 0;
  assert_ok(tglu_mlp_run(mlp, &a));
}

static void workspace_overlaps_nothing(void **state)
{
  (void)state;
  tglu_run_args a = good();
  fake.workspace = 32;
  a.workspace_bytes = 32;
  a.residual = residual;
  a.workspace = out;
  OVERLAP(tglu_mlp_run(mlp, &a), "workspace", "overlap out");
  a.workspace = x + 8;
  OVERLAP(tglu_mlp_run(mlp, &a), "workspace", "overlaps x");
  a.workspace = residual - 31;
  OVERLAP(tglu_mlp_run(mlp, &a), "workspace", "overlaps residual");
  a.workspace = pool;
  OVERLAP(tglu_mlp_run(mlp, &a), "workspace", "overlaps gate");
  a.workspace = out + 2 * K * M;
  assert_ok(tglu_mlp_run(mlp, &a));
}

/* ---- words ---- */

static void explain_needs_no_memory(void **state)
{
  (void)state;
  char text[128];
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.tokens = 4;
  fake.workspace = 4096;
  assert_ok(tglu_mlp_explain(mlp, &a, text, sizeof text));
  assert_string_equal(text, "fake row for 4 tokens, ldx 8");
  assert_ok(tglu_glu_explain(glu, &a, text, sizeof text));
  char small[8];
  assert_refused(tglu_mlp_explain(mlp, &a, small, sizeof small),
                 TGLU_ERR_BUFFER_TOO_SMALL, "buffer_bytes");
  assert_says("29 bytes");
  assert_string_equal(small, "fake ro");
  assert_refused(tglu_mlp_explain(mlp, &a, text, 28), TGLU_ERR_BUFFER_TOO_SMALL,
                 "buffer_bytes");
  assert_ok(tglu_mlp_explain(mlp, &a, text, 29));
  assert_refused(tglu_mlp_explain(mlp, &a, NULL, 9), TGLU_ERR_INVALID_ARGUMENT, "buffer");
  assert_refused(tglu_mlp_explain(mlp, &a, text, 0), TGLU_ERR_INVALID_ARGUMENT,
                 "buffer_bytes");
  a.ldx = 1;
  assert_refused(tglu_mlp_explain(mlp, &a, text, 9), TGLU_ERR_INVALID_ARGUMENT, "ldx");
  a.tokens = 0;
  assert_ok(tglu_mlp_explain(mlp, &a, text, sizeof text));
  assert_string_equal(text, "no kernel row: tokens is 0, nothing runs");
  assert_int_equal(fake.runs, 0);
}

static void plans_are_told(void **state)
{
  (void)state;
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_ok(tglu_glu_get_plan(glu, 12, &info));
  assert_string_equal(info.row, "glu_fake_plain");
  assert_true(info.predicted_us == 12.0);
  assert_ok(tglu_mlp_get_plan(mlp, 0, &info));
  assert_null(info.row);
  assert_refused(tglu_glu_get_plan(glu, -1, &info), TGLU_ERR_INVALID_ARGUMENT, "tokens");
  assert_refused(tglu_glu_get_plan(glu, 1, NULL), TGLU_ERR_INVALID_ARGUMENT, "info");
}

static void a_backends_failure_comes_back(void **state)
{
  (void)state;
  fake.run_status = TGLU_ERR_DEVICE;
  const tglu_run_args a = good();
  assert_refused(tglu_glu_run(glu, &a), TGLU_ERR_DEVICE, "run");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)
  const struct CMUnitTest tests[] = {
    TEST(strides_resolve),
    TEST(bad_numbers_and_pointers),
    TEST(cuda_wants_whole_elements),
    TEST(no_tokens_touch_nothing),
    TEST(workspace_is_counted),
    TEST(out_may_overlap_nothing),
    TEST(column_blocks_are_apart),
    TEST(residual_may_be_out_itself),
    TEST(workspace_overlaps_nothing),
    TEST(explain_needs_no_memory),
    TEST(plans_are_told),
    TEST(a_backends_failure_comes_back),
  };
  return cmocka_run_group_tests_name("call", tests, NULL, NULL);
}
