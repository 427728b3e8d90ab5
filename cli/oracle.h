/* The float64 oracle: the mathematics of tileglu.h in double precision, written
 * without the library, with nothing rounded on the way.  Beside each value it
 * gives the error that a right implementation of the rounding contract may have.
 *
 * Allowed error.  With u the unit roundoff of the type and e = 2^-24:
 *   products    dg = 4 e sqrt(K) (sqrt(sum (x w)^2) + |g|)   fp32 accumulation
 *   GLU         dh = u |h| + 2^-15 |h| + 1.2 |u'| dg + |act(g)| du + smallest
 *   MLP         do = u |o| + 4 sqrt(sum (dh_j wd_ij)^2) + the products' term
 * where 2^-15 is twice the promised accuracy of the activations, 1.2 exceeds the
 * slope of each, and rounding errors of different elements of H are taken as
 * independent: 4 is over ten standard deviations of what they add up to. */
#ifndef CLI_ORACLE_H
#define CLI_ORACLE_H

#include <tileglu/tileglu.h>

#include "hot.h"
#include "op.h"
#include "pool.h"

typedef struct oracle_call {
  op_kind kind;
  const tglu_mlp_desc *desc;
  int64_t tokens;
  const void *x;        int64_t ldx;         /* elements, as in tglu_run_args  */
  const void *residual; int64_t ldr;         /* NULL: none                     */
} oracle_call;

/* reference and allowed: [tokens, columns of the result], tight. */
void oracle_run(const oracle_call *call, const hot_loops *hot, pool *threads,
                double *reference, double *allowed);

/* act(g) * u as the header defines it; *slope_gate bounds |d/dg|, *slope_up is
 * |d/du|.  Exported for the tests of the oracle itself. */
double oracle_glu(const tglu_glu_desc *desc, double g, double u, double *slope_gate,
                  double *slope_up);

#endif /* CLI_ORACLE_H */
