/* From file to number: the layers of small files run on the CPU, and the right values
 * of hard cases H41, H43, H59, H65 and H66 come out. */
#include "files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define P "model.layers.0.mlp."

static tglu_context *context;

static int group_setup(void **state)
{
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  options.threads = 1;
  if (tglu_context_create(&options, &context) != TGLU_OK) {
    print_error("%s\n", tglu_last_error());
    return -1;
  }
  return folder_setup(state);
}

static int group_teardown(void **state)
{
  tglu_context_destroy(context);
  return folder_teardown(state);
}

/* One token through an MLP of hidden size 2; x = [1, 0]. */
static void run_desc(const tglu_mlp_desc *desc, double y[2])
{
  static const float x32[2] = {1, 0};
  static const uint16_t x_bf16[2] = {0x3f80, 0}, x_f16[2] = {0x3c00, 0};
  float out[2] = {NAN, NAN};
  tglu_mlp *mlp = NULL;
  tglu_status status = tglu_mlp_create(context, desc, &mlp);
  if (status != TGLU_OK) fail_msg("%s", tglu_last_error());
  tglu_dtype dtype = desc->glu.dtype;
  tglu_run_args args;
  tglu_run_args_init(&args);
  args.x = dtype == TGLU_DTYPE_F32 ? (const void *)x32
           : dtype == TGLU_DTYPE_BF16 ? (const void *)x_bf16 : (const void *)x_f16;
  args.tokens = 1;
  args.out = out;
  assert_int_equal(tglu_mlp_workspace_bytes(mlp, 1, &args.workspace_bytes), TGLU_OK);
  void *workspace = malloc(args.workspace_bytes + 1);
  assert_non_null(workspace);
  args.workspace = args.workspace_bytes ? workspace : NULL;
  status = tglu_mlp_run(mlp, &args);
  if (status != TGLU_OK) fail_msg("%s", tglu_last_error());
  for (size_t i = 0; i < 2; i++) y[i] = value_at(dtype, out, i);
  free(workspace);
  tglu_mlp_destroy(mlp);
}

static void expect_y(const tglu_mlp_desc *desc, double first, double second, double slack)
{
  double y[2];
  run_desc(desc, y);
  if (!(fabs(y[0] - first) <= slack) || !(fabs(y[1] - second) <= slack)) {
    fail_msg("y = [%.7g, %.7g], expected [%.7g, %.7g]", y[0], y[1], first, second);
  }
}

static const double gate[4] = {2, 0, 0, 0}, up[4] = {-1, 0, 0, 0}, down[4] = {1, 0, 3, 0};
static const double gate_up[8] = {2, 0, 0, 0, -1, 0, 0, 0},
                    up_gate[8] = {-1, 0, 0, 0, 2, 0, 0, 0};

static void expect_h41(const tglu_mlp_desc *desc)
{
  if (desc->glu.dtype == TGLU_DTYPE_F32) expect_y(desc, -1.76159, -5.28478, 5e-6);
  else if (desc->glu.dtype == TGLU_DTYPE_BF16) expect_y(desc, -1.7578125, -5.28125, 0);
  else expect_y(desc, -1.76159, -5.28478, 3e-3);
}

static tglu_model *open_silu(void **state, st_file *s)
{
  const char *path = in_folder(state, "model.safetensors");
  st_write(s, path);
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.activation = access(in_folder(state, "config.json"), R_OK) ? "silu" : NULL;
  return open_ok(path, &options);
}

/* H41: three tensors, Phi-3's merged one, an explicit [up; gate]; H66: the w families. */
static void order_of_halves(void **state)
{
  static const char *const dtypes[] = {"F32", "BF16", "F16"};
  for (size_t i = 0; i < COUNT(dtypes); i++) {
    const char *t = dtypes[i];
    static const struct { const char *prefix, *gate, *up, *down; } kinds[] = {
      {P, "gate_proj.weight", "up_proj.weight", "down_proj.weight"},
      {"layers.0.feed_forward.", "w1.weight", "w3.weight", "w2.weight"},
      {"transformer.h.0.mlp.", "w2.weight", "w1.weight", "c_proj.weight"},
    };
    for (size_t j = 0; j < COUNT(kinds); j++) {
      char name[100];
      st_file s;
      st_begin(&s);
      snprintf(name, sizeof name, "%s%s", kinds[j].prefix, kinds[j].gate);
      st_add(&s, name, t, "[2,2]", gate, 4);
      snprintf(name, sizeof name, "%s%s", kinds[j].prefix, kinds[j].up);
      st_add(&s, name, t, "[2,2]", up, 4);
      snprintf(name, sizeof name, "%s%s", kinds[j].prefix, kinds[j].down);
      st_add(&s, name, t, "[2,2]", down, 4);
      tglu_model *model = open_silu(state, &s);
      tglu_model_mlp m = layer_ok(model, 0);
      expect_h41(&m.desc);
      tglu_model_close(model);
    }
    st_file s;
    st_begin(&s);
    st_add(&s, P "gate_up_proj.weight", t, "[4,2]", gate_up, 8);
    st_add(&s, P "down_proj.weight", t, "[2,2]", down, 4);
    st_add(&s, "packed.up_gate", t, "[4,2]", up_gate, 8);
    tglu_model *model = open_silu(state, &s);
    tglu_model_mlp m = layer_ok(model, 0);
    expect_h41(&m.desc);
    tglu_tensor tensor;
    tglu_tensor_init(&tensor);
    assert_int_equal(tglu_model_find_tensor(model, "packed.up_gate", &tensor), TGLU_OK);
    m.desc.glu.gate_up = tensor.data;
    double y[2];
    run_desc(&m.desc, y);
    assert_true(fabs(y[0] + 0.538) < 0.01 && fabs(y[1] + 1.614) < 0.02);
    m.desc.glu.layout = TGLU_LAYOUT_STACKED_UP_FIRST;
    expect_h41(&m.desc);
    tglu_model_close(model);
  }
}

/* H43: what a config's name computes, at gate -2.703125 and up 1. */
static void names_compute(void **state)
{
  static const struct { const char *config; double value; } cases[] = {
    {"{\"hidden_act\":\"silu\"}", -0.1697271},
    {"{\"hidden_act\":\"swish\"}", -0.1697271},
    {"{\"hidden_act\":\"gelu\"}", -0.0092840},
    {"{\"hidden_act\":\"gelu_new\"}", -0.0088108},
    {"{\"hidden_act\":\"gelu_fast\"}", -0.0088108},
    {"{\"hidden_act\":\"gelu_pytorch_tanh\"}", -0.0088108},
    {"{\"hidden_act\":\"quick_gelu\"}", -0.0268818},
    {"{\"hidden_act\":\"relu\"}", 0},
    {"{\"model_type\":\"gemma2\",\"hidden_act\":\"gelu\",\"hidden_activation\":"
     "\"gelu_pytorch_tanh\"}", -0.0088108},
  };
  const double g[4] = {-2.703125, 0, 0, 0}, u[4] = {1, 0, 0, 0}, d[4] = {1, 0, 0, 1};
  for (size_t i = 0; i < COUNT(cases); i++) {
    write_text(in_folder(state, "config.json"), cases[i].config);
    st_file s;
    st_begin(&s);
    st_add(&s, P "gate_proj.weight", "F32", "[2,2]", g, 4);
    st_add(&s, P "up_proj.weight", "F32", "[2,2]", u, 4);
    st_add(&s, P "down_proj.weight", "F32", "[2,2]", d, 4);
    tglu_model *model = open_silu(state, &s);
    tglu_model_mlp m = layer_ok(model, 0);
    expect_y(&m.desc, cases[i].value, 0, 1e-7);
    tglu_model_close(model);
  }
}

/* H65: gate = up = 0, so the biases alone make h = silu(2) * -1. */
static void biases_count_once(void **state)
{
  const double zero[8] = {0}, two[2] = {2, 2}, minus[2] = {-1, -1}, half[2] = {0.5, 0.5};
  const double merged[4] = {2, 2, -1, -1};
  for (int stacked = 0; stacked < 2; stacked++) {
    st_file s;
    st_begin(&s);
    if (stacked) {
      st_add(&s, P "gate_up_proj.weight", "F32", "[4,2]", zero, 8);
      st_add(&s, P "gate_up_proj.bias", "F32", "[4]", merged, 4);
    } else {
      st_add(&s, P "gate_proj.weight", "F32", "[2,2]", zero, 4);
      st_add(&s, P "gate_proj.bias", "F32", "[2]", two, 2);
      st_add(&s, P "up_proj.weight", "F32", "[2,2]", zero, 4);
      st_add(&s, P "up_proj.bias", "F32", "[2]", minus, 2);
    }
    st_add(&s, P "down_proj.weight", "F32", "[2,2]", down, 4);
    st_add(&s, P "down_proj.bias", "F32", "[2]", half, 2);
    tglu_model *model = open_silu(state, &s);
    tglu_model_mlp m = layer_ok(model, 0);
    expect_y(&m.desc, -1.76159 + 0.5, -5.28478 + 0.5, 5e-6);
    tglu_model_close(model);
  }
}

/* H59: weights at every residue of 8 give the same values, also at odd addresses. */
static void odd_addresses(void **state)
{
  static const char *const dtypes[] = {"F32", "BF16", "F16"};
  const double bytes[8] = {7, 7, 7, 7, 7, 7, 7, 7};
  unsigned seen = 0;
  for (size_t i = 0; i < COUNT(dtypes) * 8; i++) {
    st_file s;
    st_begin(&s);
    char shape[8];
    snprintf(shape, sizeof shape, "[%zu]", i % 8);
    st_add(&s, "a", "U8", shape, bytes, i % 8);
    st_add(&s, P "gate_proj.weight", dtypes[i / 8], "[2,2]", gate, 4);
    st_add(&s, P "up_proj.weight", dtypes[i / 8], "[2,2]", up, 4);
    st_add(&s, P "down_proj.weight", dtypes[i / 8], "[2,2]", down, 4);
    tglu_model *model = open_silu(state, &s);
    tglu_model_mlp m = layer_ok(model, 0);
    seen |= 1u << ((uintptr_t)m.desc.glu.gate % 8);
    expect_h41(&m.desc);
    tglu_model_close(model);
  }
  assert_int_equal(seen, 0xff);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, folder_clean)
  const struct CMUnitTest tests[] = {
    TEST(order_of_halves), TEST(names_compute), TEST(biases_count_once),
    TEST(odd_addresses),
  };
  return cmocka_run_group_tests_name("mlp", tests, group_setup, group_teardown);
}
