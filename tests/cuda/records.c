#include "records.h"

#include <string.h>

#include "../kernels/sm90/down_launch.h"
#include "../kernels/sm90/stream_mlp_launch.h"

void expect_map(const tglu_tensor_map *map, uint64_t address, tglu_dtype dtype,
                       uint64_t columns, uint64_t rows, uint64_t stride_elements,
                       uint32_t box_columns, uint32_t box_rows, int32_t swizzle) {
  assert_int_equal(map->opaque[0] & ~UINT64_C(0xffffffff), FAKE_MAP_MAGIC);
  const fake_encode *e = &fake->encodes[map->opaque[0] & 0xffffffff];
  assert_int_equal(e->type, dtype == TGLU_DTYPE_BF16 ? 9 : 6);
  assert_int_equal(e->rank, 2);
  assert_int_equal(e->address, address);
  assert_int_equal(e->dims[0], columns);
  assert_int_equal(e->dims[1], rows);
  assert_int_equal(e->stride, 2 * stride_elements);
  assert_int_equal(e->box[0], box_columns);
  assert_int_equal(e->box[1], box_rows);
  assert_int_equal(e->element_strides[0], 1);
  assert_int_equal(e->element_strides[1], 1);
  assert_int_equal(e->interleave, 0);
  assert_int_equal(e->swizzle, swizzle);
  assert_int_equal(e->l2_promotion, 2);
  assert_int_equal(e->oob_fill, 0);
}

void expect_classes(const tglu_tensor_map *maps, const int32_t *shifts, int32_t classes,
                           uint64_t address, tglu_dtype dtype, uint64_t columns,
                           uint64_t rows, uint64_t ld, uint32_t tile) {
  assert_true(classes == 1 || classes == 2 || classes == 4 || classes == 8);
  for (int32_t c = 0; c < classes; ++c) {
    assert_int_equal(maps[c].opaque[0] & ~UINT64_C(0xffffffff), FAKE_MAP_MAGIC);
    if ((uint64_t)c >= rows) continue;
    const fake_encode *e = &fake->encodes[maps[c].opaque[0] & 0xffffffff];
    uint64_t start = address + 2 * (uint64_t)c * ld;
    assert_int_equal(e->address + 2 * (uint64_t)shifts[c], start);
    assert_int_equal(e->address % 16, 0);
    assert_true(shifts[c] >= 0 && shifts[c] < 8);
    assert_int_equal(e->dims[0], columns + (uint64_t)shifts[c]);
    assert_int_equal(e->dims[1], (rows - (uint64_t)c + (uint64_t)classes - 1) / (uint64_t)classes);
    if (rows > 1) assert_int_equal(e->stride, 2 * (uint64_t)classes * ld);
    assert_int_equal(e->box[0], 72);
    assert_int_equal(e->box[1], tile / (uint32_t)classes);
    assert_int_equal(e->swizzle, 0);
    assert_int_equal(e->type, dtype == TGLU_DTYPE_BF16 ? 9 : 6);
  }
}


void expect_out_map(const tglu_tensor_map *map, const tglu__row *row, uint64_t address,
                    uint64_t columns, uint64_t rows, uint64_t stride_elements) {
  uint32_t n = (uint32_t)(row->tile_n - row->tile_n % 8);
  uint32_t box = n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : n;
  expect_map(map, address, row->dtype, columns, rows, stride_elements, box, 64,
             box == 64 ? 3 : box == 32 ? 2 : 0);
}

static int expected_smem(const tglu__row *row, int64_t m, int64_t n, int64_t k) {
  int glu = row->op == tglu__op_glu;
  if (row->op == tglu__op_mlp)
    return (int)tglu_stream_mlp_smem_bytes(row->stages, (int32_t)m, (int32_t)k, (int32_t)n);
  if (tglu__row_is_stream(row))
    return (int)tglu_stream_smem_bytes(row->tile_m, row->tile_n, row->stages, glu,
                                  (int32_t)(m < row->tile_m ? m : row->tile_m) *
                                    (row->loader != tglu__loader_general),
                                  (int32_t)k);
  if (tglu__row_is_diag(row)) return 232448;
  if (!glu)
    return tglu_down_smem_bytes(row->tile_m, row->tile_n, row->stages, row->cluster_m,
                                row->schedule == tglu__schedule_down_split);
  int b_rows = row->schedule == tglu__schedule_gate_first ? row->tile_n : 2 * row->tile_n;
  if (row->loader == tglu__loader_general) b_rows += (row->tile_m + 2 * row->tile_n) * 144 / 128;
  int staging = row->loader == tglu__loader_general ? 0 : 2 * 64 * row->tile_n * 2;
  return 1024 + row->stages * (row->tile_m + b_rows) * 128 + staging + 256;
}

static void expect_grid(const fake_launch *l, const tglu__row *row, int64_t m, int64_t n,
                        int64_t k, int32_t sms) {
  int64_t size = row->cluster_m;
  bool split = row->schedule == tglu__schedule_down_split;
  int64_t height = row->tile_m * (split ? 1 : size);
  int64_t rows = (m + height - 1) / height, columns = (n + row->tile_n - 1) / row->tile_n;
  if (row->op == tglu__op_mlp) { /* some CTAs may have outputs of one half alone */
    const int64_t most = n > k ? n : k;
    assert_int_equal(l->config.gridDimX, most < sms ? most : sms);
    assert_int_equal(l->config.gridDimY, 1);
    assert_int_equal(l->config.blockDimX, 384);
    return;
  }
  if (tglu__row_is_diag(row)) {
    assert_int_equal(l->config.gridDimX, (n + 3) / 4 < sms ? (n + 3) / 4 : sms);
    assert_int_equal(l->config.gridDimY, 1);
    assert_int_equal(l->config.blockDimX, 288);
    return;
  }
  if (tglu__row_is_stream(row)) {
    int64_t splits = sms / rows > 1 ? sms / rows : 1;
    assert_int_equal(l->config.gridDimX, rows);
    assert_int_equal(l->config.gridDimY, splits < n ? splits : n);
    assert_int_equal(l->config.blockDimX, strcmp(row->schedule_name, "stream") ? 640 : 384);
    return;
  }
  int64_t room = size == 4 && sms == 132 ? fake->clusters_of_4 : sms / size;
  assert_int_equal(l->config.gridDimX, (rows * columns < room ? rows * columns : room) * size);
  assert_int_equal(l->config.gridDimY, 1);
  assert_int_equal(l->config.blockDimX, 384);
}

void expect_config(const fake_launch *l, const tglu__row *row, int64_t m, int64_t n, int64_t k,
                   int32_t sms, int32_t pdl) {
  int32_t size = row->cluster_m;
  expect_grid(l, row, m, n, k, sms);
  assert_int_equal(l->config.gridDimZ, 1);
  assert_int_equal(l->config.blockDimY, 1);
  assert_int_equal(l->config.blockDimZ, 1);
  assert_ptr_equal(l->config.hStream, STREAM);
  int smem = expected_smem(row, m, n, k), half = fake->smem_bytes / 2 + 1024;
  bool alone = tglu__row_is_stream(row) && row->loader == tglu__loader_tma;
  if (alone && smem < half) smem = half; /* one a SM */
  assert_int_equal(l->config.sharedMemBytes, smem);
  assert_int_equal(l->smem_limit, tglu__row_is_stream(row) ? fake->smem_bytes : smem);
  const bool cooperative = row->op == tglu__op_mlp;
  assert_int_equal(l->config.numAttrs, (size > 1) + (cooperative || pdl != 0));
  uint32_t next = 0;
  if (cooperative) {
    assert_int_equal(l->attributes[next].id, 2);
    assert_int_equal(l->attributes[next++].value.cooperative, 1);
  }
  if (size > 1) {
    assert_int_equal(l->attributes[next].id, 4);
    assert_int_equal(l->attributes[next].value.clusterDim.x, size);
    assert_int_equal(l->attributes[next].value.clusterDim.y, 1);
    assert_int_equal(l->attributes[next++].value.clusterDim.z, 1);
  }
  if (pdl && !cooperative) {
    assert_int_equal(l->attributes[next].id, 6);
    assert_int_equal(l->attributes[next].value.programmaticStreamSerializationAllowed, 1);
  }
}

int32_t expected_x_rows(const tglu__row *row, int64_t m) {
  int64_t groups = m / 8 + (m % 8 != 0);
  return groups * 8 < row->tile_m ? (int32_t)groups * 8 : row->tile_m;
}

void expect_calls(int32_t first, int launches) {
  static const char *const allowed[] = {"cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                        "cuCtxPopCurrent_v2", "cuTensorMapEncodeTiled",
                                        "cuLaunchKernelEx"};
  int seen = 0;
  for (int32_t i = first; i < fake->call_total; ++i) {
    int found = 0;
    for (int j = 0; j < 5; ++j) found |= strcmp(fake->calls[i], allowed[j]) == 0;
    if (!found) fail_msg("run called %s", fake->calls[i]);
    if (strcmp(fake->calls[i], "cuTensorMapEncodeTiled") == 0 && seen > 0)
      fail_msg("a map is encoded behind a launch");
    seen += strcmp(fake->calls[i], "cuLaunchKernelEx") == 0;
  }
  assert_int_equal(seen, launches);
  assert_true(fake->call_total - first <= 12 + 2 * launches);
}

const tglu__row *launched_row(const fake_launch *l) {
  int32_t index = tglu__row_find(l->kernel);
  assert_true(index >= 0);
  return &tglu__rows[index];
}

bool has_row(tglu__op op, tglu_dtype dtype, tglu__loader loader) {
  for (int32_t i = 0; i < tglu__row_total; ++i)
    if (tglu__rows[i].op == op && tglu__rows[i].dtype == dtype &&
        tglu__rows[i].loader == loader)
      return true;
  return false;
}
