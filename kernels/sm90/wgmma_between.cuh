/* The wgmma of 104 and 120 columns, for down projections; kept from wgmma.cuh, which is part of
 * every row.
 * NOTE: include it before mainloop.cuh, whose template only sees what was declared before it. */
#ifndef TGLU_SM90_WGMMA_BETWEEN_CUH
#define TGLU_SM90_WGMMA_BETWEEN_CUH

#include "wgmma.cuh"

#define WGMMA_T6H WGMMA_T6 ",%48,%49,%50,%51"
#define WGMMA_T7H WGMMA_T7 ",%56,%57,%58,%59"
#define WGMMA_O6H WGMMA_O6, WGMMA_Q(48)
#define WGMMA_O7H WGMMA_O7, WGMMA_Q(56)

WGMMA_DEFINE(104, 6H, 52, 53, 54)
WGMMA_DEFINE(120, 7H, 60, 61, 62)

#endif /* TGLU_SM90_WGMMA_BETWEEN_CUH */
