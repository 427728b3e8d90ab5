/* What the bench's backends share: the request, one result line, where lines go. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "options.h"
#include "table.h"

typedef struct bench_args {
  place_args place;
  shape_args shape;
  const char *rows;        /* "chosen", "all", or names joined by commas            */
  int64_t rounds;
  double slice, warm_up;   /* seconds */
  double cache_mib;        /* last-level cache; NaN: ask the system                 */
  const char *csv;         /* path, "-": stdout, NULL: none                         */
  const char *commit;      /* of the results: given, or compiled in                 */
} bench_args;

/* One contender on one problem.  Times are medians over the rounds; what does not
 * apply is NaN. */
typedef struct bench_line {
  spec spec;
  char contender[96];      /* a kernel row (a + b for an MLP), "unfused" or "read"  */
  int chosen;              /* 1: the planner's choice                               */
  double us, spread;
  double ratio_unfused;    /* time over the unfused way's, median over the rounds   */
  double gflops;
  double weight_gbs;       /* bytes of weights over time                            */
  double share_of_read;    /* the read loop's time over this one's                  */
  double rel_l2;           /* of the first tokens against the oracle                */
  int64_t rounds, copies;  /* copies of the weights, used in turn                   */
} bench_line;

typedef struct bench_sink {
  const bench_args *args;
  FILE *csv;
  json_t *lines;
  table *table;
  char device[128], isa[32], date[32];
  int threads;
} bench_sink;

int sink_open(bench_sink *sink, const bench_args *args); /* an exit code */
/* An exit code: with CSV, whether the line has reached its file. */
int sink_add(bench_sink *sink, const bench_line *line);
/* Prints what is due at the end; code is the exit code so far. */
int sink_close(bench_sink *sink, int code);

/* Runs every problem of args and adds its lines; an exit code. */
int bench_cpu(const bench_args *args, bench_sink *sink);

#endif /* CLI_BENCH_H */
