/* The launch contract of the `down` rows: O = X W^T + b (+ R), the down projection of an MLP
 * and what tglu_linear runs.  Plain C, compiled for both sides.
 *
 * A launch: grid (clusters * cluster, 1, 1), block 384 threads, cluster (cluster, 1, 1),
 * dynamic shared memory tglu_down_smem_bytes(...).  `cluster` is the row's cluster_m:
 *   down_pingpong, down_coop   CTAs side by side along tokens share each weight tile by
 *                              multicast, as in launch.h; tiles of tile_m x tile_n
 *   down_split                 the CTAs of a cluster share one tile, each takes every
 *                              cluster-th K-block, partial sums in fp32 meet in distributed
 *                              shared memory and are added in a fixed order
 * Persistent: a cluster walks tiles first, first + clusters, ... of tile_order.h, so any grid
 * of whole clusters computes the whole result. */
#ifndef TGLU_SM90_DOWN_LAUNCH_H
#define TGLU_SM90_DOWN_LAUNCH_H

#include <stdint.h>

#include "launch.h"
#include "smem_layout.h"

typedef struct tglu_down_launch {
  /* Tensor maps, 2-D, 16-bit elements, zero fill, dim 0 contiguous, L2 promotion 128 bytes.
   *   x      dims {K, M}, box {64, tile_m}, 128-byte swizzle; not read where M <= tile_m
   *   x_last as x, box {64, x_last_rows}: for the last row of tiles
   *   w      dims {K, N}, box {64, tglu_down_box_rows(...)}, 128-byte swizzle
   *   w_last as w, box {64, w_last_rows}: for the last column of tiles; not read in multicast
   *          clusters
   *   out    dims {N, M}, box {tglu_out_box_columns(tile_n), 64}, swizzle of
   *          tglu_out_box_swizzle(tile_n) bytes; not read with TGLU_LAUNCH_DIRECT_STORE
   * where M = tokens, N = columns of the result (hidden), K = columns of x (intermediate). */
  tglu_tensor_map x, w, out, x_last, w_last;
  int32_t m, n, k;
  int32_t tile_rows;    /* down_pingpong, down_coop: ceil(m / (tile_m * cluster));
                           down_split: ceil(m / tile_m)                             */
  int32_t tile_columns; /* ceil(n / tile_n)                                         */
  int32_t group;        /* tile rows per raster group (tile_order.h), >= 1          */
  int32_t flags;        /* bits of tglu_glu_launch.flags                            */
  int32_t x_last_rows, w_last_rows; /* rows of M and of N that are left there, rounded
                           up to 8: TMA takes 2.6 ns for a row of zeros, and 1 ns to
                           fetch one (docs/notes, step 42)                          */
  const void *bias;     /* [n] or NULL, stride 1                                    */
  const void *residual; /* [m, n] or NULL; may be the output itself; any multiple of 2
                           bytes, any stride                                        */
  int64_t ldr;          /* elements                                                 */
  void *out_pointer;    /* for direct stores, and for down_split always: it has no use
                           for the map `out`                                        */
  int64_t ldo;          /* elements                                                 */
} tglu_down_launch;

/* Rows of one box of w: all of tile_n, at most 256 in a box; in a multicast cluster each CTA
 * fetches its share. */
TGLU_HOST_DEVICE int32_t tglu_down_box_rows(int32_t tile_n, int32_t cluster_m, int32_t split) {
  return split ? tile_n : tile_n / cluster_m;
}

/* ---- down_split: how a cluster adds up one tile ----
 * The tile's columns, in groups of 8, are dealt out in ranges of equal length: CTA r owns the
 * groups r * per, ..., at most per of them, per = tglu_split_groups(...).  Every CTA sends its
 * partial sums of a group to the group's owner, who keeps [cluster][per] blocks of tile_m rows
 * x 8 floats.  32 bytes between blocks: the owner's threads read along a row, and would all
 * meet in the same banks. */
TGLU_HOST_DEVICE int32_t tglu_split_groups(int32_t tile_n, int32_t cluster) {
  return (tile_n / 8 + cluster - 1) / cluster;
}
TGLU_HOST_DEVICE int32_t tglu_split_block_bytes(int32_t tile_m) { return tile_m * 32 + 32; }

/* Dynamic shared memory: stage ring with tile_n rows of B in a stage; then output staging as
 * in smem_layout.h, or (split) the partial sums; then the mbarriers, two more for split. */
TGLU_HOST_DEVICE int32_t tglu_down_smem_bytes(int32_t tile_m, int32_t tile_n, int32_t stages,
                                              int32_t cluster_m, int32_t split) {
  return !split ? tglu_smem_bytes(tile_m, tile_n, tile_n, stages)
                : TGLU_SMEM_ALIGNMENT + stages * tglu_stage_bytes(tile_m, tile_n) +
                      cluster_m * tglu_split_groups(tile_n, cluster_m) *
                          tglu_split_block_bytes(tile_m) +
                      TGLU_SMEM_BARRIER_BYTES;
}

#endif /* TGLU_SM90_DOWN_LAUNCH_H */
