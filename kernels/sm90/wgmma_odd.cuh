/* The wgmma whose widths are odd multiples of 8 above 128, for rows with a tail; kept from
 * wgmma.cuh, which is part of every row.
 * NOTE: include it before mainloop.cuh, whose template only sees what was declared before it. */
#ifndef TGLU_SM90_WGMMA_ODD_CUH
#define TGLU_SM90_WGMMA_ODD_CUH

#include "wgmma.cuh"

#define WGMMA_T8H WGMMA_T8 ",%64,%65,%66,%67"
#define WGMMA_T9H WGMMA_T9 ",%72,%73,%74,%75"
#define WGMMA_T10H WGMMA_T10 ",%80,%81,%82,%83"
#define WGMMA_T11H WGMMA_T11 ",%88,%89,%90,%91"
#define WGMMA_O8H WGMMA_O8, WGMMA_Q(64)
#define WGMMA_O9H WGMMA_O9, WGMMA_Q(72)
#define WGMMA_O10H WGMMA_O10, WGMMA_Q(80)
#define WGMMA_O11H WGMMA_O11, WGMMA_Q(88)

WGMMA_DEFINE(136, 8H, 68, 69, 70)
WGMMA_DEFINE(152, 9H, 76, 77, 78)
WGMMA_DEFINE(168, 10H, 84, 85, 86)
WGMMA_DEFINE(184, 11H, 92, 93, 94)

/* An accumulator's value in a register of its own.
 * NOTE: ptxas (CUDA 13.0) serialises all wgmma of a kernel whose shuffles read accumulators. */
TGLU_DEVICE float wgmma_copy(float d) {
  float copy;
  asm volatile("mov.f32 %0, %1;" : "=f"(copy) : "f"(d));
  return copy;
}

#endif /* TGLU_SM90_WGMMA_ODD_CUH */
