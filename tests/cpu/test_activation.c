/* The six activations of every ISA's epilogue against long double, over a dense sweep
 * of gates and over random bit patterns. */
#include <float.h>

#include "check.h"

typedef struct setting {
  tglu__act act;
  float up;     /* chosen so that act(gate) * up is the activation itself */
} setting;

static const setting settings[] = {
  {{TGLU_ACTIVATION_SILU, 1.702f, 7.0f, 1.0f}, 1.0f},
  {{TGLU_ACTIVATION_GELU_TANH, 1.702f, 7.0f, 1.0f}, 1.0f},
  {{TGLU_ACTIVATION_GELU_ERF, 1.702f, 7.0f, 1.0f}, 1.0f},
  {{TGLU_ACTIVATION_RELU, 1.702f, 7.0f, 1.0f}, 1.0f},
  {{TGLU_ACTIVATION_SIGMOID, 1.702f, 7.0f, 1.0f}, 1.0f},
  {{TGLU_ACTIVATION_SWIGLUOAI, 1.702f, 7.0f, 1.0f}, 0.0f},
  {{TGLU_ACTIVATION_SWIGLUOAI, 1.702f, INFINITY, 0.0f}, 1.0f},
  {{TGLU_ACTIVATION_SWIGLUOAI, 0.375f, 3.0f, -0.5f}, 1.5f},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static long double sigma(long double z) { return 1.0L / (1.0L + expl(-z)); }

static long double reference(const tglu__act *act, float gate) {
  long double g = gate;
  switch (act->kind) {
    case TGLU_ACTIVATION_SILU: return g * sigma(g);
    case TGLU_ACTIVATION_GELU_TANH:
      return g * sigma(1.595769121605730711759542L * (g + 0.044715L * g * g * g));
    case TGLU_ACTIVATION_GELU_ERF:
      return 0.5L * g * erfcl(-g * 0.707106781186547524400844L);
    case TGLU_ACTIVATION_RELU: return g > 0 ? g : 0;
    case TGLU_ACTIVATION_SIGMOID: return sigma(g);
    case TGLU_ACTIVATION_SWIGLUOAI:
      if (g > act->limit) g = act->limit;
      return g * sigma(act->alpha * g);
  }
  return NAN;
}

static void run(const tglu__cpu_row *row, const setting *s, const float *gates, float *out,
                int64_t count) {
  float gate[64] __attribute__((aligned(64))), up[64] __attribute__((aligned(64)));
  for (int64_t i = 0; i < count; i += 64) {
    int64_t step = count - i < 64 ? count - i : 64;
    memcpy(gate, gates + i, (size_t)step * sizeof *gate);
    for (int j = 0; j < 64; j++) up[j] = s->up;
    tglu__store_args args = {
      .c0 = gate, .c1 = up, .out = out + i, .count = step, .act = s->act};
    row->store(&args);
  }
}

static const tglu__cpu_row *row_of(tglu__isa isa, tglu_dtype dtype) {
  for (int32_t i = 0; i < tglu__cpu_row_count; i++) {
    const tglu__cpu_row *row = &tglu__cpu_rows[i];
    if (row->isa == isa && row->dtype == dtype && row->op == TGLU__OP_GLU) return row;
  }
  return NULL;
}

/* 2^-18 relative (2^-16 is promised) down to the smallest normal result, and one step
 * of the subnormals below; returns the worst relative error of normal results. */
static double check(const tglu__cpu_row *row, const setting *s, const float *gates,
                    int64_t count) {
  float *out = malloc((size_t)count * sizeof *out);
  memset(out, 0xff, (size_t)count * sizeof *out);
  run(row, s, gates, out, count);
  double worst = 0;
  for (int64_t i = 0; i < count; i++) {
    long double expected = reference(&s->act, gates[i]);
    double error = (double)fabsl((long double)out[i] - expected);
    double size = (double)fabsl(expected);
    if (!(error <= size * 0x1p-18 + 0x1p-149))
      fail_msg("%s: activation %d of %a is %a, not %La", row->name, (int)s->act.kind,
               (double)gates[i], (double)out[i], expected);
    if (size >= (double)FLT_MIN && error / size > worst) worst = error / size;
  }
  free(out);
  return worst;
}

static void test_sweep(void **state) {
  (void)state;
  enum { COUNT = 400001 };
  float *gates = malloc(COUNT * sizeof *gates);
  int ran = 0;
  for (int isa = 0; isa <= (int)machine_isa(); isa++) {
    const tglu__cpu_row *row = row_of((tglu__isa)isa, TGLU_DTYPE_F32);
    if (row == NULL) continue;
    for (int i = 0; i < SETTINGS; i++) {
      for (int j = 0; j < COUNT; j++) gates[j] = (float)(j - COUNT / 2) * 0.000611f;
      double worst = check(row, &settings[i], gates, COUNT);
      uint64_t random = 7;
      for (int j = 0; j < COUNT; j++) { /* any finite float */
        uint32_t bits;
        do bits = (uint32_t)random_bits(&random);
        while ((bits & 0x7f800000u) == 0x7f800000u);
        memcpy(&gates[j], &bits, sizeof bits);
      }
      double other = check(row, &settings[i], gates, COUNT);
      if (other > worst) worst = other;
      print_message("%s, activation %d: worst relative error 2^%.1f\n", row->name,
                    (int)settings[i].act.kind, log2(worst + 1e-30));
      ran++;
    }
  }
  free(gates);
  assert_true(ran >= SETTINGS);
}

static float one(const tglu__cpu_row *row, const setting *s, float gate, float up) {
  float out = -77.0f;
  setting with_up = *s;
  with_up.up = up;
  run(row, &with_up, &gate, &out, 1);
  return out;
}

/* Gates of H01 and its kind, in a tail column and in a full vector alike. */
static void check_edges(const tglu__cpu_row *row, const setting *s) {
  tglu_activation kind = s->act.kind;
  bool bounded = kind == TGLU_ACTIVATION_SIGMOID || kind == TGLU_ACTIVATION_SWIGLUOAI;
  static const float large[] = {89.0f, 100.0f, 1000.0f, 3.38953139e38f, INFINITY};
  for (size_t i = 0; i < sizeof large / sizeof large[0] && !bounded; i++)
    assert_true(one(row, s, large[i], 1.0f) == large[i]);
  if (kind == TGLU_ACTIVATION_SIGMOID) assert_true(one(row, s, INFINITY, 1.0f) == 1.0f);
  static const float low[] = {-1000.0f, -3.38953139e38f, -FLT_MAX, -INFINITY};
  for (size_t i = 0; i < sizeof low / sizeof low[0]; i++)
    assert_true(one(row, s, low[i], s->up) == 0.0f);
  if (kind != TGLU_ACTIVATION_SIGMOID) {
    assert_true(one(row, s, 0.0f, s->up) == 0.0f);
    assert_true(one(row, s, -0.0f, s->up) == 0.0f);
  }
  assert_true(isnan(one(row, s, NAN, 1.0f)));
  assert_true(isnan(one(row, s, -NAN, 1.0f)));
  assert_true(isnan(one(row, s, 1.0f, NAN)));
  assert_true(isnan(one(row, s, 20.0f, NAN)));
}

static void test_edges(void **state) {
  (void)state;
  int ran = 0;
  for (int isa = 0; isa <= (int)machine_isa(); isa++) {
    const tglu__cpu_row *row = row_of((tglu__isa)isa, TGLU_DTYPE_F32);
    for (int i = 0; row != NULL && i < SETTINGS; i++, ran++) check_edges(row, &settings[i]);
  }
  assert_true(ran >= SETTINGS);
}

/* swigluoai's clamps: the up side, both ways, and the gate side. */
static void test_clamps(void **state) {
  (void)state;
  const setting *s = &settings[5]; /* limit 7, offset 1 */
  int ran = 0;
  for (int isa = 0; isa <= (int)machine_isa(); isa++) {
    const tglu__cpu_row *row = row_of((tglu__isa)isa, TGLU_DTYPE_F32);
    if (row == NULL) continue;
    float at_limit = one(row, s, 7.0f, 2.0f);
    assert_true(at_limit > 20.9f && at_limit < 21.0f);
    assert_true(one(row, s, 50.0f, 2.0f) == at_limit);
    assert_true(one(row, s, INFINITY, 2.0f) == at_limit);
    assert_true(one(row, s, 1.0f, 7.5f) == one(row, s, 1.0f, 7.0f));
    assert_true(one(row, s, 1.0f, -7.5f) == one(row, s, 1.0f, -7.0f));
    assert_true(one(row, s, 1.0f, -INFINITY) == one(row, s, 1.0f, -7.0f));
    assert_true(one(row, s, 1.0f, 6.5f) != one(row, s, 1.0f, 7.0f));
    ran++;
  }
  assert_true(ran > 0);
}

/* One rounding (H03): silu(0.4375) * 9.375 is 2.5 in bf16; rounding the activation
 * first would give 2.484375. */
static void test_one_rounding(void **state) {
  (void)state;
  int ran = 0;
  for (int isa = 0; isa <= (int)machine_isa(); isa++) {
    const tglu__cpu_row *row = row_of((tglu__isa)isa, TGLU_DTYPE_BF16);
    if (row == NULL) continue;
    float gate[8] __attribute__((aligned(64))), up[8] __attribute__((aligned(64)));
    for (int i = 0; i < 8; i++) gate[i] = 0.4375f, up[i] = 9.375f;
    uint16_t out[8] = {0};
    tglu__store_args args = {
      .c0 = gate, .c1 = up, .out = out, .count = 8, .act = settings[0].act};
    row->store(&args);
    for (int i = 0; i < 8; i++) assert_int_equal(out[i], 0x4020);
    ran++;
  }
  assert_true(ran > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sweep),
    cmocka_unit_test(test_edges),
    cmocka_unit_test(test_clamps),
    cmocka_unit_test(test_one_rounding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
