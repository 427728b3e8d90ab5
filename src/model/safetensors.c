/* safetensors: 8-byte little-endian header length, JSON header, data.
 *
 *   {"name": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}, ...,
 *    "__metadata__": {"key": "text", ...}}
 *
 * Rules checked here, all of them before the first view: the header begins with '{'
 * and lies in the file; every key once; known type, rank <= TGLU_MODEL_MAX_RANK;
 * shape x type == offsets; the tensors cover the data without hole or overlap; the
 * data end where the file ends. */
#include "model_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct type_row {
  const char *name;
  uint32_t bits;
  tglu_dtype dtype;
} type_row;

static const type_row types[] = {
  {"BF16",        16, TGLU_DTYPE_BF16},
  {"F16",         16, TGLU_DTYPE_F16},
  {"F32",         32, TGLU_DTYPE_F32},
  {"F64",         64, 0},
  {"C64",         64, 0},
  {"BOOL",         8, 0},
  {"U8",           8, 0},
  {"I8",           8, 0},
  {"U16",         16, 0},
  {"I16",         16, 0},
  {"U32",         32, 0},
  {"I32",         32, 0},
  {"U64",         64, 0},
  {"I64",         64, 0},
  {"F8_E5M2",      8, 0},
  {"F8_E4M3",      8, 0},
  {"F8_E8M0",      8, 0},
  {"F8_E5M2FNUZ",  8, 0},
  {"F8_E4M3FNUZ",  8, 0},
  {"F6_E2M3",      6, 0},
  {"F6_E3M2",      6, 0},
  {"F4",           4, 0},
};
enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]) };

const char *tglu__safetensors_dtype_name(int32_t row) { return types[row].name; }
tglu_dtype tglu__safetensors_dtype(int32_t row) { return types[row].dtype; }

static int32_t type_from_name(const char *name)
{
  for (int32_t i = 0; i < TYPE_COUNT; i++) {
    if (strcmp(types[i].name, name) == 0) return i;
  }
  return -1;
}

/* ---- the first bytes ---- */
typedef struct magic_row {
  const char *bytes;
  size_t length;
  const char *hint;
} magic_row;

static const magic_row magics[] = {
  {"GGUF",         4, "; it begins like a GGUF file, which tileglu does not read"},
  {"PK\3\4",       4, "; it begins like a zip archive, perhaps a PyTorch .bin or .pt"
                      " file: convert it to safetensors"},
  {"version ",     8, "; it looks like a Git LFS pointer: fetch the real file"},
  {"\x93NUMPY",    6, "; it begins like a NumPy file"},
  {"\x89HDF",      4, "; it begins like an HDF5 file"},
  {"<!DOCTYP",     8, "; it looks like an HTML page, perhaps a failed download"},
  {"<html",        5, "; it looks like an HTML page, perhaps a failed download"},
  {"{",            1, "; it looks like JSON: a safetensors file begins with a length"},
};

static const char *hint_for(const uint8_t *head, size_t length)
{
  if (length >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5) {
    return "; it begins like a Python pickle, perhaps a PyTorch .bin or .pt file:"
           " convert it to safetensors";
  }
  for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
    if (length >= magics[i].length
        && memcmp(head, magics[i].bytes, magics[i].length) == 0) {
      return magics[i].hint;
    }
  }
  return "";
}

tglu_status tglu__safetensors_check_head(const char *file, const uint8_t *head,
                                         uint64_t file_bytes, uint64_t *header_bytes)
{
  const char *hint = hint_for(head, file_bytes < 16 ? (size_t)file_bytes : 16);
  if (file_bytes < 8) {
    return tglu__fail(TGLU_ERR_FORMAT,
                      "%s: %" PRIu64 " bytes, too short for a safetensors file, which"
                      " begins with 8 bytes of header length%s",
                      tglu__show_path(file).text, file_bytes, hint);
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | head[i];
  if (length > file_bytes - 8) {
    return tglu__fail(TGLU_ERR_FORMAT,
                      "%s: header length %" PRIu64 " is beyond the %" PRIu64
                      " bytes that the file of %" PRIu64 " bytes has behind it%s",
                      tglu__show_path(file).text, length, file_bytes - 8, file_bytes, hint);
  }
  if (length > TGLU_SAFETENSORS_MAX_HEADER) {
    return tglu__fail(TGLU_ERR_FORMAT,
                      "%s: header length %" PRIu64 " is above the limit of %d bytes%s",
                      tglu__show_path(file).text, length, TGLU_SAFETENSORS_MAX_HEADER, hint);
  }
  if (length < 2) {
    return tglu__fail(TGLU_ERR_FORMAT,
                      "%s: header length %" PRIu64 " is below 2, the length of {}%s",
                      tglu__show_path(file).text, length, hint);
  }
  if (head[8] != '{') {
    return tglu__fail(TGLU_ERR_FORMAT, "%s: the header begins with byte 0x%02x, not with {%s",
                      tglu__show_path(file).text, head[8], hint);
  }
  *header_bytes = length;
  return TGLU_OK;
}

/* ---- one tensor's entry ---- */
typedef struct parser {
  const char *file;
  tglu__table *table;
  bool metadata_seen;
} parser;

/* A failure of one tensor: "file: tensor 'name': rule". */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static tglu_status entry_fail(const parser *p, const char *name, const char *format, ...)
{
  char rule[384];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(rule, sizeof rule, format, arguments);
  va_end(arguments);
  return tglu__fail(TGLU_ERR_FORMAT, "%s: tensor '%s': %s", tglu__show_path(p->file).text,
                    tglu__show(name).text, rule);
}

/* Non-negative integers of a JSON array; at most `room` of them. */
static tglu_status read_integers(const parser *p, const char *name, const char *key,
                                 const json_t *array, size_t room, int64_t *out)
{
  size_t count = json_array_size(array);
  if (!json_is_array(array)) return entry_fail(p, name, "%s must be an array", key);
  if (count > room) {
    return entry_fail(p, name, "%s has %zu numbers, at most %zu are allowed", key, count,
                      room);
  }
  for (size_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(array, i);
    if (!json_is_integer(item) || json_integer_value(item) < 0) {
      return entry_fail(p, name, "%s must hold integers >= 0, number %zu is none", key,
                        i + 1);
    }
    out[i] = json_integer_value(item);
  }
  return TGLU_OK;
}

/* Bytes of shape x type; false if they overflow or end inside a byte. */
static bool tensor_bytes(const tglu__entry *entry, uint64_t *bytes)
{
  uint64_t bits = types[entry->dtype].bits;
  for (int32_t i = 0; i < entry->rank; i++) {
    if (__builtin_mul_overflow(bits, (uint64_t)entry->shape[i], &bits)) return false;
  }
  *bytes = bits / 8;
  return bits % 8 == 0;
}

static tglu_status check_entry(const parser *p, const char *name,
                               const tglu__entry *entry)
{
  const char *type = types[entry->dtype].name;
  uint64_t bytes = 0;
  if (entry->begin > entry->end) {
    return entry_fail(p, name, "data_offsets [%" PRIu64 ", %" PRIu64
                      "] end before they begin", entry->begin, entry->end);
  }
  if (!tensor_bytes(entry, &bytes)) {
    return entry_fail(p, name, "shape %s x %s is too large or no whole number of"
                      " bytes", tglu__show_shape(entry->shape, entry->rank).text, type);
  }
  if (bytes != entry->end - entry->begin) {
    return entry_fail(p, name, "shape %s x %s takes %" PRIu64 " bytes, data_offsets"
                      " [%" PRIu64 ", %" PRIu64 "] hold %" PRIu64,
                      tglu__show_shape(entry->shape, entry->rank).text, type, bytes,
                      entry->begin, entry->end, entry->end - entry->begin);
  }
  return TGLU_OK;
}

static tglu_status read_entry(const parser *p, const char *name, const json_t *object,
                              tglu__entry *entry)
{
  if (!json_is_object(object)) return entry_fail(p, name, "its entry must be an object");
  const json_t *dtype = json_object_get(object, "dtype");
  const json_t *shape = json_object_get(object, "shape");
  const json_t *offsets = json_object_get(object, "data_offsets");
  if (!dtype || !shape || !offsets || json_object_size(object) != 3) {
    return entry_fail(p, name, "its entry must have exactly the keys dtype, shape and"
                      " data_offsets%s%s", !dtype ? "; dtype is missing" : !shape
                      ? "; shape is missing" : "", !offsets ? "; data_offsets is missing"
                      : "");
  }
  const char *type = json_string_value(dtype);
  if (!type) return entry_fail(p, name, "dtype must be a string");
  entry->dtype = type_from_name(type);
  if (entry->dtype < 0) {
    return entry_fail(p, name, "dtype '%s' is no type of the format", tglu__show(type).text);
  }
  tglu_status status = read_integers(p, name, "shape", shape, TGLU_MODEL_MAX_RANK,
                                     entry->shape);
  if (status != TGLU_OK) return status;
  entry->rank = (int32_t)json_array_size(shape);

  int64_t range[2] = {0, 0};
  status = read_integers(p, name, "data_offsets", offsets, 2, range);
  if (status != TGLU_OK) return status;
  if (json_array_size(offsets) != 2) {
    return entry_fail(p, name, "data_offsets must be two numbers");
  }
  entry->begin = (uint64_t)range[0];
  entry->end = (uint64_t)range[1];
  return check_entry(p, name, entry);
}

/* ---- the table ---- */
/* Makes room for one more; capacity doubles. */
static bool grow(void **items, size_t count, size_t *capacity, size_t item_bytes)
{
  if (count < *capacity) return true;
  size_t more = *capacity ? *capacity * 2 : 16;
  void *grown = reallocarray(*items, more, item_bytes);
  if (!grown) return false;
  *items = grown;
  *capacity = more;
  return true;
}

bool tglu__pairs_add(tglu__pair **pairs, size_t *count, size_t *capacity, const char *key,
                     const char *value)
{
  void *items = *pairs;
  bool room = grow(&items, *count, capacity, sizeof **pairs);
  *pairs = items;
  if (!room) return false;
  tglu__pair pair = {strdup(key), strdup(value)};
  if (!pair.key || !pair.value) {
    free(pair.key);
    free(pair.value);
    return false;
  }
  (*pairs)[(*count)++] = pair;
  return true;
}

void tglu__pairs_free(tglu__pair *pairs, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    free(pairs[i].key);
    free(pairs[i].value);
  }
  free(pairs);
}

int tglu__pair_by_key(const void *a, const void *b)
{
  return strcmp(((const tglu__pair *)a)->key, ((const tglu__pair *)b)->key);
}

/* Takes over entry->name, whether or not it succeeds. */
bool tglu__table_add(tglu__table *table, const tglu__entry *entry)
{
  void *items = table->entries;
  bool room = grow(&items, table->count, &table->capacity, sizeof *entry);
  table->entries = items;
  if (room) table->entries[table->count++] = *entry;
  else free(entry->name);
  return room;
}

static int entry_by_name(const void *a, const void *b)
{
  return strcmp(((const tglu__entry *)a)->name, ((const tglu__entry *)b)->name);
}

static int entry_by_place(const void *a, const void *b)
{
  const tglu__entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return strcmp(x->name, y->name);
}

void tglu__table_sort(tglu__table *table)
{
  if (table->count > 1) {
    qsort(table->entries, table->count, sizeof *table->entries, entry_by_name);
  }
  if (table->metadata_count > 1) {
    qsort(table->metadata, table->metadata_count, sizeof *table->metadata,
          tglu__pair_by_key);
  }
}

size_t tglu__table_lower_bound(const tglu__table *table, const char *name)
{
  size_t low = 0, high = table->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(table->entries[middle].name, name) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

const tglu__entry *tglu__table_find(const tglu__table *table, const char *name)
{
  size_t at = tglu__table_lower_bound(table, name);
  if (at == table->count || strcmp(table->entries[at].name, name) != 0) return NULL;
  return &table->entries[at];
}

const tglu__pair *tglu__table_find_metadata(const tglu__table *table, const char *key)
{
  tglu__pair wanted = {.key = (char *)(uintptr_t)key};
  if (table->metadata_count == 0) return NULL;
  return bsearch(&wanted, table->metadata, table->metadata_count, sizeof wanted,
                 tglu__pair_by_key);
}

void tglu__table_free(tglu__table *table)
{
  for (size_t i = 0; i < table->count; i++) free(table->entries[i].name);
  free(table->entries);
  tglu__pairs_free(table->metadata, table->metadata_count);
  *table = (tglu__table){0};
}

/* ---- the header ---- */
static tglu_status metadata_member(void *user, const char *key, tglu__span value)
{
  const parser *p = user;
  tglu__table *table = p->table;
  json_t *text = NULL;
  tglu_status status = tglu__json_load(p->file, "__metadata__", value, 1, 0, &text);
  if (status != TGLU_OK) return status;
  if (!json_is_string(text)) {
    status = tglu__fail(TGLU_ERR_FORMAT, "%s: __metadata__: the value of '%s' must be a"
                        " string", tglu__show_path(p->file).text, tglu__show(key).text);
  } else if (!tglu__pairs_add(&table->metadata, &table->metadata_count,
                              &table->metadata_capacity, key, json_string_value(text))) {
    status = tglu__no_memory(p->file);
  }
  json_decref(text);
  return status;
}

static tglu_status duplicate_key(const parser *p, const char *key, const char *where)
{
  return tglu__fail(TGLU_ERR_FORMAT, "%s: duplicate key %s in %s",
                    tglu__show_path(p->file).text, tglu__show(key).text, where);
}

static tglu_status header_member(void *user, const char *key, tglu__span value)
{
  parser *p = user;
  if (strcmp(key, "__metadata__") == 0) {
    if (p->metadata_seen) return duplicate_key(p, key, "the header");
    p->metadata_seen = true;
    return tglu__json_members(p->file, "__metadata__", value, 1, metadata_member, p);
  }
  if (value.length > TGLU__ENTRY_MAX_BYTES) {
    return entry_fail(p, key, "its entry takes %zu bytes of JSON, the limit is %d",
                      value.length, TGLU__ENTRY_MAX_BYTES);
  }
  json_t *object = NULL;
  tglu_status status = tglu__json_load(p->file, "the header", value,
                                       TGLU__HEADER_MAX_DEPTH - 1, 0, &object);
  tglu__entry entry = {0};
  if (status == TGLU_OK) status = read_entry(p, key, object, &entry);
  json_decref(object);
  if (status != TGLU_OK) return status;
  entry.name = strdup(key);
  if (!entry.name || !tglu__table_add(p->table, &entry)) return tglu__no_memory(p->file);
  return TGLU_OK;
}

static tglu_status check_unique(const parser *p)
{
  const tglu__table *t = p->table;
  for (size_t i = 1; i < t->count; i++) {
    if (strcmp(t->entries[i - 1].name, t->entries[i].name) == 0) {
      return duplicate_key(p, t->entries[i].name, "the header");
    }
  }
  for (size_t i = 1; i < t->metadata_count; i++) {
    if (strcmp(t->metadata[i - 1].key, t->metadata[i].key) == 0) {
      return duplicate_key(p, t->metadata[i].key, "__metadata__");
    }
  }
  return TGLU_OK;
}

/* Entries sorted by place must follow one another from 0 to the end of the data. */
static tglu_status check_cover(const parser *p, uint64_t data_bytes, uint64_t data_at)
{
  const tglu__table *t = p->table;
  uint64_t end = 0;
  for (size_t i = 0; i < t->count; i++) {
    const tglu__entry *entry = &t->entries[i];
    if (entry->begin < end) {
      return entry_fail(p, entry->name, "data_offsets [%" PRIu64 ", %" PRIu64 "] overlap"
                        " tensor '%s' at [%" PRIu64 ", %" PRIu64 "]", entry->begin,
                        entry->end, tglu__show(entry[-1].name).text, entry[-1].begin,
                        entry[-1].end);
    }
    if (entry->begin > end) {
      return entry_fail(p, entry->name, "data_offsets begin at %" PRIu64 ": the bytes from"
                        " %" PRIu64 " up to there belong to no tensor", entry->begin, end);
    }
    end = entry->end;
  }
  if (end == data_bytes) return TGLU_OK;
  return tglu__fail(TGLU_ERR_FORMAT,
                    "%s: %s: the header describes a file of %" PRIu64 " bytes (%" PRIu64
                    " of data), the file has %" PRIu64 "%s%s%s",
                    tglu__show_path(p->file).text,
                    end > data_bytes ? "cut short" : "too long", data_at + end, end,
                    data_at + data_bytes, end > data_bytes ? "; tensor '" : "",
                    end > data_bytes ? tglu__show(t->entries[t->count - 1].name).text : "",
                    end > data_bytes ? "' is the last" : "");
}

tglu_status tglu__safetensors_parse(const char *file, tglu__span header,
                                    uint64_t data_bytes, tglu__table *out)
{
  *out = (tglu__table){0};
  parser p = {.file = file, .table = out};
  tglu_status status = tglu__json_members(file, "the header", header,
                                          TGLU__HEADER_MAX_DEPTH - 1, header_member, &p);
  if (status == TGLU_OK) {
    tglu__table_sort(out);
    status = check_unique(&p);
  }
  if (status == TGLU_OK) {
    if (out->count > 1) {
      qsort(out->entries, out->count, sizeof *out->entries, entry_by_place);
    }
    status = check_cover(&p, data_bytes, 8 + header.length);
    tglu__table_sort(out);
  }
  if (status != TGLU_OK) tglu__table_free(out);
  return status;
}

tglu_status tglu__safetensors_open(const char *path, tglu__file *file, tglu__table *out)
{
  *out = (tglu__table){0};
  tglu_status status = tglu__file_open(path, file);
  if (status != TGLU_OK) return status;
  uint8_t head[16] = {0};
  uint64_t header_bytes = 0;
  char *header = NULL;
  status = tglu__file_read(file, 0, head, file->bytes < 16 ? (size_t)file->bytes : 16);
  if (status == TGLU_OK) {
    status = tglu__safetensors_check_head(path, head, file->bytes, &header_bytes);
  }
  if (status == TGLU_OK) {
    file->data_at = 8 + header_bytes;
    header = malloc((size_t)header_bytes);
    status = header ? tglu__file_read(file, 8, header, (size_t)header_bytes)
                    : tglu__no_memory(path);
  }
  if (status == TGLU_OK) {
    tglu__span span = {header, (size_t)header_bytes};
    status = tglu__safetensors_parse(path, span, file->bytes - file->data_at, out);
  }
  free(header);
  if (status == TGLU_OK) status = tglu__file_map(file);
  if (status != TGLU_OK) {
    tglu__table_free(out);
    tglu__file_close(file);
  }
  return status;
}
