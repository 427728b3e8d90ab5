/* One line of a results file, and the files. */
#ifndef BENCH_RESULT_H
#define BENCH_RESULT_H

#include <stddef.h>
#include <stdint.h>

#include "../op.h"

/* Every figure of a line.  Which of them a file has, under which names and in which order,
 * is result.c's.  Real values that do not apply are NaN, and empty in the file. */
#define RESULT_FIELDS(TEXT, INT, REAL)                                                    \
  TEXT(date, 24) TEXT(commit, 64) TEXT(row_hash, 96) TEXT(card, 64) TEXT(driver, 64)      \
  TEXT(model, 64) INT(m) INT(n) INT(k) TEXT(dtype, 8) TEXT(activation, 16)                \
  TEXT(layout, 24) TEXT(row, 96) INT(chosen) TEXT(mode, 12) INT(pdl)                      \
  REAL(sm_clock_mhz, "%.0f") REAL(us, "%.3f") REAL(bare_us, "%.3f")                       \
  REAL(unfused_us, "%.3f") REAL(eager_us, "%.3f") REAL(ratio_bare, "%.4f")                \
  REAL(ratio_unfused, "%.4f") REAL(ratio_eager, "%.4f") REAL(tflops, "%.2f")              \
  REAL(share_of_989, "%.4f") REAL(tbs, "%.4f") REAL(rel_l2, "%.4e")                       \
  REAL(share_over_1pct, "%.4e") REAL(reference_share_over_1pct, "%.4e")                   \
  REAL(share_over_1pct_large, "%.4e") REAL(excluded_share, "%.4e") REAL(us_min, "%.3f")   \
  REAL(us_max, "%.3f") TEXT(bare, 16) INT(seed)                                           \
  TEXT(op, 8) TEXT(down_row, 96) TEXT(down_row_hash, 96) /* of an MLP's second half */    \
  TEXT(read_kernel, 32) REAL(read_us, "%.3f")   /* only reads the same weights */         \
  REAL(share_of_read, "%.4f")                   /* read_us over us */                     \
  REAL(weight_tbs, "%.4f") REAL(read_tbs, "%.4f")                                         \
  TEXT(invariant_row, 96) TEXT(invariant_row_hash, 96) TEXT(invariant_down_row, 96)       \
  TEXT(invariant_down_row_hash, 96) REAL(invariant_us, "%.3f")                            \
  REAL(invariant_cost, "%.4f")                  /* invariant_us over us */                \
  TEXT(variant, 96) REAL(watts, "%.1f") REAL(millijoules, "%.5f") REAL(seconds, "%.3f")

typedef struct result {
#define RESULT_TEXT_(field, bytes) char field[bytes];
#define RESULT_INT_(field) int64_t field;
#define RESULT_REAL_(field, format) double field;
  RESULT_FIELDS(RESULT_TEXT_, RESULT_INT_, RESULT_REAL_)
#undef RESULT_TEXT_
#undef RESULT_INT_
#undef RESULT_REAL_
} result;

/* The kinds of files.  GLU serves op down too; its lines tell by the row's name. */
typedef enum result_kind {
  RESULT_GLU, RESULT_MLP, RESULT_READ, RESULT_INVARIANT, RESULT_ENERGY
} result_kind;

typedef struct result_list {
  result *items;
  size_t count, capacity;
} result_list;

void result_clear(result *r);            /* empty texts, 0, NaN */
void result_push(result_list *list, const result *r);
void result_free(result_list *list);

/* Cuts what does not fit. */
void result_text(char *field, size_t bytes, const char *text);

/* Whether a line could be appended there, asked before anything is measured: an exit code. */
int result_writable(const char *path, result_kind kind);
/* Appends one line to the file, and the head first where the file is new or empty; each
 * is one write.  A file with another head is refused.  An exit code. */
int result_append(const char *path, result_kind kind, const result *r);
/* Reads a whole file of kind GLU or MLP, columns by their names in its head, unknown ones
 * ignored; a missing file is an error unless may_miss.  An exit code. */
int result_read(const char *path, int may_miss, result_list *list);

#endif /* BENCH_RESULT_H */
