/* bf16 and fp16 in plain C, one value at a time, at any address.  Rounding is to
 * nearest even; a NaN stays a (quiet) NaN; subnormals are exact.  Private; static
 * inline only, since it is shared by files compiled for different ISAs. */
#ifndef TGLU_CPU_NUMERIC_H
#define TGLU_CPU_NUMERIC_H

#include <stdint.h>
#include <string.h>

#include <tileglu/tileglu.h>

static inline uint32_t tglu__f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float tglu__f32_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float tglu__f32_from_bf16(uint16_t half) {
  return tglu__f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t tglu__bf16_from_f32(float value) {
  uint32_t bits = tglu__f32_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float tglu__f32_from_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0x1fu) { /* a NaN becomes quiet, as the CPU's own conversion does */
    uint32_t quiet = fraction != 0 ? 0x400000u : 0;
    return tglu__f32_from_bits(sign | 0x7f800000u | fraction << 13 | quiet);
  }
  if (exponent != 0)
    return tglu__f32_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
  float magnitude = (float)fraction * 0x1p-24f;
  return tglu__f32_from_bits(sign | tglu__f32_bits(magnitude));
}

static inline uint16_t tglu__f16_from_f32(float value) {
  uint32_t bits = tglu__f32_bits(value);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and up */
  if (magnitude < 0x38800000u) { /* below 2^-14: a multiple of 2^-24, or 0 */
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102u) return sign; /* below 2^-25 */
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t shift = 126u - exponent; /* 14 to 24 */
    uint32_t kept = significand >> shift;
    uint32_t rest = significand & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
    kept += rest > tie || (rest == tie && (kept & 1u)) ? 1u : 0u;
    return (uint16_t)(sign | kept);
  }
  uint32_t rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | rounded >> 13);
}

/* The index-th element of an array of dtype at any address, as fp32. */
static inline float tglu__load(tglu_dtype dtype, const void *array, int64_t index) {
  const char *base = array;
  if (dtype == TGLU_DTYPE_F32) {
    float value;
    memcpy(&value, base + index * 4, sizeof value);
    return value;
  }
  uint16_t half;
  memcpy(&half, base + index * 2, sizeof half);
  return dtype == TGLU_DTYPE_BF16 ? tglu__f32_from_bf16(half) : tglu__f32_from_f16(half);
}

/* Rounds value to dtype and stores it as the index-th element. */
static inline void tglu__store(tglu_dtype dtype, void *array, int64_t index, float value) {
  char *base = array;
  if (dtype == TGLU_DTYPE_F32) {
    memcpy(base + index * 4, &value, sizeof value);
    return;
  }
  uint16_t half = dtype == TGLU_DTYPE_BF16 ? tglu__bf16_from_f32(value)
                                           : tglu__f16_from_f32(value);
  memcpy(base + index * 2, &half, sizeof half);
}

static inline int64_t tglu__dtype_size(tglu_dtype dtype) {
  return dtype == TGLU_DTYPE_F32 ? 4 : 2;
}

#endif /* TGLU_CPU_NUMERIC_H */
