/* The body of the stream kernels: for so few tokens that time is the bytes of the
 * weights over the memory's bandwidth.
 *
 *     register tile   T <= 4 tokens x 2 weight rows, several accumulators each
 *     one step        16 elements of K, or 2 x 16 for one token: at least eight chains
 *
 * The unit's pairs of a gate row and its up row (in a plain product: row r and row r + 4)
 * are read one after the other from end to end: two linear streams, which the hardware's
 * prefetchers follow.  Eight rows at once, fetched by software alone, reached half the
 * rate: that is limited by the miss buffers of L1. */
#ifndef TGLU_CPU_KERNELS_AVX2_STREAM_H
#define TGLU_CPU_KERNELS_AVX2_STREAM_H

#include "cpu/kernel.h"
#include "cpu/kernels/avx2/vec.h"

enum {
  STREAM_PAIRS = 4,
  STREAM_AHEAD = 2048 /* bytes */
};

/* Whether software fetches help the hardware's prefetchers.  Measured on Zen 4, one core:
 * with several tokens they do (4 tokens, K 3584, bf16: 8.5 GB/s without, 11.4 with), with
 * one only for long rows of 16-bit weights (K 3584: 16.2 and 17.9; K 896: 26.8 and 23.3). */
TGLU__INLINE int stream_fetches(tglu_dtype dtype, int T, int64_t kc) {
  return T > 1 || (size_of(dtype) == 2 && kc >= 2048);
}

/* Sum of the lanes of v. */
TGLU__INLINE float sum_lanes(__m256 v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* 16 elements of both rows at w, onto accumulators [2 rows][T tokens][H]: with H = 2 the
 * halves of the 16 have one each, with H = 1 they share it. */
TGLU__INLINE void stream_step(tglu_dtype dtype, int T, int H, const float *x, int64_t ldx,
                              const char *const *w, __m256 *acc) {
  __m256 weights[2][2]; /* [half][row] */
  if (T <= 2) {
    TGLU__UNROLL
    for (int r = 0; r < 2; r++) load16(dtype, w[r], &weights[0][r], &weights[1][r]);
  }
  TGLU__UNROLL
  for (int half = 0; half < 2; half++) {
    if (T > 2) { /* registers are short: one half's weights at a time */
      weights[half][0] = load16_half(dtype, w[0], half);
      weights[half][1] = load16_half(dtype, w[1], half);
    }
    TGLU__UNROLL
    for (int t = 0; t < T; t++) {
      __m256 xs = _mm256_castsi256_ps(load_once(x + t * ldx + 8 * half));
      TGLU__UNROLL
      for (int r = 0; r < 2; r++) {
        __m256 *a = acc + H * (r * T + t) + half * (H - 1);
        *a = _mm256_fmadd_ps(xs, weights[half][r], *a);
      }
    }
  }
}

/* U steps, each on accumulators of its own. */
TGLU__INLINE void stream_steps(tglu_dtype dtype, int T, int U, int H, const float *x,
                               int64_t ldx, const char *const *w, int fetches,
                               __m256 *acc) {
  TGLU__UNROLL
  for (int u = 0; u < U; u++) {
    const char *at[2] = {w[0] + u * 16 * size_of(dtype), w[1] + u * 16 * size_of(dtype)};
    for (int r = 0; r < 2 && fetches; r++) fetch(at[r], STREAM_AHEAD);
    stream_step(dtype, T, H, x + 16 * u, ldx, at, acc + 2 * T * H * u);
  }
}

/* T tokens x 2 rows, pair and pair + STREAM_PAIRS, over one block of K. */
TGLU__INLINE void stream_tile(tglu_dtype dtype, int T, int U, int H,
                              const tglu__unit_args *args, int pair, int64_t token) {
  const float *x = args->x + token * args->ldx;
  const int64_t bytes = 16 * size_of(dtype);
  const int fetches = stream_fetches(dtype, T, args->kc);
  const char *w[2] = {args->rows[pair], args->rows[pair + STREAM_PAIRS]};
  __m256 acc[12];
  TGLU__UNROLL
  for (int i = 0; i < 2 * T * H * U; i++) acc[i] = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + 16 * U <= args->kc; k += 16 * U) {
    stream_steps(dtype, T, U, H, x + k, args->ldx, w, fetches, acc);
    w[0] += U * bytes;
    w[1] += U * bytes;
  }
  if (k < args->kc) {
    char tails[2][16 * 2 * 4] = {{0}};
    for (int r = 0; r < 2; r++) {
      memcpy(tails[r], w[r], (size_t)((args->kc - k) * size_of(dtype)));
      w[r] = tails[r];
    }
    stream_steps(dtype, T, U, H, x + k, args->ldx, w, 0, acc);
  }
  TGLU__UNROLL
  for (int r = 0; r < 2; r++) {
    TGLU__UNROLL
    for (int t = 0; t < T; t++) {
      __m256 sum = _mm256_setzero_ps();
      TGLU__UNROLL
      for (int u = 0; u < U; u++) {
        const __m256 *a = acc + 2 * T * H * u + H * (r * T + t);
        sum = _mm256_add_ps(sum, H == 2 ? _mm256_add_ps(a[0], a[1]) : a[0]);
      }
      float *c = (r == 0 ? args->c0 : args->c1) + (token + t) * args->ldc + pair;
      *c = args->first ? sum_lanes(sum) : *c + sum_lanes(sum);
    }
  }
}

TGLU__INLINE void stream_pair(tglu_dtype dtype, const tglu__unit_args *args, int pair) {
  int64_t token = 0;
  for (; token + 4 <= args->tokens; token += 4)
    stream_tile(dtype, 4, 1, 1, args, pair, token);
  switch (args->tokens - token) {
    case 3: stream_tile(dtype, 3, 1, 2, args, pair, token); break;
    case 2: stream_tile(dtype, 2, 1, 2, args, pair, token); break;
    case 1: stream_tile(dtype, 1, 2, 2, args, pair, token); break;
    default: break;
  }
}

TGLU__INLINE void stream_unit_4x8(tglu_dtype dtype, const tglu__unit_args *args) {
  for (int pair = 0; pair < STREAM_PAIRS; pair++) stream_pair(dtype, args, pair);
}

#endif /* TGLU_CPU_KERNELS_AVX2_STREAM_H */
