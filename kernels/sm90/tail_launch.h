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

#include "smem_layout.h"
#include "tiles_launch.h"

#define TGLU_TAIL_COLUMNS 4

/* Columns of the tail, 0 or TGLU_TAIL_COLUMNS, and of the main part. */
TGLU_HOST_DEVICE int32_t tglu_tail_columns(int32_t tile_n) { return tile_n % 8; }
TGLU_HOST_DEVICE int32_t tglu_main_columns(int32_t tile_n) { return tile_n / 8 * 8; }

/* First columns of both parts of the tile that begins at column `first`, a multiple of tile_n. */
TGLU_HOST_DEVICE int32_t tglu_main_first(int32_t first) { return (first + 7) / 8 * 8; }
TGLU_HOST_DEVICE int32_t tglu_tail_first(int32_t first, int32_t tile_n) {
  return first % 8 == 0 ? first + tglu_main_columns(tile_n) : first;
}

/* Rows of a box of main columns in the last of so many columns of tiles: those that are left,
 * rounded up to 8.  Where only a tail is left 8 all the same, since a box cannot be empty. */
TGLU_HOST_DEVICE int32_t tglu_main_last_rows(int32_t n, int32_t tile_n) {
  int32_t left = n - tglu_main_first((n - 1) / tile_n * tile_n);
  int32_t whole = left <= 8 ? 8 : (left - 1) / 8 * 8 + 8;
  return whole < tglu_main_columns(tile_n) ? whole : tglu_main_columns(tile_n);
}

/* The parameter of such a row.  The boxes of gate and up have main_columns rows, those of
 * gate_last and up_last as many as tglu_main_last_rows says, those of out are as for tile_n =
 * main_columns; out_pointer and ldo are read in any case, since the tail is stored directly. */
typedef struct tglu_glu_tail_launch {
  tglu_glu_tiles_launch tiles;
  tglu_tensor_map gate_tail, up_tail; /* as gate and up, boxes of 4 rows */
} tglu_glu_tail_launch;

#endif /* TGLU_SM90_TAIL_LAUNCH_H */
