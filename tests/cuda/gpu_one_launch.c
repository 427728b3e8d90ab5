/* Rows of op mlp, which compute both halves in one launch: right values of each. */
#include <math.h>

#include "gpu_mlp.h"
#include "gpu_parts.h"

enum { MOST_TOKENS = 8 };

/* All that a case has beside its sizes, by turns of different lengths.  Strides and addresses
 * of x and the weights stay such as these rows take. */
static void vary(gpu_mlp_case *c, int i) {
  gpu_mlp_align(c);
  c->glu.layout = 1 + i % 4;
  c->glu.activation = 1 + i / 4 % 6;
  c->glu.bias = i / 3 % 2;
  c->down_bias = i / 5 % 2;
  c->residual = i % 3;
  c->glu.ldx_extra += 8 * (i % 5 % 3);
  c->glu.ldw_extra += 8 * (i / 2 % 3 % 2);
  c->ldd_extra += 8 * (i / 7 % 2);
  c->glu.x_off = 8 * (i % 7 % 3);
  c->ldo_extra = i % 4;
  c->out_off = i / 2 % 8;
  c->ldr_extra = i % 5;
  c->residual_off = i % 6;
  c->workspace_off = i * 37 % 256;
  c->glu.alpha = i % 3 ? 1.702f : 0.75f;
  c->glu.limit = i % 5 ? 7.0f : INFINITY;
  c->glu.offset = i % 7 ? 1.0f : 0.0f;
}

/* Fewer outputs than SMs in one half or both, several passes, K-blocks that end anywhere, more
 * and fewer of them than warps. */
static const int64_t sizes[] = {1,   7,   8,   9,   24,  56,  63,   64,   65,   72,
                                120, 136, 200, 264, 456, 520, 1000, 1031, 2120, 4104};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void edges_of_row(const gpu_options *options, tglu_context *context, const char *row,
                         int dtype) {
  uint64_t random = options->seed ^ 0x031a;
  for (int i = 0; i < SIZES * SIZES; ++i) {
    if (gpu_out_of_time(options)) {
      gpu_skip("%s: edges stopped by the time limit after %d cases", row, i);
      return;
    }
    gpu_mlp_case c = gpu_mlp_plain(false, 1 + i % MOST_TOKENS, sizes[i / SIZES],
                                   sizes[i % SIZES], dtype, gpu_random(&random));
    vary(&c, i);
    gpu_run_mlp_case(context, row, &c);
  }
}

/* Layout x activation x biases x residual, at one size. */
static void matrix_of_row(const gpu_options *options, tglu_context *context, const char *row,
                          int dtype) {
  uint64_t random = options->seed ^ 0x3a72;
  for (int i = 0; i < 4 * 6 * 2 * 2 * 3; ++i) {
    if (gpu_out_of_time(options)) {
      gpu_skip("%s: the matrix stopped by the time limit after %d cases", row, i);
      return;
    }
    gpu_mlp_case c = gpu_mlp_plain(false, 1 + i % MOST_TOKENS, 264, 136, dtype,
                                   gpu_random(&random));
    vary(&c, i);
    c.glu.activation = 1 + i / 4 % 6;
    c.glu.bias = i / 24 % 2;
    c.down_bias = i / 48 % 2;
    c.residual = i / 96;
    gpu_run_mlp_case(context, row, &c);
  }
}

static void one_launch_of_row(const gpu_options *options, const char *row, int dtype) {
  static const int64_t shapes[][3] = {{8, 4864, 896}, {3, 8960, 1536}, {1, 18944, 3584},
                                      {2, 18944, 3584}, {1, 27648, 5120}};
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  for (int i = 0; i < 5; ++i) {
    gpu_mlp_case c =
      gpu_mlp_plain(false, shapes[i][0], shapes[i][1], shapes[i][2], dtype, options->seed);
    c.residual = i % 3;
    c.down_bias = c.glu.bias = i % 2;
    gpu_run_mlp_case(context, row, &c);
  }
  matrix_of_row(options, context, row, dtype);
  edges_of_row(options, context, row, dtype);
  tglu_context_destroy(context);
}

void part_one_launch(const gpu_options *options) {
  gpu_each_mlp_row(options, one_launch_of_row);
}

/* ---- for the sanitizer tools: every path of a row at small sizes, no time limit ---- */

static void one_small_of_row(const gpu_options *options, const char *row, int dtype) {
  static const int64_t shapes[][3] = {{1, 8, 8},     {8, 200, 136}, {5, 1032, 72},
                                      {3, 72, 1032}, {8, 1, 1},     {7, 131, 67}};
  static const int limits[] = {1, 2, 7};
  uint64_t random = options->seed ^ 0x15a;
  for (int limit = 0; limit < 3; ++limit) { /* several passes on one SM */
    tglu_context *context = gpu_context(row, limits[limit], 1, limit % 2);
    if (context == NULL) return;
    for (int i = 0; i < 6; ++i) {
      gpu_mlp_case c = gpu_mlp_plain(false, shapes[i][0], shapes[i][1], shapes[i][2], dtype,
                                     gpu_random(&random));
      vary(&c, 6 * limit + i);
      gpu_run_mlp_case(context, row, &c);
    }
    tglu_context_destroy(context);
  }
}

void part_one_small(const gpu_options *options) {
  gpu_each_mlp_row(options, one_small_of_row);
}
