/* `stream_mlp`: a whole MLP for few tokens in one launch.  Weights stream as in stream.cuh, and
 * the stream does not end between the halves: while the last gate and up rows are multiplied,
 * the ring already asks for the first rows of the down projection, which then arrive while the
 * CTAs wait for each other's part of H (docs/notes/hopper_ladder.md, step 27).
 *
 *   CTA c                      outputs of H: intermediate / ctas, in passes of at most 16;
 *                              then outputs of O: hidden / ctas, in passes of at most 8
 *   4 warps                    bring X, lead the barrier, and leave
 *   of 8 warps, warp w
 *     gate and up              K-blocks w, w + 8, ... of 64 k; a stage is one of them, an m16 tile
 *                              8 gate and 8 up rows, two tiles
 *     between                  H through the workspace: a barrier of the grid, then the warp brings
 *                              its K-blocks of H into the place of X
 *     down                     the same K-blocks; a stage is four of them, of 8 rows, which are the
 *                              lower half of an m16 tile, whose upper half is zero
 *   end of a pass              as in stream.cuh: the same bits for every grid
 *
 * Assumptions: stream_mlp_launch.h. */
#include <cooperative_groups.h>

#include "activation.cuh"
#include "element.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "stream_mlp_launch.h"
#include "stream_slots.cuh"

#define WARPS TGLU_STREAM_WARPS
#define THREADS (32 * WARPS) /* that multiply */
#define TOKEN_THREADS (32 * TGLU_STREAM_TOKEN_WARPS)
#define TILES (ROW_TILE_N / 8)           /* m16 tiles of gate and up rows in a stage */
#define DOWN_ROWS TGLU_STREAM_MLP_DOWN_ROWS
#define DOWN_BLOCKS TGLU_STREAM_MLP_DOWN_BLOCKS
#define STAGE_SLOTS 4                    /* 8 rows of one K-block each */
#define WARP_BYTES (STAGE_SLOTS * SLOT_BYTES)
#define STAGE_BYTES (WARPS * WARP_BYTES)
#define PARTIAL_FLOATS (TILES * 128)     /* of one warp */
#define STEP_BYTES (WARPS * BLOCK_BYTES) /* from one K-block of a warp to its next */

enum { BARRIER_TOKENS = 1, BARRIER_PARTIALS = 2 };

static_assert(ROW_TILE_M == 8 && ROW_TILE_N == 16, "one mma of tokens, two of rows");
static_assert(DOWN_BLOCKS == STAGE_SLOTS && 2 * TILES == STAGE_SLOTS, "the same stage");
static_assert(ROW_CLUSTER_M == 1, "no clusters");

/* What a CTA has to do in one half. */
typedef struct half_work {
  int32_t begin, end;     /* outputs                                            */
  int32_t height, passes; /* outputs of a pass (the last may have fewer)        */
  int32_t blocks;         /* K-blocks of this warp                              */
  int32_t stages;         /* stages of this warp, a pass                        */
} half_work;

TGLU_DEVICE half_work work_of(int32_t n, int32_t k, int32_t height, int32_t stage_blocks,
                              int32_t warp) {
  half_work w;
  const int32_t share = n / gridDim.x, larger = n - share * gridDim.x, cta = blockIdx.x;
  w.begin = share * cta + min(cta, larger);
  w.end = w.begin + share + (cta < larger);
  const int32_t count = w.end - w.begin;
  w.passes = (count + height - 1) / height;
  w.height = w.passes > 1 ? (count + w.passes - 1) / w.passes : count;
  const int32_t k_blocks = (k + TGLU_TILE_K - 1) / TGLU_TILE_K;
  w.blocks = k_blocks > warp ? (k_blocks - warp + WARPS - 1) / WARPS : 0;
  w.stages = (w.blocks + stage_blocks - 1) / stage_blocks;
  return w;
}

TGLU_DEVICE int32_t height_of(const half_work &w, int32_t pass) {
  return min(w.height, w.end - w.begin - pass * w.height);
}

/* The loader's place: one stage of one pass of one half.  rows and k are this lane's: of the four
 * rows of a load it brings the one at lane / 8, chunk lane % 8. */
typedef struct stream_cursor {
  const char *row, *up_row; /* the pass's first such row, at this chunk of the stage            */
  int32_t k;                /* of that chunk                                                    */
  int32_t rows;             /* of the pass from this lane's first on; then every 4th is its own */
  int32_t left;             /* stages of the pass from here on                                  */
  int32_t pass;             /* of this half                                                     */
  bool down;                /* which half                                                       */
  uint64_t policy;
} stream_cursor;

TGLU_DEVICE void begin_pass(const tglu_stream_launch &p, const half_work &w, stream_cursor &at,
                            int warp, int lane) {
  const int32_t row = w.begin + at.pass * w.height + lane / 8;
  at.rows = height_of(w, at.pass) - lane / 8;
  at.left = w.stages;
  at.k = warp * TGLU_TILE_K + 8 * (lane % 8);
  const int64_t offset = (row * p.ldw + at.k) * 2;
  at.row = (const char *)p.gate + offset;
  at.up_row = (const char *)p.up + offset;
}

/* Slots of rows and K-blocks that are not there keep what they held: those rows' outputs are not
 * stored, those K-blocks not multiplied. */
TGLU_DEVICE void load_gate_up(const tglu_stream_launch &p, const stream_cursor &at,
                              uint32_t slot) {
#pragma unroll
  for (int i = 0; i < 2 * TILES; i++) {
    if (4 * i >= at.rows) continue;
    const uint32_t to = slot + i / 2 * (2 * SLOT_BYTES) + i % 2 * HALF_SLOT_BYTES;
    async_copy_once(to, at.row + 8 * i * p.ldw, at.policy);
    async_copy_once(to + SLOT_BYTES, at.up_row + 8 * i * p.ldw, at.policy);
  }
}

TGLU_DEVICE void load_down(const tglu_stream_launch &p, const stream_cursor &at, uint32_t slot) {
#pragma unroll
  for (int i = 0; i < 2 * DOWN_BLOCKS; i++) {
    const int h = i % 2;
    if (4 * h >= at.rows) continue;
    async_copy_once(slot + i * HALF_SLOT_BYTES, at.row + i / 2 * STEP_BYTES + 8 * h * p.ldw,
                    at.policy);
  }
}

/* The same where the stage does not end within K: zeros behind it.  Not unrolled: less code to
 * bring. */
TGLU_DEVICE void load_gate_up_part(const tglu_stream_launch &p, const stream_cursor &at,
                                   uint32_t slot) {
  const uint32_t bytes = bytes_within(at.k, p.k);
#pragma unroll 1
  for (int i = 0; 4 * i < at.rows; i++) {
    const uint32_t to = slot + i / 2 * (2 * SLOT_BYTES) + i % 2 * HALF_SLOT_BYTES;
    async_copy_part_once(to, at.row + 8 * i * p.ldw, bytes, at.policy);
    async_copy_part_once(to + SLOT_BYTES, at.up_row + 8 * i * p.ldw, bytes, at.policy);
  }
}

TGLU_DEVICE void load_down_part(const tglu_stream_launch &p, const stream_cursor &at,
                                uint32_t slot, int32_t blocks) {
#pragma unroll 1
  for (int i = 0; i < 2 * blocks; i++) {
    const int h = i % 2;
    if (4 * h >= at.rows) continue;
    async_copy_part_once(slot + i * HALF_SLOT_BYTES,
                         at.row + i / 2 * STEP_BYTES + 8 * h * p.ldw,
                         bytes_within(at.k + i / 2 * WARPS * TGLU_TILE_K, p.k), at.policy);
  }
}

/* Asks for the cursor's stage and moves on. */
TGLU_DEVICE void load_down_stage(const tglu_stream_launch &p, const half_work &w,
                                 stream_cursor &at, uint32_t slot, int warp, int lane) {
  const int32_t first = at.k - 8 * (lane % 8), step = WARPS * TGLU_TILE_K;
  if (first + (DOWN_BLOCKS - 1) * step + TGLU_TILE_K <= p.k) {
    load_down(p, at, slot);
  } else {
    load_down_part(p, at, slot, min(DOWN_BLOCKS, (p.k - first + step - 1) / step));
  }
  at.k += DOWN_BLOCKS * step;
  at.row += DOWN_BLOCKS * STEP_BYTES;
  if (--at.left == 0) {
    at.pass++;
    begin_pass(p, w, at, warp, lane);
  }
}

TGLU_DEVICE void load_stage(const tglu_stream_mlp_launch &p, const half_work &glu,
                            const half_work &down, stream_cursor &at, uint32_t slot, int warp,
                            int lane) {
  if (at.down) {
    load_down_stage(p.down, down, at, slot, warp, lane);
    return;
  }
  if (at.k - 8 * (lane % 8) + TGLU_TILE_K <= p.glu.k) {
    load_gate_up(p.glu, at, slot);
  } else {
    load_gate_up_part(p.glu, at, slot);
  }
  at.k += WARPS * TGLU_TILE_K;
  at.row += STEP_BYTES;
  at.up_row += STEP_BYTES;
  if (--at.left > 0) return;
  at.pass++;
  at.down = at.pass == glu.passes;
  if (at.down) at.pass = 0;
  begin_pass(at.down ? p.down : p.glu, at.down ? down : glu, at, warp, lane);
}

/* X into shared memory, zeros up to a whole K-block, by the token warps.  CTAs begin at different
 * places, since all of them read the same lines. */
TGLU_DEVICE void load_x(const tglu_stream_launch &p, uint32_t to, uint32_t pitch,
                        uint32_t thread) {
  const uint32_t chunks = (p.k + TGLU_TILE_K - 1) / TGLU_TILE_K * (TGLU_TILE_K / 8); /* a token */
  const uint32_t total = p.m * chunks;
  const uint32_t begin = blockIdx.x * TOKEN_THREADS % total;
#pragma unroll 1
  for (uint32_t i = thread; i < total; i += TOKEN_THREADS) {
    const uint32_t at = i + begin < total ? i + begin : i + begin - total;
    const uint32_t token = at / chunks, chunk = at % chunks;
    async_copy_part(to + token * pitch + 16 * chunk,
                    (const char *)p.x + (token * p.ldx + 8 * chunk) * 2,
                    bytes_within(8 * chunk, p.k));
  }
}

/* This warp's K-blocks of H in the place of X, zeros up to a whole block.  CTAs begin at
 * different places. */
TGLU_DEVICE void load_h(const tglu_stream_launch &p, int32_t blocks, uint32_t to, uint32_t pitch,
                        int warp, int lane) {
  const int32_t fours = (blocks + 3) / 4; /* a load of the warp brings four */
  if (fours == 0) return;
  const int32_t begin = blockIdx.x % fours;
  for (int32_t token = 0; token < p.m; token++) {
#pragma unroll 4
    for (int32_t i = 0; i < fours; i++) {
      const int32_t four = i + begin < fours ? i + begin : i + begin - fours;
      const int32_t block = 4 * four + lane / 8;
      const int32_t k = (warp + block * WARPS) * TGLU_TILE_K + 8 * (lane % 8);
      if (block >= blocks) continue;
      async_copy_part(to + token * pitch + 2 * k, (const char *)p.x + (token * p.ldx + k) * 2,
                      bytes_within(k, p.k));
    }
  }
}

/* acc += the gate and up rows of the stage times the tokens' K-block at x: 4 k-steps of 16. */
TGLU_DEVICE void multiply_gate_up(uint32_t stage, uint32_t x, int lane, float (&acc)[TILES][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint4 token = load_shared_16(x + 64 * half);
    const uint32_t at = stage + slot_read(lane, half);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
      const uint4 gate = load_shared_16(at + 2 * i * SLOT_BYTES);
      const uint4 up = load_shared_16(at + (2 * i + 1) * SLOT_BYTES);
      mma_m16n8k16(acc[i], gate.x, up.x, gate.y, up.y, token.x, token.y);
      mma_m16n8k16(acc[i], gate.z, up.z, gate.w, up.w, token.z, token.w);
    }
  }
}

/* acc += the down rows of the stage times `blocks` K-blocks of the tokens from x on. */
TGLU_DEVICE void multiply_down(uint32_t stage, uint32_t x, int32_t blocks, int lane,
                               float (&acc)[2][4]) {
#pragma unroll
  for (int i = 0; i < DOWN_BLOCKS; i++) {
    if (i >= blocks) break;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint4 token = load_shared_16(x + i * STEP_BYTES + 64 * half);
      const uint4 row = load_shared_16(stage + slot_read(lane, half) + i * SLOT_BYTES);
      mma_m16n8k16(acc[0], row.x, 0, row.y, 0, token.x, token.y);
      mma_m16n8k16(acc[1], row.z, 0, row.w, 0, token.z, token.w);
    }
  }
}

/* Sum over the warps of element (row, token) of the m16n8 tile i. */
TGLU_DEVICE float sum_partials(const float *partials, int i, int row, int token) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    sum += partials[w * PARTIAL_FLOATS + i * 128 + row * 8 + token];
  }
  return sum;
}

/* Biases, activation, product; one rounding; the store. */
TGLU_DEVICE void finish_glu(const tglu_stream_launch &p, const float *partials, int32_t n, int o,
                            int token) {
  float g[1] = {sum_partials(partials, o / 8, o % 8, token)};
  float u[1] = {sum_partials(partials, o / 8, o % 8 + 8, token)};
  if (p.gate_bias != nullptr) {
    g[0] += element_to_float(((const uint16_t *)p.gate_bias)[n * p.bias_stride]);
  }
  if (p.up_bias != nullptr) {
    u[0] += element_to_float(((const uint16_t *)p.up_bias)[n * p.bias_stride]);
  }
  gate_factor<1>(p.activation, p.alpha, p.limit, g);
  up_factor<1>(p.activation, p.limit, p.offset, u);
  ((uint16_t *)p.out)[token * p.ldo + n] = (uint16_t)pack_pair(g[0] * u[0], 0.0f);
}

/* Bias and residual; one rounding; the store. */
TGLU_DEVICE void finish_down(const tglu_stream_launch &p, const float *partials, int32_t n, int o,
                             int token) {
  float value = sum_partials(partials, 0, o, token);
  if (p.gate_bias != nullptr) {
    value += element_to_float(((const uint16_t *)p.gate_bias)[n * p.bias_stride]);
  }
  if (p.residual != nullptr) {
    value += element_to_float(((const uint16_t *)p.residual)[token * p.ldr + n]);
  }
  ((uint16_t *)p.out)[token * p.ldo + n] = (uint16_t)pack_pair(value, 0.0f);
}

/* The ring as the multiplying side sees it. */
typedef struct stream_ring {
  uint32_t begin, stage; /* this warp's part of the first and of the next stage */
  int32_t left;          /* stages still to be asked for                        */
} stream_ring;

/* The place of the stage just multiplied: asked for again, and passed. */
TGLU_DEVICE void advance(stream_ring &ring) {
  async_commit();
  ring.left--;
  ring.stage += STAGE_BYTES;
  if (ring.stage == ring.begin + ROW_STAGES * STAGE_BYTES) ring.stage = ring.begin;
}

TGLU_DEVICE void refill(const tglu_stream_mlp_launch &p, const half_work &glu,
                        const half_work &down, stream_cursor &at, stream_ring &ring, int warp,
                        int lane) {
  if (ring.left > 0) load_stage(p, glu, down, at, ring.stage + slot_write(lane), warp, lane);
  advance(ring);
}

TGLU_DEVICE void multiply_all(const tglu_stream_mlp_launch &p, uint32_t rings, float *partials,
                              uint32_t tokens, uint32_t pitch, int thread) {
  const int lane = thread % 32, warp = thread / 32;
  const half_work glu = work_of(p.glu.n, p.glu.k, ROW_TILE_N, 1, warp);
  const half_work down = work_of(p.down.n, p.down.k, DOWN_ROWS, DOWN_BLOCKS, warp);
  stream_ring ring = {rings + warp * WARP_BYTES, rings + warp * WARP_BYTES,
                      glu.passes * glu.stages + down.passes * down.stages};
  stream_cursor at = {};
  at.down = glu.passes * glu.stages == 0;
  at.policy = policy_read_once();
  if (!(p.glu.flags & TGLU_LAUNCH_STABLE_WEIGHTS)) dependency_wait();
  begin_pass(at.down ? p.down : p.glu, at.down ? down : glu, at, warp, lane);
#pragma unroll 1
  for (int s = 0; s < ROW_STAGES; s++) refill(p, glu, down, at, ring, warp, lane);
  dependency_wait();
  dependents_launch();
  named_barrier_sync(BARRIER_TOKENS, THREADS + TOKEN_THREADS);

  const uint32_t x = tokens + min(lane / 4, p.glu.m - 1) * pitch + warp * BLOCK_BYTES +
                     16 * (lane % 4);
  float2 *own = (float2 *)(partials + warp * PARTIAL_FLOATS + 2 * lane);
#pragma unroll 1
  for (int32_t pass = 0; pass < glu.passes; pass++) {
    float acc[TILES][4] = {};
#pragma unroll 1
    for (int32_t i = 0; i < glu.stages; i++) {
      async_wait<ROW_STAGES - 1>();
      __syncwarp();
      multiply_gate_up(ring.stage, x + i * STEP_BYTES, lane, acc);
      __syncwarp();
      refill(p, glu, down, at, ring, warp, lane);
    }
    /* The last pass's partial sums have been read. */
    if (pass > 0) named_barrier_sync(BARRIER_PARTIALS, THREADS);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
      own[64 * i] = make_float2(acc[i][0], acc[i][1]);
      own[64 * i + 32] = make_float2(acc[i][2], acc[i][3]);
    }
    named_barrier_sync(BARRIER_PARTIALS, THREADS);
    const int32_t begin = glu.begin + pass * glu.height, height = height_of(glu, pass);
    for (int e = thread; e < height * ROW_TILE_M; e += THREADS) {
      const int token = e % ROW_TILE_M, o = e / ROW_TILE_M;
      if (token < p.glu.m) finish_glu(p.glu, partials, begin + o, o, token);
    }
  }

  cooperative_groups::this_grid().sync();
  load_h(p.down, down.blocks, tokens, pitch, warp, lane);
  async_commit();
  async_wait<0>();
  __syncwarp();
#pragma unroll 1
  for (int32_t pass = 0; pass < down.passes; pass++) {
    float acc[2][4] = {};
#pragma unroll 1
    for (int32_t i = 0; i < down.stages; i++) {
      async_wait<ROW_STAGES - 1>();
      __syncwarp();
      multiply_down(ring.stage, x + i * DOWN_BLOCKS * STEP_BYTES, down.blocks - i * DOWN_BLOCKS,
                    lane, acc);
      __syncwarp();
      if (ring.left > 0) {
        load_down_stage(p.down, down, at, ring.stage + slot_write(lane), warp, lane);
      }
      advance(ring);
    }
    if (pass > 0) named_barrier_sync(BARRIER_PARTIALS, THREADS);
    own[0] = make_float2(acc[0][0] + acc[1][0], acc[0][1] + acc[1][1]);
    named_barrier_sync(BARRIER_PARTIALS, THREADS);
    const int32_t begin = down.begin + pass * down.height, height = height_of(down, pass);
    for (int e = thread; e < height * ROW_TILE_M; e += THREADS) {
      const int token = e % ROW_TILE_M, o = e / ROW_TILE_M;
      if (token < p.down.m) finish_down(p.down, partials, begin + o, o, token);
    }
  }
}

/* NOTE: thread 0, which arrives at the grid's barrier for its CTA, is one of these: the fence
 * there would wait for the weights that a multiplying thread has under way. */
TGLU_DEVICE void bring_tokens(const tglu_stream_mlp_launch &p, uint32_t tokens, uint32_t pitch,
                              uint32_t thread) {
  dependency_wait();
  dependents_launch();
  load_x(p.glu, tokens, pitch, thread);
  async_commit();
  async_wait<0>();
  named_barrier_arrive(BARRIER_TOKENS, THREADS + TOKEN_THREADS);
  cooperative_groups::this_grid().sync();
}

extern "C" __global__ void __launch_bounds__(THREADS + TOKEN_THREADS, 1)
    ROW_NAME(const __grid_constant__ tglu_stream_mlp_launch p) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  float *partials = (float *)(dynamic + ROW_STAGES * STAGE_BYTES);
  const uint32_t tokens = smem_address(partials + WARPS * PARTIAL_FLOATS);
  const uint32_t pitch = tglu_stream_token_bytes(max(p.glu.k, p.down.k));
  if (threadIdx.x < TOKEN_THREADS) {
    bring_tokens(p, tokens, pitch, threadIdx.x);
  } else {
    multiply_all(p, smem_address(dynamic), partials, tokens, pitch, threadIdx.x - TOKEN_THREADS);
  }
}
