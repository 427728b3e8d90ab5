/* TMA loads of 3-D boxes (PTX ISA, cp.async.bulk.tensor) and wgmma with n = 8; kept from ptx.cuh
 * and wgmma.cuh, which are part of every row. */
#ifndef TGLU_SM90_PTX_3D_CUH
#define TGLU_SM90_PTX_3D_CUH

#include "ptx_once.cuh"
#include "wgmma.cuh"

/* Box at (c0, 0, c2) of a 3-D map -> this CTA's shared memory, under an L2 policy; completes
 * `barrier`. */
TGLU_DEVICE void tma_load_3d_policy(uint32_t destination, const void *map, uint32_t barrier,
                                    int32_t c0, int32_t c2, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
               "l"(map), "r"(barrier), "r"(c0), "r"(0), "r"(c2), "l"(policy)
               : "memory");
}

#define WGMMA_T0H "%0,%1,%2,%3"
#define WGMMA_O0H WGMMA_Q(0)
WGMMA_DEFINE(8, 0H, 4, 5, 6)

#endif /* TGLU_SM90_PTX_3D_CUH */
