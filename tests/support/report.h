/* Comparison of an output with its reference: measures first, then a verdict. */
#ifndef TGLU_TEST_REPORT_H
#define TGLU_TEST_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oracle.h"

typedef struct tt_report {
  int64_t elements;
  int64_t outside;        /* outside the allowed interval; NaN is              */
  int64_t non_finite;     /* results that are NaN or infinite                  */
  double rel_l2;          /* |result - value| / |value|                        */
  double plain_rel_l2;    /* the plain computation's                           */
  double share_over_1pct; /* share of elements off by more than 1 %            */
  int64_t max_ulp;        /* against the value rounded to the type             */
  double tolerance_share; /* rms half width of the intervals / rms of value    */
  int64_t worst_row, worst_column; /* of the element farthest off              */
  double worst_result, worst_value, worst_low, worst_high;
} tt_report;

/* Compares m x columns elements of `out`, row stride ldo. */
void tt_compare(tglu_dtype dtype, const void *out, int64_t ldo, const tt_reference *r,
                tt_report *report);

/* The verdict: every element inside its interval, none NaN, relative L2 error at
 * most twice the plain computation's (from 64 elements on), and a tolerance
 * smaller than the signal, without which nothing was tested.  `activation_slack`
 * is added to twice the plain error: what a vector activation may err beyond libm's
 * (0 for 16-bit types, whose rounding hides it). */
bool tt_report_passes(const tt_report *report, double activation_slack, char *why,
                      size_t why_bytes);

#endif /* TGLU_TEST_REPORT_H */
