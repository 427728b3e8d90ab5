/* The down projection for very few tokens, O = X W^T + b (+ R): one m64 tile of wgmma holds 8
 * outputs x 8 slices of K, row = 8 output + slice, fetched by TMA from a 3-D map; the tokens lie
 * beside it the same way, column = 8 token + slice.  Of the product only elements of equal slice
 * count: the diagonals of its 8 x 8 blocks, whose sum is an output.  So a CTA has few outputs and
 * reads each of their weights once, in 64 k of 8 places at a time, without partial sums from other
 * CTAs.
 *
 *   CTA (x, y)          its share of the units of 4 outputs, for the tokens of tile y, in passes of
 *                       at most tile_n outputs
 *   warps 0-7           bring the tokens, all of K (cp.async), then multiply: two warpgroups, which
 *                       take turns with the m64 tiles of a stage; tile_n = 8: with the stages
 *   warp 8              one thread: TMA W -> full[s], which with stable weights waits for no
 *                       kernel
 *   stage               a K-block of 64 k x 8 slices of a pass: ceil(height / 8) tiles of 8 KB
 *   bytes in flight     as many stages as fit beside the tokens, at most ROW_STAGES
 *
 * In the fragment (wgmma.cuh) lane l of warp w holds the diagonal element of slice l / 4 if l % 4
 * is l / 8, of outputs 2 w and 2 w + 1.  They are added by shuffles, always in the same order.
 * Assumptions: down_diag_launch.h. */
#include "diag_load.cuh"
#include "element.cuh"

#define MOST_TILES ((ROW_TILE_N / 8 + 1) / 2) /* of a warpgroup in a stage  */

static_assert(CONSUMERS / 64 >= ROW_TILE_M, "threads for the tails of all tokens");
static_assert(ROW_TILE_M <= 4 && ROW_TILE_N % 8 == 0 && ROW_TILE_N <= 48, "tokens and outputs");
static_assert(ROW_CLUSTER_M == 1, "no clusters");
static_assert(ROW_STAGES >= TGLU_DIAG_LEAST_STAGES && ROW_STAGES <= 32, "stages");
static_assert(2 * 8 * ROW_TILE_M * 4 + 2 * ROW_STAGES * 8 <= TGLU_DIAG_END_BYTES, "the end");

enum { BARRIER_CONSUMERS = 1 };

/* All of K of this CTA's tokens, by all consumers; CTAs begin at different places, since all of
 * them read the same lines. */
TGLU_DEVICE void load_tokens(const tglu_down_diag_launch &p, const diag_work &w, int thread) {
  const int32_t slice = thread / 8 % 8, chunk = thread % 8, first = thread / 64;
  const uint32_t to = w.x + slice * 128 + ((chunk ^ slice) << 4);
  const char *x = (const char *)p.x + (int64_t)w.token * p.ldx * 2;
  const char *from = x + (slice * w.main_blocks * TGLU_TILE_K + 8 * chunk) * 2;
  const int32_t begin = w.main_blocks > 0 ? blockIdx.x % (uint32_t)w.main_blocks : 0;
#pragma unroll 1
  for (int32_t token = 0; token < w.tokens; token++, from += p.ldx * 2) {
#pragma unroll 2
    for (int32_t i = first; i < w.main_blocks; i += CONSUMERS / 64) {
      const int32_t block = i + begin < w.main_blocks ? i + begin : i + begin - w.main_blocks;
      async_copy(to + (block * w.tokens + token) * TOKEN_BYTES, from + block * (TGLU_TILE_K * 2));
    }
  }
  if (w.k_blocks > w.main_blocks && first < w.tokens) { /* the tail of token `first` */
    const int32_t main_k = w.main_blocks * TGLU_DIAG_BLOCK_K;
    const int32_t length = (p.k - main_k) / TGLU_DIAG_SLICES;
    const uint32_t at = to + (w.main_blocks * w.tokens + first) * TOKEN_BYTES;
    if (8 * chunk < length) {
      async_copy(at, x + (first * p.ldx + main_k + slice * length + 8 * chunk) * 2);
    } else {
      store_shared_16(at, make_uint4(0, 0, 0, 0));
    }
  }
  async_commit();
  async_wait<0>();
  fence_proxy_async();
}

/* acc[i] = this warpgroup's i-th tile of the pass, whose first step of the ring is `step`.  The
 * tiles are 2 apart, from `tile` on; with SPLIT_K so are its K-blocks, from `first` on. */
template <int Tokens, int Tiles>
TGLU_DEVICE void multiply(const diag_work &w, int32_t step, int32_t tile, int32_t first, int thread,
                          float (&acc)[Tiles][4 * Tokens]) {
  const int32_t stride = SPLIT_K ? 2 : 1;
  int32_t previous = -1;
  ring_position at = {(step + first) % w.stages, (uint32_t)((step + first) / w.stages) & 1};
#pragma unroll
  for (int i = 0; i < Tiles; i++) {
#pragma unroll
    for (int e = 0; e < 4 * Tokens; e++) acc[i][e] = 0.0f;
  }
#pragma unroll 1
  for (int32_t block = first; block < w.k_blocks; block += stride) {
    mbarrier_wait(w.full + 8 * at.stage, at.parity);
    const uint64_t a =
        wgmma_descriptor(w.ring + at.stage * w.stage_bytes + (uint32_t)tile * TILE_BYTES);
    const uint64_t b = wgmma_descriptor(w.x + block * (Tokens * TOKEN_BYTES));
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < TGLU_TILE_K / 16; s++) {
#pragma unroll
      for (int i = 0; i < Tiles; i++) {
        wgmma_m64k16(acc[i], a + i * (2 * TILE_BYTES / 16) + 2 * s, b + 2 * s, 1);
      }
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (previous >= 0) ring_release<1>({0, 0, 0, w.empty}, previous, thread);
    previous = at.stage;
    move_on(w, at, stride);
  }
  wgmma_wait<0>();
  if (previous >= 0) ring_release<1>({0, 0, 0, w.empty}, previous, thread);
#pragma unroll
  for (int i = 0; i < Tiles; i++) wgmma_pin(acc[i]);
}

/* The sum that this lane stores: of output lane % 2 of the warp's two, token lane / 2; of lanes
 * from 2 Tokens on anything. */
template <int Tokens> TGLU_DEVICE float sum_of(const float (&acc)[4 * Tokens], int lane) {
  const int holder = (lane & ~3) | lane >> 3; /* of the diagonal element in these four lanes */
  const bool odd = lane >> 2 & 1;
  float mine = 0.0f;
#pragma unroll
  for (int v = 0; v < 2 * Tokens; v++) {
    float sum = odd ? acc[2 * v + 1] : acc[2 * v];
    sum = __shfl_sync(0xffffffff, sum, holder);
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) sum += __shfl_xor_sync(0xffffffff, sum, apart);
    if (lane == v) mine = sum;
  }
  return mine;
}

/* One pass of a warpgroup.  Rows of tiles from the pass's end on are what the slot held before;
 * their outputs are not stored. */
template <int Tokens, int Tiles>
TGLU_DEVICE void run_pass(const tglu_down_diag_launch &p, const diag_work &w, int32_t pass,
                          int32_t tile, int warpgroup, int thread) {
  const int lane = thread % 32, warp = thread / 32;
  const int32_t end = min((w.unit + min((pass + 1) * w.height, w.units)) * TGLU_DIAG_UNIT, p.n);
  const int32_t n = (w.unit + pass * w.height) * TGLU_DIAG_UNIT + 8 * tile + 2 * warp + lane % 2;
  const int64_t m = w.token + lane / 2;
  const bool adds =
      lane < 2 * Tokens && (SPLIT_K ? warpgroup == 0 : warpgroup < (w.height + 1) / 2);
  float bias[Tiles], residual[Tiles], acc[Tiles][4 * Tokens];
#pragma unroll
  for (int i = 0; i < Tiles; i++) {
    const int32_t at = n + 16 * i;
    bias[i] = residual[i] = 0.0f;
    if (!adds || at >= end) continue;
    if (p.bias != nullptr) bias[i] = element_to_float(((const uint16_t *)p.bias)[at]);
    if (p.residual != nullptr) {
      residual[i] = element_to_float(((const uint16_t *)p.residual)[m * p.ldr + at]);
    }
  }
  multiply<Tokens, Tiles>(w, pass * w.k_blocks, tile, SPLIT_K ? warpgroup : 0, thread, acc);
#pragma unroll
  for (int i = 0; i < Tiles; i++) {
    float value = sum_of<Tokens>(acc[i], lane);
    if (SPLIT_K) {
      const uint32_t place =
          w.partials + ((pass % 2 * 4 + warp) * (2 * ROW_TILE_M) + lane) * sizeof(float);
      if (warpgroup == 1 && lane < 2 * Tokens) store_shared(place, __float_as_uint(value));
      named_barrier_sync(BARRIER_CONSUMERS, CONSUMERS);
      if (adds) value += __uint_as_float(load_shared(place));
    }
    const int32_t at = n + 16 * i;
    if (!adds || at >= end) continue;
    value = value + bias[i] + residual[i];
    ((uint16_t *)p.out)[m * p.ldo + at] = (uint16_t)pack_pair(value, 0.0f);
  }
}

/* The pass with as many tiles as this warpgroup has; one without any repeats another's and does
 * not store them. */
template <int Tokens, int Tiles>
TGLU_DEVICE void run_tiles(const tglu_down_diag_launch &p, const diag_work &w, int32_t pass,
                           int32_t tile, int32_t tiles, int warpgroup, int thread) {
  if constexpr (Tiles > 1) {
    if (tiles < Tiles) {
      run_tiles<Tokens, Tiles - 1>(p, w, pass, tile, tiles, warpgroup, thread);
      return;
    }
  }
  run_pass<Tokens, Tiles>(p, w, pass, tile, warpgroup, thread);
}

template <int Tokens>
TGLU_DEVICE void consume(const tglu_down_diag_launch &p, const diag_work &w, int warpgroup,
                         int thread) {
  if constexpr (Tokens > 1) {
    if (w.tokens < Tokens) {
      consume<Tokens - 1>(p, w, warpgroup, thread);
      return;
    }
  }
  const int32_t slots = (w.height + 1) / 2;
#pragma unroll 1
  for (int32_t pass = 0; pass < w.passes; pass++) {
    const int32_t tile = SPLIT_K || slots == 1 ? 0 : warpgroup;
    run_tiles<Tokens, MOST_TILES>(p, w, pass, tile, (slots - tile + 1) / 2, warpgroup, thread);
  }
}

extern "C" __global__ void __launch_bounds__(TGLU_DIAG_THREADS, 1)
    ROW_NAME(const __grid_constant__ tglu_down_diag_launch p) {
  extern __shared__ uint8_t dynamic[];
  const diag_work w = work_of(p, dynamic);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  begin(p, w);
  if (warpgroup == 2) {
    load(p, w);
    return;
  }
  dependency_wait();
  dependents_launch();
  load_tokens(p, w, threadIdx.x);
  named_barrier_sync(BARRIER_CONSUMERS, CONSUMERS);
  consume<ROW_TILE_M>(p, w, warpgroup, threadIdx.x % 128);
}
