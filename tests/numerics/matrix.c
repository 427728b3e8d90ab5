/* Every op x type x layout x activation x bias x residual, at one ISA level. */
#include <math.h>
#include <stdio.h>

#include "batch.h"
#include "cmocka_all.h"

static const char *isa;

typedef struct flavour {
  tglu_activation activation;
  float alpha, limit, offset;
} flavour;

static const flavour flavours[] = {
    {TGLU_ACTIVATION_SILU, 1.702f, 7, 1},
    {TGLU_ACTIVATION_GELU_TANH, 1.702f, 7, 1},
    {TGLU_ACTIVATION_GELU_ERF, 1.702f, 7, 1},
    {TGLU_ACTIVATION_RELU, 1.702f, 7, 1},
    {TGLU_ACTIVATION_SIGMOID, 1.702f, 7, 1},
    {TGLU_ACTIVATION_SWIGLUOAI, 1.702f, 7, 1},
    {TGLU_ACTIVATION_SWIGLUOAI, 1.702f, 1.5f, 1},        /* both clamps bite */
    {TGLU_ACTIVATION_SWIGLUOAI, 1.702f, INFINITY, 0},    /* quick_gelu       */
    {TGLU_ACTIVATION_SWIGLUOAI, 0.25f, 2.25f, -0.5f},
    {TGLU_ACTIVATION_SWIGLUOAI, -1.0f, 3, 0.125f},
};
enum { FLAVOURS = sizeof flavours / sizeof *flavours };

/* Whole tiles of most kernels, and sizes that fit none. */
static const struct { int64_t m, n, k; } shapes[] = {{8, 32, 64}, {13, 29, 75}};

static void fill_sizes(tt_case *c, int shape) {
  c->m = shapes[shape].m;
  c->n = shapes[shape].n;
  c->k = shapes[shape].k;
  if (shape == 1) {
    c->pad_x = 3;
    c->pad_w = 7;
    c->pad_down = 5;
    c->pad_out = 11;
    c->pad_residual = 1;
    c->place = TT_PLACE_END;
  } else {
    c->ld_zero = true;
  }
}

/* bits: gate, up, down bias.  A merged bias is both halves or none. */
static void check_biases(tt_batch *batch, tt_case *c) {
  for (int bits = 0; bits < 8; bits++) {
    c->gate_bias = bits & 1;
    c->up_bias = bits & 2;
    c->down_bias = bits & 4;
    if (c->op == TT_OP_GLU && c->down_bias) continue;
    if (c->op == TT_OP_LINEAR && (c->gate_bias || c->up_bias)) continue;
    if (c->layout != TGLU_LAYOUT_SEPARATE && c->gate_bias != c->up_bias) continue;
    if (c->op == TT_OP_MLP && c->gate_bias != c->up_bias) continue; /* the GLU's part */
    c->seed++;
    tt_batch_check(batch, c);
  }
}

static void run_matrix(tt_op op, tglu_dtype dtype) {
  static const char *const ops[] = {"glu", "mlp", "linear"};
  char name[64];
  snprintf(name, sizeof name, "matrix %s %s %s", ops[op], tglu_dtype_name(dtype), isa);
  tglu_context *context = tt_cpu_context(isa, 2, false);
  tt_batch batch;
  tt_batch_begin(&batch, name, context);
  tt_case c;
  tt_case_init(&c);
  c.op = op;
  c.dtype = dtype;
  const int layouts = op == TT_OP_LINEAR ? 1 : 4;
  const int activations = op == TT_OP_LINEAR ? 1 : FLAVOURS;
  const int residuals = op == TT_OP_GLU ? 1 : 3;
  for (int shape = 0; shape < 2; shape++) {
    fill_sizes(&c, shape);
    for (int layout = 1; layout <= layouts; layout++) {
      c.layout = (tglu_layout)layout;
      for (int f = 0; f < activations; f++) {
        c.activation = flavours[f].activation;
        c.alpha = flavours[f].alpha;
        c.limit = flavours[f].limit;
        c.offset = flavours[f].offset;
        for (int r = 0; r < residuals; r++) {
          c.residual = (tt_residual)r;
          check_biases(&batch, &c);
        }
      }
    }
  }
  const bool good = tt_batch_end(&batch);
  tglu_context_destroy(context);
  assert_true(good);
}

static void glu_bf16(void **state) { (void)state; run_matrix(TT_OP_GLU, TGLU_DTYPE_BF16); }
static void glu_f16(void **state) { (void)state; run_matrix(TT_OP_GLU, TGLU_DTYPE_F16); }
static void glu_f32(void **state) { (void)state; run_matrix(TT_OP_GLU, TGLU_DTYPE_F32); }
static void mlp_bf16(void **state) { (void)state; run_matrix(TT_OP_MLP, TGLU_DTYPE_BF16); }
static void mlp_f16(void **state) { (void)state; run_matrix(TT_OP_MLP, TGLU_DTYPE_F16); }
static void mlp_f32(void **state) { (void)state; run_matrix(TT_OP_MLP, TGLU_DTYPE_F32); }
static void linear_all(void **state) {
  (void)state;
  run_matrix(TT_OP_LINEAR, TGLU_DTYPE_BF16);
  run_matrix(TT_OP_LINEAR, TGLU_DTYPE_F16);
  run_matrix(TT_OP_LINEAR, TGLU_DTYPE_F32);
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(glu_bf16),   cmocka_unit_test(glu_f16), cmocka_unit_test(glu_f32),
      cmocka_unit_test(mlp_bf16),   cmocka_unit_test(mlp_f16), cmocka_unit_test(mlp_f32),
      cmocka_unit_test(linear_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
