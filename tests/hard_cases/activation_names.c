/* H43: what a config.json's activation name computes, at one ISA level. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tileglu/model.h>

#include "cmocka_all.h"
#include "number.h"
#include "probe.h"
#include "runner.h"

static const struct { const char *name; double want; } names[] = {
    {"silu", -0.1697271},      {"swish", -0.1697271},
    {"gelu", -0.0092840},      {"gelu_new", -0.0088108},
    {"gelu_fast", -0.0088108}, {"gelu_pytorch_tanh", -0.0088108},
    {"quick_gelu", -0.0268818}, {"relu", 0},
    {"sigmoid", 0.0627892}};

static void h43_names_compute_what_they_say(void **state) {
  (void)state;
  const double gate = -2.703125, up = 1;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    for (int dtype = TGLU_DTYPE_BF16; dtype <= TGLU_DTYPE_F32; dtype++) {
      unsigned char out[4];
      tglu_glu_desc desc;
      tglu_glu_desc_init(&desc);
      desc.dtype = (tglu_dtype)dtype;
      assert_int_equal(tglu_model_activation(names[i].name, &desc), TGLU_OK);
      probe_glu(&desc, 1, 1, &gate, &up, out);
      const double got = tt_load((tglu_dtype)dtype, out, 0);
      const double half_step = tt_ulp((tglu_dtype)dtype, names[i].want) / 2;
      const double slack = 1e-7 + (dtype == TGLU_DTYPE_F32 ? 0 : half_step);
      if (!(fabs(got - names[i].want) <= slack)) {
        fail_msg("%s in %s: got %.9g, want %.9g", names[i].name,
                 tglu_dtype_name((tglu_dtype)dtype), got, names[i].want);
      }
    }
  }
}

static void h43_unknown_names_are_refused(void **state) {
  (void)state;
  static const char *const unknown[] = {"SiLU", "Swish", "GELU", "gelu_tanh", "gelu_erf",
                                        "",     "foo",   "silu ", "swigluoai"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    tglu_glu_desc desc, before;
    tglu_glu_desc_init(&desc);
    before = desc;
    const tglu_status status = tglu_model_activation(unknown[i], &desc);
    if (status == TGLU_OK) fail_msg("\"%s\" was accepted", unknown[i]);
    assert_memory_equal(&desc, &before, sizeof desc);
    const char *message = tglu_last_error();
    if (strstr(message, "silu") == NULL || strstr(message, "gelu_pytorch_tanh") == NULL) {
      fail_msg("\"%s\": the message lists no names: %s", unknown[i], message);
    }
  }
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  assert_int_equal(tglu_model_activation(NULL, &desc), TGLU_ERR_INVALID_ARGUMENT);
}

int main(int argc, char **argv) {
  const char *isa = tt_isa_from_arguments(argc, argv);
  probe_context = tt_cpu_context(isa, 1, false);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h43_names_compute_what_they_say),
      cmocka_unit_test(h43_unknown_names_are_refused),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  tglu_context_destroy(probe_context);
  return failed;
}
