/* The launch contract of the `stream` rows: few tokens, weights streamed once.  Plain C,
 * compiled for both sides.
 *
 * A launch: grid (ceil(m / tile_m), splits, 1), block TGLU_STREAM_THREADS threads, no
 * cluster, dynamic shared memory tglu_stream_smem_bytes(...).  Each CTA computes n / splits
 * outputs (or one more) of its tokens, all of K by itself, so any splits >= 1 gives the whole
 * result, bit for bit the same; 1 <= splits <= n is sensible, best is one CTA an SM.  No tensor
 * maps, no workspace. */
#ifndef TGLU_SM90_STREAM_LAUNCH_H
#define TGLU_SM90_STREAM_LAUNCH_H

#include <stdint.h>

#include "smem_layout.h"

/* Strides in elements.  Biases and residual NULL if absent.  .flags: bits of
 * tglu_glu_launch.flags; only TGLU_LAUNCH_STABLE_WEIGHTS counts (stores are ordinary ones:
 * any output pointer and stride).  With the loader tma, x, gate and up are on 16 bytes and
 * ldx, ldw multiples of 8 (a stride does not count where there is one row); with the loader
 * general they are at any multiple of 2 bytes. */
typedef struct tglu_stream_launch {
  const void *x;                /* [m, k]                                         */
  int64_t ldx;
  const void *gate, *up;        /* [n, k]; op down: gate is the weight, up NULL    */
  int64_t ldw;
  const void *gate_bias, *up_bias; /* [n]; op down: gate_bias is the bias          */
  int64_t bias_stride;
  const void *residual;         /* op down: [m, n] or NULL; may be `out`           */
  int64_t ldr;
  void *out;                    /* [m, n]                                          */
  int64_t ldo;
  int32_t m, n, k;
  int32_t activation;           /* op glu: tglu_activation                         */
  int32_t flags;
  float alpha, limit, offset;
} tglu_stream_launch;

/* Warps of a CTA: 8 that multiply, and 4 that fetch the tokens. */
#define TGLU_STREAM_WARPS 8
#define TGLU_STREAM_TOKEN_WARPS 4
#define TGLU_STREAM_THREADS (32 * (TGLU_STREAM_WARPS + TGLU_STREAM_TOKEN_WARPS))

/* m16 weight tiles of a pass: op glu packs 8 gate and 8 up rows in one. */
TGLU_HOST_DEVICE int32_t tglu_stream_blocks(int32_t tile_n, int32_t glu) {
  return glu ? tile_n / 8 : tile_n / 16;
}

/* Bytes from one token of X to the next in shared memory: K in whole blocks, and 64 more so
 * that two tokens' 64 bytes lie in different banks. */
TGLU_HOST_DEVICE int32_t tglu_stream_token_bytes(int32_t k) {
  return (k + TGLU_TILE_K - 1) / TGLU_TILE_K * (2 * TGLU_TILE_K) + 64;
}

/* Bytes of the rings and the partial sums:
 *   offset 0   rings: stages x warps x 2 KB a weight tile
 *   ring end   partial sums: warps x [tile_m x 16 blocks] floats                         */
TGLU_HOST_DEVICE int32_t tglu_stream_fixed_bytes(int32_t tile_m, int32_t tile_n, int32_t stages,
                                                 int32_t glu) {
  int32_t blocks = tglu_stream_blocks(tile_n, glu), warps = TGLU_STREAM_WARPS;
  return warps * (stages * 32 * 64 * blocks + tile_m * 16 * blocks * 4);
}

/* Dynamic shared memory of a launch: behind those, min(m, tile_m) tokens of X, all of K; none
 * with the loader general: m = 0.  64-bit, since it may be far more than a CTA can have: then
 * the row cannot serve the call. */
TGLU_HOST_DEVICE int64_t tglu_stream_smem_bytes(int32_t tile_m, int32_t tile_n, int32_t stages,
                                                int32_t glu, int32_t m, int32_t k) {
  return tglu_stream_fixed_bytes(tile_m, tile_n, stages, glu) +
         (int64_t)(m < tile_m ? m : tile_m) * tglu_stream_token_bytes(k);
}

#endif /* TGLU_SM90_STREAM_LAUNCH_H */
