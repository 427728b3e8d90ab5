/* The planner without a device: the predicate, the launch of a row, the choice, the
 * buckets. */
#include <string.h>

#include "../support/cmocka_all.h"
#include "plan/choose.h"

static const void *const aligned = (const void *)0x7f0000000000;

static tglu__problem problem(int64_t n, int64_t k, tglu_dtype dtype) {
  return (tglu__problem){.dtype = dtype, .n = n, .k = k,
                         .activation = TGLU_ACTIVATION_SILU,
                         .layout = TGLU_LAYOUT_SEPARATE, .gate = aligned, .up = aligned,
                         .ld = (k + 7) / 8 * 8};
}

static tglu__device_facts device(int32_t sms) {
  tglu__device_facts facts = {.sm_count = sms, .smem_bytes = 232448};
  for (int size = 1; size <= TGLU__MAX_CLUSTER; ++size) facts.clusters[size] = sms / size;
  return facts;
}

static tglu__call_facts call(int64_t tokens) {
  return (tglu__call_facts){.tokens = tokens, .x_aligned = true, .x_reachable = true};
}

static const int64_t models[][2] = {{896, 4864}, {1536, 8960}, {2048, 11008}, {3584, 18944},
                                    {5120, 13824}, {5120, 27648}, {8192, 29568}};
enum { MODELS = 7 };

static void buckets(void **unused) {
  (void)unused;
  int32_t previous = -1;
  for (int64_t tokens = 1; tokens <= INT64_C(1) << 31;
       tokens += tokens < 70000 ? 1 : tokens / 999) {
    int32_t b = tglu__bucket_of(tokens);
    assert_in_range(b, 0, TGLU__BUCKETS - 1);
    assert_true(b >= previous);
    assert_true(tokens <= tglu__bucket_tokens(b));
    assert_true(b == 0 || tokens > tglu__bucket_tokens(b - 1));
    previous = b;
  }
  assert_int_equal(tglu__bucket_of(INT64_C(1) << 31), TGLU__BUCKETS - 1);
}

/* A row of the name is found, names are unique, and no name is found that is none. */
static void names(void **unused) {
  (void)unused;
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    assert_int_equal(tglu__row_find(tglu__rows[i].name), i);
    assert_int_equal(strlen(tglu__rows[i].cubin->hash), 16);
    assert_true((tglu__rows[i].cubin->code == NULL) == (tglu__rows[i].cubin->size == 0));
  }
  assert_int_equal(tglu__row_find(""), -1);
  assert_int_equal(tglu__row_find("glu"), -1);
}

static void expect_refused(const tglu__row *row, const tglu__problem *p,
                           const tglu__call_facts *c, const tglu__device_facts *d,
                           const char *word) {
  const char *why = NULL;
  assert_false(tglu__row_valid(row, p, c, d, &why));
  assert_non_null(why);
  if (strstr(why, word) == NULL) fail_msg("\"%s\" does not contain \"%s\"", why, word);
}

static void predicate(void **unused) {
  (void)unused;
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    const tglu__row *row = &tglu__rows[i];
    tglu__device_facts d = device(132);
    tglu__call_facts c = call(100);
    const tglu__problem good = problem(200, 64, row->dtype);
    tglu__problem p = good;
    const char *why = "unset";
    assert_true(tglu__row_valid(row, &p, &c, &d, &why));
    assert_null(why);
    p.dtype = row->dtype == TGLU_DTYPE_BF16 ? TGLU_DTYPE_F16 : TGLU_DTYPE_BF16;
    expect_refused(row, &p, &c, &d, "dtype");
    p = good, p.gate = NULL;
    expect_refused(row, &p, &c, &d, "operation");
    p = good, p.n = (INT64_C(1) << 31) - 255; /* the last tile's columns would pass 2^31 */
    expect_refused(row, &p, &c, &d, "intermediate");
    p = good, p.k = INT64_C(1) << 31;
    expect_refused(row, &p, &c, &d, "hidden");
    c.tokens = INT64_C(1) << 31;
    expect_refused(row, &good, &c, &d, "tokens");
    c.tokens = (INT64_C(1) << 31) - 1;
    p = good, p.n = (INT64_C(1) << 31) - 256;
    expect_refused(row, &p, &c, &d, "2^31 tiles");
    c = call(100);
    bool general = row->loader == tglu__loader_general;
    p = good, p.gate = (const char *)aligned + 2;
    assert_int_equal(tglu__row_valid(row, &p, &c, &d, NULL), general);
    p = good, p.up = (const char *)aligned + 8;
    assert_int_equal(tglu__row_valid(row, &p, &c, &d, NULL), general);
    p = good, p.ld = 65;
    assert_int_equal(tglu__row_valid(row, &p, &c, &d, NULL), general);
    p.n = 1; /* one row: its stride does not count */
    assert_true(tglu__row_valid(row, &p, &c, &d, NULL));
    p = good, p.ld = INT64_C(1) << 39;
    assert_false(tglu__row_valid(row, &p, &c, &d, NULL));
    c.x_aligned = false;
    assert_int_equal(tglu__row_valid(row, &good, &c, &d, NULL), general);
    c.x_reachable = false;
    assert_false(tglu__row_valid(row, &good, &c, &d, NULL));
    c = call(100);
    d.smem_bytes = tglu__row_smem_bytes(row) - 1;
    expect_refused(row, &good, &c, &d, "shared memory");
    d = device(row->cluster_m);
    assert_true(tglu__row_valid(row, &good, &c, &d, NULL));
    d = device(row->cluster_m - 1);
    expect_refused(row, &good, &c, &d, "sm_limit");
  }
}

static void launches(void **unused) {
  (void)unused;
  for (int32_t sms = 1; sms <= 132; ++sms) {
    tglu__device_facts d = device(sms);
    for (int32_t i = 0; i < tglu__row_total; ++i) {
      const tglu__row *row = &tglu__rows[i];
      if (row->cluster_m > sms) continue;
      for (int64_t m = 1; m < 20000; m = m * 2 + m / 3 + 1) {
        tglu__problem p = problem(4864, 896, row->dtype);
        tglu__choice c;
        tglu__plan_launch(i, &p, m, &d, &c);
        int64_t tiles = (int64_t)c.tile_rows * c.tile_columns;
        assert_true((int64_t)c.tile_rows * row->tile_m * row->cluster_m >= m);
        assert_true((int64_t)(c.tile_rows - 1) * row->tile_m * row->cluster_m < m);
        assert_true((int64_t)c.tile_columns * row->tile_n >= p.n);
        assert_true((int64_t)(c.tile_columns - 1) * row->tile_n < p.n);
        assert_true(c.clusters >= 1 && c.clusters * row->cluster_m <= sms);
        assert_true(c.clusters <= tiles);
        assert_true((int64_t)c.waves * c.clusters >= tiles);
        assert_true((int64_t)(c.waves - 1) * c.clusters < tiles);
        assert_true(c.group >= 1);
        assert_int_equal(c.smem_bytes, tglu__row_smem_bytes(row));
      }
    }
  }
}

/* Same question, same answer; the answer is the cheapest valid row; cost grows with the
 * tokens and falls with the SMs. */
static void choices(void **unused) {
  (void)unused;
  int asked = 0;
  for (int i = 0; i < MODELS; ++i) {
    for (int32_t sms = 1; sms <= 132; sms += sms < 8 ? 1 : 31) {
      tglu__device_facts d = device(sms);
      tglu__problem p = problem(models[i][1], models[i][0], TGLU_DTYPE_BF16);
      double previous = 0;
      for (int64_t m = 1; m <= 16384; m *= 2) {
        tglu__call_facts f = call(m);
        tglu__choice a, b, second;
        bool found = tglu__plan_choose(&p, &f, &d, &a, &second);
        if (!found) {
          assert_int_equal(a.row, -1);
          continue;
        }
        memset(&b, 0x5a, sizeof b);
        assert_true(tglu__plan_choose(&p, &f, &d, &b, NULL));
        assert_int_equal(a.row, b.row);
        assert_true(a.predicted_us == b.predicted_us);
        assert_true(tglu__row_valid(&tglu__rows[a.row], &p, &f, &d, NULL));
        assert_true(a.predicted_us > 0 && a.predicted_us < 1e7);
        assert_true(a.predicted_us >= previous);
        assert_true(second.row != a.row);
        assert_true(second.row < 0 || second.predicted_us >= a.predicted_us);
        for (int32_t r = 0; r < tglu__row_total; ++r) {
          if (!tglu__row_valid(&tglu__rows[r], &p, &f, &d, NULL)) continue;
          tglu__choice other;
          tglu__plan_launch(r, &p, m, &d, &other);
          assert_true(tglu__plan_cost_us(&other, &p, m) >= a.predicted_us);
        }
        previous = a.predicted_us;
        ++asked;
      }
    }
  }
  assert_true(asked > 100);
}

/* The prediction is never below what the card could do at best. */
static void predictions_are_possible(void **unused) {
  (void)unused;
  tglu__device_facts d = device(132);
  for (int i = 0; i < MODELS; ++i) {
    for (int64_t m = 1; m <= 8192; m *= 2) {
      tglu__problem p = problem(models[i][1], models[i][0], TGLU_DTYPE_BF16);
      tglu__call_facts f = call(m);
      tglu__choice c;
      assert_true(tglu__plan_choose(&p, &f, &d, &c, NULL));
      double flop = 4.0 * (double)m * (double)p.n * (double)p.k;
      double bytes = 4.0 * (double)p.n * (double)p.k;
      assert_true(c.predicted_us > flop / 989e6);
      assert_true(c.predicted_us > bytes / 4.8e6);
    }
  }
}

static void nothing_serves(void **unused) {
  (void)unused;
  tglu__device_facts d = device(132);
  tglu__problem p = problem(64, 64, TGLU_DTYPE_F32);
  tglu__call_facts f = call(8);
  tglu__choice c = {.row = 5}, second;
  assert_false(tglu__plan_choose(&p, &f, &d, &c, &second));
  assert_int_equal(c.row, -1);
  assert_int_equal(second.row, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(buckets),   cmocka_unit_test(names),
    cmocka_unit_test(predicate), cmocka_unit_test(launches),
    cmocka_unit_test(choices),   cmocka_unit_test(predictions_are_possible),
    cmocka_unit_test(nothing_serves),
  };
  return cmocka_run_group_tests_name("cuda_plan", tests, NULL, NULL);
}
