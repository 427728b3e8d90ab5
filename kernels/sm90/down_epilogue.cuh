/* From a consumer warpgroup's accumulators to memory, 64 rows x Columns outputs at a time, for
 * the down rows: bias and residual added in fp32, one rounding; then either through shared
 * memory and TMA, or straight to memory with predicated stores.
 *
 * A residual on 16 bytes is copied into the staging before the mainloop, each element to where
 * its result will go, so that memory's latency passes behind the mainloop and no register is
 * held for it.  Any other residual is read element by element at the end.
 *
 * Shared staging of a warpgroup: as in epilogue.cuh. */
#ifndef TGLU_SM90_DOWN_EPILOGUE_CUH
#define TGLU_SM90_DOWN_EPILOGUE_CUH

#include "down_launch.h"
#include "element.cuh"
#include "ptx.cuh"
#include "smem_layout.h"

/* Where a warpgroup's 64 rows lie: tile origin in the output. */
typedef struct down_place {
  int32_t row, column; /* of the 64 x Columns block                     */
  uint32_t staging;    /* shared address of this warpgroup's staging    */
  int barrier;         /* named barrier of this warpgroup's 128 threads */
  int thread;          /* 0..127 within the warpgroup                   */
} down_place;

/* True for a launch whose residual comes through the staging. */
TGLU_DEVICE bool residual_is_staged(const tglu_down_launch &p) {
  return p.residual != nullptr && !(p.flags & TGLU_LAUNCH_DIRECT_STORE) &&
         ((uintptr_t)p.residual & 15) == 0 && (p.ldr & 7) == 0;
}

/* Shared address of 8 columns of one row of a block. */
template <int Columns>
TGLU_DEVICE uint32_t staging_chunk(const down_place &at, int32_t row, int32_t chunk) {
  constexpr int box = tglu_out_box_columns(Columns);
  return at.staging + chunk / (box / 8) * (64 * box * 2) +
         tglu_out_box_offset(box, tglu_out_box_swizzle(Columns), row, chunk % (box / 8));
}

/* Starts the copy of a block's residual into the staging, once this warpgroup's last TMA store
 * has read it.  N is a multiple of 8 here: a chunk is all inside or all outside. */
template <int Columns>
TGLU_DEVICE void fetch_residual(const tglu_down_launch &p, const down_place &at) {
  if (at.thread == 0) tma_store_wait_read();
  named_barrier_sync(at.barrier, 128);
#pragma unroll 4
  for (int i = at.thread; i < 64 * (Columns / 8); i += 128) {
    const int32_t row = i / (Columns / 8), chunk = i % (Columns / 8);
    if (at.row + row >= p.m || at.column + 8 * chunk >= p.n) continue; /* never stored */
    async_copy(staging_chunk<Columns>(at, row, chunk),
               (const uint16_t *)p.residual + (at.row + row) * p.ldr + at.column + 8 * chunk);
  }
  async_commit();
}

TGLU_DEVICE void add_pair(float &low, float &high, uint32_t pair) {
  low += element_to_float((uint16_t)pair);
  high += element_to_float((uint16_t)(pair >> 16));
}

/* Elements column, column + 1 of a row; zero outside the limit. */
TGLU_DEVICE uint32_t load_pair(const uint16_t *row, int32_t column, int32_t n) {
  const uint32_t low = column < n ? row[column] : 0;
  const uint32_t high = column + 1 < n ? row[column + 1] : 0;
  return low | high << 16;
}

/* Adds the residual from memory: v[4 j + 2 h + c] is row + 8 h, column + 8 j + c. */
template <int Count>
TGLU_DEVICE void add_residual(const tglu_down_launch &p, int32_t row, int32_t column,
                              float (&v)[Count]) {
#pragma unroll
  for (int i = 0; i < Count / 2; i++) {
    if (row + 8 * (i % 2) >= p.m) continue;
    const uint16_t *residual = (const uint16_t *)p.residual + (row + 8 * (i % 2)) * p.ldr;
    add_pair(v[2 * i], v[2 * i + 1], load_pair(residual, column + 8 * (i / 2), p.n));
  }
}
template <int Count>
TGLU_DEVICE void store_direct(const tglu_down_launch &p, int32_t row, int32_t column,
                              const uint32_t (&pair)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; i++) {
    if (row + 8 * (i % 2) >= p.m) continue;
    uint16_t *out = (uint16_t *)p.out_pointer + (row + 8 * (i % 2)) * p.ldo + column + 8 * (i / 2);
    if (column + 8 * (i / 2) < p.n) out[0] = (uint16_t)pair[i];
    if (column + 8 * (i / 2) + 1 < p.n) out[1] = (uint16_t)(pair[i] >> 16);
  }
}

/* Count / 4 groups of 8 columns, the first one being group `group` of the block.  Count is 8
 * (stmatrix x4) or 4 (x2).  Short: the residual, if any, is a staged one, and the stores go by
 * TMA. */
template <int Count, int Columns, bool Short>
TGLU_DEVICE void down_groups(const tglu_down_launch &p, const down_place &at, int group,
                             const float *acc) {
  const int lane = at.thread % 32, warp = at.thread / 32;
  const int32_t column = at.column + 8 * group + 2 * (lane % 4);
  const int32_t row = at.row + 16 * warp + lane / 4;
  const uint32_t address =
      staging_chunk<Columns>(at, 16 * warp + lane % 16, group + (Count == 8 ? lane / 16 : 0));
  float v[Count];
  uint32_t pair[Count / 2];
#pragma unroll
  for (int i = 0; i < Count; i++) v[i] = acc[4 * group + i];
  if (p.bias != nullptr) {
#pragma unroll
    for (int j = 0; j < Count / 4; j++) {
      const uint32_t bias = load_pair((const uint16_t *)p.bias, column + 8 * j, p.n);
      add_pair(v[4 * j], v[4 * j + 1], bias);
      add_pair(v[4 * j + 2], v[4 * j + 3], bias);
    }
  }
  if (Short && p.residual != nullptr) {
    if constexpr (Count == 8) {
      ldmatrix_x4(pair, address);
    } else {
      ldmatrix_x2(pair, address);
    }
#pragma unroll
    for (int i = 0; i < Count / 2; i++) add_pair(v[2 * i], v[2 * i + 1], pair[i]);
  } else if (p.residual != nullptr) {
    add_residual(p, row, column, v);
  }
#pragma unroll
  for (int i = 0; i < Count / 2; i++) pair[i] = pack_pair(v[2 * i], v[2 * i + 1]);
  if (!Short && (p.flags & TGLU_LAUNCH_DIRECT_STORE)) {
    store_direct(p, row, column, pair);
  } else if constexpr (Count == 8) {
    stmatrix_x4(address, pair[0], pair[1], pair[2], pair[3]);
  } else {
    stmatrix_x2(address, pair[0], pair[1]);
  }
}

template <int Columns, bool Short>
TGLU_DEVICE void down_block(const tglu_down_launch &p, const down_place &at, const float *acc) {
#pragma unroll
  for (int group = 0; group + 1 < Columns / 8; group += 2) {
    down_groups<8, Columns, Short>(p, at, group, acc);
  }
  if constexpr (Columns % 16 != 0) {
    down_groups<4, Columns, Short>(p, at, Columns / 8 - 1, acc);
  }
}

/* The whole block from Columns / 2 accumulators in fragment order, its residual fetched if it
 * is a staged one.  Returns with the stores in flight. */
template <int Columns>
TGLU_DEVICE void down_store(const tglu_down_launch &p, const down_place &at, const float *acc) {
  const bool direct = p.flags & TGLU_LAUNCH_DIRECT_STORE;
  const bool staged_residual = residual_is_staged(p);
  if (staged_residual) {
    async_wait<0>();
  } else if (at.thread == 0) {
    tma_store_wait_read();
  }
  named_barrier_sync(at.barrier, 128);
  if (direct || (p.residual != nullptr && !staged_residual)) {
    down_block<Columns, false>(p, at, acc);
  } else {
    down_block<Columns, true>(p, at, acc);
  }
  if (direct) return;
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

#endif /* TGLU_SM90_DOWN_EPILOGUE_CUH */
