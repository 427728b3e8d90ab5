/* The public calls on the real CPU backend: what crosses the border between the
 * library's own part and a backend.  Accuracy is the numeric tests' affair; here
 * the numbers are small enough to be exact. */
#include <fenv.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

enum { N = 9, K = 12, M = 33, PAD = 5 };

typedef struct operands {
  float gate[N * K], up[N * K], down[K * N], down_bias[K];
  float x[M * K], residual[M * K];
  float h[M * N], y[M * K]; /* expected */
} operands;

static operands o;
static tglu_context *context;
static tglu_glu *glu;
static tglu_mlp *mlp;

/* Small integers: every product and sum is exact in any order. */
static float small_integer(uint64_t *seed)
{
  const int value = (int)(next_random(seed) % 7) - 3;
  return (float)(value == 0 ? 4 : value);
}

static void fill(float *values, size_t count, uint64_t *seed)
{
  for (size_t i = 0; i < count; i++) values[i] = small_integer(seed);
}

static void expect(void)
{
  for (int m = 0; m < M; m++) {
    for (int n = 0; n < N; n++) {
      float g = 0, u = 0;
      for (int k = 0; k < K; k++) {
        g += o.x[m * K + k] * o.gate[n * K + k];
        u += o.x[m * K + k] * o.up[n * K + k];
      }
      o.h[m * N + n] = (g > 0 ? g : 0) * u;
    }
    for (int k = 0; k < K; k++) {
      float sum = o.down_bias[k] + o.residual[m * K + k];
      for (int n = 0; n < N; n++) sum += o.h[m * N + n] * o.down[k * N + n];
      o.y[m * K + k] = sum;
    }
  }
}

static tglu_mlp_desc describe(void)
{
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu.hidden = K;
  d.glu.intermediate = N;
  d.glu.dtype = TGLU_DTYPE_F32;
  d.glu.activation = TGLU_ACTIVATION_RELU;
  d.glu.layout = TGLU_LAYOUT_SEPARATE;
  d.glu.gate = o.gate;
  d.glu.up = o.up;
  d.down = o.down;
  d.down_bias = o.down_bias;
  return d;
}

static int open_all(void **state)
{
  (void)state;
  uint64_t seed = 5;
  fill(o.gate, N * K, &seed);
  fill(o.up, N * K, &seed);
  fill(o.down, K * N, &seed);
  fill(o.down_bias, K, &seed);
  fill(o.x, M * K, &seed);
  fill(o.residual, M * K, &seed);
  expect();
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  options.threads = 2;
  options.tune_cache = "";
  assert_ok(tglu_context_create(&options, &context));
  const tglu_mlp_desc d = describe();
  assert_ok(tglu_glu_create(context, &d.glu, &glu));
  assert_ok(tglu_mlp_create(context, &d, &mlp));
  return 0;
}

static int close_all(void **state)
{
  (void)state;
  tglu_glu_destroy(glu);
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  return 0;
}

/* Runs with a workspace off by `shift` bytes from 256. */
static tglu_status run_mlp(tglu_run_args *args, size_t shift)
{
  size_t bytes = 0;
  assert_ok(tglu_mlp_workspace_bytes(mlp, args->tokens, &bytes));
  void *room = NULL;
  assert_int_equal(posix_memalign(&room, 256, bytes + 512), 0);
  memset(room, 0x7f, bytes + 512);
  args->workspace = (char *)room + 256 + shift;
  args->workspace_bytes = bytes;
  if (bytes == 0) args->workspace = NULL;
  const tglu_status status = tglu_mlp_run(mlp, args);
  const unsigned char *guard = room;
  for (size_t i = 0; i < 256 + shift; i++) assert_int_equal(guard[i], 0x7f);
  for (size_t i = 256 + shift + bytes; i < bytes + 512; i++)
    assert_int_equal(guard[i], 0x7f);
  free(room);
  return status;
}

static void check_matrix(const float *got, int64_t ld, const float *want, int rows,
                         int columns)
{
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < columns; j++)
      if (!(got[i * ld + j] == want[i * columns + j]))
        fail_msg("(%d, %d): %g instead of %g", i, j, (double)got[i * ld + j],
                 (double)want[i * columns + j]);
    for (int64_t j = columns; j < ld && i + 1 < rows; j++)
      assert_true(got[i * ld + j] == -77.0f);
  }
}

static void poison(float *values, size_t count)
{
  for (size_t i = 0; i < count; i++) values[i] = -77.0f;
}

static tglu_run_args arguments(void *out, int64_t ldo)
{
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = o.x;
  a.tokens = M;
  a.out = out;
  a.ldo = ldo;
  return a;
}

static void glu_and_mlp_are_right(void **state)
{
  (void)state;
  static float h[M * (N + PAD)], y[M * (K + PAD)];
  poison(h, M * (N + PAD));
  poison(y, M * (K + PAD));
  tglu_run_args a = arguments(h, N + PAD);
  assert_ok(tglu_glu_run(glu, &a));
  check_matrix(h, N + PAD, o.h, M, N);
  a = arguments(y, K + PAD);
  a.residual = o.residual;
  for (size_t shift = 0; shift < 65; shift += 13) { /* H12: any workspace address */
    poison(y, M * (K + PAD));
    assert_ok(run_mlp(&a, shift));
    check_matrix(y, K + PAD, o.y, M, K);
  }
  memcpy(y, o.residual, sizeof o.residual); /* the residual is out itself */
  a = arguments(y, 0);
  a.residual = y;
  assert_ok(run_mlp(&a, 1));
  check_matrix(y, K, o.y, M, K);
}

/* H05: no tokens, then at once some. */
static void no_tokens_then_some(void **state)
{
  (void)state;
  static float h[M * N];
  tglu_run_args a;
  tglu_run_args_init(&a);
  for (int i = 0; i < 3; i++) {
    assert_ok(tglu_glu_run(glu, &a));
    assert_ok(tglu_mlp_run(mlp, &a));
    memset(h, 0x7f, sizeof h);
    tglu_run_args none = arguments(h, 0);
    none.tokens = 0;
    assert_ok(tglu_glu_run(glu, &none));
    for (size_t j = 0; j < sizeof h; j++)
      assert_int_equal(((unsigned char *)h)[j], 0x7f);
    tglu_run_args three = arguments(h, 0);
    three.tokens = 3;
    assert_ok(tglu_glu_run(glu, &three));
    check_matrix(h, N, o.h, 3, N);
  }
}

/* H12: strided views, also from an odd byte on. */
static void views_are_read_where_they_lie(void **state)
{
  (void)state;
  enum { WIDE = 3 * K + 1 };
  static unsigned char base[sizeof(float) * M * WIDE + 8];
  static float h[M * N];
  for (int shift = 0; shift < 4; shift++)
    for (int column = 0; column <= K; column += K - 1) {
      memset(base, 0x7f, sizeof base);
      for (int m = 0; m < M; m++)
        memcpy(base + shift + sizeof(float) * (size_t)(m * WIDE + column), &o.x[m * K],
               sizeof(float) * K);
      poison(h, M * N);
      tglu_run_args a = arguments(h, 0);
      a.x = base + shift + sizeof(float) * (size_t)column;
      a.ldx = WIDE;
      assert_ok(tglu_glu_run(glu, &a));
      check_matrix(h, N, o.h, M, N);
    }
}

/* H14: refused, and what was there is there still. */
static void overlaps_change_nothing(void **state)
{
  (void)state;
  static operands before;
  before = o;
  tglu_run_args a = arguments(o.x, 0);
  assert_refused(tglu_glu_run(glu, &a), TGLU_ERR_OVERLAP, "out");
  a = arguments(o.x + (M - 1) * K, 0);
  assert_refused(tglu_glu_run(glu, &a), TGLU_ERR_OVERLAP, "out");
  a = arguments(o.gate, 0);
  a.tokens = 1;
  assert_refused(tglu_glu_run(glu, &a), TGLU_ERR_OVERLAP, "out");
  a = arguments(o.y, 1);
  assert_refused(tglu_glu_run(glu, &a), TGLU_ERR_INVALID_ARGUMENT, "ldo");
  a = arguments(o.y, 0);
  a.workspace = o.y;
  a.workspace_bytes = sizeof o.y;
  size_t bytes = 0;
  assert_ok(tglu_mlp_workspace_bytes(mlp, M, &bytes));
  if (bytes <= sizeof o.y)
    assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_OVERLAP, "workspace");
  else
    assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE, "workspace");
  if (bytes > 0) {
    a = arguments(o.y, 0);
    assert_refused(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE, "workspace");
  }
  assert_memory_equal(&before, &o, sizeof o);
}

/* The weights are bound, not copied: the next run uses new contents. */
static void changed_weights_count(void **state)
{
  (void)state;
  static float h[M * N];
  uint64_t seed = 99;
  fill(o.up, N * K, &seed);
  expect();
  tglu_run_args a = arguments(h, 0);
  assert_ok(tglu_glu_run(glu, &a));
  check_matrix(h, N, o.h, M, N);
  tglu_object_info info;
  tglu_object_info_init(&info);
  assert_ok(tglu_mlp_get_info(mlp, &info));
  assert_int_equal(info.copied_bytes, 0);
  assert_int_equal(info.weight_bytes, 3 * N * K * sizeof(float));
}

/* ---- an MLP without an intermediate ---- */

static void empty_mlp_writes_bias_and_residual(void **state)
{
  (void)state;
  static const struct {
    tglu_dtype dtype;
    uint16_t bias, residual, sum, bias_alone;
  } cases[] = {
    /* 1 + 2^-8 is half way to the next bf16 number and goes to the even one below;
     * 1 + 3 * 2^-8 goes up to the even one above. */
    {TGLU_DTYPE_BF16, 0x3f80, 0x3b80, 0x3f80, 0x3f80},
    {TGLU_DTYPE_BF16, 0x3f80, 0x3c40, 0x3f82, 0x3f80},
    {TGLU_DTYPE_BF16, 0x7f7f, 0x7f7f, 0x7f80, 0x7f7f}, /* overflow is infinite */
    {TGLU_DTYPE_BF16, 0x0001, 0x0001, 0x0002, 0x0001}, /* subnormals add up    */
    {TGLU_DTYPE_F16, 0x3c00, 0x1000, 0x3c00, 0x3c00},  /* 1 + 2^-11: even       */
    {TGLU_DTYPE_F16, 0x3c00, 0x1600, 0x3c02, 0x3c00},  /* 1 + 3 * 2^-11: even   */
    {TGLU_DTYPE_F16, 0x7bff, 0x4c00, 0x7c00, 0x7bff},  /* 65504 + 16 = 65520    */
    {TGLU_DTYPE_F16, 0x7bff, 0x4bff, 0x7bff, 0x7bff},  /* just below that       */
    {TGLU_DTYPE_F16, 0x0001, 0x03ff, 0x0400, 0x0001},  /* subnormal to normal   */
    {TGLU_DTYPE_F16, 0x8003, 0x8004, 0x8007, 0x8003},  /* signed subnormals     */
    {TGLU_DTYPE_F16, 0xc500, 0x4400, 0xbc00, 0xc500},  /* -5 + 4                */
    {TGLU_DTYPE_F16, 0x7c00, 0x3c00, 0x7c00, 0x7c00},  /* inf                   */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tglu_mlp_desc d;
    tglu_mlp_desc_init(&d);
    d.glu.hidden = 2;
    d.glu.dtype = cases[i].dtype;
    d.glu.activation = TGLU_ACTIVATION_SILU;
    d.glu.layout = TGLU_LAYOUT_INTERLEAVED;
    const uint16_t bias[2] = {cases[i].bias, 0}, residual[2] = {cases[i].residual, 0};
    d.down_bias = bias;
    tglu_mlp *empty = NULL;
    assert_ok(tglu_mlp_create(context, &d, &empty));
    const uint16_t x[4] = {0x7e00, 0x7fc0, 1, 2}; /* NaN: x takes no part */
    uint16_t out[8];
    memset(out, 0x7f, sizeof out);
    tglu_run_args a;
    tglu_run_args_init(&a);
    a.x = x;
    a.tokens = 2;
    a.out = out;
    a.ldo = 3;
    assert_ok(tglu_mlp_run(empty, &a));
    const uint16_t expected[8] = {cases[i].bias_alone, 0, 0x7f7f, cases[i].bias_alone,
                                  0, 0x7f7f, 0x7f7f, 0x7f7f};
    assert_memory_equal(out, expected, sizeof out);
    a.tokens = 1;
    a.residual = residual;
    assert_ok(tglu_mlp_run(empty, &a));
    if (out[0] != cases[i].sum)
      fail_msg("case %zu: 0x%04x instead of 0x%04x", i, out[0], cases[i].sum);
    char text[200];
    assert_ok(tglu_mlp_explain(empty, &a, text, sizeof text));
    assert_non_null(strstr(text, "intermediate is 0"));
    tglu_mlp_destroy(empty);
  }
}

/* Nor does the caller's rounding mode take part, and it is kept. */
static void empty_mlp_rounds_to_nearest(void **state)
{
  (void)state;
  const float bias = 1.0f, residual = 0x1p-30f;
  float out = 0;
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu.hidden = 1;
  d.glu.dtype = TGLU_DTYPE_F32;
  d.glu.activation = TGLU_ACTIVATION_SILU;
  d.glu.layout = TGLU_LAYOUT_SEPARATE;
  d.down_bias = &bias;
  tglu_mlp *empty = NULL;
  assert_ok(tglu_mlp_create(context, &d, &empty));
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = &residual;
  a.residual = &residual;
  a.tokens = 1;
  a.out = &out;
  assert_int_equal(fesetround(FE_UPWARD), 0);
  const tglu_status status = tglu_mlp_run(empty, &a);
  const int mode = fegetround();
  fesetround(FE_TONEAREST);
  assert_ok(status);
  assert_int_equal(mode, FE_UPWARD);
  assert_true(out == 1.0f);
  tglu_mlp_destroy(empty);
}

static void empty_glu_writes_nothing(void **state)
{
  (void)state;
  tglu_glu_desc d = describe().glu;
  d.intermediate = 0;
  d.gate = d.up = NULL;
  tglu_glu *empty = NULL;
  assert_ok(tglu_glu_create(context, &d, &empty));
  unsigned char out[16];
  memset(out, 0x7f, sizeof out);
  tglu_run_args a = arguments(out, 0);
  assert_ok(tglu_glu_run(empty, &a));
  for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], 0x7f);
  tglu_glu_destroy(empty);
}

/* ---- words, threads, lives ---- */

static void rows_and_plans_have_names(void **state)
{
  (void)state;
  char text[4096];
  tglu_run_args a = arguments(NULL, 0);
  a.x = NULL;
  assert_ok(tglu_mlp_explain(mlp, &a, text, sizeof text));
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_ok(tglu_mlp_get_plan(mlp, M, &info));
  assert_non_null(info.row);
  assert_non_null(info.down_row);
  assert_non_null(strstr(text, info.row));
  char small[9];
  memset(small, 'z', sizeof small);
  assert_refused(tglu_glu_explain(glu, &a, small, 8), TGLU_ERR_BUFFER_TOO_SMALL,
                 "buffer_bytes");
  assert_int_equal(small[7], '\0');
  assert_int_equal(small[8], 'z');

  bool found = false;
  const int32_t count = tglu_row_count(context);
  for (int32_t i = 0; i < count; i++) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    assert_ok(tglu_row_get(context, i, &row));
    assert_true(row.name && row.op && row.schedule && row.isa && row.hash);
    found = found || (strcmp(row.name, info.row) == 0 && row.usable == 1);
  }
  assert_true(found);
}

typedef struct worker {
  pthread_t thread;
  float h[M * N];
  tglu_status status;
} worker;

static void *run_rounds(void *user)
{
  worker *w = user;
  for (int round = 0; round < 50 && w->status == TGLU_OK; round++) {
    tglu_run_args a = arguments(w->h, 0);
    w->status = tglu_glu_run(glu, &a);
  }
  return NULL;
}

/* H16, H21: threads that never saw the library run one object at once. */
static void one_object_many_threads(void **state)
{
  (void)state;
  static worker workers[8];
  memset(workers, 0, sizeof workers);
  for (int i = 0; i < 8; i++) {
    poison(workers[i].h, M * N);
    assert_int_equal(pthread_create(&workers[i].thread, NULL, run_rounds, &workers[i]), 0);
  }
  for (int i = 0; i < 8; i++) {
    pthread_join(workers[i].thread, NULL);
    assert_ok(workers[i].status);
    check_matrix(workers[i].h, N, o.h, M, N);
  }
}

static void *create_and_destroy(void *failed)
{
  for (int round = 0; round < 30; round++) {
    tglu_glu *own = NULL;
    const tglu_mlp_desc d = describe();
    if (tglu_glu_create(context, &d.glu, &own)) *(int *)failed = 1;
    tglu_glu_destroy(own);
  }
  return NULL;
}

static void objects_come_and_go_on_any_thread(void **state)
{
  (void)state;
  pthread_t threads[4];
  int failed[4] = {0};
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, create_and_destroy, &failed[i]), 0);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(failed[i], 0);
  }
}

static void a_context_may_go_first(void **state)
{
  (void)state;
  static float h[M * N];
  tglu_context_destroy(context);
  context = NULL;
  poison(h, M * N);
  tglu_run_args a = arguments(h, 0);
  assert_ok(tglu_glu_run(glu, &a));
  check_matrix(h, N, o.h, M, N);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)
  const struct CMUnitTest tests[] = {
    TEST(glu_and_mlp_are_right),
    TEST(no_tokens_then_some),
    TEST(views_are_read_where_they_lie),
    TEST(overlaps_change_nothing),
    TEST(changed_weights_count),
    TEST(empty_mlp_writes_bias_and_residual),
    TEST(empty_mlp_rounds_to_nearest),
    TEST(empty_glu_writes_nothing),
    TEST(rows_and_plans_have_names),
    TEST(one_object_many_threads),
    TEST(objects_come_and_go_on_any_thread),
    TEST(a_context_may_go_first),
  };
  return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
