#include "plan/choose.h"

#include <string.h>

enum { GROUP_TOKENS = 2048 }; /* height of a raster group: 2048 beat 1024 by 1 % and 512 by
                                 4 % at 7B and 14B (H200, 2026-11-29)            */

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

bool tglu__matrix_aligned(const void *pointer, int64_t rows, int64_t ld) {
  if ((uintptr_t)pointer % 16 != 0) return false;
  return rows == 1 || (ld % 8 == 0 && ld < (int64_t)1 << 39);
}

bool tglu__matrix_reachable(int64_t rows, int64_t ld) {
  return rows == 1 || ld < (int64_t)1 << 36;
}

static int32_t raster_group(const tglu__row *row) {
  int32_t height = row->tile_m * row->cluster_m;
  return height >= GROUP_TOKENS ? 1 : GROUP_TOKENS / height;
}

/* Why the sizes do not fit the launch record and the tensor maps, NULL if they do. */
static const char *size_refusal(const tglu__row *row, const tglu__problem *problem,
                                int64_t tokens) {
  const int64_t most = INT32_MAX;
  if (tokens > most) return "needs tokens below 2^31";
  /* The last tile's columns are counted beyond N, by up to a tile. */
  if (problem->n > most - 255) return "needs intermediate below 2^31 - 255";
  if (problem->k > most - 384) return "needs hidden below 2^31 - 384";
  int64_t rows = ceil_div(tokens, (int64_t)row->tile_m * row->cluster_m);
  int64_t columns = ceil_div(problem->n, row->tile_n);
  if (rows > most / columns) return "needs fewer than 2^31 tiles";
  if (columns > most / raster_group(row)) return "needs a smaller intermediate";
  return NULL;
}

bool tglu__row_valid(const tglu__row *row, const tglu__problem *problem,
                     const tglu__call_facts *call, const tglu__device_facts *device,
                     const char **why) {
  const char *refusal = NULL;
  if (row->dtype != problem->dtype) {
    refusal = "serves another dtype";
  } else if (problem->gate == NULL || row->op != tglu__op_glu) {
    refusal = "serves another operation";
  } else if ((refusal = size_refusal(row, problem, call->tokens)) != NULL) {
  } else if (row->loader == tglu__loader_tma &&
             !(tglu__matrix_aligned(problem->gate, problem->n, problem->ld) &&
               tglu__matrix_aligned(problem->up, problem->n, problem->ld))) {
    refusal = "needs weights on 16 bytes with a row stride (ld) that is a multiple of 8";
  } else if (row->loader == tglu__loader_tma && !call->x_aligned) {
    refusal = "needs x on 16 bytes with a stride (ldx) that is a multiple of 8";
  } else if (row->loader == tglu__loader_general &&
             !(call->x_reachable && tglu__matrix_reachable(problem->n, problem->ld))) {
    refusal = "needs strides (ldx, ld) below 2^36 elements";
  } else if (tglu__row_smem_bytes(row) > device->smem_bytes) {
    refusal = "needs more shared memory than a block has on this device";
  } else if (row->cluster_m > TGLU__MAX_CLUSTER || device->clusters[row->cluster_m] < 1) {
    refusal = "needs more SMs side by side than the device or its SM limit (sm_limit) "
              "leaves";
  }
  if (why != NULL) *why = refusal;
  return refusal == NULL;
}

void tglu__plan_launch(int32_t row, const tglu__problem *problem, int64_t tokens,
                       const tglu__device_facts *device, tglu__choice *choice) {
  const tglu__row *r = &tglu__rows[row];
  int64_t rows = ceil_div(tokens, (int64_t)r->tile_m * r->cluster_m);
  int64_t columns = ceil_div(problem->n, r->tile_n);
  int64_t tiles = rows * columns;
  int32_t room = device->clusters[r->cluster_m];
  int32_t clusters = tiles < room ? (int32_t)tiles : room;
  *choice = (tglu__choice){.row = row,
                           .tile_rows = (int32_t)rows,
                           .tile_columns = (int32_t)columns,
                           .group = raster_group(r),
                           .clusters = clusters,
                           .waves = (int32_t)ceil_div(tiles, clusters),
                           .smem_bytes = tglu__row_smem_bytes(r)};
}

bool tglu__plan_choose(const tglu__problem *problem, const tglu__call_facts *call,
                       const tglu__device_facts *device, tglu__choice *choice,
                       tglu__choice *runner_up) {
  tglu__choice best = {.row = -1}, second = {.row = -1};
  for (int32_t row = 0; row < tglu__row_total; ++row) {
    if (!tglu__row_valid(&tglu__rows[row], problem, call, device, NULL)) continue;
    tglu__choice c;
    tglu__plan_launch(row, problem, call->tokens, device, &c);
    c.predicted_us = tglu__plan_cost_us(&c, problem, call->tokens);
    if (best.row < 0 || c.predicted_us < best.predicted_us) {
      second = best;
      best = c;
    } else if (second.row < 0 || c.predicted_us < second.predicted_us) {
      second = c;
    }
  }
  *choice = best;
  if (runner_up != NULL) *runner_up = second;
  return best.row >= 0;
}

int32_t tglu__bucket_of(int64_t tokens) {
  if (tokens <= 1024) return (int32_t)((tokens - 1) / 16);
  int32_t octave = 10;
  while ((tokens - 1) >> (octave + 1) != 0) ++octave;
  return 64 + (octave - 10) * 8 + (int32_t)((tokens - 1) >> (octave - 3)) - 8;
}

int64_t tglu__bucket_tokens(int32_t bucket) {
  if (bucket < 64) return ((int64_t)bucket + 1) * 16;
  int32_t octave = (bucket - 64) / 8 + 10, eighth = (bucket - 64) % 8;
  return (int64_t)(8 + eighth + 1) << (octave - 3);
}
