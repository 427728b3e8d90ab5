/* tglu_model: open, tensors, layers, config values. */
#include "model_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void tglu_model_options_init(tglu_model_options *options)
{
  if (options) *options = (tglu_model_options){.size = sizeof *options};
}

void tglu_tensor_init(tglu_tensor *tensor)
{
  if (tensor) *tensor = (tglu_tensor){.size = sizeof *tensor};
}

void tglu_model_mlp_init(tglu_model_mlp *mlp)
{
  if (!mlp) return;
  *mlp = (tglu_model_mlp){.size = sizeof *mlp};
  tglu_mlp_desc_init(&mlp->desc);
}

/* ---- opening ---- */
/* A link that leads nowhere (a pruned cache) counts as a file that cannot be opened,
 * not as an absent one: something else must not be used in its place. */
static tglu_status find_file(const char *path, bool *found)
{
  struct stat info;
  *found = lstat(path, &info) == 0;
  if (!*found && errno != ENOENT && errno != ENOTDIR) {
    char buffer[128];
    return tglu__fail(TGLU_ERR_IO, "%s: cannot look for it: %s", tglu__show_path(path).text,
                      strerror_r(errno, buffer, sizeof buffer));
  }
  if (*found && S_ISLNK(info.st_mode) && stat(path, &info) != 0) {
    return tglu__fail(TGLU_ERR_IO, "%s: broken link: the file that it leads to cannot be"
                      " reached", tglu__show_path(path).text);
  }
  return TGLU_OK;
}

static bool ends_with(const char *text, const char *end)
{
  size_t a = strlen(text), b = strlen(end);
  return a >= b && strcmp(text + a - b, end) == 0;
}

static tglu_status open_single(const char *path, tglu_model *model)
{
  model->files = calloc(1, sizeof *model->files);
  if (!model->files) return tglu__no_memory(path);
  tglu_status status = tglu__safetensors_open(path, model->files, &model->table);
  if (status == TGLU_OK) model->file_count = 1;
  return status;
}

static tglu_status open_folder(const char *folder, tglu_model *model)
{
  char *index = tglu__path_join(folder, "model.safetensors.index.json");
  char *single = tglu__path_join(folder, "model.safetensors");
  bool has_index = false, has_single = false;
  tglu_status status = index && single ? find_file(index, &has_index)
                                       : tglu__no_memory(folder);
  if (status == TGLU_OK && !has_index) status = find_file(single, &has_single);
  if (status == TGLU_OK && has_index) {
    status = tglu__index_open(index, model);
  } else if (status == TGLU_OK && has_single) {
    status = open_single(single, model);
  } else if (status == TGLU_OK) {
    status = tglu__fail(TGLU_ERR_NOT_FOUND, "%s: the folder has neither model.safetensors"
                        " nor model.safetensors.index.json", tglu__show_path(folder).text);
  }
  free(index);
  free(single);
  return status;
}

static tglu_status open_config(const char *path, tglu_model *model)
{
  char *text = NULL;
  size_t length = 0;
  tglu_status status = tglu__read_text(path, TGLU__CONFIG_MAX_BYTES, &text, &length);
  if (status != TGLU_OK) return status;
  tglu__span span = {text, length};
  status = tglu__config_parse(path, span, &model->config);
  free(text);
  return status;
}

/* The config that the caller names, or the one in the folder of the weights. */
static tglu_status find_config(const char *path, bool is_folder, const char *given,
                               tglu_model *model)
{
  if (given) return open_config(given, model);
  char *folder = is_folder ? strdup(path) : tglu__path_folder(path);
  char *config = folder ? tglu__path_join(folder, "config.json") : NULL;
  bool found = false;
  tglu_status status = config ? find_file(config, &found) : tglu__no_memory(path);
  if (status == TGLU_OK && found) status = open_config(config, model);
  free(folder);
  free(config);
  return status;
}

static tglu_status open_all(const char *path, const tglu_model_options *options,
                            tglu_model *model)
{
  struct stat info;
  bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
  tglu_status status = is_folder ? open_folder(path, model)
                       : ends_with(path, ".json") ? tglu__index_open(path, model)
                                                  : open_single(path, model);
  if (status == TGLU_OK) status = find_config(path, is_folder, options->config, model);
  if (status == TGLU_OK) status = tglu__model_finish(model, options->activation);
  return status;
}

/* Sets the config's source sentence once, so that the model is immutable later; a
 * config without a usable activation fails where a layer asks for it, not here. */
static void note_activation_source(tglu_model *model)
{
  char message[1024];
  snprintf(message, sizeof message, "%s", tglu_last_error());
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  if (tglu__config_activation(&model->config, &desc, model->activation_source,
                              sizeof model->activation_source) != TGLU_OK) {
    tglu__fail(TGLU_OK, "%s", message);
  }
}

tglu_status tglu__model_finish(tglu_model *model, const char *option_activation)
{
  if (option_activation) {
    tglu_glu_desc desc;
    tglu_glu_desc_init(&desc);
    tglu_status status = tglu_model_activation(option_activation, &desc);
    if (status != TGLU_OK) return status;
    snprintf(model->option_activation, sizeof model->option_activation, "%s",
             option_activation);
  }
  note_activation_source(model);
  return tglu__find_layers(model);
}

tglu_status tglu_model_open(const char *path, const tglu_model_options *options,
                            tglu_model **out)
{
  if (!out) return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "out: must not be NULL");
  *out = NULL;
  if (!path) return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "path: must not be NULL");
  tglu_model_options known;
  tglu_model_options_init(&known);
  tglu_status status = TGLU_OK;
  if (options) {
    status = tglu__struct_in("options", options, sizeof known, sizeof known, &known);
  }
  if (status != TGLU_OK) return status;
  tglu_model *model = calloc(1, sizeof *model);
  if (!model) return tglu__no_memory(path);
  status = open_all(path, &known, model);
  if (status == TGLU_OK) *out = model;
  else tglu__model_free(model);
  return status;
}

void tglu__model_free(tglu_model *model)
{
  for (size_t i = 0; i < model->file_count; i++) tglu__file_close(&model->files[i]);
  free(model->files);
  tglu__table_free(&model->table);
  tglu__config_free(&model->config);
  for (size_t i = 0; i < model->layer_count; i++) {
    for (int c = 0; c < TGLU__CONTAINERS; c++) free(model->layers[i].prefix[c]);
  }
  free(model->layers);
  free(model);
}

void tglu_model_close(tglu_model *model)
{
  if (model) tglu__model_free(model);
}

/* ---- tensors ---- */
const tglu__entry *tglu__model_lookup(const tglu_model *model, const char *name)
{
  const tglu__entry *entry = tglu__table_find(&model->table, name);
  if (entry) return entry;
  const tglu__pair *alias = tglu__table_find_metadata(&model->table, name);
  return alias ? tglu__table_find(&model->table, alias->value) : NULL;
}

/* How much two names have in common at both ends. */
static size_t likeness(const char *a, const char *b)
{
  size_t la = strlen(a), lb = strlen(b), head = 0, tail = 0;
  while (a[head] && a[head] == b[head]) head++;
  while (tail < la - head && tail < lb - head && a[la - 1 - tail] == b[lb - 1 - tail]) {
    tail++;
  }
  return head + tail;
}

enum { NEAR_COUNT = 3 };

/* Near names in descending likeness. */
static void find_near(const tglu_model *model, const char *name,
                      const char *near[NEAR_COUNT])
{
  size_t best[NEAR_COUNT] = {0};
  for (size_t i = 0; i < model->table.count; i++) {
    const char *candidate = model->table.entries[i].name;
    size_t score = likeness(name, candidate);
    for (int at = 0; at < NEAR_COUNT; at++) {
      if (score <= best[at]) continue;
      for (int j = NEAR_COUNT - 1; j > at; j--) {
        best[j] = best[j - 1];
        near[j] = near[j - 1];
      }
      best[at] = score;
      near[at] = candidate;
      break;
    }
  }
}

tglu_status tglu__model_missing(const tglu_model *model, const char *name)
{
  const tglu__pair *alias = tglu__table_find_metadata(&model->table, name);
  if (alias) {
    return tglu__fail(TGLU_ERR_NOT_FOUND, "tensor '%s' is not there, and __metadata__ gives"
                      " '%s' for it, which is no tensor either", tglu__show(name).text,
                      tglu__show(alias->value).text);
  }
  const char *near[NEAR_COUNT] = {0};
  find_near(model, name, near);
  char list[400] = "";
  size_t at = 0;
  for (int i = 0; i < NEAR_COUNT && near[i]; i++) {
    at += (size_t)snprintf(list + at, sizeof list - at, "%s'%s'", i ? ", " : "; near names: ",
                           tglu__show(near[i]).text);
  }
  return tglu__fail(TGLU_ERR_NOT_FOUND, "%s: tensor '%s' is not there%s",
                    model->file_count ? tglu__show_path(model->files[0].path).text : "model",
                    tglu__show(name).text, list);
}

tglu_status tglu__model_data(const tglu_model *model, const tglu__entry *entry,
                             const void **data)
{
  const tglu__file *file = &model->files[entry->file];
  tglu_status status = tglu__file_recheck(file);
  if (status == TGLU_OK) *data = file->map + file->data_at + entry->begin;
  return status;
}

static tglu_status give_tensor(const tglu_model *model, const tglu__entry *entry,
                               tglu_tensor *tensor)
{
  tglu_tensor filled;
  tglu_tensor_init(&filled);
  filled.name = entry->name;
  filled.dtype_name = tglu__safetensors_dtype_name(entry->dtype);
  filled.dtype = tglu__safetensors_dtype(entry->dtype);
  filled.rank = entry->rank;
  for (int32_t i = 0; i < entry->rank; i++) filled.shape[i] = entry->shape[i];
  filled.bytes = (size_t)(entry->end - entry->begin);
  filled.file = model->files[entry->file].path;
  tglu_status status = tglu__model_data(model, entry, &filled.data);
  if (status != TGLU_OK) return status;
  return tglu__struct_out("tensor", tensor, sizeof filled, sizeof filled, &filled);
}

int64_t tglu_model_tensor_count(const tglu_model *model)
{
  return model ? (int64_t)model->table.count : 0;
}

static tglu_status null_argument(const char *name)
{
  return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "%s: must not be NULL", name);
}

tglu_status tglu_model_tensor_at(const tglu_model *model, int64_t index, tglu_tensor *tensor)
{
  if (!model) return null_argument("model");
  if (index < 0 || index >= (int64_t)model->table.count) {
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "index: %" PRId64 " is outside the model's"
                      " %zu tensors", index, model->table.count);
  }
  return give_tensor(model, &model->table.entries[index], tensor);
}

tglu_status tglu_model_find_tensor(const tglu_model *model, const char *name,
                                   tglu_tensor *tensor)
{
  if (!model || !name) return null_argument(model ? "name" : "model");
  const tglu__entry *entry = tglu__model_lookup(model, name);
  return entry ? give_tensor(model, entry, tensor) : tglu__model_missing(model, name);
}

/* ---- layers ---- */
int32_t tglu_model_layer_count(const tglu_model *model)
{
  return model ? model->layer_numbers : 0;
}

tglu_status tglu_model_layer_at(const tglu_model *model, int32_t index, int32_t *layer)
{
  if (!model || !layer) return null_argument(model ? "layer" : "model");
  if (index < 0 || index >= model->layer_numbers) {
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "index: %" PRId32 " is outside the model's"
                      " %" PRId32 " layers", index, model->layer_numbers);
  }
  int32_t seen = -1;
  for (size_t i = 0; i < model->layer_count; i++) {
    bool repeated = i > 0 && model->layers[i - 1].layer == model->layers[i].layer;
    if (!repeated && ++seen == index) *layer = model->layers[i].layer;
  }
  return TGLU_OK;
}

/* ---- config values ---- */
static tglu_status find_value(const tglu_model *model, const char *key, const void *out,
                              const json_t **value)
{
  if (!model || !key || !out) {
    return null_argument(!model ? "model" : !key ? "key" : "value");
  }
  *value = tglu__config_get(&model->config, key);
  if (*value) return TGLU_OK;
  const char *path = model->config.path;
  return tglu__fail(TGLU_ERR_NOT_FOUND, "key %s is absent: %s%s", tglu__show(key).text,
                    path ? tglu__show_path(path).text : "there is no config.json",
                    path ? " has it neither at the top level nor in text_config" : "");
}

static tglu_status wrong_type(const tglu_model *model, const char *key, const char *type)
{
  return tglu__fail(TGLU_ERR_FORMAT, "%s: %s is no %s",
                    tglu__show_path(model->config.path).text, tglu__show(key).text, type);
}

tglu_status tglu_model_config_int(const tglu_model *model, const char *key, int64_t *value)
{
  const json_t *found = NULL;
  tglu_status status = find_value(model, key, value, &found);
  if (status != TGLU_OK) return status;
  if (!json_is_integer(found)) return wrong_type(model, key, "integer");
  *value = json_integer_value(found);
  return TGLU_OK;
}

tglu_status tglu_model_config_string(const tglu_model *model, const char *key,
                                     const char **value)
{
  const json_t *found = NULL;
  tglu_status status = find_value(model, key, value, &found);
  if (status != TGLU_OK) return status;
  if (!json_is_string(found)) return wrong_type(model, key, "string");
  *value = json_string_value(found);
  return TGLU_OK;
}
