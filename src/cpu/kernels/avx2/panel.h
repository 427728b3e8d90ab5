/* The body of the panel kernels: vectors along columns of the result.
 *
 *     panel           K block x (8 + 8) weight rows, fp32, transposed into scratch: 20 KiB
 *     register tile   6 tokens x 16 columns: 12 accumulators, 2 panel vectors, 1 token value
 *     one step        one k: 2 loads, 6 broadcasts, 12 multiply-adds
 *
 * The first eight columns are a GLU's gates and the others the ups of the same columns. */
#ifndef TGLU_CPU_KERNELS_AVX2_PANEL_H
#define TGLU_CPU_KERNELS_AVX2_PANEL_H

#include "cpu/kernel.h"
#include "cpu/kernels/avx2/vec.h"

/* Eight vectors of eight as columns: out[i * 16 + r] = v[r][i]. */
TGLU__INLINE void transpose8(const __m256 v[8], float *out) {
  __m256 a[8], b[8];
  TGLU__UNROLL
  for (int i = 0; i < 4; i++) {
    a[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
  }
  TGLU__UNROLL
  for (int i = 0; i < 2; i++) {
    b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
  }
  TGLU__UNROLL
  for (int i = 0; i < 4; i++) {
    _mm256_store_ps(out + i * 16, _mm256_permute2f128_ps(b[i], b[i + 4], 0x20));
    _mm256_store_ps(out + (i + 4) * 16, _mm256_permute2f128_ps(b[i], b[i + 4], 0x31));
  }
}

/* panel[k * 16 + r] = element k of row r, zeros up to a multiple of eight. */
TGLU__INLINE void panel_pack(tglu_dtype dtype, const tglu__unit_args *args, float *panel) {
  int64_t k = 0, size = size_of(dtype);
  for (; k < args->kc; k += 8) {
    int64_t count = args->kc - k;
    TGLU__UNROLL
    for (int group = 0; group < 2; group++) {
      __m256 v[8];
      TGLU__UNROLL
      for (int r = 0; r < 8; r++) {
        const char *p = (const char *)args->rows[8 * group + r] + k * size;
        v[r] = count >= 8 ? load8(dtype, p) : load8_part(dtype, p, count);
      }
      transpose8(v, panel + k * 16 + 8 * group);
    }
  }
}

TGLU__INLINE void panel_put(float *c, __m256 sum, int first) {
  _mm256_storeu_ps(c, first ? sum : _mm256_add_ps(_mm256_loadu_ps(c), sum));
}

/* T tokens x 16 columns over one block of K. */
TGLU__INLINE void panel_tile(int T, const tglu__unit_args *args, const float *panel,
                             int64_t token) {
  const float *x = args->x + token * args->ldx;
  int64_t ldx = args->ldx;
  __m256 acc0[6], acc1[6];
  TGLU__UNROLL
  for (int t = 0; t < T; t++) acc0[t] = acc1[t] = _mm256_setzero_ps();
  for (int64_t k = 0; k < args->kc; k++) {
    __m256 b0 = _mm256_load_ps(panel + 16 * k), b1 = _mm256_load_ps(panel + 16 * k + 8);
    TGLU__UNROLL
    for (int t = 0; t < T; t++) {
      __m256 value = _mm256_broadcast_ss(x + t * ldx + k);
      acc0[t] = _mm256_fmadd_ps(value, b0, acc0[t]);
      acc1[t] = _mm256_fmadd_ps(value, b1, acc1[t]);
    }
  }
  TGLU__UNROLL
  for (int t = 0; t < T; t++) {
    panel_put(args->c0 + (token + t) * args->ldc, acc0[t], args->first);
    panel_put(args->c1 + (token + t) * args->ldc, acc1[t], args->first);
  }
}

TGLU__INLINE void panel_unit_6x16(tglu_dtype dtype, const tglu__unit_args *args) {
  float *panel = args->scratch;
  panel_pack(dtype, args, panel);
  int64_t token = 0, tile = 0, tiles = (args->tokens + 5) / 6;
  int64_t bytes = args->kc * size_of(dtype);
  for (; token + 6 <= args->tokens; token += 6, tile++) {
    fetch_rows(args->next, 16, bytes, tile, tiles);
    panel_tile(6, args, panel, token);
  }
  if (token < args->tokens) fetch_rows(args->next, 16, bytes, tile, tiles);
  switch (args->tokens - token) {
    case 5: panel_tile(5, args, panel, token); break;
    case 4: panel_tile(4, args, panel, token); break;
    case 3: panel_tile(3, args, panel, token); break;
    case 2: panel_tile(2, args, panel, token); break;
    case 1: panel_tile(1, args, panel, token); break;
    default: break;
  }
}

#endif /* TGLU_CPU_KERNELS_AVX2_PANEL_H */
