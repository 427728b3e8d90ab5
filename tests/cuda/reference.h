/* What the GPU test and its reference kernels share. */
#ifndef TGLU_TEST_REFERENCE_H
#define TGLU_TEST_REFERENCE_H

#include <stdint.h>

#define DTYPE_BF16 1
#define DTYPE_F16 2

/* Sentinel of the i-th 16-bit element: NaN in both types, varying with i. */
#define PATTERN(i) ((uint16_t)(0x7fc1u + (uint32_t)((uint64_t)(i) * 7u % 61u)))

typedef struct ref_problem {
  int64_t m, n, k, ldx, ldw, ldo, bias_stride;
  const void *x, *gate, *up, *gate_bias, *up_bias, *out;
  int32_t dtype, activation;
  float alpha, limit, offset, reserved;
} ref_problem;

typedef struct ref_linear { /* out = x w^T + bias + residual */
  int64_t m, n, k, ldx, ldw, ldr, ldo;
  const void *x, *w, *bias, *residual, *out; /* bias, residual: may be NULL */
  int32_t dtype, reserved;
} ref_linear;

typedef struct ref_parameters { /* of tglu_glu_launch's size */
  uint64_t bytes[80];
} ref_parameters;

typedef struct ref_result {
  unsigned long long compared, wrong, off_by_1pct, overwritten, different;
  int64_t wrong_row, wrong_column, overwritten_at;
  double wrong_value, wrong_reference, wrong_allowed;
  double error_squares, reference_squares;
} ref_result;

#endif /* TGLU_TEST_REFERENCE_H */
