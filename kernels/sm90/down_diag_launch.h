/* The launch contract of the `down_diag` rows: the down projection for very few tokens, each
 * weight read once.  Plain C, compiled for both sides.
 *
 * A launch: grid (ctas, ceil(m / tile_m), 1), block TGLU_DIAG_THREADS, no cluster,
 * dynamic shared memory TGLU_DIAG_SMEM_BYTES.  CTA x computes its share of the outputs, in units
 * of TGLU_DIAG_UNIT, all of K by itself: any 1 <= ctas <= units gives the whole result, bit for bit
 * the same; best is one CTA an SM.  The library launches one tile of tokens only: more would read
 * the weights anew, marked as read once, in CTAs that wait for an SM to be free.
 * tglu_diag_divide() fills in the record's part about it.
 *
 * K in slices: the first tglu_diag_main_k(k) elements are 8 slices of neighbouring elements, each
 * whole K-blocks of 64 and so whole lines where rows begin on lines; what is left, less than 512,
 * is 8 slices again, of less than 64 elements: one K-block, zeros beyond the slice.  So K is a
 * multiple of 64, since slices begin on 16 bytes. */
#ifndef TGLU_SM90_DOWN_DIAG_LAUNCH_H
#define TGLU_SM90_DOWN_DIAG_LAUNCH_H

#include <stdint.h>

#include "launch.h"
#include "smem_layout.h"

#define TGLU_DIAG_THREADS 288 /* two warpgroups that multiply, a warp that loads  */
#define TGLU_DIAG_SLICES 8
#define TGLU_DIAG_UNIT 4      /* outputs of a box of weights                    */
#define TGLU_DIAG_BLOCK_K (TGLU_DIAG_SLICES * TGLU_TILE_K) /* k of a K-block, all slices */
#define TGLU_DIAG_TILE_BYTES 8192 /* a K-block of 8 outputs: an m64 tile        */
/* A warpgroup gives a stage back when it has its next, two further on: two would hang. */
#define TGLU_DIAG_LEAST_STAGES 3
#define TGLU_DIAG_SMEM_BYTES 232448 /* all that a CTA may have                  */
#define TGLU_DIAG_END_BYTES 1024    /* partial sums and mbarriers               */

typedef struct tglu_down_diag_launch {
  /* Tensor maps, 3-D, 16-bit elements, zero fill, 128-byte swizzle, L2 promotion 128 bytes:
   *   w     at the weights:                dims {main_k / 8, 8, N}, box {64, 8, 4}
   *   tail  tglu_diag_main_k(k) further:   dims {(K - main_k) / 8, 8, N}, likewise
   * strides: a slice's length and ld.  A part that is not there has the other's map. */
  tglu_tensor_map w, tail;
  const void *x;        /* [m, k], on 16 bytes                                      */
  int64_t ldx;          /* elements, a multiple of 8                                */
  const void *bias;     /* [n] or NULL, stride 1                                    */
  const void *residual; /* [m, n] or NULL; may be the output itself                 */
  int64_t ldr;
  void *out;            /* [m, n]                                                   */
  int64_t ldo;
  int32_t m, n, k;
  int32_t flags;        /* TGLU_LAUNCH_STABLE_WEIGHTS or 0                          */
  int32_t share, larger; /* units of a CTA; the first `larger` CTAs have one more   */
  int32_t passes, height; /* of a CTA with the most units; most units of a pass     */
  int32_t stages;       /* of the ring, each of as many m64 tiles as a pass has     */
} tglu_down_diag_launch;

TGLU_HOST_DEVICE int32_t tglu_diag_main_k(int32_t k) {
  return k / TGLU_DIAG_BLOCK_K * TGLU_DIAG_BLOCK_K;
}

/* Shared memory: 0: ring; ring end: the tokens, [K-blocks][tokens][8 slices] rows of 128 bytes;
 * then the end bytes.  What is left for the ring; negative: nothing.  m: tokens of the tile. */
TGLU_HOST_DEVICE int64_t tglu_diag_ring_bytes(int32_t m, int32_t k) {
  int64_t blocks = ((int64_t)k + TGLU_DIAG_BLOCK_K - 1) / TGLU_DIAG_BLOCK_K;
  return TGLU_DIAG_SMEM_BYTES - TGLU_SMEM_ALIGNMENT - TGLU_DIAG_END_BYTES -
         blocks * m * (TGLU_DIAG_SLICES * TGLU_TILE_K * 2);
}

/* Fills in share ... stages from n, k, the grid's ctas and the tokens m of a tile; tile_n and
 * most_stages: the row's. */
TGLU_HOST_DEVICE void tglu_diag_divide(tglu_down_diag_launch *r, int32_t ctas, int32_t m,
                                       int32_t tile_n, int32_t most_stages) {
  int32_t units = (r->n + TGLU_DIAG_UNIT - 1) / TGLU_DIAG_UNIT, most = tile_n / TGLU_DIAG_UNIT;
  r->share = units / ctas;
  r->larger = units - r->share * ctas;
  units = r->share + (r->larger > 0);
  r->passes = (units + most - 1) / most;
  r->height = (units + r->passes - 1) / r->passes;
  int64_t tiles = tglu_diag_ring_bytes(m, r->k) / TGLU_DIAG_TILE_BYTES;
  int64_t fit = tiles / ((r->height + 1) / 2);
  r->stages = (int32_t)(fit < most_stages ? fit : most_stages);
}

#endif /* TGLU_SM90_DOWN_DIAG_LAUNCH_H */
