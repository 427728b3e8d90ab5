/* Declarations of the AVX2 + FMA + F16C kernels; the contract is in cpu/kernel.h. */
#ifndef TGLU_CPU_KERNELS_AVX2_H
#define TGLU_CPU_KERNELS_AVX2_H

#include "cpu/kernel.h"

#define TGLU__DECLARE(name)                                                     \
  void tglu__avx2_load_x_dot_##name(const void *x, int64_t count, float *out);   \
  void tglu__avx2_load_x_panel_##name(const void *x, int64_t count, float *out); \
  void tglu__avx2_stream_##name##_4x8(const tglu__unit_args *args);             \
  void tglu__avx2_dot_##name##_3x4(const tglu__unit_args *args);                \
  void tglu__avx2_panel_##name##_6x16(const tglu__unit_args *args);             \
  void tglu__avx2_store_glu_##name(const tglu__store_args *args);               \
  void tglu__avx2_store_down_##name(const tglu__store_args *args);
TGLU__DECLARE(bf16)
TGLU__DECLARE(f16)
TGLU__DECLARE(f32)
#undef TGLU__DECLARE

#endif /* TGLU_CPU_KERNELS_AVX2_H */
