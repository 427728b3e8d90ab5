/* PTX of rows that read their weights once (stream.cuh, stream_mlp.cuh, by way of
 * ptx_policy.cuh paired.cuh); kept from ptx.cuh, which is part of every row. */
#ifndef TGLU_SM90_PTX_ONCE_CUH
#define TGLU_SM90_PTX_ONCE_CUH

#include "ptx.cuh"

/* A policy for data that is read once: first to be evicted from L2 (PTX ISA, createpolicy). */
TGLU_DEVICE uint64_t policy_read_once() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* async_copy() and async_copy_part() of ptx.cuh under a policy. */
TGLU_DEVICE void async_copy_once(uint32_t destination, const void *source, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   destination),
               "l"(source), "l"(policy)
               : "memory");
}
TGLU_DEVICE void async_copy_part_once(uint32_t destination, const void *source, uint32_t bytes,
                                      uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(
                   destination),
               "l"(source), "r"(bytes), "l"(policy)
               : "memory");
}

#endif /* TGLU_SM90_PTX_ONCE_CUH */
