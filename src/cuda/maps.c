#include "cuda/maps.h"

#include <stdio.h>

#include "../kernels/sm90/down_diag_launch.h"

_Static_assert(sizeof(tglu_tensor_map) == sizeof(tglu__CUtensorMap), "one tensor map");

/* A matrix of 16-bit elements as one map sees it. */
typedef struct view {
  uintptr_t address;     /* on 16 bytes                                         */
  int64_t rows, columns;
  int64_t stride;        /* elements, a multiple of 8                           */
} view;

static int32_t data_type(tglu_dtype dtype) {
  return dtype == TGLU_DTYPE_BF16 ? TGLU__CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                  : TGLU__CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

static tglu__CUresult encode(const tglu__driver *driver, tglu_tensor_map *map,
                             tglu_dtype dtype, const view *v, int32_t box_rows,
                             int32_t box_columns, int32_t swizzle) {
  uint64_t dims[2] = {(uint64_t)v->columns, (uint64_t)v->rows};
  uint64_t strides[1] = {2 * (uint64_t)v->stride};
  uint32_t box[2] = {(uint32_t)box_columns, (uint32_t)box_rows};
  uint32_t element_strides[2] = {1, 1};
  return driver->tensor_map_encode_tiled(
    (tglu__CUtensorMap *)map, data_type(dtype), 2, (void *)v->address, dims, strides, box,
    element_strides, TGLU__CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
    TGLU__CU_TENSOR_MAP_L2_PROMOTION_L2_128B, TGLU__CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* An aligned matrix.  One row has no stride that counts, so it gets one that does. */
static view whole(const void *pointer, int64_t rows, int64_t columns, int64_t ld) {
  return (view){(uintptr_t)pointer, rows, columns, rows == 1 ? (columns + 7) / 8 * 8 : ld};
}

tglu__CUresult tglu__cuda_map_operand(const tglu__driver *driver, tglu_tensor_map *map,
                                      tglu_dtype dtype, const void *pointer, int64_t rows,
                                      int64_t columns, int64_t ld, int32_t box_rows) {
  view v = whole(pointer, rows, columns, ld);
  return encode(driver, map, dtype, &v, box_rows, TGLU_TILE_K,
                TGLU__CU_TENSOR_MAP_SWIZZLE_128B);
}

tglu__CUresult tglu__cuda_map_slices(const tglu__driver *driver, tglu_tensor_map *map,
                                     tglu_dtype dtype, const void *pointer, int64_t rows,
                                     int64_t slice, int64_t ld) {
  uint64_t dims[3] = {(uint64_t)slice, TGLU_DIAG_SLICES, (uint64_t)rows};
  uint64_t strides[2] = {2 * (uint64_t)slice,
                         2 * (uint64_t)(rows == 1 ? TGLU_DIAG_SLICES * slice : ld)};
  uint32_t box[3] = {TGLU_TILE_K, TGLU_DIAG_SLICES, TGLU_DIAG_UNIT};
  uint32_t element_strides[3] = {1, 1, 1};
  return driver->tensor_map_encode_tiled(
    (tglu__CUtensorMap *)map, data_type(dtype), 3, (void *)(uintptr_t)pointer, dims, strides,
    box, element_strides, TGLU__CU_TENSOR_MAP_INTERLEAVE_NONE,
    TGLU__CU_TENSOR_MAP_SWIZZLE_128B, TGLU__CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    TGLU__CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static int32_t out_swizzle(int32_t tile_n) {
  switch (tglu_out_box_swizzle(tile_n)) {
    case 128: return TGLU__CU_TENSOR_MAP_SWIZZLE_128B;
    case 64: return TGLU__CU_TENSOR_MAP_SWIZZLE_64B;
    default: return TGLU__CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

tglu__CUresult tglu__cuda_map_out(const tglu__driver *driver, tglu_tensor_map *map,
                                  const tglu__row *row, void *pointer, int64_t rows,
                                  int64_t columns, int64_t ld) {
  view v = whole(pointer, rows, columns, ld);
  const int32_t main = tglu__row_main_columns(row);
  return encode(driver, map, row->dtype, &v, 64, tglu_out_box_columns(main),
                out_swizzle(main));
}

int32_t tglu__cuda_classes(const void *pointer, int64_t rows, int64_t columns, int64_t ld) {
  if (rows == 1) return 1;
  int32_t classes = ld % 8 == 0 ? 1 : ld % 4 == 0 ? 2 : ld % 2 == 0 ? 4 : 8;
  bool shifted = ld % 8 != 0 || (uintptr_t)pointer % 16 != 0;
  while (shifted && classes < 8 && classes * ld < columns + 7) classes *= 2;
  return classes;
}

tglu__CUresult tglu__cuda_map_classes(const tglu__driver *driver, tglu_dtype dtype,
                                      const void *pointer, int64_t rows, int64_t columns,
                                      int64_t ld, int32_t classes, int32_t rows_of_tile,
                                      tglu_tensor_map *maps, int32_t *shifts) {
  for (int32_t s = 0; s < classes; ++s) {
    maps[s] = maps[0]; /* of a class without rows: any valid one */
    if (s >= rows) continue;
    uintptr_t start = (uintptr_t)pointer + 2 * (uint64_t)s * (uint64_t)ld;
    shifts[s] = (int32_t)(start % 16 / 2);
    view v = {start - start % 16, (rows - s - 1) / classes + 1, columns + shifts[s],
              rows == 1 ? (columns + shifts[s] + 7) / 8 * 8 : classes * ld};
    tglu__CUresult result = encode(driver, &maps[s], dtype, &v, rows_of_tile / classes,
                                   TGLU_RAW_ROW_BYTES / 2, TGLU__CU_TENSOR_MAP_SWIZZLE_NONE);
    if (result != TGLU__CUDA_SUCCESS) return result;
  }
  return TGLU__CUDA_SUCCESS;
}

tglu_status tglu__cuda_map_fail(const tglu__driver *driver, tglu__CUresult result,
                                const char *name) {
  char what[64];
  snprintf(what, sizeof what, "%s: cuTensorMapEncodeTiled", name);
  return tglu__driver_fail(driver, result, what);
}
