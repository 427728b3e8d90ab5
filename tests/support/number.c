#include "number.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A binary format: `digits` of significand with the hidden one, exponents of
 * normal numbers from low to high. */
typedef struct format {
  int digits, low, high, width;
} format;

static const format *format_of(tglu_dtype dtype) {
  static const format bf16 = {8, -126, 127, 16};
  static const format f16 = {11, -14, 15, 16};
  static const format f32 = {24, -126, 127, 32};
  switch (dtype) {
    case TGLU_DTYPE_BF16: return &bf16;
    case TGLU_DTYPE_F16: return &f16;
    case TGLU_DTYPE_F32: return &f32;
  }
  abort();
}

size_t tt_bytes_of(tglu_dtype dtype) {
  return (size_t)format_of(dtype)->width / 8;
}

static double power_of_two(int exponent) {
  return ldexp(1.0, exponent);
}

static double decode(const format *f, uint32_t bits) {
  const int fraction_bits = f->digits - 1;
  const uint32_t sign = bits >> (f->width - 1);
  const uint32_t fraction = bits & ((UINT32_C(1) << fraction_bits) - 1);
  const int exponent_field =
      (int)((bits >> fraction_bits) & ((UINT32_C(1) << (f->width - f->digits)) - 1));
  double value;
  if (exponent_field == f->high - f->low + 2) {
    value = fraction != 0 ? NAN : INFINITY;
  } else if (exponent_field == 0) {
    value = fraction * power_of_two(f->low - fraction_bits);
  } else {
    value = (fraction + power_of_two(fraction_bits)) *
            power_of_two(exponent_field - 1 + f->low - fraction_bits);
  }
  return sign ? -value : value;
}

/* Exponent of the step between neighbours at |value|. */
static int step_exponent(const format *f, double value) {
  int exponent;
  frexp(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
  exponent -= 1;
  if (value == 0 || exponent < f->low) exponent = f->low;
  if (exponent > f->high) exponent = f->high;
  return exponent - (f->digits - 1);
}

static double round_to(const format *f, double value) {
  if (isnan(value) || isinf(value) || value == 0) return value;
  const int step = step_exponent(f, value);
  const double scaled = ldexp(fabs(value), -step); /* exact */
  double whole = floor(scaled);
  const double rest = scaled - whole;
  if (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) == 1)) whole += 1;
  double result = ldexp(whole, step);
  if (result >= power_of_two(f->high + 1)) result = INFINITY;
  return copysign(result, value);
}

static uint32_t encode(const format *f, double value) {
  const int fraction_bits = f->digits - 1;
  const uint32_t sign = signbit(value) ? UINT32_C(1) << (f->width - 1) : 0;
  const uint32_t top = (uint32_t)(f->high - f->low + 2) << fraction_bits;
  if (isnan(value)) return top | (UINT32_C(1) << (fraction_bits - 1));
  const double rounded = fabs(round_to(f, value));
  if (isinf(rounded)) return sign | top;
  const int step = step_exponent(f, rounded);
  const uint32_t whole = (uint32_t)ldexp(rounded, -step);
  if (whole < UINT32_C(1) << fraction_bits) return sign | whole; /* subnormal */
  const uint32_t exponent_field = (uint32_t)(step + fraction_bits - f->low + 1);
  return sign | (exponent_field << fraction_bits) |
         (whole - (UINT32_C(1) << fraction_bits));
}

uint32_t tt_bits_at(tglu_dtype dtype, const void *base, int64_t index) {
  const size_t bytes = tt_bytes_of(dtype);
  const unsigned char *at = (const unsigned char *)base + (size_t)index * bytes;
  if (bytes == 2) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return bits;
  }
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

uint32_t tt_bits_of(tglu_dtype dtype, double value) {
  return encode(format_of(dtype), value);
}

double tt_load(tglu_dtype dtype, const void *base, int64_t index) {
  return decode(format_of(dtype), tt_bits_at(dtype, base, index));
}

void tt_store(tglu_dtype dtype, void *base, int64_t index, double value) {
  const size_t bytes = tt_bytes_of(dtype);
  unsigned char *at = (unsigned char *)base + (size_t)index * bytes;
  const uint32_t bits = tt_bits_of(dtype, value);
  if (bytes == 2) {
    const uint16_t half = (uint16_t)bits;
    memcpy(at, &half, sizeof half);
  } else {
    memcpy(at, &bits, sizeof bits);
  }
}

double tt_round(tglu_dtype dtype, double value) {
  return round_to(format_of(dtype), value);
}

double tt_ulp(tglu_dtype dtype, double value) {
  if (isnan(value) || isinf(value)) return INFINITY;
  return ldexp(1.0, step_exponent(format_of(dtype), value));
}

/* Position of a value on the line of all values of dtype; both zeros at 0. */
static int64_t place_of(tglu_dtype dtype, double value) {
  const uint32_t bits = tt_bits_of(dtype, value);
  const uint32_t sign = UINT32_C(1) << (format_of(dtype)->width - 1);
  return (bits & sign) != 0 ? -(int64_t)(bits & ~sign) : (int64_t)bits;
}

int64_t tt_ulp_distance(tglu_dtype dtype, double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : INT64_MAX;
  const int64_t distance = place_of(dtype, a) - place_of(dtype, b);
  return distance < 0 ? -distance : distance;
}
