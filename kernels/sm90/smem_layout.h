/* Shared-memory arithmetic of the sm_90a GLU kernels.  Plain C for both sides:
 * the host sizes launches with it, the kernels place their buffers with it, unit
 * tests on the CPU check it.
 *
 *   offset 0            stage ring: stages x [ A tile | B tile ]
 *                         A: tile_m rows x 64 k, 128 bytes a row, 128-byte swizzle
 *                         B: b_rows rows x 64 k, likewise; for `paired` tile_n gate
 *                            rows, then tile_n up rows (with a tail: tail_launch.h); for
 *                            `gate_first` tile_n rows
 *   ring end            output staging: consumer_warpgroups x [64 x tile_n] elements
 *   staging end         mbarriers: full[stages], empty[stages]
 *
 * The base is rounded up to 1024 bytes (the swizzle repeats every 1024). */
#ifndef TGLU_SM90_SMEM_LAYOUT_H
#define TGLU_SM90_SMEM_LAYOUT_H

#include <stdint.h>

#if defined(__CUDACC__)
#define TGLU_HOST_DEVICE static __host__ __device__ __forceinline__ constexpr
#else
#define TGLU_HOST_DEVICE static inline
#endif

#define TGLU_TILE_K 64               /* elements of K in a stage: 128 bytes      */
#define TGLU_CONSUMER_WARPGROUPS 2
#define TGLU_SMEM_ALIGNMENT 1024
#define TGLU_SMEM_BARRIER_BYTES 256  /* room for 2 * stages + 2 mbarriers of 8   */

/* Bytes of one stage; b_rows = 2 * tile_n (paired) or tile_n (gate_first). */
TGLU_HOST_DEVICE int32_t tglu_stage_bytes(int32_t tile_m, int32_t b_rows) {
  return (tile_m + b_rows) * TGLU_TILE_K * 2;
}

/* Bytes of one consumer warpgroup's output staging: 64 rows of 16-bit values. */
TGLU_HOST_DEVICE int32_t tglu_staging_bytes(int32_t tile_n) { return 64 * tile_n * 2; }

/* Dynamic shared memory of a launch, alignment slack included. */
TGLU_HOST_DEVICE int32_t tglu_smem_bytes(int32_t tile_m, int32_t tile_n, int32_t b_rows,
                                         int32_t stages) {
  return TGLU_SMEM_ALIGNMENT + stages * tglu_stage_bytes(tile_m, b_rows) +
         TGLU_CONSUMER_WARPGROUPS * tglu_staging_bytes(tile_n) + TGLU_SMEM_BARRIER_BYTES;
}

/* Rows of one weight box.  gate_first: a cluster's CTAs share out the rows of the one
 * operand in a stage; paired_*: they share out the operands. */
TGLU_HOST_DEVICE int32_t tglu_weight_box_rows(int32_t tile_n, int32_t cluster_m,
                                              int32_t gate_first) {
  return gate_first ? tile_n / cluster_m : tile_n;
}

/* ---- the general loader (paired_general) ----
 * Raw boxes land in a ring of their own, 144 bytes a row (64 + 8 elements), and are moved
 * from there into the stage ring.  No output staging.
 *   offset 0            stage ring, as above
 *   ring end            raw ring: stages x (tile_m + 2 tile_n) rows of 144 bytes
 *   raw end             mbarriers: full, empty, raw_full, raw_empty, [stages] each      */
#define TGLU_RAW_ROW_BYTES ((TGLU_TILE_K + 8) * 2)

TGLU_HOST_DEVICE int32_t tglu_general_smem_bytes(int32_t tile_m, int32_t tile_n,
                                                 int32_t stages) {
  return TGLU_SMEM_ALIGNMENT + stages * tglu_stage_bytes(tile_m, 2 * tile_n) +
         stages * (tile_m + 2 * tile_n) * TGLU_RAW_ROW_BYTES + TGLU_SMEM_BARRIER_BYTES;
}

/* Byte offset of byte `column` of row `row` in a tile of 128-byte rows with the 128-byte
 * swizzle: the 16-byte chunk is xored with row % 8. */
TGLU_HOST_DEVICE int32_t tglu_stage_offset(int32_t row, int32_t column) {
  return row * 128 + (column ^ ((row & 7) << 4));
}

/* Columns of one output box: 64 or 32 where that divides tile_n, swizzled by its own width
 * (128 or 64 bytes), else all of tile_n without a swizzle.  The 8 rows of 16 bytes that a
 * stmatrix writes then fall into 8 different bank groups for tile_n = 64 i, 32 i and 8 (2 i
 * + 1), into 4 for the rest; and a store writes whole lines (boxes of 8 columns cost 3000
 * cycles an epilogue, H200, 2026-11-29). */
TGLU_HOST_DEVICE int32_t tglu_out_box_columns(int32_t tile_n) {
  return tile_n % 64 == 0 ? 64 : tile_n % 32 == 0 ? 32 : tile_n;
}
/* Its swizzle in bytes: 128, 64 or 0. */
TGLU_HOST_DEVICE int32_t tglu_out_box_swizzle(int32_t tile_n) {
  return tile_n % 64 == 0 ? 128 : tile_n % 32 == 0 ? 64 : 0;
}

/* Byte offset of the 16-byte chunk `chunk` of row `row` in a box of box_columns columns
 * swizzled by `swizzle` bytes: CU_TENSOR_MAP_SWIZZLE_{128,64}B xor address bits 4.. with
 * bits 7.. (CUDA driver API, CUtensorMapSwizzle; PTX ISA "Swizzling modes"). */
TGLU_HOST_DEVICE int32_t tglu_out_box_offset(int32_t box_columns, int32_t swizzle, int32_t row,
                                             int32_t chunk) {
  int32_t linear = row * box_columns * 2 + chunk * 16;
  int32_t mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : 0;
  return linear ^ (((linear >> 7) & mask) << 4);
}

#endif /* TGLU_SM90_SMEM_LAYOUT_H */
