/* batch_invariant: the row that the planner takes for all numbers of tokens, and that objects
 * take no other. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fake_mlp.h"
#include "planner_cases.h"

static const int64_t counts[] = {1, 16, 128, 1024, 4096};
enum { COUNTS = 5 };

/* ---- the rule, without a device ---- */

static tglu__problem problem(int64_t n, int64_t k, tglu_dtype dtype) {
  return (tglu__problem){.dtype = dtype, .n = n, .k = k, .gate = fake_at(AT_GATE),
                         .up = fake_at(AT_UP), .ld = (k + 7) / 8 * 8, .has_down = true,
                         .down = fake_at(AT_DOWN), .ld_down = (n + 7) / 8 * 8};
}

/* With what the halves of an MLP cost each other: what is said of a call. */
static double predicted_at(int32_t row, const tglu__problem *p, int64_t m,
                           const tglu__device_facts *d) {
  tglu__choice c;
  tglu__plan_launch(row, p, m, d, &c);
  return tglu__plan_cost_us(&c, p, m);
}

/* Alone: what rows are compared by, so that an MLP's half and a linear agree. */
static double cost_at(int32_t row, const tglu__problem *p, int64_t m,
                      const tglu__device_facts *d) {
  tglu__choice c;
  tglu__plan_launch(row, p, m, d, &c);
  return tglu__plan_alone_us(&c, p, m);
}

/* Mean of the logarithms of its times over the best rows', INFINITY where it does not serve. */
static double log_mean(int32_t row, const tglu__problem *p, tglu__call_facts f,
                       const tglu__device_facts *d) {
  double sum = 0;
  for (int i = 0; i < COUNTS; ++i) {
    tglu__choice best;
    f.tokens = counts[i];
    if (!tglu__row_valid(&tglu__rows[row], p, &f, d, NULL)) return INFINITY;
    tglu__plan_choose(tglu__rows[row].op, p, &f, d, &best, NULL);
    sum += log(cost_at(row, p, counts[i], d) / best.predicted_us);
  }
  return sum / COUNTS;
}

static bool equal_times(int32_t a, int32_t b, const tglu__problem *p,
                        const tglu__device_facts *d) {
  for (int i = 0; i < COUNTS; ++i)
    if (cost_at(a, p, counts[i], d) != cost_at(b, p, counts[i], d)) return false;
  return true;
}

/* No other row has a lesser mean, nor an equal one and an earlier place. */
static void expect_least(const tglu__choice *c, const tglu__choice *second,
                         const tglu__problem *p, const tglu__call_facts *f,
                         const tglu__device_facts *d) {
  const tglu__op op = tglu__rows[c->row].op;
  const double least = log_mean(c->row, p, *f, d), rounding = 1e-12;
  const double next = second->row < 0 ? INFINITY : log_mean(second->row, p, *f, d);
  assert_true(isfinite(least));
  assert_true(second->row != c->row && next >= least - rounding);
  for (int32_t r = 0; r < tglu__row_total; ++r) {
    if (tglu__rows[r].op != op || r == c->row) continue;
    const double mean = log_mean(r, p, *f, d);
    if (mean == INFINITY) continue;
    assert_true(mean >= least - rounding);
    assert_true(r == second->row || mean >= next - rounding);
    assert_false(r < c->row && equal_times(r, c->row, p, d));
  }
}

/* The row for one token is that for any number of them, and can serve it. */
static bool expect_invariant(tglu__op op, const tglu__problem *p, tglu__call_facts f,
                             const tglu__device_facts *d) {
  tglu__choice c, second, other;
  memset(&c, 0x5a, sizeof c);
  f.tokens = 1;
  if (!tglu__plan_choose_invariant(op, p, &f, d, &c, &second)) {
    assert_int_equal(c.row, -1);
    assert_int_equal(second.row, -1);
    for (int32_t r = 0; r < tglu__row_total; ++r)
      assert_true(tglu__rows[r].op != op || log_mean(r, p, f, d) == INFINITY);
    return false;
  }
  const tglu__row *row = &tglu__rows[c.row];
  assert_int_equal(row->op, op);
  assert_false(row->op == tglu__op_mlp);
  assert_false(tglu__row_is_stream(row) && row->loader == tglu__loader_tma);
  expect_least(&c, &second, p, &f, d);
  for (f.tokens = 1; f.tokens <= 1 << 20; f.tokens = f.tokens * 2 + f.tokens % 3) {
    assert_true(tglu__row_valid(row, p, &f, d, NULL));
    assert_true(tglu__plan_choose_invariant(op, p, &f, d, &other, NULL));
    assert_int_equal(other.row, c.row);
    assert_true(other.predicted_us == predicted_at(c.row, p, f.tokens, d));
  }
  return true;
}

/* A linear takes the row of an MLP's down projection of the same shape. */
static void as_a_linear(void **unused) {
  (void)unused;
  for (int32_t sms = 60; sms <= 132; sms += 24) {
    const tglu__device_facts d = device(sms);
    for (int i = 0; i < MODELS; ++i) {
      const tglu__call_facts f = call(1);
      tglu__problem p = problem(models[i][1], models[i][0], TGLU_DTYPE_BF16);
      tglu__choice in_mlp, alone;
      assert_true(tglu__plan_choose_invariant(tglu__op_down, &p, &f, &d, &in_mlp, NULL));
      p.gate = p.up = NULL;
      assert_true(tglu__plan_choose_invariant(tglu__op_down, &p, &f, &d, &alone, NULL));
      assert_int_equal(in_mlp.row, alone.row);
    }
  }
}

static void least_mean(void **unused) {
  (void)unused;
  int found[TGLU__OPS] = {0};
  uint64_t random = 20;
  for (int i = 0; i < 240; ++i) {
    int64_t size[2];
    for (int j = 0; j < 2; ++j) {
      random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      const int64_t below = (int64_t)1 << (4 + (random >> 60));
      size[j] = 1 + (int64_t)(random >> 30) % below;
    }
    tglu__problem p = i < MODELS ? problem(models[i][1], models[i][0], TGLU_DTYPE_F16)
                                     : problem(size[0], size[1], TGLU_DTYPE_BF16);
    const tglu__device_facts d = device(i % 3 ? 132 : 1 + (int32_t)(random >> 33) % 132);
    tglu__call_facts f = call(1);
    f.x_aligned = i % 5 != 4;
    if (i % 7 == 6) p.gate = p.down = fake_at(AT_GATE + 2);
    for (tglu__op op = tglu__op_glu; op <= tglu__op_mlp; ++op)
      if (tglu__op_present(op, &p)) found[op] += expect_invariant(op, &p, f, &d);
  }
  assert_int_equal(found[tglu__op_mlp], 0);
  if (has_row(tglu__op_glu, TGLU_DTYPE_BF16, tglu__loader_tma))
    assert_true(found[tglu__op_glu] > 100);
  if (has_row(tglu__op_down, TGLU_DTYPE_BF16, tglu__loader_tma))
    assert_true(found[tglu__op_down] > 100);
}

/* The row for many tokens alone left most SMs idle for few of them, where a split K does not:
 * of a linear, and of an MLP's down projection. */
static void fit_for_few_tokens(void **unused) {
  (void)unused;
  const tglu__device_facts d = device(132);
  for (int mlp = 0; mlp < 2; ++mlp) {
    tglu__problem p = problem(18944, 3584, TGLU_DTYPE_BF16);
    if (!mlp) p.gate = p.up = NULL;
    for (tglu__op op = mlp ? tglu__op_glu : tglu__op_down; op <= tglu__op_down; ++op) {
      if (!has_row(op, TGLU_DTYPE_BF16, tglu__loader_tma)) continue;
      for (int i = 0; i < COUNTS; ++i) {
        const tglu__call_facts f = call(counts[i]);
        tglu__choice c, best;
        assert_true(tglu__plan_choose_invariant(op, &p, &f, &d, &c, NULL));
        assert_true(tglu__plan_choose(op, &p, &f, &d, &best, NULL));
        if (op == tglu__op_down)
          assert_int_equal(tglu__rows[c.row].schedule, tglu__schedule_down_split);
        assert_true(c.predicted_us >= best.predicted_us);
        assert_true(c.predicted_us < (counts[i] <= 128 ? 1.2 : 1.5) * best.predicted_us);
      }
    }
  }
}

/* The rule's row, or none: no other for the counts that it can not serve. */
static void refuses_too_many_tokens(void **unused) {
  (void)unused;
  const tglu__device_facts d = device(132);
  const tglu__problem p = problem(18944, 3584, TGLU_DTYPE_BF16);
  const tglu__call_facts one = call(1), most = call(INT32_MAX);
  for (tglu__op op = tglu__op_glu; op <= tglu__op_down; ++op) {
    tglu__choice c, second;
    if (!tglu__plan_choose_invariant(op, &p, &one, &d, &c, NULL)) continue;
    const bool serves = tglu__row_valid(&tglu__rows[c.row], &p, &most, &d, NULL);
    const int32_t want = serves ? c.row : -1;
    assert_int_equal(tglu__plan_choose_invariant(op, &p, &most, &d, &c, &second), serves);
    assert_int_equal(c.row, want);
    if (op == tglu__op_glu) assert_false(serves);
  }
}

static void nothing_serves(void **unused) {
  (void)unused;
  const tglu__device_facts d = device(132), none = device(0);
  tglu__problem p = problem(64, 64, TGLU_DTYPE_F32);
  for (int i = 0; i < 2; ++i) {
    const tglu__call_facts f = call(8);
    tglu__choice c = {.row = 5}, second = {.row = 5};
    assert_false(tglu__plan_choose_invariant(tglu__op_glu, &p, &f, i ? &none : &d, &c, &second));
    assert_int_equal(c.row, -1);
    assert_int_equal(second.row, -1);
    p.dtype = TGLU_DTYPE_BF16;
  }
}

/* ---- objects, on the fake driver ---- */

static bool built(void) {
  if (!kernels_built()) return false;
  if (has_row(tglu__op_down, TGLU_DTYPE_BF16, tglu__loader_tma)) return true;
  print_message("skipped: this build has no down rows\n");
  return false;
}

static tglu_plan_info plan_of(const tglu_mlp *mlp, int64_t tokens) {
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_int_equal(tglu_mlp_get_plan(mlp, tokens, &info), TGLU_OK);
  return info;
}

/* The row, or none where it can not serve so many. */
static int expect_row(const char *got, const char *want, const tglu__problem *p, int64_t tokens,
                      const tglu__device_facts *d) {
  const tglu__call_facts f = call(tokens);
  assert_non_null(want);
  const bool serves = tglu__row_valid(&tglu__rows[tglu__row_find(want)], p, &f, d, NULL);
  if (tokens <= 1 << 24) assert_true(serves);
  assert_int_equal(got != NULL, serves);
  if (serves) assert_string_equal(got, want);
  return serves ? 0 : 1;
}

static void one_row_for_every_bucket(void **unused) {
  (void)unused;
  if (!built()) skip();
  int refused = 0;
  for (int i = 0; i < MODELS; ++i) {
    fake_begin();
    const fake_options o = {.pdl = 1, .invariant = 1, .sm_limit = i == 2 ? 50 : 0};
    const fake_shape s = {.n = models[i][1], .k = models[i][0]};
    tglu_context *context = fake_context(&o);
    const tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
    tglu_mlp *mlp;
    assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
    const tglu__problem p = problem(s.n, s.k, TGLU_DTYPE_BF16);
    const tglu__device_facts facts = device(i == 2 ? 50 : 132);
    const tglu_plan_info first = plan_of(mlp, 1);
    for (int32_t b = 0; b < TGLU__BUCKETS; ++b) {
      const int64_t most = tglu__bucket_tokens(b);
      const int64_t tokens = most > INT32_MAX ? INT32_MAX : most;
      const tglu_plan_info info = plan_of(mlp, tokens);
      refused += expect_row(info.row, first.row, &p, tokens, &facts);
      refused += expect_row(info.down_row, first.down_row, &p, tokens, &facts);
    }
    tglu_mlp_destroy(mlp);
    tglu_context_destroy(context);
    fake_expect_balance();
  }
  assert_true(refused > 0);
}

/* A forced row serves every count of the object, or there is none. */
static void forced_rows(void **unused) {
  (void)unused;
  if (!built()) skip();
  const fake_shape s = {.n = 4864, .k = 896};
  const tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
  int refused = 0, served = 0;
  for (int32_t r = 0; r < tglu__row_total; ++r) {
    const tglu__row *row = &tglu__rows[r];
    if (row->dtype != TGLU_DTYPE_BF16) continue;
    fake_begin();
    const fake_options o = {.row = row->name, .pdl = 1, .invariant = 1};
    tglu_context *context = fake_context(&o);
    tglu_mlp *mlp;
    if ((tglu__row_is_stream(row) && row->loader == tglu__loader_tma) ||
        tglu__row_is_diag(row)) {
      assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_ERR_UNSUPPORTED);
      expect_message("needs no more t");
      ++refused;
    } else {
      assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
      for (int i = 0; i < COUNTS; ++i) {
        const tglu_plan_info info = plan_of(mlp, counts[i]);
        assert_string_equal(row->op == tglu__op_glu ? info.row : info.down_row, row->name);
      }
      tglu_mlp_destroy(mlp);
      ++served;
    }
    tglu_context_destroy(context);
    fake_expect_balance();
  }
  assert_true(refused > 0 && served > 0);
}

/* The rule by name, the time of this call, the second by that rule; one token with an odd
 * stride as more of them. */
static void explain(void **unused) {
  (void)unused;
  if (!built()) skip();
  fake_begin();
  const fake_options o = {.pdl = 1, .invariant = 1};
  tglu_context *context = fake_context(&o);
  fake_shape s = {.n = 18944, .k = 3584};
  const tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
  const tglu__problem p = problem(s.n, s.k, TGLU_DTYPE_BF16);
  tglu__device_facts facts = device(fake->sm_count);
  facts.clusters[4] = fake->clusters_of_4;
  for (int i = 0; i < 2 * COUNTS; ++i) {
    s.m = counts[i / 2];
    s.ldx_extra = i % 2;
    const tglu_plan_info info = plan_of(mlp, s.m);
    const tglu_run_args a = fake_args(&s, s.k);
    char text[4096], why[200];
    snprintf(why, sizeof why, "why: cost model, batch-invariant: least mean over 1 ... 4096 "
             "tokens; %.1f us predicted for %d; runner-up down_bf16_",
             predicted_at(tglu__row_find(info.down_row), &p, s.m, &facts), (int)s.m);
    assert_int_equal(tglu_mlp_explain(mlp, &a, text, sizeof text), TGLU_OK);
    const char *const words[] = {s.ldx_extra ? "paired_general" : info.row, info.down_row, why,
                                 "launch: two"};
    for (size_t w = 0; w < sizeof words / sizeof words[0]; ++w)
      if (strstr(text, words[w]) == NULL) fail_msg("no \"%s\" in\n%s", words[w], text);
  }
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  fake_expect_balance();
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(least_mean), cmocka_unit_test(as_a_linear),
    cmocka_unit_test(fit_for_few_tokens),
    cmocka_unit_test(refuses_too_many_tokens), cmocka_unit_test(nothing_serves),
    cmocka_unit_test(one_row_for_every_bucket), cmocka_unit_test(forced_rows),
    cmocka_unit_test(explain),
  };
  fake_open();
  return cmocka_run_group_tests_name("cuda_invariant", tests, NULL, NULL);
}
