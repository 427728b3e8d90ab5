/* How far a sample of an output is from its reference.  Pure. */
#ifndef BENCH_ACCURACY_H
#define BENCH_ACCURACY_H

#include <stdint.h>

#include <tileglu/tileglu.h>

typedef struct accuracy {
  double rel_l2;
  double share_over_1pct;        /* of all elements: off by more than 1 %              */
  double share_over_1pct_large;  /* of those with |reference| >= 2^-8 rms of their row */
  double excluded_share;         /* of all: smaller than that                          */
  int64_t not_finite;            /* elements                                           */
} accuracy;

/* out and reference are [rows, n], tight.  An element that is not finite is off by more
 * than 1 %, and makes rel_l2 infinite. */
accuracy accuracy_of(const uint16_t *out, tglu_dtype dtype, const double *reference,
                     int64_t rows, int64_t n);

/* Whether a result is right: everything finite and relative L2 at most 2^-8. */
int accuracy_passes(const accuracy *a);

/* The token rows to look at: `most` of m at random, the first and the last among them, in
 * rising order; all where m is no more.  Returns how many. */
int accuracy_rows(int64_t m, int most, uint64_t seed, int64_t *rows);

#endif /* BENCH_ACCURACY_H */
