/* Which kernel row serves a problem on a device, and with which launch.  All pure:
 * no globals but the rows table, no environment, no allocation. */
#ifndef TGLU_PLAN_CHOOSE_H
#define TGLU_PLAN_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "internal.h"
#include "plan/rows.h"

enum { TGLU__MAX_CLUSTER = 8 };

/* What the planner knows of a device, after the context's SM limit. */
typedef struct tglu__device_facts {
  int32_t sm_count;
  int32_t smem_bytes;                      /* most dynamic shared memory a block */
  int32_t clusters[TGLU__MAX_CLUSTER + 1]; /* [c]: clusters of c such CTAs that can
                                              be resident at once; 0: none       */
  int32_t cooperative;                     /* 1: CTAs of a launch may wait for each
                                              other                              */
} tglu__device_facts;

/* What a call adds to one operation of the problem; x is that operation's input. */
typedef struct tglu__call_facts {
  int64_t tokens;
  bool x_aligned;   /* as tglu__matrix_aligned                                   */
  bool x_reachable; /* as tglu__matrix_reachable                                 */
} tglu__call_facts;

/* A row and its launch.  Stream rows: CTA (x, y) takes the y-th share of the result's columns
 * for the x-th tile of tokens; op mlp: CTA x takes a share of both halves' columns, down_diag: of
 * the columns.  The others: a cluster walks tiles. */
typedef struct tglu__choice {
  int32_t row;          /* index into tglu__rows                               */
  int32_t tile_rows, tile_columns, group; /* as in the launch record; stream rows: token
                           tiles, passes of all CTAs side by side, 1           */
  int32_t clusters;     /* grid x = clusters * cluster_m                       */
  int32_t grid_y;       /* stream rows: shares of the columns; else 1          */
  int32_t waves;        /* most tiles that one cluster walks, passes of a CTA  */
  int32_t smem_bytes;
  int32_t idle;         /* SMs that get no CTA                                 */
  double predicted_us;
} tglu__choice;

/* One operation of a problem: result [tokens, n] from x [tokens, k] and weights [n, k].  Of op
 * mlp both are the larger of the two halves', so that what it says of sizes holds for both. */
typedef struct tglu__shape {
  int64_t n, k;
} tglu__shape;
tglu__shape tglu__op_shape(tglu__op op, const tglu__problem *problem);
/* Whether the problem has the operation: an MLP has both halves, and so op mlp. */
bool tglu__op_present(tglu__op op, const tglu__problem *problem);

/* What one tensor map can describe: 16-byte pointer, stride a multiple of 8 elements
 * below 2^39; the stride does not count where there is one row. */
bool tglu__matrix_aligned(const void *pointer, int64_t rows, int64_t ld);
/* Whether all weights of the operation are. */
bool tglu__weights_aligned(tglu__op op, const tglu__problem *problem);
/* What up to 8 maps can (the general loader): stride below 2^36 elements. */
bool tglu__matrix_reachable(int64_t rows, int64_t ld);

/* THE predicate: whether the row can serve this problem and call on this device.
 * If not and why is not NULL, *why is a static clause: "needs ...". */
bool tglu__row_valid(const tglu__row *row, const tglu__problem *problem,
                     const tglu__call_facts *call, const tglu__device_facts *device,
                     const char **why);

/* The launch of one valid row; predicted_us is left 0. */
void tglu__plan_launch(int32_t row, const tglu__problem *problem, int64_t tokens,
                       const tglu__device_facts *device, tglu__choice *choice);

/* Predicted time of a launch, in microseconds (cost.c). */
double tglu__plan_cost_us(const tglu__choice *choice, const tglu__problem *problem,
                          int64_t tokens);
/* The same of the row by itself, also where the problem is an MLP. */
double tglu__plan_alone_us(const tglu__choice *choice, const tglu__problem *problem,
                           int64_t tokens);
/* Predicted time of an MLP whose two launches take so long alone. */
double tglu__plan_mlp_us(double glu_us, double down_us);
/* The same of the rows that tglu__plan_choose has for both halves; call: of x.  INFINITY where
 * there is none for one. */
double tglu__plan_pair_us(const tglu__problem *problem, const tglu__call_facts *call,
                          const tglu__device_facts *device);

/* The valid row of this operation with the least predicted time; of equals the first in
 * the table.  False if no row is valid.  runner_up may be NULL; its row is -1 if there is
 * none. */
bool tglu__plan_choose(tglu__op op, const tglu__problem *problem,
                       const tglu__call_facts *call, const tglu__device_facts *device,
                       tglu__choice *choice, tglu__choice *runner_up);

/* One row for all numbers of tokens (batch_invariant): of this operation's rows that are valid at
 * 1, 16, 128, 1024 and 4096 tokens the one with the least geometric mean, over these counts, of
 * its predicted time over the fastest row's; of equals the first in the table.  call->tokens has
 * no part in that: it is what the launch and its time are for.  False, and row -1, if no row is
 * valid at all counts, or that row is not at call->tokens.  runner_up, the second by this rule,
 * may be NULL; its row is -1 if there is none for call->tokens. */
enum { TGLU__INVARIANT_MOST = 4096 };
bool tglu__plan_choose_invariant(tglu__op op, const tglu__problem *problem,
                                 const tglu__call_facts *call,
                                 const tglu__device_facts *device, tglu__choice *choice,
                                 tglu__choice *runner_up);

/* Buckets of token counts: 1, 2, 4, 8, then steps of 8 up to 64, of 16 up to 1024, then 8
 * an octave up to 2^31.  A bucket is planned at its largest count. */
enum { TGLU__BUCKETS = 4 + 7 + 60 + 21 * 8 };
int32_t tglu__bucket_of(int64_t tokens);         /* 1 <= tokens <= 2^31 */
int64_t tglu__bucket_tokens(int32_t bucket);     /* largest count of the bucket */

#endif /* TGLU_PLAN_CHOOSE_H */
