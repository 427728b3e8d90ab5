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
   *   x      dims {K, M}, box {64, tile_m}, 128-byte swizzle
   *   w      dims {K, N}, box {64, tglu_down_box_rows(...)}, 128-byte swizzle
   *   out    dims {N, M}, box {tglu_out_box_columns(tile_n), 64}, swizzle of
   *          tglu_out_box_swizzle(tile_n) bytes; not read with TGLU_LAUNCH_DIRECT_STORE
   * where M = tokens, N = columns of the result (hidden), K = columns of x (intermediate). */
  tglu_tensor_map x, w, out;
  int32_t m, n, k;
  int32_t tile_rows;    /* down_pingpong, down_coop: ceil(m / (tile_m * cluster));
                           down_split: ceil(m / tile_m)                             */
  int32_t tile_columns; /* ceil(n / tile_n)                                         */
  int32_t group;        /* tile rows per raster group (tile_order.h), >= 1          */
  int32_t flags;        /* bits of tglu_glu_launch.flags                            */
  int32_t reserved;
  const void *bias;     /* [n] or NULL, stride 1                                    */
  const void *residual; /* [m, n] or NULL; may be the output itself; any multiple of 2
                           bytes, any stride                                        */
  int64_t ldr;          /* elements                                                 */
  void *out_pointer;    /* for direct stores                                        */
  int64_t ldo;          /* elements                                                 */
} tglu_down_launch;

/* Rows of one box of w: all of tile_n, at most 256 in a box; in a multicast cluster each CTA
 * fetches its share. */
TGLU_HOST_DEVICE int32_t tglu_down_box_rows(int32_t tile_n, int32_t cluster_m, int32_t split) {
  return split ? tile_n : tile_n / cluster_m;
}

/* Dynamic shared memory: as tglu_smem_bytes with tile_n rows of B in a stage; down_split keeps
 * its partial sums, [tile_m x tile_n] floats, where the stage ring was. */
TGLU_HOST_DEVICE int32_t tglu_down_smem_bytes(int32_t tile_m, int32_t tile_n, int32_t stages) {
  return tglu_smem_bytes(tile_m, tile_n, tile_n, stages);
}

#endif /* TGLU_SM90_DOWN_LAUNCH_H */
