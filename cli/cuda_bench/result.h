/* One line of the results file, and the file. */
#ifndef BENCH_RESULT_H
#define BENCH_RESULT_H

#include <stddef.h>
#include <stdint.h>

/* The columns in their order: TEXT(field, bytes), INT(field), REAL(field, format).  Real
 * values that do not apply are NaN, and empty in the file. */
#define RESULT_COLUMNS(TEXT, INT, REAL)                                                   \
  TEXT(date, 24) TEXT(commit, 64) TEXT(row_hash, 96) TEXT(card, 64) TEXT(driver, 64)      \
  TEXT(model, 64) INT(m) INT(n) INT(k) TEXT(dtype, 8) TEXT(activation, 16)                \
  TEXT(layout, 24) TEXT(row, 96) INT(chosen) TEXT(mode, 12) INT(pdl)                      \
  REAL(sm_clock_mhz, "%.0f") REAL(us, "%.3f") REAL(bare_us, "%.3f")                       \
  REAL(unfused_us, "%.3f") REAL(eager_us, "%.3f") REAL(ratio_bare, "%.4f")                \
  REAL(ratio_unfused, "%.4f") REAL(ratio_eager, "%.4f") REAL(tflops, "%.2f")              \
  REAL(share_of_989, "%.4f") REAL(tbs, "%.4f") REAL(rel_l2, "%.4e")                       \
  REAL(share_over_1pct, "%.4e") REAL(reference_share_over_1pct, "%.4e")                   \
  REAL(share_over_1pct_large, "%.4e") REAL(excluded_share, "%.4e") REAL(us_min, "%.3f")   \
  REAL(us_max, "%.3f") TEXT(bare, 16) INT(seed)

typedef struct result {
#define RESULT_TEXT_(field, bytes) char field[bytes];
#define RESULT_INT_(field) int64_t field;
#define RESULT_REAL_(field, format) double field;
  RESULT_COLUMNS(RESULT_TEXT_, RESULT_INT_, RESULT_REAL_)
#undef RESULT_TEXT_
#undef RESULT_INT_
#undef RESULT_REAL_
} result;

typedef struct result_list {
  result *items;
  size_t count, capacity;
} result_list;

void result_clear(result *r);            /* empty texts, 0, NaN */
void result_push(result_list *list, const result *r);
void result_free(result_list *list);

/* Cuts what does not fit. */
void result_text(char *field, size_t bytes, const char *text);

/* Appends one line to the file, and the head first where the file is new or empty; each
 * is one write.  An exit code. */
int result_append(const char *path, const result *r);
/* Reads a whole file, columns by their names in its head, unknown ones ignored; a
 * missing file is an error unless may_miss.  An exit code. */
int result_read(const char *path, int may_miss, result_list *list);

#endif /* BENCH_RESULT_H */
