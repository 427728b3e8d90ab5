/* Tables for people, from result lines. */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include <stdio.h>

#include "result.h"

/* What the lines of one op, shape, mode and pdl say.  Where a row has several lines (runs),
 * the median of each figure is taken.  NaN, "": not measured. */
typedef struct point {
  const result *first;         /* names the op, shape, mode and pdl */
  char chosen[200], best[200]; /* rows; an MLP's joined by '+' */
  double bare_us, chosen_us, tflops, mhz;
  double chosen_ratio, best_ratio, ratio_unfused, ratio_eager;
  double share_of_read;        /* a reading kernel's time over the chosen row's */
  double regret;               /* chosen over best, minus 1 */
  int runs;                    /* lines of the chosen row */
} point;

typedef struct point_list {
  point *items;
  size_t count;
} point_list;

/* Points in the order in which they first appear; they refer to the lines. */
point_list summary_points(const result_list *lines);
void summary_free(point_list *points);

/* Geometric mean of a figure over the points of this op, mode and pdl with least <= M <= most;
 * NaN if there is none, or one of them is missing.  count: of how many. */
typedef double (*point_figure)(const point *p);
double summary_geomean(const point_list *points, op_kind op, const char *mode, int64_t pdl,
                       int64_t least, int64_t most, point_figure figure, int *count);
double point_chosen_ratio(const point *p);
double point_best_ratio(const point *p);
double point_regret_ratio(const point *p);   /* 1 + regret */
double point_ratio_unfused(const point *p);
double point_ratio_eager(const point *p);

void summary_print(const result_list *lines, FILE *to);

#endif /* BENCH_SUMMARY_H */
