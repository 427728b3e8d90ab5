/* Portable epilogues: bias, activation, residual, the one rounding. */
#include "cpu/numeric.h"
#include "cpu/kernels/portable/portable.h"

static inline void store_glu(tglu_dtype dtype, const tglu__store_args *args) {
  for (int64_t i = 0; i < args->count; i++) {
    float gate = args->c0[i], up = args->c1[i];
    if (args->bias0 != NULL) gate += args->bias0[i];
    if (args->bias1 != NULL) up += args->bias1[i];
    tglu__store(dtype, args->out, i, tglu__act_glu(&args->act, gate, up));
  }
}

static inline void store_down(tglu_dtype dtype, const tglu__store_args *args) {
  for (int64_t i = 0; i < args->count; i++) {
    float sum = args->c0[i];
    if (args->bias0 != NULL) sum += args->bias0[i];
    if (args->residual != NULL) sum += tglu__load(dtype, args->residual, i);
    tglu__store(dtype, args->out, i, sum);
  }
}

#define INSTANTIATE(name, dtype)                                      \
  void tglu__portable_store_glu_##name(const tglu__store_args *args) { \
    store_glu(dtype, args);                                           \
  }                                                                   \
  void tglu__portable_store_down_##name(const tglu__store_args *args) { \
    store_down(dtype, args);                                          \
  }
INSTANTIATE(bf16, TGLU_DTYPE_BF16)
INSTANTIATE(f16, TGLU_DTYPE_F16)
INSTANTIATE(f32, TGLU_DTYPE_F32)
