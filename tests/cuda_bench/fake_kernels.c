/* The kernels, on the host: the bench's own and the rows, for small shapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../cli/cuda_bench/kernels/bench_kernels.h"
#include "../../cli/numbers.h"
#include "../../kernels/sm90/down_launch.h"
#include "../../kernels/sm90/launch.h"
#include "../../kernels/sm90/down_diag_launch.h"
#include "../../kernels/sm90/stream_mlp_launch.h"
#include "fake.h"

static double load(const uint16_t *data, int dtype, int64_t i) {
  return num_load(data, (tglu_dtype)dtype, i);
}

static void store(uint16_t *data, int dtype, int64_t i, double value) {
  num_store(data, (tglu_dtype)dtype, i, value);
}

static double sigma(double z) { return 1 / (1 + exp(-z)); }

static double act(int activation, double alpha, double g) {
  switch (activation) {
  case 1: return g * sigma(g);
  case 2: return g * sigma(1.5957691216057308 * (g + 0.044715 * g * g * g));
  case 3: return 0.5 * g * erfc(-g * 0.70710678118654752440);
  case 4: return g > 0 ? g : 0;
  case 5: return sigma(g);
  default: return g * sigma(alpha * g);
  }
}

static double dot(const uint16_t *a, const uint16_t *b, int64_t k, int dtype) {
  double sum = 0;
  for (int64_t i = 0; i < k; i++) sum += load(a, dtype, i) * load(b, dtype, i);
  return sum;
}

static void clamp(int activation, double limit, double offset, double *g, double *u) {
  if (activation != 6) return;
  *g = fmin(*g, limit);
  *u = fmin(fmax(*u, -limit), limit) + offset;
}

/* ---- the bench's kernels ---- */

typedef struct fill_parameters {
  uint16_t *out;
  int64_t count;
  uint64_t seed;
  float scale;
  int32_t dtype;
} fill_parameters;

static uint64_t mix(uint64_t z) {
  z += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static void run_fill(const fake_op *op) {
  fill_parameters p;
  memcpy(&p, op->words, sizeof p);
  for (int64_t i = 0; i < p.count; i++) {
    uint64_t bits = mix(p.seed ^ mix((uint64_t)i));
    double u = ((double)(uint32_t)bits + 0.5) / 4294967296.0;
    double v = (double)(bits >> 32) / 4294967296.0;
    store(p.out, p.dtype, i, (double)p.scale * sqrt(-2 * log(u)) * cos(6.2831853 * v));
  }
}

typedef struct write_parameters {
  uint16_t *x;
  const uint16_t *source;
  int64_t count;
} write_parameters;

static void run_write_x(const fake_op *op) {
  write_parameters p;
  memcpy(&p, op->words, sizeof p);
  memcpy(p.x, p.source, 2 * (size_t)p.count);
}

static void run_nothing(const fake_op *op) { (void)op; }

typedef struct activate_parameters {
  bench_problem problem;
  const uint16_t *y;
  uint16_t *h;
} activate_parameters;

static void run_activate(const fake_op *op) {
  activate_parameters p;
  memcpy(&p, op->words, sizeof p);
  const bench_problem *q = &p.problem;
  for (int64_t i = 0; i < q->m * q->n; i++) {
    const uint16_t *row = p.y + i / q->n * 2 * q->n;
    int64_t j = i % q->n;
    double g = load(row, q->dtype, q->interleaved ? 2 * j : q->gate_column + j);
    double u = load(row, q->dtype, q->interleaved ? 2 * j + 1 : q->up_column + j);
    clamp(q->activation, (double)q->limit, (double)q->offset, &g, &u);
    double a = num_round(act(q->activation, (double)q->alpha, g), (tglu_dtype)q->dtype);
    store(p.h, q->dtype, i, a * u);
  }
}

typedef struct reference_parameters {
  bench_problem problem;
  const uint16_t *x;
  const int64_t *rows;
  int64_t row_count;
  double *reference;
} reference_parameters;

static void run_reference(const fake_op *op) {
  reference_parameters p;
  memcpy(&p, op->words, sizeof p);
  const bench_problem *q = &p.problem;
  const uint16_t *gate = (const uint16_t *)(uintptr_t)q->gate;
  const uint16_t *up = (const uint16_t *)(uintptr_t)q->up;
  for (int64_t i = 0; i < p.row_count * q->n; i++) {
    const uint16_t *x = p.x + p.rows[i / q->n] * q->k;
    double g = dot(x, gate + i % q->n * q->ldw, q->k, q->dtype);
    double u = dot(x, up + i % q->n * q->ldw, q->k, q->dtype);
    clamp(q->activation, (double)q->limit, (double)q->offset, &g, &u);
    p.reference[i] = act(q->activation, (double)q->alpha, g) * u;
  }
}

typedef struct down_parameters {
  const double *h;
  const uint16_t *w;
  int64_t n, columns, row_count, dtype;
  double *reference;
} down_parameters;

static void run_reference_down(const fake_op *op) {
  down_parameters p;
  memcpy(&p, op->words, sizeof p);
  for (int64_t i = 0; i < p.row_count * p.columns; i++) {
    const double *h = p.h + i / p.columns * p.n;
    const uint16_t *w = p.w + i % p.columns * p.n;
    double sum = 0;
    for (int64_t j = 0; j < p.n; j++) sum += h[j] * load(w, (int)p.dtype, j);
    p.reference[i] = sum;
  }
}

typedef struct count_parameters {
  const uint16_t *data;
  int64_t count, dtype;
  uint64_t *total;
} count_parameters;

static void run_count_bad(const fake_op *op) {
  count_parameters p;
  memcpy(&p, op->words, sizeof p);
  for (int64_t i = 0; i < p.count; i++) *p.total += !isfinite(load(p.data, (int)p.dtype, i));
}

/* ---- rows ---- */

/* Row i of an operand that `classes` tensor maps describe; the fake's maps hold address
 * and stride. */
static const uint16_t *row_at(const tglu_tensor_map *maps, const int32_t *shifts, int classes,
                              int64_t i) {
  const tglu_tensor_map *map = &maps[i % classes];
  const char *base = (const char *)(uintptr_t)map->opaque[1];
  return (const uint16_t *)(const void *)(base + i / classes * (int64_t)map->opaque[2]) +
         shifts[i % classes];
}

static int held(const char *variable, const char *name) {
  const char *text = getenv(variable);
  return text && *text && strstr(name, text) != NULL;
}

/* "glu_bf16_sm90_stream_8x16..." -> "stream_8x16...". */
static const char *schedule_of(const char *name) {
  const char *isa = strstr(name, "_sm90_");
  return isa ? isa + 6 : name;
}

static int dtype_of(const char *name) { return strstr(name, "_bf16_") ? 1 : 2; }

static int is_stream(const char *name) {
  return strncmp(schedule_of(name), "stream", 6) == 0;
}

static double factor_of(const fake_op *op) { return held("FAKE_WRONG", op->kernel) ? 1.1 : 1; }

static void run_row(const fake_op *op) {
  static const int32_t none[8];
  tglu_glu_general_launch p;
  int general = strstr(op->kernel, "_general") != NULL;
  memcpy(&p, op->words, general ? sizeof p : sizeof p.base);
  const tglu_glu_launch *l = &p.base;
  int dtype = dtype_of(op->kernel);
  int64_t last = (int64_t)l->m * l->n - held("FAKE_UNWRITTEN", op->kernel);
  for (int64_t i = 0; i < last; i++) {
    int64_t row = i / l->n, column = i % l->n;
    const uint16_t *x = row_at(general ? p.x : &l->x, general ? p.x_shift : none,
                               general ? p.x_classes : 1, row);
    const uint16_t *gate = row_at(general ? p.gate : &l->gate, general ? p.gate_shift : none,
                                  general ? p.w_classes : 1, column);
    const uint16_t *up = row_at(general ? p.up : &l->up, general ? p.up_shift : none,
                                general ? p.w_classes : 1, column);
    double g = dot(x, gate, l->k, dtype), u = dot(x, up, l->k, dtype);
    if (l->gate_bias) g += load(l->gate_bias, dtype, column * l->bias_stride);
    if (l->up_bias) u += load(l->up_bias, dtype, column * l->bias_stride);
    clamp(l->activation, (double)l->limit, (double)l->offset, &g, &u);
    store(l->out_pointer, dtype, row * l->ldo + column,
          factor_of(op) * act(l->activation, (double)l->alpha, g) * u);
  }
}

/* What one result of a down row, or of a stream row, gets beside the product. */
static double rest_of(const void *bias, const void *residual, int dtype, int64_t column,
                      int64_t at) {
  return (bias ? load(bias, dtype, column) : 0) + (residual ? load(residual, dtype, at) : 0);
}

static void stream(const fake_op *op, tglu_stream_launch l, int down, int unwritten) {
  int dtype = dtype_of(op->kernel);
  int64_t last = (int64_t)l.m * l.n - unwritten;
  for (int64_t i = 0; i < last; i++) {
    int64_t row = i / l.n, column = i % l.n;
    const uint16_t *x = (const uint16_t *)l.x + row * l.ldx;
    double g = dot(x, (const uint16_t *)l.gate + column * l.ldw, l.k, dtype), value = g;
    if (down) {
      value += rest_of(l.gate_bias, l.residual, dtype, column, row * l.ldr + column);
    } else {
      double u = dot(x, (const uint16_t *)l.up + column * l.ldw, l.k, dtype);
      g += rest_of(l.gate_bias, NULL, dtype, column * l.bias_stride, 0);
      u += rest_of(l.up_bias, NULL, dtype, column * l.bias_stride, 0);
      clamp(l.activation, (double)l.limit, (double)l.offset, &g, &u);
      value = act(l.activation, (double)l.alpha, g) * u;
    }
    store(l.out, dtype, row * l.ldo + column, factor_of(op) * value);
  }
}

static void run_stream(const fake_op *op) {
  tglu_stream_launch l;
  memcpy(&l, op->words, sizeof l);
  stream(op, l, strncmp(op->kernel, "down_", 5) == 0, held("FAKE_UNWRITTEN", op->kernel));
}

static void run_stream_mlp(const fake_op *op) {
  tglu_stream_mlp_launch l;
  memcpy(&l, op->words, sizeof l);
  stream(op, l.glu, 0, 0);
  stream(op, l.down, 1, held("FAKE_UNWRITTEN", op->kernel));
}

static void run_diag(const fake_op *op) {
  tglu_down_diag_launch l;
  memcpy(&l, op->words, sizeof l);
  const tglu_stream_launch as = {
    .x = l.x, .ldx = l.ldx, .gate = (const void *)(uintptr_t)l.w.opaque[1],
    .ldw = (int64_t)l.w.opaque[2] / 2, .gate_bias = l.bias,
    .residual = l.residual, .ldr = l.ldr, .out = l.out, .ldo = l.ldo, .m = l.m, .n = l.n, .k = l.k};
  stream(op, as, 1, held("FAKE_UNWRITTEN", op->kernel));
}

static void run_down(const fake_op *op) {
  static const int32_t none[8];
  tglu_down_launch l;
  memcpy(&l, op->words, sizeof l);
  int dtype = dtype_of(op->kernel);
  int64_t last = (int64_t)l.m * l.n - held("FAKE_UNWRITTEN", op->kernel);
  for (int64_t i = 0; i < last; i++) {
    int64_t row = i / l.n, column = i % l.n;
    double value = dot(row_at(&l.x, none, 1, row), row_at(&l.w, none, 1, column), l.k, dtype);
    value += rest_of(l.bias, l.residual, dtype, column, row * l.ldr + column);
    store(l.out_pointer, dtype, row * l.ldo + column, factor_of(op) * value);
  }
}

static double row_us(const char *name, double flop) {
  unsigned hash = 0;
  for (const char *c = name; *c; c++) hash = hash * 31 + (unsigned char)*c;
  return 3 + flop / 700e6 + hash % 100 * 0.01;
}

/* A kernel row's op; 0, or an error. */
static int row_op(const char *name, void **parameters, fake_op *op) {
  size_t bytes;
  double flop;
  if (strncmp(name, "mlp_", 4) == 0) {
    const tglu_stream_mlp_launch *l = parameters[0];
    bytes = sizeof *l;
    op->run = run_stream_mlp;
    flop = 6.0 * l->glu.m * (double)l->glu.n * l->glu.k;
  } else if (is_stream(name)) {
    const tglu_stream_launch *l = parameters[0];
    bytes = sizeof *l;
    op->run = run_stream;
    flop = 4.0 * l->m * (double)l->n * l->k;
  } else if (strncmp(schedule_of(name), "down_diag", 9) == 0) {
    const tglu_down_diag_launch *l = parameters[0];
    bytes = sizeof *l;
    op->run = run_diag;
    flop = 2.0 * l->m * (double)l->n * l->k;
  } else if (strncmp(name, "down_", 5) == 0) {
    const tglu_down_launch *l = parameters[0];
    bytes = sizeof *l;
    op->run = run_down;
    flop = 2.0 * l->m * (double)l->n * l->k;
  } else {
    const tglu_glu_launch *l = parameters[0];
    bytes = strstr(name, "_general") ? sizeof(tglu_glu_general_launch) : sizeof *l;
    op->run = run_row;
    flop = 4.0 * l->m * (double)l->n * l->k;
  }
  if (bytes > sizeof op->words) return 1;
  memcpy(op->words, parameters[0], bytes);
  op->us = row_us(name, flop);
  return 0;
}

/* ---- by name ---- */

static const struct {
  const char *name;
  void (*run)(const fake_op *op);
  double us;
  int count;
  int bytes[7];
} kernels[] = {
  {"bench_fill", run_fill, 2, 5, {8, 8, 8, 4, 4}},
  {"bench_write_x", run_write_x, 1.5, 3, {8, 8, 8}},
  {"bench_empty", run_nothing, 1, 1, {BENCH_EMPTY_BYTES}},
  {"bench_activate", run_activate, 2.5, 3, {sizeof(bench_problem), 8, 8}},
  {"bench_reference", run_reference, 5, 5, {sizeof(bench_problem), 8, 8, -4, 8}},
  {"bench_reference_down", run_reference_down, 5, 7, {8, 8, 8, 8, -4, -4, 8}},
  {"bench_read4", run_nothing, 4.5, 4, {8, 8, 8, 8}},
  {"bench_read8", run_nothing, 2.75, 4, {8, 8, 8, 8}},
  {"bench_read16", run_nothing, 3.5, 4, {8, 8, 8, 8}},
  {"bench_count_bad", run_count_bad, 2, 4, {8, 8, -4, 8}},
};

int fake_kernel_op(const char *name, void **parameters, fake_op *op) {
  memset(op, 0, sizeof *op);
  memcpy(op->kernel, name, strnlen(name, sizeof op->kernel - 1));
  char *to = (char *)op->words;
  if (strstr(name, "_sm90_")) return row_op(name, parameters, op);
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
    if (strcmp(kernels[i].name, name) != 0) continue;
    op->run = kernels[i].run;
    op->us = kernels[i].us;
    for (int j = 0; j < kernels[i].count; j++) { /* a negative size: padded to 8 */
      int bytes = kernels[i].bytes[j];
      memcpy(to, parameters[j], (size_t)(bytes < 0 ? -bytes : bytes));
      to += bytes < 0 ? 8 : bytes;
    }
    return 0;
  }
  return 1;
}

static void run_gemm(const fake_op *op) {
  fake_gemm g;
  memcpy(&g, op->words, sizeof g);
  for (int64_t i = 0; i < g.tokens * g.rows; i++) {
    const uint16_t *x = g.x + i / g.rows * g.k, *w = g.w + i % g.rows * g.k;
    store(g.y, g.dtype, i, dot(x, w, g.k, g.dtype));
  }
}

int fake_enqueue_gemm(void *stream, const fake_gemm *g, double us, const char *name) {
  fake_op op;
  memset(&op, 0, sizeof op);
  memcpy(op.kernel, name, strnlen(name, sizeof op.kernel - 1));
  memcpy(op.words, g, sizeof *g);
  op.run = run_gemm;
  op.us = us + 4e-6 * (double)(g->rows / 2 * g->tokens) * (double)g->k / 750;
  return fake_enqueue(stream, &op);
}
