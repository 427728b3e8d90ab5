/* H56: runs at every ISA level that the CPU has, refuses the others, and finds the
 * best that CPU and OS enable.  Argument: the level that tglu_cpu_isa() must name, or
 * "any".  Also run under qemu-x86_64 as CPUs that lack AVX, FMA, F16C or XSAVE, which
 * shows too that loading the library executes none of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "cmocka_all.h"

static const char *expected;

static void h56_best_level(void **state) {
  (void)state;
  printf("best level here: %s\n", tglu_cpu_isa());
  if (strcmp(expected, "any") != 0) assert_string_equal(tglu_cpu_isa(), expected);
  int found = 0;
  for (int i = 0; tt_isa_levels[i] != NULL; i++) {
    found += strcmp(tglu_cpu_isa(), tt_isa_levels[i]) == 0;
  }
  assert_int_equal(found, 1);
}

static void check_level(const char *isa) {
  tglu_context *context = tt_cpu_context(isa, 2, false);
  if (context == NULL) return;
  char name[64];
  snprintf(name, sizeof name, "every op and type at %s", isa);
  tt_batch batch;
  tt_batch_begin(&batch, name, context);
  for (int i = 0; i < 54; i++) {
    tt_case c;
    tt_case_init(&c);
    c.op = (tt_op)(i % 3);
    c.dtype = (tglu_dtype)(1 + i / 3 % 3);
    c.activation = (tglu_activation)(1 + i / 9);
    c.layout = (tglu_layout)(1 + i % 4);
    c.m = 1 + i % 9;
    c.n = 13 + i;
    c.k = 9 + i * 3;
    c.gate_bias = c.up_bias = c.down_bias = i % 2;
    c.seed = (uint64_t)i;
    tt_batch_check(&batch, &c);
  }
  const bool good = tt_batch_end(&batch);
  tglu_context_destroy(context);
  assert_true(good);
}

static void h56_every_level_up_to_it(void **state) {
  (void)state;
  for (int i = 0; tt_isa_levels[i] != NULL; i++) {
    check_level(tt_isa_levels[i]);
    if (strcmp(tglu_cpu_isa(), tt_isa_levels[i]) == 0) break;
  }
}

static tglu_status create(const char *isa, tglu_context **context) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  options.threads = 1;
  options.cpu_isa = isa;
  return tglu_context_create(&options, context);
}

static void h56_levels_above_are_refused(void **state) {
  (void)state;
  bool above = false;
  for (int i = 0; tt_isa_levels[i] != NULL; i++) {
    tglu_context *context = (tglu_context *)1;
    const char *isa = tt_isa_levels[i];
    if (above) {
      assert_int_equal(create(isa, &context), TGLU_ERR_UNSUPPORTED);
      assert_null(context);
      assert_non_null(strstr(tglu_last_error(), "cpu_isa"));
      assert_non_null(strstr(tglu_last_error(), isa));
    }
    above = above || strcmp(tglu_cpu_isa(), isa) == 0;
  }
  tglu_context *context;
  assert_int_equal(create("sse9", &context), TGLU_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(tglu_last_error(), "sse9"));
}

static void h56_level_from_the_environment(void **state) {
  (void)state;
  tglu_context *context;
  tglu_context_info info;
  setenv("TILEGLU_CPU_ISA", "portable", 1);
  assert_int_equal(create(NULL, &context), TGLU_OK);
  tglu_context_info_init(&info);
  assert_int_equal(tglu_context_get_info(context, &info), TGLU_OK);
  assert_string_equal(info.cpu_isa, "portable");
  tglu_context_destroy(context);
  assert_int_equal(create(tglu_cpu_isa(), &context), TGLU_OK); /* the option wins */
  assert_int_equal(tglu_context_get_info(context, &info), TGLU_OK);
  assert_string_equal(info.cpu_isa, tglu_cpu_isa());
  tglu_context_destroy(context);
  setenv("TILEGLU_CPU_ISA", "mmx", 1);
  assert_int_equal(create(NULL, &context), TGLU_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(tglu_last_error(), "TILEGLU_CPU_ISA"));
  unsetenv("TILEGLU_CPU_ISA");
}

int main(int argc, char **argv) {
  expected = argc > 1 ? argv[1] : "any";
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h56_best_level),
      cmocka_unit_test(h56_every_level_up_to_it),
      cmocka_unit_test(h56_levels_above_are_refused),
      cmocka_unit_test(h56_level_from_the_environment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
