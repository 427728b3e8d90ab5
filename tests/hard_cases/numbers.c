/* H01 H03 H07 H41 H51 H53 H65: values, at one ISA level. */
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "cmocka_all.h"
#include "number.h"
#include "oracle.h"
#include "probe.h"
#include "runner.h"

static const char *isa;
static const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};

/* ---- H01: extreme gates ---- */

static double largest(tglu_dtype dtype) {
  switch (dtype) {
    case TGLU_DTYPE_BF16: return 0x1.fep127;
    case TGLU_DTYPE_F16: return 65504;
    case TGLU_DTYPE_F32: return (double)FLT_MAX;
  }
  return 0;
}

/* What an extreme gate must give with up = 1; NaN where NaN is right.  The limit at
 * -inf is 0 for every activation. */
static double extreme_result(tglu_activation activation, double gate) {
  if (isnan(gate)) return NAN;
  const bool clamped = activation == TGLU_ACTIVATION_SWIGLUOAI;
  const double factor = clamped ? 2 : 1; /* up 1 + offset 1 */
  if (gate == INFINITY) {
    if (clamped) return tt_activation(activation, 1.702f, 7, 1, 7, 1);
    return activation == TGLU_ACTIVATION_SIGMOID ? 1 : INFINITY;
  }
  if (gate == -INFINITY) return 0;
  return tt_activation(activation, 1.702f, 7, 1, gate, 1) / factor * factor;
}

static void check_extreme(tglu_dtype dtype, tglu_activation activation, double gate,
                          double got) {
  const double want = extreme_result(activation, gate);
  bool good;
  if (isnan(want)) {
    good = isnan(got);
  } else if (isinf(want)) {
    good = got == want;
  } else if (gate < -80) { /* the rounded value, or zero of either sign */
    good = fabs(got - want) <= tt_ulp(dtype, want) || got == 0;
  } else {
    const double slack = 0x1p-16 * fabs(want);
    good = got >= tt_round(dtype, want - slack) && got <= tt_round(dtype, want + slack);
  }
  if (!good) {
    fail_msg("%s %s at %s: gate %g: got %g, want %g", tglu_dtype_name(dtype),
             tglu_activation_name(activation), isa, gate, got, want);
  }
}

static void h01_extreme_gates(void **state) {
  (void)state;
  enum { COUNT = 45, TOKENS = 5 };
  for (int d = 0; d < 3; d++) {
    const double top = largest(dtypes[d]);
    const double gates[] = {-INFINITY, -top, -1000, -100,     -20, -0.0, 0, 88.5, 89,
                            100,       1000, top,   INFINITY, NAN};
    enum { GATES = sizeof gates / sizeof *gates };
    for (int a = TGLU_ACTIVATION_SILU; a <= TGLU_ACTIVATION_SWIGLUOAI; a++) {
      const tglu_glu_desc desc = probe_desc(dtypes[d], (tglu_activation)a);
      double row[COUNT], ups[COUNT];
      unsigned char out[TOKENS * COUNT * 4];
      /* Every value in every column, so also in the tails. */
      for (int shift = 0; shift < GATES; shift++) {
        for (int j = 0; j < COUNT; j++) {
          row[j] = gates[(j + shift) % GATES];
          ups[j] = 1;
        }
        probe_glu(&desc, TOKENS, COUNT, row, ups, out);
        for (int i = 0; i < TOKENS * COUNT; i++) {
          check_extreme(dtypes[d], (tglu_activation)a, row[i % COUNT],
                        tt_load(dtypes[d], out, i));
        }
      }
    }
  }
}

/* ---- H03: one rounding ---- */

static void h03_activation_is_not_rounded_first(void **state) {
  (void)state;
  const double got = probe_one(TGLU_DTYPE_BF16, TGLU_ACTIVATION_SILU, 0.4375, 9.375);
  assert_int_equal(tt_bits_of(TGLU_DTYPE_BF16, got), 0x4020);
}

static void h03_accumulator_is_not_rounded_first(void **state) {
  (void)state;
  uint16_t x[8] = {0}, gate[8] = {0}, up[8] = {0}, out = 0xffff;
  tt_store(TGLU_DTYPE_BF16, x, 0, 1);
  tt_store(TGLU_DTYPE_BF16, x, 1, 1);
  tt_store(TGLU_DTYPE_BF16, gate, 0, 1);
  tt_store(TGLU_DTYPE_BF16, gate, 1, 0.0029296875);
  tt_store(TGLU_DTYPE_BF16, up, 0, 1);
  tglu_glu_desc desc = probe_desc(TGLU_DTYPE_BF16, TGLU_ACTIVATION_SILU);
  desc.hidden = 8;
  desc.intermediate = 1;
  desc.layout = TGLU_LAYOUT_SEPARATE;
  desc.gate = gate;
  desc.up = up;
  tt_object object = {0};
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  assert_int_equal(tglu_glu_create(probe_context, &desc, &object.glu), TGLU_OK);
  tglu_run_args_init(&args);
  args.x = x;
  args.tokens = 1;
  args.out = &out;
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  tt_object_destroy(&object);
  assert_int_equal(out, 0x3f3c);
}

/* ---- H07: no element of K is dropped ---- */

static void check_last_element(tglu_dtype dtype, int64_t k, int64_t from_end) {
  enum { M = 5, N = 24 };
  const size_t element = tt_bytes_of(dtype);
  tt_buffer x, w, out;
  tt_buffer_create(&x, (size_t)(M * k) * element, TT_PLACE_END, 0);
  tt_buffer_create(&w, (size_t)(2 * N * k) * element, TT_PLACE_END, 0);
  tt_buffer_create(&out, M * N * element, TT_PLACE_END, 0);
  for (int64_t i = 0; i < M * k; i++) tt_store(dtype, x.data, i, 1);
  memset(w.data, 0, w.bytes);
  for (int64_t r = 0; r < 2 * N; r++) {
    tt_store(dtype, w.data, r * k + k - 1 - from_end, 1);
  }
  tglu_glu_desc desc = probe_desc(dtype, TGLU_ACTIVATION_SILU);
  desc.hidden = k;
  desc.intermediate = N;
  desc.layout = TGLU_LAYOUT_STACKED_GATE_FIRST;
  desc.gate_up = w.data;
  tt_object object = {0};
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  assert_int_equal(tglu_glu_create(probe_context, &desc, &object.glu), TGLU_OK);
  tglu_run_args_init(&args);
  args.x = x.data;
  args.tokens = M;
  args.out = out.data;
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  tt_object_destroy(&object);
  const double want = 0.731058578630005; /* silu(1) */
  for (int64_t i = 0; i < M * N; i++) {
    const double got = tt_load(dtype, out.data, i);
    if (tt_ulp_distance(dtype, got, tt_round(dtype, want)) >
        (dtype == TGLU_DTYPE_F32 ? 64 : 0)) {
      fail_msg("%s k=%lld, element %lld from the end, at %s: got %g, want %g",
               tglu_dtype_name(dtype), (long long)k, (long long)from_end, isa, got, want);
    }
  }
  tt_buffer_destroy(&x);
  tt_buffer_destroy(&w);
  tt_buffer_destroy(&out);
}

static void h07_last_elements_of_k(void **state) {
  (void)state;
  static const int64_t ks[] = {1,  7,  8,   24,  40,   63,   65,
                               72, 192, 200, 1000, 1001, 4104};
  for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
    for (int d = 0; d < 3; d++) {
      for (int64_t back = 0; back < ks[i] && back < 33; back++) {
        check_last_element(dtypes[d], ks[i], back);
      }
    }
  }
}

/* ---- H41, H65: which half is the gate, and whose the bias ---- */

typedef struct tiny_mlp { /* K = N = 2 */
  float gate[4], up[4], down[4], x[2];
  float gate_bias[2], up_bias[2], down_bias[2];
  bool biases;
} tiny_mlp;

static void place(tglu_layout layout, int64_t columns, const float *gate, const float *up,
                  float *merged) {
  const size_t bytes = (size_t)columns * sizeof(float);
  for (int row = 0; row < 2; row++) {
    const int at_gate = layout == TGLU_LAYOUT_STACKED_GATE_FIRST ? row
                        : layout == TGLU_LAYOUT_STACKED_UP_FIRST ? 2 + row : 2 * row;
    const int at_up = layout == TGLU_LAYOUT_STACKED_GATE_FIRST ? 2 + row
                      : layout == TGLU_LAYOUT_STACKED_UP_FIRST ? row : 2 * row + 1;
    memcpy(merged + at_gate * columns, gate + row * columns, bytes);
    memcpy(merged + at_up * columns, up + row * columns, bytes);
  }
}

static void convert(tglu_dtype dtype, const float *from, int count, void *to) {
  for (int i = 0; i < count; i++) tt_store(dtype, to, i, (double)from[i]);
}

static void run_tiny(tglu_dtype dtype, tglu_layout layout, const tiny_mlp *mlp,
                     double y[2]) {
  float merged[8], merged_bias[4];
  unsigned char gate[16], up[16], down[16], gate_up[32], x[8], out[8];
  unsigned char gate_bias[8], up_bias[8], gate_up_bias[16], down_bias[8];
  place(layout, 2, mlp->gate, mlp->up, merged);
  place(layout, 1, mlp->gate_bias, mlp->up_bias, merged_bias);
  convert(dtype, mlp->gate, 4, gate);
  convert(dtype, mlp->up, 4, up);
  convert(dtype, merged, 8, gate_up);
  convert(dtype, mlp->down, 4, down);
  convert(dtype, mlp->x, 2, x);
  convert(dtype, mlp->gate_bias, 2, gate_bias);
  convert(dtype, mlp->up_bias, 2, up_bias);
  convert(dtype, merged_bias, 4, gate_up_bias);
  convert(dtype, mlp->down_bias, 2, down_bias);
  const bool apart = layout == TGLU_LAYOUT_SEPARATE;
  tglu_mlp_desc desc;
  tglu_mlp_desc_init(&desc);
  desc.glu.hidden = desc.glu.intermediate = 2;
  desc.glu.dtype = dtype;
  desc.glu.activation = TGLU_ACTIVATION_SILU;
  desc.glu.layout = layout;
  desc.glu.gate = apart ? gate : NULL;
  desc.glu.up = apart ? up : NULL;
  desc.glu.gate_up = apart ? NULL : gate_up;
  desc.glu.gate_bias = mlp->biases && apart ? gate_bias : NULL;
  desc.glu.up_bias = mlp->biases && apart ? up_bias : NULL;
  desc.glu.gate_up_bias = mlp->biases && !apart ? gate_up_bias : NULL;
  desc.down = down;
  desc.down_bias = mlp->biases ? down_bias : NULL;
  tt_object object = {0};
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  if (tglu_mlp_create(probe_context, &desc, &object.mlp) != TGLU_OK) {
    fail_msg("create: %s", tglu_last_error());
  }
  tglu_run_args_init(&args);
  args.x = x;
  args.tokens = 1;
  args.out = out;
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  tt_object_destroy(&object);
  y[0] = tt_load(dtype, out, 0);
  y[1] = tt_load(dtype, out, 1);
}

static void expect_pair(const double y[2], double a, double b, double slack) {
  if (!(fabs(y[0] - a) <= slack && fabs(y[1] - b) <= slack)) {
    fail_msg("got [%.9g, %.9g], want [%.9g, %.9g] +- %g at %s", y[0], y[1], a, b, slack,
             isa);
  }
}

static void h41_gate_and_up_are_not_swapped(void **state) {
  (void)state;
  const tiny_mlp mlp = {.gate = {2, 0, 0, 0}, .up = {-1, 0, 0, 0},
                        .down = {1, 0, 3, 0}, .x = {1, 0}};
  for (int layout = 1; layout <= 4; layout++) {
    double y[2];
    run_tiny(TGLU_DTYPE_F32, (tglu_layout)layout, &mlp, y);
    expect_pair(y, -1.76159, -5.28478, 1e-5);
    run_tiny(TGLU_DTYPE_BF16, (tglu_layout)layout, &mlp, y);
    expect_pair(y, -1.7578125, -5.28125, 0);
    run_tiny(TGLU_DTYPE_F16, (tglu_layout)layout, &mlp, y);
    expect_pair(y, -1.76159, -5.28478, 0.003);
  }
}

static void h41_layout_is_required(void **state) {
  (void)state;
  float w[8] = {0};
  tglu_glu_desc desc = probe_desc(TGLU_DTYPE_F32, TGLU_ACTIVATION_SILU);
  tglu_glu *glu = (tglu_glu *)1;
  desc.hidden = desc.intermediate = 2;
  desc.gate_up = w;
  assert_int_equal(tglu_glu_create(probe_context, &desc, &glu),
                   TGLU_ERR_INVALID_ARGUMENT);
  assert_null(glu);
  assert_non_null(strstr(tglu_last_error(), "layout"));
}

static void h65_each_bias_reaches_its_own_half(void **state) {
  (void)state;
  const tiny_mlp mlp = {.down = {1, 0, 3, 0}, .x = {1, 0}, .gate_bias = {2, 0},
                        .up_bias = {-1, 0}, .down_bias = {0.5f, 0.5f}, .biases = true};
  const double h = -1.761594156;
  for (int layout = 1; layout <= 4; layout++) {
    double y[2];
    run_tiny(TGLU_DTYPE_F32, (tglu_layout)layout, &mlp, y);
    expect_pair(y, h + 0.5, 3 * h + 0.5, 1e-5);
    run_tiny(TGLU_DTYPE_BF16, (tglu_layout)layout, &mlp, y);
    expect_pair(y, -1.2578125, -4.78125, 0);
    run_tiny(TGLU_DTYPE_F16, (tglu_layout)layout, &mlp, y);
    expect_pair(y, h + 0.5, 3 * h + 0.5, 0.003);
  }
}

/* ---- H51: H beyond fp16 ---- */

/* K = 8, N = 3, gate = up = 300 in the first `columns` of H. */
static void run_overflow(tglu_dtype dtype, int columns, double first, double second,
                         double y[2]) {
  unsigned char x[8 * 4], gate[24 * 4], up[24 * 4], down[24 * 4], out[8 * 4];
  for (int i = 0; i < 24; i++) {
    tt_store(dtype, gate, i, i % 8 == 0 ? (i / 8 < columns ? 300 : 1) : 0);
    tt_store(dtype, up, i, i % 8 == 0 ? (i / 8 < columns ? 300 : 1) : 0);
    const double rows[2] = {first, -first};
    const int row = i / 3, column = i % 3;
    const double value = row < 2 ? (column == 0 ? rows[row] : column == 1 ? second : 0) : 0;
    tt_store(dtype, down, i, value);
  }
  for (int i = 0; i < 8; i++) tt_store(dtype, x, i, i == 0);
  tglu_mlp_desc desc;
  tglu_mlp_desc_init(&desc);
  desc.glu = probe_desc(dtype, TGLU_ACTIVATION_SILU);
  desc.glu.hidden = 8;
  desc.glu.intermediate = 3;
  desc.glu.layout = TGLU_LAYOUT_SEPARATE;
  desc.glu.gate = gate;
  desc.glu.up = up;
  desc.down = down;
  tt_object object = {0};
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  assert_int_equal(tglu_mlp_create(probe_context, &desc, &object.mlp), TGLU_OK);
  tglu_run_args_init(&args);
  args.x = x;
  args.tokens = 1;
  args.out = out;
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  tt_object_destroy(&object);
  y[0] = tt_load(dtype, out, 0);
  y[1] = tt_load(dtype, out, 1);
}

static void h51_fp16_overflow_is_infinite(void **state) {
  (void)state;
  double y[2];
  assert_true(probe_one(TGLU_DTYPE_F16, TGLU_ACTIVATION_SILU, 300, 300) == INFINITY);
  assert_true(probe_one(TGLU_DTYPE_F16, TGLU_ACTIVATION_SILU, 300, -300) == -INFINITY);
  run_overflow(TGLU_DTYPE_F16, 1, 0.001, 0.001, y);
  assert_true(y[0] == INFINITY && y[1] == -INFINITY);
  run_overflow(TGLU_DTYPE_F16, 2, 0.001, -0.001, y);
  assert_true(isnan(y[0]) && y[1] == -INFINITY);
  run_overflow(TGLU_DTYPE_BF16, 1, 0.001, 0, y);
  assert_true(fabs(y[0] - 90) <= 0.5 && fabs(y[1] + 90) <= 0.5);
  run_overflow(TGLU_DTYPE_F32, 1, 0.001, 0, y);
  assert_true(fabs(y[0] - 90) <= 0.001 && fabs(y[1] + 90) <= 0.001);
}

/* ---- H53: subnormals and the floating-point environment ---- */

static void scaled_one(tglu_dtype dtype, double x, double gate, double up, double *out) {
  unsigned char xs[4], gates[4], ups[4], result[4];
  tt_store(dtype, xs, 0, x);
  tt_store(dtype, gates, 0, gate);
  tt_store(dtype, ups, 0, up);
  tglu_glu_desc desc = probe_desc(dtype, TGLU_ACTIVATION_SILU);
  desc.hidden = desc.intermediate = 1;
  desc.layout = TGLU_LAYOUT_SEPARATE;
  desc.gate = gates;
  desc.up = ups;
  tt_object object = {0};
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  assert_int_equal(tglu_glu_create(probe_context, &desc, &object.glu), TGLU_OK);
  tglu_run_args_init(&args);
  args.x = xs;
  args.tokens = 1;
  args.out = result;
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  tt_object_destroy(&object);
  *out = tt_load(dtype, result, 0);
}

static void h53_subnormals_are_exact(void **state) {
  (void)state;
  double got;
  scaled_one(TGLU_DTYPE_BF16, 0x1p-130, 0x1p120, 0x1p127, &got);
  assert_int_equal(tt_bits_of(TGLU_DTYPE_BF16, got), 0x3880);
  assert_int_equal(tt_bits_of(TGLU_DTYPE_BF16, probe_one(TGLU_DTYPE_BF16,
                                                         TGLU_ACTIVATION_SILU, 2,
                                                         0x1p-130)), 0x000e);
  scaled_one(TGLU_DTYPE_F32, 0x1p-130, 0x1p120, 0x1p127, &got);
  assert_true(fabs(got / 6.1065e-05 - 1) < 1e-3);
  got = probe_one(TGLU_DTYPE_F32, TGLU_ACTIVATION_SILU, 2, 0x1p-130);
  assert_true(fabs(got / (1.7615941559557649 * 0x1p-130) - 1) < 0x1p-15);
  /* fp16: subnormal x, subnormal result. */
  scaled_one(TGLU_DTYPE_F16, 0x1p-24, 0x1p14, 0x1p15, &got);
  assert_true(got == 0x1p-20);
  assert_true(probe_one(TGLU_DTYPE_F16, TGLU_ACTIVATION_RELU, 1, 0x1p-24) == 0x1p-24);
}

static bool subnormals_live(void) {
  volatile float x = 1e-38f;
  return x / 4 != 0;
}

static void *check_in_thread(void *user) {
  (void)user;
  const bool before = subnormals_live();
  tt_case c;
  char why[TT_WHY_BYTES];
  tt_case_init(&c);
  c.m = c.n = c.k = 20;
  const bool ran = tt_check_case(probe_context, &c, NULL, why, sizeof why);
  static int good;
  return before && ran && subnormals_live() ? &good : NULL;
}

static void h53_caller_keeps_its_subnormals(void **state) {
  (void)state;
  assert_non_null(check_in_thread(NULL));
  pthread_t thread;
  void *result;
  assert_int_equal(pthread_create(&thread, NULL, check_in_thread, NULL), 0);
  pthread_join(thread, &result);
  assert_non_null(result);
}

/* Output bytes of a run in the present floating-point environment. */
static void run_in_environment(const tt_case *c, tt_operands *o, int mode,
                               unsigned char *bytes) {
  char why[TT_WHY_BYTES];
  tt_reset_out(c, o);
  fenv_t saved;
  fegetenv(&saved);
  fesetround(mode);
#if defined(__SSE2__)
  const unsigned flush = mode == FE_TONEAREST ? 0 : 0x8040; /* FTZ and DAZ */
  _mm_setcsr(_mm_getcsr() | flush);
  const unsigned before = _mm_getcsr() & 0xffc0;
#endif
  const bool ran = tt_run(probe_context, c, o, why, sizeof why);
  const int after = fegetround();
#if defined(__SSE2__)
  const unsigned left = _mm_getcsr() & 0xffc0;
#endif
  fesetenv(&saved);
  if (!ran) fail_msg("%s", why);
  assert_int_equal(after, mode);
#if defined(__SSE2__)
  assert_int_equal(left, before);
#endif
  memcpy(bytes, o->out.data, o->out.bytes);
}

/* The caller's rounding mode and flushes are kept, and do not change a result. */
static void h53_environment_is_kept_and_harmless(void **state) {
  (void)state;
  static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  for (int i = 0; i < 9; i++) {
    for (int empty = 0; empty < 2; empty++) {
      tt_case c;
      tt_operands o;
      tt_case_init(&c);
      c.op = (tt_op)(i / 3);
      c.dtype = dtypes[i % 3];
      c.m = 7;
      c.n = empty ? 0 : 33;
      c.k = 45;
      c.gate_bias = c.up_bias = c.down_bias = true;
      if (c.op != TT_OP_GLU) c.residual = TT_RESIDUAL_APART;
      if (empty && c.op != TT_OP_MLP) continue; /* the MLP without an intermediate */
      tt_operands_create(&c, &o);
      unsigned char *plain = malloc(o.out.bytes), *other = malloc(o.out.bytes);
      run_in_environment(&c, &o, FE_TONEAREST, plain);
      for (int mode = 0; mode < 3; mode++) {
        run_in_environment(&c, &o, modes[mode], other);
        if (memcmp(plain, other, o.out.bytes) != 0) {
          char text[TT_WHY_BYTES];
          tt_case_text(&c, text, sizeof text);
          fail_msg("the caller's rounding mode %d changed a result: %s", mode, text);
        }
      }
      free(plain);
      free(other);
      tt_operands_destroy(&o);
    }
  }
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  probe_context = tt_cpu_context(isa, 2, false);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h01_extreme_gates),
      cmocka_unit_test(h03_activation_is_not_rounded_first),
      cmocka_unit_test(h03_accumulator_is_not_rounded_first),
      cmocka_unit_test(h07_last_elements_of_k),
      cmocka_unit_test(h41_gate_and_up_are_not_swapped),
      cmocka_unit_test(h41_layout_is_required),
      cmocka_unit_test(h65_each_bias_reaches_its_own_half),
      cmocka_unit_test(h51_fp16_overflow_is_infinite),
      cmocka_unit_test(h53_subnormals_are_exact),
      cmocka_unit_test(h53_caller_keeps_its_subnormals),
      cmocka_unit_test(h53_environment_is_kept_and_harmless),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  tglu_context_destroy(probe_context);
  return failed;
}
