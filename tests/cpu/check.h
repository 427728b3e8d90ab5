/* What the CPU unit tests share: cmocka, a random number generator, and numbers of
 * bf16, fp16 and fp32 by exact arithmetic, independent of the library's bit tricks. */
#ifndef TGLU_TESTS_CPU_CHECK_H
#define TGLU_TESTS_CPU_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/kernel.h"

static inline uint64_t random_bits(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static inline int64_t random_below(uint64_t *state, int64_t bound) {
  return (int64_t)(random_bits(state) % (uint64_t)bound);
}

/* Between -1 and 1, never 0. */
static inline float random_value(uint64_t *state) {
  float v = (float)(1 + random_below(state, 1 << 20)) * 0x1p-20f;
  return random_bits(state) & 1 ? v : -v;
}

/* Precision in bits and least exponent of a normal number. */
static inline int digits_of(tglu_dtype dtype) {
  return dtype == TGLU_DTYPE_BF16 ? 8 : dtype == TGLU_DTYPE_F16 ? 11 : 24;
}

static inline int least_exponent_of(tglu_dtype dtype) {
  return dtype == TGLU_DTYPE_F16 ? -14 : -126;
}

/* The value of a 16-bit pattern: sign, exponent field, fraction field. */
static inline double value_of_half(tglu_dtype dtype, uint16_t bits) {
  int fraction_bits = digits_of(dtype) - 1, exponent_bits = 15 - fraction_bits;
  int fraction = bits & ((1 << fraction_bits) - 1);
  int field = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  int least = least_exponent_of(dtype);
  double magnitude;
  if (field == (1 << exponent_bits) - 1)
    magnitude = fraction == 0 ? INFINITY : NAN;
  else if (field == 0)
    magnitude = ldexp(fraction, least - fraction_bits);
  else
    magnitude = ldexp(fraction + (1 << fraction_bits), field - 1 + least - fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/* value rounded to dtype, nearest even, as a double. */
static inline double rounded(tglu_dtype dtype, double value) {
  if (!isfinite(value) || value == 0) return value;
  int exponent;
  frexp(value, &exponent); /* |value| in [2^(e-1), 2^e) */
  int lowest = least_exponent_of(dtype) + 1;
  int step = (exponent < lowest ? lowest : exponent) - digits_of(dtype);
  double result = ldexp(nearbyint(ldexp(value, -step)), step);
  double limit = dtype == TGLU_DTYPE_F16 ? 65504.0
                 : dtype == TGLU_DTYPE_BF16 ? ldexp(255, 120)
                                            : (double)3.4028234663852886e38f;
  return fabs(result) > limit ? copysign(INFINITY, value) : result;
}

static inline bool same(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b && signbit(a) == signbit(b);
}

static inline size_t bytes_of(tglu_dtype dtype) {
  return dtype == TGLU_DTYPE_F32 ? 4 : 2;
}

/* The element at index of an array of dtype at any address. */
static inline double element_at(tglu_dtype dtype, const void *array, int64_t index) {
  const char *at = (const char *)array + index * (int64_t)bytes_of(dtype);
  if (dtype == TGLU_DTYPE_F32) {
    float value;
    memcpy(&value, at, sizeof value);
    return (double)value;
  }
  uint16_t bits;
  memcpy(&bits, at, sizeof bits);
  return value_of_half(dtype, bits);
}

/* A random finite element of dtype, of magnitude below 2. */
static inline void put_random(tglu_dtype dtype, void *array, int64_t index, uint64_t *state) {
  char *at = (char *)array + index * (int64_t)bytes_of(dtype);
  if (dtype == TGLU_DTYPE_F32) {
    float value = random_value(state);
    memcpy(at, &value, sizeof value);
    return;
  }
  uint16_t bits;
  do bits = (uint16_t)random_bits(state);
  while (!(fabs(value_of_half(dtype, bits)) < 2.0 && fabs(value_of_half(dtype, bits)) > 0.01));
  memcpy(at, &bits, sizeof bits);
}

/* Highest level that this machine can run; rows above are skipped and counted. */
static inline tglu__isa machine_isa(void) {
  tglu__cpuid_facts facts;
  tglu__cpuid_read(&facts);
  return tglu__cpuid_level(&facts);
}

static inline void *aligned(size_t bytes) {
  void *p = NULL;
  assert_int_equal(posix_memalign(&p, 64, (bytes + 63) / 64 * 64), 0);
  memset(p, 0xff, (bytes + 63) / 64 * 64);
  return p;
}

#endif /* TGLU_TESTS_CPU_CHECK_H */
