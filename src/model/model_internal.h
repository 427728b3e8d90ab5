/* What the files of src/model share.  Private.
 *
 * Trust: every byte of a model file is somebody else's.  No allocation is sized by
 * a number read from a file before that number was checked against the file's real
 * size; headers are read with pread (never through the mapping), so a file that
 * shrinks meanwhile is an error, not a signal. */
#ifndef TGLU_MODEL_INTERNAL_H
#define TGLU_MODEL_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <tileglu/model.h>

#include "internal.h"

/* ---- limits ---- */
enum {
  TGLU__ENTRY_MAX_BYTES = 64 * 1024,        /* JSON text of one tensor's entry    */
  TGLU__IGNORED_MAX_BYTES = 1024 * 1024,    /* an index member that is not used   */
  TGLU__IGNORED_MAX_COUNT = 4096,           /* such members of one index          */
  TGLU__CONFIG_MAX_BYTES = 4 * 1024 * 1024,
  TGLU__INDEX_MAX_BYTES = 100 * 1000 * 1000,
  TGLU__CONFIG_MAX_DEPTH = 64,
  TGLU__HEADER_MAX_DEPTH = 4                /* the format needs 3                 */
};

/* ---- text for messages (text.c) ---- */
/* A name or path made safe for a message: control bytes replaced, at most 95
 * bytes, cut at a character.  Lives to the end of the full expression. */
typedef struct tglu__shown { char text[112]; } tglu__shown;
tglu__shown tglu__show(const char *name);       /* keeps the head                  */
tglu__shown tglu__show_path(const char *path);  /* keeps the tail                  */
tglu__shown tglu__show_shape(const int64_t *shape, int32_t rank); /* "[3, 2]"      */

tglu_status tglu__no_memory(const char *file);

/* ---- JSON (json.c) ---- */
/* Bytes of a JSON text, not terminated. */
typedef struct tglu__span { const char *at; size_t length; } tglu__span;

/* Called for each member of an object, in order.  `key` is decoded, NUL-terminated
 * and free of other NULs; both live during the call only.  `value` is not yet
 * checked beyond its extent: load it with tglu__json_load. */
typedef tglu_status (*tglu__member_fn)(void *user, const char *key, tglu__span value);

/* Walks the object that `text` holds, with nothing but whitespace around it, in
 * memory that does not grow with it.  The first failure ends the walk.  `file` and
 * `what` ("header", "weight_map", ...) go into messages. */
tglu_status tglu__json_members(const char *file, const char *what, tglu__span text,
                               int max_depth, tglu__member_fn fn, void *user);

/* Parses one whole JSON value of at most max_depth levels; duplicate keys are
 * refused by name.  `flags` are Jansson's decoding flags.  *out is owned by the
 * caller (json_decref). */
tglu_status tglu__json_load(const char *file, const char *what, tglu__span text,
                            int max_depth, size_t flags, json_t **out);

/* ---- one opened file (file.c) ---- */
typedef struct tglu__file {
  char *path;          /* owned                                                    */
  int fd;              /* -1 where the bytes are the caller's                      */
  const uint8_t *map;  /* whole file; NULL until mapped                            */
  uint64_t bytes;      /* size when opened                                         */
  uint64_t data_at;    /* where the tensors' data begins (safetensors)             */
} tglu__file;

/* Regular files only; never blocks on a FIFO.  A missing file is TGLU_ERR_NOT_FOUND. */
tglu_status tglu__file_open(const char *path, tglu__file *out);
tglu_status tglu__file_map(tglu__file *file);
void tglu__file_close(tglu__file *file);
/* Exactly `bytes` bytes at `at`, or an error. */
tglu_status tglu__file_read(const tglu__file *file, uint64_t at, void *out, size_t bytes);
/* Fails if the size is no longer what it was at open. */
tglu_status tglu__file_recheck(const tglu__file *file);
/* The whole of a text file no larger than `limit`; *out is malloc'ed. */
tglu_status tglu__read_text(const char *path, size_t limit, char **out, size_t *length);
/* folder + "/" + name, malloc'ed; NULL without memory. */
char *tglu__path_join(const char *folder, const char *name);
/* The folder of a path ("." if it names none), malloc'ed; NULL without memory. */
char *tglu__path_folder(const char *path);

/* ---- safetensors (safetensors.c) ---- */
typedef struct tglu__entry {
  char *name;          /* owned                                                    */
  int32_t dtype;       /* row of the type table                                    */
  int32_t rank;
  int64_t shape[TGLU_MODEL_MAX_RANK];
  uint64_t begin, end; /* bytes in the data section                                */
  uint32_t file;       /* which of the model's files                               */
} tglu__entry;

/* One member of __metadata__; a tied tensor is kept there as name -> kept name. */
typedef struct tglu__pair { char *key, *value; } tglu__pair;

typedef struct tglu__table {
  tglu__entry *entries; /* sorted by name once parsed                              */
  size_t count, capacity;
  tglu__pair *metadata; /* sorted by key once parsed                               */
  size_t metadata_count, metadata_capacity;
} tglu__table;

const char *tglu__safetensors_dtype_name(int32_t row);
tglu_dtype tglu__safetensors_dtype(int32_t row); /* 0 where tileglu has none */

/* Checks the 8-byte length and the byte behind it.  `head` holds min(file_bytes, 16)
 * bytes.  *header_bytes is then safe to allocate. */
tglu_status tglu__safetensors_check_head(const char *file, const uint8_t *head,
                                         uint64_t file_bytes, uint64_t *header_bytes);
/* Parses and validates a header whole against the bytes that follow it. */
tglu_status tglu__safetensors_parse(const char *file, tglu__span header,
                                    uint64_t data_bytes, tglu__table *out);
/* Opens, parses and maps a file. */
tglu_status tglu__safetensors_open(const char *path, tglu__file *file, tglu__table *out);
void tglu__table_free(tglu__table *table);
/* Adds *entry and takes its name over, also when it fails for want of memory. */
bool tglu__table_add(tglu__table *table, const tglu__entry *entry);
/* By name and by key; find and lower_bound need it. */
void tglu__table_sort(tglu__table *table);
/* Lists of pairs: copies of key and value; false without memory. */
bool tglu__pairs_add(tglu__pair **pairs, size_t *count, size_t *capacity, const char *key,
                     const char *value);
void tglu__pairs_free(tglu__pair *pairs, size_t count);
int tglu__pair_by_key(const void *a, const void *b); /* for qsort and bsearch */
/* Entry of that exact name; NULL if none. */
const tglu__entry *tglu__table_find(const tglu__table *table, const char *name);
const tglu__pair *tglu__table_find_metadata(const tglu__table *table, const char *key);
/* Index of the first entry whose name is not below `name`. */
size_t tglu__table_lower_bound(const tglu__table *table, const char *name);

/* ---- index (index.c) ---- */
typedef struct tglu__index {
  tglu__pair *map;     /* tensor -> shard, sorted by tensor                        */
  size_t count, capacity;
} tglu__index;
tglu_status tglu__index_parse(const char *file, tglu__span text, tglu__index *out);
void tglu__index_free(tglu__index *index);
/* Opens every shard that the index names and keeps the tensors that it maps. */
tglu_status tglu__index_open(const char *path, struct tglu_model *model);

/* ---- config.json (config.c) ---- */
typedef struct tglu__config {
  char *path;          /* owned; NULL if there is no config                        */
  json_t *root, *text; /* text: its text_config or NULL                            */
} tglu__config;
tglu_status tglu__config_parse(const char *path, tglu__span text, tglu__config *out);
void tglu__config_free(tglu__config *config);
/* Value of key in text_config, else at the top level; NULL if absent or null. */
const json_t *tglu__config_get(const tglu__config *config, const char *key);
/* The activation that text_config names, else the top level.  Fails where none, an
 * unknown one or two that differ are named; the source sentence goes to `source`. */
tglu_status tglu__config_activation(const tglu__config *config, tglu_glu_desc *desc,
                                    char *source, size_t source_bytes);
/* True if the config has a key that names an activation. */
bool tglu__config_has_activation(const tglu__config *config);

/* ---- the model (model.c) ---- */
/* Folders below a layer in which an MLP's tensors lie: the supported first. */
enum { TGLU__CONTAINERS = 3 };

typedef struct tglu__layer {
  int32_t layer;
  int32_t scheme;                   /* row of the layer-name table                 */
  char *prefix[TGLU__CONTAINERS];   /* "model.layers.3.mlp." where seen, else NULL */
} tglu__layer;

struct tglu_model {
  tglu__file *files;
  size_t file_count;
  tglu__table table;
  tglu__config config;
  tglu__layer *layers;              /* sorted by number, then scheme               */
  size_t layer_count;
  int32_t layer_numbers;            /* distinct ones                               */
  char option_activation[32];       /* "" if not given                             */
  char activation_source[192];
};

/* Exact name, or a tied tensor's through __metadata__; NULL if none. */
const tglu__entry *tglu__model_lookup(const tglu_model *model, const char *name);
/* Fails with TGLU_ERR_NOT_FOUND, the alias that leads nowhere or near names. */
tglu_status tglu__model_missing(const tglu_model *model, const char *name);
/* Rechecks the file and gives the address. */
tglu_status tglu__model_data(const tglu_model *model, const tglu__entry *entry,
                             const void **data);
/* Finishes a model whose files, table and config are set: layers, activation. */
tglu_status tglu__model_finish(tglu_model *model, const char *option_activation);
void tglu__model_free(tglu_model *model);

/* ---- MLP names (mlp_names.c) and binding (mlp_bind.c) ---- */
typedef struct tglu__family {
  const char *name;
  int32_t container;          /* index of the folder: mlp., feed_forward., ...     */
  const char *gate, *up;      /* separate                                          */
  const char *gate_up;        /* or stacked, gate rows first                       */
  const char *down;
  const char *activation;     /* fixed by the architecture, or NULL: from config   */
  const char *intermediate_key; /* config key, NULL: not checked                   */
  int64_t intermediate_factor;  /* its value is this many times N                  */
} tglu__family;

/* Lists the layers; needs table and metadata sorted. */
tglu_status tglu__find_layers(tglu_model *model);
/* Family of a layer, every tensor of its folder accounted for; else why not. */
tglu_status tglu__match_family(const tglu_model *model, int32_t layer,
                               const tglu__family **family, const char **prefix);
tglu_status tglu__bind_mlp(const tglu_model *model, const tglu__family *family,
                           const char *prefix, int32_t layer, tglu_mlp_desc *desc);

/* Calls fn for every tensor or alias whose name begins with prefix; fn returns
 * false to stop. */
typedef bool (*tglu__name_fn)(void *user, const char *name, const tglu__entry *entry);
void tglu__each_name(const tglu_model *model, const char *prefix, tglu__name_fn fn,
                     void *user);

#endif /* TGLU_MODEL_INTERNAL_H */
