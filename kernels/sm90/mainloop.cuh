/* A consumer warpgroup's walk over K: waits for a stage, issues its wgmma, gives the
 * stage before back once its own are done.  Uses ROW_STAGES and RING_CLUSTER, the CTAs that
 * fill one another's stages: ROW_CLUSTER_M, unless the schedule file says otherwise. */
#ifndef TGLU_SM90_MAINLOOP_CUH
#define TGLU_SM90_MAINLOOP_CUH

#include "pipeline.cuh"
#include "wgmma.cuh"

#ifndef RING_CLUSTER
#define RING_CLUSTER ROW_CLUSTER_M
#endif

/* acc[b] = A_b B^T over all of K for Blocks blocks of 64 rows and Width rows of B.
 * a_offset: bytes from a stage's start to this warpgroup's rows; b_offset: from the start of
 * the stage's B.  Returns with the last group of wgmma in flight and the last stage
 * unreleased, so that the caller can pass the tensor cores on before it waits. */
template <int Blocks, int Width, int ABytes, int StageBytes>
TGLU_DEVICE void mainloop(int32_t k_size, const smem_map &smem, ring_position &at,
                          uint32_t a_offset, int thread, float (&acc)[Blocks][Width / 2],
                          uint32_t b_offset = 0) {
  int32_t previous = -1;
  for (int32_t k = 0; k < k_size; k += TGLU_TILE_K) {
    mbarrier_wait(smem.full + 8 * at.stage, at.parity);
    const uint32_t stage = smem.ring + at.stage * StageBytes;
    const uint64_t desc_a = wgmma_descriptor(stage + a_offset);
    const uint64_t desc_b = wgmma_descriptor(stage + ABytes + b_offset);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < TGLU_TILE_K / 16; s++) {
#pragma unroll
      for (int b = 0; b < Blocks; b++) {
        wgmma_m64k16(acc[b], desc_a + b * (64 * TGLU_TILE_K * 2 / 16) + 2 * s, desc_b + 2 * s,
                     k + s);
      }
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (previous >= 0) ring_release<RING_CLUSTER>(smem, previous, thread);
    previous = at.stage;
    ring_advance<ROW_STAGES>(at);
  }
}

/* Gives back the stage just before `at`, after wgmma_wait<0>. */
TGLU_DEVICE void ring_release_last(const smem_map &smem, const ring_position &at, int thread) {
  ring_release<RING_CLUSTER>(smem, (at.stage ? at.stage : ROW_STAGES) - 1, thread);
}

#endif /* TGLU_SM90_MAINLOOP_CUH */
