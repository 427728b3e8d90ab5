/* cuBLAS's ways to the products of one shape: cublasGemmEx, and the heuristics of
 * cublasLt. */
#ifndef BENCH_GEMM_H
#define BENCH_GEMM_H

#include "cublas.h"
#include "data.h"
#include "variant.h"

/* Which product.  GATE_UP: Y [M, 2N] = X W'.  DOWN: out [M, K] = Z down', where Z is x of op
 * down and, for an MLP, the first [M, N] elements of Y, which the product before has just
 * written, as tight rows; or H. */
typedef enum gemm_which { GEMM_GATE_UP, GEMM_DOWN } gemm_which;

typedef struct gemm {
  cublas *b;
  const data *d;
  gemm_which which;
  int64_t rows, k;      /* of the weight */
  void *desc, *weights, *tokens, *out, *preference; /* of cublasLt */
  cublas_lt_heuristic heuristics[CUBLAS_HEURISTICS];
  int found;            /* heuristics */
  int best;             /* of them, by a short measurement; -1: none works */
  int ex_is_faster;     /* by the same short measurement */
} gemm;

/* The products that an op needs, one after the other, without an activation. */
typedef struct gemm_chain {
  const data *d;
  gemm part[2];
  int count;
} gemm_chain;

/* Measures every heuristic and cublasGemmEx of each product shortly, in two passes, and
 * notes the best.  An exit code. */
int chain_create(gemm_chain *c, cublas *b, const data *d, const timing *t);
void chain_destroy(gemm_chain *c);
int chain_has_lt(const gemm_chain *c);
/* Whether cublasGemmEx is faster for one and cublasLt for the other. */
int chain_is_mixed(const gemm_chain *c);

/* enqueue of a variant whose user is the chain. */
int chain_enqueue_ex(void *user, int set, gpu_stream stream);
int chain_enqueue_lt(void *user, int set, gpu_stream stream);      /* the best heuristics */
int chain_enqueue_faster(void *user, int set, gpu_stream stream);  /* of each */
int chain_enqueue_unfused(void *user, int set, gpu_stream stream); /* with an activation */

#endif /* BENCH_GEMM_H */
