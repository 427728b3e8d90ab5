/* What the stages of one tile of a GLU are fetched with (tiles_launch.h). */
#ifndef TGLU_SM90_TILE_BOXES_CUH
#define TGLU_SM90_TILE_BOXES_CUH

#include "ptx.cuh"
#include "smem_layout.h"
#include "tiles_launch.h"

typedef struct tile_boxes {
  const void *x, *gate, *up;
  int32_t x_rows, w_rows; /* of one box; of X there may be none: in clusters the last tiles
                             may lie beyond M                                            */
} tile_boxes;

/* The tile at block `row` of tile_m rows of X and at column `column`.  BoxRows: rows of a box of
 * weights; LastColumn: whether those of the last column are boxes of their own. */
template <int BoxRows, bool LastColumn>
TGLU_DEVICE tile_boxes boxes_of(const tglu_glu_tiles_launch &launch, int32_t row, int32_t column) {
  const tglu_glu_launch &p = launch.base;
  const int32_t last = (p.m - 1) / ROW_TILE_M;
  const bool end = LastColumn && column == p.tile_columns - 1;
  tile_boxes boxes;
  boxes.x = row < last ? &p.x : &launch.x_last;
  boxes.gate = end ? &launch.gate_last : &p.gate;
  boxes.up = end ? &launch.up_last : &p.up;
  boxes.x_rows = row < last ? p.x_rows : row == last ? launch.x_last_rows : 0;
  boxes.w_rows = end ? launch.w_last_rows : BoxRows;
  return boxes;
}

TGLU_DEVICE void prefetch_boxes(const tile_boxes &boxes) {
  prefetch_tensor_map(boxes.x);
  prefetch_tensor_map(boxes.gate);
  prefetch_tensor_map(boxes.up);
}

#endif /* TGLU_SM90_TILE_BOXES_CUH */
