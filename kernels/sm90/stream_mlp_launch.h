/* The launch contract of the `stream_mlp` rows: a whole MLP for few tokens in one launch.  Plain
 * C, compiled for both sides.
 *
 * A launch: cooperative (every CTA waits once for all others, design: docs/hopper.md), grid
 * (ctas, 1, 1) with at most one CTA an SM, block TGLU_STREAM_THREADS threads, no cluster,
 * dynamic shared memory tglu_stream_mlp_smem_bytes(...).  Any number of CTAs gives the same
 * bits; best is one an SM. */
#ifndef TGLU_SM90_STREAM_MLP_LAUNCH_H
#define TGLU_SM90_STREAM_MLP_LAUNCH_H

#include "stream_launch.h"

/* Both halves as the rows of each half take them.  glu.out is H, in the caller's workspace, and
 * is down.x; H lies on 16 bytes with a stride that is a multiple of 8.  glu.m == down.m <= tile_m,
 * down.k == glu.n; x, gate, up and down.gate are on 16 bytes, their strides multiples of 8.
 * Of .flags only that of glu counts: with TGLU_LAUNCH_STABLE_WEIGHTS both halves' weights may be
 * read before the work before the launch has ended. */
typedef struct tglu_stream_mlp_launch {
  tglu_stream_launch glu, down;
} tglu_stream_mlp_launch;

/* A pass of the down projection: 8 outputs, for which a stage holds 4 K-blocks. */
#define TGLU_STREAM_MLP_DOWN_ROWS 8
#define TGLU_STREAM_MLP_DOWN_BLOCKS 4

/* Dynamic shared memory of a launch:
 *   offset 0   rings: stages x 8 warps x 4 KB
 *   ring end   partial sums: 8 warps x [8 tokens x 32 rows] floats
 *   then       m tokens of X, all of hidden; after the GLU m rows of H                     */
TGLU_HOST_DEVICE int64_t tglu_stream_mlp_smem_bytes(int32_t stages, int32_t m, int32_t hidden,
                                                    int32_t intermediate) {
  return tglu_stream_smem_bytes(8, 16, stages, 1, m,
                                hidden > intermediate ? hidden : intermediate);
}

#endif /* TGLU_SM90_STREAM_MLP_LAUNCH_H */
