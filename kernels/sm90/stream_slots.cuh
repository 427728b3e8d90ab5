/* Slots of the rings of stream.cuh and stream_mlp.cuh: 8 weight rows of one K-block, 1 KB of
 * one warp.  A load of the warp brings four rows of 128 bytes, whole lines, since half lines
 * cost 1-3 % of the memory's rate (docs/notes/hopper_ladder.md); lane 8 r + c brings chunk c
 * (16 bytes) of row r.  mma wants it otherwise: lane 4 g + q reads chunks q and q + 4 of row g.
 * So what a lane reads others have brought: __syncwarp() between a wait and the reads, and
 * between the reads and the next load of the slot.  In odd rows the halves of the 8 chunks
 * change places, so that the lanes of two rows that read together use all banks. */
#ifndef TGLU_SM90_STREAM_SLOTS_CUH
#define TGLU_SM90_STREAM_SLOTS_CUH

#include "ptx_once.cuh"
#include "smem_layout.h"

#define BLOCK_BYTES (2 * TGLU_TILE_K)     /* a K-block of one row */
#define SLOT_BYTES (8 * BLOCK_BYTES)
#define HALF_SLOT_BYTES (SLOT_BYTES / 2)  /* what one load of the warp brings: four rows */

/* Where this lane's chunk of the four rows goes. */
TGLU_DEVICE uint32_t slot_write(int lane) {
  return lane / 8 * BLOCK_BYTES + 16 * (lane % 8 ^ lane / 8 % 2 * 4);
}
/* Where chunk lane % 4 + 4 half of row lane / 4 is. */
TGLU_DEVICE uint32_t slot_read(int lane, int half) {
  return lane / 4 * BLOCK_BYTES + 16 * (lane % 4 + 4 * (half ^ lane / 4 % 2));
}

/* Bytes of the 16 at element k of a row of k_size that lie within it. */
TGLU_DEVICE uint32_t bytes_within(int32_t k, int32_t k_size) {
  return 2 * min(8, max(0, k_size - k));
}

#endif /* TGLU_SM90_STREAM_SLOTS_CUH */
