/* Order in which persistent clusters walk the output tiles.  Plain C for host,
 * device and CPU tests.
 *
 * The grid of rows x columns tiles (a row is cluster_m tiles of tokens high) is cut
 * into groups of `group` rows; inside a group the row runs fastest.  So the tiles
 * in flight at one time form a compact block, whose X rows and weight rows stay in
 * L2 (groups of 4-8 were best on an H200; 2 was 6 % slower at K = 8192). */
#ifndef TGLU_SM90_TILE_ORDER_H
#define TGLU_SM90_TILE_ORDER_H

#include <stdint.h>

#include "smem_layout.h"

typedef struct tglu_tile { int32_t row, column; } tglu_tile;

/* The index-th tile, 0 <= index < rows * columns; rows * columns < 2^31. */
TGLU_HOST_DEVICE tglu_tile tglu_tile_at(int32_t index, int32_t rows, int32_t columns,
                                        int32_t group) {
  int32_t first = index / (group * columns) * group;
  int32_t inside = index - first * columns;
  int32_t height = rows - first < group ? rows - first : group;
  tglu_tile tile = {first + inside % height, inside / height};
  return tile;
}

#endif /* TGLU_SM90_TILE_ORDER_H */
