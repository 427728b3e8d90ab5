/* The parameter of the GLU rows that fetch tiles by TMA, paired_* and gate_first: that of
 * launch.h, and a box of its own for X in the last row of tiles.  Plain C for both sides.
 *
 * The last row of tiles may have fewer rows than others.  Blocks of 64 rows without a token are
 * neither fetched nor multiplied (mainloop_within.cuh); the block in which the tokens end is fetched
 * whole, with zeros for what is not there: they cost TMA more than rows that exist, but less power
 * to multiply than what the stage held before (docs/notes, step 43).  With a single row of tiles it
 * is time that counts, and only whole groups of 8 rows are fetched. */
#ifndef TGLU_SM90_TILES_LAUNCH_H
#define TGLU_SM90_TILES_LAUNCH_H

#include "launch.h"

typedef struct tglu_glu_tiles_launch {
  tglu_glu_launch base;   /* x is not read where M <= tile_m                          */
  tglu_tensor_map x_last; /* as x, box {64, x_last_rows}: for the last row of tiles   */
  int32_t x_last_rows;    /* rows of M that are left there, rounded up to 64; to 8 where
                             there is no other row                                     */
} tglu_glu_tiles_launch;

#endif /* TGLU_SM90_TILES_LAUNCH_H */
