#include "oracle.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"

static const double unit = 0x1p-24; /* half a step of fp32, relative */

static void *allocate(size_t count, size_t bytes) {
  void *p = malloc(count == 0 ? 1 : count * bytes);
  if (p == NULL) {
    fprintf(stderr, "oracle: out of memory\n");
    exit(2);
  }
  return p;
}

/* ---- activations ---- */

static double sigma(double z) {
  return z >= 0 ? 1 / (1 + exp(-z)) : exp(z) / (1 + exp(z));
}

static double tanh_argument(double g) {
  return 2 * sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g);
}

/* act(gate) without the factor of up. */
static double act(tglu_activation activation, double alpha, double limit, double g) {
  switch (activation) {
    case TGLU_ACTIVATION_SILU: return g * sigma(g);
    case TGLU_ACTIVATION_GELU_TANH: return g * sigma(tanh_argument(g));
    case TGLU_ACTIVATION_GELU_ERF: return g / 2 * erfc(-g / sqrt(2));
    case TGLU_ACTIVATION_RELU: return g < 0 ? 0 : g;
    case TGLU_ACTIVATION_SIGMOID: return sigma(g);
    case TGLU_ACTIVATION_SWIGLUOAI:
      g = g > limit ? limit : g;
      return g * sigma(alpha * g);
  }
  abort();
}

/* What the activation multiplies with. */
static double factor(tglu_activation activation, double limit, double offset, double u) {
  if (activation != TGLU_ACTIVATION_SWIGLUOAI) return u;
  if (u > limit) u = limit;
  if (u < -limit) u = -limit;
  return u + offset;
}

double tt_activation(tglu_activation activation, float alpha, float limit, float offset,
                     double gate, double up) {
  return act(activation, (double)alpha, (double)limit, gate) *
         factor(activation, (double)limit, (double)offset, up);
}

/* The plain computation's activation: fp32 and libm. */
static float plain_activation(const tt_case *c, float g, float u) {
  switch (c->activation) {
    case TGLU_ACTIVATION_SILU: return g / (1 + expf(-g)) * u;
    case TGLU_ACTIVATION_GELU_TANH:
      return g / (1 + expf(-1.5957691216f * (g + 0.044715f * g * g * g))) * u;
    case TGLU_ACTIVATION_GELU_ERF: return g * 0.5f * erfcf(-g * 0.70710678f) * u;
    case TGLU_ACTIVATION_RELU: return (g < 0 ? 0 : g) * u;
    case TGLU_ACTIVATION_SIGMOID: return 1 / (1 + expf(-g)) * u;
    case TGLU_ACTIVATION_SWIGLUOAI:
      g = g > c->limit ? c->limit : g;
      u = u > c->limit ? c->limit : u < -c->limit ? -c->limit : u;
      return g / (1 + expf(-c->alpha * g)) * (u + c->offset);
  }
  abort();
}

/* ---- sums ---- */

/* Eight partial sums, so that the compiler may use vectors. */
static double dot(const double *a, const double *b, int64_t n) {
  double s[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 8; j++) s[j] += a[i + j] * b[i + j];
  }
  for (; i < n; i++) s[0] += a[i] * b[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static double dot_abs(const double *a, const double *b, int64_t n) {
  double s[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 8; j++) s[j] += fabs(a[i + j] * b[i + j]);
  }
  for (; i < n; i++) s[0] += fabs(a[i] * b[i]);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static float plain_dot(const double *a, const double *b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (float)a[i] * (float)b[i];
  return sum;
}

/* Bound on the error of an fp32 sum of n products and up to two more terms, in
 * any order, with or without fused multiply-add; the 1.01 covers second order and
 * the oracle's own rounding. */
static double sum_error(int64_t n, double absolute_sum) {
  return 1.01 * unit * (double)(n + 2) * absolute_sum + 0x1p-148;
}

/* ---- the GLU ---- */

typedef struct h_range { double value, low, high, plain; } h_range;

/* Interval of an element of H before its rounding. */
static h_range h_element(const tt_case *c, const double *x, const double *gate,
                         const double *up, double gate_bias, double up_bias) {
  const int64_t k = c->k;
  const double g = dot(x, gate, k) + gate_bias;
  const double u = dot(x, up, k) + up_bias;
  const double gate_error = sum_error(k, dot_abs(x, gate, k) + fabs(gate_bias));
  const double up_error = sum_error(k, dot_abs(x, up, k) + fabs(up_bias));
  const double a = act(c->activation, (double)c->alpha, (double)c->limit, g);
  const double f = factor(c->activation, (double)c->limit, (double)c->offset, u);
  const bool exact = c->activation == TGLU_ACTIVATION_RELU;
  const double slope = 1.13; /* no activation is steeper (gelu's maximum is 1.129) */
  const double own = exact ? 0 : g >= -20 ? 0x1p-16 * fabs(a) : 0x1p-24;
  const double a_error = slope * gate_error + own;
  const double f_error = up_error + unit * fabs(f);
  const double error = a_error * fabs(f) + fabs(a) * f_error + a_error * f_error +
                       2 * unit * fabs(a * f) + 0x1p-148 * (1 + fabs(f));
  const float plain_g = plain_dot(x, gate, k) + (float)gate_bias;
  const float plain_u = plain_dot(x, up, k) + (float)up_bias;
  return (h_range){a * f, a * f - error, a * f + error,
                   (double)plain_activation(c, plain_g, plain_u)};
}

typedef double (*value_at)(const tt_case *, const tt_operands *, int64_t, int64_t);

static double *as_doubles(const tt_case *c, const tt_operands *o, value_at at,
                          int64_t rows, int64_t columns) {
  double *values = allocate((size_t)(rows * columns), sizeof(double));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < columns; i++) values[r * columns + i] = at(c, o, r, i);
  }
  return values;
}

static void allocate_reference(tt_reference *r, int64_t rows, int64_t columns) {
  const size_t count = (size_t)(rows * columns);
  r->rows = rows;
  r->columns = columns;
  r->value = allocate(count, sizeof(double));
  r->low = allocate(count, sizeof(double));
  r->high = allocate(count, sizeof(double));
  r->plain = allocate(count, sizeof(double));
}

/* H of the case; value is not rounded, the others are. */
static void glu_reference(const tt_case *c, const tt_operands *o, tt_reference *r) {
  allocate_reference(r, c->m, c->n);
  double *x = as_doubles(c, o, tt_x_at, c->m, c->k);
  double *gate = as_doubles(c, o, tt_gate_at, c->n, c->k);
  double *up = as_doubles(c, o, tt_up_at, c->n, c->k);
  for (int64_t j = 0; j < c->n; j++) {
    const double gate_bias = tt_gate_bias_at(c, o, j);
    const double up_bias = tt_up_bias_at(c, o, j);
    for (int64_t t = 0; t < c->m; t++) {
      const h_range h = h_element(c, x + t * c->k, gate + j * c->k, up + j * c->k,
                                  gate_bias, up_bias);
      const int64_t at = t * c->n + j;
      r->value[at] = h.value;
      r->low[at] = tt_round(c->dtype, h.low);
      r->high[at] = tt_round(c->dtype, h.high);
      r->plain[at] = tt_round(c->dtype, h.plain);
    }
  }
  free(x);
  free(gate);
  free(up);
}

/* ---- the down projection ---- */

typedef struct h_rows { double *center, *radius; } h_rows;

/* Middle and half width of each interval of H: most are one single value. */
static h_rows centers_of(const tt_reference *h) {
  const size_t count = (size_t)(h->rows * h->columns);
  h_rows rows = {allocate(count, sizeof(double)), allocate(count, sizeof(double))};
  for (size_t i = 0; i < count; i++) {
    rows.center[i] = (h->low[i] + h->high[i]) / 2;
    rows.radius[i] = (h->high[i] - h->low[i]) / 2;
  }
  return rows;
}

/* O of an MLP (h: its H) or of a linear (h: x as an exact H). */
static void down_reference(const tt_case *c, const tt_operands *o, const tt_reference *h,
                           tt_reference *r) {
  const int64_t n = tt_down_columns(c), columns = tt_out_columns(c);
  allocate_reference(r, c->m, columns);
  h_rows rows = centers_of(h);
  double *down = as_doubles(c, o, tt_down_at, columns, n);
  for (int64_t i = 0; i < columns; i++) {
    const double bias = tt_down_bias_at(c, o, i);
    for (int64_t t = 0; t < c->m; t++) {
      const double residual = tt_residual_at(c, o, t, i);
      const double *row = down + i * n, *center = rows.center + t * n;
      const double radius = dot_abs(rows.radius + t * n, row, n);
      const double absolute =
          dot_abs(center, row, n) + radius + fabs(bias) + fabs(residual);
      const double middle = dot(center, row, n) + bias + residual;
      const double error = radius + sum_error(n, absolute);
      const int64_t at = t * columns + i;
      r->value[at] = dot(h->value + t * n, row, n) + bias + residual;
      r->low[at] = tt_round(c->dtype, middle - error);
      r->high[at] = tt_round(c->dtype, middle + error);
      const float sum = plain_dot(h->plain + t * n, row, n);
      r->plain[at] = tt_round(c->dtype, (double)(sum + (float)bias + (float)residual));
    }
  }
  free(down);
  free(rows.center);
  free(rows.radius);
}

static void exact_reference(const tt_case *c, const tt_operands *o, tt_reference *r) {
  allocate_reference(r, c->m, c->k);
  for (int64_t i = 0; i < c->m * c->k; i++) {
    r->value[i] = tt_x_at(c, o, i / c->k, i % c->k);
    r->low[i] = r->high[i] = r->plain[i] = r->value[i];
  }
}

void tt_reference_create(const tt_case *c, const tt_operands *o, tt_reference *r) {
  tt_reference h;
  switch (c->op) {
    case TT_OP_GLU: glu_reference(c, o, r); return;
    case TT_OP_MLP: glu_reference(c, o, &h); break;
    case TT_OP_LINEAR: exact_reference(c, o, &h); break;
  }
  down_reference(c, o, &h, r);
  tt_reference_destroy(&h);
}

void tt_reference_destroy(tt_reference *r) {
  free(r->value);
  free(r->low);
  free(r->high);
  free(r->plain);
  memset(r, 0, sizeof *r);
}
