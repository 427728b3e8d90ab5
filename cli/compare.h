/* Compares a result with the oracle and says how far off it is. */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include <tileglu/tileglu.h>

#include "op.h"

typedef struct comparison {
  op_kind kind;
  tglu_dtype dtype;
  int64_t elements;           /* all                                               */
  int64_t finite;             /* those finite on both sides                        */
  double error_squares, reference_squares, allowed_squares; /* sums over the finite */
  int64_t over_1pct;          /* |error| > 1 % of |reference|, of all elements     */
  int64_t significant;        /* |reference| >= 2^-8 rms of its row                */
  int64_t significant_over_1pct;
  int64_t max_ulp;            /* over the significant ones                         */
  int64_t over_allowed;       /* error beyond what the rounding contract allows    */
  int64_t nan_both, inf_both; /* equal, and counted                                */
  int64_t nan_wrong, inf_wrong; /* on one side only, or of the wrong sign          */
  int64_t guard_damage;       /* bytes written outside the result                  */
  int64_t worst_row, worst_column; /* largest error / allowed; -1: none            */
  double worst_ratio, worst_value, worst_reference, worst_allowed;
} comparison;

void compare_begin(comparison *c, op_kind kind, tglu_dtype dtype);
/* Adds [rows, columns]; out has row stride ldo, reference and allowed are tight.
 * May be called for several results: counts add up, the worst stays. */
void compare_add(comparison *c, const void *out, int64_t ldo, const double *reference,
                 const double *allowed, int64_t rows, int64_t columns);
/* Adds the counts of another comparison. */
void compare_merge(comparison *c, const comparison *other);

double compare_rel_l2(const comparison *c);       /* NaN if nothing finite */
double compare_share(int64_t part, int64_t whole);/* 0 for 0 of 0          */
/* 2^-8, 2^-11, 2^-15: the relative L2 error that one rounding cannot exceed, with
 * room for the activations' accuracy in f32. */
double compare_unit(tglu_dtype dtype);
/* The limit on the relative L2 error: that unit, or a quarter of the allowed errors'
 * norm where results cancel so much that this is more. */
double compare_rel_l2_limit(const comparison *c);

/* 1 if the result passes, for which some element must be finite.  why (NULL with 0 bytes:
 * not wanted) gets a sentence if not. */
int compare_passes(const comparison *c, char *why, size_t why_bytes);

void compare_print(const comparison *c, FILE *stream);
json_t *compare_json(const comparison *c);

#endif /* CLI_COMPARE_H */
