/* Portable kernel: for each token and each of four weight rows a dot product, kept
 * in eight partial sums so that any compiler can vectorise it for the baseline ISA.
 * The rows are converted to fp32 in scratch once a block.
 *
 *     unit: any number of tokens x 4 weight rows, K block 1024
 */
#include "cpu/numeric.h"
#include "cpu/kernels/portable/portable.h"

enum { ROWS = 4, LANES = 8 };

static inline void load_row(tglu_dtype dtype, const void *row, int64_t count, float *out) {
  int64_t k = 0;
  for (; k < count; k++) out[k] = tglu__load(dtype, row, k);
  for (; k % TGLU__K_ALIGN != 0; k++) out[k] = 0.0f;
}

static float dot(const float *x, const float *w, int64_t padded) {
  float lanes[LANES] = {0};
  for (int64_t k = 0; k < padded; k += LANES)
    for (int lane = 0; lane < LANES; lane++) lanes[lane] += x[k + lane] * w[k + lane];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static inline void unit(tglu_dtype dtype, const tglu__unit_args *args) {
  int64_t padded = (args->kc + TGLU__K_ALIGN - 1) / TGLU__K_ALIGN * TGLU__K_ALIGN;
  for (int row = 0; row < ROWS; row++)
    load_row(dtype, args->rows[row], args->kc, args->scratch + row * padded);
  for (int64_t token = 0; token < args->tokens; token++) {
    for (int row = 0; row < ROWS; row++) {
      float *half = row < ROWS / 2 ? args->c0 : args->c1;
      float *c = half + token * args->ldc + row % (ROWS / 2);
      float sum = dot(args->x + token * args->ldx, args->scratch + row * padded, padded);
      *c = args->first ? sum : *c + sum;
    }
  }
}

#define INSTANTIATE(name, dtype)                                                  \
  void tglu__portable_load_x_##name(const void *x, int64_t count, float *out) {   \
    load_row(dtype, x, count, out);                                               \
  }                                                                               \
  void tglu__portable_dot_##name##_1x4(const tglu__unit_args *args) { unit(dtype, args); }
INSTANTIATE(bf16, TGLU_DTYPE_BF16)
INSTANTIATE(f16, TGLU_DTYPE_F16)
INSTANTIATE(f32, TGLU_DTYPE_F32)
