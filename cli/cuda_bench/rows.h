/* The kernel rows through the public API: contexts that force one, objects bound to the
 * data sets. */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <tileglu/tileglu.h>

#include "args.h"
#include "data.h"

typedef struct kernel_row {
  char name[96], hash[96];
  op_kind op;                  /* what it computes: a half, or both (OP_MLP) */
  int32_t dtypes;
  int usable;
  tglu_context *context[2];    /* [pdl], made when first asked for */
} kernel_row;

typedef struct kernel_rows {
  const cuda_args *args;
  tglu_context *planner[2];    /* [pdl]; forces nothing */
  tglu_context *invariant[2];  /* [pdl]; batch-invariant */
  kernel_row *items;
  int count;
} kernel_rows;

/* Instead of a row to force. */
enum { ROWS_PLANNER = -1, ROWS_INVARIANT = -2 };

int rows_open(kernel_rows *rows, const cuda_args *args);
/* Refuses names of --rows that no row of the op has. */
int rows_check(const kernel_rows *rows);
void rows_close(kernel_rows *rows);
/* Index of the row, -1 if there is none of this name. */
int rows_find(const kernel_rows *rows, const char *name);

/* Which rows a context gives a shape. */
typedef struct row_plan {
  int supported;               /* 0: they cannot serve it, and nothing else is set */
  int row, down_row;           /* indices; row is -1 for op down; down_row for a GLU, and for
                                  an MLP whose row computes both halves */
  double predicted_us;         /* of all that is planned; 0: unknown */
  int tuned;                   /* 1: from the tuning cache */
} row_plan;

/* Forces `force` (an index, ROWS_PLANNER or ROWS_INVARIANT).  Where the planner itself does
 * not serve the shape, an exit code. */
int rows_plan(kernel_rows *rows, int force, int pdl, const data *d, row_plan *plan);

/* One way on one shape: its objects. */
typedef struct row_object {
  tglu_glu *glu;
  tglu_mlp *mlp;
  tglu_linear *linear;
} row_object;

typedef struct row_calls {
  const data *d;
  row_object *objects;         /* one a set */
  gpu_pointer *workspaces;     /* likewise; 0 where none is needed */
  size_t workspace_bytes;
} row_calls;

/* After rows_plan said that it is supported.  An exit code. */
int row_calls_create(row_calls *c, kernel_rows *rows, int force, int pdl, const data *d);
void row_calls_destroy(row_calls *c);
int row_calls_enqueue(void *user, int set, gpu_stream stream); /* user: a row_calls */

#endif /* BENCH_ROWS_H */
