/* Rows of `paired` whose tile_n is 4 beyond a multiple of 8: 68, 76, 84, 92 columns.  Plain C
 * for host, device and CPU tests.
 *
 * With tiles of whole groups of 8 columns, N often fills the last wave badly; every other
 * width lies between.  But a TMA store must begin on 16 bytes, and a thread holds both
 * halves of a pair only if gate and up are whole groups apart.  So a tile is a main part of
 * whole groups, which begins at a multiple of 8 columns, and a tail of four columns: behind the
 * main part where the tile begins at a multiple of 8, else before it.  Both tails share one group
 * of the accumulators.  B of a stage, in rows:
 *     main columns of the gate | tail of the gate | tail of the up | main columns of the up */
#ifndef TGLU_SM90_TAIL_LAUNCH_H
#define TGLU_SM90_TAIL_LAUNCH_H

#include "launch.h"
#include "smem_layout.h"

#define TGLU_TAIL_COLUMNS 4

/* Columns of the tail, 0 or TGLU_TAIL_COLUMNS, and of the main part. */
TGLU_HOST_DEVICE int32_t tglu_tail_columns(int32_t tile_n) { return tile_n % 8; }
TGLU_HOST_DEVICE int32_t tglu_main_columns(int32_t tile_n) { return tile_n / 8 * 8; }

/* First columns of both parts of the tile that begins at column `first`, a multiple of tile_n. */
TGLU_HOST_DEVICE int32_t tglu_main_first(int32_t first) { return (first + 7) / 8 * 8; }
TGLU_HOST_DEVICE int32_t tglu_tail_first(int32_t first, int32_t tile_n) {
  return first % 8 == 0 ? first + tglu_main_columns(tile_n) : first;
}

/* The parameter of such a row.  base.gate and base.up have boxes of main_columns rows, base.out
 * boxes as for tile_n = main_columns; base.out_pointer and base.ldo are read in any case, since
 * the tail is stored directly. */
typedef struct tglu_glu_tail_launch {
  tglu_glu_launch base;
  tglu_tensor_map gate_tail, up_tail; /* as base.gate and base.up, boxes of 4 rows */
} tglu_glu_tail_launch;

#endif /* TGLU_SM90_TAIL_LAUNCH_H */
