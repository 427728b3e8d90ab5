/* The row's 16-bit element type, bf16 or fp16: to fp32 and, rounded once to nearest even,
 * back. */
#ifndef TGLU_SM90_ELEMENT_CUH
#define TGLU_SM90_ELEMENT_CUH

#include <cuda_fp16.h>

#include "ptx.cuh"

#if ROW_DTYPE_BF16
TGLU_DEVICE uint32_t pack_pair(float low, float high) { return pack_bf16(low, high); }
TGLU_DEVICE float element_to_float(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }
#else
TGLU_DEVICE uint32_t pack_pair(float low, float high) { return pack_f16(low, high); }
TGLU_DEVICE float element_to_float(uint16_t bits) {
  float y;
  __half_raw raw;
  raw.x = bits;
  y = __half2float(__half(raw));
  return y;
}
#endif

#endif /* TGLU_SM90_ELEMENT_CUH */
