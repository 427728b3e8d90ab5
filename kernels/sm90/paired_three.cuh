/* Kernel-2 with tiles 192 rows high, `paired_three`: three blocks of 64 rows between two consumer
 * warpgroups.  For 129 to 192 tokens in one row of tiles: each weight tile is fetched once where
 * tiles of 64 rows fetch it three times, and tiles of 128 rows twice and multiply a quarter of
 * their rows for nothing (docs/notes, step 45).  As paired_coop (paired.cuh) in everything else.
 *
 *   CTA, 384 threads             192 x 72, 4 stages
 *   warpgroup 0  producer        one thread: TMA A, B -> full[s]                 regs  40
 *   warpgroup 1  consumer        rows   0-127: 2 x m64n144                       regs 232
 *   warpgroup 2  consumer        rows 128-191:     m64n144                       regs 232
 *   stage                        A 24 KB + B 18 KB
 *   accumulators per thread      144 and 72
 *
 * Both warpgroups' wgmma go to all four tensor cores of the SM, so that these are evenly used; of
 * the epilogue the first has two blocks to do.
 *
 * A tile_n that is 4 beyond a multiple of 8 has a tail: tail_launch.h.
 * Assumptions: those of paired.cuh; no clusters. */
#include "wgmma_odd.cuh" /* before mainloop.cuh */
#include "epilogue.cuh"
#include "epilogue_tail.cuh"
#include "launch.h"
#include "mainloop_blocks.cuh"
#include "pipeline.cuh"
#include "ptx_elect.cuh"
#include "ptx_policy.cuh"
#include "smem_layout.h"
#include "tail_launch.h"
#include "tile_order.h"
#include "wgmma.cuh"

#define TILE_N ROW_TILE_N
#define TAIL_N tglu_tail_columns(TILE_N)
#define MAIN_N tglu_main_columns(TILE_N)
#define B_ROWS (2 * TILE_N)
#define FIRST_ROWS 128 /* of the first consumer warpgroup */
#define A_BYTES (ROW_TILE_M * TGLU_TILE_K * 2)
#define UP_BYTES ((TILE_N + TAIL_N) * TGLU_TILE_K * 2) /* where up's main columns begin */
#define UP_ACC ((TILE_N + TAIL_N) / 2)                  /* and their accumulators       */
#define STAGE_BYTES (A_BYTES + B_ROWS * TGLU_TILE_K * 2)
#define PRELOAD_STAGES 2

static_assert(ROW_TILE_M == 192 && ROW_CLUSTER_M == 1, "three blocks, no clusters");
static_assert(TILE_N <= 96 && TILE_N % 4 == 0, "one wgmma; more than 192 accumulators spill");
static_assert(TAIL_N == 0 || TAIL_N == TGLU_TAIL_COLUMNS, "a tail is half a swizzle atom");
static_assert(tglu_smem_bytes(ROW_TILE_M, TILE_N, B_ROWS, ROW_STAGES) <= 232448, "227 KB");
static_assert((2 * ROW_STAGES) * 8 <= TGLU_SMEM_BARRIER_BYTES, "room for the barriers");

enum { BARRIER_WARPGROUP = 1 /* and 2 */ };

#if ROW_TILE_N % 8
typedef tglu_glu_tail_launch three_launch;
TGLU_DEVICE const tglu_glu_launch &base_of(const three_launch &launch) { return launch.base; }
#else
typedef tglu_glu_launch three_launch;
TGLU_DEVICE const tglu_glu_launch &base_of(const three_launch &launch) { return launch; }
#endif

/* All weight boxes of one stage of the tile that begins at column n. */
TGLU_DEVICE void load_stage_weights(const three_launch &launch, uint32_t b, uint32_t full,
                                    int32_t k, int32_t n, uint64_t policy) {
  const tglu_glu_launch &p = base_of(launch);
  const int32_t main = tglu_main_first(n);
  tma_load_2d_policy(b, &p.gate, full, k, main, policy);
#if ROW_TILE_N % 8
  const int32_t tail = tglu_tail_first(n, TILE_N);
  const uint32_t to = b + MAIN_N * TGLU_TILE_K * 2;
  tma_load_2d_policy(to, &launch.gate_tail, full, k, tail, policy);
  tma_load_2d_policy(to + TAIL_N * TGLU_TILE_K * 2, &launch.up_tail, full, k, tail, policy);
#endif
  tma_load_2d_policy(b + UP_BYTES, &p.up, full, k, main, policy);
}

/* One thread loads every tile of this CTA in turn, K-block by K-block; weights before the
 * dependency and their L2 policy as in paired.cuh. */
TGLU_DEVICE void load_tiles(const three_launch &launch, const smem_map &smem, int32_t first,
                            int32_t step) {
  const tglu_glu_launch &p = base_of(launch);
  const uint64_t policy = p.tile_rows == 1 ? policy_read_once() : 0;
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const uint32_t stage_bytes = (p.x_rows + B_ROWS) * TGLU_TILE_K * 2;
  ring_position at = {0, 0};
  int32_t preloaded = 0;
  if (p.flags & TGLU_LAUNCH_STABLE_WEIGHTS) {
    const tglu_tile tile = tglu_tile_at(first, p.tile_rows, p.tile_columns, p.group);
    for (; preloaded < PRELOAD_STAGES && preloaded * TGLU_TILE_K < p.k; preloaded++) {
      const uint32_t full = smem.full + 8 * preloaded;
      mbarrier_arrive_expect_tx(full, stage_bytes);
      load_stage_weights(launch, smem.ring + preloaded * STAGE_BYTES + A_BYTES, full,
                         preloaded * TGLU_TILE_K, tile.column * TILE_N, policy);
    }
  }
  dependency_wait();
  dependents_launch();
  for (int32_t index = first; index < tiles; index += step) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    for (int32_t k = 0; k < p.k; k += TGLU_TILE_K) {
      const uint32_t full = smem.full + 8 * at.stage;
      const uint32_t a = smem.ring + at.stage * STAGE_BYTES;
      if (preloaded > 0) {
        preloaded--;
        tma_load_2d(a, &p.x, full, k, tile.row * ROW_TILE_M);
      } else {
        mbarrier_wait(smem.empty + 8 * at.stage, at.parity ^ 1);
        mbarrier_arrive_expect_tx(full, stage_bytes);
        tma_load_2d(a, &p.x, full, k, tile.row * ROW_TILE_M);
        load_stage_weights(launch, a + A_BYTES, full, k, tile.column * TILE_N, policy);
      }
      ring_advance<ROW_STAGES>(at);
    }
  }
}

/* Runs in thread 0 alone. */
TGLU_DEVICE void produce(const three_launch &launch, const smem_map &smem, uint32_t,
                         int32_t first, int32_t step) {
  if (elect_one(1)) load_tiles(launch, smem, first, step);
}

TGLU_DEVICE void consume(const three_launch &launch, const smem_map &smem, uint32_t,
                         int32_t first, int32_t step, int warpgroup, int thread) {
  const tglu_glu_launch &p = base_of(launch);
  const int32_t tiles = p.tile_rows * p.tile_columns;
  float acc[2][TILE_N];
  epilogue_place place;
  place.staging = smem.staging + warpgroup * tglu_staging_bytes(MAIN_N);
  place.barrier = BARRIER_WARPGROUP + warpgroup;
  place.thread = thread;
  ring_position at = {0, 0};
  dependency_wait();
  for (int32_t index = first; index < tiles; index += step) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    const int32_t row = tile.row * ROW_TILE_M + warpgroup * FIRST_ROWS;
    mainloop_one_or_two<B_ROWS, A_BYTES, STAGE_BYTES>(
        warpgroup == 1, p.k, smem, at, warpgroup * (FIRST_ROWS * TGLU_TILE_K * 2), thread, acc);
    wgmma_wait<0>();
    ring_release_last(smem, at, thread);
    place.column = tglu_main_first(tile.column * TILE_N);
#pragma unroll
    for (int b = 0; b < 2; b++) {
      place.row = row + 64 * b;
      if ((b == 1 && warpgroup == 1) || place.row >= p.m) break;
      wgmma_pin(acc[b]);
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
#define ENTRY_READERS 2
#include "entry.cuh"
