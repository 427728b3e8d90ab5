/* What the result has to be: a float64 computation of the case, the interval of
 * values that fp32 accumulation and one rounding may give, and a plain
 * computation in the case's own type to compare errors with. */
#ifndef TGLU_TEST_ORACLE_H
#define TGLU_TEST_ORACLE_H

#include <stdint.h>

#include "problem.h"

/* act(gate) * up in float64, for any activation. */
double tt_activation(tglu_activation activation, float alpha, float limit, float offset,
                     double gate, double up);

/* All arrays are [m, columns], tight. */
typedef struct tt_reference {
  int64_t rows, columns;
  double *value;      /* float64, the case's inputs taken as exact               */
  double *low, *high; /* every result that the contract allows lies in between:
                         |error| <= (K + 2) 2^-24 sum |x w| per accumulator, the
                         activation's 2^-16 (2^-24 absolute below gate -20), then
                         rounded to the type, which is monotone: no further slack.
                         An MLP's H gets its own interval, rounded likewise      */
  double *plain;      /* fp32 sums in order, libm's activation, same roundings   */
} tt_reference;

void tt_reference_create(const tt_case *c, const tt_operands *o, tt_reference *r);
void tt_reference_destroy(tt_reference *r);

#endif /* TGLU_TEST_ORACLE_H */
