/* model.safetensors.index.json: which shard holds which tensor.  The index decides:
 * files that it does not name are not read, tensors that it does not name are not
 * seen. */
#include "model_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct parser {
  const char *file;
  tglu__index *index;
  tglu__pair *keys; /* of the index itself, without values */
  size_t key_count, key_capacity;
  bool map_seen;
} parser;

/* A shard is a plain file name in the index's own folder. */
static tglu_status check_shard_name(const parser *p, const char *tensor, const char *shard)
{
  const char *rule = NULL;
  if (shard[0] == '\0') rule = "is empty";
  else if (strchr(shard, '/') || strchr(shard, '\\')) rule = "must not contain a slash";
  else if (strcmp(shard, ".") == 0 || strcmp(shard, "..") == 0) rule = "is a folder";
  if (!rule) return TGLU_OK;
  return tglu__fail(TGLU_ERR_FORMAT, "%s: weight_map: shard name '%s' of tensor '%s' %s",
                    tglu__show_path(p->file).text, tglu__show(shard).text,
                    tglu__show(tensor).text, rule);
}

static tglu_status map_member(void *user, const char *key, tglu__span value)
{
  parser *p = user;
  tglu__index *index = p->index;
  json_t *shard = NULL;
  tglu_status status = tglu__json_load(p->file, "weight_map", value, 1, 0, &shard);
  if (status != TGLU_OK) return status;
  const char *name = json_string_value(shard);
  if (!name) {
    status = tglu__fail(TGLU_ERR_FORMAT, "%s: weight_map: the shard of tensor '%s' must be"
                        " a string", tglu__show_path(p->file).text, tglu__show(key).text);
  } else {
    status = check_shard_name(p, key, name);
  }
  if (status == TGLU_OK
      && !tglu__pairs_add(&index->map, &index->count, &index->capacity, key, name)) {
    status = tglu__no_memory(p->file);
  }
  json_decref(shard);
  return status;
}

static tglu_status ignored_member(const parser *p, tglu__span value)
{
  if (value.length > TGLU__IGNORED_MAX_BYTES) {
    return tglu__fail(TGLU_ERR_FORMAT, "%s: a member beside weight_map takes %zu bytes, the"
                      " limit is %d", tglu__show_path(p->file).text, value.length,
                      TGLU__IGNORED_MAX_BYTES);
  }
  json_t *ignored = NULL;
  tglu_status status = tglu__json_load(p->file, "the index", value, TGLU__CONFIG_MAX_DEPTH,
                                       JSON_DECODE_INT_AS_REAL, &ignored);
  json_decref(ignored);
  return status;
}

static tglu_status duplicate_key(const parser *p, const char *key, const char *where)
{
  return tglu__fail(TGLU_ERR_FORMAT, "%s: duplicate key %s in %s",
                    tglu__show_path(p->file).text, tglu__show(key).text, where);
}

/* The map is refused at its second sight, any other key once all are known. */
static tglu_status index_member(void *user, const char *key, tglu__span value)
{
  parser *p = user;
  if (strcmp(key, "weight_map") == 0) {
    if (p->map_seen) return duplicate_key(p, key, "the index");
    p->map_seen = true;
    return tglu__json_members(p->file, "weight_map", value, 1, map_member, p);
  }
  if (p->key_count == TGLU__IGNORED_MAX_COUNT) {
    return tglu__fail(TGLU_ERR_FORMAT, "%s: more than %d members beside weight_map",
                      tglu__show_path(p->file).text, TGLU__IGNORED_MAX_COUNT);
  }
  if (!tglu__pairs_add(&p->keys, &p->key_count, &p->key_capacity, key, "")) {
    return tglu__no_memory(p->file);
  }
  return ignored_member(p, value);
}

/* Sorts the pairs and refuses a key that is there twice. */
static tglu_status sort_keys(const parser *p, tglu__pair *pairs, size_t count,
                             const char *where)
{
  if (count > 0) qsort(pairs, count, sizeof *pairs, tglu__pair_by_key);
  for (size_t i = 1; i < count; i++) {
    if (strcmp(pairs[i - 1].key, pairs[i].key) == 0) {
      return duplicate_key(p, pairs[i].key, where);
    }
  }
  return TGLU_OK;
}

static tglu_status check_map(const parser *p)
{
  tglu__index *index = p->index;
  if (!p->map_seen) {
    return tglu__fail(TGLU_ERR_FORMAT, "%s: weight_map is missing: this is no index of"
                      " safetensors shards", tglu__show_path(p->file).text);
  }
  if (index->count == 0) {
    return tglu__fail(TGLU_ERR_FORMAT, "%s: weight_map is empty: it names no tensor and no"
                      " shard", tglu__show_path(p->file).text);
  }
  return sort_keys(p, index->map, index->count, "weight_map");
}

tglu_status tglu__index_parse(const char *file, tglu__span text, tglu__index *out)
{
  *out = (tglu__index){0};
  parser p = {.file = file, .index = out};
  tglu_status status = tglu__json_members(file, "the index", text, TGLU__CONFIG_MAX_DEPTH,
                                          index_member, &p);
  if (status == TGLU_OK) status = sort_keys(&p, p.keys, p.key_count, "the index");
  if (status == TGLU_OK) status = check_map(&p);
  tglu__pairs_free(p.keys, p.key_count);
  if (status != TGLU_OK) tglu__index_free(out);
  return status;
}

void tglu__index_free(tglu__index *index)
{
  tglu__pairs_free(index->map, index->count);
  *index = (tglu__index){0};
}

/* ---- opening the shards ---- */
/* Two orders over the map: by tensor (its own) and by shard, as an array of rows. */
static int by_shard(const void *a, const void *b)
{
  const tglu__pair *x = *(tglu__pair *const *)a, *y = *(tglu__pair *const *)b;
  int order = strcmp(x->value, y->value);
  return order ? order : strcmp(x->key, y->key);
}

typedef struct opener {
  const char *path, *folder;
  tglu_model *model;
  tglu__pair **rows;   /* sorted by shard */
  size_t count;
} opener;

/* A tensor that its shard lacks: says which of the shard's names comes nearest. */
static tglu_status lacks(const opener *o, const tglu__pair *row, const tglu__table *table)
{
  const char *near = NULL;
  size_t common = 0;
  for (size_t i = 0; i < table->count; i++) {
    const char *name = table->entries[i].name;
    size_t length = 0;
    while (row->key[length] && row->key[length] == name[length]) length++;
    if (length <= common) continue;
    common = length;
    near = name;
  }
  return tglu__fail(TGLU_ERR_FORMAT, "%s: tensor '%s' is mapped to shard '%s', which lacks"
                    " it%s%s%s", tglu__show_path(o->path).text, tglu__show(row->key).text,
                    tglu__show(row->value).text, near ? "; its nearest name is '" : "",
                    near ? tglu__show(near).text : "", near ? "'" : "");
}

/* Moves what the rows name out of one shard's table into the model's. */
static tglu_status take_tensors(const opener *o, tglu__pair **rows, size_t count,
                                tglu__table *shard, uint32_t file)
{
  tglu__table *table = &o->model->table;
  for (size_t i = 0; i < count; i++) {
    const tglu__entry *found = tglu__table_find(shard, rows[i]->key);
    if (!found) return lacks(o, rows[i], shard);
    tglu__entry entry = *found;
    entry.file = file;
    entry.name = strdup(found->name);
    if (!entry.name || !tglu__table_add(table, &entry)) return tglu__no_memory(o->path);
  }
  for (size_t i = 0; i < shard->metadata_count; i++) {
    const tglu__pair *pair = &shard->metadata[i];
    if (!tglu__pairs_add(&table->metadata, &table->metadata_count,
                         &table->metadata_capacity, pair->key, pair->value)) {
      return tglu__no_memory(o->path);
    }
  }
  return TGLU_OK;
}

static tglu_status open_shard(const opener *o, tglu__pair **rows, size_t count)
{
  tglu_model *model = o->model;
  char *path = tglu__path_join(o->folder, rows[0]->value);
  if (!path) return tglu__no_memory(o->path);
  tglu__table shard = {0};
  tglu_status status = tglu__safetensors_open(path, &model->files[model->file_count], &shard);
  if (status == TGLU_ERR_NOT_FOUND) {
    status = tglu__fail(TGLU_ERR_NOT_FOUND, "%s: shard '%s' does not exist; tensor '%s' is"
                        " mapped to it", tglu__show_path(o->path).text,
                        tglu__show(rows[0]->value).text, tglu__show(rows[0]->key).text);
  }
  free(path);
  if (status != TGLU_OK) return status;
  status = take_tensors(o, rows, count, &shard, (uint32_t)model->file_count);
  model->file_count++;
  tglu__table_free(&shard);
  return status;
}

static size_t run_length(const opener *o, size_t at)
{
  size_t end = at + 1;
  while (end < o->count && strcmp(o->rows[end]->value, o->rows[at]->value) == 0) end++;
  return end - at;
}

/* Metadata of several shards may repeat a key: the first in shard order is kept. */
static void drop_repeated_metadata(tglu__table *table)
{
  size_t kept = 0;
  for (size_t i = 0; i < table->metadata_count; i++) {
    tglu__pair pair = table->metadata[i];
    if (kept > 0 && strcmp(table->metadata[kept - 1].key, pair.key) == 0) {
      free(pair.key);
      free(pair.value);
    } else {
      table->metadata[kept++] = pair;
    }
  }
  table->metadata_count = kept;
}

static tglu_status open_shards(opener *o, const tglu__index *index)
{
  o->count = index->count;
  o->rows = calloc(index->count, sizeof(tglu__pair *));
  if (!o->rows) return tglu__no_memory(o->path);
  for (size_t i = 0; i < index->count; i++) o->rows[i] = &index->map[i];
  qsort(o->rows, o->count, sizeof(tglu__pair *), by_shard);

  size_t shards = 0;
  for (size_t i = 0; i < o->count; i += run_length(o, i)) shards++;
  o->model->files = calloc(shards, sizeof *o->model->files);
  if (!o->model->files) return tglu__no_memory(o->path);
  for (size_t i = 0; i < o->count; i += run_length(o, i)) {
    tglu_status status = open_shard(o, o->rows + i, run_length(o, i));
    if (status != TGLU_OK) return status;
  }
  tglu__table_sort(&o->model->table);
  drop_repeated_metadata(&o->model->table);
  return TGLU_OK;
}

tglu_status tglu__index_open(const char *path, tglu_model *model)
{
  char *text = NULL;
  size_t length = 0;
  tglu_status status = tglu__read_text(path, TGLU__INDEX_MAX_BYTES, &text, &length);
  if (status != TGLU_OK) return status;
  tglu__index index;
  tglu__span span = {text, length};
  status = tglu__index_parse(path, span, &index);
  free(text);
  if (status != TGLU_OK) return status;
  char *folder = tglu__path_folder(path);
  opener o = {.path = path, .folder = folder, .model = model};
  status = folder ? open_shards(&o, &index) : tglu__no_memory(path);
  free(o.rows);
  free(folder);
  tglu__index_free(&index);
  return status;
}
