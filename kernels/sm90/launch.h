/* The launch contract of the sm_90a GLU kernels: what the host fills in and every
 * kernel takes as its one __grid_constant__ parameter.  Plain C, compiled for
 * both sides.
 *
 * A launch: grid (clusters * cluster_m, 1, 1), block ROW_THREADS threads, cluster
 * (cluster_m, 1, 1), dynamic shared memory tglu_smem_bytes(...) of smem_layout.h.
 * The kernels are persistent: a cluster walks tiles first, first + clusters, ...
 * of tile_order.h, so any grid of whole clusters computes the whole result. */
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
   *   x      dims {K, M}, box {64, tile_m}           128-byte swizzle
   *   gate   dims {K, N}, box {64, tile_n/cluster_m} 128-byte swizzle
   *   up     dims {K, N}, box {64, tile_n/cluster_m} 128-byte swizzle
   *   out    dims {N, M}, box {tglu_out_box_columns(tile_n), 64}, swizzle of as
   *          many bytes as that box is wide (none for 16 bytes)
   * L2 promotion 128 or 256 bytes.  Rows with the general loader read no map but
   * the pointers below. */
  tglu_tensor_map x, gate, up, out;

  int32_t m, n, k;
  int32_t tile_rows;    /* cluster rows: ceil(m / (tile_m * cluster_m))          */
  int32_t tile_columns; /* ceil(n / tile_n)                                      */
  int32_t group;        /* cluster rows per raster group (tile_order.h), >= 1    */
  int32_t activation;
  int32_t flags;
  float alpha, limit, offset;  /* swigluoai                                      */
  int32_t reserved;

  /* Biases, NULL if absent: element i at pointer + i * bias_stride elements. */
  const void *gate_bias, *up_bias;
  int64_t bias_stride;

  /* For direct stores and for the general loader; strides in elements. */
  void *out_pointer;
  int64_t ldo;
  const void *x_pointer, *gate_pointer, *up_pointer;
  int64_t ldx, ldw;
} tglu_glu_launch;

#endif /* TGLU_SM90_LAUNCH_H */
