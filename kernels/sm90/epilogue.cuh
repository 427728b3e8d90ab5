/* From a consumer warpgroup's accumulators to memory, 64 rows x Columns outputs at a
 * time: bias, activation, product, one rounding; then either through shared memory
 * and TMA, or straight to memory with predicated stores.
 *
 * Shared staging of a warpgroup: Columns / box boxes of [64 x box] 16-bit elements, box =
 * tglu_out_box_columns(Columns). */
#ifndef TGLU_SM90_EPILOGUE_CUH
#define TGLU_SM90_EPILOGUE_CUH

#include "activation.cuh"
#include "element.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "smem_layout.h"

/* Where a warpgroup's 64 rows lie: tile origin in the output. */
typedef struct epilogue_place {
  int32_t row, column;       /* of the 64 x Columns block                       */
  uint32_t staging;          /* shared address of this warpgroup's staging      */
  int barrier;               /* named barrier of this warpgroup's 128 threads   */
  int thread;                /* 0..127 within the warpgroup                     */
} epilogue_place;

/* Adds bias to v[4 j + 2 h + c], columns first + 8 j + c, j < Count / 4. */
template <int Count>
TGLU_DEVICE void add_bias(float (&v)[Count], const void *bias, int64_t stride, int32_t first,
                          int32_t n) {
  if (bias == nullptr) return;
  const uint16_t *b = (const uint16_t *)bias;
#pragma unroll
  for (int j = 0; j < Count / 4; j++) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const int32_t column = first + 8 * j + c;
      const float value = column < n ? element_to_float(b[column * stride]) : 0.0f;
      v[4 * j + c] += value;
      v[4 * j + 2 + c] += value;
    }
  }
}

/* One row's pair of neighbouring outputs, straight to memory. */
TGLU_DEVICE void store_pair(const tglu_glu_launch &p, int32_t row, int32_t column, uint32_t pair) {
  if (row >= p.m) return;
  uint16_t *out = (uint16_t *)p.out_pointer + row * p.ldo + column;
  if (column + 1 < p.n && ((uintptr_t)out & 3) == 0) {
    *(uint32_t *)out = pair;
  } else {
    if (column < p.n) out[0] = (uint16_t)pair;
    if (column + 1 < p.n) out[1] = (uint16_t)(pair >> 16);
  }
}

/* The gate and up factors of Count accumulators, silu without biases inlined as the
 * short path.  GateDone: g holds the factors already (gate_first). */
template <int Count, bool GateDone, bool Short>
TGLU_DEVICE void factors(const tglu_glu_launch &p, int32_t first, float (&g)[Count],
                         float (&u)[Count]) {
  if constexpr (Short) {
#pragma unroll
    for (int i = 0; i < Count && !GateDone; i++) g[i] = silu(g[i]);
  } else {
    if (!GateDone) {
      add_bias<Count>(g, p.gate_bias, p.bias_stride, first, p.n);
      gate_factor<Count>(p.activation, p.alpha, p.limit, g);
    }
    add_bias<Count>(u, p.up_bias, p.bias_stride, first, p.n);
    up_factor<Count>(p.activation, p.limit, p.offset, u);
  }
}

/* Count / 4 groups of 8 columns, the first one being group `group` of the block:
 * accumulators -> packed pairs -> staging or memory.  Count is 8 (stmatrix x4) or 4
 * (x2). */
template <int Count, int Columns, bool GateDone, bool Short>
TGLU_DEVICE void epilogue_groups(const tglu_glu_launch &p, const epilogue_place &at, int group,
                                 const float *gate, const float *up) {
  const int lane = at.thread % 32, warp = at.thread / 32;
  const int32_t first = at.column + 8 * group + 2 * (lane % 4);
  float g[Count], u[Count];
#pragma unroll
  for (int i = 0; i < Count; i++) {
    g[i] = gate[4 * group + i];
    u[i] = up[4 * group + i];
  }
  factors<Count, GateDone, Short>(p, first, g, u);
  uint32_t pair[Count / 2];
#pragma unroll
  for (int i = 0; i < Count / 2; i++) {
    pair[i] = pack_pair(g[2 * i] * u[2 * i], g[2 * i + 1] * u[2 * i + 1]);
  }
  if (!Short && (p.flags & TGLU_LAUNCH_DIRECT_STORE)) {
    const int32_t row = at.row + 16 * warp + lane / 4;
#pragma unroll
    for (int i = 0; i < Count / 2; i++) {
      store_pair(p, row + 8 * (i % 2), first + 8 * (i / 2), pair[i]);
    }
    return;
  }
  constexpr int box = tglu_out_box_columns(Columns);
  constexpr int swizzle = tglu_out_box_swizzle(Columns);
  const int32_t chunk = group + (Count == 8 ? lane / 16 : 0);
  const uint32_t address =
      at.staging + chunk / (box / 8) * (64 * box * 2) +
      tglu_out_box_offset(box, swizzle, 16 * warp + lane % 16, chunk % (box / 8));
  if constexpr (Count == 8) {
    stmatrix_x4(address, pair[0], pair[1], pair[2], pair[3]);
  } else {
    stmatrix_x2(address, pair[0], pair[1]);
  }
}

template <int Columns, bool GateDone, bool Short>
TGLU_DEVICE void epilogue_block(const tglu_glu_launch &p, const epilogue_place &at,
                                const float *gate, const float *up) {
#pragma unroll
  for (int group = 0; group + 1 < Columns / 8; group += 2) {
    epilogue_groups<8, Columns, GateDone, Short>(p, at, group, gate, up);
  }
  if constexpr (Columns % 16 != 0) {
    epilogue_groups<4, Columns, GateDone, Short>(p, at, Columns / 8 - 1, gate, up);
  }
}

/* True for a launch that takes the short epilogue: silu, no biases, stores by TMA. */
TGLU_DEVICE bool short_epilogue(const tglu_glu_launch &p) {
  return p.activation == ACTIVATION_SILU && p.gate_bias == nullptr && p.up_bias == nullptr &&
         !(p.flags & TGLU_LAUNCH_DIRECT_STORE);
}

/* The whole block.  gate, up: Columns / 2 accumulators each, in fragment order.
 * Overwrites the staging only after this warpgroup's last TMA store has read it, and
 * returns with the new stores in flight. */
template <int Columns, bool GateDone>
TGLU_DEVICE void epilogue_store(const tglu_glu_launch &p, const epilogue_place &at,
                                const float *gate, const float *up) {
  if (at.thread == 0) tma_store_wait_read();
  named_barrier_sync(at.barrier, 128);
  if (short_epilogue(p)) {
    epilogue_block<Columns, GateDone, true>(p, at, gate, up);
  } else {
    epilogue_block<Columns, GateDone, false>(p, at, gate, up);
    if (p.flags & TGLU_LAUNCH_DIRECT_STORE) return;
  }
  fence_proxy_async();
  named_barrier_sync(at.barrier, 128);
  if (at.thread == 0 && at.row < p.m) {
    constexpr int box = tglu_out_box_columns(Columns);
    for (int i = 0; i < Columns / box; i++) {
      if (at.column + i * box < p.n) {
        tma_store_2d(&p.out, at.staging + i * (64 * box * 2), at.column + i * box, at.row);
      }
    }
    tma_store_commit();
  }
}

#endif /* TGLU_SM90_EPILOGUE_CUH */
