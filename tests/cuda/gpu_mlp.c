/* Right values of down projections and whole MLPs: each down row by itself, then what the
 * planner makes of an MLP. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu_mlp.h"
#include "gpu_parts.h"

/* ---- each down row as a linear ---- */

/* What the general loader takes and the others refuse. */
static void misalign(gpu_mlp_case *c, int i) {
  c->glu.x_off = i % 8;
  c->down_off = i / 3 % 8;
  c->glu.ldx_extra = i % 9;
  c->ldd_extra = i / 5 % 9;
}

static void linear_edges(const gpu_options *options, tglu_context *context, const char *row,
                         int dtype) {
  int tile_m, tile_n, cluster;
  if (!gpu_row_tiles(row, &tile_m, &tile_n, &cluster)) return;
  const int64_t high = (int64_t)tile_m * cluster;
  const int64_t ms[] = {1, 2, 7, 17, 64, tile_m - 1, tile_m, tile_m + 1, high + 1, 3 * high + 5};
  const int64_t ks[] = {1, 7, 8, 9, 24, tile_n - 1, tile_n, tile_n + 8, 3 * tile_n + 40};
  const int64_t ns[] = {1, 7, 8, 24, 63, 64, 65, 72, 128, 200, 256, 321, 448, 512, 1001, 4104};
  const int nm = sizeof ms / sizeof ms[0], nk = sizeof ks / sizeof ks[0],
            nn = sizeof ns / sizeof ns[0];
  uint64_t random = options->seed ^ 0xd0e5;
  for (int pair = 0; pair < 3; ++pair) { /* every pair of sizes, the third by turns */
    int first = pair == 1 ? nk : nm, second = pair == 0 ? nk : nn;
    for (int i = 0; i < first * second; ++i) {
      if (gpu_out_of_time(options)) {
        gpu_skip("%s: edges of a linear stopped by the time limit", row);
        return;
      }
      int a = i / second, b = i % second;
      int64_t m = pair == 1 ? ms[i * 7 % nm] : ms[a];
      int64_t k = pair == 0 ? ks[b] : pair == 1 ? ks[a] : ks[i * 5 % nk];
      int64_t n = pair == 0 ? ns[i * 3 % nn] : ns[b];
      gpu_mlp_case c = gpu_mlp_plain(true, m, n, k, dtype, gpu_random(&random));
      gpu_mlp_align(&c);
      if (gpu_row_general(row)) misalign(&c, i);
      c.down_bias = i % 2;
      c.residual = i / 2 % 3;
      c.ldo_extra = i % 3 == 0 ? (8 - k % 8) % 8 : i % 3 == 1 ? 0 : 8 * (i % 4);
      c.ldr_extra = i % 4;
      c.residual_off = i % 5;
      c.out_off = i % 7 == 0 ? i % 8 : 0;
      gpu_run_mlp_case(context, row, &c);
    }
  }
}

static void linear_of_row(const gpu_options *options, const char *row, int dtype) {
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  /* Several waves first, and a long sum. */
  static const int64_t shapes[][3] = {{1000, 520, 3000}, {300, 18944, 264}, {16, 11008, 2048}};
  for (int i = 0; i < 3; ++i) {
    gpu_mlp_case c =
      gpu_mlp_plain(true, shapes[i][0], shapes[i][1], shapes[i][2], dtype, options->seed);
    c.glu.row_step = c.glu.m > 64 ? c.glu.m / 32 : 1;
    c.down_bias = 1;
    c.residual = 1 + i % 2;
    if (gpu_row_general(row)) misalign(&c, 7 + i);
    gpu_run_mlp_case(context, row, &c);
  }
  linear_edges(options, context, row, dtype);
  tglu_context_destroy(context);
}

void part_linear(const gpu_options *options) { gpu_each_down_row(options, linear_of_row); }

/* ---- whole MLPs, the planner's rows ---- */

static void mlp_matrix(const gpu_options *options, tglu_context *context) {
  static const int64_t tokens[] = {1, 3, 16, 40, 130};
  uint64_t random = options->seed ^ 0x3317;
  for (int i = 0; i < 2 * 6 * 4 * 2 * 3 * 5; ++i) {
    if (gpu_out_of_time(options)) {
      gpu_skip("mlp: the matrix stopped by the time limit after %d cases", i);
      return;
    }
    gpu_mlp_case c = gpu_mlp_plain(false, tokens[i % 5], i % 7 ? 264 : 203, i % 11 ? 136 : 139,
                                   1 + i % 2, gpu_random(&random));
    gpu_mlp_align(&c);
    c.glu.activation = 1 + i / 2 % 6;
    c.glu.layout = 1 + i / 12 % 4;
    c.glu.bias = i / 48 % 2;
    c.down_bias = i / 48 % 2;
    c.residual = i / 96 % 3;
    c.ldo_extra = i % 3 ? 0 : 5;
    c.ldr_extra = i % 4;
    c.residual_off = i % 3;
    c.workspace_off = i * 37 % 256;
    c.glu.alpha = i % 3 ? 1.702f : 0.75f;
    c.glu.limit = i % 5 ? 7.0f : INFINITY;
    c.glu.offset = i % 7 ? 1.0f : 0.0f;
    gpu_run_mlp_case(context, "the planner's rows", &c);
  }
}

/* Odd sizes and addresses: where a type has no general row for down, that is refused with
 * the argument's name and counted. */
static void mlp_odd(const gpu_options *options, tglu_context *context) {
  uint64_t random = options->seed ^ 0x0dd;
  int refused = 0;
  for (int i = 0; i < 60 && !gpu_out_of_time(options); ++i) {
    gpu_mlp_case c = gpu_mlp_plain(false, 1 + i % 40, 97 + i, 61 + 2 * i, 1 + i % 2,
                                   gpu_random(&random));
    c.glu.x_off = i % 8;
    c.glu.w_off = i / 2 % 8;
    c.glu.ldx_extra = i % 5;
    c.glu.ldw_extra = i % 3;
    c.down_off = i / 3 % 8;
    c.ldd_extra = i % 4;
    c.ldo_extra = i % 6;
    c.residual = i % 3;
    gpu_mlp_operands o;
    gpu_object object;
    if (!gpu_mlp_operands_create(&c, &o)) continue;
    tglu_status status = gpu_object_create(context, &o, &object);
    gpu_object_destroy(&object);
    gpu_mlp_operands_destroy(&o);
    if (status == TGLU_ERR_UNSUPPORTED && strstr(tglu_last_error(), "down") != NULL) {
      ++refused;
    } else {
      gpu_run_mlp_case(context, "odd sizes", &c);
    }
  }
  if (refused > 0) gpu_skip("%d odd MLPs, which no down row serves", refused);
}

static void mlp_models(const gpu_options *options, tglu_context *context) {
  static const int64_t sizes[][2] = {{896, 4864}, {2048, 11008}, {3584, 18944}, {8192, 29568}};
  static const int64_t tokens[] = {1, 4, 16, 64, 256, 1000, 4096};
  for (int i = 0; i < 4 * 7; ++i) {
    if (gpu_out_of_time(options)) {
      gpu_skip("mlp: real shapes stopped by the time limit after %d cases", i);
      return;
    }
    gpu_mlp_case c = gpu_mlp_plain(false, tokens[i % 7], sizes[i / 7][1], sizes[i / 7][0],
                                   1 + i % 2, options->seed + (uint64_t)i);
    c.residual = i % 3;
    c.glu.row_step = c.glu.m > 8 ? c.glu.m / 8 : 1;
    gpu_run_mlp_case(context, "a real shape", &c);
  }
}

/* H05: out = down_bias + residual. */
static void mlp_of_zero(const gpu_options *options, tglu_context *context) {
  enum { M = 7, K = 264 };
  gpu_mlp_case c = gpu_mlp_plain(true, M, 8, K, DTYPE_BF16, options->seed);
  c.down_bias = 1;
  c.residual = 1;
  gpu_mlp_operands o;
  if (!gpu_mlp_operands_create(&c, &o)) return;
  gpu_fill(o.down, DTYPE_BF16, K, 8, o.ldd, 1, 0.0f, NULL); /* so that the reference adds 0 */
  GPU(synchronize());
  tglu_mlp_desc d;
  tglu_run_args a;
  tglu_mlp *mlp = NULL;
  tglu_mlp_desc_init(&d);
  d.glu.hidden = K;
  d.glu.dtype = TGLU_DTYPE_BF16;
  d.glu.activation = TGLU_ACTIVATION_SILU;
  d.glu.layout = TGLU_LAYOUT_SEPARATE;
  d.down_bias = (const void *)(uintptr_t)o.down_bias;
  gpu_mlp_args(&o, NULL, &a);
  a.ldx = 0;
  tglu_status status = tglu_mlp_create(context, &d, &mlp);
  if (status == TGLU_OK) status = tglu_mlp_run(mlp, &a);
  if (gpu_expect(status == TGLU_OK, "an MLP of intermediate 0: %s", tglu_last_error())) {
    GPU(synchronize());
    gpu_mlp_judge(&o, "intermediate 0");
  }
  tglu_mlp_destroy(mlp);
  gpu_mlp_operands_destroy(&o);
}

void part_mlp(const gpu_options *options) {
  tglu_context *context = gpu_context(options->row, 0, 1, 0);
  if (context == NULL) return;
  if (options->row == NULL) mlp_of_zero(options, context);
  mlp_models(options, context);
  mlp_odd(options, context);
  mlp_matrix(options, context);
  tglu_context_destroy(context);
}

/* ---- for the sanitizer tools: every path of a row at small sizes, no time limit ---- */

typedef struct small_shape {
  int64_t m, n, k;
  int bias, residual;
  int64_t ldo_extra;
} small_shape;

static void down_shapes_of_row(const gpu_options *options, const char *row, int dtype,
                               const small_shape *shapes, size_t count) {
  int tile_m, tile_n, cluster = 1;
  gpu_row_tiles(row, &tile_m, &tile_n, &cluster);
  tglu_context *context = gpu_context(row, 2 * cluster, 1, 1); /* two clusters: several tiles */
  if (context == NULL) return;
  uint64_t random = options->seed ^ 0xd5a;
  for (size_t i = 0; i < count; ++i) {
    gpu_mlp_case c = gpu_mlp_plain(i % 2 == 0, shapes[i].m, shapes[i].n, shapes[i].k, dtype,
                                   gpu_random(&random));
    gpu_mlp_align(&c);
    c.down_bias = shapes[i].bias;
    c.residual = shapes[i].residual;
    c.ldo_extra = shapes[i].ldo_extra;
    if (gpu_row_general(row)) misalign(&c, 3 + (int)i);
    gpu_run_mlp_case(context, row, &c);
  }
  tglu_context_destroy(context);
}

static void down_small_of_row(const gpu_options *options, const char *row, int dtype) {
  static const small_shape shapes[] = {
    {1, 8, 8, 0, 0, 0},      {131, 200, 136, 0, 0, 0}, {131, 200, 136, 1, 1, 0},
    {67, 72, 131, 1, 2, 0}, /* direct stores           */
    {3, 576, 53, 1, 1, 0},   {6, 640, 72, 0, 2, 3}, /* rows that want K in slices  */
  };
  down_shapes_of_row(options, row, dtype, shapes, sizeof shapes / sizeof shapes[0]);
}

/* Here rows that share a tile in a cluster come round their rings, too; those in clusters of 8,
 * whose CTAs have one K-block of a tile each, by 15 and more tiles. */
static void down_around_of_row(const gpu_options *options, const char *row, int dtype) {
  static const small_shape shapes[] = {
    {300, 400, 584, 0, 2, 5}, /* several tiles, odd stride of out */
  };
  down_shapes_of_row(options, row, dtype, shapes, sizeof shapes / sizeof shapes[0]);
}

void part_down_small(const gpu_options *options) {
  gpu_each_down_row(options, down_small_of_row);
}

void part_down_around(const gpu_options *options) {
  gpu_each_down_row(options, down_around_of_row);
}
