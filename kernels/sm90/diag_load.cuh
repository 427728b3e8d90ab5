/* The loading side of down_diag.cuh: TMA fills each stage of the ring with the weights of a K-block
 * of a pass: row 8 output + slice of 128 bytes, 128-byte swizzle. */
#ifndef TGLU_SM90_DIAG_LOAD_CUH
#define TGLU_SM90_DIAG_LOAD_CUH

#include "down_diag_launch.h"
#include "pipeline.cuh"
#include "ptx_3d.cuh"
#include "ptx_elect.cuh"

#define CONSUMERS 256
#define SPLIT_K (ROW_TILE_N == 8) /* the warpgroups take alternate K-blocks */
#define TILE_BYTES TGLU_DIAG_TILE_BYTES
#define OUTPUT_BYTES (TILE_BYTES / 8)
#define UNIT_BYTES (OUTPUT_BYTES * TGLU_DIAG_UNIT)
#define TOKEN_BYTES 1024          /* of a token in a K-block                */

/* What a CTA has to do, and where things lie. */
typedef struct diag_work {
  int32_t unit, units;            /* first of this CTA, how many                         */
  int32_t height, passes;         /* units of a pass (the last may have fewer)           */
  int32_t token, tokens;          /* first, how many                                     */
  int32_t k_blocks, main_blocks;  /* with and without the tail                           */
  int32_t stages;
  uint32_t stage_bytes;
  uint32_t ring, x, partials, full, empty; /* shared addresses                           */
} diag_work;

TGLU_DEVICE diag_work work_of(const tglu_down_diag_launch &p, const void *dynamic) {
  diag_work w;
  const int32_t at = blockIdx.x;
  w.unit = p.share * at + min(at, p.larger);
  w.units = p.share + (at < p.larger);
  w.height = p.height;
  w.passes = p.passes - (w.units <= (p.passes - 1) * p.height);
  w.token = blockIdx.y * ROW_TILE_M;
  w.tokens = min(p.m - w.token, ROW_TILE_M);
  w.main_blocks = (uint32_t)p.k / TGLU_DIAG_BLOCK_K;
  w.k_blocks = ((uint32_t)p.k + TGLU_DIAG_BLOCK_K - 1) / TGLU_DIAG_BLOCK_K;
  w.stages = p.stages;
  w.stage_bytes = (p.height + 1) / 2 * TILE_BYTES;
  w.ring = (smem_address(dynamic) + TGLU_SMEM_ALIGNMENT - 1) & ~(TGLU_SMEM_ALIGNMENT - 1);
  w.x = w.ring + w.stages * w.stage_bytes;
  w.partials = w.x + w.k_blocks * w.tokens * TOKEN_BYTES;
  w.full = w.partials + 2 * 8 * ROW_TILE_M * 4;
  w.empty = w.full + 8 * ROW_STAGES;
  return w;
}

/* Moves on by `steps` stages, no more than there are. */
TGLU_DEVICE void move_on(const diag_work &w, ring_position &at, int32_t steps) {
  at.stage += steps;
  if (at.stage >= w.stages) {
    at.stage -= w.stages;
    at.parity ^= 1;
  }
}

/* The ring's barriers, by the first thread of the loading warp; then all threads meet. */
TGLU_DEVICE void begin(const tglu_down_diag_launch &p, const diag_work &w) {
  if (threadIdx.x == CONSUMERS + 1) prefetch_tensor_map(&p.tail);
  if (threadIdx.x == CONSUMERS) {
    prefetch_tensor_map(&p.w);
#pragma unroll
    for (int s = 0; s < ROW_STAGES; s++) {
      mbarrier_init(w.full + 8 * s, 1);
      mbarrier_init(w.empty + 8 * s, SPLIT_K ? 1 : 2);
    }
    fence_proxy_async();
  }
  __syncthreads();
}

/* The loading warp. */
TGLU_DEVICE void load(const tglu_down_diag_launch &p, const diag_work &w) {
  if (!elect_one(0xffffffff)) return;
  const uint64_t policy = policy_read_once();
  ring_position at = {0, 0};
  bool again = false; /* the ring has been filled once */
  if (!(p.flags & TGLU_LAUNCH_STABLE_WEIGHTS)) dependency_wait();
#pragma unroll 1
  for (int32_t pass = 0; pass < w.passes; pass++) {
    const int32_t n = (w.unit + pass * w.height) * TGLU_DIAG_UNIT;
    const int32_t height = min(w.units - pass * w.height, w.height);
#pragma unroll 1
    for (int32_t block = 0; block < w.k_blocks; block++) {
      const bool tail = block >= w.main_blocks;
      const uint32_t full = w.full + 8 * at.stage, slot = w.ring + at.stage * w.stage_bytes;
      if (again) mbarrier_wait(w.empty + 8 * at.stage, at.parity ^ 1);
      mbarrier_arrive_expect_tx(full, height * UNIT_BYTES);
#pragma unroll 1
      for (int32_t u = 0; u < height; u++) {
        tma_load_3d_policy(slot + u * UNIT_BYTES, tail ? &p.tail : &p.w, full,
                           tail ? 0 : block * TGLU_TILE_K, n + u * TGLU_DIAG_UNIT, policy);
      }
      move_on(w, at, 1);
      again = again || at.stage == 0;
    }
  }
}

#endif /* TGLU_SM90_DIAG_LOAD_CUH */
