#include "layers.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "numbers.h"
#include "options.h"

int layers_activation_known(const char *name) {
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  return tglu_model_activation(name, &desc) == TGLU_OK;
}

int layers_open(const char *path, const char *config, const char *activation,
                tglu_model **model) {
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.config = config;
  options.activation = activation;
  if (tglu_model_open(path, &options, model) != TGLU_OK) {
    return cli_file_error(CLI_INPUT, "", path);
  }
  if (tglu_model_layer_count(*model) > 0) return CLI_OK;
  tglu_model_close(*model);
  *model = NULL;
  return cli_error(CLI_INPUT, "%s: no layer with a gated MLP under a known name", path);
}

/* Adds the layers of [first, last] which exist and are not chosen yet. */
static int choose_range(const tglu_model *model, int64_t first, int64_t last,
                        unsigned char *chosen) {
  int found = 0;
  for (int32_t i = 0; i < tglu_model_layer_count(model); i++) {
    int32_t number;
    if (tglu_model_layer_at(model, i, &number) != TGLU_OK) continue;
    if (number < first || number > last) continue;
    chosen[i] = 1;
    found = 1;
  }
  return found;
}

static int parse_range(const char *text, int64_t *first, int64_t *last) {
  char left[24];
  const char *dash = strchr(text, '-');
  if (!dash) return parse_int(text, 0, INT32_MAX, first) && (*last = *first, 1);
  size_t length = (size_t)(dash - text);
  if (length >= sizeof left) return 0;
  memcpy(left, text, length);
  left[length] = 0;
  return parse_int(left, 0, INT32_MAX, first) &&
         parse_int(dash + 1, *first, INT32_MAX, last);
}

static int choose_part(const tglu_model *model, const char *path, const char *part,
                       unsigned char *chosen) {
  int64_t first, last;
  int32_t least = 0, most = 0, count = tglu_model_layer_count(model);
  if (strcmp(part, "all") == 0) {
    choose_range(model, 0, INT32_MAX, chosen);
    return CLI_OK;
  }
  if (!parse_range(part, &first, &last)) {
    return cli_error(CLI_USAGE, "--layer: \"%s\" is neither \"all\" nor a layer nor a "
                     "range A-B", part);
  }
  if (choose_range(model, first, last, chosen)) return CLI_OK;
  tglu_model_layer_at(model, 0, &least);
  tglu_model_layer_at(model, count - 1, &most);
  return cli_error(CLI_USAGE, "--layer: %s has no layer %s; it has %d, from %d to %d", path,
                   part, (int)count, (int)least, (int)most);
}

int layers_choose(const tglu_model *model, const char *path, const char *choice,
                  int32_t **numbers, int *count) {
  const int32_t all = tglu_model_layer_count(model);
  unsigned char *chosen = mem_zeroed((size_t)all, 1);
  char *parts = mem_text("%s", choice);
  int code = CLI_OK;
  char *part = parts;
  while (part && code == CLI_OK) {
    char *comma = strchr(part, ',');
    if (comma) *comma = 0;
    code = choose_part(model, path, part, chosen);
    part = comma ? comma + 1 : NULL;
  }
  *count = 0;
  *numbers = NULL;
  if (code == CLI_OK) {
    *numbers = mem_zeroed((size_t)all, sizeof **numbers);
    for (int32_t i = 0; i < all; i++) {
      if (chosen[i]) tglu_model_layer_at(model, i, &(*numbers)[(*count)++]);
    }
  }
  mem_free(parts);
  mem_free(chosen);
  return code;
}

/* A tight copy of [rows, columns] in another type. */
static void *convert(const void *from, tglu_dtype source, int64_t rows, int64_t columns,
                     int64_t ld, tglu_dtype dtype, const hot_loops *hot) {
  const size_t width = tglu_dtype_bytes(source);
  const int64_t stride = ld ? ld : columns;
  char *to = mem_zeroed((size_t)(rows * columns), tglu_dtype_bytes(dtype));
  double *row = mem_zeroed((size_t)columns, sizeof *row);
  for (int64_t r = 0; r < rows; r++) {
    hot->widen((const char *)from + (size_t)(r * stride) * width, source, columns, row);
    for (int64_t i = 0; i < columns; i++) num_store(to, dtype, r * columns + i, row[i]);
  }
  mem_free(row);
  return to;
}

static void convert_layer(layer *l, tglu_dtype dtype, const hot_loops *hot) {
  tglu_mlp_desc *m = &l->mlp.desc;
  tglu_glu_desc *d = &m->glu;
  const int merged = d->layout != TGLU_LAYOUT_SEPARATE;
  const int64_t n = d->intermediate, k = d->hidden, rows = merged ? 2 * n : n;
  const tglu_dtype source = d->dtype;
  const struct {
    const void **pointer;
    int64_t rows, columns, ld;
  } parts[6] = {
    {merged ? &d->gate_up : &d->gate, rows, k, d->ld},
    {&d->up, n, k, d->ld},
    {&m->down, k, n, m->ld_down},
    {merged ? &d->gate_up_bias : &d->gate_bias, 1, rows, 0},
    {&d->up_bias, 1, n, 0},
    {&m->down_bias, 1, k, 0},
  };
  for (int i = 0; i < 6; i++) {
    if (!*parts[i].pointer) continue;
    l->converted[i] = convert(*parts[i].pointer, source, parts[i].rows, parts[i].columns,
                              parts[i].ld, dtype, hot);
    *parts[i].pointer = l->converted[i];
  }
  d->dtype = dtype;
  d->ld = m->ld_down = 0;
}

int layer_load(layer *l, const tglu_model *model, const char *path, int32_t number,
               tglu_dtype dtype, const hot_loops *hot) {
  memset(l, 0, sizeof *l);
  tglu_model_mlp_init(&l->mlp);
  if (tglu_model_layer_mlp(model, number, &l->mlp) != TGLU_OK) {
    char what[32];
    snprintf(what, sizeof what, "layer %d: ", (int)number);
    return cli_file_error(CLI_INPUT, what, path);
  }
  if (dtype && dtype != l->mlp.desc.glu.dtype) convert_layer(l, dtype, hot);
  return CLI_OK;
}

void layer_free(layer *l) {
  for (int i = 0; i < 6; i++) mem_free(l->converted[i]);
  memset(l, 0, sizeof *l);
}
