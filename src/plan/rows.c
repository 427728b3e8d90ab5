#include "plan/rows.h"

#include <string.h>

#include "../kernels/sm90/down_diag_launch.h"
#include "../kernels/sm90/down_launch.h"
#include "../kernels/sm90/stream_mlp_launch.h"
#include "../kernels/sm90/tail_launch.h"

#define DTYPE_bf16 TGLU_DTYPE_BF16
#define DTYPE_f16 TGLU_DTYPE_F16

/* Name of a row; kernels/rows.py builds the same. */
#define NAME_(op, dtype, schedule, tile_m, tile_n, stages, cluster_m, loader) \
  op##_##dtype##_sm90_##schedule##_##tile_m##x##tile_n##_s##stages##_c##cluster_m
#define CUBIN__(name) tglu__cubin_##name
#define CUBIN_(name) CUBIN__(name)
#define TEXT__(name) #name
#define TEXT_(name) TEXT__(name)

#define ROW(...) extern const tglu__cubin CUBIN_(NAME_(__VA_ARGS__));
#include "../kernels/sm90/rows.def"
#undef ROW

const tglu__row tglu__rows[] = {
#define ROW(op, dtype, schedule, tile_m, tile_n, stages, cluster_m, loader)              \
  {TEXT_(NAME_(op, dtype, schedule, tile_m, tile_n, stages, cluster_m, loader)),         \
   #op, #schedule, tglu__op_##op, DTYPE_##dtype, tglu__schedule_##schedule,              \
   tile_m, tile_n, stages, cluster_m, tglu__loader_##loader,                             \
   &CUBIN_(NAME_(op, dtype, schedule, tile_m, tile_n, stages, cluster_m, loader))},
#include "../kernels/sm90/rows.def"
#undef ROW
};

const int32_t tglu__row_total = sizeof(tglu__rows) / sizeof(tglu__rows[0]);

int32_t tglu__row_find(const char *name) {
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    if (strcmp(tglu__rows[i].name, name) == 0) return i;
  }
  return -1;
}

bool tglu__row_is_stream(const tglu__row *row) {
  return row->schedule == tglu__schedule_stream ||
         row->schedule == tglu__schedule_stream_mlp;
}

bool tglu__row_is_diag(const tglu__row *row) {
  return row->schedule == tglu__schedule_down_diag;
}

int32_t tglu__row_threads(const tglu__row *row) {
  if (tglu__row_is_diag(row)) return TGLU_DIAG_THREADS;
  return tglu__row_is_stream(row) ? TGLU_STREAM_THREADS : 384;
}

int32_t tglu__row_b_rows(const tglu__row *row) {
  bool one = row->schedule == tglu__schedule_gate_first || row->op == tglu__op_down;
  return one ? row->tile_n : 2 * row->tile_n;
}

bool tglu__row_has_tail(const tglu__row *row) {
  return row->op == tglu__op_glu && !tglu__row_is_stream(row) && tglu_tail_columns(row->tile_n);
}

int32_t tglu__row_main_columns(const tglu__row *row) {
  return tglu__row_has_tail(row) ? tglu_main_columns(row->tile_n) : row->tile_n;
}

int32_t tglu__row_weight_box_rows(const tglu__row *row) {
  if (row->op == tglu__op_down)
    return tglu_down_box_rows(row->tile_n, row->cluster_m,
                              row->schedule == tglu__schedule_down_split);
  return tglu_weight_box_rows(tglu__row_main_columns(row), row->cluster_m,
                              row->schedule == tglu__schedule_gate_first);
}

static int64_t stream_smem_bytes(const tglu__row *row, int64_t tokens, int64_t k) {
  const int64_t most_k = 1 << 24; /* more than any SM holds, and no overflow */
  if (row->loader == tglu__loader_general) tokens = 0; /* they stay in memory */
  const int32_t m = (int32_t)(tokens < row->tile_m ? tokens : row->tile_m);
  const int32_t columns = (int32_t)(k < most_k ? k : most_k);
  if (row->op == tglu__op_mlp)
    return tglu_stream_mlp_smem_bytes(row->stages, m, columns, columns);
  return tglu_stream_smem_bytes(row->tile_m, row->tile_n, row->stages,
                                row->op == tglu__op_glu, m, columns);
}

/* All there is, or more where the least stages do not fit beside the tokens. */
static int64_t diag_smem_bytes(const tglu__row *row, int64_t tokens, int64_t k) {
  const int32_t m = (int32_t)(tokens < row->tile_m ? tokens : row->tile_m);
  const int64_t stages =
    TGLU_DIAG_LEAST_STAGES * (int64_t)row->tile_n * TGLU_DIAG_SLICES * TGLU_TILE_K * 2;
  const int64_t ring = tglu_diag_ring_bytes(m, (int32_t)(k < INT32_MAX ? k : INT32_MAX));
  return TGLU_DIAG_SMEM_BYTES + (ring < stages ? stages - ring : 0);
}

int64_t tglu__row_smem_bytes(const tglu__row *row, int64_t tokens, int64_t k) {
  if (tglu__row_is_diag(row)) return diag_smem_bytes(row, tokens, k);
  if (tglu__row_is_stream(row)) return stream_smem_bytes(row, tokens, k);
  if (row->op == tglu__op_down)
    return tglu_down_smem_bytes(row->tile_m, row->tile_n, row->stages, row->cluster_m,
                                row->schedule == tglu__schedule_down_split);
  if (row->loader == tglu__loader_general)
    return tglu_general_smem_bytes(row->tile_m, row->tile_n, row->stages);
  return tglu_smem_bytes(row->tile_m, row->tile_n, tglu__row_b_rows(row), row->stages);
}
