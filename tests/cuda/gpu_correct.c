/* Right values: the checker itself, tile edges, layouts, a random sweep, real shapes,
 * offsets beyond 2^31, hand-made values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_parts.h"

static gpu_case plain(int64_t m, int64_t n, int64_t k, int dtype) {
  return (gpu_case){.m = m, .n = n, .k = k, .dtype = dtype,
                    .activation = TGLU_ACTIVATION_SILU, .layout = TGLU_LAYOUT_SEPARATE,
                    .alpha = 1.702f, .limit = 7.0f, .offset = 1.0f, .seed = 1};
}

/* Makes a case one that the TMA path takes: strides up to the next multiple of 8. */
static void align_case(gpu_case *c) {
  c->ldx_extra = (8 - c->k % 8) % 8;
  c->ldw_extra = (8 - c->k % 8) % 8;
}

/* ---- the checker ---- */

static double host_value(int dtype, uint16_t bits) {
  if (dtype == DTYPE_BF16) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
  int exponent = bits >> 10 & 31;
  double fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static double host_activation(const gpu_case *c, double g) {
  switch (c->activation) {
    case TGLU_ACTIVATION_SILU: return g / (1 + exp(-g));
    case TGLU_ACTIVATION_GELU_TANH:
      return g / 2 * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    case TGLU_ACTIVATION_GELU_ERF: return g / 2 * (1 + erf(g / M_SQRT2));
    case TGLU_ACTIVATION_RELU: return g > 0 ? g : 0;
    case TGLU_ACTIVATION_SIGMOID: return 1 / (1 + exp(-g));
    default: return g / (1 + exp(-c->alpha * g));
  }
}

static uint16_t *to_host(const void *from, int64_t elements) {
  uint16_t *to = malloc((size_t)elements * 2);
  if (to == NULL) exit(2);
  GPU(to_host(to, (gpu_pointer)(uintptr_t)from, (size_t)elements * 2));
  return to;
}

/* Largest difference of the device's reference from a computation here, relative to the
 * size of the operands. */
static double compare_reference(const gpu_operands *o, const double *values) {
  ref_problem p = gpu_reference_problem(o);
  const gpu_case *c = &o->c;
  uint16_t *x = to_host(p.x, p.m * p.ldx);
  uint16_t *gate = to_host(p.gate, (p.n - 1) * p.ldw + p.k);
  uint16_t *up = to_host(p.up, (p.n - 1) * p.ldw + p.k);
  uint16_t *gate_bias = p.gate_bias ? to_host(p.gate_bias, (p.n - 1) * p.bias_stride + 1) : NULL;
  uint16_t *up_bias = p.up_bias ? to_host(p.up_bias, (p.n - 1) * p.bias_stride + 1) : NULL;
  double worst = 0;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double g = gate_bias ? host_value(c->dtype, gate_bias[j * p.bias_stride]) : 0;
      double u = up_bias ? host_value(c->dtype, up_bias[j * p.bias_stride]) : 0;
      for (int64_t k = 0; k < p.k; ++k) {
        double a = host_value(c->dtype, x[i * p.ldx + k]);
        g += a * host_value(c->dtype, gate[j * p.ldw + k]);
        u += a * host_value(c->dtype, up[j * p.ldw + k]);
      }
      if (c->activation == TGLU_ACTIVATION_SWIGLUOAI) {
        g = fmin(g, c->limit);
        u = fmax(fmin(u, c->limit), -(double)c->limit) + c->offset;
      }
      double error = fabs(values[i * p.n + j] - host_activation(c, g) * u);
      if (!(error <= worst)) worst = error;
    }
  }
  free(x), free(gate), free(up), free(gate_bias), free(up_bias);
  return worst;
}

/* The reference against the host, then proof that the judge sees a wrong element, one
 * that was not written, and a write beside the output. */
void part_selfcheck(const gpu_options *options) {
  uint64_t random = options->seed;
  for (int i = 0; i < 48; ++i) {
    gpu_case c = plain(5, 24, 72, 1 + i % 2);
    c.activation = 1 + i / 2 % 6;
    c.layout = 1 + i / 12;
    c.bias = i % 3 != 0;
    c.ldo_extra = i % 5;
    c.ldw_extra = i % 4;
    c.seed = gpu_random(&random);
    gpu_operands o;
    if (!gpu_operands_create(&c, &o)) continue;
    gpu_pointer values = gpu_take((size_t)(c.m * c.n) * sizeof(double));
    double host[5 * 24];
    ref_result r = gpu_judge(&o, values);
    GPU(to_host(host, values, sizeof host));
    double worst = compare_reference(&o, host);
    gpu_expect(worst < 1e-11, "the reference is off by %g from the host's", worst);
    gpu_expect(r.wrong == r.compared && r.compared == 120,
               "an output never written passes as right (%llu of %llu wrong)", r.wrong,
               r.compared);
    gpu_operands_destroy(&o);
  }
  tglu_context *context = gpu_context(NULL, 0, 1, 0);
  if (context == NULL) return;
  gpu_case c = plain(100, 200, 264, DTYPE_BF16);
  gpu_operands o;
  tglu_glu_desc d;
  tglu_run_args a;
  tglu_glu *glu = NULL;
  gpu_operands_create(&c, &o);
  gpu_operands_desc(&o, &d);
  gpu_operands_args(&o, NULL, &a);
  if (gpu_require(tglu_glu_create(context, &d, &glu) == TGLU_OK && tglu_glu_run(glu, &a) == TGLU_OK,
                  "%s", tglu_last_error())) {
    GPU(synchronize());
    ref_result r = gpu_judge(&o, 0);
    gpu_expect(r.wrong == 0, "the case of the self-check is wrong itself: %llu of %llu",
               r.wrong, r.compared);
    uint16_t bits, changed;
    gpu_pointer element = o.out + 2 * (uint64_t)(57 * o.ldo + 133);
    GPU(to_host(&bits, element, 2));
    changed = (uint16_t)(bits + 3);
    GPU(to_device(element, &changed, 2));
    r = gpu_judge(&o, 0);
    gpu_expect(r.wrong == 1 && r.wrong_row == 57 && r.wrong_column == 133,
               "an element 3 steps off is not noticed");
    GPU(to_device(element, &bits, 2));
    GPU(to_device(o.out - 2, &bits, 2));
    r = gpu_judge(&o, 0);
    gpu_expect(r.overwritten == 1, "a write before out is not noticed");
  }
  tglu_glu_destroy(glu);
  gpu_operands_destroy(&o);
  tglu_context_destroy(context);
}

/* ---- tile edges ---- */

static void edges_of_row(const gpu_options *options, const char *row, int dtype) {
  int tile_m, tile_n, cluster;
  if (!gpu_row_tiles(row, &tile_m, &tile_n, &cluster)) return;
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  const int64_t high = (int64_t)tile_m * cluster;
  const int64_t ms[] = {1, 2, 63, 64, 65, tile_m - 1, tile_m, tile_m + 1, high - 1, high,
                        high + 1, 2 * high + 1, 5 * high + tile_m + 3};
  const int64_t ns[] = {1, 7, 8, 9, 24, tile_n - 8, tile_n - 4, tile_n - 1, tile_n, tile_n + 1,
                        tile_n + 4, tile_n + 8, 2 * tile_n, 2 * tile_n + 16,
                        (3 * tile_n + 15) / 8 * 8, 5 * tile_n + 40};
  const int64_t ks[] = {1, 7, 8, 15, 16, 24, 40, 63, 64, 65, 72, 127, 128, 129, 192, 200, 256,
                        320, 321, 384, 448, 512, 1000, 1001, 4104};
  const int nm = sizeof ms / sizeof ms[0], nn = sizeof ns / sizeof ns[0],
            nk = sizeof ks / sizeof ks[0];
  long long done = 0;
  uint64_t random = options->seed ^ 0xed9e;
  /* Every pair of (m, n), (n, k), (m, k), the third by turns. */
  for (int pair = 0; pair < 3; ++pair) {
    int first = pair == 1 ? nn : nm, second = pair == 0 ? nn : nk;
    for (int i = 0; i < first * second; ++i) {
      if (gpu_out_of_time(options)) {
        gpu_skip("%s: edges stopped by the time limit after %lld cases", row, done);
        tglu_context_destroy(context);
        return;
      }
      int a = i / second, b = i % second;
      gpu_case c = plain(pair == 1 ? ms[i * 7 % nm] : ms[a], pair == 0 ? ns[b] : pair == 1 ? ns[a]
                         : ns[i * 5 % nn], pair == 0 ? ks[i * 3 % nk] : ks[b], dtype);
      align_case(&c);
      c.activation = 1 + i % 6;
      c.layout = 1 + i / 6 % 4;
      c.bias = i % 5 == 0;
      c.ldo_extra = i % 3 == 0 ? (8 - c.n % 8) % 8 : i % 3 == 1 ? 0 : 8 * (i % 4);
      if (gpu_row_general(row)) {
        c.ldx_extra = i % 9;
        c.ldw_extra = i / 3 % 9;
        c.x_off = i % 8;
        c.w_off = i / 5 % 8;
      }
      c.seed = gpu_random(&random);
      gpu_run_case(context, &c);
      ++done;
    }
  }
  printf("  %s: %lld edge cases\n", row, done);
  tglu_context_destroy(context);
}

void part_edges(const gpu_options *options) { gpu_each_row(options, edges_of_row); }

/* ---- layouts x activations x bias ---- */

static void matrix_of_row(const gpu_options *options, const char *row, int dtype) {
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  uint64_t random = options->seed ^ 0x3a7;
  for (int i = 0; i < 4 * 6 * 2 * 2 * 2; ++i) {
    gpu_case c = plain(i / 48 % 2 ? 333 : 40, i / 48 % 2 ? 520 : 203, i / 96 ? 777 : 136, dtype);
    align_case(&c);
    c.layout = 1 + i % 4;
    c.activation = 1 + i / 4 % 6;
    c.bias = i / 24 % 2;
    c.ldo_extra = i % 2 ? 3 : 0;
    c.alpha = i % 3 ? 1.702f : 0.75f;
    c.limit = i % 5 ? 7.0f : INFINITY;
    c.offset = i % 7 ? 1.0f : 0.0f;
    if (gpu_row_general(row)) c.x_off = 1 + i % 7, c.w_off = i % 8;
    c.seed = gpu_random(&random);
    gpu_run_case(context, &c);
  }
  tglu_context_destroy(context);
}

void part_matrix(const gpu_options *options) { gpu_each_row(options, matrix_of_row); }

/* ---- small shapes, one of each path through the row: for the sanitizer tools, so
 * without a time limit ---- */

static void small_of_row(const gpu_options *options, const char *row, int dtype) {
  static const struct {
    int64_t m, n, k;
    int activation, layout, bias;
    int64_t ldo_extra;
  } shapes[] = {
    {1, 8, 8, 1, 1, 0, 0},     {131, 136, 200, 1, 1, 0, 0}, /* the short epilogue */
    {131, 136, 200, 3, 4, 1, 0}, /* bias, another activation, TMA stores */
    {67, 131, 72, 6, 2, 1, 0},   /* N no multiple of 8: direct stores    */
    {300, 264, 400, 2, 3, 0, 5}, /* several tiles, odd stride of out      */
  };
  tglu_context *context = gpu_context(row, 2, 1, 1); /* two SMs: several tiles a CTA */
  if (context == NULL) return;
  uint64_t random = options->seed ^ 0x5a11;
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
    gpu_case c = plain(shapes[i].m, shapes[i].n, shapes[i].k, dtype);
    align_case(&c);
    c.activation = shapes[i].activation;
    c.layout = shapes[i].layout;
    c.bias = shapes[i].bias;
    c.ldo_extra = shapes[i].ldo_extra;
    if (gpu_row_general(row)) c.x_off = 1 + (int64_t)i, c.w_off = 3, c.ldw_extra = 1 + (int64_t)i;
    c.seed = gpu_random(&random);
    gpu_run_case(context, &c);
  }
  tglu_context_destroy(context);
}

void part_small(const gpu_options *options) { gpu_each_row(options, small_of_row); }

/* ---- the sweep ---- */

static int64_t log_between(uint64_t *random, int64_t most) {
  double unit = (double)(gpu_random(random) >> 11) * 0x1p-53;
  return (int64_t)floor(exp(unit * log((double)most + 1)));
}

enum { MOST_ROWS = 128 };
typedef struct sweep_state {
  const gpu_options *options;
  tglu_context *planner, *rows[MOST_ROWS];
  char names[MOST_ROWS][128];
  int dtypes[MOST_ROWS];
  int count;
} sweep_state;
static sweep_state sweep;

static void sweep_row(const gpu_options *options, const char *row, int dtype) {
  (void)options;
  if (sweep.count == MOST_ROWS) return;
  snprintf(sweep.names[sweep.count], sizeof sweep.names[0], "%s", row);
  sweep.dtypes[sweep.count] = dtype;
  sweep.rows[sweep.count] = gpu_context(row, 0, (int)(sweep.count % 2), 0);
  if (sweep.rows[sweep.count] != NULL) ++sweep.count;
}

/* Case `index` depends on (seed, index) alone. */
static gpu_case sweep_case(uint64_t seed, long long index) {
  uint64_t random = seed ^ (uint64_t)index * 0x9e3779b97f4a7c15u;
  gpu_case c = plain(log_between(&random, 3000), log_between(&random, 3000),
                     log_between(&random, 6000), 1);
  while (c.m * c.n * c.k > (int64_t)1 << 31) c.m = (c.m + 1) / 2;
  c.activation = (int)gpu_between(&random, 1, 6);
  c.layout = (int)gpu_between(&random, 1, 4);
  c.bias = (int)gpu_between(&random, 0, 1);
  align_case(&c);
  c.ldx_extra += 8 * gpu_between(&random, 0, 2);
  c.ldw_extra += 8 * gpu_between(&random, 0, 2);
  c.ldo_extra = gpu_between(&random, 0, 20);
  if (gpu_between(&random, 0, 1)) c.ldo_extra += (16 - (c.n + c.ldo_extra) % 8) % 8;
  c.out_off = gpu_between(&random, 0, 3) == 0 ? gpu_between(&random, 0, 7) : 0;
  c.seed = gpu_random(&random);
  return c;
}

void part_sweep(const gpu_options *options) {
  sweep = (sweep_state){.options = options};
  gpu_each_row(options, sweep_row);
  sweep.planner = gpu_context(NULL, 0, 1, 0);
  long long done = 0;
  for (long long i = 0; i < options->sweep && sweep.count > 0; ++i) {
    if (gpu_out_of_time(options)) {
      gpu_skip("sweep stopped by the time limit after %lld cases", done);
      break;
    }
    gpu_case c = sweep_case(options->seed, i);
    int row = (int)(i % (sweep.count + 1));
    tglu_context *context = row == sweep.count ? sweep.planner : sweep.rows[row];
    c.dtype = row == sweep.count ? sweep.dtypes[i % sweep.count] : sweep.dtypes[row];
    if (row < sweep.count && gpu_row_general(sweep.names[row])) {
      c.x_off = i % 8;
      c.w_off = i / 8 % 8;
      c.ldx_extra += i % 5;
      c.ldw_extra += i / 5 % 5;
    }
    if (context != NULL && !gpu_run_case(context, &c))
      printf("  sweep case %lld, seed %llu, row %s\n", i, (unsigned long long)options->seed,
             row == sweep.count ? "of the planner" : sweep.names[row]);
    ++done;
  }
  printf("  %lld sweep cases\n", done);
  for (int i = 0; i < sweep.count; ++i) tglu_context_destroy(sweep.rows[i]);
  tglu_context_destroy(sweep.planner);
}

/* ---- models: the planner's choices, a sample of rows judged ---- */

void part_models(const gpu_options *options) {
  static const int64_t sizes[][2] = {{896, 4864}, {1536, 8960}, {2048, 11008}, {3584, 18944},
                                     {5120, 13824}, {5120, 27648}, {8192, 29568}};
  static const int64_t tokens[] = {1, 2, 17, 64, 128, 256, 512, 1000, 1024, 2048, 4096, 8192};
  tglu_context *context = gpu_context(options->row, 0, 1, 0);
  if (context == NULL) return;
  int dtype = options->row != NULL && strstr(options->row, "_f16_") ? DTYPE_F16 : DTYPE_BF16;
  for (int i = 0; i < 7; ++i) {
    for (int j = 0; j < 12; ++j) {
      if (gpu_out_of_time(options)) {
        gpu_skip("models stopped by the time limit");
        i = 7;
        break;
      }
      gpu_case c = plain(tokens[j], sizes[i][1], sizes[i][0], dtype);
      c.seed = options->seed + (uint64_t)(i * 100 + j);
      c.row_step = c.m > 16 ? c.m / 16 : 1;
      gpu_run_case(context, &c);
    }
  }
  tglu_context_destroy(context);
}

/* ---- offsets beyond 2^31 (H09) ---- */

static void offsets_of_row(const gpu_options *options, const char *row, int dtype) {
  static const int64_t shapes[][3] = {{65537, 32768, 16}, {32769, 32768, 16}, {131073, 8, 16384}};
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  for (int i = 0; i < 3; ++i) {
    gpu_case c = plain(shapes[i][0], shapes[i][1], shapes[i][2], dtype);
    c.row_step = c.m / 32;
    c.seed = options->seed + (uint64_t)i;
    gpu_run_case(context, &c);
    c.ldo_extra = 1; /* direct stores */
    gpu_run_case(context, &c);
    if (!gpu_row_general(row)) continue;
    c.ldx_extra = c.ldw_extra = 1;
    gpu_run_case(context, &c);
  }
  tglu_context_destroy(context);
}

void part_offsets(const gpu_options *options) { gpu_each_row(options, offsets_of_row); }

/* ---- hand-made values (H01, H03, H07) ---- */

static uint16_t bf16_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (isnan(value)) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* H at every (row, column) of an m x n tile grid whose accumulators are exactly gate and
 * up: K = 8, x = [1, 0, ...], weights' first column gate and up. */
static void value_case(tglu_context *context, const char *row, int64_t m, int64_t n, float gate,
                       float up, float want, bool or_nan) {
  gpu_case c = plain(m, n, 8, DTYPE_BF16);
  gpu_operands o;
  if (!gpu_operands_create(&c, &o)) return;
  uint16_t *host = calloc((size_t)(m > n ? m : n) * 8, 2);
  if (host == NULL) exit(2);
  for (int64_t i = 0; i < m; ++i) host[8 * i] = bf16_of(1.0f);
  GPU(to_device(o.x, host, (size_t)m * 16));
  for (int64_t i = 0; i < n; ++i) host[8 * i] = bf16_of(gate);
  GPU(to_device(o.gate, host, (size_t)n * 16));
  for (int64_t i = 0; i < n; ++i) host[8 * i] = bf16_of(up);
  GPU(to_device(o.up, host, (size_t)n * 16));
  free(host);
  tglu_glu_desc d;
  tglu_run_args a;
  tglu_glu *glu = NULL;
  gpu_operands_desc(&o, &d);
  gpu_operands_args(&o, NULL, &a);
  if (gpu_require(tglu_glu_create(context, &d, &glu) == TGLU_OK && tglu_glu_run(glu, &a) == TGLU_OK,
                  "%s", tglu_last_error())) {
    GPU(synchronize());
    uint16_t *out = to_host((const void *)(uintptr_t)o.out, m * n);
    int64_t wrong = 0, at = 0;
    for (int64_t i = 0; i < m * n; ++i) {
      double got = host_value(DTYPE_BF16, out[i]);
      bool right = isnan(want) ? isnan(got) : got == want || (or_nan && isnan(got)) ||
                                                fabs(got - want) <= fabs(want) * 0x1p-8;
      if (!right && wrong++ == 0) at = i;
    }
    gpu_expect(wrong == 0, "%s: gate %g up %g: %lld of %lld wrong, %g where %g belongs", row,
               gate, up, (long long)wrong, (long long)(m * n), host_value(DTYPE_BF16, out[at]),
               want);
    free(out);
  }
  tglu_glu_destroy(glu);
  gpu_operands_destroy(&o);
}

static void values_of_row(const gpu_options *options, const char *row, int dtype) {
  (void)options;
  if (dtype != DTYPE_BF16) return;
  const float top = 3.38953139e38f;
  const float gates[] = {-INFINITY, -top, -1000, -100, -0.0f, 0, 88.5f, 89, 100, 1000, top,
                         INFINITY, NAN};
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  for (size_t i = 0; i < sizeof gates / sizeof gates[0]; ++i) {
    /* 0 * inf of the zero weights beside an infinite one cannot arise: x's rest is 0 and
     * the weights' rest is 0. */
    float want = gates[i] < 0 ? 0 : gates[i];
    value_case(context, row, 7, 24, gates[i], 1, want, isinf(gates[i]) && gates[i] < 0);
    value_case(context, row, 130, 264, gates[i], 1, want, isinf(gates[i]) && gates[i] < 0);
  }
  value_case(context, row, 5, 24, 0.4375f, 9.375f, 2.5f, false);
  tglu_context_destroy(context);
  /* H07: only the last element of K counts. */
  static const int64_t ks[] = {1, 7, 8, 24, 40, 63, 65, 72, 192, 200, 1000, 1001, 4104};
  context = gpu_context(row, 0, 1, 0);
  for (size_t i = 0; i < sizeof ks / sizeof ks[0] && context != NULL; ++i) {
    gpu_case c = plain(5, 24, ks[i], DTYPE_BF16);
    align_case(&c);
    gpu_operands o;
    if (!gpu_operands_create(&c, &o)) continue;
    gpu_fill(o.x, dtype, 5, ks[i], o.ldx, 1, 0.0f, NULL);
    gpu_fill(o.gate, dtype, 24, ks[i], o.ldw, 1, 0.0f, NULL);
    gpu_fill(o.up, dtype, 24, ks[i], o.ldw, 1, 0.0f, NULL);
    GPU(synchronize());
    uint16_t one = bf16_of(1.0f);
    for (int64_t r = 0; r < 24; ++r) {
      gpu_pointer last = 2 * (uint64_t)(r * o.ldw + ks[i] - 1);
      GPU(to_device(o.gate + last, &one, 2));
      GPU(to_device(o.up + last, &one, 2));
      if (r < 5) GPU(to_device(o.x + 2 * (uint64_t)(r * o.ldx + ks[i] - 1), &one, 2));
    }
    tglu_glu_desc d;
    tglu_run_args a;
    tglu_glu *glu = NULL;
    gpu_operands_desc(&o, &d);
    gpu_operands_args(&o, NULL, &a);
    if (gpu_require(tglu_glu_create(context, &d, &glu) == TGLU_OK &&
                    tglu_glu_run(glu, &a) == TGLU_OK, "%s", tglu_last_error())) {
      GPU(synchronize());
      uint16_t *out = to_host((const void *)(uintptr_t)o.out, 5 * 24);
      int wrong = 0;
      for (int j = 0; j < 5 * 24; ++j) wrong += out[j] != bf16_of(0.73046875f);
      gpu_expect(wrong == 0, "%s: last element of K = %lld lost in %d outputs", row,
                 (long long)ks[i], wrong);
      free(out);
    }
    tglu_glu_destroy(glu);
    gpu_operands_destroy(&o);
  }
  tglu_context_destroy(context);
}

void part_values(const gpu_options *options) { gpu_each_row(options, values_of_row); }
