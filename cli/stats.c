#include "stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double stats_quantile(double *values, size_t count, double q) {
  if (count == 0) return NAN;
  qsort(values, count, sizeof *values, compare);
  double place = q * (double)(count - 1);
  size_t below = (size_t)place;
  size_t above = below + 1 < count ? below + 1 : below;
  return values[below] + (place - (double)below) * (values[above] - values[below]);
}

double stats_median(double *values, size_t count) {
  return stats_quantile(values, count, 0.5);
}

double stats_spread(double *values, size_t count) {
  double middle = stats_median(values, count);
  return (stats_quantile(values, count, 0.75) - stats_quantile(values, count, 0.25)) / middle;
}
