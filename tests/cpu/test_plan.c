/* The planner's promises: blocks fit the scratch and cover the work, the order of
 * summation depends on row and K alone, and choices are those documented. */
#include "check.h"
#include "cpu/plan.h"

static void check_blocking(const tglu__cpu_row *row, int32_t threads, int64_t tokens,
                           int64_t columns, int64_t k) {
  tglu__blocking b = tglu__block(row, threads, tokens, columns, k);
  int64_t per_column = row->op == TGLU__OP_GLU ? 2 : 1;
  assert_in_range(b.slots, 1, threads);
  assert_in_range(b.token_block, 1, tokens);
  assert_true(b.token_block * b.token_blocks >= tokens);
  assert_true(b.token_block * (b.token_blocks - 1) < tokens);
  assert_true(b.column_group * b.column_groups >= columns);
  assert_true(b.column_group * (b.column_groups - 1) < columns);
  assert_int_equal(b.column_group % 8, 0);
  assert_int_equal(b.column_group % tglu__row_columns(row), 0);
  assert_in_range(b.kc, 1, row->kc);
  assert_int_equal(b.kc % TGLU__K_ALIGN, 0);
  assert_int_equal(b.ldx % TGLU__K_ALIGN, 0);
  int64_t held = b.resident ? k : (b.kc < k ? b.kc : k);
  assert_true(b.ldx >= held);
  assert_true(b.token_block * b.ldx <= TGLU__SCRATCH_X);
  assert_true(b.token_block * b.column_group * per_column <= TGLU__SCRATCH_C);
  assert_true(b.column_group <= TGLU__SCRATCH_BIAS / 2);
  assert_true(row->unit_rows <= TGLU__UNIT_ROWS_MAX);
  assert_true(row->unit_rows * row->kc <= TGLU__UNIT_SCRATCH_FLOATS ||
              row->schedule == TGLU__SCHEDULE_STREAM);
  if (b.resident) assert_int_equal(b.token_blocks, 1);
  tglu__blocking other = tglu__block(row, 1, tokens * 3 + 1, columns + 7, k);
  assert_int_equal(other.kc, b.kc);
}

static void test_blocking(void **state) {
  (void)state;
  uint64_t random = 1;
  int64_t cases = 0;
  for (int32_t i = 0; i < tglu__cpu_row_count; i++)
    for (int j = 0; j < 3000; j++, cases++) {
      int64_t tokens = 1 + random_below(&random, (int64_t)1 << random_below(&random, 30));
      int64_t columns = 1 + random_below(&random, (int64_t)1 << random_below(&random, 30));
      int64_t k = 1 + random_below(&random, (int64_t)1 << random_below(&random, 30));
      check_blocking(&tglu__cpu_rows[i], 1 + (int32_t)random_below(&random, 64), tokens,
                     columns, k);
    }
  assert_true(cases >= 3000);
}

static void test_choice(void **state) {
  (void)state;
  static const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};
  for (int isa = 0; isa < TGLU__ISA_COUNT; isa++)
    for (int op = 0; op < 2; op++)
      for (int d = 0; d < 3; d++)
        for (int64_t tokens = 1; tokens < 5000; tokens += 1 + tokens / 3) {
          tglu__cpu_facts facts = {.isa = (tglu__isa)isa, .threads = 2};
          const char *why = NULL;
          const tglu__cpu_row *row =
              tglu__row_choose(&facts, (tglu__op)op, dtypes[d], tokens, &why);
          assert_non_null(row);
          assert_non_null(why);
          assert_true(tglu__row_serves(row, &facts, (tglu__op)op, dtypes[d]));
          assert_true(isa > TGLU__ISA_PORTABLE || row->isa == TGLU__ISA_PORTABLE);
          facts.batch_invariant = true;
          assert_ptr_equal(tglu__row_choose(&facts, (tglu__op)op, dtypes[d], tokens, NULL),
                           tglu__row_choose(&facts, (tglu__op)op, dtypes[d], 1, NULL));
        }
}

static void test_forced(void **state) {
  (void)state;
  for (int32_t i = 0; i < tglu__cpu_row_count; i++) {
    const tglu__cpu_row *row = &tglu__cpu_rows[i];
    tglu__cpu_facts facts = {.isa = TGLU__ISA_AMX, .threads = 1, .forced = row};
    for (int64_t tokens = 1; tokens < 1000; tokens = tokens * 3 + 1)
      assert_ptr_equal(tglu__row_choose(&facts, row->op, row->dtype, tokens, NULL), row);
    tglu__op other = row->op == TGLU__OP_GLU ? TGLU__OP_DOWN : TGLU__OP_GLU;
    assert_int_equal(tglu__row_choose(&facts, other, row->dtype, 1, NULL)->op, other);
    for (int32_t j = 0; j < i; j++)
      assert_string_not_equal(tglu__cpu_rows[j].name, row->name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_blocking),
    cmocka_unit_test(test_choice),
    cmocka_unit_test(test_forced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
