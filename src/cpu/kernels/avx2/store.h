/* The bodies of the epilogues: one token's columns, eight at a time; the last vector is
 * computed whole and stored in part (c and the biases are readable up to a multiple of
 * eight columns). */
#ifndef TGLU_CPU_KERNELS_AVX2_STORE_H
#define TGLU_CPU_KERNELS_AVX2_STORE_H

#include "cpu/kernel.h"
#include "cpu/kernels/avx2/act.h"
#include "cpu/kernels/avx2/vec.h"

TGLU__INLINE __m256 biased(const float *c, const float *bias, int64_t i) {
  __m256 sum = _mm256_load_ps(c + i);
  return bias == NULL ? sum : _mm256_add_ps(sum, _mm256_load_ps(bias + i));
}

TGLU__INLINE void store_glu_kind(tglu_dtype dtype, tglu_activation kind,
                                 const tglu__store_args *args) {
  for (int64_t i = 0; i < args->count; i += 8) {
    int64_t left = args->count - i;
    __m256 gate = biased(args->c0, args->bias0, i), up = biased(args->c1, args->bias1, i);
    store8(dtype, (char *)args->out + i * size_of(dtype),
           act_glu(kind, &args->act, gate, up), left < 8 ? left : 8);
  }
}

TGLU__INLINE void store_glu(tglu_dtype dtype, const tglu__store_args *args) {
#define CASE(kind) \
  case kind: store_glu_kind(dtype, kind, args); break
  switch (args->act.kind) {
    CASE(TGLU_ACTIVATION_SILU);
    CASE(TGLU_ACTIVATION_GELU_TANH);
    CASE(TGLU_ACTIVATION_GELU_ERF);
    CASE(TGLU_ACTIVATION_RELU);
    CASE(TGLU_ACTIVATION_SIGMOID);
    CASE(TGLU_ACTIVATION_SWIGLUOAI);
  }
#undef CASE
}

TGLU__INLINE void store_down(tglu_dtype dtype, const tglu__store_args *args) {
  for (int64_t i = 0; i < args->count; i += 8) {
    int64_t left = args->count - i, place = i * size_of(dtype);
    __m256 sum = biased(args->c0, args->bias0, i);
    if (args->residual != NULL) {
      const char *residual = (const char *)args->residual + place;
      sum = _mm256_add_ps(sum, left >= 8 ? load8(dtype, residual)
                                         : load8_part(dtype, residual, left));
    }
    store8(dtype, (char *)args->out + place, sum, left < 8 ? left : 8);
  }
}

#endif /* TGLU_CPU_KERNELS_AVX2_STORE_H */
