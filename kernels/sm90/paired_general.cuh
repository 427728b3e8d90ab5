/* `paired` for operands that TMA cannot put in place: pointers off 16 bytes, strides that
 * are no multiple of 8 elements.  Tile and mainloop of paired_coop; the rows of each
 * operand arrive by TMA in up to 8 residue classes (launch.h says how), each class off by
 * 0..7 elements, and three warps of the producer warpgroup move them, by their shift, to
 * where wgmma reads them.  Outputs are stored straight to memory.
 *
 *   CTA, 384 threads             128 x 128, 2 raw stages, 2 stages
 *   warpgroup 0  warp 3          one thread: TMA -> raw_full[s]                  regs  88
 *                warps 0, 1, 2   A, gate, up: raw[s] -> stage[s] -> full[s], raw_empty[s]
 *   warpgroup 1  consumer        rows  0-63: m64n256                             regs 208
 *   warpgroup 2  consumer        rows 64-127
 *   raw stage                    384 rows of 144 bytes, 54 KB
 *   stage                        A 16 KB + B 32 KB
 *
 * Shared-memory traffic bounds it: each row is read once or twice and written once on the
 * way, beside what wgmma reads.  Assumptions: launch.h; no cluster. */
#include "epilogue.cuh"
#include "launch.h"
#include "mainloop.cuh"
#include "pipeline.cuh"
#include "ptx.cuh"
#include "smem_layout.h"
#include "tile_order.h"
#include "wgmma.cuh"

#define TILE_M ROW_TILE_M
#define TILE_N ROW_TILE_N
#define B_ROWS (2 * TILE_N)
#define A_BYTES (TILE_M * TGLU_TILE_K * 2)
#define STAGE_BYTES (A_BYTES + B_ROWS * TGLU_TILE_K * 2)
#define RAW_BYTES ((TILE_M + B_ROWS) * TGLU_RAW_ROW_BYTES)

static_assert(TILE_M == 128 && ROW_CLUSTER_M == 1, "one m64 block a warpgroup, no cluster");
static_assert(TILE_N == 128, "eight boxes of 16 rows");
static_assert(tglu_general_smem_bytes(TILE_M, TILE_N, ROW_STAGES) <= 232448, "227 KB");

enum { BARRIER_WARPGROUP = 1 /* and 2 */ };

/* The general loader's ring beside the stage ring. */
typedef struct raw_map {
  uint32_t ring, full, empty;
} raw_map;

/* One operand of the problem as the producers see it. */
typedef struct operand_rows {
  const tglu_tensor_map *maps;
  const int32_t *shift;
  int32_t classes, rows;       /* rows of its tile                                  */
  uint32_t raw, stage;         /* byte offsets within a raw stage and a stage       */
} operand_rows;

TGLU_DEVICE operand_rows operand_of(const tglu_glu_general_launch &g, int operand) {
  operand_rows o;
  o.maps = operand == 0 ? g.x : operand == 1 ? g.gate : g.up;
  o.shift = operand == 0 ? g.x_shift : operand == 1 ? g.gate_shift : g.up_shift;
  o.classes = operand == 0 ? g.x_classes : g.w_classes;
  o.rows = operand == 0 ? TILE_M : TILE_N;
  const int32_t before = operand == 0 ? 0 : TILE_M + (operand - 1) * TILE_N;
  o.raw = before * TGLU_RAW_ROW_BYTES;
  o.stage = before * TGLU_TILE_K * 2;
  return o;
}

/* One thread fetches the raw boxes of every stage. */
TGLU_DEVICE void fetch(const tglu_glu_general_launch &g, const raw_map &raw) {
  const tglu_glu_launch &p = g.base;
  const int32_t tiles = p.tile_rows * p.tile_columns;
  ring_position at = {0, 0};
  dependency_wait();
  dependents_launch();
  for (int32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    for (int32_t k = 0; k < p.k; k += TGLU_TILE_K) {
      const uint32_t full = raw.full + 8 * at.stage;
      mbarrier_wait(raw.empty + 8 * at.stage, at.parity ^ 1);
      mbarrier_arrive_expect_tx(full, RAW_BYTES);
      for (int operand = 0; operand < 3; operand++) {
        const operand_rows o = operand_of(g, operand);
        const int32_t box_rows = o.rows / o.classes;
        const int32_t row = (operand == 0 ? tile.row * TILE_M : tile.column * TILE_N) / o.classes;
        const uint32_t to = raw.ring + at.stage * RAW_BYTES + o.raw;
        for (int32_t s = 0; s < o.classes; s++) {
          tma_load_2d(to + s * box_rows * TGLU_RAW_ROW_BYTES, &o.maps[s], full, k, row);
        }
      }
      ring_advance<ROW_STAGES>(at);
    }
  }
}

/* Moves `rows` rows of one class from raw rows at `from` to tile rows first, first +
 * classes, ... at `to`: lane l makes elements 2l, 2l + 1 of each row.  Loads of a batch go
 * out together, since the compiler keeps the order of shared-memory accesses. */
TGLU_DEVICE void move_class(uint32_t from, uint32_t to, int32_t rows, int32_t first,
                            int32_t classes, int32_t shift, int lane) {
  constexpr int batch = 16;
  static_assert(TILE_M / 8 % batch == 0 && TILE_N / 8 % batch == 0, "whole batches");
  const uint32_t word = from + shift / 2 * 4 + lane * 4;
  for (int32_t q = 0; q < rows; q += batch) {
    uint32_t pair[batch];
#pragma unroll
    for (int i = 0; i < batch; i++) pair[i] = load_shared(word + (q + i) * TGLU_RAW_ROW_BYTES);
    if (shift & 1) {
      uint32_t next[batch];
#pragma unroll
      for (int i = 0; i < batch; i++) {
        next[i] = load_shared(word + (q + i) * TGLU_RAW_ROW_BYTES + 4);
      }
#pragma unroll
      for (int i = 0; i < batch; i++) pair[i] = __funnelshift_r(pair[i], next[i], 16);
    }
#pragma unroll
    for (int i = 0; i < batch; i++) {
      store_shared(to + tglu_stage_offset(first + (q + i) * classes, lane * 4), pair[i]);
    }
  }
}

/* One warp moves its operand's rows of every stage. */
TGLU_DEVICE void move(const tglu_glu_general_launch &g, const smem_map &smem, const raw_map &raw,
                      int operand, int lane) {
  const tglu_glu_launch &p = g.base;
  const operand_rows o = operand_of(g, operand);
  const int32_t box_rows = o.rows / o.classes;
  const int32_t tiles = p.tile_rows * p.tile_columns;
  ring_position at = {0, 0};
  for (int32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    for (int32_t k = 0; k < p.k; k += TGLU_TILE_K) {
      const uint32_t from = raw.ring + at.stage * RAW_BYTES + o.raw;
      const uint32_t to = smem.ring + at.stage * STAGE_BYTES + o.stage;
      mbarrier_wait(raw.full + 8 * at.stage, at.parity);
      mbarrier_wait(smem.empty + 8 * at.stage, at.parity ^ 1);
      for (int32_t s = 0; s < o.classes; s++) {
        move_class(from + s * box_rows * TGLU_RAW_ROW_BYTES, to, box_rows, s, o.classes,
                   o.shift[s], lane);
      }
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive(smem.full + 8 * at.stage);
        mbarrier_arrive(raw.empty + 8 * at.stage);
      }
      ring_advance<ROW_STAGES>(at);
    }
  }
}

TGLU_DEVICE void consume(const tglu_glu_launch &p, const smem_map &smem, int warpgroup,
                         int thread) {
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const uint32_t a_offset = warpgroup * 64 * TGLU_TILE_K * 2;
  float acc[1][TILE_N];
  epilogue_place place;
  place.staging = 0;
  place.barrier = BARRIER_WARPGROUP + warpgroup;
  place.thread = thread;
  ring_position at = {0, 0};
  dependency_wait();
  for (int32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    mainloop<1, B_ROWS, A_BYTES, STAGE_BYTES>(p.k, smem, at, a_offset, thread, acc);
    wgmma_wait<0>();
    ring_release_last(smem, at, thread);
    wgmma_pin(acc[0]);
    place.row = tile.row * TILE_M + warpgroup * 64;
    place.column = tile.column * TILE_N;
    epilogue_block<TILE_N, false, false>(p, place, acc[0], acc[0] + TILE_N / 2);
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    ROW_NAME(const __grid_constant__ tglu_glu_general_launch g) {
  extern __shared__ uint8_t dynamic[];
  smem_map smem = smem_map_of<TILE_M, TILE_N, B_ROWS, ROW_STAGES>(dynamic);
  raw_map raw;
  raw.ring = smem.staging;
  smem.full = raw.ring + ROW_STAGES * RAW_BYTES;
  smem.empty = smem.full + 8 * ROW_STAGES;
  raw.full = smem.empty + 8 * ROW_STAGES;
  raw.empty = raw.full + 8 * ROW_STAGES;
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < ROW_STAGES; s++) {
      mbarrier_init(smem.full + 8 * s, 3);
      mbarrier_init(smem.empty + 8 * s, 2);
      mbarrier_init(raw.full + 8 * s, 1);
      mbarrier_init(raw.empty + 8 * s, 3);
    }
    fence_proxy_async();
  }
  __syncthreads();
  if (warpgroup == 0) {
    registers_decrease<88>();
    if (warp < 3) {
      move(g, smem, raw, warp, threadIdx.x % 32);
    } else if (threadIdx.x % 32 == 0) {
      fetch(g, raw);
    }
  } else {
    registers_increase<208>();
    consume(g.base, smem, warpgroup - 1, threadIdx.x % 128);
  }
}
