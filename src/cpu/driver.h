/* One product of a token matrix and weight rows, with its epilogue: a GLU, or a down
 * projection.  Private. */
#ifndef TGLU_CPU_DRIVER_H
#define TGLU_CPU_DRIVER_H

#include "cpu/plan.h"
#include "cpu/pool.h"

/* All strides in elements of dtype, all pointers at any address. */
typedef struct tglu__product {
  tglu__op op;
  tglu_dtype dtype;
  int64_t tokens, columns, k;
  const void *x;          int64_t ldx;          /* [tokens, k]                       */
  const void *w0, *w1;    int64_t ldw;          /* [columns, k]; w1 for a GLU        */
  const void *bias0, *bias1; int64_t bias_stride; /* [columns] or NULL; bias1 GLU    */
  const void *residual;   int64_t ldr;          /* [tokens, columns] or NULL         */
  void *out;              int64_t ldo;          /* [tokens, columns]                 */
  tglu__act act;
} tglu__product;

/* Runs it on the pool, which the caller has entered; returns when out is written.
 * scratch: TGLU__SCRATCH_SLOT floats for each thread of the pool, 64-byte aligned. */
void tglu__product_run(const tglu__product *product, const tglu__cpu_row *row,
                       tglu__pool *pool, float *scratch);

#endif /* TGLU_CPU_DRIVER_H */
