/* Which rows to measure beside the chosen one. */
#ifndef BENCH_PICK_H
#define BENCH_PICK_H

#include "../options.h"
#include "result.h"

/* Whether a line is of this op and shape (any mode, any pdl). */
int pick_same_shape(const result *r, const spec *s);

/* The `top` rows of the shape with the least time in a former run's sustained lines with
 * this pdl (or the other, where it has none with this): indices into list, best first.
 * Returns how many. */
int pick_best(const result_list *list, const spec *s, int pdl, int top, int *indices);

/* Whether the comma-separated list names this row: whole, or without the part that all
 * rows of a type share ("paired_coop_128x72_s6_c1"). */
int pick_named(const char *names, const char *row);

/* The first name of the list that names no row of `rows`; its length, 0: all do.  An empty name
 * counts as one, of length -1. */
int pick_unknown(const char *names, const char *const *rows, int count, const char **name);

/* "glu_bf16_sm90_paired_coop_128x72_s6_c1" -> "paired_coop_128x72_s6_c1". */
const char *pick_short_name(const char *row);

#endif /* BENCH_PICK_H */
