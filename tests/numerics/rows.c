/* Every kernel row that this machine can run, forced by name: the planner cannot hide
 * one from the tests.  Sizes on both sides of every block that a row has. */
#include <stdio.h>
#include <string.h>

#include "batch.h"
#include "cmocka_all.h"

enum { MAX_ROWS = 256 };

static tglu_context *forced_context(const char *row, int32_t threads) {
  tglu_context_options options;
  tglu_context *context;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  options.threads = threads;
  options.tune_cache = "";
  options.row = row;
  if (tglu_context_create(&options, &context) != TGLU_OK) {
    fail_msg("row %s: %s", row, tglu_last_error());
  }
  return context;
}

static void check_dtype(tt_batch *batch, const char *op, tglu_dtype dtype) {
  static const struct { int64_t m, n, k; } sizes[] = {
      {1, 1, 1},     {1, 9, 4097},  {2, 17, 31},  {3, 8, 16},     {4, 33, 8193},
      {5, 16, 320},  {6, 8, 321},   {7, 15, 641}, {12, 130, 48},  {13, 9, 4104},
      {48, 7, 1025}, {96, 5, 40},   {97, 5, 513}, {191, 9, 24},   {192, 16, 17},
      {193, 3, 319}, {200, 37, 70}, {9, 257, 33}, {385, 4, 23},   {3, 511, 9}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    for (int more = 0; more < 2; more++) {
      tt_case c;
      tt_case_init(&c);
      c.dtype = dtype;
      /* A GLU row in a GLU and in an MLP; a down row in a linear and in an MLP. */
      c.op = more ? TT_OP_MLP : strcmp(op, "glu") == 0 ? TT_OP_GLU : TT_OP_LINEAR;
      if (c.op == TT_OP_MLP && sizes[i].n * sizes[i].k > 20000) continue;
      c.m = sizes[i].m;
      c.n = sizes[i].n;
      c.k = sizes[i].k;
      if (c.op == TT_OP_MLP && strcmp(op, "down") == 0) { /* its K is the MLP's N */
        c.n = sizes[i].k;
        c.k = sizes[i].n;
      }
      c.layout = (tglu_layout)(1 + i % 4);
      c.activation = (tglu_activation)(1 + i % 6);
      c.gate_bias = c.up_bias = c.down_bias = i % 2;
      if (c.op != TT_OP_GLU) c.residual = (tt_residual)(i % 3);
      c.place = i % 3 == 2 ? TT_PLACE_START : TT_PLACE_END;
      c.pad_out = more ? 0 : 3;
      c.seed = i;
      tt_batch_check(batch, &c);
    }
  }
}

/* The row's name must be what the object says it will run. */
static void check_named(tglu_context *context, const tglu_row_info *row) {
  float w[4] = {1, 2, 3, 4};
  tglu_mlp_desc desc;
  tglu_mlp *mlp;
  tglu_plan_info plan;
  tglu_mlp_desc_init(&desc);
  desc.glu.hidden = desc.glu.intermediate = 1;
  for (int d = TGLU_DTYPE_BF16; d <= TGLU_DTYPE_F32; d++) {
    if (row->dtypes & 1 << d) desc.glu.dtype = (tglu_dtype)d;
  }
  desc.glu.activation = TGLU_ACTIVATION_SILU;
  desc.glu.layout = TGLU_LAYOUT_SEPARATE;
  desc.glu.gate = &w[0];
  desc.glu.up = &w[1];
  desc.down = &w[2];
  assert_int_equal(tglu_mlp_create(context, &desc, &mlp), TGLU_OK);
  for (int64_t tokens = 1; tokens <= 4096; tokens *= 8) {
    tglu_plan_info_init(&plan);
    assert_int_equal(tglu_mlp_get_plan(mlp, tokens, &plan), TGLU_OK);
    assert_string_equal(strcmp(row->op, "glu") == 0 ? plan.row : plan.down_row, row->name);
  }
  tglu_mlp_destroy(mlp);
}

static void every_usable_row(void **state) {
  (void)state;
  tglu_context *all = tt_cpu_context(NULL, 1, false);
  const int32_t count = tglu_row_count(all);
  int ran = 0, unusable = 0;
  bool good = true;
  assert_true(count > 0 && count <= MAX_ROWS);
  for (int32_t i = 0; i < count; i++) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    assert_int_equal(tglu_row_get(all, i, &row), TGLU_OK);
    if (!row.usable) {
      printf("SKIP: row %s: this CPU lacks %s\n", row.name, row.isa);
      unusable++;
      continue;
    }
    for (int32_t threads = 1; threads <= 2; threads++) {
      tglu_context *context = forced_context(row.name, threads);
      check_named(context, &row);
      tt_batch batch;
      tt_batch_begin(&batch, row.name, context);
      for (int d = TGLU_DTYPE_BF16; d <= TGLU_DTYPE_F32; d++) {
        if (row.dtypes & 1 << d) check_dtype(&batch, row.op, (tglu_dtype)d);
      }
      good = tt_batch_end(&batch) && good;
      tglu_context_destroy(context);
    }
    ran++;
  }
  tglu_context_destroy(all);
  printf("%d rows ran, %d skipped\n", ran, unusable);
  assert_true(good && ran >= 6); /* two ops in three types at least */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_usable_row)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
