/* Kernel-1, `gate_first`: H = act(X Wg^T) * (X Wu^T), grid over [M, N] tiles.  The gate
 * tile is accumulated over all of K; its activation is applied in fp32 on the
 * accumulator registers while the TMA loads of the up tile are in flight; the up tile
 * is accumulated into registers of its own; product and store come in the epilogue.
 * (Jangda et al. 2026, "ping-pong overlap".)
 *
 * Both halves stay in fp32 until the one rounding, so a thread holds two accumulators
 * and the tile is as large as 96 + 96 registers a thread allow.  The two consumer
 * warpgroups run out of phase, each with a tile of its own, and hand the tensor cores to
 * each other after every half: while one applies its activation (or stores), the other
 * multiplies.  X is read twice.
 *
 *   CTA, 384 threads             128 x 96, 6 stages
 *   warpgroup 0  producer        one thread: TMA A, B -> full[s], in the order of turns
 *   warpgroup 1  consumer        tiles 0, 2, ...:  gate . act . up . store       regs 232
 *   warpgroup 2  consumer        tiles 1, 3, ...:       gate . act . up . store  regs 232
 *   stage                        A 16 KB + B 12 KB; order: gate 0, gate 1, up 0, up 1, ...
 *
 * Assumptions: those of paired.cuh. */
#include "epilogue.cuh"
#include "launch.h"
#include "mainloop.cuh"
#include "pipeline.cuh"
#include "ptx.cuh"
#include "smem_layout.h"
#include "tile_order.h"
#include "wgmma.cuh"

#define TILE_N ROW_TILE_N
#define BLOCKS (ROW_TILE_M / 64) /* m64 blocks of one consumer warpgroup */
#define A_BYTES (ROW_TILE_M * TGLU_TILE_K * 2)
#define B_ROWS TILE_N
#define STAGE_BYTES (A_BYTES + B_ROWS * TGLU_TILE_K * 2)

static_assert(ROW_TILE_M % 64 == 0, "whole m64 blocks");
static_assert(ROW_TILE_M <= 256 && TILE_N <= 256 && TILE_N % 16 == 0, "one TMA box, one wgmma");
static_assert(BLOCKS * TILE_N <= 192, "more than 192 accumulators spill");
static_assert(tglu_smem_bytes(ROW_TILE_M, TILE_N, TILE_N, ROW_STAGES) <= 232448, "227 KB");
static_assert((2 * ROW_STAGES) * 8 <= TGLU_SMEM_BARRIER_BYTES, "room for the barriers");

enum { BARRIER_TURN = 1 /* and 2 */, BARRIER_WARPGROUP = 3 /* and 4 */ };

/* One half (gate or up) of one tile, K-block by K-block. */
TGLU_DEVICE void produce_half(const tglu_glu_launch &p, const smem_map &smem, uint32_t rank,
                              int32_t index, const tglu_tensor_map *weights, ring_position &at) {
  const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
  const int32_t m = (tile.row * ROW_CLUSTER_M + (int32_t)rank) * ROW_TILE_M;
  const int32_t n = tile.column * TILE_N;
  const uint32_t stage_bytes = STAGE_BYTES - (ROW_TILE_M - p.x_rows) * TGLU_TILE_K * 2;
  for (int32_t k = 0; k < p.k; k += TGLU_TILE_K) {
    const uint32_t full = smem.full + 8 * at.stage;
    const uint32_t a = smem.ring + at.stage * STAGE_BYTES;
    mbarrier_wait(smem.empty + 8 * at.stage, at.parity ^ 1);
    mbarrier_arrive_expect_tx(full, stage_bytes);
    tma_load_2d(a, &p.x, full, k, m);
    load_weights<TILE_N, ROW_CLUSTER_M>(weights, a + A_BYTES, full, k, n, rank);
    ring_advance<ROW_STAGES>(at);
  }
}

/* Pairs of tiles in the order of the consumers' turns; the last may be alone. */
TGLU_DEVICE void produce(const tglu_glu_launch &p, const smem_map &smem, uint32_t rank,
                         int32_t first, int32_t step) {
  const int32_t tiles = p.tile_rows * p.tile_columns;
  ring_position at = {0, 0};
  dependency_wait();
  dependents_launch();
  for (int32_t index = first; index < tiles; index += 2 * step) {
    for (int half = 0; half < 2; half++) {
      const tglu_tensor_map *weights = half == 0 ? &p.gate : &p.up;
      produce_half(p, smem, rank, index, weights, at);
      if (index + step < tiles) produce_half(p, smem, rank, index + step, weights, at);
    }
  }
}

/* Bias and activation on one block's gate accumulators, in place. */
template <bool Short>
TGLU_DEVICE void activate_gate(const tglu_glu_launch &p, int32_t column, int thread,
                               float (&gate)[TILE_N / 2]) {
#pragma unroll
  for (int i = 0; i < TILE_N / 2; i += 8) {
    float g[8];
#pragma unroll
    for (int j = 0; j < 8; j++) g[j] = gate[i + j];
    if (Short) {
      for (int j = 0; j < 8; j++) g[j] = silu(g[j]);
    } else {
      add_bias<8>(g, p.gate_bias, p.bias_stride, column + 2 * i + 2 * (thread % 4), p.n);
      gate_factor<8>(p.activation, p.alpha, p.limit, g);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) gate[i + j] = g[j];
  }
}

/* Waits for this warpgroup's turn, multiplies one half, passes the turn on (if the other
 * still takes one), and skips the `skip` stages of the other. */
TGLU_DEVICE void half_tile(const tglu_glu_launch &p, const smem_map &smem, ring_position &at,
                           int warpgroup, int thread, bool pass, int32_t skip,
                           float (&acc)[BLOCKS][TILE_N / 2]) {
  named_barrier_sync(BARRIER_TURN + warpgroup, 256);
  mainloop<BLOCKS, TILE_N, A_BYTES, STAGE_BYTES>(p.k, smem, at, 0, thread, acc);
  if (pass) named_barrier_arrive(BARRIER_TURN + (warpgroup ^ 1), 256);
  wgmma_wait<0>();
  ring_release_last(smem, at, thread);
  ring_skip<ROW_STAGES>(at, skip);
}

TGLU_DEVICE void consume(const tglu_glu_launch &p, const smem_map &smem, uint32_t rank,
                         int32_t first, int32_t step, int warpgroup, int thread) {
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const int32_t k_blocks = (p.k + TGLU_TILE_K - 1) / TGLU_TILE_K;
  float gate[BLOCKS][TILE_N / 2], up[BLOCKS][TILE_N / 2];
  epilogue_place place;
  place.staging = smem.staging + warpgroup * tglu_staging_bytes(TILE_N);
  place.barrier = BARRIER_WARPGROUP + warpgroup;
  place.thread = thread;
  ring_position at = {0, 0};
  if (warpgroup == 1) {
    named_barrier_arrive(BARRIER_TURN + 0, 256);
    ring_skip<ROW_STAGES>(at, k_blocks);
  }
  dependency_wait();
  int32_t index = first + warpgroup * step;
  for (; index < tiles; index += 2 * step) {
    /* The last pair may lack its second tile: nothing to skip then. */
    const bool alone = warpgroup == 0 && index + step >= tiles;
    const int32_t skip = alone ? 0 : k_blocks;
    const bool other_continues = warpgroup == 0 ? !alone : index + step < tiles;
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    place.column = tile.column * TILE_N;
    half_tile(p, smem, at, warpgroup, thread, true, skip, gate);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      wgmma_pin(gate[b]);
      if (short_epilogue(p)) {
        activate_gate<true>(p, place.column, thread, gate[b]);
      } else {
        activate_gate<false>(p, place.column, thread, gate[b]);
      }
    }
    half_tile(p, smem, at, warpgroup, thread, other_continues, skip, up);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      wgmma_pin(up[b]);
      place.row = (tile.row * ROW_CLUSTER_M + (int32_t)rank) * ROW_TILE_M + 64 * b;
      epilogue_store<TILE_N, true>(p, place, gate[b], up[b]);
    }
  }
  /* Without a second tile in the last pair, hand warpgroup 0 its turn back. */
  if (warpgroup == 1 && index - step < tiles) {
    named_barrier_sync(BARRIER_TURN + 1, 256);
    named_barrier_arrive(BARRIER_TURN + 0, 256);
  }
  if (thread == 0) tma_store_wait_read();
}

#define ENTRY_READERS 1
#include "entry.cuh"
