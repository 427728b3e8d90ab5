/* `stream`: few tokens.  Time is the weights' bytes over the memory's bandwidth, so the weights
 * go straight from memory to each warp's own slots of shared memory (cp.async, 16 bytes a
 * thread) and from there into mma.sync fragments, without tensor maps, barriers or a producer:
 * the first bytes are asked for a few hundred cycles after the start, where a TMA ring has
 * its first stage after 3-4 us (docs/notes).  The tokens lie in shared memory from the start.
 *
 * Operands are swapped: weights on the M side of m16n8k16, tokens on the N side.  For a GLU one
 * m16 tile is 8 gate rows and the 8 matching up rows, so d[0], d[1] and d[2], d[3] of a thread
 * are the gates and the ups of the same two outputs.  A sum over k may be taken in any order:
 * a thread's 16 bytes are 8 neighbouring k of one row, and two mma steps take them as
 * k = 2q, 2q+1, 2q+8, 2q+9 (q = lane % 4), for weights and tokens alike.
 *
 *   CTA (tile, split)          n / splits neighbouring outputs, or one more, in passes of at most
 *                              tile_n; 8 warps, and 4 which bring the tokens,
 *                              so that neither queues behind the other, and leave
 *   warp w                     K-blocks w, w + warps, ... of 64 k; ring of `stages` blocks, whose
 *                              slots are those of stream_slots.cuh
 *   end of a pass              partial sums meet in shared memory and are added in the order of
 *                              warps by one thread an output: the same bits for every grid
 *   bytes in flight, a CTA     8 warps x stages x 2 KB a weight tile
 *
 * Assumptions: stream_launch.h. */
#include "activation.cuh"
#include "element.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "stream_launch.h"
#include "stream_slots.cuh"

#define WARPS TGLU_STREAM_WARPS
#define THREADS (32 * WARPS) /* that multiply */
#define TOKEN_THREADS (32 * TGLU_STREAM_TOKEN_WARPS)
#define BLOCKS tglu_stream_blocks(ROW_TILE_N, ROW_OP_GLU)
#define GROUPS (ROW_TILE_M / 8) /* of 8 tokens */
#define ROWS_OF_BLOCK (ROW_OP_GLU ? 8 : 16)
#define WARP_BYTES (2 * BLOCKS * SLOT_BYTES) /* of a stage */
#define STAGE_BYTES (WARPS * WARP_BYTES)
#define PARTIAL_FLOATS (BLOCKS * GROUPS * 128) /* of one warp */

enum { BARRIER_TOKENS = 1, BARRIER_PARTIALS = 2 };

static_assert(ROW_TILE_M % 8 == 0 && ROW_TILE_N % ROWS_OF_BLOCK == 0, "whole mma tiles");
static_assert(ROW_CLUSTER_M == 1, "no clusters");

/* What a CTA and a warp have to do. */
typedef struct stream_work {
  int32_t n_begin, n_end;  /* outputs of this CTA                                 */
  int32_t height, passes;  /* outputs of a pass (the last may have fewer)         */
  int32_t token, tokens;   /* first token, how many                               */
  int32_t first, blocks;   /* this warp's first K-block, and how many a pass      */
} stream_work;

TGLU_DEVICE stream_work work_of(const tglu_stream_launch &p, int warp) {
  stream_work w;
  const uint32_t x = blockIdx.y, share = (uint32_t)p.n / gridDim.y;
  const uint32_t larger = p.n - share * gridDim.y; /* CTAs with one more */
  w.n_begin = share * x + (x < larger ? x : larger);
  const int32_t count = share + (x < larger);
  w.n_end = w.n_begin + count;
  w.passes = (count + ROW_TILE_N - 1) / ROW_TILE_N;
  w.height = w.passes > 1 ? (count + w.passes - 1) / w.passes : count;
  w.token = blockIdx.x * ROW_TILE_M;
  w.tokens = p.m - w.token < ROW_TILE_M ? p.m - w.token : ROW_TILE_M;
  const int32_t k_blocks = (p.k + TGLU_TILE_K - 1) / TGLU_TILE_K;
  w.first = warp;
  w.blocks = k_blocks > warp ? (k_blocks - warp + WARPS - 1) / WARPS : 0;
  return w;
}

/* 16 bytes, of which the first `bytes` are read and the rest are zeros. */
TGLU_DEVICE uint4 load_elements(const char *from, int32_t bytes) {
  uint32_t w[8];
#pragma unroll
  for (int i = 0; i < 8; i++) w[i] = 2 * i < bytes ? ((const uint16_t *)from)[i] : 0;
  return make_uint4(w[0] | w[1] << 16, w[2] | w[3] << 16, w[4] | w[5] << 16, w[6] | w[7] << 16);
}

/* The same to shared memory. */
TGLU_DEVICE void copy_chunk(uint32_t to, const char *from, int32_t bytes) {
#if ROW_LOADER_GENERAL
  store_shared_16(to, load_elements(from, bytes));
#else
  async_copy_part(to, from, bytes);
#endif
}

/* The loader's place: one K-block of one pass.  Of the four rows of a load this lane brings the
 * one at lane / 8, chunk lane % 8. */
typedef struct stream_cursor {
  int32_t pass, left;        /* left: blocks of this pass from here on, this warp's */
  int32_t k;                 /* first element of this lane's chunk                  */
  const char *lower, *upper; /* the pass's first such row, at k: of the gate and up
                                weights; op down has lower alone                    */
  int32_t rows;              /* of the pass from this lane's first on               */
  uint64_t policy;
} stream_cursor;

/* Points the cursor at the first block of its pass. */
TGLU_DEVICE void begin_pass(const tglu_stream_launch &p, const stream_work &w, stream_cursor &at,
                            int lane) {
  const int32_t begin = w.n_begin + at.pass * w.height;
  at.rows = (w.n_end - begin < w.height ? w.n_end - begin : w.height) - lane / 8;
  at.left = w.blocks;
  at.k = w.first * TGLU_TILE_K + 8 * (lane % 8);
  const int64_t offset = ((begin + lane / 8) * p.ldw + at.k) * 2;
  at.lower = (const char *)p.gate + offset;
  at.upper = (const char *)p.up + offset;
}

/* This lane's chunks of every row of the cursor's block; Whole: the block ends within K. */
template <bool Whole>
TGLU_DEVICE void load_rows(const tglu_stream_launch &p, const stream_cursor &at, uint32_t slot) {
#pragma unroll
  for (int i = 0; i < 4 * BLOCKS; i++) {
    const bool upper = i / 2 % 2;
    const int row = i / 4 * ROWS_OF_BLOCK + (upper && !ROW_OP_GLU ? 8 : 0) + 4 * (i % 2);
    const char *from = (ROW_OP_GLU && upper ? at.upper : at.lower) + (int64_t)row * p.ldw * 2;
    const uint32_t to = slot + i * HALF_SLOT_BYTES;
    if (row >= at.rows) continue;
    if (Whole) {
      async_copy_once(to, from, at.policy);
    } else {
      copy_chunk(to, from, bytes_within(at.k, p.k));
    }
  }
}

/* Asks for the weights of the cursor's block and moves on.  Slots of rows that are not there
 * keep what they held: those outputs are not stored. */
TGLU_DEVICE void load_weights(const tglu_stream_launch &p, const stream_work &w, stream_cursor &at,
                              uint32_t slot, int lane) {
  if (!ROW_LOADER_GENERAL && at.k - 8 * (lane % 8) + TGLU_TILE_K <= p.k) {
    load_rows<true>(p, at, slot);
  } else {
    load_rows<false>(p, at, slot);
  }
  if (--at.left > 0) {
    at.k += WARPS * TGLU_TILE_K;
    at.lower += WARPS * BLOCK_BYTES;
    at.upper += WARPS * BLOCK_BYTES;
  } else {
    at.pass++;
    begin_pass(p, w, at, lane);
  }
}

/* All of K of this CTA's tokens into shared memory, zeros up to a whole block, by the token
 * warps.  CTAs begin at different places, since all of them read the same lines. */
TGLU_DEVICE void load_tokens(const tglu_stream_launch &p, const stream_work &w, uint32_t to,
                             uint32_t thread) {
  const uint32_t chunks = (p.k + TGLU_TILE_K - 1) / TGLU_TILE_K * (TGLU_TILE_K / 8); /* a token */
  const uint32_t total = w.tokens * chunks;
  if (total == 0) return;
  const uint32_t begin = blockIdx.y * TOKEN_THREADS % total;
  const char *from = (const char *)p.x + (int64_t)w.token * p.ldx * 2;
#pragma unroll 1
  for (uint32_t i = thread; i < total; i += TOKEN_THREADS) {
    const uint32_t at = i + begin < total ? i + begin : i + begin - total;
    const uint32_t token = at / chunks, chunk = at % chunks;
    copy_chunk(to + token * tglu_stream_token_bytes(p.k) + 16 * chunk,
               from + (token * p.ldx + 8 * chunk) * 2, bytes_within(8 * chunk, p.k));
  }
}

/* This lane's tokens, one a group: where the first chunk of this warp's first K-block lies, in
 * shared memory; with the general loader in memory, and its k.  Columns of absent tokens repeat
 * the last one's: they are not stored. */
typedef struct stream_tokens {
#if ROW_LOADER_GENERAL
  const char *at[GROUPS];
  int32_t k, k_size;
#else
  uint32_t at[GROUPS];
#endif
} stream_tokens;

TGLU_DEVICE stream_tokens tokens_of(const tglu_stream_launch &p, const stream_work &w,
                                    uint32_t resident, int warp, int lane) {
  stream_tokens x;
  const int32_t k = warp * TGLU_TILE_K + 8 * (lane % 4);
#pragma unroll
  for (int j = 0; j < GROUPS; j++) {
    const int32_t token = min(8 * j + lane / 4, w.tokens - 1);
#if ROW_LOADER_GENERAL
    x.at[j] = (const char *)p.x + ((w.token + token) * p.ldx + k) * 2;
#else
    x.at[j] = resident + token * tglu_stream_token_bytes(p.k) + 2 * k;
#endif
  }
#if ROW_LOADER_GENERAL
  x.k = k;
  x.k_size = p.k;
#endif
  return x;
}

/* 8 elements of the token of group j, `offset` bytes further. */
TGLU_DEVICE uint4 token_chunk(const stream_tokens &x, int j, uint32_t offset) {
#if ROW_LOADER_GENERAL
  return load_elements(x.at[j] + offset, bytes_within(x.k + (int32_t)(offset / 2), x.k_size));
#else
  return load_shared_16(x.at[j] + offset);
#endif
}

/* acc += the weights of the stage times the tokens' block `offset` bytes further: 4 k-steps of
 * 16. */
TGLU_DEVICE void multiply(uint32_t stage, const stream_tokens &x, uint32_t offset, int lane,
                          float (&acc)[BLOCKS][GROUPS][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint4 token[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; j++) token[j] = token_chunk(x, j, offset + 64 * half);
    const uint32_t at = stage + slot_read(lane, half);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      const uint4 lower = load_shared_16(at + 2 * b * SLOT_BYTES);
      const uint4 upper = load_shared_16(at + (2 * b + 1) * SLOT_BYTES);
#pragma unroll
      for (int j = 0; j < GROUPS; j++) {
        mma_m16n8k16(acc[b][j], lower.x, upper.x, lower.y, upper.y, token[j].x, token[j].y);
        mma_m16n8k16(acc[b][j], lower.z, upper.z, lower.w, upper.w, token[j].z, token[j].w);
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
                        int64_t m, int token) {
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

TGLU_DEVICE void stream(const tglu_stream_launch &p, const stream_work &w, uint32_t ring,
                        float *partials, uint32_t tokens) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t steps = w.passes * w.blocks;
  if (!(p.flags & TGLU_LAUNCH_STABLE_WEIGHTS)) dependency_wait();
  stream_cursor at;
  at.pass = 0;
  at.policy = policy_read_once();
  begin_pass(p, w, at, lane);
#pragma unroll 1
  for (int s = 0; s < ROW_STAGES; s++) {
    if (s < steps) load_weights(p, w, at, ring + s * STAGE_BYTES + slot_write(lane), lane);
    async_commit();
  }
  dependency_wait();
  dependents_launch();
  named_barrier_sync(BARRIER_TOKENS, THREADS + TOKEN_THREADS);

  const stream_tokens x = tokens_of(p, w, tokens, warp, lane);
  uint32_t stage = ring;
  int32_t issued = ROW_STAGES;
  for (int32_t pass = 0; pass < w.passes; pass++) {
    float acc[BLOCKS][GROUPS][4] = {};
    for (int32_t i = 0; i < w.blocks; i++) {
      async_wait<ROW_STAGES - 1>();
      __syncwarp();
      multiply(stage, x, i * (WARPS * BLOCK_BYTES), lane, acc);
      __syncwarp();
      if (issued < steps) load_weights(p, w, at, stage + slot_write(lane), lane);
      async_commit();
      issued++;
      stage += STAGE_BYTES;
      if (stage == ring + ROW_STAGES * STAGE_BYTES) stage = ring;
    }
    /* The last pass's partial sums have been read. */
    if (pass > 0) named_barrier_sync(BARRIER_PARTIALS, THREADS);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
#pragma unroll
      for (int j = 0; j < GROUPS; j++) {
        float2 *to =
            (float2 *)(partials + warp * PARTIAL_FLOATS + (b * GROUPS + j) * 128 + 2 * lane);
        to[0] = make_float2(acc[b][j][0], acc[b][j][1]);
        to[32] = make_float2(acc[b][j][2], acc[b][j][3]);
      }
    }
    named_barrier_sync(BARRIER_PARTIALS, THREADS);
    const int32_t n = w.n_begin + pass * w.height;
    const int32_t height = w.n_end - n < w.height ? w.n_end - n : w.height;
    for (int e = threadIdx.x; e < height * ROW_TILE_M; e += THREADS) {
      const int token = e % ROW_TILE_M, o = e / ROW_TILE_M;
      if (token < w.tokens) finish(p, partials, n + o, o, w.token + token, token);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS + TOKEN_THREADS, 1)
    ROW_NAME(const __grid_constant__ tglu_stream_launch p) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  const stream_work w = work_of(p, threadIdx.x / 32);
  float *partials = (float *)(dynamic + ROW_STAGES * STAGE_BYTES);
  const uint32_t tokens = smem_address(partials + WARPS * PARTIAL_FLOATS);
  if (threadIdx.x < THREADS) {
    stream(p, w, smem_address(dynamic) + threadIdx.x / 32 * WARP_BYTES, partials, tokens);
  } else {
    dependency_wait();
    dependents_launch();
    if (!ROW_LOADER_GENERAL) {
      load_tokens(p, w, tokens, threadIdx.x - THREADS);
      async_commit();
      async_wait<0>();
    }
    named_barrier_arrive(BARRIER_TOKENS, THREADS + TOKEN_THREADS);
  }
}
