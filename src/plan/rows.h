/* The table of GPU kernel rows, from kernels/sm90/rows.def, and their code. */
#ifndef TGLU_PLAN_ROWS_H
#define TGLU_PLAN_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

/* Code of one row: a compressed cubin (a fat binary) of size bytes, or NULL if it was built
 * without nvcc.
 * hash: 16 hex digits over the row's sources and its line (kernels/rows.py). */
typedef struct tglu__cubin {
  const char *hash;
  const void *code;
  size_t size;
} tglu__cubin;

typedef enum tglu__schedule {
  tglu__schedule_paired_pingpong, /* op glu: launch.h                           */
  tglu__schedule_paired_coop,
  tglu__schedule_paired_three,
  tglu__schedule_gate_first,
  tglu__schedule_paired_general,
  tglu__schedule_stream,          /* op glu and down: stream_launch.h           */
  tglu__schedule_stream_mlp,      /* op mlp: stream_mlp_launch.h                */
  tglu__schedule_down_pingpong,   /* op down: down_launch.h                     */
  tglu__schedule_down_coop,
  tglu__schedule_down_split,
  tglu__schedule_down_diag        /* down_diag_launch.h                         */
} tglu__schedule;

typedef enum tglu__op {
  tglu__op_glu,  /* H = act(X Wg^T + bg) * (X Wu^T + bu)                        */
  tglu__op_down, /* O = X W^T + b (+ R): an MLP's second half, and a linear     */
  tglu__op_mlp   /* both in one launch                                          */
} tglu__op;

enum { TGLU__OPS = 3 };

typedef enum tglu__loader {
  tglu__loader_tma,    /* 16-byte pointers, strides a multiple of 8 elements */
  tglu__loader_general /* any address at a multiple of the element, any stride */
} tglu__loader;

typedef struct tglu__row {
  const char *name;          /* of the row and of its kernel                    */
  const char *op_name;       /* "glu", "down" or "mlp"                          */
  const char *schedule_name;
  tglu__op op;
  tglu_dtype dtype;
  tglu__schedule schedule;
  int32_t tile_m, tile_n;    /* output tile of one unit of work                 */
  int32_t stages;
  int32_t cluster_m;         /* CTAs of a cluster, side by side along tokens; of
                                down_split: which share one tile and split its K */
  tglu__loader loader;
  const tglu__cubin *cubin;
} tglu__row;

extern const tglu__row tglu__rows[];
extern const int32_t tglu__row_total;

/* Index of the row of that name, -1 if there is none. */
int32_t tglu__row_find(const char *name);

/* Whether the row reads its operands by plain loads (stream_launch.h), else by TMA. */
bool tglu__row_is_stream(const tglu__row *row);
/* Whether it holds outputs and slices of K side by side (down_diag_launch.h). */
bool tglu__row_is_diag(const tglu__row *row);
/* Threads of a CTA. */
int32_t tglu__row_threads(const tglu__row *row);

/* Rows of the weights' tile in shared memory per unit: 2 * tile_n, or tile_n where one
 * operand is held at a time (gate_first, op down).  Not for stream rows. */
int32_t tglu__row_b_rows(const tglu__row *row);
/* Whether its tiles have a tail (tail_launch.h), and their columns without it. */
bool tglu__row_has_tail(const tglu__row *row);
int32_t tglu__row_main_columns(const tglu__row *row);
/* Rows of one box of the weights' maps; with a tail, of the main columns'.  Not for stream rows
 * and down_diag. */
int32_t tglu__row_weight_box_rows(const tglu__row *row);
/* Dynamic shared memory of a launch for so many tokens and columns of x (op mlp: of x or H,
 * whichever has more); only that of rows which hold tokens whole depends on them: of stream
 * rows it grows with both, of down_diag it is all that there is, or more than there is. */
int64_t tglu__row_smem_bytes(const tglu__row *row, int64_t tokens, int64_t k);

#endif /* TGLU_PLAN_ROWS_H */
