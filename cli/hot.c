/* Compiled once per ISA level with HOT_TABLE naming the result; see hot.h.  Plain
 * loops that the compiler turns into vector code. */
#include "hot.h"

#include <math.h>
#include <string.h>

typedef double vec __attribute__((vector_size(32)));
enum { LANES = 4 };

/* An unaligned load; not a function, since vectors passed by value would make the
 * calling convention depend on the ISA level. */
typedef double vec_anywhere __attribute__((vector_size(32), aligned(8), may_alias));
#define LOAD(p) (*(const vec_anywhere *)(p))

static double total(const vec *v) { return ((*v)[0] + (*v)[1]) + ((*v)[2] + (*v)[3]); }

static void dot_one(const double *w, const double *a, const double *b, int64_t k,
                    double *sum, double *squares) {
  vec s[2] = {{0}}, q[2] = {{0}};
  int64_t i = 0;
  for (; i + 2 * LANES <= k; i += 2 * LANES) {
    for (int j = 0; j < 2; j++) {
      vec x = LOAD(w + i + j * LANES), y = x * LOAD(b + i + j * LANES);
      s[j] += x * LOAD(a + i + j * LANES);
      q[j] += y * y;
    }
  }
  s[0] += s[1];
  q[0] += q[1];
  *sum = total(&s[0]);
  *squares = total(&q[0]);
  for (; i < k; i++) {
    *sum += w[i] * a[i];
    *squares += w[i] * b[i] * (w[i] * b[i]);
  }
}

static void dot_four(const double *w, const double *const *a, const double *const *b,
                     int64_t k, double *sum, double *squares) {
  vec s[HOT_ROWS] = {{0}}, q[HOT_ROWS] = {{0}};
  int64_t i = 0;
  for (; i + LANES <= k; i += LANES) {
    vec x = LOAD(w + i);
    for (int r = 0; r < HOT_ROWS; r++) {
      vec y = x * LOAD(b[r] + i);
      s[r] += x * LOAD(a[r] + i);
      q[r] += y * y;
    }
  }
  for (int r = 0; r < HOT_ROWS; r++) {
    sum[r] = total(&s[r]);
    squares[r] = total(&q[r]);
    for (int64_t j = i; j < k; j++) {
      sum[r] += w[j] * a[r][j];
      squares[r] += w[j] * b[r][j] * (w[j] * b[r][j]);
    }
  }
}

static void dot(const double *w, const double *const *a, const double *const *b, int rows,
                int64_t k, double *sum, double *squares) {
  if (rows == HOT_ROWS) {
    dot_four(w, a, b, k, sum, squares);
    return;
  }
  for (int r = 0; r < rows; r++) dot_one(w, a[r], b[r], k, sum + r, squares + r);
}

/* ---- number types, without branches so that loops over them become vectors ---- */
static inline float as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t as_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float from_bf16(uint16_t bits) { return as_float((uint32_t)bits << 16); }

static inline uint16_t to_bf16(float value) {
  uint32_t bits = as_bits(value);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

static inline float from_f16(uint16_t bits) {
  uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13;
  float value = as_float(magnitude) * 0x1p112f;
  uint32_t special = magnitude | 0x7f800000; /* infinity and NaN */
  uint32_t result = magnitude >= 0x0f800000 ? special : as_bits(value);
  return as_float(result | (uint32_t)(bits & 0x8000) << 16);
}

static inline uint16_t to_f16(float value) {
  uint32_t bits = as_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  /* Subnormal results: an addition aligns the fraction at 2^-24 and rounds. */
  uint32_t small = as_bits(as_float(magnitude) + 0.5f) - 0x3f000000;
  uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
  uint32_t result = magnitude < 0x38800000 ? small : normal;
  result = magnitude >= 0x477ff000 ? 0x7c00 : result;
  result = magnitude > 0x7f800000 ? 0x7e00 : result;
  return (uint16_t)(sign | result);
}

static void widen(const void *from, tglu_dtype dtype, int64_t count, double *to) {
  const unsigned char *bytes = from; /* any alignment */
  if (dtype == TGLU_DTYPE_F32) {
    for (int64_t i = 0; i < count; i++) {
      float value;
      memcpy(&value, bytes + 4 * i, 4);
      to[i] = value;
    }
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    uint16_t bits;
    memcpy(&bits, bytes + 2 * i, 2);
    to[i] = dtype == TGLU_DTYPE_BF16 ? from_bf16(bits) : from_f16(bits);
  }
}

/* ---- activations in fp32 ---- */
/* e^x for x <= 0: 2^n times a polynomial on [-ln2/2, ln2/2].  n is read off the bits of
 * 1.5 2^23 + n: to convert it would be undefined for NaN. */
static inline float exp_negative(float x) {
  x = x < -87.0f ? -87.0f : x; /* NaN stays */
  float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666672f + r * (0.0416667f +
            r * (0.00833334f + r * 0.00139f)))));
  return p * as_float((as_bits(shifted) - 0x4b400000 + 127) << 23);
}

static inline float sigmoid(float x) {
  float e = exp_negative(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/* Abramowitz and Stegun 7.1.26: absolute error 1.5e-7. */
static inline float normal_cdf(float x) {
  float z = fabsf(x) * 0.707106781f;
  float t = 1.0f / (1.0f + 0.3275911f * z);
  float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f +
            t * (-1.453152027f + t * 1.061405429f))));
  float upper = 0.5f * p * exp_negative(-z * z);
  return x < 0 ? upper : 1.0f - upper;
}

/* Constant kind: the loops below are made once per activation. */
static inline __attribute__((always_inline)) float
product(float g, float u, tglu_activation kind, const hot_activation *a) {
  switch (kind) {
  case TGLU_ACTIVATION_SILU: return g * sigmoid(g) * u;
  case TGLU_ACTIVATION_GELU_TANH:
    return g * sigmoid(1.59576912f * (g + 0.044715f * g * g * g)) * u;
  case TGLU_ACTIVATION_GELU_ERF: return g * normal_cdf(g) * u;
  case TGLU_ACTIVATION_RELU: return (g < 0 ? 0.0f : g) * u;
  case TGLU_ACTIVATION_SIGMOID: return sigmoid(g) * u;
  default:
    g = g > a->limit ? a->limit : g;
    u = u > a->limit ? a->limit : u;
    u = u < -a->limit ? -a->limit : u;
    return g * sigmoid(a->alpha * g) * (u + a->offset);
  }
}

static inline __attribute__((always_inline)) void
pass(const void *gate, const void *up, void *h, tglu_dtype dtype, int64_t count,
     tglu_activation kind, const hot_activation *a) {
  const uint16_t *restrict g2 = gate, *restrict u2 = up;
  const float *restrict g4 = gate, *restrict u4 = up;
  uint16_t *restrict h2 = h;
  float *restrict h4 = h;
  if (dtype == TGLU_DTYPE_BF16) {
    for (int64_t i = 0; i < count; i++)
      h2[i] = to_bf16(product(from_bf16(g2[i]), from_bf16(u2[i]), kind, a));
  } else if (dtype == TGLU_DTYPE_F16) {
    for (int64_t i = 0; i < count; i++)
      h2[i] = to_f16(product(from_f16(g2[i]), from_f16(u2[i]), kind, a));
  } else {
    for (int64_t i = 0; i < count; i++) h4[i] = product(g4[i], u4[i], kind, a);
  }
}

static void activate(const void *gate, const void *up, void *h, tglu_dtype dtype,
                     int64_t count, const hot_activation *a) {
#define PASS_(kind) case kind: pass(gate, up, h, dtype, count, kind, a); break;
  switch (a->kind) {
    PASS_(TGLU_ACTIVATION_SILU)
    PASS_(TGLU_ACTIVATION_GELU_TANH)
    PASS_(TGLU_ACTIVATION_GELU_ERF)
    PASS_(TGLU_ACTIVATION_RELU)
    PASS_(TGLU_ACTIVATION_SIGMOID)
    PASS_(TGLU_ACTIVATION_SWIGLUOAI)
  }
#undef PASS_
}

static uint64_t read_all(const void *data, size_t bytes) {
  typedef uint64_t words __attribute__((vector_size(32)));
  const unsigned char *p = data;
  words sum[4] = {{0}};
  size_t i = 0;
  for (; i + sizeof sum <= bytes; i += sizeof sum) {
    for (int j = 0; j < 4; j++) {
      words w;
      memcpy(&w, p + i + (size_t)j * sizeof w, sizeof w);
      sum[j] ^= w;
    }
  }
  uint64_t result = 0;
  for (; i < bytes; i++) result += p[i];
  sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
  return result ^ sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
}

extern const hot_loops HOT_TABLE;
const hot_loops HOT_TABLE = {HOT_ISA, dot, widen, activate, read_all};
