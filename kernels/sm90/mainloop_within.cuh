/* mainloop() without the blocks of 64 rows that lie beyond M, in the last row of tiles: nothing of
 * them is stored, and tensor cores take power for whatever they multiply (docs/notes, step 43). */
#ifndef TGLU_SM90_MAINLOOP_WITHIN_CUH
#define TGLU_SM90_MAINLOOP_WITHIN_CUH

#include "mainloop.cuh"

/* What all threads of the warp hold true: as a vote, which the compiler takes for the same in all.
 * Behind a branch that it does not know to be, it computes a loop's addresses and descriptors
 * thread by thread and moves them to uniform registers in front of every wgmma: 3-7 % of a down
 * projection of 27648 at M = 256 (H200, 2026-11-30). */
TGLU_DEVICE bool warp_agrees(bool condition) { return __any_sync(0xffffffff, condition); }

/* The same walk over the stages without a product. */
TGLU_DEVICE void mainloop_nothing(int32_t k_size, const smem_map &smem, ring_position &at,
                                  int thread) {
  int32_t previous = -1;
  for (int32_t k = 0; k < k_size; k += TGLU_TILE_K) {
    mbarrier_wait(smem.full + 8 * at.stage, at.parity);
    if (previous >= 0) ring_release<RING_CLUSTER>(smem, previous, thread);
    previous = at.stage;
    ring_advance<ROW_STAGES>(at);
  }
}

/* mainloop() for this warpgroup's first `rows` rows (one value in all threads; none, or more than
 * there are, will do; Some: at least one).  Blocks that lie beyond keep their accumulators as they
 * are.
 * NOTE: each number of blocks is a loop of its own: wgmma under a condition inside a loop would be
 * serialised.  Two blocks in a cluster are always multiplied, since 192 accumulators and remote
 * barriers leave no register for more. */
template <int Blocks, int Width, int ABytes, int StageBytes, bool Some>
TGLU_DEVICE void mainloop_within(int32_t rows, int32_t k_size, const smem_map &smem,
                                 ring_position &at, uint32_t a_offset, int thread,
                                 float (&acc)[Blocks][Width / 2], uint32_t b_offset = 0) {
  static_assert(Blocks == 1 || Blocks == 2, "a loop for each number of blocks");
  constexpr bool all = (Blocks == 2 && RING_CLUSTER > 1) || (Blocks == 1 && Some);
  if (all || warp_agrees(rows > 64 * (Blocks - 1))) {
    mainloop<Blocks, Width, ABytes, StageBytes>(k_size, smem, at, a_offset, thread, acc, b_offset);
  } else if (Blocks == 2 && (Some || warp_agrees(rows > 0))) {
    mainloop<1, Width, ABytes, StageBytes>(k_size, smem, at, a_offset, thread,
                                           *(float (*)[1][Width / 2])&acc, b_offset);
  } else if (!Some) {
    mainloop_nothing(k_size, smem, at, thread);
  }
}

#endif /* TGLU_SM90_MAINLOOP_WITHIN_CUH */
