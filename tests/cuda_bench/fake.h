/* A GPU for the bench's tests: a driver library whose kernels are emulated on the host and
 * whose clock only goes forward by what the work would take.  It is controlled through the
 * environment, since the bench runs as a program:
 *
 *   FAKE_FAIL=NAME[:N]   the N-th call (from 0) of that driver or cuBLAS call fails
 *   FAKE_WRONG=TEXT      rows whose name holds TEXT compute 1.1 times the result
 *   FAKE_UNWRITTEN=TEXT  rows whose name holds TEXT leave their last element unwritten
 *   FAKE_MAJOR=N         compute capability N.0; FAKE_DEVICES=N; FAKE_INIT=CODE of cuInit
 *   FAKE_HANG=1          no event is ever done
 *   FAKE_TRACE=FILE      a line per event recorded and graph launched
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdint.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

/* What a stream is given, or a graph holds. */
typedef struct fake_op fake_op;
struct fake_op {
  void (*run)(const fake_op *op);   /* does it, on the host */
  double us;                        /* what it would take   */
  int repeated;                     /* the same is in the graph before */
  char kernel[96];
  uint64_t words[512];              /* parameters */
};

/* Runs or captures it.  An error code. */
FAKE_EXPORT int fake_enqueue(void *stream, const fake_op *op);
/* 1 if this call is to fail. */
FAKE_EXPORT int fake_fails(const char *name);
/* The clock goes forward; for a driver's own contenders. */
FAKE_EXPORT void fake_advance(double us);

/* fake_kernels.c: the op of a kernel launched with these parameters; 0, or an error. */
int fake_kernel_op(const char *name, void **parameters, fake_op *op);
/* y[tokens, rows] = x[tokens, k] w[rows, k]' */
typedef struct fake_gemm {
  const uint16_t *w, *x;
  uint16_t *y;
  int64_t rows, tokens, k;
  int32_t dtype;                    /* 1: bf16, 2: fp16 */
} fake_gemm;
FAKE_EXPORT int fake_enqueue_gemm(void *stream, const fake_gemm *g, double us, const char *name);

#endif /* FAKE_H */
