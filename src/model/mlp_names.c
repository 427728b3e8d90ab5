/* From tensor names to the MLP of a layer.  Names match whole, piece by piece; no
 * substring ever decides.  A name is
 *
 *     <scheme with the layer's number><container><weight>.weight or .bias
 *     model.layers.3.                 mlp.       gate_proj.weight
 *
 * Every tensor in the container must be one that the family knows: one that is not
 * could change the result, so it is refused and not ignored. */
#include "model_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text before the layer's number. */
static const char *const schemes[] = {
  "model.layers.",
  "layers.",
  "transformer.h.",
  "transformer.layers.",
  "language_model.model.layers.",
  "language_model.layers.",
  "model.language_model.layers.",
  "model.language_model.model.layers.",
  "model.text_model.layers.",
  "thinker.model.layers.",
};
enum { SCHEME_COUNT = sizeof schemes / sizeof schemes[0] };

/* The first TGLU__CONTAINERS hold families; those after them only say that the layer
 * has an MLP, which is then refused. */
enum { IN_MLP, IN_FEED_FORWARD, IN_SHARED_MLP };
static const char *const containers[] = {
  "mlp.", "feed_forward.", "shared_mlp.",
  "block_sparse_moe.", "experts.", "moe.", "ffn.",
};
enum { CONTAINER_COUNT = sizeof containers / sizeof containers[0] };

static const tglu__family families[] = {
  {.name = "gate_proj/up_proj/down_proj", .container = IN_MLP,
   .gate = "gate_proj", .up = "up_proj", .down = "down_proj",
   .intermediate_key = "intermediate_size", .intermediate_factor = 1},
  {.name = "gate_up_proj", .container = IN_MLP,
   .gate_up = "gate_up_proj", .down = "down_proj",
   .intermediate_key = "intermediate_size", .intermediate_factor = 1},
  {.name = "w1/w2/c_proj", .container = IN_MLP,
   .gate = "w2", .up = "w1", .down = "c_proj", .activation = "silu",
   .intermediate_key = "intermediate_size", .intermediate_factor = 2},
  {.name = "w1/w3/w2", .container = IN_FEED_FORWARD,
   .gate = "w1", .up = "w3", .down = "w2"},
  {.name = "gate_proj/up_proj/down_proj", .container = IN_FEED_FORWARD,
   .gate = "gate_proj", .up = "up_proj", .down = "down_proj"},
  {.name = "input_linear", .container = IN_SHARED_MLP,
   .gate_up = "input_linear", .down = "output_linear",
   .intermediate_key = "shared_intermediate_size", .intermediate_factor = 1},
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

/* Beginnings, after the layer's prefix, that mean a mixture of experts. */
static const char *const expert_names[] = {
  "mlp.experts.", "mlp.expert.", "mlp.shared_expert.", "mlp.shared_experts.",
  "mlp.shared_expert_gate.", "mlp.gate.", "mlp.router.", "mlp.moe_statics.",
  "feed_forward.experts.", "feed_forward.shared_expert.", "feed_forward.router.",
  "feed_forward.gate.", "feed_forward.expert_bias", "block_sparse_moe.", "experts.",
  "router.", "moe.", "ffn.experts.", "ffn.router.",
};

/* Last pieces of a name that mean a quantised weight. */
static const char *const quantised_names[] = {
  "qweight", "qzeros", "g_idx", "scales", "weight_scale", "weight_scale_inv",
  "weight_scale_2", "weight_global_scale", "input_scale", "input_global_scale",
  "weight_packed", "weight_shape", "weight_zero_point", "weight_g_idx", "absmax",
  "quant_map", "nested_absmax", "nested_quant_map", "bitsandbytes__nf4",
  "bitsandbytes__fp4", "SCB", "weight_format", "weight_blocks", "weight_scales",
};

static bool begins_with(const char *text, const char *head)
{
  return strncmp(text, head, strlen(head)) == 0;
}

static bool in_list(const char *const *list, size_t count, const char *text, bool whole)
{
  for (size_t i = 0; i < count; i++) {
    if (whole ? strcmp(text, list[i]) == 0 : begins_with(text, list[i])) return true;
  }
  return false;
}

static bool is_expert(const char *rest)
{
  return in_list(expert_names, sizeof expert_names / sizeof expert_names[0], rest, false);
}

static bool is_quantised(const char *name)
{
  const char *dot = strrchr(name, '.');
  return in_list(quantised_names, sizeof quantised_names / sizeof quantised_names[0],
                 dot ? dot + 1 : name, true);
}

/* ---- listing the layers ---- */
/* Number written without sign or leading zero, of at most 9 digits, then a dot; the
 * text behind the dot, or NULL. */
static const char *parse_number(const char *text, int32_t *number)
{
  int32_t value = 0;
  int digits = 0;
  while (text[digits] >= '0' && text[digits] <= '9') {
    if (digits == 9 || (digits == 1 && value == 0)) return NULL;
    value = value * 10 + (text[digits++] - '0');
  }
  if (digits == 0 || text[digits] != '.') return NULL;
  *number = value;
  return text + digits + 1;
}

typedef struct place {
  int32_t scheme, layer, container;
  size_t prefix_length; /* of scheme, number and container */
} place;

/* False for a name that is no part of a layer's MLP. */
static bool parse_name(const char *name, place *out)
{
  for (int32_t s = 0; s < SCHEME_COUNT; s++) {
    if (!begins_with(name, schemes[s])) continue;
    const char *rest = parse_number(name + strlen(schemes[s]), &out->layer);
    if (!rest) continue;
    for (int32_t c = 0; c < CONTAINER_COUNT; c++) {
      if (!begins_with(rest, containers[c])) continue;
      out->scheme = s;
      out->container = c;
      out->prefix_length = (size_t)(rest - name) + strlen(containers[c]);
      return true;
    }
  }
  return false;
}

typedef struct lister {
  tglu_model *model;
  size_t capacity;
} lister;

static bool add_layer(lister *l, const place *at)
{
  tglu_model *model = l->model;
  if (model->layer_count == l->capacity) {
    size_t more = l->capacity ? l->capacity * 2 : 64;
    tglu__layer *grown = reallocarray(model->layers, more, sizeof *grown);
    if (!grown) return false;
    model->layers = grown;
    l->capacity = more;
  }
  model->layers[model->layer_count++] =
      (tglu__layer){.layer = at->layer, .scheme = at->scheme};
  return true;
}

/* Names come sorted, so those of one layer follow one another. */
static bool note_name(lister *l, const char *name)
{
  tglu_model *model = l->model;
  place at;
  if (!parse_name(name, &at)) return true;
  tglu__layer *last = model->layer_count ? &model->layers[model->layer_count - 1] : NULL;
  if (!last || last->layer != at.layer || last->scheme != at.scheme) {
    if (!add_layer(l, &at)) return false;
    last = &model->layers[model->layer_count - 1];
  }
  if (at.container >= TGLU__CONTAINERS || last->prefix[at.container]) return true;
  last->prefix[at.container] = strndup(name, at.prefix_length);
  return last->prefix[at.container] != NULL;
}

static int layer_order(const void *a, const void *b)
{
  const tglu__layer *x = a, *y = b;
  if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
  return x->scheme - y->scheme;
}

/* One record per layer and scheme: aliases may have brought a second. */
static void merge_layers(tglu_model *model)
{
  size_t kept = 0;
  for (size_t i = 0; i < model->layer_count; i++) {
    tglu__layer *next = &model->layers[i];
    tglu__layer *last = kept ? &model->layers[kept - 1] : NULL;
    if (!last || layer_order(last, next) != 0) {
      if (!last || last->layer != next->layer) model->layer_numbers++;
      model->layers[kept++] = *next;
      continue;
    }
    for (int c = 0; c < TGLU__CONTAINERS; c++) {
      if (!last->prefix[c]) last->prefix[c] = next->prefix[c];
      else free(next->prefix[c]);
    }
  }
  model->layer_count = kept;
}

tglu_status tglu__find_layers(tglu_model *model)
{
  lister l = {.model = model};
  bool room = true;
  const tglu__table *table = &model->table;
  for (size_t i = 0; room && i < table->count; i++) {
    room = note_name(&l, table->entries[i].name);
  }
  for (size_t i = 0; room && i < table->metadata_count; i++) {
    if (tglu__table_find(table, table->metadata[i].value)) {
      room = note_name(&l, table->metadata[i].key);
    }
  }
  if (!room) return tglu__no_memory("model");
  if (model->layer_count > 1) {
    qsort(model->layers, model->layer_count, sizeof *model->layers, layer_order);
  }
  merge_layers(model);
  return TGLU_OK;
}

/* The first member of __metadata__ whose key is not below `key`. */
static size_t first_alias(const tglu__table *table, const char *key)
{
  size_t low = 0, high = table->metadata_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(table->metadata[middle].key, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

void tglu__each_name(const tglu_model *model, const char *prefix, tglu__name_fn fn,
                     void *user)
{
  const tglu__table *table = &model->table;
  for (size_t i = tglu__table_lower_bound(table, prefix); i < table->count; i++) {
    const tglu__entry *entry = &table->entries[i];
    if (!begins_with(entry->name, prefix) || !fn(user, entry->name, entry)) break;
  }
  for (size_t i = first_alias(table, prefix); i < table->metadata_count; i++) {
    const tglu__pair *pair = &table->metadata[i];
    if (!begins_with(pair->key, prefix)) break;
    if (tglu__table_find(table, pair->key)) continue;
    const tglu__entry *entry = tglu__table_find(table, pair->value);
    if (entry && !fn(user, pair->key, entry)) break;
  }
}

/* ---- matching one layer ---- */
static bool is_weight(const char *rest, const char *weight)
{
  size_t length = strlen(weight);
  return strncmp(rest, weight, length) == 0
         && (strcmp(rest + length, ".weight") == 0 || strcmp(rest + length, ".bias") == 0);
}

/* Whether the family has a tensor of that name; rest follows the container. */
static bool family_knows(const tglu__family *f, const char *rest)
{
  const char *const weights[] = {f->gate, f->up, f->gate_up, f->down};
  for (int i = 0; i < 4; i++) {
    if (weights[i] && is_weight(rest, weights[i])) return true;
  }
  return false;
}

static bool has_weight(const tglu_model *model, const char *prefix, const char *weight)
{
  char name[256];
  int length = snprintf(name, sizeof name, "%s%s.weight", prefix, weight);
  return length > 0 && (size_t)length < sizeof name && tglu__model_lookup(model, name);
}

/* How many of the family's weights are there; *missing names one that is not. */
static int count_weights(const tglu_model *model, const tglu__family *f,
                         const char *prefix, const char **missing)
{
  const char *const weights[] = {f->gate, f->up, f->gate_up, f->down};
  int found = 0;
  *missing = NULL;
  for (int i = 0; i < 4; i++) {
    if (!weights[i]) continue;
    if (has_weight(model, prefix, weights[i])) found++;
    else *missing = weights[i];
  }
  return found;
}

/* First name below a layer that a test picks, and all of the MLP for a message. */
typedef struct search {
  const char *prefix;
  bool (*test)(const char *rest);
  const tglu__family *family; /* pick what it does not know; else use test */
  const char *name;
  const tglu__entry *entry;
} search;

static bool search_name(void *user, const char *name, const tglu__entry *entry)
{
  search *s = user;
  const char *rest = name + strlen(s->prefix);
  bool picked = s->test ? s->test(rest) : !family_knows(s->family, rest);
  if (!picked) return true;
  s->name = name;
  s->entry = entry;
  return false;
}

static tglu_status refuse_experts(const search *s)
{
  return tglu__fail(TGLU_ERR_UNSUPPORTED, "tensor '%s' (%s %s): the layer is a mixture of"
                    " experts, tileglu runs one dense MLP%s", tglu__show(s->name).text,
                    tglu__safetensors_dtype_name(s->entry->dtype),
                    tglu__show_shape(s->entry->shape, s->entry->rank).text,
                    strstr(s->name, ".experts.gate_up_proj")
                    ? "; these experts are stored input-by-output, all in one tensor" : "");
}

static tglu_status refuse_quantised(const search *s)
{
  return tglu__fail(TGLU_ERR_UNSUPPORTED, "tensor '%s' (%s %s): the layer is quantised,"
                    " tileglu reads BF16, F16 and F32 weights", tglu__show(s->name).text,
                    tglu__safetensors_dtype_name(s->entry->dtype),
                    tglu__show_shape(s->entry->shape, s->entry->rank).text);
}

/* The layer's one record; several prefixes with the same number are ambiguous. */
static tglu_status find_layer(const tglu_model *model, int32_t layer,
                              const tglu__layer **out)
{
  const tglu__layer *found = NULL;
  for (size_t i = 0; i < model->layer_count; i++) {
    const tglu__layer *l = &model->layers[i];
    if (l->layer != layer) continue;
    if (found) {
      return tglu__fail(TGLU_ERR_UNSUPPORTED, "layer %" PRId32 " is there twice, as"
                        " %s%" PRId32 " and %s%" PRId32, layer, schemes[found->scheme],
                        layer, schemes[l->scheme], layer);
    }
    found = l;
  }
  *out = found;
  if (found) return TGLU_OK;
  if (model->layer_numbers == 0) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "model.layers.%" PRId32 ".mlp.gate_proj.weight", layer);
    return tglu__model_missing(model, wanted);
  }
  return tglu__fail(TGLU_ERR_NOT_FOUND, "layer %" PRId32 " has no MLP: the model has %"
                    PRId32 " layers with one, from %" PRId32 " to %" PRId32, layer,
                    model->layer_numbers, model->layers[0].layer,
                    model->layers[model->layer_count - 1].layer);
}

typedef struct listing {
  char text[560];
  size_t at;
  int count;
} listing;

static bool list_name(void *user, const char *name, const tglu__entry *entry)
{
  (void)entry;
  listing *l = user;
  place at;
  if (!parse_name(name, &at)) return true;
  if (l->count++ == 5) return false;
  l->at += (size_t)snprintf(l->text + l->at, sizeof l->text - l->at, "%s'%s'",
                            l->count > 1 ? ", " : "", tglu__show(name).text);
  return true;
}

/* No family is whole: the closest one's missing tensor, and what is there. */
static tglu_status unknown_family(const tglu_model *model, const tglu__layer *l,
                                  const char *base)
{
  int best = 0;
  char missing[160] = "";
  for (int i = 0; i < FAMILY_COUNT; i++) {
    const tglu__family *f = &families[i];
    const char *prefix = l->prefix[f->container], *weight = NULL;
    int found = prefix ? count_weights(model, f, prefix, &weight) : 0;
    if (found <= best) continue;
    char name[256];
    snprintf(name, sizeof name, "%s%s.weight", prefix, weight);
    if (tglu__table_find_metadata(&model->table, name)) {
      return tglu__model_missing(model, name);
    }
    best = found;
    snprintf(missing, sizeof missing, "; for %s '%s%s.weight' is missing", f->name,
             tglu__show(prefix).text, weight);
  }
  listing names = {.at = 0};
  tglu__each_name(model, base, list_name, &names);
  return tglu__fail(TGLU_ERR_NOT_FOUND, "layer %" PRId32 ": its MLP's names are of no known"
                    " family%s; it has %s%s", l->layer, missing, names.text,
                    names.count > 5 ? ", ..." : "");
}

/* The one whole family of the layer. */
static tglu_status pick_family(const tglu_model *model, const tglu__layer *l,
                               const char *base, const tglu__family **out)
{
  *out = NULL;
  for (int i = 0; i < FAMILY_COUNT; i++) {
    const tglu__family *f = &families[i];
    const char *missing = NULL;
    if (!l->prefix[f->container]) continue;
    if (count_weights(model, f, l->prefix[f->container], &missing) == 0 || missing) continue;
    if (*out) {
      return tglu__fail(TGLU_ERR_FORMAT, "layer %" PRId32 " has two MLPs: %s%s and %s%s",
                        l->layer, containers[(*out)->container], (*out)->name,
                        containers[f->container], f->name);
    }
    *out = f;
  }
  return *out ? TGLU_OK : unknown_family(model, l, base);
}

/* Everything in the layer's containers must belong to the family. */
static tglu_status check_rest(const tglu_model *model, const tglu__layer *l,
                              const tglu__family *f)
{
  static const tglu__family none = {0};
  for (int c = 0; c < TGLU__CONTAINERS; c++) {
    if (!l->prefix[c]) continue;
    search s = {.prefix = l->prefix[c], .family = c == f->container ? f : &none};
    tglu__each_name(model, l->prefix[c], search_name, &s);
    if (s.name) {
      return tglu__fail(TGLU_ERR_UNSUPPORTED, "tensor '%s' is no part of a %s MLP: what it"
                        " does is not known, and it is not ignored",
                        tglu__show(s.name).text, f->name);
    }
  }
  return TGLU_OK;
}

tglu_status tglu__match_family(const tglu_model *model, int32_t layer,
                               const tglu__family **family, const char **prefix)
{
  const tglu__layer *l = NULL;
  tglu_status status = find_layer(model, layer, &l);
  if (status != TGLU_OK) return status;
  char base[64];
  snprintf(base, sizeof base, "%s%" PRId32 ".", schemes[l->scheme], layer);

  search experts = {.prefix = base, .test = is_expert};
  tglu__each_name(model, base, search_name, &experts);
  if (experts.name) return refuse_experts(&experts);
  for (int c = 0; c < TGLU__CONTAINERS; c++) {
    if (!l->prefix[c]) continue;
    search quantised = {.prefix = l->prefix[c], .test = is_quantised};
    tglu__each_name(model, l->prefix[c], search_name, &quantised);
    if (quantised.name) return refuse_quantised(&quantised);
  }
  status = pick_family(model, l, base, family);
  if (status == TGLU_OK) status = check_rest(model, l, *family);
  if (status == TGLU_OK) *prefix = l->prefix[(*family)->container];
  return status;
}
