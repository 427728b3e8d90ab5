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

#endif /* BENCH_PICK_H */
