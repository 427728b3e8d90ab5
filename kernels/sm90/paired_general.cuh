/* `paired` for operands that TMA cannot take whole: pointers off 16 bytes, strides that
 * are no multiple of 8 elements.  Same tile and mainloop as paired_coop; each operand is
 * loaded as up to 8 residue classes of rows (launch.h says how), which leaves the rows of
 * the tile permuted in shared memory, and the epilogue stores every output where it
 * belongs, straight to memory.  Row name: paired_general.
 *
 *   CTA, 384 threads             128 x 128, 4 stages
 *   warpgroup 0  producers       3 threads of 3 warps: A, gate, up -> full[s]
 *   warpgroup 1  consumer        smem rows  0-63: m64n256                        regs 232
 *   warpgroup 2  consumer        smem rows 64-127
 *   stage                        A 16 KB + B 32 KB, in 1..8 + 2..16 boxes
 *
 * Assumptions: launch.h; no cluster; element-aligned pointers. */
#include <cuda_fp16.h>

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

static_assert(TILE_M == 128 && ROW_CLUSTER_M == 1, "one m64 block a warpgroup, no cluster");
static_assert(TILE_N % 64 == 0 && TILE_N <= 128, "eight boxes of whole swizzle groups");
static_assert(tglu_smem_bytes(TILE_M, TILE_N, B_ROWS, ROW_STAGES) <= 232448, "227 KB");

/* Row or column of the tile that lies at position `index` of `rows` in shared memory. */
TGLU_DEVICE int32_t unpermuted(int32_t index, int32_t rows, int32_t classes) {
  const int32_t rows_of_class = rows / classes;
  return index % rows_of_class * classes + index / rows_of_class;
}

/* Loads one operand's part of every stage: its `rows` rows at `offset` of the stage.
 * The thread of operand 0 announces the bytes of the whole stage. */
TGLU_DEVICE void produce(const tglu_glu_general_launch &g, const smem_map &smem, int operand) {
  const tglu_glu_launch &p = g.base;
  const tglu_tensor_map *maps = operand == 0 ? g.x : operand == 1 ? g.gate : g.up;
  const int32_t *shift = operand == 0 ? g.x_shift : operand == 1 ? g.gate_shift : g.up_shift;
  const int32_t classes = operand == 0 ? g.x_classes : g.w_classes;
  const int32_t rows_of_class = (operand == 0 ? TILE_M : TILE_N) / classes;
  const uint32_t offset = operand == 0 ? 0 : A_BYTES + (operand - 1) * TILE_N * TGLU_TILE_K * 2;
  const int32_t tiles = p.tile_rows * p.tile_columns;
  ring_position at = {0, 0};
  dependency_wait();
  for (int32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    const int32_t row = (operand == 0 ? tile.row * TILE_M : tile.column * TILE_N) / classes;
    for (int32_t k = 0; k < p.k; k += TGLU_TILE_K) {
      const uint32_t full = smem.full + 8 * at.stage;
      const uint32_t to = smem.ring + at.stage * STAGE_BYTES + offset;
      mbarrier_wait(smem.empty + 8 * at.stage, at.parity ^ 1);
      if (operand == 0) mbarrier_arrive_expect_tx(full, STAGE_BYTES);
      for (int32_t s = 0; s < classes; s++) {
        tma_load_2d(to + s * rows_of_class * TGLU_TILE_K * 2, &maps[s], full, k + shift[s], row);
      }
      ring_advance<ROW_STAGES>(at);
    }
  }
}

TGLU_DEVICE float bias_at(const void *bias, int64_t stride, int32_t column, int32_t n) {
  if (bias == nullptr || column >= n) return 0.0f;
  return element_to_float(((const uint16_t *)bias)[column * stride]);
}

/* Stores the block whose first row is position `first_row` of the tile at (m, n). */
TGLU_DEVICE void store_block(const tglu_glu_general_launch &g, int32_t m, int32_t n,
                             int32_t first_row, int thread, const float (&acc)[TILE_N]) {
  const tglu_glu_launch &p = g.base;
  const int lane = thread % 32, warp = thread / 32;
  uint16_t *out = (uint16_t *)p.out_pointer;
#pragma unroll
  for (int j = 0; j < TILE_N / 8; j++) {
    float gate[4], up[4];
    int32_t column[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
      column[c] = n + unpermuted(8 * j + 2 * (lane % 4) + c, TILE_N, g.w_classes);
      const float gate_bias = bias_at(p.gate_bias, p.bias_stride, column[c], p.n);
      const float up_bias = bias_at(p.up_bias, p.bias_stride, column[c], p.n);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        gate[2 * h + c] = acc[4 * j + 2 * h + c] + gate_bias;
        up[2 * h + c] = acc[TILE_N / 2 + 4 * j + 2 * h + c] + up_bias;
      }
    }
    gate_factor<4>(p, gate);
    up_factor<4>(p, up);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int32_t row =
          m + unpermuted(first_row + 16 * warp + lane / 4 + 8 * h, TILE_M, g.x_classes);
      const uint32_t pair = pack_pair(gate[2 * h] * up[2 * h], gate[2 * h + 1] * up[2 * h + 1]);
      if (row < p.m && column[0] < p.n) out[row * p.ldo + column[0]] = (uint16_t)pair;
      if (row < p.m && column[1] < p.n) out[row * p.ldo + column[1]] = (uint16_t)(pair >> 16);
    }
  }
}

TGLU_DEVICE void consume(const tglu_glu_general_launch &g, const smem_map &smem, int warpgroup,
                         int thread) {
  const tglu_glu_launch &p = g.base;
  const int32_t tiles = p.tile_rows * p.tile_columns;
  const uint32_t a_offset = warpgroup * 64 * TGLU_TILE_K * 2;
  float acc[1][TILE_N];
  ring_position at = {0, 0};
  dependency_wait();
  for (int32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const tglu_tile tile = tglu_tile_at(index, p.tile_rows, p.tile_columns, p.group);
    mainloop<1, B_ROWS, A_BYTES, STAGE_BYTES>(p.k, smem, at, a_offset, thread, acc);
    wgmma_wait<0>();
    ring_release_last(smem, at, thread);
    wgmma_pin(acc[0]);
    store_block(g, tile.row * TILE_M, tile.column * TILE_N, warpgroup * 64, thread, acc[0]);
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    ROW_NAME(const __grid_constant__ tglu_glu_general_launch g) {
  extern __shared__ uint8_t dynamic[];
  const smem_map smem = smem_map_of<TILE_M, TILE_N, B_ROWS, ROW_STAGES>(dynamic);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) ring_init<ROW_STAGES>(smem, 2);
  __syncthreads();
  if (warpgroup == 0) {
    registers_decrease<40>();
    if (threadIdx.x % 32 == 0 && threadIdx.x / 32 < 3) produce(g, smem, threadIdx.x / 32);
  } else {
    registers_increase<232>();
    consume(g, smem, warpgroup - 1, threadIdx.x % 128);
  }
}
