/* The down projection for many tokens, O = X W^T + b (+ R): a GEMM with a tall K, built like
 * `paired` (paired.cuh) around one weight matrix.
 *
 * down_pingpong: the consumer warpgroups take turns, each with a tile of its own; one's
 * epilogue, where the residual is added, hides behind the other's mainloop.
 * down_coop: both share a tile twice as high; less operand traffic.
 *
 *   CTA, 384 threads             pingpong 128 x 192, 4 stages    coop 128 x 256, 3 stages
 *   warpgroup 0  producer        one thread: TMA X, W -> full[s]                 regs  40
 *   warpgroup 1  consumer        tiles 0, 2, ...: 2 x m64n192    rows  0-63: m64n256
 *   warpgroup 2  consumer        tiles 1, 3, ...: 2 x m64n192    rows 64-127     regs 232
 *   stage                        A 16 KB + B 24 KB               A 16 KB + B 32 KB
 *   accumulators per thread      192                             128
 *
 * In a cluster each CTA fetches its share of the rows of W and multicasts it.
 * Assumptions: the tensor maps of down_launch.h; grid of whole clusters; tile counts in `p`;
 * everything outside K reads as zero; rows of X and of W that no box brings are whatever the stage
 * held before, and what comes of them is never stored. */
#include <cuda_fp16.h>

#include "down_epilogue.cuh"
#include "down_launch.h"
#include "wgmma_between.cuh" /* before mainloop.cuh */
#include "mainloop_blocks.cuh"
#include "pipeline.cuh"
#include "ptx.cuh"
#include "ptx_elect.cuh"
#include "smem_layout.h"
#include "tile_order.h"
#include "wgmma.cuh"

#define TILE_N ROW_TILE_N
#define B_ROWS TILE_N
#define TILES_AT_ONCE (ROW_SCHEDULE_DOWN_PINGPONG ? 2 : 1)
/* m64 blocks of one consumer warpgroup */
#define BLOCKS (ROW_SCHEDULE_DOWN_PINGPONG ? ROW_TILE_M / 64 : ROW_TILE_M / 128)
/* In a single row of tiles, 256 rows high, a warpgroup leaves its second block out where no token
 * is in it: 11-16 % at K = 29568, M = 136 ... 192.  Not with more rows of tiles, where the last
 * would run ahead of the others, and both would read the weights from memory (docs/notes, step
 * 44). */
#define ONE_OR_TWO (ROW_SCHEDULE_DOWN_COOP && ROW_TILE_M == 256 && ROW_CLUSTER_M == 1)
#define A_BYTES (ROW_TILE_M * TGLU_TILE_K * 2)
#define STAGE_BYTES (A_BYTES + B_ROWS * TGLU_TILE_K * 2)
#define PRELOAD_STAGES 2

static_assert(ROW_TILE_M % (ROW_SCHEDULE_DOWN_PINGPONG ? 64 : 128) == 0, "whole m64 blocks");
static_assert(ROW_TILE_M <= 256 && TILE_N <= 256 && TILE_N % 8 == 0, "one TMA box, one wgmma");
static_assert(BLOCKS * TILE_N / 2 <= 192, "more than 192 accumulators spill");
static_assert(tglu_down_smem_bytes(ROW_TILE_M, TILE_N, ROW_STAGES, ROW_CLUSTER_M, 0) <= 232448,
              "227 KB");
static_assert((2 * ROW_STAGES) * 8 <= TGLU_SMEM_BARRIER_BYTES, "room for the barriers");

enum { BARRIER_TURN = 1 /* and 2 */, BARRIER_WARPGROUP = 3 /* and 4 */ };

/* What a tile's stages are fetched with. */
typedef struct tile_boxes {
  const void *x, *w;
  uint32_t bytes; /* of a stage  */
  bool rows;      /* any of X    */
} tile_boxes;

/* The tile at block `row` of tile_m rows of X; in clusters the last blocks may lie beyond M. */
TGLU_DEVICE tile_boxes boxes_of(const tglu_down_launch &p, int32_t row, int32_t column) {
  const int32_t last = (p.m - 1) / ROW_TILE_M;
  const bool end = ROW_CLUSTER_M == 1 && column == p.tile_columns - 1;
  const int32_t x_rows = row < last ? ROW_TILE_M : row == last ? p.x_last_rows : 0;
  tile_boxes boxes;
  boxes.x = row < last ? &p.x : &p.x_last;
  boxes.w = end ? &p.w_last : &p.w;
  boxes.bytes = (x_rows + (end ? p.w_last_rows : TILE_N)) * (TGLU_TILE_K * 2);
  boxes.rows = x_rows > 0;
  return boxes;
}

/* One thread loads every tile of this cluster in turn, K-block by K-block.  With stable
 * weights it fills the weights' part of the first PRELOAD_STAGES before the dependency on the
 * kernel before is over; not of all, since X queues behind them (docs/notes, step 16). */
TGLU_DEVICE void load_tiles(const tglu_down_launch &p, const smem_map &smem, uint32_t rank,
                            int32_t first, int32_t step) {
  const int32_t tiles = p.tile_rows * p.tile_columns;
  ring_position at = {0, 0};
  int32_t preloaded = 0;
  if ((p.flags & TGLU_LAUNCH_STABLE_WEIGHTS) && first < tiles) {
    const tglu_tile tile = tglu_tile_at(first, p.tile_rows, p.tile_columns, p.group);
    const tile_boxes boxes = boxes_of(p, tile.row * ROW_CLUSTER_M + (int32_t)rank, tile.column);
    for (; preloaded < PRELOAD_STAGES && preloaded * TGLU_TILE_K < p.k; preloaded++) {
      const uint32_t full = smem.full + 8 * preloaded;
      mbarrier_arrive_expect_tx(full, boxes.bytes);
      load_weights<TILE_N, ROW_CLUSTER_M>(
          boxes.w, smem.ring + preloaded * STAGE_BYTES + A_BYTES, full, preloaded * TGLU_TILE_K,
          tile.column * TILE_N, rank);
    }
  }
  dependency_wait();
  dependents_launch();
  for (int32_t index = first; index < tiles; index += step) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    const int32_t row = tile.row * ROW_CLUSTER_M + (int32_t)rank;
    const int32_t m = row * ROW_TILE_M, n = tile.column * TILE_N;
    const tile_boxes boxes = boxes_of(p, row, tile.column);
    for (int32_t k = 0; k < p.k; k += TGLU_TILE_K) {
      const uint32_t full = smem.full + 8 * at.stage;
      const uint32_t a = smem.ring + at.stage * STAGE_BYTES;
      if (preloaded > 0) {
        preloaded--;
        if (boxes.rows) tma_load_2d(a, boxes.x, full, k, m);
      } else {
        mbarrier_wait(smem.empty + 8 * at.stage, at.parity ^ 1);
        mbarrier_arrive_expect_tx(full, boxes.bytes);
        if (boxes.rows) tma_load_2d(a, boxes.x, full, k, m);
        load_weights<TILE_N, ROW_CLUSTER_M>(boxes.w, a + A_BYTES, full, k, n, rank);
      }
      ring_advance<ROW_STAGES>(at);
    }
  }
}

/* Runs in thread 0 alone. */
TGLU_DEVICE void produce(const tglu_down_launch &p, const smem_map &smem, uint32_t rank,
                         int32_t first, int32_t step) {
  if (elect_one(1)) load_tiles(p, smem, rank, first, step);
}

TGLU_DEVICE void consume(const tglu_down_launch &p, const smem_map &smem, uint32_t rank,
                         int32_t first, int32_t step, int warpgroup, int thread) {
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const int32_t row_offset = ROW_SCHEDULE_DOWN_PINGPONG ? 0 : warpgroup * (64 * BLOCKS);
  const bool fetch = residual_is_staged(p);
  float acc[BLOCKS][TILE_N / 2];
  down_place place;
  place.staging = smem.staging + warpgroup * tglu_staging_bytes(TILE_N);
  place.barrier = BARRIER_WARPGROUP + warpgroup;
  place.thread = thread;
  ring_position at = {0, 0};
#if ROW_SCHEDULE_DOWN_PINGPONG
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
    const int32_t row = (tile.row * ROW_CLUSTER_M + (int32_t)rank) * ROW_TILE_M + row_offset;
    place.row = row;
    place.column = tile.column * TILE_N;
    if (fetch) fetch_residual<TILE_N>(p, place);
#if ROW_SCHEDULE_DOWN_PINGPONG
    named_barrier_sync(BARRIER_TURN + warpgroup, 256);
#endif
#if ONE_OR_TWO
    mainloop_one_or_two<B_ROWS, A_BYTES, STAGE_BYTES>(
        p.tile_rows == 1 && p.m - row <= 64, p.k, smem, at, row_offset * TGLU_TILE_K * 2, thread,
        acc);
#else
    mainloop<BLOCKS, B_ROWS, A_BYTES, STAGE_BYTES>(p.k, smem, at, row_offset * TGLU_TILE_K * 2,
                                                   thread, acc);
#endif
#if ROW_SCHEDULE_DOWN_PINGPONG
    if (index + step < tiles) named_barrier_arrive(BARRIER_TURN + (warpgroup ^ 1), 256);
#endif
    wgmma_wait<0>();
    ring_release_last(smem, at, thread);
#if ROW_SCHEDULE_DOWN_PINGPONG
    ring_skip<ROW_STAGES>(at, k_blocks);
#endif
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      place.row = row + 64 * b;
      if (ONE_OR_TWO && place.row >= p.m) break;
      wgmma_pin(acc[b]);
      if (b > 0 && fetch) fetch_residual<TILE_N>(p, place);
      down_store<TILE_N>(p, place, acc[b]);
    }
  }
  if (thread == 0) tma_store_wait_read();
}

#define ENTRY_READERS (ROW_SCHEDULE_DOWN_PINGPONG ? 1 : 2)
#define ENTRY_LAUNCH tglu_down_launch
#define ENTRY_PREFETCH(p)      \
  prefetch_tensor_map(&(p).x); \
  prefetch_tensor_map(&(p).x_last); \
  prefetch_tensor_map(&(p).w); \
  prefetch_tensor_map(&(p).w_last); \
  prefetch_tensor_map(&(p).out)
#include "entry.cuh"
