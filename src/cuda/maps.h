/* Tensor maps of the operands. */
#ifndef TGLU_CUDA_MAPS_H
#define TGLU_CUDA_MAPS_H

#include "../kernels/sm90/launch.h"
#include "cuda/driver.h"
#include "plan/rows.h"

/* An aligned matrix (tglu__matrix_aligned) in boxes of box_rows x TGLU_TILE_K, for wgmma. */
tglu__CUresult tglu__cuda_map_operand(const tglu__driver *driver, tglu_tensor_map *map,
                                      tglu_dtype dtype, const void *pointer, int64_t rows,
                                      int64_t columns, int64_t ld, int32_t box_rows);

/* An aligned output, in the boxes that a row stores. */
tglu__CUresult tglu__cuda_map_out(const tglu__driver *driver, tglu_tensor_map *map,
                                  const tglu__row *row, void *pointer, int64_t rows,
                                  int64_t columns, int64_t ld);

/* Residue classes of rows that the general loader needs for this operand (launch.h): as
 * many as make their stride a multiple of 8 elements, and more while rows that begin off 16
 * bytes would reach beyond it. */
int32_t tglu__cuda_classes(const void *pointer, int64_t rows, int64_t columns, int64_t ld);

/* The maps and shifts of one operand's classes; rows_of_tile of its rows a tile. */
tglu__CUresult tglu__cuda_map_classes(const tglu__driver *driver, tglu_dtype dtype,
                                      const void *pointer, int64_t rows, int64_t columns,
                                      int64_t ld, int32_t classes, int32_t rows_of_tile,
                                      tglu_tensor_map *maps, int32_t *shifts);

/* One part of a down_diag row's weights (down_diag_launch.h): `rows` outputs, of each 8 slices of
 * `slice` elements from `pointer` on. */
tglu__CUresult tglu__cuda_map_slices(const tglu__driver *driver, tglu_tensor_map *map,
                                     tglu_dtype dtype, const void *pointer, int64_t rows,
                                     int64_t slice, int64_t ld);

/* The message of a failed one; name is the argument's. */
tglu_status tglu__cuda_map_fail(const tglu__driver *driver, tglu__CUresult result,
                                const char *name);

#endif /* TGLU_CUDA_MAPS_H */
