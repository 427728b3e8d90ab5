/* Accuracy of the activations themselves: a dense walk over gate values through a
 * GLU with hidden = 1, in fp32, at one ISA level. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"
#include "number.h"
#include "oracle.h"
#include "rng.h"
#include "runner.h"

enum { VALUES = 40000 };

static const char *isa;
static tglu_context *context;
static float gates[VALUES], ups[VALUES], results[VALUES];

/* Gates between low and high, evenly and by magnitude, each multiplied by up. */
static void run_values(tglu_activation activation, float alpha, float limit,
                       float offset) {
  const float one = 1;
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  desc.hidden = 1;
  desc.intermediate = VALUES;
  desc.dtype = TGLU_DTYPE_F32;
  desc.activation = activation;
  if (activation == TGLU_ACTIVATION_SWIGLUOAI) {
    desc.alpha = alpha;
    desc.limit = limit;
    desc.offset = offset;
  }
  desc.layout = TGLU_LAYOUT_SEPARATE;
  desc.gate = gates;
  desc.up = ups;
  tglu_glu *glu;
  assert_int_equal(tglu_glu_create(context, &desc, &glu), TGLU_OK);
  tglu_run_args args;
  tglu_run_args_init(&args);
  args.x = &one;
  args.tokens = 1;
  args.out = results;
  memset(results, 0xff, sizeof results);
  tt_object object = {.glu = glu};
  char why[TT_WHY_BYTES];
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  tglu_glu_destroy(glu);
}

static void fill_gates(double low, double high, uint64_t seed) {
  tt_rng rng;
  tt_rng_seed(&rng, seed);
  for (int i = 0; i < VALUES; i++) {
    const double even = low + (high - low) * i / (VALUES - 1);
    const double tiny = ldexp(1 + tt_rng_unit(&rng), -(int)tt_rng_between(&rng, 1, 60));
    const int kind = i % 4;
    gates[i] = (float)(kind == 3 ? (i % 8 == 3 ? tiny : -tiny) : even);
    ups[i] = 1;
  }
}

static double worst_relative, worst_absolute;

/* The contract: relative error <= 2^-16 for gate >= -20, absolute error <= 2^-24
 * below; the last multiply adds half a step of fp32. */
static void judge(tglu_activation activation, float alpha, float limit, float offset) {
  run_values(activation, alpha, limit, offset);
  worst_relative = worst_absolute = 0;
  for (int i = 0; i < VALUES; i++) {
    const double g = (double)gates[i], got = (double)results[i];
    const double want =
        tt_activation(activation, alpha, limit, offset, g, (double)ups[i]);
    const double error = fabs(got - want);
    const bool good = g >= -20 ? error <= 0x1p-16 * fabs(want) + 0x1p-148
                               : error <= 0x1p-24;
    if (!good) {
      fail_msg("%s(%g, %g, %g) at %s: gate %.9g: got %.9g, want %.9g, relative %.3g",
               tglu_activation_name(activation), (double)alpha, (double)limit,
               (double)offset, isa, g, got, want, error / fabs(want));
    }
    if (g >= -20 && fabs(want) > 0x1p-126 && error / fabs(want) > worst_relative) {
      worst_relative = error / fabs(want);
    }
    if (error > worst_absolute) worst_absolute = error;
  }
  printf("%s %s: worst relative error 2^%.1f\n", isa, tglu_activation_name(activation),
         log2(worst_relative + 0x1p-60));
}

static void all_within_contract(void **state) {
  (void)state;
  for (int a = TGLU_ACTIVATION_SILU; a <= TGLU_ACTIVATION_SWIGLUOAI; a++) {
    static const struct { double low, high; } ranges[] = {
        {-20, 20}, {-3, 3}, {-0.01, 0.01}, {-88, 88}, {-200, 200}, {-1e30, 1e30}};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
      fill_gates(ranges[r].low, ranges[r].high, r);
      judge((tglu_activation)a, 1.702f, 7, 1);
    }
  }
}

static void swigluoai_parameters(void **state) {
  (void)state;
  static const float sets[][3] = {{1.702f, INFINITY, 0}, {1, 0.5f, 0},   {3, 20, -0.5f},
                                  {0.1f, 100, 2},        {-1.5f, 10, 1}, {0, 7, 1}};
  for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
    fill_gates(-20, 20, s);
    for (int i = 0; i < VALUES; i++) ups[i] = (float)(i % 64) - 31.5f;
    judge(TGLU_ACTIVATION_SWIGLUOAI, sets[s][0], sets[s][1], sets[s][2]);
  }
}

/* NaN in either half comes out as NaN, whatever clamps stand in its way. */
static void nan_passes(void **state) {
  (void)state;
  for (int a = TGLU_ACTIVATION_SILU; a <= TGLU_ACTIVATION_SWIGLUOAI; a++) {
    for (int half = 0; half < 2; half++) {
      fill_gates(1, 2, 7);
      for (int i = 0; i < VALUES; i += 3) (half == 0 ? gates : ups)[i] = NAN;
      run_values((tglu_activation)a, 1.702f, 7, 1);
      for (int i = 0; i < VALUES; i++) {
        if ((i % 3 == 0) != (bool)isnan(results[i])) {
          fail_msg("%s at %s: %s NaN at %d, got %g", tglu_activation_name(a), isa,
                   half == 0 ? "gate" : "up", i, (double)results[i]);
        }
      }
    }
  }
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  context = tt_cpu_context(isa, 1, false);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_within_contract),
      cmocka_unit_test(swigluoai_parameters),
      cmocka_unit_test(nan_passes),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  tglu_context_destroy(context);
  return failed;
}
