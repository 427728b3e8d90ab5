/* `stream_mlp`: a whole MLP for few tokens in one launch.  Weights stream as in stream.cuh, and
 * the stream does not end between the halves: while the last gate and up rows are multiplied,
 * the ring already asks for the first rows of the down projection, and goes on doing so while
 * the CTAs wait for each other's part of H.  So the boundary between two launches (2.5 us:
 * docs/notes/hopper_ladder.md) costs nothing as long as the ring holds more than the memory
 * brings in that time.
 *
 *   CTA c                      outputs of H: intermediate / ctas, in passes of at most 16;
 *                              then outputs of O: hidden / ctas, in passes of at most 8
 *   warp w, gate and up        K-blocks w, w + 8, ... of 64 k; a stage is one of them, an m16 tile
 *                              8 gate and 8 up rows, two tiles
 *   warp w, down               the same K-blocks; a stage is four of them, of 8 rows, which are the
 *                              lower half of an m16 tile, whose upper half is zero
 *   between                    H through the workspace: a barrier of the grid, then 4 warps bring
 *                              all of H into the place of X
 *   end of a pass              as in stream.cuh: the same bits for every grid
 *
 * Assumptions: stream_mlp_launch.h. */
#include <cooperative_groups.h>

#include "activation.cuh"
#include "element.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "stream_mlp_launch.h"

#define WARPS tglu_stream_warps(0)
#define THREADS (32 * WARPS) /* that multiply */
#define TOKEN_THREADS (32 * TGLU_STREAM_TOKEN_WARPS)
#define TILES (ROW_TILE_N / 8)           /* m16 tiles of gate and up rows in a stage */
#define DOWN_ROWS TGLU_STREAM_MLP_DOWN_ROWS
#define DOWN_BLOCKS TGLU_STREAM_MLP_DOWN_BLOCKS
#define SLOT_BYTES (16 * THREADS)        /* one 16-byte chunk of every thread */
#define STAGE_BYTES (4 * TILES * SLOT_BYTES)
#define PARTIAL_FLOATS (TILES * 128)     /* of one warp */
#define BLOCK_BYTES (2 * TGLU_TILE_K)    /* a K-block of one row */
#define STEP_BYTES (WARPS * BLOCK_BYTES) /* from one K-block of a warp to its next */

enum { BARRIER_TOKENS = 1, BARRIER_PARTIALS = 2 };

static_assert(ROW_TILE_M == 8 && ROW_TILE_N == 16, "one mma of tokens, two of rows");
static_assert(2 * DOWN_BLOCKS == 4 * TILES, "a stage is as large in both halves");
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

/* Bytes of the 16 at element k of a row of k_size that lie within it. */
TGLU_DEVICE uint32_t bytes_within(int32_t k, int32_t k_size) {
  return 2 * min(8, max(0, k_size - k));
}

/* The loader's place: one stage of one pass of one half. */
typedef struct stream_cursor {
  const char *row, *up_row; /* this lane's first row of the pass, at its first chunk's k   */
  int32_t k;                /* of that chunk                                               */
  int32_t rows;             /* of the pass from this lane's first on; then every 8th is its */
  int32_t left;             /* stages of the pass from here on                             */
  int32_t pass;             /* of this half                                                */
  bool down;                /* which half                                                  */
} stream_cursor;

TGLU_DEVICE void begin_pass(const tglu_stream_launch &p, const half_work &w, stream_cursor &at,
                            int warp, int lane) {
  const int32_t row = w.begin + at.pass * w.height + lane / 4;
  at.rows = height_of(w, at.pass) - lane / 4;
  at.left = w.stages;
  at.k = warp * TGLU_TILE_K + 8 * (lane % 4);
  const int64_t offset = (row * p.ldw + at.k) * 2;
  at.row = (const char *)p.gate + offset;
  at.up_row = (const char *)p.up + offset;
}

/* This lane's two chunks of one row's K-block at element k, of which Whole says that it ends
 * within K. */
template <bool Whole>
TGLU_DEVICE void load_block(uint32_t to, const char *from, int32_t k, int32_t k_size) {
  if (Whole) {
    async_copy(to, from);
    async_copy(to + SLOT_BYTES, from + 64);
  } else {
    async_copy_part(to, from, bytes_within(k, k_size));
    async_copy_part(to + SLOT_BYTES, from + 64, bytes_within(k + 32, k_size));
  }
}

/* Slots of rows and K-blocks that are not there keep what they held: those rows' outputs are not
 * stored, those K-blocks not multiplied. */
template <bool Whole>
TGLU_DEVICE void load_gate_up(const tglu_stream_launch &p, const stream_cursor &at,
                              uint32_t slot) {
#pragma unroll
  for (int i = 0; i < TILES; i++) {
    if (8 * i >= at.rows) continue;
    load_block<Whole>(slot + 4 * i * SLOT_BYTES, at.row + 16 * i * p.ldw, at.k, p.k);
    load_block<Whole>(slot + (4 * i + 2) * SLOT_BYTES, at.up_row + 16 * i * p.ldw, at.k, p.k);
  }
}

template <bool Whole>
TGLU_DEVICE void load_down(const tglu_stream_launch &p, const stream_cursor &at, uint32_t slot,
                           int lane) {
  if (at.rows <= 0) return;
#pragma unroll
  for (int i = 0; i < DOWN_BLOCKS; i++) {
    const int32_t k = at.k + i * WARPS * TGLU_TILE_K;
    if (!Whole && k - 8 * (lane % 4) >= p.k) break;
    load_block<Whole>(slot + 2 * i * SLOT_BYTES, at.row + i * STEP_BYTES, k, p.k);
  }
}

/* Asks for the cursor's stage and moves on. */
TGLU_DEVICE void load_stage(const tglu_stream_mlp_launch &p, const half_work &glu,
                            const half_work &down, stream_cursor &at, uint32_t slot, int warp,
                            int lane) {
  const int32_t stage_blocks = at.down ? DOWN_BLOCKS : 1;
  const int32_t end = at.k - 8 * (lane % 4) + ((stage_blocks - 1) * WARPS + 1) * TGLU_TILE_K;
  if (!at.down) {
    if (end <= p.glu.k) {
      load_gate_up<true>(p.glu, at, slot);
    } else {
      load_gate_up<false>(p.glu, at, slot);
    }
  } else if (end <= p.down.k) {
    load_down<true>(p.down, at, slot, lane);
  } else {
    load_down<false>(p.down, at, slot, lane);
  }
  if (--at.left > 0) {
    at.k += stage_blocks * WARPS * TGLU_TILE_K;
    at.row += stage_blocks * STEP_BYTES;
    at.up_row += STEP_BYTES;
    return;
  }
  at.pass++;
  if (!at.down && (at.pass == glu.passes)) {
    at.down = true;
    at.pass = 0;
  }
  begin_pass(at.down ? p.down : p.glu, at.down ? down : glu, at, warp, lane);
}

/* All columns of m rows of X or H into shared memory, zeros up to a whole K-block, by the token
 * warps.  CTAs begin at different places, since all of them read the same lines. */
TGLU_DEVICE void load_tokens(const tglu_stream_launch &p, uint32_t to, uint32_t pitch,
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

/* acc += the gate and up rows in the slot times the tokens' K-block at x: 4 k-steps of 16. */
TGLU_DEVICE void multiply_gate_up(uint32_t slot, uint32_t x, float (&acc)[TILES][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint4 token = load_shared_16(x + 64 * half);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
      const uint4 gate = load_shared_16(slot + (4 * i + half) * SLOT_BYTES);
      const uint4 up = load_shared_16(slot + (4 * i + 2 + half) * SLOT_BYTES);
      mma_m16n8k16(acc[i], gate.x, up.x, gate.y, up.y, token.x, token.y);
      mma_m16n8k16(acc[i], gate.z, up.z, gate.w, up.w, token.z, token.w);
    }
  }
}

/* acc += the down rows in the slot times `blocks` K-blocks of the tokens from x on. */
TGLU_DEVICE void multiply_down(uint32_t slot, uint32_t x, int32_t blocks, float (&acc)[2][4]) {
#pragma unroll
  for (int i = 0; i < DOWN_BLOCKS; i++) {
    if (i >= blocks) break;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint4 token = load_shared_16(x + i * STEP_BYTES + 64 * half);
      const uint4 row = load_shared_16(slot + (2 * i + half) * SLOT_BYTES);
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
  uint32_t begin, slot; /* this lane's chunk of the first and of the next stage */
  int32_t left;         /* stages still to be asked for                         */
} stream_ring;

/* Asks for one more stage in the place of the one just multiplied. */
TGLU_DEVICE void refill(const tglu_stream_mlp_launch &p, const half_work &glu,
                        const half_work &down, stream_cursor &at, stream_ring &ring, int warp,
                        int lane) {
  if (ring.left > 0) load_stage(p, glu, down, at, ring.slot, warp, lane);
  async_commit();
  ring.left--;
  ring.slot += STAGE_BYTES;
  if (ring.slot == ring.begin + ROW_STAGES * STAGE_BYTES) ring.slot = ring.begin;
}

TGLU_DEVICE void multiply_all(const tglu_stream_mlp_launch &p, uint32_t slots, float *partials,
                              uint32_t tokens, uint32_t pitch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const half_work glu = work_of(p.glu.n, p.glu.k, ROW_TILE_N, 1, warp);
  const half_work down = work_of(p.down.n, p.down.k, DOWN_ROWS, DOWN_BLOCKS, warp);
  stream_cursor at = {};
  at.down = glu.passes * glu.stages == 0;
  stream_ring ring = {slots, slots, glu.passes * glu.stages + down.passes * down.stages};
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
      multiply_gate_up(ring.slot, x + i * STEP_BYTES, acc);
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
    for (int e = threadIdx.x; e < height * ROW_TILE_M; e += THREADS) {
      const int token = e % ROW_TILE_M, o = e / ROW_TILE_M;
      if (token < p.glu.m) finish_glu(p.glu, partials, begin + o, o, token);
    }
  }

  cooperative_groups::this_grid().sync();
  named_barrier_sync(BARRIER_TOKENS, THREADS + TOKEN_THREADS);
#pragma unroll 1
  for (int32_t pass = 0; pass < down.passes; pass++) {
    float acc[2][4] = {};
#pragma unroll 1
    for (int32_t i = 0; i < down.stages; i++) {
      async_wait<ROW_STAGES - 1>();
      multiply_down(ring.slot, x + i * DOWN_BLOCKS * STEP_BYTES, down.blocks - i * DOWN_BLOCKS,
                    acc);
      refill(p, glu, down, at, ring, warp, lane);
    }
    if (pass > 0) named_barrier_sync(BARRIER_PARTIALS, THREADS);
    own[0] = make_float2(acc[0][0] + acc[1][0], acc[0][1] + acc[1][1]);
    named_barrier_sync(BARRIER_PARTIALS, THREADS);
    const int32_t begin = down.begin + pass * down.height, height = height_of(down, pass);
    for (int e = threadIdx.x; e < height * ROW_TILE_M; e += THREADS) {
      const int token = e % ROW_TILE_M, o = e / ROW_TILE_M;
      if (token < p.down.m) finish_down(p.down, partials, begin + o, o, token);
    }
  }
}

/* X, and when all of the grid's H is there, H in its place. */
TGLU_DEVICE void bring_tokens(const tglu_stream_mlp_launch &p, uint32_t tokens, uint32_t pitch) {
  const uint32_t thread = threadIdx.x - THREADS;
  dependency_wait();
  dependents_launch();
  load_tokens(p.glu, tokens, pitch, thread);
  async_commit();
  async_wait<0>();
  named_barrier_arrive(BARRIER_TOKENS, THREADS + TOKEN_THREADS);
  cooperative_groups::this_grid().sync();
  load_tokens(p.down, tokens, pitch, thread);
  async_commit();
  async_wait<0>();
  named_barrier_arrive(BARRIER_TOKENS, THREADS + TOKEN_THREADS);
}

extern "C" __global__ void __launch_bounds__(THREADS + TOKEN_THREADS, 1)
    ROW_NAME(const __grid_constant__ tglu_stream_mlp_launch p) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  float *partials = (float *)(dynamic + ROW_STAGES * STAGE_BYTES);
  const uint32_t tokens = smem_address(partials + WARPS * PARTIAL_FLOATS);
  const uint32_t pitch = tglu_stream_token_bytes(max(p.glu.k, p.down.k));
  if (threadIdx.x < THREADS) {
    multiply_all(p, smem_address(dynamic) + 16 * threadIdx.x, partials, tokens, pitch);
  } else {
    bring_tokens(p, tokens, pitch);
  }
}
