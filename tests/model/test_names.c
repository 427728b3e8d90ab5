/* From names to MLPs: families, prefixes, layers, and everything that is refused with
 * its reason (hard cases H62, H65, H66 and their kinds). */
#include "files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* N = 3, K = 2; each weight's first value tells which one it is. */
enum { N = 3, K = 2 };
static const double gate[6] = {1, 2, 3, 4, 5, 6}, up[6] = {11, 12, 13, 14, 15, 16},
                    down[6] = {21, 22, 23, 24, 25, 26};
static const double both[12] = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
static const double bias[6] = {31, 32, 33, 41, 42, 43};

static void add(st_file *s, const char *prefix, const char *name, const char *shape,
                const double *values, size_t count)
{
  char full[300];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  st_add(s, full, "BF16", shape, values, count);
}

static void add_llama(st_file *s, const char *prefix)
{
  add(s, prefix, "gate_proj.weight", "[3,2]", gate, 6);
  add(s, prefix, "up_proj.weight", "[3,2]", up, 6);
  add(s, prefix, "down_proj.weight", "[2,3]", down, 6);
}

static tglu_model *write_and_open(void **state, st_file *s)
{
  const char *path = in_folder(state, "model.safetensors");
  st_write(s, path);
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.activation = access(in_folder(state, "config.json"), R_OK) ? "silu" : NULL;
  return open_ok(path, &options);
}

static double first(const void *data) { return data ? value_at(TGLU_DTYPE_BF16, data, 0) : 0; }

static void check_separate(const tglu_model_mlp *m, const char *family, const char *prefix)
{
  assert_string_equal(m->family, family);
  assert_string_equal(m->prefix, prefix);
  const tglu_glu_desc *g = &m->desc.glu;
  assert_int_equal(g->hidden, K);
  assert_int_equal(g->intermediate, N);
  assert_int_equal(g->dtype, TGLU_DTYPE_BF16);
  assert_int_equal(g->layout, TGLU_LAYOUT_SEPARATE);
  assert_int_equal(g->activation, TGLU_ACTIVATION_SILU);
  assert_null(g->gate_up);
  assert_null(g->gate_up_bias);
  assert_true(first(g->gate) == 1 && first(g->up) == 11 && first(m->desc.down) == 21);
}

/* ---- families ---- */
static void prefixes(void **state)
{
  static const char *const layers[] = {
    "model.layers.0.", "layers.0.", "transformer.h.0.", "transformer.layers.0.",
    "language_model.model.layers.0.", "language_model.layers.0.",
    "model.language_model.layers.0.", "model.language_model.model.layers.0.",
    "model.text_model.layers.0.", "thinker.model.layers.0.",
  };
  static const char *const folders[] = {"mlp.", "feed_forward."};
  for (size_t i = 0; i < COUNT(layers) * COUNT(folders); i++) {
    char prefix[100];
    snprintf(prefix, sizeof prefix, "%s%s", layers[i / 2], folders[i % 2]);
    st_file s;
    st_begin(&s);
    st_add(&s, "model.embed_tokens.weight", "BF16", "[2,2]", gate, 4);
    add_llama(&s, prefix);
    tglu_model *model = write_and_open(state, &s);
    assert_int_equal(tglu_model_layer_count(model), 1);
    tglu_model_mlp m = layer_ok(model, 0);
    check_separate(&m, "gate_proj/up_proj/down_proj", prefix);
    tglu_model_close(model);
  }
}

/* Not a layer: other stems, other numbers, no dot behind the number. */
static void near_prefixes(void **state)
{
  static const char *const layers[] = {
    "xmodel.layers.0.mlp.", "model.layers.00.mlp.", "model.layers.-1.mlp.",
    "model.layers.+1.mlp.", "model.layers.1x.mlp.", "model.layers..mlp.",
    "model.layers.1234567890.mlp.", "model.layer.0.mlp.", "model.layers.0.mlp2.",
    "model.layers.0.xmlp.", "vision_tower.transformer.layers.0.mlp.",
    "visual.blocks.0.mlp.", "mtp.layers.0.mlp.", "model.layers.0.self_attn.mlp.",
  };
  for (size_t i = 0; i < COUNT(layers); i++) {
    st_file s;
    st_begin(&s);
    add_llama(&s, layers[i]);
    tglu_model *model = write_and_open(state, &s);
    assert_int_equal(tglu_model_layer_count(model), 0);
    expect_layer_fails(model, 0, TGLU_ERR_NOT_FOUND, "model.layers.0.mlp.gate_proj.weight",
                       "near names", "_proj.weight", NULL);
    tglu_model_close(model);
  }
}

static void merged(void **state)
{
  static const struct { const char *folder, *gate_up, *down, *family; } kinds[] = {
    {"mlp.", "gate_up_proj", "down_proj", "gate_up_proj"},
    {"shared_mlp.", "input_linear", "output_linear", "input_linear"},
  };
  for (size_t i = 0; i < COUNT(kinds) * 2; i++) {
    int with_bias = i % 2;
    char prefix[60], name[60];
    snprintf(prefix, sizeof prefix, "model.layers.7.%s", kinds[i / 2].folder);
    st_file s;
    st_begin(&s);
    snprintf(name, sizeof name, "%s.weight", kinds[i / 2].gate_up);
    add(&s, prefix, name, "[6,2]", both, 12);
    snprintf(name, sizeof name, "%s.weight", kinds[i / 2].down);
    add(&s, prefix, name, "[2,3]", down, 6);
    snprintf(name, sizeof name, "%s.bias", kinds[i / 2].gate_up);
    if (with_bias) add(&s, prefix, name, "[6]", bias, 6);
    tglu_model *model = write_and_open(state, &s);
    tglu_model_mlp m = layer_ok(model, 7);
    const tglu_glu_desc *g = &m.desc.glu;
    assert_string_equal(m.family, kinds[i / 2].family);
    assert_int_equal(g->layout, TGLU_LAYOUT_STACKED_GATE_FIRST);
    assert_int_equal(g->hidden, K);
    assert_int_equal(g->intermediate, N);
    assert_null(g->gate);
    assert_null(g->up);
    assert_true(first(g->gate_up) == 1 && first(m.desc.down) == 21);
    assert_true(first(g->gate_up_bias) == (with_bias ? 31 : 0));
    tglu_model_close(model);
  }
}

/* w1 is the gate in one family and the other factor in Qwen-1's. */
static void numbered_weights(void **state)
{
  st_file s;
  st_begin(&s);
  const char *prefix = "model.layers.0.feed_forward.";
  add(&s, prefix, "w1.weight", "[3,2]", gate, 6);
  add(&s, prefix, "w3.weight", "[3,2]", up, 6);
  add(&s, prefix, "w2.weight", "[2,3]", down, 6);
  tglu_model *model = write_and_open(state, &s);
  tglu_model_mlp m = layer_ok(model, 0);
  check_separate(&m, "w1/w3/w2", prefix);
  tglu_model_close(model);

  static const char *const configs[] = {
    NULL, "{\"intermediate_size\":6}", "{\"intermediate_size\":6,\"hidden_act\":\"silu\"}",
    "{\"intermediate_size\":3}", "{\"intermediate_size\":7}",
  };
  prefix = "transformer.h.0.mlp.";
  for (size_t i = 0; i < COUNT(configs); i++) {
    if (configs[i]) write_text(in_folder(state, "config.json"), configs[i]);
    st_begin(&s);
    add(&s, prefix, "w2.weight", "[3,2]", gate, 6);
    add(&s, prefix, "w1.weight", "[3,2]", up, 6);
    add(&s, prefix, "c_proj.weight", "[2,3]", down, 6);
    const char *path = in_folder(state, "model.safetensors");
    st_write(&s, path);
    model = open_ok(path, NULL);
    if (i < 3) {
      m = layer_ok(model, 0);
      check_separate(&m, "w1/w2/c_proj", prefix);
      assert_string_equal(m.activation_source, i < 2 ? "fixed by the family"
                                                     : "hidden_act in config.json");
    } else {
      expect_layer_fails(model, 0, TGLU_ERR_FORMAT, "intermediate_size", "twice", NULL);
    }
    tglu_model_close(model);
  }
}

/* ---- layers ---- */
static void layer_numbers(void **state)
{
  st_file s;
  st_begin(&s);
  static const int numbers[] = {11, 1, 0, 111, 10};
  for (size_t i = 0; i < COUNT(numbers); i++) {
    char prefix[60];
    double g[6] = {numbers[i] + 100};
    snprintf(prefix, sizeof prefix, "model.layers.%d.mlp.", numbers[i]);
    add(&s, prefix, "gate_proj.weight", "[3,2]", g, 6);
    add(&s, prefix, "up_proj.weight", "[3,2]", up, 6);
    add(&s, prefix, "down_proj.weight", "[2,3]", down, 6);
  }
  tglu_model *model = write_and_open(state, &s);
  static const int32_t sorted[] = {0, 1, 10, 11, 111};
  assert_int_equal(tglu_model_layer_count(model), 5);
  for (int32_t i = 0; i < 5; i++) {
    int32_t layer = -1;
    assert_int_equal(tglu_model_layer_at(model, i, &layer), TGLU_OK);
    assert_int_equal(layer, sorted[i]);
    tglu_model_mlp m = layer_ok(model, layer);
    assert_true(first(m.desc.glu.gate) == 100 + layer);
  }
  int32_t layer = -7;
  assert_int_equal(tglu_model_layer_at(model, 5, &layer), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(layer, -7);
  expect_layer_fails(model, 2, TGLU_ERR_NOT_FOUND, "layer 2", "from 0 to 111", NULL);
  expect_layer_fails(model, -1, TGLU_ERR_NOT_FOUND, "layer -1", NULL);
  assert_int_equal(tglu_model_layer_mlp(model, 0, NULL), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_layer_mlp(NULL, 0, NULL), TGLU_ERR_INVALID_ARGUMENT);
  tglu_model_close(model);
}

/* Layer 1 is broken and 11 is whole: 1 does not take from 11. */
static void layer_one_not_eleven(void **state)
{
  st_file s;
  st_begin(&s);
  add_llama(&s, "model.layers.11.mlp.");
  add(&s, "model.layers.1.mlp.", "gate_proj.weight", "[3,2]", gate, 6);
  tglu_model *model = write_and_open(state, &s);
  assert_int_equal(tglu_model_layer_count(model), 2);
  expect_layer_fails(model, 1, TGLU_ERR_NOT_FOUND, "layer 1:",
                     "'model.layers.1.mlp.down_proj.weight' is missing", NULL);
  layer_ok(model, 11);
  tglu_model_close(model);
}

static void ambiguous_layers(void **state)
{
  st_file s;
  st_begin(&s);
  add_llama(&s, "model.layers.0.mlp.");
  add_llama(&s, "model.language_model.layers.0.mlp.");
  add_llama(&s, "model.layers.1.mlp.");
  tglu_model *model = write_and_open(state, &s);
  assert_int_equal(tglu_model_layer_count(model), 2);
  expect_layer_fails(model, 0, TGLU_ERR_UNSUPPORTED, "twice", "model.layers.0",
                     "model.language_model.layers.0", NULL);
  layer_ok(model, 1);
  tglu_model_close(model);

  st_begin(&s);
  add_llama(&s, "model.layers.0.mlp.");
  add_llama(&s, "model.layers.0.feed_forward.");
  model = write_and_open(state, &s);
  expect_layer_fails(model, 0, TGLU_ERR_FORMAT, "two MLPs", "mlp.", "feed_forward.", NULL);
  tglu_model_close(model);
}

/* ---- H66: exact names ---- */
static void exact_names(void **state)
{
  static const struct { const char *names[5], *a, *b; tglu_status status; } cases[] = {
    {{"gate_up_proj.weight", "up_proj.weight", "down_proj.weight"},
     "up_proj.weight", "not ignored", TGLU_ERR_UNSUPPORTED},
    {{"xgate_proj.weight", "up_proj.weight", "down_proj.weight"},
     "mlp.gate_proj.weight' is missing", "xgate_proj", TGLU_ERR_NOT_FOUND},
    {{"gate_proj.weight2", "up_proj.weight", "down_proj.weight"},
     "mlp.gate_proj.weight' is missing", "weight2", TGLU_ERR_NOT_FOUND},
    {{"gate_proj.weight", "Up_proj.weight", "down_proj.weight"},
     "mlp.up_proj.weight' is missing", "Up_proj", TGLU_ERR_NOT_FOUND},
    {{"fc1.weight", "fc2.weight"}, "no known family", "'model.layers.0.mlp.fc1.weight'",
     TGLU_ERR_NOT_FOUND},
    {{"w1.weight", "w2.weight", "w3.weight"}, "no known family",
     "'model.layers.0.mlp.w1.weight'", TGLU_ERR_NOT_FOUND},
    {{"up_proj.weight", "down_proj.weight"}, "mlp.gate_proj.weight' is missing", "",
     TGLU_ERR_NOT_FOUND},
    {{"gate_proj.weight", "up_proj.weight", "down_proj.weight", "ffn_sub_norm.weight"},
     "ffn_sub_norm", "not ignored", TGLU_ERR_UNSUPPORTED},
    {{"gate_proj.weight", "up_proj.weight", "down_proj.weight", "gate_proj.lora_A.weight"},
     "lora_A", "not ignored", TGLU_ERR_UNSUPPORTED},
    {{"gate_proj.weight", "up_proj.weight", "down_proj.weight", "gate_up_proj.weight"},
     "two MLPs", "gate_up_proj", TGLU_ERR_FORMAT},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_file s;
    st_begin(&s);
    for (int j = 0; j < 5 && cases[i].names[j]; j++) {
      int is_down = strcmp(cases[i].names[j], "down_proj.weight") == 0;
      add(&s, "model.layers.0.mlp.", cases[i].names[j], is_down ? "[2,3]" : "[3,2]", gate, 6);
    }
    tglu_model *model = write_and_open(state, &s);
    assert_int_equal(tglu_model_layer_count(model), 1);
    expect_layer_fails(model, 0, cases[i].status, cases[i].a, cases[i].b, NULL);
    tglu_model_close(model);
  }
}

/* A tied tensor that exists only as an alias in the metadata. */
static void aliases(void **state)
{
#define P "model.layers.0.mlp."
  st_file s;
  st_begin(&s);
  st_raw(&s, "\"__metadata__\":{\"format\":\"pt\",\"" P "up_proj.weight\":\"" P
             "gate_proj.weight\"}");
  add(&s, P, "gate_proj.weight", "[3,2]", gate, 6);
  add(&s, P, "down_proj.weight", "[2,3]", down, 6);
  tglu_model *model = write_and_open(state, &s);
  tglu_model_mlp m = layer_ok(model, 0);
  assert_ptr_equal(m.desc.glu.gate, m.desc.glu.up);
  tglu_tensor t;
  tglu_tensor_init(&t);
  assert_int_equal(tglu_model_find_tensor(model, P "up_proj.weight", &t), TGLU_OK);
  assert_string_equal(t.name, P "gate_proj.weight");
  assert_int_equal(tglu_model_tensor_count(model), 2);
  tglu_model_close(model);

  st_begin(&s);
  st_raw(&s, "\"__metadata__\":{\"" P "up_proj.weight\":\"model.elsewhere\"}");
  add(&s, P, "gate_proj.weight", "[3,2]", gate, 6);
  add(&s, P, "down_proj.weight", "[2,3]", down, 6);
  model = write_and_open(state, &s);
  expect_layer_fails(model, 0, TGLU_ERR_NOT_FOUND, P "up_proj.weight", "model.elsewhere",
                     NULL);
  tglu_model_close(model);

  st_begin(&s);
  st_raw(&s, "\"__metadata__\":{\"model.layers.5.mlp.gate_proj.weight\":\"" P
             "gate_proj.weight\",\"model.layers.5.mlp.up_proj.weight\":\"" P
             "up_proj.weight\",\"model.layers.5.mlp.down_proj.weight\":\"" P
             "down_proj.weight\",\"" P "up_proj.weight\":\"" P "down_proj.weight\"}");
  add_llama(&s, P);
  model = write_and_open(state, &s);
  assert_int_equal(tglu_model_layer_count(model), 2);
  m = layer_ok(model, 5);
  check_separate(&m, "gate_proj/up_proj/down_proj", "model.layers.5.mlp.");
  m = layer_ok(model, 0);
  check_separate(&m, "gate_proj/up_proj/down_proj", P);
  tglu_model_close(model);
}

/* ---- H65: biases ---- */
static void biases(void **state)
{
  static const char *const configs[] = {
    "{\"hidden_act\":\"silu\"}", "{\"hidden_act\":\"silu\",\"mlp_bias\":false}",
    "{\"hidden_act\":\"silu\",\"mlp_bias\":true}",
  };
  static const char *const names[] = {"gate_proj.bias", "up_proj.bias", "down_proj.bias"};
  static const char *const shapes[] = {"[3]", "[3]", "[2]"};
  for (size_t c = 0; c < COUNT(configs); c++) {
    for (unsigned set = 0; set < 8; set++) {
      write_text(in_folder(state, "config.json"), configs[c]);
      st_file s;
      st_begin(&s);
      add_llama(&s, P);
      for (int i = 0; i < 3; i++) {
        if (set >> i & 1) add(&s, P, names[i], shapes[i], bias + i, i == 2 ? 2 : 3);
      }
      tglu_model *model = write_and_open(state, &s);
      if (c == 2 && set != 7) {
        int missing = !(set & 1) ? 0 : !(set & 2) ? 1 : 2;
        expect_layer_fails(model, 0, TGLU_ERR_FORMAT, names[missing], "mlp_bias", NULL);
      } else {
        tglu_model_mlp m = layer_ok(model, 0);
        check_separate(&m, "gate_proj/up_proj/down_proj", P);
        assert_true(first(m.desc.glu.gate_bias) == (set & 1 ? 31 : 0));
        assert_true(first(m.desc.glu.up_bias) == (set & 2 ? 32 : 0));
        assert_true(first(m.desc.down_bias) == (set & 4 ? 33 : 0));
      }
      tglu_model_close(model);
    }
  }
}

static void bad_biases(void **state)
{
  static const struct { const char *name, *shape; size_t count; tglu_status status; } cases[] = {
    {"gate_proj.bias", "[2]", 2, TGLU_ERR_FORMAT},
    {"up_proj.bias", "[6]", 6, TGLU_ERR_FORMAT},
    {"down_proj.bias", "[3]", 3, TGLU_ERR_FORMAT},
    {"down_proj.bias", "[1,2]", 2, TGLU_ERR_UNSUPPORTED},
    {"down_proj.bias", "[]", 1, TGLU_ERR_UNSUPPORTED},
    {"bias", "[3]", 3, TGLU_ERR_UNSUPPORTED},
    {"act_fn.bias", "[3]", 3, TGLU_ERR_UNSUPPORTED},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_file s;
    st_begin(&s);
    add_llama(&s, P);
    add(&s, P, cases[i].name, cases[i].shape, bias, cases[i].count);
    tglu_model *model = write_and_open(state, &s);
    expect_layer_fails(model, 0, cases[i].status, P, cases[i].name, NULL);
    tglu_model_close(model);
  }
}

/* ---- H62: shapes ---- */
static const struct {
  const char *gate, *up, *down, *config;
  tglu_status status;
  const char *a, *b;
} shapes[] = {
  /* one weight turned */
  {"[2,3]", "[3,2]", "[2,3]", NULL, TGLU_ERR_UNSUPPORTED, "gate_proj.weight is [2, 3]",
   "up_proj.weight is [3, 2]"},
  {"[3,2]", "[2,3]", "[2,3]", NULL, TGLU_ERR_UNSUPPORTED, "up_proj.weight is [2, 3]",
   "down_proj.weight is [2, 3]"},
  {"[3,2]", "[3,2]", "[3,2]", NULL, TGLU_ERR_UNSUPPORTED, "down_proj.weight is [3, 2]",
   "input-by-output"},
  {"[2,3]", "[2,3]", "[2,3]", NULL, TGLU_ERR_UNSUPPORTED, "gate_proj.weight is [2, 3]",
   "input-by-output"},
  /* all turned: only the model's width tells */
  {"[2,3]", "[2,3]", "[3,2]", "{\"hidden_act\":\"silu\",\"hidden_size\":2}",
   TGLU_ERR_UNSUPPORTED, "gate_proj.weight' is [2, 3]", "expected [N, 2]"},
  {"[2,3]", "[2,3]", "[3,2]",
   "{\"hidden_act\":\"silu\",\"text_config\":{\"hidden_size\":2},\"hidden_size\":3}",
   TGLU_ERR_UNSUPPORTED, "gate_proj.weight' is [2, 3]", "input-by-output"},
  /* not a transposition */
  {"[6,1]", "[3,2]", "[2,3]", NULL, TGLU_ERR_FORMAT, "[6, 1]", "[2, 3]"},
  {"[3,2]", "[3,2]", "[1,6]", NULL, TGLU_ERR_FORMAT, "[3, 2]", "[1, 6]"},
  {"[3,2]", "[3,2]", "[2,3]", "{\"hidden_act\":\"silu\",\"hidden_size\":4}",
   TGLU_ERR_FORMAT, "[3, 2]", "hidden_size"},
  /* ranks */
  {"[6]", "[3,2]", "[2,3]", NULL, TGLU_ERR_UNSUPPORTED, "gate_proj.weight' is [6]",
   "2 dimensions"},
  {"[1,3,2]", "[3,2]", "[2,3]", NULL, TGLU_ERR_UNSUPPORTED, "gate_proj.weight' is [1, 3, 2]",
   "2 dimensions"},
  {"[3,2]", "[3,2]", "[2,3,1]", NULL, TGLU_ERR_UNSUPPORTED, "down_proj.weight' is [2, 3, 1]",
   "2 dimensions"},
};

static void wrong_shapes(void **state)
{
  for (size_t i = 0; i < COUNT(shapes); i++) {
    unlink(in_folder(state, "config.json"));
    if (shapes[i].config) write_text(in_folder(state, "config.json"), shapes[i].config);
    st_file s;
    st_begin(&s);
    add(&s, P, "gate_proj.weight", shapes[i].gate, gate, 6);
    add(&s, P, "up_proj.weight", shapes[i].up, up, 6);
    add(&s, P, "down_proj.weight", shapes[i].down, down, 6);
    tglu_model *model = write_and_open(state, &s);
    expect_layer_fails(model, 0, shapes[i].status, shapes[i].a, shapes[i].b, NULL);
    tglu_model_close(model);
  }
}

/* All turned, no config: a norm of the layer tells the width. */
static void width_from_a_norm(void **state)
{
  static const char *const norms[] = {
    "input_layernorm.weight", "post_attention_layernorm.weight", "ffn_norm.weight",
  };
  for (size_t i = 0; i < COUNT(norms) * 2; i++) {
    int turned = i % 2;
    st_file s;
    st_begin(&s);
    add(&s, "model.layers.0.", norms[i / 2], turned ? "[3]" : "[2]", bias, turned ? 3 : 2);
    add_llama(&s, P);
    tglu_model *model = write_and_open(state, &s);
    if (!turned) layer_ok(model, 0);
    else expect_layer_fails(model, 0, TGLU_ERR_UNSUPPORTED, norms[i / 2], "input-by-output",
                            NULL);
    tglu_model_close(model);
  }
}

static void wrong_merged_shapes(void **state)
{
  static const struct { const char *gate_up, *down; tglu_status status; const char *text; }
  cases[] = {
    {"[2,6]", "[2,3]", TGLU_ERR_UNSUPPORTED, "input-by-output"},
    {"[6,2]", "[3,2]", TGLU_ERR_UNSUPPORTED, "input-by-output"},
    {"[1,12]", "[2,3]", TGLU_ERR_FORMAT, "[2N, K]"},
    {"[12,1]", "[2,3]", TGLU_ERR_FORMAT, "[2N, K]"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_file s;
    st_begin(&s);
    add(&s, P, "gate_up_proj.weight", cases[i].gate_up, both, 12);
    add(&s, P, "down_proj.weight", cases[i].down, down, 6);
    tglu_model *model = write_and_open(state, &s);
    expect_layer_fails(model, 0, cases[i].status, "gate_up_proj.weight is",
                       "down_proj.weight is", cases[i].text, NULL);
    tglu_model_close(model);
  }
  st_file s;
  st_begin(&s);
  add(&s, P, "gate_up_proj.weight", "[0,2]", both, 0);
  add(&s, P, "down_proj.weight", "[2,0]", down, 0);
  tglu_model *model = write_and_open(state, &s);
  expect_layer_fails(model, 0, TGLU_ERR_FORMAT, "[2, 0]", "empty", NULL);
  tglu_model_close(model);
}

/* ---- types, experts, quantised ---- */
static void types(void **state)
{
  static const struct { const char *gate, *up, *down, *a, *b; } cases[] = {
    {"BF16", "F16", "BF16", "up_proj.weight' is F16", "BF16"},
    {"F16", "BF16", "BF16", "gate_proj.weight' is F16", "BF16"},
    {"BF16", "BF16", "F16", "is BF16", "down_proj.weight' is F16"},
    {"U8", "U8", "U8", "is U8", "quantised"},
    {"I8", "BF16", "BF16", "gate_proj.weight' is I8", "quantised"},
    {"F8_E4M3", "F8_E4M3", "F8_E4M3", "is F8_E4M3", "quantised"},
    {"F8_E5M2", "F8_E5M2", "F8_E5M2", "is F8_E5M2", "quantised"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    st_file s;
    st_begin(&s);
    st_add(&s, P "gate_proj.weight", cases[i].gate, "[3,2]", gate, 6);
    st_add(&s, P "up_proj.weight", cases[i].up, "[3,2]", up, 6);
    st_add(&s, P "down_proj.weight", cases[i].down, "[2,3]", down, 6);
    tglu_model *model = write_and_open(state, &s);
    expect_layer_fails(model, 0, TGLU_ERR_UNSUPPORTED, P, cases[i].a, cases[i].b, NULL);
    tglu_model_close(model);
  }
  st_file s;
  st_begin(&s);
  add_llama(&s, P);
  st_add(&s, P "down_proj.bias", "F32", "[2]", bias, 2);
  tglu_model *model = write_and_open(state, &s);
  expect_layer_fails(model, 0, TGLU_ERR_UNSUPPORTED, "down_proj.bias' is F32", NULL);
  tglu_model_close(model);
  for (int i = 0; i < 3; i++) {
    static const char *const good[] = {"BF16", "F16", "F32"};
    st_begin(&s);
    st_add(&s, P "gate_proj.weight", good[i], "[3,2]", gate, 6);
    st_add(&s, P "up_proj.weight", good[i], "[3,2]", up, 6);
    st_add(&s, P "down_proj.weight", good[i], "[2,3]", down, 6);
    model = write_and_open(state, &s);
    tglu_model_mlp m = layer_ok(model, 0);
    assert_int_equal(m.desc.glu.dtype, TGLU_DTYPE_BF16 + i);
    assert_true(value_at(m.desc.glu.dtype, m.desc.glu.up, 5) == 16);
    tglu_model_close(model);
  }
}

static void experts(void **state)
{
  static const struct { const char *name, *dtype, *shape; size_t count; } cases[] = {
    {"mlp.experts.gate_up_proj", "BF16", "[1,2,6]", 12},
    {"mlp.experts.gate_up_proj_blocks", "U8", "[1,6,2]", 12},
    {"mlp.experts.down_proj_scales", "U8", "[1,6,2]", 12},
    {"mlp.router.weight", "BF16", "[1,2]", 2},
    {"mlp.gate.weight", "BF16", "[1,2]", 2},
    {"mlp.experts.0.gate_proj.weight", "BF16", "[3,2]", 6},
    {"mlp.shared_expert.gate_proj.weight", "BF16", "[3,2]", 6},
    {"mlp.shared_experts.up_proj.weight", "BF16", "[3,2]", 6},
    {"block_sparse_moe.experts.0.w1.weight", "BF16", "[3,2]", 6},
    {"block_sparse_moe.input_linear.weight", "BF16", "[1,6,2]", 12},
    {"feed_forward.experts.gate_up_proj", "BF16", "[1,2,6]", 12},
    {"feed_forward.router.weight", "BF16", "[1,2]", 2},
    {"experts.gate_up_proj", "BF16", "[1,2,6]", 12},
  };
  for (size_t i = 0; i < COUNT(cases) * 2; i++) {
    char name[100];
    snprintf(name, sizeof name, "model.layers.3.%s", cases[i / 2].name);
    st_file s;
    st_begin(&s);
    st_add(&s, name, cases[i / 2].dtype, cases[i / 2].shape, both, cases[i / 2].count);
    if (i % 2) add_llama(&s, "model.layers.3.mlp.");
    add_llama(&s, "model.layers.2.mlp.");
    tglu_model *model = write_and_open(state, &s);
    assert_int_equal(tglu_model_layer_count(model), 2);
    expect_layer_fails(model, 3, TGLU_ERR_UNSUPPORTED, name, cases[i / 2].dtype, "experts",
                       NULL);
    layer_ok(model, 2);
    tglu_model_close(model);
  }
}

static void quantised(void **state)
{
  static const char *const names[] = {
    "gate_proj.qweight", "gate_proj.qzeros", "gate_proj.scales", "gate_proj.g_idx",
    "gate_proj.weight_scale_inv", "up_proj.weight_scale", "up_proj.input_scale",
    "down_proj.weight_packed", "down_proj.weight_shape", "gate_proj.weight.absmax",
    "gate_proj.weight.quant_map", "gate_proj.weight.quant_state.bitsandbytes__nf4",
    "gate_up_proj.qweight", "gate_proj.SCB",
  };
  for (size_t i = 0; i < COUNT(names) * 2; i++) {
    st_file s;
    st_begin(&s);
    char name[100];
    snprintf(name, sizeof name, P "%s", names[i / 2]);
    st_add(&s, name, "U8", "[6]", gate, 6);
    if (i % 2) add_llama(&s, P);
    tglu_model *model = write_and_open(state, &s);
    expect_layer_fails(model, 0, TGLU_ERR_UNSUPPORTED, name, "U8", "quantised", NULL);
    tglu_model_close(model);
  }
}
#undef P

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, folder_clean)
  const struct CMUnitTest tests[] = {
    TEST(prefixes), TEST(near_prefixes), TEST(merged), TEST(numbered_weights),
    TEST(layer_numbers), TEST(layer_one_not_eleven), TEST(ambiguous_layers),
    TEST(exact_names), TEST(aliases), TEST(biases), TEST(bad_biases), TEST(wrong_shapes),
    TEST(width_from_a_norm), TEST(wrong_merged_shapes), TEST(types), TEST(experts),
    TEST(quantised),
  };
  return cmocka_run_group_tests_name("names", tests, folder_setup, folder_teardown);
}
