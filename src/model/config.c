/* config.json: plain values and the name of the activation. */
#include "model_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- activations by their names in configs ---- */
typedef struct activation_row {
  const char *name;
  tglu_activation activation;
  float alpha, limit, offset; /* for swigluoai only */
} activation_row;

static const activation_row activations[] = {
  {"silu",              TGLU_ACTIVATION_SILU,      0, 0, 0},
  {"swish",             TGLU_ACTIVATION_SILU,      0, 0, 0},
  {"gelu",              TGLU_ACTIVATION_GELU_ERF,  0, 0, 0},
  {"gelu_new",          TGLU_ACTIVATION_GELU_TANH, 0, 0, 0},
  {"gelu_fast",         TGLU_ACTIVATION_GELU_TANH, 0, 0, 0},
  {"gelu_pytorch_tanh", TGLU_ACTIVATION_GELU_TANH, 0, 0, 0},
  {"quick_gelu",        TGLU_ACTIVATION_SWIGLUOAI, 1.702f, INFINITY, 0},
  {"relu",              TGLU_ACTIVATION_RELU,      0, 0, 0},
  {"sigmoid",           TGLU_ACTIVATION_SIGMOID,   0, 0, 0},
};
enum { ACTIVATION_COUNT = sizeof activations / sizeof activations[0] };

#define ACTIVATION_NAMES \
  "silu, swish, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, quick_gelu, relu, sigmoid"

static void set_activation(tglu_glu_desc *desc, tglu_activation activation)
{
  tglu_glu_desc defaults;
  tglu_glu_desc_init(&defaults);
  desc->activation = activation;
  desc->alpha = defaults.alpha;
  desc->limit = defaults.limit;
  desc->offset = defaults.offset;
}

static tglu_status activation_from_name(const char *where, const char *name,
                                        tglu_glu_desc *desc)
{
  for (int i = 0; i < ACTIVATION_COUNT; i++) {
    const activation_row *row = &activations[i];
    if (strcmp(row->name, name) != 0) continue;
    set_activation(desc, row->activation);
    if (row->activation == TGLU_ACTIVATION_SWIGLUOAI) {
      desc->alpha = row->alpha;
      desc->limit = row->limit;
      desc->offset = row->offset;
    }
    return TGLU_OK;
  }
  return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "%s: '%s' is none of the known names, which"
                    " are (case-sensitive) " ACTIVATION_NAMES, where, tglu__show(name).text);
}

tglu_status tglu_model_activation(const char *config_name, tglu_glu_desc *desc)
{
  if (!config_name || !desc) {
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "%s: must not be NULL",
                      config_name ? "desc" : "config_name");
  }
  tglu_glu_desc found;
  tglu_glu_desc_init(&found);
  tglu_status status = tglu__struct_in("desc", desc, sizeof found, sizeof found, &found);
  if (status == TGLU_OK) status = activation_from_name("activation", config_name, &found);
  if (status == TGLU_OK) {
    status = tglu__struct_out("desc", desc, sizeof found, sizeof found, &found);
  }
  return status;
}

/* ---- the file ---- */
tglu_status tglu__config_parse(const char *path, tglu__span text, tglu__config *out)
{
  *out = (tglu__config){0};
  json_t *root = NULL;
  tglu_status status = tglu__json_load(path, "the config", text, TGLU__CONFIG_MAX_DEPTH, 0,
                                       &root);
  if (status != TGLU_OK) return status;
  json_t *nested = json_object_get(root, "text_config");
  if (!json_is_object(root)) {
    status = tglu__fail(TGLU_ERR_FORMAT, "%s: the config is no object in {}",
                        tglu__show_path(path).text);
  } else if (nested && !json_is_null(nested) && !json_is_object(nested)) {
    status = tglu__fail(TGLU_ERR_FORMAT, "%s: text_config must be an object",
                        tglu__show_path(path).text);
  } else if (!(out->path = strdup(path))) {
    status = tglu__no_memory(path);
  }
  if (status != TGLU_OK) {
    json_decref(root);
    return status;
  }
  out->root = root;
  out->text = json_is_object(nested) ? nested : NULL;
  return TGLU_OK;
}

void tglu__config_free(tglu__config *config)
{
  json_decref(config->root);
  free(config->path);
  *config = (tglu__config){0};
}

static const json_t *set_value(const json_t *level, const char *key)
{
  const json_t *value = json_object_get(level, key);
  return json_is_null(value) ? NULL : value;
}

const json_t *tglu__config_get(const tglu__config *config, const char *key)
{
  const json_t *nested = set_value(config->text, key);
  return nested ? nested : set_value(config->root, key);
}

/* ---- which key names the activation ---- */
/* In order: the first that is set names it.  hidden_activation is newer than, and
 * wins over, hidden_act in Gemma's configs; any other two must agree.  A text_config
 * that has any of them decides alone: those at the top level are not looked at. */
static const char *const activation_keys[] = {
  "hidden_activation", "hidden_act", "activation_function", "act_fn",
};
enum { KEY_COUNT = sizeof activation_keys / sizeof activation_keys[0] };

static const json_t *activation_value(const json_t *level, int key)
{
  return set_value(level, activation_keys[key]);
}

/* First key of a level that is set; KEY_COUNT if none is. */
static int first_key(const json_t *level)
{
  int key = 0;
  while (key < KEY_COUNT && !activation_value(level, key)) key++;
  return key;
}

bool tglu__config_has_activation(const tglu__config *config)
{
  return first_key(config->text) < KEY_COUNT || first_key(config->root) < KEY_COUNT
         || tglu__config_get(config, "swiglu_limit");
}

static tglu_status not_text(const tglu__config *config, const char *key)
{
  return tglu__fail(TGLU_ERR_FORMAT, "%s: %s must be a string",
                    tglu__show_path(config->path).text, key);
}

static bool is_model(const tglu__config *config, const char *type, size_t length)
{
  const char *name = json_string_value(tglu__config_get(config, "model_type"));
  return name && strncmp(name, type, length) == 0;
}

/* swiglu_limit means the clamped activation of gpt-oss; elsewhere its formula is not
 * known, so it is refused. */
static tglu_status limited_activation(const tglu__config *config, const json_t *limit,
                                      tglu_glu_desc *desc, char *source, size_t bytes)
{
  if (!is_model(config, "gpt_oss", sizeof "gpt_oss")) {
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "%s: swiglu_limit is known for model_type"
                      " gpt_oss only: its activation here is not known",
                      tglu__show_path(config->path).text);
  }
  double value = json_number_value(limit);
  if (!json_is_number(limit) || !(value > 0)) {
    return tglu__fail(TGLU_ERR_FORMAT, "%s: swiglu_limit must be a number > 0",
                      tglu__show_path(config->path).text);
  }
  set_activation(desc, TGLU_ACTIVATION_SWIGLUOAI);
  desc->limit = (float)value;
  snprintf(source, bytes, "swiglu_limit of gpt_oss in config.json");
  return TGLU_OK;
}

static tglu_status activation_of_key(const tglu__config *config, int key, const char *name,
                                     tglu_glu_desc *desc)
{
  char where[256];
  snprintf(where, sizeof where, "%s: %s", tglu__show_path(config->path).text,
           activation_keys[key]);
  tglu_status status = activation_from_name(where, name, desc);
  return status == TGLU_ERR_INVALID_ARGUMENT ? TGLU_ERR_UNSUPPORTED : status;
}

/* Any later key of the level must name the same function, or be the older key that
 * lost. */
static tglu_status check_other_keys(const tglu__config *config, const json_t *level,
                                    int won, const tglu_glu_desc *chosen, char *source,
                                    size_t bytes)
{
  for (int i = won + 1; i < KEY_COUNT; i++) {
    const json_t *value = activation_value(level, i);
    if (!value) continue;
    const char *name = json_string_value(value);
    if (!name) return not_text(config, activation_keys[i]);
    if (won == 0 && i == 1) {
      size_t at = strlen(source);
      snprintf(source + at, bytes - at, " (wins over hidden_act '%s')",
               tglu__show(name).text);
      continue;
    }
    tglu_glu_desc other = *chosen;
    tglu_status status = activation_of_key(config, i, name, &other);
    if (status != TGLU_OK) return status;
    if (other.activation != chosen->activation) {
      return tglu__fail(TGLU_ERR_FORMAT, "%s: %s and %s name different activations",
                        tglu__show_path(config->path).text, activation_keys[won],
                        activation_keys[i]);
    }
  }
  return TGLU_OK;
}

static bool says_gemma(const json_t *value)
{
  const char *name = json_string_value(value);
  return name && strcasestr(name, "gemma");
}

/* Whether the model type or an architecture, of the model or its text part, is a
 * Gemma's: also recurrent_gemma, T5GemmaForConditionalGeneration, ... */
static bool is_gemma(const tglu__config *config)
{
  const json_t *levels[] = {config->root, config->text};
  for (int i = 0; i < 2; i++) {
    if (says_gemma(json_object_get(levels[i], "model_type"))) return true;
    const json_t *names = json_object_get(levels[i], "architectures");
    size_t at;
    json_t *name;
    json_array_foreach(names, at, name) {
      if (says_gemma(name)) return true;
    }
  }
  return false;
}

/* Gemma was trained with the tanh form; configs that say hidden_act "gelu" alone are
 * known to mean it and are known to be read as the erf form. */
static tglu_status check_gemma(const tglu__config *config, int won, const char *name)
{
  if (won == 0 || strcmp(name, "gelu") != 0 || !is_gemma(config)) return TGLU_OK;
  return tglu__fail(TGLU_ERR_UNSUPPORTED, "%s: %s 'gelu' without hidden_activation is"
                    " ambiguous in a Gemma model (tanh or erf form): name the activation"
                    " as an option", tglu__show_path(config->path).text,
                    activation_keys[won]);
}

static tglu_status named_activation(const tglu__config *config, const json_t *level,
                                    int key, tglu_glu_desc *desc, char *source,
                                    size_t bytes)
{
  const char *name = json_string_value(activation_value(level, key));
  if (!name) return not_text(config, activation_keys[key]);
  tglu_status status = activation_of_key(config, key, name, desc);
  if (status == TGLU_OK) status = check_gemma(config, key, name);
  if (status != TGLU_OK) return status;
  snprintf(source, bytes, "%s in %sconfig.json", activation_keys[key],
           level == config->text ? "text_config of " : "");
  return check_other_keys(config, level, key, desc, source, bytes);
}

tglu_status tglu__config_activation(const tglu__config *config, tglu_glu_desc *desc,
                                    char *source, size_t source_bytes)
{
  const json_t *limit = tglu__config_get(config, "swiglu_limit");
  if (limit) return limited_activation(config, limit, desc, source, source_bytes);
  if (is_model(config, "gpt_oss", sizeof "gpt_oss")) {
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "%s: model_type is gpt_oss, but swiglu_limit is"
                      " absent", tglu__show_path(config->path).text);
  }
  bool in_text = first_key(config->text) < KEY_COUNT;
  const json_t *level = in_text ? config->text : config->root;
  int key = first_key(level);
  if (key < KEY_COUNT) {
    return named_activation(config, level, key, desc, source, source_bytes);
  }
  return tglu__fail(TGLU_ERR_NOT_FOUND,
                    "%s%sno activation is named (hidden_activation, hidden_act,"
                    " activation_function or act_fn): give one as an option; known are "
                    ACTIVATION_NAMES, config->path ? tglu__show_path(config->path).text : "",
                    config->path ? ": " : "there is no config.json: ");
}
