#include "oracle.h"

#include <math.h>
#include <stddef.h>

#include "mem.h"
#include "numbers.h"

static double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* g * s with the limits at +-infinity taken: silu(-inf) is 0. */
static double gated(double g, double s) { return s == 0 ? 0 * copysign(1, g) : g * s; }

static double activation(const tglu_glu_desc *d, double g) {
  switch (d->activation) {
  case TGLU_ACTIVATION_SILU: return gated(g, sigmoid(g));
  case TGLU_ACTIVATION_GELU_TANH: {
    double inner = g * (1 + 0.044715 * g * g);
    return gated(g, sigmoid(2 * 0.79788456080286535588 * inner));
  }
  case TGLU_ACTIVATION_GELU_ERF:
    return gated(g, 0.5 * erfc(-g * 0.70710678118654752440));
  case TGLU_ACTIVATION_RELU: return isnan(g) ? g : fmax(g, 0);
  case TGLU_ACTIVATION_SIGMOID: return sigmoid(g);
  default: return NAN;
  }
}

static double clamp(double v, double low, double high) {
  if (v > high) return high; /* NaN passes */
  return v < low ? low : v;
}

double oracle_glu(const tglu_glu_desc *d, double g, double u, double *slope_gate,
                  double *slope_up) {
  double act;
  if (d->activation == TGLU_ACTIVATION_SWIGLUOAI) {
    double limit = d->limit, limited = clamp(g, -INFINITY, limit);
    act = gated(limited, sigmoid((double)d->alpha * limited));
    u = clamp(u, -limit, limit) + (double)d->offset;
  } else {
    act = activation(d, g);
  }
  *slope_gate = 1.2 * fabs(u);
  *slope_up = fabs(act);
  return act * u;
}

typedef struct job {
  const oracle_call *call;
  const hot_loops *hot;
  double *x;                /* [tokens, K] widened                       */
  double *h, *dh;           /* [tokens, N]: GLU and its allowed error    */
  double *reference, *allowed;
  double *scratch;          /* a row of each weight per thread           */
  int64_t scratch_stride;
} job;

typedef struct glu_row {
  const char *gate, *up;    /* weights of one intermediate column        */
  double gate_bias, up_bias;
} glu_row;

static double bias_at(const void *bias, tglu_dtype dtype, int64_t index) {
  return bias ? num_load(bias, dtype, index) : 0;
}

static glu_row row_at(const tglu_glu_desc *d, int64_t n) {
  int64_t width = (int64_t)tglu_dtype_bytes(d->dtype);
  int64_t ld = (d->ld ? d->ld : d->hidden) * width;
  if (d->layout == TGLU_LAYOUT_SEPARATE) {
    return (glu_row){(const char *)d->gate + n * ld, (const char *)d->up + n * ld,
                     bias_at(d->gate_bias, d->dtype, n), bias_at(d->up_bias, d->dtype, n)};
  }
  int64_t gate = n, up = n;
  if (d->layout == TGLU_LAYOUT_STACKED_GATE_FIRST) up += d->intermediate;
  if (d->layout == TGLU_LAYOUT_STACKED_UP_FIRST) gate += d->intermediate;
  if (d->layout == TGLU_LAYOUT_INTERLEAVED) {
    gate = 2 * n;
    up = 2 * n + 1;
  }
  return (glu_row){(const char *)d->gate_up + gate * ld, (const char *)d->gate_up + up * ld,
                   bias_at(d->gate_up_bias, d->dtype, gate),
                   bias_at(d->gate_up_bias, d->dtype, up)};
}

/* Error that fp32 accumulation of count products may leave. */
static double product_error(int64_t count, double squares, double sum) {
  return 4 * 0x1p-24 * sqrt((double)count) * (sqrt(squares) + fabs(sum));
}

static void row_pointers(const double *base, int64_t first, int64_t rows, int64_t stride,
                         const double *pointers[HOT_ROWS]) {
  for (int64_t r = 0; r < rows; r++) pointers[r] = base + (first + r) * stride;
}

static int64_t rows_from(int64_t first, int64_t tokens) {
  return tokens - first < HOT_ROWS ? tokens - first : HOT_ROWS;
}

static void glu_columns(void *context, int64_t begin, int64_t end, int thread) {
  const job *j = context;
  const tglu_glu_desc *d = &j->call->desc->glu;
  double *gate = j->scratch + thread * j->scratch_stride, *up = gate + d->hidden;
  double unit = num_unit_roundoff(d->dtype), least = num_smallest(d->dtype);
  for (int64_t n = begin; n < end; n++) {
    glu_row row = row_at(d, n);
    j->hot->widen(row.gate, d->dtype, d->hidden, gate);
    j->hot->widen(row.up, d->dtype, d->hidden, up);
    for (int64_t m = 0; m < j->call->tokens; m += HOT_ROWS) {
      const double *x[HOT_ROWS];
      double g[HOT_ROWS], g2[HOT_ROWS], u[HOT_ROWS], u2[HOT_ROWS];
      int64_t rows = rows_from(m, j->call->tokens);
      row_pointers(j->x, m, rows, d->hidden, x);
      j->hot->dot(gate, x, x, (int)rows, d->hidden, g, g2);
      j->hot->dot(up, x, x, (int)rows, d->hidden, u, u2);
      for (int64_t r = 0; r < rows; r++) {
        double slope_gate, slope_up;
        double gr = g[r] + row.gate_bias, ur = u[r] + row.up_bias;
        double h = oracle_glu(d, gr, ur, &slope_gate, &slope_up);
        int64_t at = (m + r) * d->intermediate + n;
        j->h[at] = h;
        j->dh[at] = (unit + 0x1p-15) * fabs(h) + least +
                    slope_gate * product_error(d->hidden, g2[r], gr) +
                    slope_up * product_error(d->hidden, u2[r], ur);
      }
    }
  }
}

static void down_columns(void *context, int64_t begin, int64_t end, int thread) {
  const job *j = context;
  const oracle_call *call = j->call;
  const tglu_mlp_desc *d = call->desc;
  const tglu_dtype dtype = d->glu.dtype;
  const int64_t n = d->glu.intermediate, k = d->glu.hidden;
  const int64_t ld = (d->ld_down ? d->ld_down : n) * (int64_t)tglu_dtype_bytes(dtype);
  const int64_t ldr = call->ldr ? call->ldr : k;
  double *weights = j->scratch + thread * j->scratch_stride;
  double unit = num_unit_roundoff(dtype), least = num_smallest(dtype);
  for (int64_t i = begin; i < end; i++) {
    if (n > 0) j->hot->widen((const char *)d->down + i * ld, dtype, n, weights);
    double bias = bias_at(d->down_bias, dtype, i);
    for (int64_t m = 0; m < call->tokens; m += HOT_ROWS) {
      const double *h[HOT_ROWS], *dh[HOT_ROWS];
      double sum[HOT_ROWS], squares[HOT_ROWS];
      int64_t rows = rows_from(m, call->tokens);
      row_pointers(j->h, m, rows, n, h);
      row_pointers(j->dh, m, rows, n, dh);
      j->hot->dot(weights, h, dh, (int)rows, n, sum, squares);
      for (int64_t r = 0; r < rows; r++) {
        double rest = bias + (call->residual ? num_load(call->residual, dtype,
                                                        (m + r) * ldr + i) : 0);
        int64_t at = (m + r) * k + i;
        j->reference[at] = sum[r] + rest;
        /* dh / u exceeds |h|, so squares / u^2 exceeds the sum of (h w)^2. */
        double root = sqrt(squares[r]);
        j->allowed[at] = unit * fabs(j->reference[at]) + least + 4 * root +
                         product_error(n + 1, 0, fabs(sum[r]) + fabs(rest)) +
                         4 * 0x1p-24 * sqrt((double)n + 1) * root / (unit + 0x1p-15);
      }
    }
  }
}

void oracle_run(const oracle_call *call, const hot_loops *hot, pool *threads,
                double *reference, double *allowed) {
  const tglu_glu_desc *d = &call->desc->glu;
  const int64_t k = d->hidden, n = d->intermediate, m = call->tokens;
  if (m == 0) return;
  job j = {.call = call, .hot = hot, .reference = reference, .allowed = allowed};
  j.scratch_stride = 2 * k > n ? 2 * k : n;
  j.scratch = mem_zeroed((size_t)(j.scratch_stride * pool_threads(threads)), sizeof(double));
  j.x = mem_zeroed((size_t)(m * k), sizeof(double));
  const int64_t ldx = (call->ldx ? call->ldx : k) * (int64_t)tglu_dtype_bytes(d->dtype);
  for (int64_t i = 0; i < m; i++) {
    hot->widen((const char *)call->x + i * ldx, d->dtype, k, j.x + i * k);
  }
  if (call->kind == OP_GLU) {
    j.h = reference;
    j.dh = allowed;
    pool_for(threads, n, 8, glu_columns, &j);
  } else {
    j.h = mem_zeroed((size_t)(m * n), sizeof(double));
    j.dh = mem_zeroed((size_t)(m * n), sizeof(double));
    pool_for(threads, n, 8, glu_columns, &j);
    pool_for(threads, k, 8, down_columns, &j);
    mem_free(j.h);
    mem_free(j.dh);
  }
  mem_free(j.x);
  mem_free(j.scratch);
}
