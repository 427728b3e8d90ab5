#include "plan/rows.h"

#include <string.h>

#include "../kernels/sm90/smem_layout.h"

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
   #op, #schedule, DTYPE_##dtype, tglu__schedule_##schedule, tile_m, tile_n, stages,     \
   cluster_m, tglu__loader_##loader,                                                     \
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

int32_t tglu__row_b_rows(const tglu__row *row) {
  return row->schedule == tglu__schedule_gate_first ? row->tile_n : 2 * row->tile_n;
}

int32_t tglu__row_weight_box_rows(const tglu__row *row) {
  return tglu_weight_box_rows(row->tile_n, row->cluster_m,
                              row->schedule == tglu__schedule_gate_first);
}

int32_t tglu__row_smem_bytes(const tglu__row *row) {
  if (row->loader == tglu__loader_general)
    return tglu_general_smem_bytes(row->tile_m, row->tile_n, row->stages);
  return tglu_smem_bytes(row->tile_m, row->tile_n, tglu__row_b_rows(row), row->stages);
}
