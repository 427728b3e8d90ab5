/* The library's three number types, in plain C and independent of the library. */
#ifndef CLI_NUMBERS_H
#define CLI_NUMBERS_H

#include <stdint.h>

#include <tileglu/tileglu.h>

double num_load(const void *data, tglu_dtype dtype, int64_t index);
/* Rounds once, to nearest even. */
void num_store(void *data, tglu_dtype dtype, int64_t index, double value);
/* The nearest value of the type (ties to even); beyond its range +-infinity. */
double num_round(double value, tglu_dtype dtype);

/* Steps of the type between two of its values; 0 between +0 and -0.  Neither may
 * be NaN. */
int64_t num_ulp_distance(double a, double b, tglu_dtype dtype);

double num_unit_roundoff(tglu_dtype dtype);   /* 2^-8, 2^-11, 2^-24 */
double num_smallest(tglu_dtype dtype);        /* the smallest subnormal */
double num_largest(tglu_dtype dtype);         /* the largest finite value */

#endif /* CLI_NUMBERS_H */
