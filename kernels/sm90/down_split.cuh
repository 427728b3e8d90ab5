/* The down projection for few tokens, O = X W^T + b (+ R): K is tall, tiles are few, so the
 * CTAs of a cluster share one tile and split its K.  CTA r takes the K-blocks r, r + C, ...;
 * the partial sums go in fp32 to the CTA that owns their columns, by st.async through
 * distributed shared memory, and the owner adds them in the order of the CTAs: the result does
 * not depend on timing.  No workspace, no atomics.
 *
 *   CTA, 384 threads             64 x 128, 4 CTAs a cluster      128 x 128, 2 CTAs a cluster
 *   warpgroup 0  producer        one thread: TMA X, W -> full[s]
 *   warpgroup 1  consumer        columns 0-63: m64n64            rows  0-63: m64n128
 *   warpgroup 2  consumer        columns 64-127                  rows 64-127
 *   stage                        A 8 KB + B 16 KB                A 16 KB + B 16 KB
 *   partial sums received        33 KB                           66 KB
 *
 * Tiles of 192 rows, for 129 to 192 tokens in one row of tiles, fetch each weight once: the first
 * warpgroup has rows 0-127, the second the rest (docs/notes, step 46).
 *
 * Every CTA takes the same number of K-blocks; the last may lie beyond K and reads as zero.
 * ready   1 arrival (the owner's own) + the bytes of the sums sent, which come with them;
 * credit  one arrival per owner: it has read what it received, the next tile may be sent.
 *         After the last tile none is given: so nothing reaches a CTA that has left.
 * Assumptions: as in down.cuh; out_pointer and ldo are always there. */
#include <cuda_fp16.h>

#include "down_launch.h"
#include "element.cuh"
#include "wgmma_between.cuh" /* before mainloop.cuh */
#define RING_CLUSTER 1 /* no CTA fills another's stages */
#include "mainloop_blocks.cuh"
#include "pipeline.cuh"
#include "ptx.cuh"
#include "ptx_elect.cuh"
#include "ptx_pair.cuh"
#include "ptx_policy.cuh"
#include "smem_layout.h"
#include "tile_order.h"
#include "wgmma.cuh"

#define TILE_M ROW_TILE_M
#define TILE_N ROW_TILE_N
#define CLUSTER ROW_CLUSTER_M
/* Columns of one consumer warpgroup: they halve the columns of a flat tile, else share the rows. */
#define WIDTH (TILE_M == 64 ? TILE_N / 2 : TILE_N)
#define FIRST_ROWS (TILE_M == 64 ? 0 : TILE_M - 64) /* before the second's         */
#define BLOCKS (TILE_M > 128 ? 2 : 1)               /* of 64 rows, in the first    */
#define A_BYTES (TILE_M * TGLU_TILE_K * 2)
#define STAGE_BYTES (A_BYTES + TILE_N * TGLU_TILE_K * 2)
#define GROUPS tglu_split_groups(TILE_N, CLUSTER)
#define BLOCK_BYTES tglu_split_block_bytes(TILE_M)
/* An owner's thread adds up 4 columns of a row at a time, this many in all. */
#define PARTS ((TILE_M * 2 * GROUPS + 255) / 256)
#define CONSUMERS 256

static_assert(TILE_M == 64 || TILE_M == 128 || TILE_M == 192, "at most two m64 blocks a warpgroup");
static_assert(BLOCKS * WIDTH / 2 <= 128, "accumulators and parts of the residual in registers");
static_assert(TILE_N <= 256 && WIDTH % 8 == 0, "one TMA box, one wgmma");
static_assert(CLUSTER >= 2 && CLUSTER <= 8, "portable cluster sizes");
static_assert(tglu_down_smem_bytes(TILE_M, TILE_N, ROW_STAGES, CLUSTER, 1) <= 232448, "227 KB");
static_assert((2 * ROW_STAGES + 2) * 8 <= TGLU_SMEM_BARRIER_BYTES, "room for the barriers");

enum { BARRIER_CONSUMERS = 1 };

/* Shared addresses beyond the ring's. */
typedef struct split_map {
  smem_map ring;
  uint32_t received, ready, credit;
} split_map;

TGLU_DEVICE split_map split_map_of(const void *dynamic) {
  split_map at;
  at.ring = smem_map_of<TILE_M, TILE_N, TILE_N, ROW_STAGES>(dynamic);
  at.received = at.ring.staging;
  at.ring.full = at.received + CLUSTER * GROUPS * BLOCK_BYTES;
  at.ring.empty = at.ring.full + 8 * ROW_STAGES;
  at.ready = at.ring.empty + 8 * ROW_STAGES;
  at.credit = at.ready + 8;
  return at;
}

/* K-blocks of every CTA. */
TGLU_DEVICE int32_t own_k_blocks(const tglu_down_launch &p) {
  const int32_t k_blocks = (p.k + TGLU_TILE_K - 1) / TGLU_TILE_K;
  return (k_blocks + CLUSTER - 1) / CLUSTER;
}

/* What a tile's stages are fetched with. */
typedef struct tile_boxes {
  const void *x, *w;
  uint32_t bytes; /* of a stage */
} tile_boxes;

TGLU_DEVICE tile_boxes boxes_of(const tglu_down_launch &p, const tglu_tile &tile) {
  const bool end_row = tile.row == p.tile_rows - 1, end_column = tile.column == p.tile_columns - 1;
  tile_boxes boxes;
  boxes.x = end_row ? &p.x_last : &p.x;
  boxes.w = end_column ? &p.w_last : &p.w;
  boxes.bytes = ((end_row ? p.x_last_rows : TILE_M) + (end_column ? p.w_last_rows : TILE_N)) *
                (TGLU_TILE_K * 2);
  return boxes;
}

/* Where the producer stands: at K-block `block` of tile `index`; of the next `preloaded` stages the
 * weights are under way. */
typedef struct load_position {
  int32_t index, block, preloaded;
  ring_position at;
} load_position;

/* Weights that one row of tiles reads once say so to L2, which keeps X and what the caller has
 * there; not with up to 8 tokens, where that cost 1 % from 7B on (docs/notes, step 40). */
TGLU_DEVICE uint64_t weights_policy(const tglu_down_launch &p) {
  return p.tile_rows == 1 && p.m > 8 ? policy_read_once() : 0;
}

/* The weights' part of the whole ring, for the tile at `to`. */
TGLU_DEVICE void preload_weights(const tglu_down_launch &p, const smem_map &smem, uint32_t rank,
                                 load_position &to) {
  const int32_t blocks = own_k_blocks(p);
  const uint64_t policy = weights_policy(p);
  const tglu_tile tile = tglu_tile_at(to.index, p.tile_rows, p.tile_columns, p.group);
  const tile_boxes boxes = boxes_of(p, tile);
  for (; to.preloaded < ROW_STAGES && to.preloaded < blocks; to.preloaded++) {
    const uint32_t full = smem.full + 8 * to.preloaded;
    mbarrier_arrive_expect_tx(full, boxes.bytes);
    tma_load_2d_policy(smem.ring + to.preloaded * STAGE_BYTES + A_BYTES, boxes.w, full,
                       (to.preloaded * CLUSTER + (int32_t)rank) * TGLU_TILE_K,
                       tile.column * TILE_N, policy);
  }
}

/* This CTA's K-blocks of every tile in turn.  First: those that a ring never used before has room
 * for; else all the rest. */
template <bool First>
TGLU_DEVICE void load_blocks(const tglu_down_launch &p, const smem_map &smem, uint32_t rank,
                             int32_t step, load_position &to) {
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const int32_t blocks = own_k_blocks(p);
  const uint64_t policy = weights_policy(p);
  int32_t room = ROW_STAGES;
  for (; to.index < tiles; to.index += step, to.block = 0) {
    const tglu_tile tile = tglu_tile_at(to.index, p.tile_rows, p.tile_columns, p.group);
    const tile_boxes boxes = boxes_of(p, tile);
    for (; to.block < blocks; to.block++) {
      if (First && room-- == 0) return;
      const uint32_t full = smem.full + 8 * to.at.stage;
      const uint32_t a = smem.ring + to.at.stage * STAGE_BYTES;
      const int32_t k = (to.block * CLUSTER + (int32_t)rank) * TGLU_TILE_K;
      if (First && to.preloaded > 0) {
        to.preloaded--;
      } else {
        if (!First) mbarrier_wait(smem.empty + 8 * to.at.stage, to.at.parity ^ 1);
        mbarrier_arrive_expect_tx(full, boxes.bytes);
        tma_load_2d_policy(a + A_BYTES, boxes.w, full, k, tile.column * TILE_N, policy);
      }
      tma_load_2d(a, boxes.x, full, k, tile.row * TILE_M);
      ring_advance<ROW_STAGES>(to.at);
    }
  }
}

/* Warp 0; one thread loads.  With stable weights it fills the weights' part of the whole ring
 * before the dependency on the kernel before is over.
 * Its loads stay in this CTA, so it does not need the cluster's barrier.  It comes there all the
 * same before it first waits for a stage: compute-sanitizer's racecheck (CUDA 13.0) does not end
 * where a warp waits for a stage with that barrier still before it (docs/notes, step 43). */
TGLU_DEVICE void produce(const tglu_down_launch &p, const smem_map &smem, uint32_t rank,
                         int32_t first, int32_t step) {
  load_position at = {first, 0, 0, {0, 0}};
  if (elect_one(0xffffffff)) {
    if ((p.flags & TGLU_LAUNCH_STABLE_WEIGHTS) && first < p.tile_rows * p.tile_columns) {
      preload_weights(p, smem, rank, at);
    }
    dependency_wait();
    dependents_launch();
    load_blocks<true>(p, smem, rank, step, at);
  }
  __syncwarp();
  cluster_wait();
  if (elect_one(0xffffffff)) load_blocks<false>(p, smem, rank, step, at);
}

/* This thread's part `i` of what its CTA owns of a tile: 4 columns of one row. */
typedef struct split_part {
  int32_t row, column; /* in the tile                                     */
  uint32_t block;      /* offset in the blocks that one CTA has sent      */
  bool inside;         /* false: there is no such part                    */
} split_part;

TGLU_DEVICE split_part part_of(int i, int thread, uint32_t rank, int32_t rows, int32_t columns) {
  const int32_t index = i * CONSUMERS + thread;
  const int32_t group = index % (2 * GROUPS) / 2, half = index % 2;
  split_part part;
  part.row = index / (2 * GROUPS);
  part.column = 8 * ((int32_t)rank * GROUPS + group) + 4 * half;
  part.block = group * BLOCK_BYTES + part.row * 32 + half * 16;
  part.inside = part.row < rows && part.column < columns;
  return part;
}

/* 4 elements from `column` on, zero from n on; packed in pairs. */
TGLU_DEVICE uint2 load_four(const void *row, int32_t column, int32_t n) {
  const uint16_t *at = (const uint16_t *)row + column;
  if (column + 4 <= n && ((uintptr_t)at & 7) == 0) return *(const uint2 *)at;
  uint32_t e[4];
#pragma unroll
  for (int i = 0; i < 4; i++) e[i] = column + i < n ? at[i] : 0;
  return make_uint2(e[0] | e[1] << 16, e[2] | e[3] << 16);
}
TGLU_DEVICE void store_four(void *row, int32_t column, int32_t n, uint2 four) {
  uint16_t *at = (uint16_t *)row + column;
  if (column + 4 <= n && ((uintptr_t)at & 7) == 0) {
    *(uint2 *)at = four;
    return;
  }
  const uint32_t pair[2] = {four.x, four.y};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (column + i < n) at[i] = (uint16_t)(pair[i / 2] >> (i % 2 * 16));
  }
}
TGLU_DEVICE void add_four(float (&v)[4], uint2 four) {
  v[0] += element_to_float((uint16_t)four.x);
  v[1] += element_to_float((uint16_t)(four.x >> 16));
  v[2] += element_to_float((uint16_t)four.y);
  v[3] += element_to_float((uint16_t)(four.y >> 16));
}

/* Whether a CTA stores what it owns itself, rather than send it to itself: an SM sends no more than
 * some 12 bytes a cycle, to itself too.  With few rows the barrier costs more (docs/notes, step
 * 51). */
TGLU_DEVICE bool keeps_own(int32_t rows) { return rows > 32; }

/* Sends a block's sums, rows first_row ... first_row + 63 of the tile, to their owners; of the tile
 * only the first `rows` rows count. */
TGLU_DEVICE void send_sums(const split_map &smem, uint32_t rank, int32_t rows, int32_t first_row,
                           int warpgroup, int thread, const float (&acc)[WIDTH / 2]) {
  const int lane = thread % 32;
  const int32_t row = first_row + thread / 32 * 16 + lane / 4;
  const int32_t first = TILE_M == 64 ? warpgroup * (WIDTH / 8) : 0;
  const int32_t kept = keeps_own(rows) ? (int32_t)rank : -1; /* the owner that is not sent to */
#pragma unroll
  for (int j = 0; j < WIDTH / 8; j++) {
    const int32_t owner = (first + j) / GROUPS, group = (first + j) % GROUPS;
    const uint32_t place = smem.received + (rank * GROUPS + group) * BLOCK_BYTES + row * 32 +
                           lane % 4 * 8;
    if (owner == kept) {
      if (row < rows) store_shared_8(place, acc[4 * j], acc[4 * j + 1]);
      if (row + 8 < rows) store_shared_8(place + 8 * 32, acc[4 * j + 2], acc[4 * j + 3]);
    } else {
      const uint32_t remote = cluster_address(place, owner);
      const uint32_t ready = cluster_address(smem.ready, owner);
      if (row < rows) store_async(remote, acc[4 * j], acc[4 * j + 1], ready);
      if (row + 8 < rows) store_async(remote + 8 * 32, acc[4 * j + 2], acc[4 * j + 3], ready);
    }
  }
}

/* This warpgroup's part of a tile, over this CTA's K-blocks. */
TGLU_DEVICE void multiply(const tglu_down_launch &p, const smem_map &smem, ring_position &at,
                          int warpgroup, int thread, float (&acc)[BLOCKS][WIDTH / 2]) {
  const int32_t k_size = own_k_blocks(p) * TGLU_TILE_K;
  const uint32_t a_offset = warpgroup * (FIRST_ROWS * TGLU_TILE_K * 2);
#if ROW_TILE_M > 128
  mainloop_one_or_two<WIDTH, A_BYTES, STAGE_BYTES>(warpgroup == 1, k_size, smem, at, a_offset,
                                                   thread, acc);
#else
  const uint32_t b_offset = TILE_M == 64 ? warpgroup * (WIDTH * TGLU_TILE_K * 2) : 0;
  mainloop<1, WIDTH, A_BYTES, STAGE_BYTES>(k_size, smem, at, a_offset, thread, acc, b_offset);
#endif
}

/* This thread's parts of the residual, asked for before the mainloop. */
TGLU_DEVICE void load_residual(const tglu_down_launch &p, uint32_t rank, const tglu_tile &tile,
                               int32_t rows, int thread, uint2 (&residual)[PARTS]) {
  if (p.residual == nullptr) return;
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
    const split_part part = part_of(i, thread, rank, rows, TILE_N);
    if (!part.inside) continue;
    residual[i] = load_four(
        (const uint16_t *)p.residual + (tile.row * TILE_M + part.row) * p.ldr,
        tile.column * TILE_N + part.column, p.n);
  }
}

/* Adds up what this CTA received, bias and residual behind it, rounds and stores. */
TGLU_DEVICE void store_sums(const tglu_down_launch &p, const split_map &smem, uint32_t rank,
                            const tglu_tile &tile, int32_t rows, int thread,
                            const uint2 (&residual)[PARTS]) {
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
    const split_part part = part_of(i, thread, rank, rows, TILE_N);
    const int32_t column = tile.column * TILE_N + part.column;
    if (!part.inside || column >= p.n) continue;
    const uint32_t first = smem.received + part.block;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int source = 0; source < CLUSTER; source++) {
      const uint4 v = load_shared_16(first + source * (GROUPS * BLOCK_BYTES));
      sum[0] += __uint_as_float(v.x);
      sum[1] += __uint_as_float(v.y);
      sum[2] += __uint_as_float(v.z);
      sum[3] += __uint_as_float(v.w);
    }
    if (p.bias != nullptr) add_four(sum, load_four(p.bias, column, p.n));
    if (p.residual != nullptr) add_four(sum, residual[i]);
    store_four((uint16_t *)p.out_pointer + (tile.row * TILE_M + part.row) * p.ldo, column, p.n,
               make_uint2(pack_pair(sum[0], sum[1]), pack_pair(sum[2], sum[3])));
  }
}

TGLU_DEVICE void consume(const tglu_down_launch &p, const split_map &smem, uint32_t rank,
                         int32_t first, int32_t step, int warpgroup, int thread) {
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const int32_t groups_left = TILE_N / 8 - (int32_t)rank * GROUPS;
  const int32_t owned = groups_left < 0 ? 0 : groups_left < GROUPS ? groups_left : GROUPS;
  const int among = warpgroup * 128 + thread;
  float acc[BLOCKS][WIDTH / 2];
  ring_position at = {0, 0};
  uint32_t parity = 0;
  cluster_wait();
  dependency_wait();
  for (int32_t index = first; index < tiles; index += step, parity ^= 1) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    const int32_t below = p.m - tile.row * TILE_M;
    const int32_t rows = below < TILE_M ? below : TILE_M;
    uint2 residual[PARTS];
    load_residual(p, rank, tile, rows, among, residual);
    multiply(p, smem.ring, at, warpgroup, thread, acc);
    wgmma_wait<0>();
    ring_release_last(smem.ring, at, thread);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) wgmma_pin(acc[b]);

    if (index != first) mbarrier_wait(smem.credit, parity ^ 1);
    if (among == 0) {
      mbarrier_arrive_expect_tx(smem.ready, (CLUSTER - keeps_own(rows)) * owned * rows * 32);
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      send_sums(smem, rank, rows, warpgroup * FIRST_ROWS + 64 * b, warpgroup, thread, acc[b]);
    }
    if (keeps_own(rows)) named_barrier_sync(BARRIER_CONSUMERS, CONSUMERS);
    mbarrier_wait(smem.ready, parity);
    store_sums(p, smem, rank, tile, rows, among, residual);
    if (index + step < tiles) {
      named_barrier_sync(BARRIER_CONSUMERS, CONSUMERS);
      if (among < CLUSTER) mbarrier_arrive_cluster(cluster_address(smem.credit, among));
    }
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    ROW_NAME(const __grid_constant__ tglu_down_launch p) {
  extern __shared__ uint8_t dynamic[];
  const split_map smem = split_map_of(dynamic);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const uint32_t rank = cluster_rank();
  const int32_t first = cluster_id(), step = cluster_count();

  if (threadIdx.x == 32) {
    prefetch_tensor_map(&p.x);
    prefetch_tensor_map(&p.x_last);
    prefetch_tensor_map(&p.w);
    prefetch_tensor_map(&p.w_last);
  }
  if (threadIdx.x == 0) ring_init<ROW_STAGES, 1>(smem.ring, 2);
  __syncthreads();
  /* Once the cluster has come here, all may send to each other. */
  if (threadIdx.x == 128) {
    mbarrier_init(smem.ready, 1);
    mbarrier_init(smem.credit, CLUSTER);
    fence_mbarrier_init();
  }
  __syncwarp();
  cluster_arrive_relaxed();

  if (warpgroup == 0) {
    registers_decrease<40>();
    if (threadIdx.x < 32) {
      produce(p, smem.ring, rank, first, step);
    } else {
      cluster_wait();
    }
  } else {
    registers_increase<232>();
    consume(p, smem, rank, first, step, warpgroup - 1, threadIdx.x % 128);
  }
}
