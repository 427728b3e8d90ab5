/* A stretch of x to fp32 in scratch, zeros up to a multiple of TGLU__K_ALIGN: in order
 * for the panel kernels, in the order of load16_half for the dot kernels. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/vec.h"

TGLU__INLINE void convert16(tglu_dtype dtype, const char *p, float *out, int dot) {
  _mm256_store_ps(out, dot ? load16_half(dtype, p, 0) : load8(dtype, p));
  _mm256_store_ps(out + 8, dot ? load16_half(dtype, p, 1)
                               : load8(dtype, p + 8 * size_of(dtype)));
}

TGLU__INLINE void load_x(tglu_dtype dtype, const void *x, int64_t count, float *out,
                         int dot) {
  const char *p = x;
  int64_t k = 0;
  for (; k + 16 <= count; k += 16) convert16(dtype, p + k * size_of(dtype), out + k, dot);
  if (k < count) {
    char buffer[64] = {0};
    memcpy(buffer, p + k * size_of(dtype), (size_t)((count - k) * size_of(dtype)));
    convert16(dtype, buffer, out + k, dot);
    k += 16;
  }
  for (; k % TGLU__K_ALIGN != 0; k += 8) _mm256_store_ps(out + k, _mm256_setzero_ps());
}

#define INSTANTIATE(name, dtype)                                                     \
  void tglu__avx2_load_x_dot_##name(const void *x, int64_t count, float *out) {      \
    load_x(dtype, x, count, out, 1);                                                 \
  }                                                                                  \
  void tglu__avx2_load_x_panel_##name(const void *x, int64_t count, float *out) {    \
    load_x(dtype, x, count, out, 0);                                                 \
  }
INSTANTIATE(bf16, TGLU_DTYPE_BF16)
INSTANTIATE(f16, TGLU_DTYPE_F16)
INSTANTIATE(f32, TGLU_DTYPE_F32)
