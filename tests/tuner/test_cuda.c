/* The CUDA backend and the cache, on the fake driver: which calls take a winner, and which
 * do not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cuda/fake.h"
#include "plan/choose.h"

enum { N = 512, K = 256, M = 300 };

static char path[300];
static int warnings;

static void count_warning(void *user, tglu_log_level level, const char *message) {
  (void)user, (void)message;
  warnings += level == TGLU_LOG_WARNING;
}

static int begin(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/tileglu-tuner-%ld.txt", base != NULL ? base : "/tmp",
           (long)getpid());
  unlink(path);
  warnings = 0;
  fake_begin();
  return 0;
}

static int end(void **state) {
  (void)state;
  char lock[320];
  snprintf(lock, sizeof lock, "%s.lock", path);
  unlink(path);
  unlink(lock);
  return 0;
}

static tglu_context_options options(void) {
  tglu_context_options o;
  tglu_context_options_init(&o);
  o.backend = TGLU_BACKEND_CUDA;
  o.cuda_library = FAKE_CUDA;
  o.tune_cache = path;
  o.log = count_warning;
  return o;
}

static tglu_context *open_context(const tglu_context_options *o) {
  tglu_context *context = NULL;
  if (tglu_context_create(o, &context) != TGLU_OK) fail_msg("%s", tglu_last_error());
  return context;
}

static const uintptr_t base = 0x7f0000000000, step = 0x100000000;

/* A GLU of bf16 whose weights begin off bytes after 16; what run would take, aligned or
 * for any x. */
typedef struct taken {
  char row[96], text[4096];
  int tuned;
} taken;

static taken take(const tglu_context_options *o, uintptr_t off, int64_t tokens,
                  uintptr_t x_off) {
  taken t;
  tglu_context *context = open_context(o);
  tglu_glu_desc d;
  tglu_glu_desc_init(&d);
  d.hidden = K;
  d.intermediate = N;
  d.dtype = TGLU_DTYPE_BF16;
  d.activation = TGLU_ACTIVATION_SILU;
  d.layout = TGLU_LAYOUT_SEPARATE;
  d.gate = (const void *)(base + off);
  d.up = (const void *)(base + step + off);
  tglu_glu *glu = NULL;
  if (tglu_glu_create(context, &d, &glu) != TGLU_OK) fail_msg("%s", tglu_last_error());
  tglu_plan_info plan;
  tglu_plan_info_init(&plan);
  assert_int_equal(tglu_glu_get_plan(glu, tokens, &plan), TGLU_OK);
  t.tuned = plan.tuned;
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.tokens = tokens;
  a.x = (const void *)(base + 2 * step + x_off);
  a.out = (void *)(base + 3 * step);
  assert_int_equal(tglu_glu_explain(glu, &a, t.text, sizeof t.text), TGLU_OK);
  const char *named = strstr(t.text, "row: ");
  assert_non_null(named);
  snprintf(t.row, sizeof t.row, "%.*s", (int)strcspn(named + 5, "\n"), named + 5);
  if (x_off == 0) assert_string_equal(plan.row, t.row);
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  return t;
}

/* A usable GLU row of bf16 with the TMA loader that is none of these. */
static const char *other_row(const char *not_this, const char *nor_this) {
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    const tglu__row *r = &tglu__rows[i];
    if (r->op == tglu__op_glu && r->dtype == TGLU_DTYPE_BF16 && r->cluster_m == 1 &&
        strstr(r->name, "_paired_coop_") != NULL && strcmp(r->name, not_this) != 0 &&
        strcmp(r->name, nor_this) != 0)
      return r->name;
  }
  return NULL;
}

static tglu_status record(const tglu_context_options *o, const char *row, const char *second) {
  tglu_context *context = open_context(o);
  tglu_tune_entry e;
  tglu_tune_entry_init(&e);
  e.op = "glu";
  e.dtype = TGLU_DTYPE_BF16;
  e.hidden = K;
  e.intermediate = N;
  e.tokens = M;
  e.row = row;
  e.us = 17.25;
  e.runner_up = second;
  e.runner_up_us = second != NULL ? 18 : 0;
  tglu_status status = tglu_tune_record(context, &e);
  tglu_context_destroy(context);
  return status;
}

#define NEEDS_KERNELS()                                  \
  if (!kernels_built()) {                                \
    print_message("SKIP: built without nvcc\n");         \
    skip();                                              \
  }

static void a_winner_serves_its_bucket(void **state) {
  (void)state;
  NEEDS_KERNELS();
  const tglu_context_options o = options();
  taken before = take(&o, 0, M, 0);
  assert_int_equal(before.tuned, 0);
  assert_non_null(strstr(before.text, "cost model"));
  const char *row = other_row(before.row, "");
  assert_non_null(row);
  assert_int_equal(record(&o, row, before.row), TGLU_OK);
  taken after = take(&o, 0, M, 0);
  assert_string_equal(after.row, row);
  assert_int_equal(after.tuned, 1);
  assert_non_null(strstr(after.text, "tuned"));
  assert_non_null(strstr(after.text, "17.2 us measured"));
  assert_non_null(strstr(after.text, "runner-up"));
  assert_non_null(strstr(after.text, before.row));
  int64_t most = tglu__bucket_tokens(tglu__bucket_of(M));
  assert_int_equal(take(&o, 0, most, 0).tuned, 1);
  assert_int_equal(take(&o, 0, most + 1, 0).tuned, 0);
  assert_int_equal(take(&o, 0, 1, 0).tuned, 0);
  assert_int_equal(warnings, 0);
  fake_expect_balance();
}

static void only_where_it_is_valid(void **state) {
  (void)state;
  NEEDS_KERNELS();
  const tglu_context_options o = options();
  taken before = take(&o, 0, M, 0), odd = take(&o, 2, M, 0), odd_x = take(&o, 0, M, 2);
  assert_int_equal(record(&o, other_row(before.row, odd.row), NULL), TGLU_OK);
  taken weights = take(&o, 2, M, 0); /* TMA wants 16 bytes */
  assert_int_equal(weights.tuned, 0);
  assert_string_equal(weights.row, odd.row);
  taken x = take(&o, 0, M, 2);
  assert_int_equal(x.tuned, 1); /* for aligned ones */
  assert_string_equal(x.row, odd_x.row);
  assert_non_null(strstr(x.text, "cost model"));
  assert_int_equal(warnings, 0);
}

static void only_on_the_same_device(void **state) {
  (void)state;
  NEEDS_KERNELS();
  tglu_context_options o = options();
  taken before = take(&o, 0, M, 0);
  const char *row = other_row(before.row, "");
  assert_int_equal(record(&o, row, NULL), TGLU_OK);
  o.sm_limit = 77;
  assert_int_equal(take(&o, 0, M, 0).tuned, 0);
  o.sm_limit = fake->sm_count;
  assert_int_equal(take(&o, 0, M, 0).tuned, 1);
  fake->version += 10;
  assert_int_equal(take(&o, 0, M, 0).tuned, 0);
  fake->version -= 10;
  o.batch_invariant = 1;
  assert_int_equal(take(&o, 0, M, 0).tuned, 0);
  o.batch_invariant = 0;
  o.row = before.row;
  assert_int_equal(take(&o, 0, M, 0).tuned, 0);
  o.row = NULL;
  o.tune_cache = "";
  assert_int_equal(take(&o, 0, M, 0).tuned, 0);
  assert_int_equal(warnings, 0);
}

static void rows_of_the_cpu_are_refused(void **state) {
  (void)state;
  NEEDS_KERNELS();
  const tglu_context_options o = options();
  assert_int_equal(record(&o, "glu_bf16_portable_dot_1x2", NULL), TGLU_ERR_INVALID_ARGUMENT);
  expect_message("row");
  assert_int_equal(access(path, F_OK), -1);
}

static void info_has_driver_and_cache(void **state) {
  (void)state;
  NEEDS_KERNELS();
  const tglu_context_options o = options();
  tglu_context *context = open_context(&o);
  tglu_context_info info;
  tglu_context_info_init(&info);
  assert_int_equal(tglu_context_get_info(context, &info), TGLU_OK);
  assert_int_equal(info.driver_version, fake->version);
  assert_string_equal(info.tune_cache, path);
  info.size = offsetof(tglu_context_info, tune_cache); /* of a program built before */
  info.tune_cache = (const char *)&info;
  assert_int_equal(tglu_context_get_info(context, &info), TGLU_OK);
  assert_ptr_equal(info.tune_cache, &info);
  tglu_context_destroy(context);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
    TEST(a_winner_serves_its_bucket), TEST(only_where_it_is_valid),
    TEST(only_on_the_same_device),    TEST(rows_of_the_cpu_are_refused),
    TEST(info_has_driver_and_cache),
  };
  fake_open();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
