/* Rows of op mlp, one launch for both halves, on the fake driver: where the planner takes
 * them, where two launches serve instead, what a forced one refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_mlp.h"
#include "planner_cases.h"

enum { MOST_TOKENS = 8 };

static bool built(void) {
  if (!kernels_built()) return false;
  if (has_row(tglu__op_mlp, TGLU_DTYPE_BF16, tglu__loader_tma)) return true;
  print_message("skipped: this build has no rows of op mlp\n");
  return false;
}

static const char *first_row(tglu__op op) {
  for (int32_t i = 0; i < tglu__row_total; ++i)
    if (tglu__rows[i].op == op && tglu__rows[i].dtype == TGLU_DTYPE_BF16)
      return tglu__rows[i].name;
  fail();
  return NULL;
}

/* A shape that the planner has in one launch, by a clear margin: an intermediate that is no
 * multiple of 64, which keeps down_diag away, and much less than the hidden size. */
static fake_shape one_launch_shape(void) {
  const fake_options o = {.pdl = 1};
  for (int64_t m = MOST_TOKENS; m >= 1; --m) {
    const fake_shape s = {.m = m, .n = 1032, .k = 5120, .bias = 1, .residual = 1};
    if (fake_in_one_launch(&o, &s, TGLU_DTYPE_BF16)) return s;
  }
  fail_msg("the planner has no MLP in one launch");
  return (fake_shape){.m = 0};
}

/* An MLP of the shape in a context of its own. */
static tglu_mlp *open_mlp(const fake_options *o, const fake_shape *s, tglu_context **context) {
  *context = fake_context(o);
  const tglu_mlp_desc d = fake_mlp_desc(s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(*context, &d, &mlp), TGLU_OK);
  return mlp;
}

static void close_mlp(tglu_mlp *mlp, tglu_context *context) {
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
}

/* Real shapes and some beside them, every launch compared: some in one launch, none of more tokens
 * than a tile. */
static void planned(void **unused) {
  (void)unused;
  if (!built()) skip();
  int one = 0, cases = 0;
  for (int i = 0; i < MODELS; ++i) {
    for (int64_t m = 1; m <= MOST_TOKENS + 1; ++m) {
      const int v = cases++ % 4;
      const fake_options o = {.pdl = v % 2, .stable = v / 2, .sm_limit = v == 3 ? 77 : 0};
      const fake_shape s = {.m = m, .n = models[i][1] + 8 * (v > 1), .k = models[i][0],
                            .bias = v % 2, .residual = v % 3, .workspace_off = 37u * (unsigned)v,
                            .out_off = 2u * (unsigned)v, .ldo_extra = v};
      const tglu_dtype dtype = cases / 4 % 2 ? TGLU_DTYPE_F16 : TGLU_DTYPE_BF16;
      fake_begin();
      assert_int_equal(check_mlp(&o, &s, dtype), 1);
      if (m > MOST_TOKENS) assert_int_equal(fake->launch_total, 2);
      one += fake->launch_total == 1;
      fake_expect_balance();
    }
  }
  print_message("%d of %d in one launch\n", one, cases);
  assert_true(one > 0);
}

/* Every row forced, over sizes of which one may be smaller than there are SMs. */
static void forced(void **unused) {
  (void)unused;
  if (!built()) skip();
  static const int64_t sizes[][2] = {{8, 8}, {8, 2480}, {2304, 8}, {136, 264}, {72, 24},
                                     {1001, 520}, {264, 16}};
  int launched = 0;
  for (int32_t r = 0; r < tglu__row_total; ++r) {
    const tglu__row *row = &tglu__rows[r];
    if (row->op != tglu__op_mlp) continue;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
      for (int64_t m = 1; m <= MOST_TOKENS; m += 3) {
        fake_begin();
        const fake_options o = {.row = row->name, .pdl = (int32_t)(i % 2), .stable = m > 4,
                                .sm_limit = m == 4 ? 5 : 0};
        const fake_shape s = {.m = m, .n = sizes[i][1], .k = sizes[i][0], .bias = m == 1,
                              .residual = (int)(i % 3), .ldx_extra = (8 - sizes[i][0] % 8) % 8};
        assert_int_equal(check_mlp(&o, &s, row->dtype), 1);
        assert_string_equal(fake->launches[0].kernel, row->name);
        ++launched;
        fake_expect_balance();
      }
    }
  }
  assert_true(launched > 0);
}

static tglu_status run(tglu_mlp *mlp, const fake_shape *s) {
  tglu_run_args a = fake_args(s, s->k);
  fake_workspace(s, &a);
  fake->launch_total = 0;
  return tglu_mlp_run(mlp, &a);
}

/* What a forced row can not serve is refused, as of any other row. */
static void forced_refuses(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  fake_options o = {.row = first_row(tglu__op_mlp), .pdl = 1};
  tglu_context *context = fake_context(&o);
  fake_shape s = {.m = 1, .n = 520, .k = 264};
  tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
  for (s.m = 1; s.m <= 20; ++s.m) {
    tglu_status status = run(mlp, &s);
    assert_int_equal(status, s.m <= MOST_TOKENS ? TGLU_OK : TGLU_ERR_UNSUPPORTED);
    assert_int_equal(fake->launch_total, s.m <= MOST_TOKENS);
    if (status != TGLU_OK) expect_message("needs no more tokens");
    tglu_plan_info info;
    tglu_plan_info_init(&info);
    assert_int_equal(tglu_mlp_get_plan(mlp, s.m, &info), TGLU_OK);
    if (s.m <= MOST_TOKENS) assert_string_equal(info.row, o.row);
    else assert_null(info.row);
    assert_null(info.down_row);
  }
  s.m = 3;
  s.ldx_extra = 1;
  assert_int_equal(run(mlp, &s), TGLU_ERR_UNSUPPORTED);
  expect_message("needs x on 16 bytes");
  s.ldx_extra = 0;
  tglu_mlp_destroy(mlp);
  for (int i = 0; i < 3; ++i) {
    d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
    const void **operand = i == 0 ? &d.glu.gate : i == 1 ? &d.glu.up : &d.down;
    *operand = (const char *)*operand + 2;
    assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_ERR_UNSUPPORTED);
    expect_message("needs weights on 16 bytes");
  }
  d = fake_mlp_desc(&s, TGLU_DTYPE_F16);
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_ERR_UNSUPPORTED);
  expect_message("another dtype");
  tglu_glu *glu;
  d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
  assert_int_equal(tglu_glu_create(context, &d.glu, &glu), TGLU_ERR_UNSUPPORTED);
  expect_message("another operation");
  tglu_context_destroy(context);
  fake_expect_balance();
  o.invariant = 1; /* one row for every count of tokens, which this is not */
  context = fake_context(&o);
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_ERR_UNSUPPORTED);
  expect_message("needs no more tokens");
  tglu_context_destroy(context);
}

/* One object: unaligned x and more tokens take two launches, the rest one. */
static void falls_to_two(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  const fake_options o = {.pdl = 1};
  tglu_context *context = fake_context(&o);
  const fake_shape few = one_launch_shape();
  tglu_mlp_desc d = fake_mlp_desc(&few, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
  fake_shape s = few;
  for (int i = 0; i < 5; ++i) {
    s = few;
    if (i == 1) s.x_off = 2;
    if (i == 2) s.m = MOST_TOKENS + 1;
    if (i == 3) s.m = 300;
    if (i == 4) s.out_off = 2, s.ldo_extra = 3; /* stores are ordinary ones */
    if (run(mlp, &s) != TGLU_OK) fail_msg("%s", tglu_last_error());
    assert_int_equal(fake->launch_total, i == 0 || i == 4 ? 1 : 2);
  }
  close_mlp(mlp, context);
  fake_expect_balance();
}

/* Launches of such a shape in such a context. */
static int launches_of(const fake_options *o, const fake_shape *s) {
  tglu_context *context = fake_context(o);
  tglu_mlp_desc d = fake_mlp_desc(s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  if (tglu_mlp_create(context, &d, &mlp) != TGLU_OK || run(mlp, s) != TGLU_OK)
    fail_msg("%s", tglu_last_error());
  int launches = fake->launch_total;
  close_mlp(mlp, context);
  fake_expect_balance();
  return launches;
}

/* Two launches where bits may not depend on the number of tokens, where a half's row is forced,
 * and where the device, or what it has left, does not allow CTAs to wait for each other. */
static void never_in_one(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  const fake_shape s = one_launch_shape();
  fake_options o = {.pdl = 1};
  assert_int_equal(launches_of(&o, &s), 1);
  o.invariant = 1;
  assert_int_equal(launches_of(&o, &s), 2);
  o.invariant = 0;
  o.row = first_row(tglu__op_glu);
  assert_int_equal(launches_of(&o, &s), 2);
  o.row = first_row(tglu__op_down);
  assert_int_equal(launches_of(&o, &s), 2);
  o.row = NULL;
  fake->cooperative = 0;
  assert_int_equal(launches_of(&o, &s), 2);
  fake->cooperative = 1;
  fake->blocks_an_sm = 0;
  assert_int_equal(launches_of(&o, &s), 2);
  o.row = first_row(tglu__op_mlp);
  tglu_context *context = fake_context(&o);
  tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_ERR_UNSUPPORTED);
  expect_message("needs a block on every SM");
  tglu_context_destroy(context);
  fake->blocks_an_sm = 1;
  fake->cooperative = 0; /* then the row is of no use at all */
  tglu_context_options c;
  tglu_context_options_init(&c);
  c.backend = TGLU_BACKEND_CUDA;
  c.cuda_library = FAKE_CUDA;
  c.row = o.row;
  assert_int_not_equal(tglu_context_create(&c, &context), TGLU_OK);
  expect_message("row: ");
  fake_expect_balance();
}

static void record(const char *path, const fake_shape *s, const char *op, const char *row,
                   const char *second) {
  const fake_options o = {.pdl = 1, .tune_cache = path};
  tglu_context *context = fake_context(&o);
  tglu_tune_entry e;
  tglu_tune_entry_init(&e);
  e.op = op;
  e.dtype = TGLU_DTYPE_BF16;
  e.hidden = s->k;
  e.intermediate = s->n;
  e.tokens = s->m;
  e.row = row;
  e.us = 1000;
  e.runner_up = second;
  e.runner_up_us = 2000;
  if (tglu_tune_record(context, &e) != TGLU_OK) fail_msg("%s", tglu_last_error());
  tglu_context_destroy(context);
}

/* A tuned half keeps the two launches: what was measured does not give way to a guess.  What
 * was measured of the whole MLP decides. */
/* A winner of op mlp that says two launches. */
static void expect_apart(const fake_options *o, const fake_shape *s) {
  tglu_context *context;
  tglu_mlp *mlp = open_mlp(o, s, &context);
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_int_equal(tglu_mlp_get_plan(mlp, s->m, &info), TGLU_OK);
  assert_int_equal(info.tuned, 1);
  assert_non_null(info.down_row);
  tglu_run_args a = fake_args(s, s->k);
  char text[4096];
  assert_int_equal(tglu_mlp_explain(mlp, &a, text, sizeof text), TGLU_OK);
  assert_non_null(strstr(text, "two launches: tuned, 1000.0 us measured"));
  close_mlp(mlp, context);
}

static void tuned(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  char path[] = "/tmp/tileglu_one_launch_XXXXXX", lock[64];
  const int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  snprintf(lock, sizeof lock, "%s.lock", path);
  const fake_shape s = one_launch_shape();
  const fake_options o = {.pdl = 1, .tune_cache = path};
  const char *glu = first_row(tglu__op_glu), *down = first_row(tglu__op_down);
  const char *one = NULL; /* the last that serves the shape: none that the planner takes */
  for (int32_t i = 0; i < tglu__row_total; ++i)
    if (tglu__rows[i].op == tglu__op_mlp && tglu__rows[i].dtype == TGLU_DTYPE_BF16)
      one = tglu__rows[i].name;
  for (int half = 0; half < 2; ++half) {
    unlink(path);
    assert_int_equal(launches_of(&o, &s), 1);
    record(path, &s, half ? "down" : "glu", half ? down : glu, NULL);
    assert_int_equal(launches_of(&o, &s), 2);
    record(path, &s, "mlp", one, glu);
    assert_int_equal(launches_of(&o, &s), 1);
    assert_string_equal(fake->launches[0].kernel, one);
    record(path, &s, "mlp", glu, one);
    assert_int_equal(launches_of(&o, &s), 2);
  }
  unlink(path); /* of both halves nothing is known */
  record(path, &s, "mlp", glu, one);
  expect_apart(&o, &s);
  unlink(path);
  record(path, &s, "mlp", one, glu);
  tglu_context *context;
  tglu_mlp *mlp = open_mlp(&o, &s, &context);
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_int_equal(tglu_mlp_get_plan(mlp, s.m, &info), TGLU_OK);
  assert_string_equal(info.row, one);
  assert_int_equal(info.tuned, 1);
  tglu_run_args a = fake_args(&s, s.k);
  char text[4096];
  assert_int_equal(tglu_mlp_explain(mlp, &a, text, sizeof text), TGLU_OK);
  assert_non_null(strstr(text, "1000.0 us measured; runner-up two launches, 2000.0 us"));
  close_mlp(mlp, context);
  unlink(lock);
  unlink(path);
}

/* The only launch fails: the driver's word, nothing launched. */
static void launch_fails(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  const fake_options o = {.pdl = 1};
  const fake_shape s = one_launch_shape();
  tglu_context *context;
  tglu_mlp *mlp = open_mlp(&o, &s, &context);
  fake->fail_call = "cuLaunchKernelEx";
  fake->fail_code = 700;
  assert_int_equal(run(mlp, &s), TGLU_ERR_DEVICE);
  assert_int_equal(fake->launch_total, 0);
  fake->fail_call = NULL;
  close_mlp(mlp, context);
  fake_expect_balance();
}

/* On a stream with fewer SMs than the device, CTAs that wait for each other do not fit: two
 * launches instead, unless the row is forced. */
static void too_large(void **unused) {
  (void)unused;
  if (!built()) skip();
  for (int forced_row = 0; forced_row < 2; ++forced_row) {
    fake_begin();
    const fake_options o = {.pdl = 1, .row = forced_row ? first_row(tglu__op_mlp) : NULL};
    const fake_shape s = one_launch_shape();
    tglu_context *context;
    tglu_mlp *mlp = open_mlp(&o, &s, &context);
    assert_int_equal(run(mlp, &s), TGLU_OK);
    assert_int_equal(fake->launch_total, 1);
    const int32_t blocks = fake->blocks_an_sm;
    fake->blocks_an_sm = 0;
    assert_int_equal(run(mlp, &s), forced_row ? TGLU_ERR_DEVICE : TGLU_OK);
    assert_int_equal(fake->launch_total, forced_row ? 0 : 2);
    fake->blocks_an_sm = blocks;
    assert_int_equal(run(mlp, &s), TGLU_OK);
    assert_int_equal(fake->launch_total, 1);
    close_mlp(mlp, context);
    fake_expect_balance();
  }
}

static void inside_a_capture(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  fake->capturing = 1;
  const fake_options o = {.pdl = 1};
  const fake_shape s = one_launch_shape();
  assert_int_equal(check_mlp(&o, &s, TGLU_DTYPE_BF16), 1);
  assert_int_equal(fake->launch_total, 1);
  fake_expect_balance();
}

static void explain_and_plan(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  const fake_options o = {.pdl = 1};
  const fake_shape s = one_launch_shape();
  tglu_context *context;
  tglu_mlp *mlp = open_mlp(&o, &s, &context);
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_int_equal(tglu_mlp_get_plan(mlp, s.m, &info), TGLU_OK);
  assert_true(strncmp(info.row, "mlp_bf16_sm90_", 14) == 0);
  assert_null(info.down_row);
  assert_int_equal(info.tuned, 0);
  assert_true(info.predicted_us > 6e-6 * (double)(s.n * s.k) / 4.8);
  tglu_run_args a = fake_args(&s, s.k);
  char text[4096];
  assert_int_equal(tglu_mlp_explain(mlp, &a, text, sizeof text), TGLU_OK);
  const char *const words[] = {info.row, "mlp: ", "schedule: stream_mlp", "cost model",
                               "predicted", "two launches, ", "launch: one, cooperative",
                               "grid: 132 CTAs", "serialization off"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
    if (strstr(text, words[i]) == NULL) fail_msg("no \"%s\" in\n%s", words[i], text);
  a.x = (const char *)a.x + 2;
  assert_int_equal(tglu_mlp_explain(mlp, &a, text, sizeof text), TGLU_OK);
  assert_non_null(strstr(text, "launch: two"));
  close_mlp(mlp, context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(planned),      cmocka_unit_test(forced),
    cmocka_unit_test(forced_refuses), cmocka_unit_test(falls_to_two),
    cmocka_unit_test(never_in_one), cmocka_unit_test(tuned),
    cmocka_unit_test(launch_fails), cmocka_unit_test(too_large), cmocka_unit_test(inside_a_capture),
    cmocka_unit_test(explain_and_plan),
  };
  fake_open();
  return cmocka_run_group_tests_name("cuda_one_launch", tests, NULL, NULL);
}
