#include "plan/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INVALID(...) tglu__fail(TGLU_ERR_INVALID_ARGUMENT, __VA_ARGS__)

#define MOST_TOKENS (INT64_C(1) << 31)

struct tglu__tuning {
  size_t bytes, count;     /* bytes: of the allocation */
  tglu__tuned items[];     /* in order                 */
};

/* ---- the place ---- */

static uint64_t hash_text(uint64_t hash, const char *text) {
  for (; *text; ++text) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return (hash ^ 0x1f) * UINT64_C(0x100000001b3);
}

/* Over the names and hashes of all rows of the build. */
static uint64_t rows_hash(const tglu_context *context) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  int32_t count = context->ops->row_count(context);
  for (int32_t i = 0; i < count; ++i) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    context->ops->row_get(context, i, &row);
    hash = hash_text(hash_text(hash, row.name), row.hash != NULL ? row.hash : "");
  }
  return hash;
}

/* A field may not hold a tab, a newline or what is not ASCII. */
static void clean(char *text) {
  for (; *text; ++text) {
    if (*text < ' ' || *text > '~') *text = '?';
  }
}

static void write_place(const tglu_context *context, char *place) {
  const tglu_context_info *info = &context->info;
  char card[129], driver[32];
  bool cuda = context->ops->id == TGLU_BACKEND_CUDA;
  snprintf(card, sizeof card, "%s", info->device_name != NULL ? info->device_name : "");
  clean(card);
  if (cuda)
    snprintf(driver, sizeof driver, "%d", (int)info->driver_version);
  else
    snprintf(driver, sizeof driver, "%s", info->cpu_isa != NULL ? info->cpu_isa : "");
  snprintf(place, TGLU__CACHE_PLACE_BYTES, "%s\t%016llx\t%s\t%s\t%d\t%s\t",
           tglu_version_string(), (unsigned long long)rows_hash(context),
           tglu_backend_name(context->ops->id), card,
           (int)(cuda ? info->sm_count : info->threads), driver);
}

/* ---- reading ---- */

/* Index of the row of that name if the context can use it for this, else -1. */
static int32_t find_row(const tglu_context *context, const char *name, size_t length,
                        tglu__tune_op op, tglu_dtype dtype) {
  int32_t count = context->ops->row_count(context);
  for (int32_t i = 0; i < count; ++i) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    context->ops->row_get(context, i, &row);
    if (strlen(row.name) != length || memcmp(row.name, name, length) != 0) continue;
    bool fits = strcmp(row.op, tglu__tune_op_name(op)) == 0 ||
                (op == TGLU__TUNE_MLP && strcmp(row.op, "glu") == 0); /* two launches */
    return row.usable && fits && (row.dtypes >> dtype & 1) != 0 ? i : -1;
  }
  return -1;
}

static int order(const void *a, const void *b) {
  const tglu__tuned *x = a, *y = b;
  const int64_t keys[][2] = {{x->op, y->op}, {x->dtype, y->dtype}, {x->n, y->n},
                             {x->k, y->k}, {x->tokens, y->tokens}};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    if (keys[i][0] != keys[i][1]) return keys[i][0] < keys[i][1] ? -1 : 1;
  }
  return 0;
}

static tglu__cache_fault accept(const tglu_context *context, const tglu__cache_line *line,
                                tglu__tuned *item) {
  if (context->ops->bucket_tokens(line->tokens) != line->tokens) return TGLU__CACHE_BAD_TOKENS;
  *item = (tglu__tuned){.op = line->op, .dtype = line->dtype, .n = line->n, .k = line->k,
                        .tokens = line->tokens, .us = 1e-3 * (double)line->ns,
                        .runner_up = -1, .runner_up_us = 1e-3 * (double)line->second_ns};
  item->row = find_row(context, line->row, line->row_length, line->op, line->dtype);
  if (line->second != NULL)
    item->runner_up =
      find_row(context, line->second, line->second_length, line->op, line->dtype);
  return item->row >= 0 ? TGLU__CACHE_NO_FAULT : TGLU__CACHE_BAD_ROW;
}

static void warn(const tglu_context *context, const char *what, const char *why) {
  tglu__log(context, TGLU_LOG_WARNING,
            "tune_cache: %.640s: %s: %s; the option tune_cache or TILEGLU_TUNE_CACHE names "
            "another file", context->options.tune_cache, what, why);
}

/* The lines of this place that are in order go to items, where that is not NULL; faults
 * counts what is wrong with the others.  Returns how many there are. */
static size_t take_lines(const tglu_context *context, const char *body, size_t length,
                         const char *place, tglu__tuned *items,
                         size_t faults[TGLU__CACHE_FAULTS]) {
  const char *at = body, *end = body + length;
  tglu__cache_line line;
  tglu__tuned item;
  size_t count = 0;
  memset(faults, 0, TGLU__CACHE_FAULTS * sizeof *faults);
  for (int kind; (kind = tglu__cache_next(&at, end, place, &line)) != -2;) {
    if (kind == 0) continue;
    tglu__cache_fault fault = kind < 0 ? line.fault : accept(context, &line, &item);
    ++faults[fault];
    if (fault != TGLU__CACHE_NO_FAULT) continue;
    if (items != NULL) items[count] = item;
    ++count;
  }
  return count;
}

/* One warning for all lines that are not in order: how many have which fault. */
static void warn_of_lines(const tglu_context *context,
                          const size_t faults[TGLU__CACHE_FAULTS]) {
  char what[64], why[640] = "";
  size_t bad = 0, used = 0;
  for (int i = TGLU__CACHE_NO_FAULT + 1; i < TGLU__CACHE_FAULTS; ++i) {
    if (faults[i] == 0) continue;
    used += (size_t)snprintf(why + used, sizeof why - used, "%s%zu (%s)", bad ? ", " : "",
                             faults[i], tglu__cache_fault_text((tglu__cache_fault)i));
    bad += faults[i];
  }
  if (bad == 0) return;
  snprintf(what, sizeof what, "%zu of its lines ignored", bad);
  warn(context, what, why);
}

static void take_body(tglu_context *context, const char *body, size_t length) {
  char place[TGLU__CACHE_PLACE_BYTES];
  size_t faults[TGLU__CACHE_FAULTS];
  write_place(context, place);
  size_t count = take_lines(context, body, length, place, NULL, faults);
  warn_of_lines(context, faults);
  if (count == 0) return;
  size_t bytes = sizeof(struct tglu__tuning) + count * sizeof(tglu__tuned);
  struct tglu__tuning *t = tglu__alloc(context, bytes, _Alignof(struct tglu__tuning));
  if (t == NULL) {
    warn(context, "treated as empty", "memory could not be allocated");
    return;
  }
  *t = (struct tglu__tuning){.bytes = bytes, .count = count};
  take_lines(context, body, length, place, t->items, faults);
  qsort(t->items, count, sizeof t->items[0], order);
  context->tuning = t;
}

void tglu__tune_load(tglu_context *context) {
  const tglu_context_options *options = &context->options;
  if (!*options->tune_cache || options->batch_invariant || options->row != NULL ||
      !tglu__cache_exists(options->tune_cache))
    return;
  char *bytes = tglu__alloc(context, TGLU__CACHE_ROOM, 1);
  if (bytes == NULL) {
    warn(context, "treated as empty", "memory could not be allocated");
    return;
  }
  const char *why, *body;
  size_t count, length;
  switch (tglu__cache_read(options->tune_cache, bytes, &count, &why)) {
    case TGLU__CACHE_MISSING: break;
    case TGLU__CACHE_WHOLE:
      tglu__cache_open(bytes, count, &body, &length);
      take_body(context, body, length);
      break;
    default: warn(context, "treated as empty", why);
  }
  tglu__free(context, bytes, TGLU__CACHE_ROOM);
}

void tglu__tune_free(tglu_context *context) {
  if (context->tuning != NULL) tglu__free(context, context->tuning, context->tuning->bytes);
  context->tuning = NULL;
}

const tglu__tuned *tglu__tune_find(const tglu_context *context, tglu__tune_op op,
                                   tglu_dtype dtype, int64_t n, int64_t k, int64_t tokens) {
  const struct tglu__tuning *t = context->tuning;
  if (t == NULL || tokens > MOST_TOKENS) return NULL;
  tglu__tuned key = {.op = op, .dtype = dtype, .n = n, .k = k,
                     .tokens = context->ops->bucket_tokens(tokens)};
  return bsearch(&key, t->items, t->count, sizeof t->items[0], order);
}

/* ---- recording ---- */

void tglu_tune_entry_init(tglu_tune_entry *entry) {
  if (entry) *entry = (tglu_tune_entry){.size = sizeof *entry};
}

static bool has_rows_of(const tglu_context *context, const char *op) {
  bool found = false;
  int32_t count = context->ops->row_count(context);
  for (int32_t i = 0; i < count && !found; ++i) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    context->ops->row_get(context, i, &row);
    found = strcmp(row.op, op) == 0;
  }
  return found;
}

static tglu_status check_row(const tglu_context *context, const char *argument,
                             const char *name, tglu__tune_op op, tglu_dtype dtype) {
  if (find_row(context, name, strlen(name), op, dtype) >= 0) return TGLU_OK;
  return INVALID("%s: \"%s\" is no row that this context can use for op %s and %s", argument,
                 name, tglu__tune_op_name(op), tglu_dtype_name(dtype));
}

/* In nanoseconds, 0 if it is no time. */
static int64_t nanoseconds(double us) {
  if (!(us > 0 && us <= 1e12)) return 0;
  int64_t ns = (int64_t)(1e3 * us + 0.5);
  return ns > 0 ? ns : 1;
}

static tglu_status check_entry(const tglu_context *context, const tglu_tune_entry *e,
                               tglu__tune_op *op) {
  int found = 0;
  while (e->op && found < TGLU__TUNE_OPS &&
         strcmp(e->op, tglu__tune_op_name((tglu__tune_op)found)) != 0)
    ++found;
  if (!e->op || found == TGLU__TUNE_OPS)
    return INVALID("op: \"%s\" is none of glu, down, mlp", e->op ? e->op : "(null)");
  *op = (tglu__tune_op)found;
  if (!has_rows_of(context, e->op))
    return INVALID("op: the %s backend has no row of op %s",
                   tglu_backend_name(context->ops->id), e->op);
  if (!tglu_dtype_name(e->dtype))
    return INVALID("dtype: %d is none of bf16, f16, f32", (int)e->dtype);
  if (e->hidden < 1 || e->hidden > INT64_C(1) << 56)
    return INVALID("hidden: %lld is not between 1 and 2^56", (long long)e->hidden);
  if (e->intermediate < 1 || e->intermediate > INT64_C(1) << 56)
    return INVALID("intermediate: %lld is not between 1 and 2^56",
                   (long long)e->intermediate);
  if (e->tokens < 1 || e->tokens > MOST_TOKENS)
    return INVALID("tokens: %lld is not between 1 and 2^31", (long long)e->tokens);
  if (!e->row) return INVALID("row: must not be NULL");
  tglu_status status = check_row(context, "row", e->row, *op, e->dtype);
  if (status) return status;
  if (!nanoseconds(e->us)) return INVALID("us: %g is no time between 0 and 10^12", e->us);
  if (!e->runner_up) return TGLU_OK;
  status = check_row(context, "runner_up", e->runner_up, *op, e->dtype);
  if (status) return status;
  if (!nanoseconds(e->runner_up_us))
    return INVALID("runner_up_us: %g is no time between 0 and 10^12", e->runner_up_us);
  return TGLU_OK;
}

static tglu_status store(const tglu_context *context, const char *key, const char *line) {
  const size_t bytes = 2 * (size_t)TGLU__CACHE_ROOM;
  char *work = tglu__alloc(context, bytes, 1);
  if (work == NULL)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "tune_cache: %zu bytes could not be allocated",
                      bytes);
  const char *path = context->options.tune_cache, *suffix;
  const char *why = tglu__cache_store(path, key, line, work, &suffix);
  tglu__free(context, work, bytes);
  if (why == NULL) return TGLU_OK;
  return tglu__fail(TGLU_ERR_IO, "tune_cache: %.640s%s: %s: the winner is not saved; the option "
                    "tune_cache or TILEGLU_TUNE_CACHE names another file", path, suffix, why);
}

tglu_status tglu_tune_record(const tglu_context *context, const tglu_tune_entry *entry) {
  if (!context) return INVALID("context: must not be NULL");
  tglu_tune_entry e;
  tglu__tune_op op = TGLU__TUNE_GLU;
  tglu_status status = tglu__struct_in("entry", entry, sizeof e, sizeof e, &e);
  if (!status) status = check_entry(context, &e, &op);
  if (status) return status;
  if (!*context->options.tune_cache)
    return tglu__fail(TGLU_ERR_IO, "tune_cache: there is none, since the option is \"\" or "
                      "neither XDG_CACHE_HOME nor HOME is a usable path: the winner is not "
                      "saved; TILEGLU_TUNE_CACHE names a file");
  char place[TGLU__CACHE_PLACE_BYTES], key[TGLU__CACHE_LINE_BYTES];
  char line[2 * TGLU__CACHE_LINE_BYTES];
  write_place(context, place);
  tglu__cache_key(place, e.dtype, op, e.intermediate, e.hidden,
                  context->ops->bucket_tokens(e.tokens), key, sizeof key);
  int length = snprintf(line, sizeof line, "%s%s\t%lld\t%s\t%lld\n", key, e.row,
                        (long long)nanoseconds(e.us), e.runner_up ? e.runner_up : "-",
                        e.runner_up ? (long long)nanoseconds(e.runner_up_us) : 0LL);
  if (length > TGLU__CACHE_LINE_BYTES)
    return tglu__fail(TGLU_ERR_INTERNAL, "row: a line of %d bytes is too long", length);
  return store(context, key, line);
}
