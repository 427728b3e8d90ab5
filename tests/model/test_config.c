/* config.json: values, and the activation by its exact name (hard case H43). */
#include "files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MLP "model.layers.0.mlp."

static void write_model(void **state)
{
  const double eye[] = {1, 0, 0, 1};
  st_file s;
  st_begin(&s);
  st_add(&s, MLP "gate_proj.weight", "F32", "[2,2]", eye, 4);
  st_add(&s, MLP "up_proj.weight", "F32", "[2,2]", eye, 4);
  st_add(&s, MLP "down_proj.weight", "F32", "[2,2]", eye, 4);
  st_write(&s, in_folder(state, "model.safetensors"));
}

static const struct { const char *name; tglu_activation activation; double value; }
names[] = {
  {"silu",              TGLU_ACTIVATION_SILU,      -0.1697271},
  {"swish",             TGLU_ACTIVATION_SILU,      -0.1697271},
  {"gelu",              TGLU_ACTIVATION_GELU_ERF,  -0.0092840},
  {"gelu_new",          TGLU_ACTIVATION_GELU_TANH, -0.0088108},
  {"gelu_fast",         TGLU_ACTIVATION_GELU_TANH, -0.0088108},
  {"gelu_pytorch_tanh", TGLU_ACTIVATION_GELU_TANH, -0.0088108},
  {"quick_gelu",        TGLU_ACTIVATION_SWIGLUOAI, -0.0268818},
  {"relu",              TGLU_ACTIVATION_RELU,      0},
  {"sigmoid",           TGLU_ACTIVATION_SIGMOID,   0.06279},
};
static const char *const no_names[] = {
  "SiLU", "gelu_tanh", "", "foo", "Gelu", "silu ", "gelu_new_python", "swiglu", "swigluoai",
  "gelu_erf", "hardswish",
};

/* The product the descriptor stands for, at gate -2.703125 and up 1, in double. */
static double meaning(const tglu_glu_desc *d)
{
  const double g = -2.703125, u = 1;
  switch (d->activation) {
    case TGLU_ACTIVATION_SILU: return u * g / (1 + exp(-g));
    case TGLU_ACTIVATION_GELU_ERF: return u * g / 2 * erfc(-g / sqrt(2));
    case TGLU_ACTIVATION_GELU_TANH:
      return u * g / (1 + exp(-2 * sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    case TGLU_ACTIVATION_RELU: return u * fmax(g, 0);
    case TGLU_ACTIVATION_SIGMOID: return u / (1 + exp(-g));
    case TGLU_ACTIVATION_SWIGLUOAI: {
      double a = fmin(g, d->limit), b = fmax(fmin(u, d->limit), -d->limit);
      return a / (1 + exp(-d->alpha * a)) * (b + d->offset);
    }
    default: return NAN;
  }
}

static void by_name(void **state)
{
  (void)state;
  tglu_glu_desc d;
  for (size_t i = 0; i < COUNT(names); i++) {
    tglu_glu_desc_init(&d);
    assert_int_equal(tglu_model_activation(names[i].name, &d), TGLU_OK);
    assert_int_equal(d.activation, names[i].activation);
    assert_true(fabs(meaning(&d) - names[i].value) < 1e-6);
  }
  tglu_glu_desc_init(&d);
  assert_int_equal(tglu_model_activation("quick_gelu", &d), TGLU_OK);
  assert_true(d.alpha == 1.702f && isinf(d.limit) && d.offset == 0);
  assert_int_equal(tglu_model_activation("silu", &d), TGLU_OK);
  tglu_glu_desc defaults;
  tglu_glu_desc_init(&defaults);
  assert_true(d.alpha == defaults.alpha && d.limit == defaults.limit
              && d.offset == defaults.offset);
  for (size_t i = 0; i < COUNT(no_names); i++) {
    tglu_glu_desc before = d;
    assert_int_equal(tglu_model_activation(no_names[i], &d), TGLU_ERR_INVALID_ARGUMENT);
    expect_message("'", no_names[i], "gelu_pytorch_tanh", "quick_gelu", NULL);
    assert_memory_equal(&before, &d, sizeof d);
  }
  assert_int_equal(tglu_model_activation(NULL, &d), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_activation("silu", NULL), TGLU_ERR_INVALID_ARGUMENT);
}

static const struct { const char *config; tglu_activation activation; const char *source; }
good[] = {
  {"{\"hidden_act\":\"silu\"}", TGLU_ACTIVATION_SILU, "hidden_act in config.json"},
  {"{\"hidden_activation\":\"gelu\"}", TGLU_ACTIVATION_GELU_ERF,
   "hidden_activation in config.json"},
  {"{\"activation_function\":\"gelu_new\"}", TGLU_ACTIVATION_GELU_TANH,
   "activation_function in config.json"},
  {"{\"act_fn\":\"relu\"}", TGLU_ACTIVATION_RELU, "act_fn in config.json"},
  {"{\"model_type\":\"gemma2\",\"hidden_act\":\"gelu\",\"hidden_activation\":"
   "\"gelu_pytorch_tanh\"}", TGLU_ACTIVATION_GELU_TANH,
   "hidden_activation in config.json (wins over hidden_act 'gelu')"},
  {"{\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_act\":\"gelu\"}",
   TGLU_ACTIVATION_GELU_TANH,
   "hidden_activation in config.json (wins over hidden_act 'gelu')"},
  {"{\"model_type\":\"gemma\",\"hidden_act\":\"gelu_pytorch_tanh\","
   "\"hidden_activation\":null}", TGLU_ACTIVATION_GELU_TANH, "hidden_act in config.json"},
  {"{\"model_type\":\"recurrent_gemma\",\"hidden_activation\":\"gelu_pytorch_tanh\"}",
   TGLU_ACTIVATION_GELU_TANH, "hidden_activation in config.json"},
  {"{\"model_type\":\"gem\",\"architectures\":[\"Gem\",3,null],\"hidden_act\":\"gelu\"}",
   TGLU_ACTIVATION_GELU_ERF, "hidden_act in config.json"},
  {"{\"text_config\":{\"hidden_act\":\"silu\"}}", TGLU_ACTIVATION_SILU,
   "hidden_act in text_config of config.json"},
  {"{\"hidden_act\":\"gelu\",\"text_config\":{\"hidden_act\":\"silu\"}}",
   TGLU_ACTIVATION_SILU, "hidden_act in text_config of config.json"},
  {"{\"hidden_act\":\"gelu\",\"text_config\":{\"hidden_act\":null}}",
   TGLU_ACTIVATION_GELU_ERF, "hidden_act in config.json"},
  {"{\"hidden_activation\":\"gelu\",\"text_config\":{\"hidden_act\":\"silu\"}}",
   TGLU_ACTIVATION_SILU, "hidden_act in text_config of config.json"},
  {"{\"hidden_act\":\"gelu\",\"text_config\":{\"act_fn\":\"relu\",\"hidden_act\":null}}",
   TGLU_ACTIVATION_RELU, "act_fn in text_config of config.json"},
  {"{\"activation_function\":\"foo\",\"text_config\":{\"hidden_act\":\"silu\"}}",
   TGLU_ACTIVATION_SILU, "hidden_act in text_config of config.json"},
  {("{\"hidden_act\":\"relu\",\"text_config\":{\"hidden_act\":\"gelu\","
    "\"hidden_activation\":\"silu\"}}"), TGLU_ACTIVATION_SILU,
   "hidden_activation in text_config of config.json (wins over hidden_act 'gelu')"},
  {"{\"hidden_act\":\"silu\",\"text_config\":null}", TGLU_ACTIVATION_SILU,
   "hidden_act in config.json"},
  {"{\"hidden_act\":\"silu\",\"activation_function\":\"swish\"}", TGLU_ACTIVATION_SILU,
   "hidden_act in config.json"},
  {"{\"model_type\":\"gpt_oss\",\"hidden_act\":\"silu\",\"swiglu_limit\":7.0}",
   TGLU_ACTIVATION_SWIGLUOAI, "swiglu_limit of gpt_oss in config.json"},
};

static void from_config(void **state)
{
  write_model(state);
  for (size_t i = 0; i < COUNT(good); i++) {
    write_text(in_folder(state, "config.json"), good[i].config);
    tglu_model *model = open_ok(*state, NULL);
    tglu_model_mlp mlp = layer_ok(model, 0);
    assert_int_equal(mlp.desc.glu.activation, good[i].activation);
    assert_string_equal(mlp.activation_source, good[i].source);
    tglu_model_close(model);
  }
}

static void swiglu_limit_is_read(void **state)
{
  write_model(state);
  write_text(in_folder(state, "config.json"),
             "{\"model_type\":\"gpt_oss\",\"hidden_act\":\"silu\",\"swiglu_limit\":5}");
  tglu_model *model = open_ok(*state, NULL);
  tglu_model_mlp mlp = layer_ok(model, 0);
  assert_true(mlp.desc.glu.limit == 5 && mlp.desc.glu.offset == 1);
  assert_true(mlp.desc.glu.alpha == 1.702f);
  tglu_model_close(model);
}

static const struct { const char *config; tglu_status status; const char *a, *b; } bad[] = {
  {"{}", TGLU_ERR_NOT_FOUND, "no activation is named", "gelu_pytorch_tanh"},
  {"{\"hidden_act\":null}", TGLU_ERR_NOT_FOUND, "no activation is named", "silu"},
  {"{\"hidden_act\":\"SiLU\"}", TGLU_ERR_UNSUPPORTED, "'SiLU'", "silu, swish"},
  {"{\"hidden_act\":\"gelu_tanh\"}", TGLU_ERR_UNSUPPORTED, "'gelu_tanh'", "silu, swish"},
  {"{\"hidden_act\":\"\"}", TGLU_ERR_UNSUPPORTED, "''", "silu, swish"},
  {"{\"hidden_act\":\"foo\"}", TGLU_ERR_UNSUPPORTED, "hidden_act: 'foo'", "silu, swish"},
  {"{\"hidden_act\":3}", TGLU_ERR_FORMAT, "hidden_act", "string"},
  {"{\"hidden_act\":[\"silu\"]}", TGLU_ERR_FORMAT, "hidden_act", "string"},
  {"{\"hidden_act\":\"silu\",\"activation_function\":\"gelu_new\"}", TGLU_ERR_FORMAT,
   "hidden_act", "activation_function"},
  {"{\"hidden_act\":\"silu\",\"act_fn\":\"foo\"}", TGLU_ERR_UNSUPPORTED, "act_fn",
   "'foo'"},
  {"{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\"}", TGLU_ERR_UNSUPPORTED, "ambiguous",
   "Gemma"},
  {"{\"model_type\":\"recurrent_gemma\",\"hidden_act\":\"gelu\"}",
   TGLU_ERR_UNSUPPORTED, "ambiguous", "Gemma"},
  {"{\"model_type\":\"gemma3n_text\",\"act_fn\":\"gelu\"}",
   TGLU_ERR_UNSUPPORTED, "ambiguous", "Gemma"},
  {"{\"architectures\":[\"X\",\"T5GemmaModel\"],\"hidden_act\":\"gelu\"}",
   TGLU_ERR_UNSUPPORTED, "ambiguous", "Gemma"},
  {("{\"model_type\":\"x\",\"text_config\":{\"architectures\":[\"Gemma2\"]},"
    "\"hidden_act\":\"gelu\"}"),
   TGLU_ERR_UNSUPPORTED, "ambiguous", "Gemma"},
  {("{\"model_type\":\"paligemma\",\"text_config\":{\"model_type\":\"x\","
    "\"hidden_act\":\"gelu\"}}"),
   TGLU_ERR_UNSUPPORTED, "ambiguous", "Gemma"},
  {("{\"model_type\":\"gemma\",\"hidden_activation\":\"gelu_pytorch_tanh\","
    "\"text_config\":{\"hidden_act\":\"gelu\"}}"),
   TGLU_ERR_UNSUPPORTED, "ambiguous", "Gemma"},
  {"{\"hidden_act\":\"silu\",\"text_config\":{\"act_fn\":3}}", TGLU_ERR_FORMAT, "act_fn",
   "string"},
  {"{\"hidden_act\":\"silu\",\"swiglu_limit\":7.0}", TGLU_ERR_UNSUPPORTED, "swiglu_limit",
   "gpt_oss"},
  {"{\"model_type\":\"gpt_oss\",\"hidden_act\":\"silu\"}", TGLU_ERR_UNSUPPORTED,
   "swiglu_limit", "absent"},
  {"{\"model_type\":\"gpt_oss\",\"swiglu_limit\":-1}", TGLU_ERR_FORMAT, "swiglu_limit", "> 0"},
  {"{\"model_type\":\"gpt_oss\",\"swiglu_limit\":\"7\"}", TGLU_ERR_FORMAT, "swiglu_limit",
   "number"},
  {"{\"hidden_act\":\"silu\",\"hidden_size\":3}", TGLU_ERR_FORMAT, "hidden_size", "3"},
  {"{\"hidden_act\":\"silu\",\"intermediate_size\":4}", TGLU_ERR_FORMAT,
   "intermediate_size", "4"},
  {"{\"hidden_act\":\"silu\",\"intermediate_size\":[4,4]}", TGLU_ERR_FORMAT,
   "intermediate_size", "4"},
  {"{\"hidden_act\":\"silu\",\"mlp_bias\":true}", TGLU_ERR_FORMAT, "bias", "mlp_bias"},
  {"{\"hidden_act\":\"silu\",\"mlp_multipliers\":[1.0,0.5]}", TGLU_ERR_UNSUPPORTED,
   "mlp_multipliers", "changes"},
  {"{\"hidden_act\":\"silu\",\"activation_sparsity_pattern\":[0.95,0]}",
   TGLU_ERR_UNSUPPORTED, "activation_sparsity_pattern", "changes"},
};

static void refused(void **state)
{
  write_model(state);
  for (size_t i = 0; i < COUNT(bad); i++) {
    write_text(in_folder(state, "config.json"), bad[i].config);
    tglu_model *model = open_ok(*state, NULL);
    expect_layer_fails(model, 0, bad[i].status, bad[i].a, bad[i].b, NULL);
    tglu_model_close(model);
  }
  assert_int_equal(unlink(in_folder(state, "config.json")), 0);
  tglu_model *model = open_ok(*state, NULL);
  expect_layer_fails(model, 0, TGLU_ERR_NOT_FOUND, "no config.json", "option", NULL);
  tglu_model_close(model);
}

/* Values that change nothing are not held against the model. */
static void harmless(void **state)
{
  static const char *const configs[] = {
    "{\"hidden_act\":\"silu\",\"hidden_size\":2,\"intermediate_size\":2,\"mlp_bias\":false}",
    ("{\"hidden_act\":\"silu\",\"mlp_multipliers\":[1.0,1],\"intermediate_size\":[2,9],"
     "\"activation_sparsity_pattern\":[0.0,0.95]}"),
    "{\"hidden_act\":\"silu\",\"intermediate_size\":1,\"use_double_wide_mlp\":true}",
    "{\"hidden_act\":\"silu\",\"swiglu_limit\":null,\"x\":{\"y\":[1e300,-0,null,true]}}",
  };
  write_model(state);
  for (size_t i = 0; i < COUNT(configs); i++) {
    write_text(in_folder(state, "config.json"), configs[i]);
    tglu_model *model = open_ok(*state, NULL);
    layer_ok(model, 0);
    tglu_model_close(model);
  }
}

static void options_win(void **state)
{
  write_model(state);
  write_text(in_folder(state, "config.json"), "{\"hidden_act\":\"silu\"}");
  write_text(in_folder(state, "other.json"), "{\"hidden_act\":\"relu\",\"hidden_size\":2}");
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.activation = "gelu";
  tglu_model *model = open_ok(*state, &options);
  tglu_model_mlp mlp = layer_ok(model, 0);
  assert_int_equal(mlp.desc.glu.activation, TGLU_ACTIVATION_GELU_ERF);
  assert_string_equal(mlp.activation_source, "option");
  tglu_model_close(model);
  options.activation = NULL;
  options.config = in_folder(state, "other.json");
  model = open_ok(in_folder(state, "model.safetensors"), &options);
  mlp = layer_ok(model, 0);
  assert_int_equal(mlp.desc.glu.activation, TGLU_ACTIVATION_RELU);
  tglu_model_close(model);
  options.activation = "gelu_tanh";
  expect_open_fails(*state, &options, TGLU_ERR_INVALID_ARGUMENT, "'gelu_tanh'", NULL);
  options.activation = NULL;
  options.config = in_folder(state, "none.json");
  expect_open_fails(*state, &options, TGLU_ERR_NOT_FOUND, "none.json", NULL);
}

static void broken_files(void **state)
{
  static const struct { const char *text, *message; } files[] = {
    {"", "not valid JSON"}, {"[]", "no object"}, {"3", "no object"}, {"{", "no end"},
    {"{\"a\":1,\"a\":2}", "duplicate key a"},
    {"{\"a\":{\"b\":1,\"\\u0062\":2}}", "duplicate key b"},
    {"{\"a\":NaN}", "not valid JSON"}, {"{\"a\":Infinity}", "not valid JSON"},
    {"{\"a\":1}}", "not valid JSON"}, {"{\"text_config\":3}", "text_config"},
    {"{\"text_config\":\"x\"}", "text_config"}, {"{\"a\":99999999999999999999}", "JSON"},
    {"{\"a\":1e999}", "not valid JSON"}, {"{\"a\":-9223372036854775809}", "not valid JSON"},
    {"\xef\xbb\xbf{}", "not valid JSON"}, {"{\"a\":\"\xff\"}", "not valid JSON"},
    {"{'a':1}", "not valid JSON"},
  };
  write_model(state);
  const char *path = in_folder(state, "config.json");
  for (size_t i = 0; i < COUNT(files); i++) {
    write_text(path, files[i].text);
    char keep[4400];
    snprintf(keep, sizeof keep, "%s", path);
    tglu_model *model = NULL;
    assert_int_equal(tglu_model_open(*state, NULL, &model), TGLU_ERR_FORMAT);
    assert_null(model);
    expect_message(keep, files[i].message, NULL);
  }
  char deep[3000];
  memset(deep, '[', sizeof deep);
  deep[sizeof deep - 1] = '\0';
  write_text(path, deep);
  tglu_model *model = NULL;
  assert_int_equal(tglu_model_open(*state, NULL, &model), TGLU_ERR_FORMAT);
  expect_message("too deeply", NULL);
  write_text(path, "{}");
  assert_int_equal(truncate(path, 5 << 20), 0);
  assert_int_equal(tglu_model_open(*state, NULL, &model), TGLU_ERR_FORMAT);
  expect_message("limit", NULL);

  write_text(path, "{\"hidden_act\":\"silu\",\"unused\":1e999}");
  assert_int_equal(tglu_model_open(*state, NULL, &model), TGLU_ERR_FORMAT);
  write_text(in_folder(state, "corrected.json"), "{\"hidden_act\":\"silu\"}");
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.config = in_folder(state, "corrected.json");
  model = open_ok(*state, &options);
  layer_ok(model, 0);
  tglu_model_close(model);
}

static void values(void **state)
{
  write_model(state);
  write_text(in_folder(state, "config.json"),
             "{\"hidden_size\":2,\"model_type\":\"llama\",\"f\":1.5,\"n\":null,\"b\":true,"
             "\"s\":\"top\",\"text_config\":{\"s\":\"text\",\"layers\":-3}}");
  tglu_model *model = open_ok(*state, NULL);
  int64_t number = 77;
  const char *text = "kept";
  assert_int_equal(tglu_model_config_int(model, "hidden_size", &number), TGLU_OK);
  assert_int_equal(number, 2);
  assert_int_equal(tglu_model_config_int(model, "layers", &number), TGLU_OK);
  assert_int_equal(number, -3);
  assert_int_equal(tglu_model_config_string(model, "model_type", &text), TGLU_OK);
  assert_string_equal(text, "llama");
  assert_int_equal(tglu_model_config_string(model, "s", &text), TGLU_OK);
  assert_string_equal(text, "text");
  assert_int_equal(tglu_model_config_int(model, "f", &number), TGLU_ERR_FORMAT);
  assert_int_equal(tglu_model_config_int(model, "b", &number), TGLU_ERR_FORMAT);
  assert_int_equal(tglu_model_config_int(model, "model_type", &number), TGLU_ERR_FORMAT);
  assert_int_equal(tglu_model_config_string(model, "hidden_size", &text), TGLU_ERR_FORMAT);
  assert_int_equal(tglu_model_config_int(model, "n", &number), TGLU_ERR_NOT_FOUND);
  assert_int_equal(tglu_model_config_int(model, "hidden", &number), TGLU_ERR_NOT_FOUND);
  expect_message("hidden is absent", "config.json", NULL);
  assert_int_equal(tglu_model_config_int(model, NULL, &number), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_config_int(model, "n", NULL), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_config_string(NULL, "n", &text), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(number, -3);
  assert_string_equal(text, "text");
  tglu_model_close(model);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, folder_clean)
  const struct CMUnitTest tests[] = {
    TEST(by_name), TEST(from_config), TEST(swiglu_limit_is_read), TEST(refused),
    TEST(harmless), TEST(options_win), TEST(broken_files), TEST(values),
  };
  return cmocka_run_group_tests_name("config", tests, folder_setup, folder_teardown);
}
