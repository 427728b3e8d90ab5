/* The launch contract of the sm_90a GLU kernels: what the host fills in and every
 * kernel takes as its one __grid_constant__ parameter.  Plain C, compiled for
 * both sides.
 *
 * A launch: grid (clusters * cluster_m, 1, 1), block ROW_THREADS threads, cluster
 * (cluster_m, 1, 1), dynamic shared memory tglu_smem_bytes(...) of smem_layout.h.
 * The kernels are persistent: a cluster walks tiles first, first + clusters, ...
 * of tile_order.h, so any grid of whole clusters, no more than tiles, computes the whole result. */
#ifndef TGLU_SM90_LAUNCH_H
#define TGLU_SM90_LAUNCH_H

#include <stdint.h>

/* A CUtensorMap, without its header: 128 opaque bytes on a 64-byte boundary. */
#if defined(__CUDACC__)
#define TGLU_ALIGN64 __align__(64)
#else
#define TGLU_ALIGN64 __attribute__((aligned(64)))
#endif
typedef struct TGLU_ALIGN64 tglu_tensor_map {
  uint64_t opaque[16];
} tglu_tensor_map;

/* Bits of tglu_glu_launch.flags. */
enum {
  /* Store with ordinary predicated stores instead of TMA: the output pointer or
   * stride is not on 16 bytes, or N is not a multiple of 8 (TMA clips a row of
   * bf16 in pieces of 16 bytes).  The `out` map is then not read. */
  TGLU_LAUNCH_DIRECT_STORE = 1,
  /* The caller promises stable weights: the producer may load them before
   * griddepcontrol.wait. */
  TGLU_LAUNCH_STABLE_WEIGHTS = 2
};

/* Values of .activation equal the public tglu_activation. */
typedef struct tglu_glu_launch {
  /* Tensor maps, 2-D, 16-bit elements, zero fill.  dim 0 is the contiguous one.
   *   x      dims {K, M}, box {64, x_rows}, 128-byte swizzle
 *   gate   dims {K, N}, box {64, tglu_weight_box_rows(...)}, 128-byte swizzle
 *   up     dims {K, N}, likewise
 *   out    dims {N, M}, box {tglu_out_box_columns(tile_n), 64}, swizzle of
 *          tglu_out_box_swizzle(tile_n) bytes
 * L2 promotion 128 bytes. */
  tglu_tensor_map x, gate, up, out;

  int32_t m, n, k;
  int32_t tile_rows;    /* cluster rows: ceil(m / (tile_m * cluster_m))          */
  int32_t tile_columns; /* ceil(n / tile_n)                                      */
  int32_t group;        /* cluster rows per raster group (tile_order.h), >= 1    */
  int32_t activation;
  int32_t flags;
  float alpha, limit, offset;  /* swigluoai                                      */
  int32_t x_rows;       /* rows of x's box: tile_m, or m rounded up to 8 where that
                           is less: rows beyond M cost as much to fill with zeros
                           as to fetch                                              */

  /* Biases, NULL if absent: element i at pointer + i * bias_stride elements. */
  const void *gate_bias, *up_bias;
  int64_t bias_stride;

  /* For direct stores, and the tails of tiles (tail_launch.h); the stride in elements. */
  void *out_pointer;
  int64_t ldo;
} tglu_glu_launch;

/* The parameter of rows with the general loader (schedule paired_general): any element-
 * aligned pointer, any stride, loaded by TMA all the same and without a copy in memory.
 *
 * TMA wants addresses, strides and a box's first element on 16 bytes.  With C = 16 /
 * gcd(16, 2 ld) the rows s, s + C, s + 2C, ... of an operand have a stride of 2 C ld
 * bytes, which is a multiple of 16.  So each residue class s < C gets a map of its own,
 * whose base is the start of row s rounded down to 16 bytes; the row's element k is at
 * coordinate k + shift[s], shift[s] = 0..7.  Boxes are 72 wide, 8 more than a stage's K,
 * and unswizzled; warps of the producer warpgroup move the rows into place by shift.
 *   x[s]         dims {K + x_shift[s],    ceil((M - s) / x_classes)}, box {72, tile_m/C}
 *   gate[s]      dims {K + gate_shift[s], ceil((N - s) / w_classes)}, box {72, tile_n/C}
 *   up[s]        likewise with up_shift
 * C is 1, 2, 4 or 8, and larger than the stride asks for where rows that begin off 16
 * bytes would reach beyond it: dim 0 is no longer than the stride.  A class without rows
 * takes any valid map: its rows lie beyond M or N and are never stored.  base.x, gate, up,
 * out are not read; base.flags has TGLU_LAUNCH_DIRECT_STORE. */
typedef struct tglu_glu_general_launch {
  tglu_glu_launch base;
  tglu_tensor_map x[8], gate[8], up[8];
  int32_t x_classes, w_classes;
  int32_t x_shift[8], gate_shift[8], up_shift[8];
} tglu_glu_general_launch;

#endif /* TGLU_SM90_LAUNCH_H */
