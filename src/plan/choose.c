#include "plan/choose.h"

#include <math.h>

#include "../kernels/sm90/down_diag_launch.h"
#include "../kernels/sm90/stream_mlp_launch.h"

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
  bool split = row->schedule == tglu__schedule_down_split;
  int32_t height = row->tile_m * (split ? 1 : row->cluster_m);
  return height >= GROUP_TOKENS ? 1 : GROUP_TOKENS / height;
}

tglu__shape tglu__op_shape(tglu__op op, const tglu__problem *problem) {
  const int64_t larger = problem->n > problem->k ? problem->n : problem->k;
  if (op == tglu__op_mlp) return (tglu__shape){larger, larger};
  return op == tglu__op_glu ? (tglu__shape){problem->n, problem->k}
                            : (tglu__shape){problem->k, problem->n};
}

bool tglu__op_present(tglu__op op, const tglu__problem *problem) {
  return (op == tglu__op_down || (problem->gate != NULL && problem->n > 0)) &&
         (op == tglu__op_glu || problem->has_down);
}

/* Clusters in a column of tiles: down_split puts one tile, the others one a CTA. */
static int64_t tile_rows_of(const tglu__row *row, int64_t tokens) {
  int64_t side_by_side = row->schedule == tglu__schedule_down_split ? 1 : row->cluster_m;
  return ceil_div(tokens, row->tile_m * side_by_side);
}

/* Why the sizes do not fit the launch record, the grid and the tensor maps, NULL if they
 * do. */
static const char *size_refusal(const tglu__row *row, const tglu__problem *problem,
                                int64_t tokens) {
  const int64_t most = INT32_MAX;
  bool glu = row->op == tglu__op_glu;
  tglu__shape shape = tglu__op_shape(row->op, problem);
  if (tokens > most) return "needs tokens below 2^31";
  if (row->op == tglu__op_mlp)
    return shape.n > most - 512 ? "needs hidden and intermediate below 2^31 - 512" : NULL;
  /* The last tile's columns are counted beyond N, by up to a tile. */
  if (shape.n > most - 255)
    return glu ? "needs intermediate below 2^31 - 255"
               : "needs hidden (of a linear: out_features) below 2^31 - 255";
  if (shape.k > most - 512) /* the last K-blocks of all CTAs that share a tile */
    return glu ? "needs hidden below 2^31 - 512"
               : "needs intermediate (of a linear: in_features) below 2^31 - 512";
  int64_t rows = tile_rows_of(row, tokens), columns = ceil_div(shape.n, row->tile_n);
  if (tglu__row_is_stream(row)) return NULL;
  if (shape.k == 0) return "needs an intermediate of at least 1";
  if (rows > most / columns) return "needs fewer than 2^31 tiles";
  if (columns > most / raster_group(row)) return "needs a result of fewer columns";
  return NULL;
}

bool tglu__weights_aligned(tglu__op op, const tglu__problem *p) {
  const bool glu = tglu__matrix_aligned(p->gate, p->n, p->ld) &&
                   tglu__matrix_aligned(p->up, p->n, p->ld);
  const bool down = tglu__matrix_aligned(p->down, p->k, p->ld_down);
  return (op == tglu__op_down || glu) && (op == tglu__op_glu || down);
}

bool tglu__row_valid(const tglu__row *row, const tglu__problem *problem,
                     const tglu__call_facts *call, const tglu__device_facts *device,
                     const char **why) {
  const char *refusal = NULL;
  if (row->dtype != problem->dtype) {
    refusal = "serves another dtype";
  } else if (!tglu__op_present(row->op, problem)) {
    refusal = "serves another operation";
  } else if ((refusal = size_refusal(row, problem, call->tokens)) != NULL) {
  } else if (row->loader == tglu__loader_tma && !tglu__weights_aligned(row->op, problem)) {
    refusal = "needs weights on 16 bytes with a row stride (ld) that is a multiple of 8";
  } else if (row->loader == tglu__loader_tma && !call->x_aligned) {
    refusal = "needs x on 16 bytes with a stride (ldx) that is a multiple of 8";
  } else if (row->loader == tglu__loader_general && !tglu__row_is_stream(row) &&
             !(call->x_reachable && tglu__matrix_reachable(problem->n, problem->ld))) {
    refusal = "needs strides (ldx, ld) below 2^36 elements";
  } else if (tglu__row_smem_bytes(row, call->tokens, tglu__op_shape(row->op, problem).k) >
             device->smem_bytes) {
    refusal = tglu__row_is_stream(row) || tglu__row_is_diag(row)
                ? "needs more shared memory for its tokens than a block has on this device"
                : "needs more shared memory than a block has on this device";
  } else if (row->cluster_m > TGLU__MAX_CLUSTER || device->clusters[row->cluster_m] < 1) {
    refusal = "needs more SMs side by side than the device or its SM limit (sm_limit) "
              "leaves";
  } else if ((row->op == tglu__op_mlp || tglu__row_is_diag(row)) &&
             call->tokens > row->tile_m) {
    refusal = "needs no more tokens than its one tile has";
  } else if (row->op == tglu__op_mlp && !device->cooperative) {
    refusal = "needs a device whose blocks may wait for each other (cooperative launches)";
  } else if (tglu__row_is_diag(row) && problem->n % TGLU_TILE_K != 0) {
    refusal = "needs an intermediate (of a linear: in_features) that is a multiple of 64";
  } else if (tglu__row_is_stream(row) && row->loader == tglu__loader_tma &&
             tile_rows_of(row, call->tokens) > device->sm_count) {
    refusal = "needs no more tiles of tokens than SMs";
  }
  if (why != NULL) *why = refusal;
  return refusal == NULL;
}

/* One CTA an SM: two ask for the same tokens twice, and were faster by 1-4 % at the smallest
 * model only (docs/notes, step 18). */
static void plan_stream(const tglu__row *r, const tglu__problem *problem, int64_t tokens,
                        const tglu__device_facts *device, tglu__choice *choice) {
  int64_t n = tglu__op_shape(r->op, problem).n, rows = tile_rows_of(r, tokens);
  int64_t splits = rows < device->sm_count ? device->sm_count / rows : 1;
  if (splits > n) splits = n;
  choice->tile_rows = choice->clusters = (int32_t)rows;
  choice->grid_y = (int32_t)splits;
  choice->waves = (int32_t)ceil_div(ceil_div(n, splits), r->tile_n);
  choice->tile_columns = (int32_t)ceil_div(n, r->tile_n);
  choice->group = 1;
}

/* One CTA an SM, all resident at once: each waits for the others. */
static void plan_mlp(const tglu__row *r, const tglu__problem *problem,
                     const tglu__device_facts *device, tglu__choice *choice) {
  const int64_t larger = tglu__op_shape(r->op, problem).n;
  const int64_t ctas = larger < device->sm_count ? larger : device->sm_count;
  choice->tile_rows = choice->grid_y = choice->group = 1;
  choice->clusters = (int32_t)ctas;
  choice->tile_columns = (int32_t)ceil_div(larger, r->tile_n);
  choice->waves = (int32_t)(ceil_div(ceil_div(problem->n, ctas), r->tile_n) +
                            ceil_div(ceil_div(problem->k, ctas), TGLU_STREAM_MLP_DOWN_ROWS));
}

/* One CTA an SM, each with its share of the units of outputs. */
static void plan_diag(const tglu__row *r, const tglu__problem *problem,
                      const tglu__device_facts *device, tglu__choice *choice) {
  const int64_t units = ceil_div(problem->k, TGLU_DIAG_UNIT);
  const int64_t ctas = units < device->sm_count ? units : device->sm_count;
  choice->tile_rows = choice->grid_y = choice->group = 1;
  choice->tile_columns = (int32_t)ceil_div(problem->k, r->tile_n);
  choice->clusters = (int32_t)ctas;
  choice->waves = (int32_t)ceil_div(ceil_div(units, ctas), r->tile_n / TGLU_DIAG_UNIT);
}

static void plan_tiles(const tglu__row *r, const tglu__problem *problem, int64_t tokens,
                       const tglu__device_facts *device, tglu__choice *choice) {
  int64_t rows = tile_rows_of(r, tokens);
  int64_t columns = ceil_div(tglu__op_shape(r->op, problem).n, r->tile_n);
  int64_t tiles = rows * columns;
  int32_t room = device->clusters[r->cluster_m];
  choice->tile_rows = (int32_t)rows;
  choice->tile_columns = (int32_t)columns;
  choice->group = raster_group(r);
  choice->clusters = tiles < room ? (int32_t)tiles : room;
  choice->waves = (int32_t)ceil_div(tiles, choice->clusters);
  choice->grid_y = 1;
}

/* Rows that stream take one CTA an SM; with dependent launch they begin on SMs that the kernel
 * before has left or never used, where two of them side by side would leave other SMs idle (7B, two
 * tokens: an MLP took 1.4 times as long).  So each asks for more than half an SM. */
static int32_t alone_bytes(const tglu__row *r, const tglu__device_facts *device, int64_t smem) {
  int32_t half = device->smem_bytes / 2 + 1024;
  bool one = tglu__row_is_stream(r) && r->loader == tglu__loader_tma;
  return one && smem < half ? half : (int32_t)smem;
}

void tglu__plan_launch(int32_t row, const tglu__problem *problem, int64_t tokens,
                       const tglu__device_facts *device, tglu__choice *choice) {
  const tglu__row *r = &tglu__rows[row];
  int64_t smem = tglu__row_smem_bytes(r, tokens, tglu__op_shape(r->op, problem).k);
  *choice = (tglu__choice){.row = row, .smem_bytes = alone_bytes(r, device, smem)};
  if (r->op == tglu__op_mlp) {
    plan_mlp(r, problem, device, choice);
  } else if (tglu__row_is_stream(r)) {
    plan_stream(r, problem, tokens, device, choice);
  } else if (tglu__row_is_diag(r)) {
    plan_diag(r, problem, device, choice);
  } else {
    plan_tiles(r, problem, tokens, device, choice);
  }
  int64_t ctas = (int64_t)choice->clusters * r->cluster_m * choice->grid_y;
  choice->idle = ctas < device->sm_count ? (int32_t)(device->sm_count - ctas) : 0;
}

static tglu__choice launch_with_cost(int32_t row, const tglu__problem *problem, int64_t tokens,
                                     const tglu__device_facts *device) {
  tglu__choice choice;
  tglu__plan_launch(row, problem, tokens, device, &choice);
  choice.predicted_us = tglu__plan_cost_us(&choice, problem, tokens);
  return choice;
}

bool tglu__plan_choose(tglu__op op, const tglu__problem *problem,
                       const tglu__call_facts *call, const tglu__device_facts *device,
                       tglu__choice *choice, tglu__choice *runner_up) {
  tglu__choice best = {.row = -1}, second = {.row = -1};
  for (int32_t row = 0; row < tglu__row_total; ++row) {
    if (tglu__rows[row].op != op ||
        !tglu__row_valid(&tglu__rows[row], problem, call, device, NULL))
      continue;
    tglu__choice c = launch_with_cost(row, problem, call->tokens, device);
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

/* Product of the row's predicted times at the counts of tglu__plan_choose_invariant, by itself, so
 * that an MLP and a linear of one shape agree: orders rows as the mean does, since the fastest
 * rows' times divide all of them alike.  INFINITY where the row does not serve them all. */
static double product_us(int32_t row, const tglu__problem *problem,
                         const tglu__call_facts *call, const tglu__device_facts *device) {
  static const int64_t counts[] = {1, 16, 128, 1024, TGLU__INVARIANT_MOST};
  double product = 1;
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    tglu__call_facts at = *call;
    at.tokens = counts[i];
    if (!tglu__row_valid(&tglu__rows[row], problem, &at, device, NULL)) return INFINITY;
    tglu__choice c;
    tglu__plan_launch(row, problem, counts[i], device, &c);
    product *= tglu__plan_alone_us(&c, problem, counts[i]);
  }
  return product;
}

/* For call->tokens; without a row if there is none or it does not serve so many. */
static tglu__choice launch_if_valid(int32_t row, const tglu__problem *problem,
                                    const tglu__call_facts *call,
                                    const tglu__device_facts *device) {
  if (row < 0 || !tglu__row_valid(&tglu__rows[row], problem, call, device, NULL))
    return (tglu__choice){.row = -1};
  return launch_with_cost(row, problem, call->tokens, device);
}

bool tglu__plan_choose_invariant(tglu__op op, const tglu__problem *problem,
                                 const tglu__call_facts *call,
                                 const tglu__device_facts *device, tglu__choice *choice,
                                 tglu__choice *runner_up) {
  int32_t best = -1, second = -1;
  double least = INFINITY, next = INFINITY;
  for (int32_t row = 0; row < tglu__row_total; ++row) {
    if (tglu__rows[row].op != op) continue;
    const double product = product_us(row, problem, call, device);
    if (product < least) {
      second = best, next = least;
      best = row, least = product;
    } else if (product < next) {
      second = row, next = product;
    }
  }
  *choice = launch_if_valid(best, problem, call, device);
  if (runner_up != NULL) *runner_up = launch_if_valid(second, problem, call, device);
  return choice->row >= 0;
}

double tglu__plan_pair_us(const tglu__problem *problem, const tglu__call_facts *call,
                          const tglu__device_facts *device) {
  const tglu__call_facts h = {.tokens = call->tokens, .x_aligned = true, .x_reachable = true};
  tglu__choice glu, down;
  if (!tglu__plan_choose(tglu__op_glu, problem, call, device, &glu, NULL) ||
      !tglu__plan_choose(tglu__op_down, problem, &h, device, &down, NULL))
    return INFINITY;
  return tglu__plan_mlp_us(glu.predicted_us, down.predicted_us);
}

enum {
  FEW = 4,       /* buckets of 1, 2, 4 and 8 tokens */
  EIGHTS = 7,    /* steps of 8 up to 64             */
  SIXTEENS = 60, /* steps of 16 up to 1024          */
  BEFORE_OCTAVES = FEW + EIGHTS + SIXTEENS
};

int32_t tglu__bucket_of(int64_t tokens) {
  if (tokens <= 8) return tokens <= 2 ? (int32_t)tokens - 1 : tokens <= 4 ? 2 : 3;
  if (tokens <= 64) return FEW + (int32_t)((tokens - 9) / 8);
  if (tokens <= 1024) return FEW + EIGHTS + (int32_t)((tokens - 65) / 16);
  int32_t octave = 10;
  while ((tokens - 1) >> (octave + 1) != 0) ++octave;
  return BEFORE_OCTAVES + (octave - 10) * 8 + (int32_t)((tokens - 1) >> (octave - 3)) - 8;
}

int64_t tglu__bucket_tokens(int32_t bucket) {
  if (bucket < FEW) return (int64_t)1 << bucket;
  if (bucket < FEW + EIGHTS) return 8 + (bucket - FEW + 1) * 8;
  if (bucket < BEFORE_OCTAVES) return 64 + (bucket - FEW - EIGHTS + 1) * 16;
  int32_t octave = (bucket - BEFORE_OCTAVES) / 8 + 10, eighth = (bucket - BEFORE_OCTAVES) % 8;
  return (int64_t)(8 + eighth + 1) << (octave - 3);
}
