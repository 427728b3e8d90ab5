/* From a family's tensors to a descriptor: types, ranks, shapes, biases and what
 * config.json says of them must agree, or the layer is refused by name. */
#include "model_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ROLES = 4 };

/* Roles in the order gate, up, gate_up, down; absent ones are NULL throughout. */
enum { GATE, UP, GATE_UP, DOWN };

typedef struct tensors {
  const tglu_model *model;
  const tglu__family *family;
  const char *prefix;
  const char *role[ROLES];              /* "gate_proj", ...                      */
  const tglu__entry *weight[ROLES], *bias[ROLES];
  int64_t n, k;
} tensors;

typedef struct name { char text[256]; } name;

/* "model.layers.3.mlp.gate_proj.weight" */
static name full_name(const tensors *t, int role, const char *kind)
{
  name full;
  snprintf(full.text, sizeof full.text, "%s%s.%s", t->prefix, t->role[role], kind);
  return full;
}

static tglu_status find_tensors(tensors *t)
{
  const tglu__family *f = t->family;
  const char *const roles[ROLES] = {f->gate, f->up, f->gate_up, f->down};
  for (int i = 0; i < ROLES; i++) {
    t->role[i] = roles[i];
    if (!roles[i]) continue;
    name weight = full_name(t, i, "weight");
    t->weight[i] = tglu__model_lookup(t->model, weight.text);
    if (!t->weight[i]) return tglu__model_missing(t->model, weight.text);
    t->bias[i] = tglu__model_lookup(t->model, full_name(t, i, "bias").text);
  }
  return TGLU_OK;
}

/* ---- types and ranks ---- */
static tglu_status check_type(const tensors *t, const tglu__entry *entry, const char *given,
                              int32_t rank)
{
  const tglu__entry *down = t->weight[DOWN];
  const char *type = tglu__safetensors_dtype_name(entry->dtype);
  if (entry->rank != rank) {
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "tensor '%s' is %s: a dense MLP has %s of"
                      " %" PRId32 " dimension%s", tglu__show(given).text,
                      tglu__show_shape(entry->shape, entry->rank).text,
                      rank == 2 ? "weights" : "biases", rank, rank == 1 ? "" : "s");
  }
  if (tglu__safetensors_dtype(entry->dtype) == 0) {
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "tensor '%s' is %s: tileglu reads BF16, F16 and"
                      " F32, not quantised or other types", tglu__show(given).text, type);
  }
  if (entry->dtype != down->dtype) {
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "tensor '%s' is %s but '%s' is %s: the tensors of"
                      " an MLP must have one type", tglu__show(given).text, type,
                      tglu__show(full_name(t, DOWN, "weight").text).text,
                      tglu__safetensors_dtype_name(down->dtype));
  }
  return TGLU_OK;
}

static tglu_status check_types(const tensors *t)
{
  for (int i = ROLES - 1; i >= 0; i--) {
    tglu_status status = TGLU_OK;
    if (t->weight[i]) {
      status = check_type(t, t->weight[i], full_name(t, i, "weight").text, 2);
    }
    if (status == TGLU_OK && t->bias[i]) {
      status = check_type(t, t->bias[i], full_name(t, i, "bias").text, 1);
    }
    if (status != TGLU_OK) return status;
  }
  return TGLU_OK;
}

/* ---- shapes ---- */
static bool is_shape(const tglu__entry *entry, int64_t rows, int64_t columns)
{
  return entry->shape[0] == rows && entry->shape[1] == columns;
}

/* 2n, or -1 where that overflows: no tensor has it. */
static int64_t twice(int64_t n) { return n > INT64_MAX / 2 ? -1 : 2 * n; }

/* Whether each is right or transposed for gate and up [n,k] and down [k,n]. */
static bool fits_turned(const tensors *t, int64_t n, int64_t k)
{
  for (int i = 0; i < ROLES; i++) {
    const tglu__entry *w = t->weight[i];
    int64_t rows = i == GATE_UP ? twice(n) : n;
    if (w && !is_shape(w, rows, k) && !is_shape(w, k, rows)) return false;
  }
  return true;
}

static tglu_status shapes_disagree(const tensors *t)
{
  const tglu__entry *down = t->weight[DOWN];
  bool turned = fits_turned(t, down->shape[1], down->shape[0])
                || fits_turned(t, down->shape[0], down->shape[1]);
  int first = t->weight[GATE] ? GATE : GATE_UP;
  char up[160] = "";
  if (t->weight[UP]) {
    snprintf(up, sizeof up, ", %s.weight is %s", t->role[UP],
             tglu__show_shape(t->weight[UP]->shape, 2).text);
  }
  return tglu__fail(turned ? TGLU_ERR_UNSUPPORTED : TGLU_ERR_FORMAT,
                    "%s: %s.weight is %s%s, %s.weight is %s: expected %s, [K, N]%s",
                    tglu__show(t->prefix).text, t->role[first],
                    tglu__show_shape(t->weight[first]->shape, 2).text, up, t->role[DOWN],
                    tglu__show_shape(down->shape, 2).text,
                    first == GATE ? "[N, K], [N, K]" : "[2N, K]",
                    turned ? "; a weight is stored input-by-output (Conv1D style), which"
                             " tileglu refuses" : "");
}

static tglu_status check_bias(const tensors *t, int role, int64_t length)
{
  const tglu__entry *bias = t->bias[role];
  if (!bias || bias->shape[0] == length) return TGLU_OK;
  return tglu__fail(TGLU_ERR_FORMAT, "tensor '%s' is %s: expected [%" PRId64 "]",
                    tglu__show(full_name(t, role, "bias").text).text,
                    tglu__show_shape(bias->shape, 1).text, length);
}

static tglu_status check_shapes(tensors *t)
{
  const tglu__entry *down = t->weight[DOWN];
  t->k = down->shape[0];
  t->n = down->shape[1];
  for (int i = 0; i < DOWN; i++) {
    const tglu__entry *w = t->weight[i];
    int64_t rows = i == GATE_UP ? twice(t->n) : t->n;
    if (w && !is_shape(w, rows, t->k)) return shapes_disagree(t);
  }
  if (t->n < 1 || t->k < 1) {
    return tglu__fail(TGLU_ERR_FORMAT, "tensor '%s' is %s: an MLP has no empty dimension",
                      tglu__show(full_name(t, DOWN, "weight").text).text,
                      tglu__show_shape(down->shape, 2).text);
  }
  const int64_t lengths[ROLES] = {t->n, t->n, twice(t->n), t->k};
  for (int i = 0; i < ROLES; i++) {
    tglu_status status = check_bias(t, i, lengths[i]);
    if (status != TGLU_OK) return status;
  }
  return TGLU_OK;
}

/* ---- what else is known of the sizes ---- */
/* The model's width from its config, else from a norm of the same layer; 0 if neither
 * says.  *source names it. */
static int64_t known_hidden(const tensors *t, const char **source)
{
  static const char *const keys[] = {"hidden_size", "n_embd"};
  static const char *const norms[] = {
    "input_layernorm.weight", "post_attention_layernorm.weight", "attention_norm.weight",
    "ffn_norm.weight", "ln_1.weight", "ln_2.weight",
  };
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const json_t *value = tglu__config_get(&t->model->config, keys[i]);
    *source = keys[i];
    if (json_is_integer(value)) return json_integer_value(value);
  }
  size_t layer_length = strlen(t->prefix) - 1;
  while (layer_length > 0 && t->prefix[layer_length - 1] != '.') layer_length--;
  for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
    name norm;
    snprintf(norm.text, sizeof norm.text, "%.*s%s", (int)layer_length, t->prefix, norms[i]);
    const tglu__entry *entry = tglu__model_lookup(t->model, norm.text);
    *source = norms[i];
    if (entry && entry->rank == 1) return entry->shape[0];
  }
  return 0;
}

static tglu_status check_hidden(const tensors *t)
{
  const char *source = NULL;
  int64_t hidden = known_hidden(t, &source);
  if (hidden == 0 || hidden == t->k) return TGLU_OK;
  bool turned = hidden == t->n;
  int first = t->weight[GATE] ? GATE : GATE_UP;
  return tglu__fail(turned ? TGLU_ERR_UNSUPPORTED : TGLU_ERR_FORMAT,
                    "tensor '%s' is %s, but %s says that the model is %" PRId64 " wide:"
                    " expected [%s, %" PRId64 "]%s",
                    tglu__show(full_name(t, first, "weight").text).text,
                    tglu__show_shape(t->weight[first]->shape, 2).text, source, hidden,
                    first == GATE ? "N" : "2N", hidden,
                    turned ? "; the weights are stored input-by-output (Conv1D style),"
                             " which tileglu refuses" : "");
}

/* An integer, or that of the layer in a list; -1 if there is none. */
static int64_t integer_of_layer(const json_t *value, int32_t layer)
{
  if (json_is_array(value)) value = json_array_get(value, (size_t)layer);
  return json_is_integer(value) ? json_integer_value(value) : -1;
}

static tglu_status check_intermediate(const tensors *t, int32_t layer)
{
  const tglu__config *config = &t->model->config;
  const char *key = t->family->intermediate_key;
  int64_t given = integer_of_layer(key ? tglu__config_get(config, key) : NULL, layer);
  if (given < 0 || json_is_true(tglu__config_get(config, "use_double_wide_mlp"))) {
    return TGLU_OK;
  }
  int64_t factor = t->family->intermediate_factor;
  if (given % factor == 0 && given / factor == t->n) return TGLU_OK;
  return tglu__fail(TGLU_ERR_FORMAT, "%s: the weights have %" PRId64 " intermediate columns,"
                    " but %s in the config is %" PRId64 "%s", tglu__show(t->prefix).text,
                    t->n, key, given, factor == 2 ? " (twice theirs in this family)" : "");
}

/* ---- what the config adds to the formula ---- */
static tglu_status check_bias_key(const tensors *t)
{
  if (!json_is_true(tglu__config_get(&t->model->config, "mlp_bias"))) return TGLU_OK;
  for (int i = 0; i < ROLES; i++) {
    if (!t->weight[i] || t->bias[i]) continue;
    return tglu__fail(TGLU_ERR_FORMAT, "tensor '%s' is not there, but mlp_bias in the config"
                      " is true", tglu__show(full_name(t, i, "bias").text).text);
  }
  return TGLU_OK;
}

static bool is_number(const json_t *value, double wanted)
{
  return json_is_number(value) && json_number_value(value) == wanted;
}

/* Keys whose effect no kernel has: fine only where they have none. */
static tglu_status check_other_keys(const tensors *t, int32_t layer)
{
  const tglu__config *config = &t->model->config;
  const json_t *sparse = tglu__config_get(config, "activation_sparsity_pattern");
  if (json_is_array(sparse)) sparse = json_array_get(sparse, (size_t)layer);
  bool bad = sparse && !json_is_null(sparse) && !is_number(sparse, 0.0);
  const char *key = "activation_sparsity_pattern";
  const json_t *scales = tglu__config_get(config, "mlp_multipliers");
  for (size_t i = 0; i < json_array_size(scales); i++) {
    if (is_number(json_array_get(scales, i), 1.0)) continue;
    bad = true;
    key = "mlp_multipliers";
  }
  if (!bad) return TGLU_OK;
  return tglu__fail(TGLU_ERR_UNSUPPORTED, "%s: %s in the config changes the MLP of layer"
                    " %" PRId32 " in a way that tileglu does not compute",
                    tglu__show_path(config->path).text, key, layer);
}

/* ---- the descriptor ---- */
static tglu_status give(const tensors *t, const tglu__entry *entry, const void **out)
{
  return entry ? tglu__model_data(t->model, entry, out) : TGLU_OK;
}

static tglu_status fill(const tensors *t, tglu_mlp_desc *desc)
{
  tglu_glu_desc *glu = &desc->glu;
  glu->hidden = t->k;
  glu->intermediate = t->n;
  glu->dtype = tglu__safetensors_dtype(t->weight[DOWN]->dtype);
  glu->layout = t->weight[GATE] ? TGLU_LAYOUT_SEPARATE : TGLU_LAYOUT_STACKED_GATE_FIRST;
  const struct { const tglu__entry *entry; const void **out; } views[] = {
    {t->weight[GATE], &glu->gate},       {t->bias[GATE], &glu->gate_bias},
    {t->weight[UP], &glu->up},           {t->bias[UP], &glu->up_bias},
    {t->weight[GATE_UP], &glu->gate_up}, {t->bias[GATE_UP], &glu->gate_up_bias},
    {t->weight[DOWN], &desc->down},      {t->bias[DOWN], &desc->down_bias},
  };
  for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
    tglu_status status = give(t, views[i].entry, views[i].out);
    if (status != TGLU_OK) return status;
  }
  return TGLU_OK;
}

tglu_status tglu__bind_mlp(const tglu_model *model, const tglu__family *family,
                           const char *prefix, int32_t layer, tglu_mlp_desc *desc)
{
  tensors t = {.model = model, .family = family, .prefix = prefix};
  tglu_status status = find_tensors(&t);
  if (status == TGLU_OK) status = check_types(&t);
  if (status == TGLU_OK) status = check_shapes(&t);
  if (status == TGLU_OK) status = check_hidden(&t);
  if (status == TGLU_OK) status = check_intermediate(&t, layer);
  if (status == TGLU_OK) status = check_bias_key(&t);
  if (status == TGLU_OK) status = check_other_keys(&t, layer);
  if (status == TGLU_OK) status = fill(&t, desc);
  return status;
}

/* ---- public ---- */
static tglu_status find_activation(const tglu_model *model, const tglu__family *family,
                                   tglu_glu_desc *desc, const char **source)
{
  if (model->option_activation[0]) {
    *source = "option";
    return tglu_model_activation(model->option_activation, desc);
  }
  if (family->activation && !tglu__config_has_activation(&model->config)) {
    *source = "fixed by the family";
    return tglu_model_activation(family->activation, desc);
  }
  char same[sizeof model->activation_source];
  *source = model->activation_source;
  return tglu__config_activation(&model->config, desc, same, sizeof same);
}

tglu_status tglu_model_layer_mlp(const tglu_model *model, int32_t layer, tglu_model_mlp *mlp)
{
  if (!model) return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "model: must not be NULL");
  tglu_model_mlp found;
  tglu_model_mlp_init(&found);
  const tglu__family *family = NULL;
  tglu_status status = tglu__match_family(model, layer, &family, &found.prefix);
  if (status != TGLU_OK) return status;
  found.layer = layer;
  found.family = family->name;
  status = tglu__bind_mlp(model, family, found.prefix, layer, &found.desc);
  if (status == TGLU_OK) {
    status = find_activation(model, family, &found.desc.glu, &found.activation_source);
  }
  if (status != TGLU_OK) return status;
  return tglu__struct_out("mlp", mlp, sizeof found, sizeof found, &found);
}
