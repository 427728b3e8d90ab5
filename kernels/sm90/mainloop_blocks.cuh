/* mainloop() for a number of blocks that is known only when the kernel runs. */
#ifndef TGLU_SM90_MAINLOOP_BLOCKS_CUH
#define TGLU_SM90_MAINLOOP_BLOCKS_CUH

#include "mainloop.cuh"

/* mainloop() for both blocks of 64 rows, or for the first alone: the second's accumulators then
 * stay as they are.  `one` is the same in all threads of the warpgroup.
 * NOTE: each number of blocks is a loop of its own, since wgmma under a condition inside a loop is
 * serialised; and the condition is a vote, which the compiler takes for the same in all threads.
 * Behind another it computes addresses and descriptors thread by thread and moves them to uniform
 * registers in front of every wgmma (3-7 % at K = 27648, M = 256, H200, 2026-11-30). */
template <int Width, int ABytes, int StageBytes>
TGLU_DEVICE void mainloop_one_or_two(bool one, int32_t k_size, const smem_map &smem,
                                     ring_position &at, uint32_t a_offset, int thread,
                                     float (&acc)[2][Width / 2]) {
  if (__any_sync(0xffffffff, one)) {
    mainloop<1, Width, ABytes, StageBytes>(k_size, smem, at, a_offset, thread,
                                           *(float (*)[1][Width / 2])&acc);
  } else {
    mainloop<2, Width, ABytes, StageBytes>(k_size, smem, at, a_offset, thread, acc);
  }
}

#endif /* TGLU_SM90_MAINLOOP_BLOCKS_CUH */
