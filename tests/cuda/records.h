/* Launch records on the fake driver against values worked out from the row and the call. */
#ifndef TGLU_TEST_CUDA_RECORDS_H
#define TGLU_TEST_CUDA_RECORDS_H

#include "fake.h"
#include "plan/rows.h"

#define BASE UINT64_C(0x7f0000000000) /* 16-byte aligned, never read */
#define STREAM ((void *)0x1234)       /* of every call                */

/* One encoded map; strides in elements. */
void expect_map(const tglu_tensor_map *map, uint64_t address, tglu_dtype dtype,
                uint64_t columns, uint64_t rows, uint64_t stride_elements,
                uint32_t box_columns, uint32_t box_rows, int32_t swizzle);

/* The general loader's maps of one operand: row r of the matrix must be row r / C of
 * class r % C, element k at coordinate k + shift. */
void expect_classes(const tglu_tensor_map *maps, const int32_t *shifts, int32_t classes,
                    uint64_t address, tglu_dtype dtype, uint64_t columns, uint64_t rows,
                    uint64_t ld, uint32_t tile);

/* The output's map of a row with tiles. */
void expect_out_map(const tglu_tensor_map *map, const tglu__row *row, uint64_t address,
                    uint64_t columns, uint64_t rows, uint64_t stride_elements);

/* Grid, block, cluster, shared memory, stream and attributes of a launch with [m, n]
 * outputs (of an MLP in one launch: H) and x of k columns on sms SMs. */
void expect_config(const fake_launch *l, const tglu__row *row, int64_t m, int64_t n, int64_t k,
                   int32_t sms, int32_t pdl);

/* Rows of x's box: all of a tile, or as many groups of 8 as m tokens need. */
int32_t expected_x_rows(const tglu__row *row, int64_t m);

/* Since call number first: context switches and maps, then so many launches, no more. */
void expect_calls(int32_t first, int launches);

/* The row that was launched. */
const tglu__row *launched_row(const fake_launch *l);

/* Whether this build has a row with this operation, type and loader. */
bool has_row(tglu__op op, tglu_dtype dtype, tglu__loader loader);

#endif /* TGLU_TEST_CUDA_RECORDS_H */
