/* Order statistics of a few measurements. */
#ifndef CLI_STATS_H
#define CLI_STATS_H

#include <stddef.h>

/* Quantile q in [0, 1] with linear interpolation; NaN for no values.  Sorts the
 * values. */
double stats_quantile(double *values, size_t count, double q);
double stats_median(double *values, size_t count);
/* Distance between the quartiles over the median: the spread of a measurement. */
double stats_spread(double *values, size_t count);

#endif /* CLI_STATS_H */
