/* Declarations of the portable kernels; the contract is in cpu/kernel.h. */
#ifndef TGLU_CPU_KERNELS_PORTABLE_H
#define TGLU_CPU_KERNELS_PORTABLE_H

#include "cpu/kernel.h"

#define TGLU__DECLARE(name)                                                   \
  void tglu__portable_load_x_##name(const void *x, int64_t count, float *out); \
  void tglu__portable_dot_##name##_1x4(const tglu__unit_args *args);          \
  void tglu__portable_store_glu_##name(const tglu__store_args *args);         \
  void tglu__portable_store_down_##name(const tglu__store_args *args);
TGLU__DECLARE(bf16)
TGLU__DECLARE(f16)
TGLU__DECLARE(f32)
#undef TGLU__DECLARE

#endif /* TGLU_CPU_KERNELS_PORTABLE_H */
