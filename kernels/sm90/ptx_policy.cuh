/* TMA loads under an L2 policy (PTX ISA, createpolicy and cp.async.bulk.tensor); kept from ptx.cuh,
 * which is part of every row. */
#ifndef TGLU_SM90_PTX_POLICY_CUH
#define TGLU_SM90_PTX_POLICY_CUH

#include "ptx_once.cuh"

/* The policy that loads have without one. */
TGLU_DEVICE uint64_t policy_ordinary() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* tma_load_2d() of ptx.cuh under a policy. */
TGLU_DEVICE void tma_load_2d_policy(uint32_t destination, const void *map, uint32_t barrier,
                                    int32_t c0, int32_t c1, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "l"(policy)
               : "memory");
}

#endif /* TGLU_SM90_PTX_POLICY_CUH */
