/* TMA loads under an L2 policy (PTX ISA, createpolicy and cp.async.bulk.tensor); kept from ptx.cuh,
 * which is part of every row. */
#ifndef TGLU_SM90_PTX_POLICY_CUH
#define TGLU_SM90_PTX_POLICY_CUH

#include "ptx_once.cuh"

/* tma_load_2d() of ptx.cuh under a policy; 0: under none.
 * NOTE: evict_normal is not what loads without a policy get.  With it tiles of 128 rows read their
 * weights from memory for each row of tiles: 34 us instead of 23.5 at N = 8960, K = 1536, M = 192
 * (H200, 2026-11-30). */
TGLU_DEVICE void tma_load_2d_policy(uint32_t destination, const void *map, uint32_t barrier,
                                    int32_t c0, int32_t c1, uint64_t policy) {
  if (policy == 0) {
    tma_load_2d(destination, map, barrier, c0, c1);
    return;
  }
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "l"(policy)
               : "memory");
}

#endif /* TGLU_SM90_PTX_POLICY_CUH */
