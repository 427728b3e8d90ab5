#include "plan/cache.h"

#include <stdio.h>
#include <string.h>

static const char head[] = "tileglu-tune 1\n";

enum { HEAD_BYTES = sizeof head - 1, TAIL_BYTES = 48, FIELDS = 15 };

static uint64_t hash_of(const char *bytes, size_t count) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < count; ++i) {
    hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
  }
  return hash;
}

static size_t write_tail(char *tail, size_t lines, uint64_t hash) {
  return (size_t)snprintf(tail, TAIL_BYTES, "end %zu %016llx\n", lines,
                          (unsigned long long)hash);
}

/* Where the line at `at` ends: behind its newline; NULL if it has none. */
static const char *line_end(const char *at, const char *end) {
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return newline != NULL ? newline + 1 : NULL;
}

/* Printable ASCII, in as many fields as a line has. */
static bool is_line(const char *at, const char *end) {
  int tabs = 0;
  if (end - at > TGLU__CACHE_LINE_BYTES) return false;
  for (const char *c = at; c < end - 1; ++c) {
    if (*c == '\t') ++tabs;
    else if (*c < ' ' || *c > '~') return false;
  }
  return tabs == FIELDS - 1;
}

const char *tglu__cache_open(const char *bytes, size_t count, const char **body,
                             size_t *length) {
  if (count < HEAD_BYTES || memcmp(bytes, head, HEAD_BYTES) != 0)
    return count == 0 ? "it is empty" : "it does not begin with \"tileglu-tune 1\"";
  const char *end = bytes + count, *at = bytes + HEAD_BYTES, *next;
  size_t lines = 0;
  *body = at;
  while ((next = line_end(at, end)) != NULL && strncmp(at, "end ", 4) != 0) {
    if (!is_line(at, next)) return "a line is damaged";
    at = next;
    ++lines;
  }
  if (next == NULL) return "its end is missing";
  char tail[TAIL_BYTES];
  size_t expected = write_tail(tail, lines, hash_of(bytes, (size_t)(at - bytes)));
  if ((size_t)(end - at) != expected || memcmp(at, tail, expected) != 0)
    return "its last line does not match the rest";
  *length = (size_t)(at - *body);
  return NULL;
}

/* ---- lines ---- */

typedef struct field {
  const char *at;
  size_t length;
} field;

/* The next field; it ends at a tab or at the newline. */
static field take(const char **at) {
  field f = {*at, strcspn(*at, "\t\n")};
  *at += f.length + 1;
  return f;
}

static bool take_number(const char **at, int64_t least, int64_t most, int64_t *value) {
  field f = take(at);
  *value = 0;
  if (f.length == 0 || f.length > 18) return false;
  for (size_t i = 0; i < f.length; ++i) {
    if (f.at[i] < '0' || f.at[i] > '9') return false;
    *value = 10 * *value + (f.at[i] - '0');
  }
  return *value >= least && *value <= most;
}

static bool is_text(field f, const char *text) {
  return f.length == strlen(text) && memcmp(f.at, text, f.length) == 0;
}

const char *tglu__tune_op_name(tglu__tune_op op) {
  static const char *const names[TGLU__TUNE_OPS] = {"glu", "down", "mlp"};
  return names[op];
}

const char *tglu__cache_fault_text(tglu__cache_fault fault) {
  static const char *const texts[TGLU__CACHE_FAULTS] = {
    [TGLU__CACHE_NO_FAULT] = "nothing is wrong",
    [TGLU__CACHE_BAD_DTYPE] = "the type is none of bf16, f16, f32",
    [TGLU__CACHE_BAD_OP] = "the operation is none of glu, down, mlp",
    [TGLU__CACHE_BAD_N] = "N is no number from 1 to 2^56",
    [TGLU__CACHE_BAD_K] = "K is no number from 1 to 2^56",
    [TGLU__CACHE_BAD_TOKENS] = "winners are not kept for that count of tokens",
    [TGLU__CACHE_BAD_ROW] = "the row is none that this context can use for it",
    [TGLU__CACHE_BAD_NS] = "the winner's time is no number of ns from 1 to 10^15",
    [TGLU__CACHE_BAD_SECOND_NS] =
      "the second's time is no number of ns from 1 to 10^15, or 0 without a second",
  };
  return texts[fault];
}

static tglu__cache_fault parse(const char *at, tglu__cache_line *line) {
  const int64_t most_size = INT64_C(1) << 56, most_ns = INT64_C(1000000000000000);
  field dtype = take(&at), op = take(&at);
  line->dtype = is_text(dtype, "bf16")  ? TGLU_DTYPE_BF16
                : is_text(dtype, "f16") ? TGLU_DTYPE_F16
                                        : TGLU_DTYPE_F32;
  line->op = is_text(op, "glu")    ? TGLU__TUNE_GLU
             : is_text(op, "down") ? TGLU__TUNE_DOWN
                                   : TGLU__TUNE_MLP;
  if (!is_text(dtype, tglu_dtype_name(line->dtype))) return TGLU__CACHE_BAD_DTYPE;
  if (!is_text(op, tglu__tune_op_name(line->op))) return TGLU__CACHE_BAD_OP;
  if (!take_number(&at, 1, most_size, &line->n)) return TGLU__CACHE_BAD_N;
  if (!take_number(&at, 1, most_size, &line->k)) return TGLU__CACHE_BAD_K;
  if (!take_number(&at, 1, INT64_C(1) << 31, &line->tokens)) return TGLU__CACHE_BAD_TOKENS;
  field row = take(&at);
  if (row.length == 0) return TGLU__CACHE_BAD_ROW;
  if (!take_number(&at, 1, most_ns, &line->ns)) return TGLU__CACHE_BAD_NS;
  field second = take(&at);
  bool has_second = !is_text(second, "-");
  if (!take_number(&at, has_second ? 1 : 0, has_second ? most_ns : 0, &line->second_ns))
    return TGLU__CACHE_BAD_SECOND_NS;
  line->row = row.at;
  line->row_length = row.length;
  line->second = has_second ? second.at : NULL;
  line->second_length = has_second ? second.length : 0;
  return TGLU__CACHE_NO_FAULT;
}

int tglu__cache_next(const char **cursor, const char *end, const char *place,
                     tglu__cache_line *line) {
  const char *at = *cursor;
  size_t length = strlen(place);
  if (at == end) return -2;
  *cursor = line_end(at, end);
  if ((size_t)(*cursor - at) <= length || memcmp(at, place, length) != 0) return 0;
  line->fault = parse(at + length, line);
  return line->fault == TGLU__CACHE_NO_FAULT ? 1 : -1;
}

size_t tglu__cache_key(const char *place, tglu_dtype dtype, tglu__tune_op op, int64_t n,
                       int64_t k, int64_t tokens, char *key, size_t bytes) {
  return (size_t)snprintf(key, bytes, "%s%s\t%s\t%lld\t%lld\t%lld\t", place,
                          tglu_dtype_name(dtype), tglu__tune_op_name(op), (long long)n,
                          (long long)k, (long long)tokens);
}

size_t tglu__cache_merge(const char *body, size_t length, const char *key, const char *line,
                         char *out) {
  const char *end = body + length, *at = body;
  size_t key_length = strlen(key), added = strlen(line);
  const size_t room = TGLU__CACHE_MOST_BYTES - HEAD_BYTES - TAIL_BYTES - added;
  while ((size_t)(end - at) > room) at = line_end(at, end);
  memcpy(out, head, HEAD_BYTES);
  char *to = out + HEAD_BYTES;
  size_t lines = 1;
  while (at < end) {
    const char *next = line_end(at, end);
    size_t bytes = (size_t)(next - at);
    if (bytes < key_length || memcmp(at, key, key_length) != 0) {
      memcpy(to, at, bytes);
      to += bytes;
      ++lines;
    }
    at = next;
  }
  memcpy(to, line, added);
  to += added;
  return (size_t)(to - out) + write_tail(to, lines, hash_of(out, (size_t)(to - out)));
}
