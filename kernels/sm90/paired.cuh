/* Kernel-2, `paired`: H = act(X Wg^T) * (X Wu^T) as one GEMM whose tile holds gate
 * and up side by side.  Two TMA boxes put NO gate rows and the matching NO up rows
 * next to each other in shared memory; one wgmma of width 2 NO takes both as B, and a
 * thread's accumulators d[i] and d[i + NO/2] are the gate and the up of one output.
 * (Jangda et al. 2026, "interleaving"; here without interleaved weights.)
 *
 * paired_pingpong: the consumer warpgroups take turns, each with a tile of its own, so
 * one's epilogue hides behind the other's mainloop.
 * paired_coop: both share a tile twice as high; the epilogue's arithmetic overlaps the
 * asynchronous stores of the tile before; less operand traffic, and both store a
 * single tile.
 *
 *   CTA, 384 threads             pingpong 128 x 96, 5 stages     coop 128 x 128, 4 stages
 *   warpgroup 0  producer        one thread: TMA A, B -> full[s]                 regs  40
 *   warpgroup 1  consumer        tiles 0, 2, ...: 2 x m64n192    rows  0-63: m64n256
 *   warpgroup 2  consumer        tiles 1, 3, ...: 2 x m64n192    rows 64-127     regs 232
 *   stage                        A 16 KB + B 24 KB               A 16 KB + B 32 KB
 *   accumulators per thread      192                             128
 *
 * A tile_n that is 4 beyond a multiple of 8 has a tail: tail_launch.h.
 *
 * Assumptions: the tensor maps of launch.h; grid of whole clusters; tile counts in
 * `p`; everything outside M, N, K reads as zero and is clipped by the stores. */
#include "wgmma_odd.cuh" /* before mainloop.cuh */
#include "epilogue.cuh"
#include "epilogue_tail.cuh"
#include "launch.h"
#include "mainloop.cuh"
#include "pipeline.cuh"
#include "ptx_policy.cuh"
#include "smem_layout.h"
#include "tail_launch.h"
#include "tile_order.h"
#include "wgmma.cuh"

#define TILE_N ROW_TILE_N
#define TAIL_N tglu_tail_columns(TILE_N)
#define MAIN_N tglu_main_columns(TILE_N)
#define B_ROWS (2 * TILE_N)
#define TILES_AT_ONCE (ROW_SCHEDULE_PINGPONG ? 2 : 1)
/* m64 blocks of one consumer warpgroup */
#define BLOCKS (ROW_SCHEDULE_PINGPONG ? ROW_TILE_M / 64 : ROW_TILE_M / 128)
#define A_BYTES (ROW_TILE_M * TGLU_TILE_K * 2)
#define UP_BYTES ((TILE_N + TAIL_N) * TGLU_TILE_K * 2) /* where up's main columns begin */
#define UP_ACC ((TILE_N + TAIL_N) / 2)                  /* and their accumulators       */
#define STAGE_BYTES (A_BYTES + B_ROWS * TGLU_TILE_K * 2)
#ifndef PRELOAD_STAGES
#define PRELOAD_STAGES 2
#endif

static_assert(ROW_TILE_M % (ROW_SCHEDULE_PINGPONG ? 64 : 128) == 0, "whole m64 blocks");
static_assert(ROW_TILE_M <= 256 && TILE_N <= 128 && TILE_N % 4 == 0, "one TMA box, one wgmma");
static_assert(ROW_CLUSTER_M <= (TAIL_N ? 1 : 2), "one CTA an operand");
static_assert(BLOCKS * TILE_N <= 192, "more than 192 accumulators spill");
static_assert(tglu_smem_bytes(ROW_TILE_M, TILE_N, B_ROWS, ROW_STAGES) <= 232448, "227 KB");
static_assert((2 * ROW_STAGES) * 8 <= TGLU_SMEM_BARRIER_BYTES, "room for the barriers");

enum { BARRIER_TURN = 1 /* and 2 */, BARRIER_WARPGROUP = 3 /* and 4 */ };

#if ROW_TILE_N % 8
typedef tglu_glu_tail_launch paired_launch;
TGLU_DEVICE const tglu_glu_launch &base_of(const paired_launch &launch) { return launch.base; }

/* Both tails of one stage: four rows each, the second at half a swizzle atom. */
TGLU_DEVICE void load_stage_tails(const paired_launch &launch, uint32_t b, uint32_t full, int32_t k,
                                  int32_t n, uint64_t policy) {
  const int32_t tail = tglu_tail_first(n, TILE_N);
  const uint32_t to = b + MAIN_N * TGLU_TILE_K * 2;
  tma_load_2d_policy(to, &launch.gate_tail, full, k, tail, policy);
  tma_load_2d_policy(to + TAIL_N * TGLU_TILE_K * 2, &launch.up_tail, full, k, tail, policy);
}
#else
typedef tglu_glu_launch paired_launch;
TGLU_DEVICE const tglu_glu_launch &base_of(const paired_launch &launch) { return launch; }
TGLU_DEVICE void load_stage_tails(const paired_launch &, uint32_t, uint32_t, int32_t, int32_t,
                                  uint64_t) {}
#endif

/* All weight boxes of one stage of the tile that begins at column n.  In a cluster of two, each
 * CTA fetches one operand and multicasts it: CTA 0 the gate, CTA 1 the up. */
TGLU_DEVICE void load_stage_weights(const paired_launch &launch, uint32_t b, uint32_t full,
                                    int32_t k, int32_t n, uint32_t rank, uint64_t policy) {
  const tglu_glu_launch &p = base_of(launch);
  if (ROW_CLUSTER_M == 1) {
    const int32_t main = tglu_main_first(n);
    tma_load_2d_policy(b, &p.gate, full, k, main, policy);
    load_stage_tails(launch, b, full, k, n, policy);
    tma_load_2d_policy(b + UP_BYTES, &p.up, full, k, main, policy);
  } else {
    tma_load_2d_multicast(b + rank * UP_BYTES, rank == 0 ? &p.gate : &p.up, full, k, n, 3);
  }
}

/* One thread loads every tile of this cluster in turn, K-block by K-block.  With stable
 * weights it fills the weights' part of the first PRELOAD_STAGES before the dependency on the
 * kernel before is over; not of all, since X queues behind them (docs/notes, step 16).  One
 * row of tiles reads every weight once, and says so to L2 (clusters do not). */
TGLU_DEVICE void produce(const paired_launch &launch, const smem_map &smem, uint32_t rank,
                         int32_t first, int32_t step) {
  const tglu_glu_launch &p = base_of(launch);
  const uint64_t policy = p.tile_rows == 1 ? policy_read_once() : 0;
  const int32_t tiles = p.tile_rows * p.tile_columns;
  ring_position at = {0, 0};
  int32_t preloaded = 0;
  const uint32_t stage_bytes = STAGE_BYTES - (ROW_TILE_M - p.x_rows) * TGLU_TILE_K * 2;
  if (p.flags & TGLU_LAUNCH_STABLE_WEIGHTS) {
    const tglu_tile tile = tglu_tile_at(first, p.tile_rows, p.tile_columns, p.group);
    for (; preloaded < PRELOAD_STAGES && preloaded * TGLU_TILE_K < p.k; preloaded++) {
      const uint32_t full = smem.full + 8 * preloaded;
      mbarrier_arrive_expect_tx(full, stage_bytes);
      load_stage_weights(launch, smem.ring + preloaded * STAGE_BYTES + A_BYTES, full,
                         preloaded * TGLU_TILE_K, tile.column * TILE_N, rank, policy);
    }
  }
  dependency_wait();
  dependents_launch();
  for (int32_t index = first; index < tiles; index += step) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    const int32_t m = (tile.row * ROW_CLUSTER_M + (int32_t)rank) * ROW_TILE_M;
    const int32_t n = tile.column * TILE_N;
    for (int32_t k = 0; k < p.k; k += TGLU_TILE_K) {
      const uint32_t full = smem.full + 8 * at.stage;
      const uint32_t a = smem.ring + at.stage * STAGE_BYTES;
      if (preloaded > 0) {
        preloaded--;
        tma_load_2d(a, &p.x, full, k, m);
      } else {
        mbarrier_wait(smem.empty + 8 * at.stage, at.parity ^ 1);
        mbarrier_arrive_expect_tx(full, stage_bytes);
        tma_load_2d(a, &p.x, full, k, m);
        load_stage_weights(launch, a + A_BYTES, full, k, n, rank, policy);
      }
      ring_advance<ROW_STAGES>(at);
    }
  }
}

TGLU_DEVICE void consume(const paired_launch &launch, const smem_map &smem, uint32_t rank,
                         int32_t first, int32_t step, int warpgroup, int thread) {
  const tglu_glu_launch &p = base_of(launch);
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const int32_t row_offset = ROW_SCHEDULE_PINGPONG ? 0 : warpgroup * (64 * BLOCKS);
  float acc[BLOCKS][TILE_N];
  epilogue_place place;
  place.staging = smem.staging + warpgroup * tglu_staging_bytes(MAIN_N);
  place.barrier = BARRIER_WARPGROUP + warpgroup;
  place.thread = thread;
  ring_position at = {0, 0};
#if ROW_SCHEDULE_PINGPONG
  const int32_t k_blocks = (p.k + TGLU_TILE_K - 1) / TGLU_TILE_K;
  if (warpgroup == 1) {
    named_barrier_arrive(BARRIER_TURN + 0, 256);
    ring_skip<ROW_STAGES>(at, k_blocks);
  }
  first += warpgroup * step;
#endif
  dependency_wait();
  for (int32_t index = first; index < tiles; index += TILES_AT_ONCE * step) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
#if ROW_SCHEDULE_PINGPONG
    named_barrier_sync(BARRIER_TURN + warpgroup, 256);
#endif
    mainloop<BLOCKS, B_ROWS, A_BYTES, STAGE_BYTES>(p.k, smem, at, row_offset * TGLU_TILE_K * 2,
                                                   thread, acc);
#if ROW_SCHEDULE_PINGPONG
    if (index + step < tiles) named_barrier_arrive(BARRIER_TURN + (warpgroup ^ 1), 256);
#endif
    wgmma_wait<0>();
    ring_release_last(smem, at, thread);
#if ROW_SCHEDULE_PINGPONG
    ring_skip<ROW_STAGES>(at, k_blocks);
#endif
    place.column = tglu_main_first(tile.column * TILE_N);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      wgmma_pin(acc[b]);
      place.row = (tile.row * ROW_CLUSTER_M + (int32_t)rank) * ROW_TILE_M + row_offset + 64 * b;
      if (TAIL_N)
        epilogue_tail(p, place, tglu_tail_first(tile.column * TILE_N, TILE_N), acc[b] + MAIN_N / 2);
      epilogue_store<MAIN_N, false>(p, place, acc[b], acc[b] + UP_ACC);
    }
  }
  if (thread == 0) tma_store_wait_read();
}

#if ROW_TILE_N % 8
#define ENTRY_LAUNCH tglu_glu_tail_launch
#define ENTRY_PREFETCH(p)              \
  prefetch_tensor_map(&(p).base.x);    \
  prefetch_tensor_map(&(p).base.gate); \
  prefetch_tensor_map(&(p).base.up);   \
  prefetch_tensor_map(&(p).gate_tail); \
  prefetch_tensor_map(&(p).up_tail);   \
  prefetch_tensor_map(&(p).base.out)
#endif
#define ENTRY_READERS (ROW_SCHEDULE_PINGPONG ? 1 : 2)
#include "entry.cuh"
