/* The tuning cache: a text file of measured winners.
 *
 *     tileglu-tune 1
 *     VERSION ROWS BACKEND CARD UNITS DRIVER  DTYPE OP N K TOKENS  ROW NS SECOND NS
 *     ...
 *     end COUNT HASH
 *
 * One winner a line, its fields separated by tabs; the fields up to TOKENS are its key,
 * and at most one line has it.  The first six are the place: what the winner was measured
 * with.  N and K are at most 2^56.  TOKENS is the largest count of its bucket, NS a time of
 * 1 to 10^15 nanoseconds, SECOND the runner-up or "-" with 0.  COUNT and HASH (FNV-1a, 64
 * bits, of all before that line) show whether the file is whole.  Numbers are written
 * without the locale's help.
 *
 * A text here is the body of such a file, the lines between first and last; it may be empty.
 * cache.c has what is pure, cache_file.c the file, tune.c the context's part. */
#ifndef TGLU_PLAN_CACHE_H
#define TGLU_PLAN_CACHE_H

#include "internal.h"

enum {
  TGLU__CACHE_MOST_BYTES = 4 << 20, /* of a file                        */
  TGLU__CACHE_LINE_BYTES = 1024,    /* of a line, its newline included  */
  TGLU__CACHE_PLACE_BYTES = 448
};

/* Of an MLP the winner is a row of op mlp, or one of op glu: then two launches were faster,
 * with the rows that the halves have. */
typedef enum tglu__tune_op { TGLU__TUNE_GLU, TGLU__TUNE_DOWN, TGLU__TUNE_MLP } tglu__tune_op;
enum { TGLU__TUNE_OPS = 3 };

/* ---- pure ---- */

/* The name of an operation in a line, and in a row's description. */
const char *tglu__tune_op_name(tglu__tune_op op);

/* Finds the body in the bytes of a file.  NULL if it is whole, then *body and *length are
 * set; else what is wrong, a static clause. */
const char *tglu__cache_open(const char *bytes, size_t count, const char **body,
                             size_t *length);

/* The field of a line that breaks its rule. */
typedef enum tglu__cache_fault {
  TGLU__CACHE_NO_FAULT, TGLU__CACHE_BAD_DTYPE, TGLU__CACHE_BAD_OP, TGLU__CACHE_BAD_N,
  TGLU__CACHE_BAD_K, TGLU__CACHE_BAD_TOKENS, TGLU__CACHE_BAD_ROW, TGLU__CACHE_BAD_NS,
  TGLU__CACHE_BAD_SECOND_NS,
  TGLU__CACHE_FAULTS
} tglu__cache_fault;

/* The field and its rule, a static clause. */
const char *tglu__cache_fault_text(tglu__cache_fault fault);

/* One line of this place.  The texts point into it and are not terminated. */
typedef struct tglu__cache_line {
  tglu__cache_fault fault;
  tglu_dtype dtype;
  tglu__tune_op op;
  int64_t n, k, tokens, ns, second_ns;
  const char *row, *second;
  size_t row_length, second_length;
} tglu__cache_line;

/* Reads the line at *cursor and moves the cursor behind it.  1: it is of this place and in
 * order; 0: of another; -1: of this place, but with line->fault; -2: the body ends. */
int tglu__cache_next(const char **cursor, const char *end, const char *place,
                     tglu__cache_line *line);

/* Writes the key of a winner (NUL-terminated, bytes of room), returns its length. */
size_t tglu__cache_key(const char *place, tglu_dtype dtype, tglu__tune_op op, int64_t n,
                       int64_t k, int64_t tokens, char *key, size_t bytes);

/* Writes a whole file into out: the body without the line that has this key, then this
 * line (key and rest, with its newline).  Where that is more than a file may hold, the
 * oldest lines give way.  out has room for TGLU__CACHE_MOST_BYTES; returns the length. */
size_t tglu__cache_merge(const char *body, size_t length, const char *key, const char *line,
                         char *out);

/* ---- the file ---- */

/* Room for the bytes of any file. */
enum { TGLU__CACHE_ROOM = TGLU__CACHE_MOST_BYTES + 1 };

typedef enum tglu__cache_state {
  TGLU__CACHE_MISSING, /* there is none                                       */
  TGLU__CACHE_WHOLE,
  TGLU__CACHE_DAMAGED, /* not as we write it: empty, and may be replaced      */
  TGLU__CACHE_FOREIGN  /* no regular file, or too large, or not readable      */
} tglu__cache_state;

/* Whether there may be a file: false only where it is certain that there is none. */
bool tglu__cache_exists(const char *path);

/* Reads the file into bytes (TGLU__CACHE_ROOM of room); *why is a clause unless it is
 * missing or whole.  It does not block, whatever the path names. */
tglu__cache_state tglu__cache_read(const char *path, char *bytes, size_t *count,
                                   const char **why);

/* Merges one winner into the file, under its lock, as tglu_tune_record says.  NULL if it
 * was saved, else why not, a static clause about the file path + *suffix (".new", ".lock"
 * or "").  work: twice TGLU__CACHE_ROOM. */
const char *tglu__cache_store(const char *path, const char *key, const char *line,
                              char *work, const char **suffix);

#endif /* TGLU_PLAN_CACHE_H */
