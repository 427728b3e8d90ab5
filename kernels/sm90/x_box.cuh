/* What X is fetched with for one tile of a GLU (tiles_launch.h). */
#ifndef TGLU_SM90_X_BOX_CUH
#define TGLU_SM90_X_BOX_CUH

#include "ptx.cuh"
#include "tiles_launch.h"

typedef struct x_box {
  const void *map;
  int32_t rows; /* 0: no row is there */
} x_box;

/* Of the tile at block `row` of tile_m rows; in clusters the last blocks may lie beyond M. */
TGLU_DEVICE x_box x_box_of(const tglu_glu_tiles_launch &launch, int32_t row) {
  const int32_t last = (launch.base.m - 1) / ROW_TILE_M;
  x_box box;
  box.map = row < last ? &launch.base.x : &launch.x_last;
  box.rows = row < last ? launch.base.x_rows : row == last ? launch.x_last_rows : 0;
  return box;
}

#endif /* TGLU_SM90_X_BOX_CUH */
