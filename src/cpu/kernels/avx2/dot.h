/* The body of the dot kernels: vectors along K for tokens and weight rows alike.
 *
 *     register tile   T <= 3 tokens x 4 weight rows, one 8-lane accumulator each
 *     one step        16 elements of K: half 0 of all, then half 1 (see load16_half)
 *     end of block    each accumulator is summed across, and added to c
 *
 * Every (token, row) sum goes through the same steps in the same order whatever T
 * is, so a token's bits do not depend on the others. */
#ifndef TGLU_CPU_KERNELS_AVX2_DOT_H
#define TGLU_CPU_KERNELS_AVX2_DOT_H

#include "cpu/kernel.h"
#include "cpu/kernels/avx2/vec.h"

enum { DOT_ROWS = 4 };

/* Sums of four accumulators: ((0+1)+(2+3)) + ((4+5)+(6+7)) of each one's lanes. */
TGLU__INLINE __m128 sum_across(__m256 a, __m256 b, __m256 c, __m256 d) {
  __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

/* One step: 16 elements, weights at w[r], x at x + t * ldx. */
TGLU__INLINE void dot_step(tglu_dtype dtype, int T, const float *x, int64_t ldx,
                           const char *const *w, __m256 *acc) {
  TGLU__UNROLL
  for (int half = 0; half < 2; half++) {
    __m256 xs[3];
    TGLU__UNROLL
    for (int t = 0; t < T; t++) xs[t] = _mm256_load_ps(x + t * ldx + 8 * half);
    TGLU__UNROLL
    for (int r = 0; r < DOT_ROWS; r++) {
      __m256 weight = load16_half(dtype, w[r], half);
      TGLU__UNROLL
      for (int t = 0; t < T; t++)
        acc[t * DOT_ROWS + r] = _mm256_fmadd_ps(xs[t], weight, acc[t * DOT_ROWS + r]);
    }
  }
}

/* Four sums of a token to their places, two a half of the unit. */
TGLU__INLINE void put2x2(float *c0, float *c1, __m128 sum, int first) {
  if (!first) {
    __m128 old = _mm_loadl_pi(_mm_setzero_ps(), (const __m64 *)(const void *)c0);
    sum = _mm_add_ps(_mm_loadh_pi(old, (const __m64 *)(const void *)c1), sum);
  }
  _mm_storel_pi((__m64 *)(void *)c0, sum);
  _mm_storeh_pi((__m64 *)(void *)c1, sum);
}

/* T tokens x R rows over one block of K. */
TGLU__INLINE void dot_tile(tglu_dtype dtype, int T, const tglu__unit_args *args,
                           const char *const *rows, int64_t kc, int64_t token) {
  const float *x = args->x + token * args->ldx;
  const char *w[DOT_ROWS];
  __m256 acc[3 * DOT_ROWS];
  TGLU__UNROLL
  for (int r = 0; r < DOT_ROWS; r++) w[r] = rows[r];
  TGLU__UNROLL
  for (int i = 0; i < T * DOT_ROWS; i++) acc[i] = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + 16 <= kc; k += 16) {
    dot_step(dtype, T, x + k, args->ldx, w, acc);
    TGLU__UNROLL
    for (int r = 0; r < DOT_ROWS; r++) w[r] += 16 * size_of(dtype);
  }
  if (k < kc) {
    char tails[DOT_ROWS][64] = {{0}};
    TGLU__UNROLL
    for (int r = 0; r < DOT_ROWS; r++) {
      memcpy(tails[r], w[r], (size_t)((kc - k) * size_of(dtype)));
      w[r] = tails[r];
    }
    dot_step(dtype, T, x + k, args->ldx, w, acc);
  }
  TGLU__UNROLL
  for (int t = 0; t < T; t++) {
    float *c0 = args->c0 + (token + t) * args->ldc, *c1 = args->c1 + (token + t) * args->ldc;
    const __m256 *a = acc + t * DOT_ROWS;
    put2x2(c0, c1, sum_across(a[0], a[1], a[2], a[3]), args->first);
  }
}

/* Weight rows to fp32 in scratch, in the order of load16_half and padded with zeros. */
TGLU__INLINE void dot_convert(tglu_dtype dtype, const tglu__unit_args *args,
                              int64_t padded, const char **rows) {
  for (int r = 0; r < DOT_ROWS; r++) {
    const char *p = args->rows[r];
    float *out = args->scratch + r * padded;
    rows[r] = (const char *)out;
    int64_t k = 0;
    for (; k + 16 <= args->kc; k += 16, p += 16 * size_of(dtype)) {
      _mm256_store_ps(out + k, load16_half(dtype, p, 0));
      _mm256_store_ps(out + k + 8, load16_half(dtype, p, 1));
    }
    if (k < args->kc) {
      char tail[64] = {0};
      memcpy(tail, p, (size_t)((args->kc - k) * size_of(dtype)));
      _mm256_store_ps(out + k, load16_half(dtype, tail, 0));
      _mm256_store_ps(out + k + 8, load16_half(dtype, tail, 1));
    }
  }
}

/* All tokens, three at a time and the last four as two and two: a single token would
 * wait for its own accumulators.  next_bytes: of each row that follows, to be fetched. */
TGLU__INLINE void dot_tokens(tglu_dtype dtype, const tglu__unit_args *args,
                             const char *const *rows, int64_t kc, int64_t next_bytes) {
  int64_t token = 0, tokens = args->tokens, tile = 0, tiles = (tokens + 2) / 3;
  int64_t threes = tokens % 3 == 1 && tokens > 1 ? tokens - 4 : tokens - tokens % 3;
  for (; token < threes; token += 3, tile++) {
    fetch_rows(args->next, DOT_ROWS, next_bytes, tile, tiles);
    dot_tile(dtype, 3, args, rows, kc, token);
  }
  for (; token + 2 <= tokens; token += 2, tile++) {
    fetch_rows(args->next, DOT_ROWS, next_bytes, tile, tiles);
    dot_tile(dtype, 2, args, rows, kc, token);
  }
  if (token < tokens) {
    fetch_rows(args->next, DOT_ROWS, next_bytes, tile, tiles);
    dot_tile(dtype, 1, args, rows, kc, token);
  }
}

/* The unit routine of the 3x4 kernels. */
TGLU__INLINE void dot_unit_3x4(tglu_dtype dtype, const tglu__unit_args *args) {
  const char *rows[DOT_ROWS];
  if (args->tokens <= 3) { /* each weight is used once: no detour through scratch */
    for (int r = 0; r < DOT_ROWS; r++) rows[r] = args->rows[r];
    dot_tokens(dtype, args, rows, args->kc, args->kc * size_of(dtype));
    return;
  }
  int64_t padded = (args->kc + 15) / 16 * 16;
  dot_convert(dtype, args, padded, rows);
  dot_tokens(TGLU_DTYPE_F32, args, rows, padded, args->kc * size_of(dtype));
}

#endif /* TGLU_CPU_KERNELS_AVX2_DOT_H */
