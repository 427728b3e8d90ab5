#include "numbers.h"

#include <math.h>
#include <string.h>

typedef struct format {
  int precision;      /* significant bits, the hidden one included */
  int lowest;         /* exponent of the smallest subnormal        */
  int highest;        /* exponent of the largest finite value      */
} format;

static format format_of(tglu_dtype dtype) {
  switch (dtype) {
  case TGLU_DTYPE_BF16: return (format){8, -133, 127};
  case TGLU_DTYPE_F16:  return (format){11, -24, 15};
  default:              return (format){24, -149, 127};
  }
}

double num_unit_roundoff(tglu_dtype dtype) {
  return ldexp(1.0, -format_of(dtype).precision);
}

double num_smallest(tglu_dtype dtype) { return ldexp(1.0, format_of(dtype).lowest); }

double num_largest(tglu_dtype dtype) {
  format f = format_of(dtype);
  return ldexp(2.0 - ldexp(1.0, 1 - f.precision), f.highest);
}

double num_round(double value, tglu_dtype dtype) {
  if (value == 0.0 || !isfinite(value)) return value;
  format f = format_of(dtype);
  int step = ilogb(value) - (f.precision - 1);
  if (step < f.lowest) step = f.lowest;
  double rounded = ldexp(nearbyint(ldexp(value, -step)), step);
  if (fabs(rounded) > num_largest(dtype)) return copysign(INFINITY, value);
  return rounded;
}

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static double f16_value(uint16_t bits) {
  int exponent = bits >> 10 & 31;
  int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = fraction ? NAN : INFINITY;
  } else if (exponent == 0) {
    magnitude = ldexp(fraction, -24);
  } else {
    magnitude = ldexp(1024 + fraction, exponent - 25);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

/* value is a value of the type already. */
static uint16_t f16_bits(double value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  if (isnan(value)) return 0x7e00;
  double magnitude = fabs(value);
  if (isinf(value)) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x1p-14) return (uint16_t)(sign | (unsigned)ldexp(magnitude, 24));
  int exponent = ilogb(magnitude);
  unsigned fraction = (unsigned)ldexp(magnitude, 10 - exponent) - 1024u;
  return (uint16_t)(sign | (unsigned)(exponent + 15) << 10 | fraction);
}

double num_load(const void *data, tglu_dtype dtype, int64_t index) {
  if (dtype == TGLU_DTYPE_F32) {
    float value;
    memcpy(&value, (const char *)data + 4 * index, sizeof value);
    return value;
  }
  uint16_t bits;
  memcpy(&bits, (const char *)data + 2 * index, sizeof bits);
  return dtype == TGLU_DTYPE_BF16 ? bits_float((uint32_t)bits << 16) : f16_value(bits);
}

void num_store(void *data, tglu_dtype dtype, int64_t index, double value) {
  double rounded = num_round(value, dtype);
  if (dtype == TGLU_DTYPE_F32) {
    float narrow = (float)rounded;
    memcpy((char *)data + 4 * index, &narrow, sizeof narrow);
    return;
  }
  uint16_t bits = dtype == TGLU_DTYPE_BF16 ? (uint16_t)(float_bits((float)rounded) >> 16)
                                           : f16_bits(rounded);
  if (isnan(rounded) && dtype == TGLU_DTYPE_BF16) bits = 0x7fc0;
  memcpy((char *)data + 2 * index, &bits, sizeof bits);
}

/* Place of a value in the ordered list of the type's values, 0 at zero. */
static int64_t rank_of(double value, tglu_dtype dtype) {
  int64_t magnitude;
  if (dtype == TGLU_DTYPE_F16) {
    magnitude = f16_bits(fabs(value));
  } else {
    magnitude = float_bits((float)fabs(value));
    if (dtype == TGLU_DTYPE_BF16) magnitude >>= 16;
  }
  return value < 0 ? -magnitude : magnitude;
}

int64_t num_ulp_distance(double a, double b, tglu_dtype dtype) {
  int64_t distance = rank_of(a, dtype) - rank_of(b, dtype);
  return distance < 0 ? -distance : distance;
}
