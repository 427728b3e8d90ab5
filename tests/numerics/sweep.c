/* Seeded random sweep at one ISA level.  Environment:
 *   TGLU_TEST_SEED   a number, or "random"; printed
 *   TGLU_TEST_CASES  how many cases (default 2000)
 *   TGLU_TEST_CASE   run this one alone
 * A failure prints the line that runs it again, and a reduced case. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "batch.h"
#include "cmocka_all.h"
#include "rng.h"

enum { CONTEXTS = 4 };

static const char *isa, *program;
static tglu_context *contexts[CONTEXTS];

/* Between 1 and high, small sizes as likely as large ones. */
static int64_t log_uniform(tt_rng *rng, int64_t high) {
  return (int64_t)exp(tt_rng_unit(rng) * log((double)high + 0.999));
}

static int64_t random_pad(tt_rng *rng) {
  return tt_rng_between(rng, 0, 1) ? 0 : tt_rng_between(rng, 1, 40);
}

static void random_sizes(tt_rng *rng, tt_case *c) {
  const int64_t volume = tt_rng_between(rng, 0, 9) == 0 ? 1500000 : 250000;
  do {
    c->m = log_uniform(rng, 150);
    c->n = log_uniform(rng, 500);
    c->k = log_uniform(rng, 1200);
  } while (c->m * c->n * c->k > volume);
}

static void random_activation(tt_rng *rng, tt_case *c) {
  c->activation = (tglu_activation)tt_rng_between(rng, 1, 6);
  if (c->activation != TGLU_ACTIVATION_SWIGLUOAI || tt_rng_between(rng, 0, 1)) return;
  c->alpha = (float)(tt_rng_unit(rng) * 4 - 1);
  c->limit = tt_rng_between(rng, 0, 3) == 0 ? INFINITY : (float)(0.1 + 8 * tt_rng_unit(rng));
  c->offset = (float)(tt_rng_unit(rng) * 3 - 1);
}

static int random_case(uint64_t seed, int64_t index, tt_case *c) {
  tt_rng rng;
  tt_rng_seed(&rng, tt_seed_mix(seed, (uint64_t)index));
  tt_case_init(c);
  const int64_t kind = tt_rng_between(&rng, 0, 9);
  c->op = kind < 5 ? TT_OP_GLU : kind < 9 ? TT_OP_MLP : TT_OP_LINEAR;
  c->dtype = (tglu_dtype)tt_rng_between(&rng, 1, 3);
  c->layout = (tglu_layout)tt_rng_between(&rng, 1, 4);
  random_activation(&rng, c);
  random_sizes(&rng, c);
  c->gate_bias = tt_rng_between(&rng, 0, 1);
  c->up_bias = c->layout == TGLU_LAYOUT_SEPARATE ? tt_rng_between(&rng, 0, 1)
                                                 : c->gate_bias;
  c->down_bias = tt_rng_between(&rng, 0, 1);
  if (c->op != TT_OP_GLU) c->residual = (tt_residual)tt_rng_between(&rng, 0, 2);
  c->pad_x = random_pad(&rng);
  c->pad_w = random_pad(&rng);
  c->pad_down = random_pad(&rng);
  c->pad_out = random_pad(&rng);
  c->pad_residual = random_pad(&rng);
  c->ld_zero = tt_rng_between(&rng, 0, 1);
  c->place = (tt_place)tt_rng_between(&rng, 0, 2);
  c->misalign_x = (int)tt_rng_between(&rng, 0, 63);
  c->misalign_w = (int)tt_rng_between(&rng, 0, 63);
  c->misalign_out = (int)tt_rng_between(&rng, 0, 63);
  c->seed = tt_rng_next(&rng);
  return (int)tt_rng_between(&rng, 0, CONTEXTS - 1);
}

/* The index-th simplification of a case; false beyond the last. */
static bool simplify(tt_case *c, int index) {
  switch (index) {
    case 0: c->m = (c->m + 1) / 2; return true;
    case 1: c->n = (c->n + 1) / 2; return true;
    case 2: c->k = (c->k + 1) / 2; return true;
    case 3: c->m -= c->m > 1; return true;
    case 4: c->n -= c->n > 1; return true;
    case 5: c->k -= c->k > 1; return true;
    case 6: c->pad_x = c->pad_w = c->pad_down = c->pad_out = c->pad_residual = 0; return true;
    case 7: c->gate_bias = c->up_bias = false; return true;
    case 8: c->down_bias = false; return true;
    case 9: c->residual = TT_RESIDUAL_NONE; return true;
    case 10: c->misalign_x = c->misalign_w = c->misalign_out = 0; return true;
    case 11: c->place = TT_PLACE_INSIDE; return true;
    case 12: c->layout = TGLU_LAYOUT_SEPARATE; return true;
    case 13: c->activation = TGLU_ACTIVATION_RELU; return true;
    default: return false;
  }
}

static void print_reduced(tglu_context *context, tt_case c) {
  char why[TT_WHY_BYTES], text[TT_WHY_BYTES], before[TT_WHY_BYTES];
  for (int tries = 0, step = 0; tries < 200; tries++) {
    tt_case smaller = c;
    if (!simplify(&smaller, step)) break;
    tt_case_text(&c, before, sizeof before);
    tt_case_text(&smaller, text, sizeof text);
    const bool same = strcmp(before, text) == 0;
    if (!same && !tt_check_case(context, &smaller, NULL, why, sizeof why)) {
      c = smaller;
      step = 0;
    } else {
      step++;
    }
  }
  if (!tt_check_case(context, &c, NULL, why, sizeof why)) {
    tt_case_text(&c, text, sizeof text);
    fprintf(stderr, "  reduced: %s\n  %s\n", text, why);
  }
}

static void random_sweep(void **state) {
  (void)state;
  const uint64_t seed = tt_seed_from_environment(20260101);
  const int64_t alone = tt_count_from_environment("TGLU_TEST_CASE", -1);
  const int64_t count = tt_count_from_environment("TGLU_TEST_CASES", 2000);
  char name[64];
  snprintf(name, sizeof name, "sweep %s seed %llu", isa, (unsigned long long)seed);
  printf("%s\n", name);
  tt_batch batch;
  tt_batch_begin(&batch, name, NULL);
  const int64_t first = alone >= 0 ? alone : 0;
  const int64_t end = alone >= 0 ? alone + 1 : count;
  for (int64_t index = first; index < end; index++) {
    tt_case c;
    batch.context = contexts[random_case(seed, index, &c)];
    if (tt_batch_check(&batch, &c)) continue;
    fprintf(stderr, "  again: TGLU_TEST_SEED=%llu TGLU_TEST_CASE=%lld %s %s\n",
            (unsigned long long)seed, (long long)index, program, isa);
    if (batch.failures <= 3) print_reduced(batch.context, c);
  }
  assert_true(tt_batch_end(&batch));
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  program = argv[0];
  for (int i = 0; i < CONTEXTS; i++) {
    contexts[i] = tt_cpu_context(isa, 1 + i % 3, i == 3 || i == 1);
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_sweep)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < CONTEXTS; i++) tglu_context_destroy(contexts[i]);
  return failed;
}
