/* What the bench's own kernels and the host share.  Plain C. */
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include <stdint.h>

enum {
  BENCH_THREADS = 256,       /* of every kernel here                                */
  BENCH_REFERENCE_ROWS = 64, /* most token rows that bench_reference computes       */
  BENCH_EMPTY_BYTES = 640,   /* parameter of bench_empty: as many as a GLU launch's */
  BENCH_POISON = 0x7fc1      /* a NaN of bf16 and of fp16                           */
};

/* The GLU as bench_reference and bench_activate see it.  dtype and activation have the
 * values of tglu_dtype and tglu_activation. */
typedef struct bench_problem {
  int64_t m, n, k;
  int32_t dtype, activation;
  float alpha, limit, offset;
  int32_t interleaved;       /* [M, 2N] of the unfused way: 1: gate and up take turns */
  int64_t gate_column, up_column; /* first of each in [M, 2N] (not interleaved)       */
  uint64_t gate, up;         /* device addresses of the weights' first rows          */
  int64_t ldw;               /* elements from one row of them to the next            */
} bench_problem;

#endif /* BENCH_KERNELS_H */
