/* cuBLAS's ways to Y = X W' of one shape: cublasGemmEx, and the heuristics of cublasLt. */
#ifndef BENCH_GEMM_H
#define BENCH_GEMM_H

#include "cublas.h"
#include "data.h"
#include "variant.h"

typedef struct gemm {
  cublas *b;
  const data *d;
  void *desc, *weights, *tokens, *out, *preference; /* of cublasLt */
  cublas_lt_heuristic heuristics[CUBLAS_HEURISTICS];
  int found;            /* heuristics */
  int best;             /* of them, by gemm_choose; -1: none works */
  int ex_is_faster;     /* by the same short measurement */
} gemm;

int gemm_create(gemm *m, cublas *b, const data *d);
void gemm_destroy(gemm *m);

/* Measures every heuristic and cublasGemmEx shortly, in two passes, and notes the best.
 * An exit code. */
int gemm_choose(gemm *m, int calls, const timing *t);

/* enqueue of a variant whose user is the gemm. */
int gemm_enqueue_ex(void *user, int set, gpu_stream stream);
int gemm_enqueue_lt(void *user, int set, gpu_stream stream);      /* the best heuristic */
int gemm_enqueue_unfused(void *user, int set, gpu_stream stream); /* faster, activation */
int gemm_enqueue_faster(void *user, int set, gpu_stream stream);

#endif /* BENCH_GEMM_H */
