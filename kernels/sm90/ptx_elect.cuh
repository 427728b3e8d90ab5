/* One thread of a warp (PTX ISA, elect.sync).  Where the compiler sees a branch on this, it knows
 * that one thread is left and takes operands of TMA and mbarrier instructions straight from uniform
 * registers; behind `threadIdx.x == 0` each instruction sits in a loop over the threads that may be
 * there (docs/notes, step 40). */
#ifndef TGLU_SM90_PTX_ELECT_CUH
#define TGLU_SM90_PTX_ELECT_CUH

#include "ptx.cuh"

/* True in one of the threads of `mask`, which all come here together; always the same one. */
TGLU_DEVICE bool elect_one(uint32_t mask) {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, %1;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected)
               : "r"(mask));
  return elected != 0;
}

#endif /* TGLU_SM90_PTX_ELECT_CUH */
