/* Shared-memory arithmetic of the sm_90a GLU kernels.  Plain C for both sides:
 * the host sizes launches with it, the kernels place their buffers with it, unit
 * tests on the CPU check it.
 *
 *   offset 0            stage ring: stages x [ A tile | B tile ]
 *                         A: tile_m rows x 64 k, 128 bytes a row, 128-byte swizzle
 *                         B: b_rows rows x 64 k, likewise; for `paired` tile_n gate
 *                            rows, then tile_n up rows; for `gate_first` tile_n rows
 *   ring end            output staging: consumer_warpgroups x [64 x tile_n] elements
 *   staging end         mbarriers: full[stages], empty[stages], and 2 for turns
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

/* Columns of one output box: the widest of 64, 32, 16, 8 that divides tile_n.  The
 * box is swizzled by its own width (128, 64, 32 bytes; 16: none), which makes the
 * 8 x 16-byte rows that stmatrix writes fall into 8 different bank groups. */
TGLU_HOST_DEVICE int32_t tglu_out_box_columns(int32_t tile_n) {
  return tile_n % 64 == 0 ? 64 : tile_n % 32 == 0 ? 32 : tile_n % 16 == 0 ? 16 : 8;
}

/* Byte offset of the 16-byte chunk `chunk` of row `row` in a box of box_columns
 * columns: CU_TENSOR_MAP_SWIZZLE_{128,64,32}B xor address bits 4.. with bits 7..
 * (CUDA driver API, CUtensorMapSwizzle; PTX ISA "Swizzling modes"). */
TGLU_HOST_DEVICE int32_t tglu_out_box_offset(int32_t box_columns, int32_t row,
                                             int32_t chunk) {
  int32_t linear = row * box_columns * 2 + chunk * 16;
  int32_t mask = box_columns / 8 - 1;            /* 7, 3, 1, 0 */
  return linear ^ (((linear >> 7) & mask) << 4);
}

#endif /* TGLU_SM90_SMEM_LAYOUT_H */
