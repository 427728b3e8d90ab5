/* The MLP without an intermediate: the empty sum, plus down_bias, plus residual.
 * No kernel row serves it; host memory only. */
#include "internal.h"

#include <fenv.h>
#include <string.h>

static float f16_to_f32(uint16_t half)
{
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  uint32_t bits = 0;
  float value = 0.0f;
  if (magnitude >= 0x7c00u) {
    bits = sign | 0x7f800000u | (magnitude & 0x3ffu) << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  /* Moves the exponent field by a multiplication, which renormalises subnormals. */
  bits = magnitude << 13;
  memcpy(&value, &bits, sizeof value);
  value *= 0x1p112f;
  memcpy(&bits, &value, sizeof bits);
  bits |= sign;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t f32_to_f16(float value)
{
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u;
  if (bits >= 0x477ff000u) return sign | 0x7c00u; /* 65520 and above round to inf */
  if (bits < 0x38800000u) {                       /* subnormal: units of 2^-24    */
    float magnitude = 0.0f;
    memcpy(&magnitude, &bits, sizeof magnitude);
    const float shifted = magnitude + 0x1p-1f;    /* its ulp is 2^-24             */
    uint32_t rounded = 0;
    memcpy(&rounded, &shifted, sizeof rounded);
    return (uint16_t)(sign | (rounded - 0x3f000000u));
  }
  bits += 0xfffu + (bits >> 13 & 1u);
  return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

static float bf16_to_f32(uint16_t half)
{
  const uint32_t bits = (uint32_t)half << 16;
  float value = 0.0f;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t f32_to_bf16(float value)
{
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float load(tglu_dtype dtype, const void *base, int64_t index)
{
  const size_t bytes = tglu_dtype_bytes(dtype);
  const char *from = (const char *)base + (size_t)index * bytes;
  uint16_t half = 0;
  float single = 0.0f;
  if (dtype == TGLU_DTYPE_F32) {
    memcpy(&single, from, sizeof single);
    return single;
  }
  memcpy(&half, from, sizeof half);
  return dtype == TGLU_DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

static void store(tglu_dtype dtype, void *base, int64_t index, float value)
{
  const size_t bytes = tglu_dtype_bytes(dtype);
  char *to = (char *)base + (size_t)index * bytes;
  if (dtype == TGLU_DTYPE_F32) {
    memcpy(to, &value, sizeof value);
    return;
  }
  const uint16_t half = dtype == TGLU_DTYPE_BF16 ? f32_to_bf16(value) : f32_to_f16(value);
  memcpy(to, &half, sizeof half);
}

void tglu__empty_mlp_run(const tglu__problem *problem, const tglu__call *call)
{
  const tglu_dtype dtype = problem->dtype;
  fenv_t environment; /* the caller's rounding mode must not show, as in the kernels */
  fegetenv(&environment);
  fesetenv(FE_DFL_ENV);
  for (int64_t row = 0; row < call->tokens; row++)
    for (int64_t column = 0; column < problem->k; column++) {
      float sum = 0.0f;
      if (problem->down_bias) sum += load(dtype, problem->down_bias, column);
      if (call->residual) sum += load(dtype, call->residual, row * call->ldr + column);
      store(dtype, call->out, row * call->ldo + column, sum);
    }
  fesetenv(&environment);
}
