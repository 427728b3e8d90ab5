/* `stream`: few tokens.  Time is the weights' bytes over the memory's bandwidth, so the weights
 * go straight from memory to each thread's own slots of shared memory (cp.async, 16 bytes at a
 * time) and from there into mma.sync fragments, without tensor maps, barriers or a producer:
 * the first bytes are asked for a few hundred cycles after the start, where a TMA ring has
 * its first stage after 3-4 us (docs/notes).
 *
 * Operands are swapped: weights on the M side of m16n8k16, tokens on the N side.  For a GLU one
 * m16 tile is 8 gate rows and the 8 matching up rows, so d[0], d[1] and d[2], d[3] of a thread
 * are the gates and the ups of the same two outputs.  A sum over k may be taken in any order:
 * a thread's 16 bytes are 8 neighbouring k of one row, and two mma steps take them as
 * k = 2q, 2q+1, 2q+8, 2q+9 (q = lane % 4), for weights and tokens alike.
 *
 *   CTA x of `splits`          outputs [n x / splits, n (x + 1) / splits), in passes of at most
 *                              tile_n; 8 warps, two CTAs an SM (stream_wide: 16, one)
 *   warp w                     K-blocks w, w + warps, ... of 64 k; ring of `stages` blocks
 *   end of a pass              partial sums meet in shared memory and are added in the order of
 *                              warps by one thread an output: the same bits for every grid
 *   bytes in flight, an SM     2 x 8 warps x stages x 2 KB a weight tile
 *
 * Assumptions: stream_launch.h. */
#include "activation.cuh"
#include "element.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "stream_launch.h"

#define WARPS (ROW_SCHEDULE_STREAM_WIDE ? 16 : 8)
#define THREADS (32 * WARPS)
#define BLOCKS tglu_stream_blocks(ROW_TILE_N, ROW_OP_GLU)
#define GROUPS (ROW_TILE_M / 8) /* of 8 tokens */
#define ROWS_OF_BLOCK (ROW_OP_GLU ? 8 : 16)
#define SLOT_BYTES (16 * THREADS) /* one 16-byte chunk of every thread */
#define STAGE_BYTES ((4 * BLOCKS + 2 * GROUPS) * SLOT_BYTES)
#define PARTIAL_FLOATS (BLOCKS * GROUPS * 128) /* of one warp */

static_assert(ROW_TILE_M % 8 == 0 && ROW_TILE_N % ROWS_OF_BLOCK == 0, "whole mma tiles");
static_assert(ROW_CLUSTER_M == 1, "no clusters");
static_assert(tglu_stream_smem_bytes(ROW_TILE_M, ROW_TILE_N, ROW_STAGES, ROW_OP_GLU,
                                     ROW_SCHEDULE_STREAM_WIDE) *
                      tglu_stream_ctas_per_sm(ROW_SCHEDULE_STREAM_WIDE) <=
                  (ROW_SCHEDULE_STREAM_WIDE ? 232448 : 231424),
              "two CTAs an SM need 1 KB each beside");

/* What a CTA and a warp have to do. */
typedef struct stream_work {
  int32_t n_begin, n_end;  /* outputs of this CTA                                 */
  int32_t height, passes;  /* outputs of a pass (the last may have fewer)         */
  int32_t token;           /* first token                                         */
  int32_t first, blocks;   /* this warp's first K-block, and how many a pass      */
} stream_work;

TGLU_DEVICE stream_work work_of(const tglu_stream_launch &p, int warp) {
  stream_work w;
  w.n_begin = (int32_t)((int64_t)p.n * blockIdx.x / gridDim.x);
  w.n_end = (int32_t)((int64_t)p.n * (blockIdx.x + 1) / gridDim.x);
  const int32_t count = w.n_end - w.n_begin;
  w.passes = (count + ROW_TILE_N - 1) / ROW_TILE_N;
  w.height = w.passes > 0 ? (count + w.passes - 1) / w.passes : 0;
  w.token = blockIdx.y * ROW_TILE_M;
  const int32_t k_blocks = (p.k + TGLU_TILE_K - 1) / TGLU_TILE_K;
  w.first = warp;
  w.blocks = k_blocks > warp ? (k_blocks - warp + WARPS - 1) / WARPS : 0;
  return w;
}

TGLU_DEVICE int32_t clamp8(int32_t x) { return x < 0 ? 0 : x > 8 ? 8 : x; }

/* 8 elements, of which `count` lie within the row, into a slot; the rest become zeros. */
TGLU_DEVICE uint4 load_chunk(const char *source, int32_t count) {
  uint4 v = make_uint4(0, 0, 0, 0);
#if !ROW_LOADER_GENERAL
  if (count == 8) return *(const uint4 *)source;
#endif
  uint32_t w[8];
#pragma unroll
  for (int i = 0; i < 8; i++) w[i] = i < count ? ((const uint16_t *)source)[i] : 0;
  v.x = w[0] | w[1] << 16;
  v.y = w[2] | w[3] << 16;
  v.z = w[4] | w[5] << 16;
  v.w = w[6] | w[7] << 16;
  return v;
}

/* The loader's place: one K-block of one pass. */
typedef struct stream_cursor {
  int32_t pass, block;       /* block: 0 .. blocks - 1 of this warp                 */
  const char *lower, *upper; /* this lane's rows g and g + 8 of the pass's first tile */
} stream_cursor;

/* Points the cursor at the first block of its pass. */
TGLU_DEVICE void begin_pass(const tglu_stream_launch &p, const stream_work &w, stream_cursor &at,
                            int lane) {
  const int64_t row = w.n_begin + at.pass * w.height + lane / 4;
  const int64_t k = w.first * TGLU_TILE_K + 8 * (lane % 4);
  at.block = 0;
  at.lower = (const char *)p.gate + (row * p.ldw + k) * 2;
  at.upper = ROW_OP_GLU ? (const char *)p.up + (row * p.ldw + k) * 2 : at.lower + p.ldw * 16;
}

/* Asks for the weights of the cursor's block. */
TGLU_DEVICE void load_weights(const tglu_stream_launch &p, const stream_work &w,
                              const stream_cursor &at, uint32_t slot, int lane) {
  const int32_t k = (w.first + at.block * WARPS) * TGLU_TILE_K + 8 * (lane % 4);
  const int32_t row = w.n_begin + at.pass * w.height + lane / 4;
  const int32_t left = w.height - (row - w.n_begin - at.pass * w.height);
  const int32_t end = w.n_end - row < left ? w.n_end - row : left;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t count = clamp8(p.k - k - 32 * half);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      const int64_t offset = (int64_t)b * ROWS_OF_BLOCK * p.ldw * 2 + 64 * half;
      const int32_t lower = b * ROWS_OF_BLOCK < end ? count : 0;
      const int32_t upper = b * ROWS_OF_BLOCK + (ROW_OP_GLU ? 0 : 8) < end ? count : 0;
      const uint32_t to = slot + (4 * b + half) * SLOT_BYTES;
#if ROW_LOADER_GENERAL
      store_shared_16(to, load_chunk(at.lower + offset, lower));
      store_shared_16(to + 2 * SLOT_BYTES, load_chunk(at.upper + offset, upper));
#else
      async_copy(to, at.lower + offset, 2 * lower);
      async_copy(to + 2 * SLOT_BYTES, at.upper + offset, 2 * upper);
#endif
    }
  }
}

/* The tokens of K-block `k_block`: this lane's chunk `half` of group `group`. */
TGLU_DEVICE const char *token_chunk(const tglu_stream_launch &p, const stream_work &w,
                                    int32_t k_block, int group, int half, int lane,
                                    int32_t *count) {
  const int32_t k = k_block * TGLU_TILE_K + 32 * half + 8 * (lane % 4);
  const int32_t token = w.token + 8 * group + lane / 4;
  *count = token < p.m ? clamp8(p.k - k) : 0;
  return (const char *)p.x + ((int64_t)token * p.ldx + k) * 2;
}

TGLU_DEVICE void load_tokens(const tglu_stream_launch &p, const stream_work &w, int32_t k_block,
                             uint32_t slot, int lane) {
#pragma unroll
  for (int j = 0; j < 2 * GROUPS; j++) {
    int32_t count;
    const char *source = token_chunk(p, w, k_block, j / 2, j % 2, lane, &count);
    const uint32_t to = slot + (4 * BLOCKS + j) * SLOT_BYTES;
#if ROW_LOADER_GENERAL
    store_shared_16(to, load_chunk(source, count));
#else
    async_copy_shared_use(to, source, 2 * count);
#endif
  }
}

TGLU_DEVICE void advance(const tglu_stream_launch &p, const stream_work &w, stream_cursor &at,
                         int lane) {
  if (++at.block < w.blocks) {
    at.lower += WARPS * TGLU_TILE_K * 2;
    at.upper += WARPS * TGLU_TILE_K * 2;
  } else {
    at.pass++;
    begin_pass(p, w, at, lane);
  }
}

/* acc += the block in the slot: 4 k-steps of 16. */
TGLU_DEVICE void multiply(uint32_t slot, float (&acc)[BLOCKS][GROUPS][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint4 x[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
      x[j] = load_shared_16(slot + (4 * BLOCKS + 2 * j + half) * SLOT_BYTES);
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      const uint4 lower = load_shared_16(slot + (4 * b + half) * SLOT_BYTES);
      const uint4 upper = load_shared_16(slot + (4 * b + 2 + half) * SLOT_BYTES);
#pragma unroll
      for (int j = 0; j < GROUPS; j++) {
        mma_m16n8k16(acc[b][j], lower.x, upper.x, lower.y, upper.y, x[j].x, x[j].y);
        mma_m16n8k16(acc[b][j], lower.z, upper.z, lower.w, upper.w, x[j].z, x[j].w);
      }
    }
  }
}

/* Sum over the warps of element (row, token) of the m16n8 tiles of block b. */
TGLU_DEVICE float sum_partials(const float *partials, int b, int row, int token) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    sum += partials[w * PARTIAL_FLOATS + (b * GROUPS + token / 8) * 128 + row * 8 + token % 8];
  }
  return sum;
}

/* Bias, activation and product, or bias and residual; one rounding; the store. */
TGLU_DEVICE void finish(const tglu_stream_launch &p, const float *partials, int32_t n, int o,
                        int32_t m, int token) {
  const int b = o / ROWS_OF_BLOCK, row = o % ROWS_OF_BLOCK;
  float value = sum_partials(partials, b, row, token);
  if (p.gate_bias != nullptr) {
    value += element_to_float(((const uint16_t *)p.gate_bias)[n * p.bias_stride]);
  }
#if ROW_OP_GLU
  float g[1] = {value}, u[1] = {sum_partials(partials, b, row + 8, token)};
  if (p.up_bias != nullptr) {
    u[0] += element_to_float(((const uint16_t *)p.up_bias)[n * p.bias_stride]);
  }
  gate_factor<1>(p.activation, p.alpha, p.limit, g);
  up_factor<1>(p.activation, p.limit, p.offset, u);
  value = g[0] * u[0];
#else
  if (p.residual != nullptr) {
    value += element_to_float(((const uint16_t *)p.residual)[m * p.ldr + n]);
  }
#endif
  ((uint16_t *)p.out)[m * p.ldo + n] = (uint16_t)pack_pair(value, 0.0f);
}

extern "C" __global__ void __launch_bounds__(THREADS, ROW_SCHEDULE_STREAM_WIDE ? 1 : 2)
    ROW_NAME(const __grid_constant__ tglu_stream_launch p) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const stream_work w = work_of(p, warp);
  const uint32_t ring = smem_address(dynamic) + 16 * threadIdx.x;
  float *partials = (float *)(dynamic + ROW_STAGES * STAGE_BYTES);
  const int32_t steps = w.passes * w.blocks;

  /* The first stages: weights, then (ordinary loads, all at once) tokens. */
  const bool stable = p.flags & TGLU_LAUNCH_STABLE_WEIGHTS;
  if (!stable) dependency_wait();
  stream_cursor at = {0, 0, nullptr, nullptr};
  begin_pass(p, w, at, lane);
#pragma unroll
  for (int s = 0; s < ROW_STAGES; s++) {
    if (s < steps) {
      load_weights(p, w, at, ring + s * STAGE_BYTES, lane);
      advance(p, w, at, lane);
    }
    async_commit();
  }
  if (stable) dependency_wait();
  dependents_launch();
  uint4 x[ROW_STAGES][2 * GROUPS];
#pragma unroll
  for (int s = 0; s < ROW_STAGES; s++) {
    const int32_t k_block = w.blocks > 0 ? w.first + s % w.blocks * WARPS : 0;
#pragma unroll
    for (int j = 0; j < 2 * GROUPS; j++) {
      int32_t count;
      const char *source = token_chunk(p, w, k_block, j / 2, j % 2, lane, &count);
      x[s][j] = load_chunk(source, s < steps ? count : 0);
    }
  }
#pragma unroll
  for (int s = 0; s < ROW_STAGES; s++) {
#pragma unroll
    for (int j = 0; j < 2 * GROUPS; j++) {
      store_shared_16(ring + s * STAGE_BYTES + (4 * BLOCKS + j) * SLOT_BYTES, x[s][j]);
    }
  }

  uint32_t slot = ring;
  int32_t issued = ROW_STAGES;
  for (int32_t pass = 0; pass < w.passes; pass++) {
    float acc[BLOCKS][GROUPS][4] = {};
    for (int32_t i = 0; i < w.blocks; i++) {
      async_wait<ROW_STAGES - 1>();
      multiply(slot, acc);
      if (issued < steps) {
        load_weights(p, w, at, slot, lane);
        load_tokens(p, w, w.first + at.block * WARPS, slot, lane);
        advance(p, w, at, lane);
        issued++;
      }
      async_commit();
      slot += STAGE_BYTES;
      if (slot == ring + ROW_STAGES * STAGE_BYTES) slot = ring;
    }
    if (pass > 0) __syncthreads(); /* the last pass's partial sums have been read */
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
#pragma unroll
      for (int j = 0; j < GROUPS; j++) {
        float2 *to = (float2 *)(partials + warp * PARTIAL_FLOATS + (b * GROUPS + j) * 128 + 2 * lane);
        to[0] = make_float2(acc[b][j][0], acc[b][j][1]);
        to[32] = make_float2(acc[b][j][2], acc[b][j][3]);
      }
    }
    __syncthreads();
    const int32_t n = w.n_begin + pass * w.height;
    const int32_t height = w.n_end - n < w.height ? w.n_end - n : w.height;
    for (int e = threadIdx.x; e < height * ROW_TILE_M; e += THREADS) {
      const int token = e % ROW_TILE_M, o = e / ROW_TILE_M;
      if (w.token + token < p.m) finish(p, partials, n + o, o, w.token + token, token);
    }
  }
}
