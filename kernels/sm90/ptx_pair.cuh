/* A pair of floats in shared memory; kept from ptx.cuh, which is part of every row. */
#ifndef TGLU_SM90_PTX_PAIR_CUH
#define TGLU_SM90_PTX_PAIR_CUH

#include "ptx.cuh"

/* `address` on 8 bytes. */
TGLU_DEVICE void store_shared_8(uint32_t address, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}

#endif /* TGLU_SM90_PTX_PAIR_CUH */
