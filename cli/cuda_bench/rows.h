/* The kernel rows through the public API: contexts that force one, objects bound to the
 * data sets. */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <tileglu/tileglu.h>

#include "args.h"
#include "data.h"

typedef struct kernel_row {
  char name[96], hash[96];
  int32_t dtypes;
  int usable;
  tglu_context *context[2];    /* [pdl], made when first asked for */
} kernel_row;

typedef struct kernel_rows {
  const cuda_args *args;
  tglu_context *planner;       /* forces nothing */
  kernel_row *items;
  int count;
} kernel_rows;

int rows_open(kernel_rows *rows, const cuda_args *args);
void rows_close(kernel_rows *rows);
/* Index of the row, -1 if there is none of this name. */
int rows_find(const kernel_rows *rows, const char *name);
/* Index of the row that the planner chooses for this shape. */
int rows_chosen(const kernel_rows *rows, const data *d, int *chosen);

/* One row on one shape. */
typedef struct row_calls {
  const data *d;
  tglu_glu **objects;          /* one a set */
} row_calls;

/* *supported := 0 where the row cannot serve this shape; other failures are an exit
 * code. */
int row_calls_create(row_calls *c, kernel_rows *rows, int row, int pdl, const data *d,
                     int *supported);
void row_calls_destroy(row_calls *c);
int row_calls_enqueue(void *user, int set, gpu_stream stream); /* user: a row_calls */

#endif /* BENCH_ROWS_H */
