/* The epilogue of a tile's tail of four columns (tail_launch.h), 64 rows at a time. */
#ifndef TGLU_SM90_EPILOGUE_TAIL_CUH
#define TGLU_SM90_EPILOGUE_TAIL_CUH

#include "epilogue.cuh"
#include "wgmma_odd.cuh"

/* both: a group's four accumulators of this thread, columns 0-3 of the group the gate and 4-7
 * the up of outputs `column`...+3: of four neighbouring lanes the first two hold the gate.  Each
 * gets the other half from the lane beside it, all compute, and each two lanes store one of the
 * two rows, straight to memory. */
TGLU_DEVICE void epilogue_tail(const tglu_glu_launch &p, const epilogue_place &at, int32_t column,
                               const float *both) {
  const int lane = at.thread % 32, warp = at.thread / 32;
  const bool has_gate = lane % 4 < 2;
  const int32_t first = column + 2 * (lane % 2);
  float g[4], u[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float own = wgmma_copy(both[i]);
    const float other = __shfl_xor_sync(0xffffffff, own, 2);
    g[i] = has_gate ? own : other;
    u[i] = has_gate ? other : own;
  }
  if (short_epilogue(p)) {
    factors<4, false, true>(p, first, g, u);
  } else {
    factors<4, false, false>(p, first, g, u);
  }
  const uint32_t upper = pack_pair(g[0] * u[0], g[1] * u[1]);
  const uint32_t lower = pack_pair(g[2] * u[2], g[3] * u[3]);
  store_pair(p, at.row + 16 * warp + lane / 4 + (has_gate ? 0 : 8), first,
             has_gate ? upper : lower);
}

#endif /* TGLU_SM90_EPILOGUE_TAIL_CUH */
