/* The parameter of the GLU rows that fetch tiles by TMA, paired_* and gate_first: that of
 * launch.h, and boxes of their own for the last row and the last column of tiles.  Plain C for
 * both sides.
 *
 * A tile that reaches beyond M or N needs fewer rows than others, and rows of zeros are no gift:
 * TMA takes 2.6 ns to fill one, and 1 ns to fetch one (docs/notes, steps 42 and 43).  Rows that no
 * box brings are whatever the stage held before; what comes of them is never stored.  But they take
 * more power to multiply than zeros: so the kernels leave out blocks of 64 rows without a token,
 * and where there is more than one row of tiles the block that has some is fetched whole. */
#ifndef TGLU_SM90_TILES_LAUNCH_H
#define TGLU_SM90_TILES_LAUNCH_H

#include "launch.h"

typedef struct tglu_glu_tiles_launch {
  tglu_glu_launch base; /* x is not read where M <= tile_m, gate and up not where
                           N <= tile_n                                             */
  /* As x, gate, up, boxes of x_last_rows and w_last_rows rows: for the last row of tiles, and
   * for the last column.  gate_first reads gate_last and up_last only without a cluster. */
  tglu_tensor_map x_last, gate_last, up_last;
  int32_t x_last_rows, w_last_rows; /* of M and N left there, rounded up to 8; of M behind
                                       whole tiles to 64                             */
} tglu_glu_tiles_launch;

#endif /* TGLU_SM90_TILES_LAUNCH_H */
