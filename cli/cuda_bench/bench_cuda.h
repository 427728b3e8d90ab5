/* tileglu bench --device cuda: the whole, and one shape of it. */
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

#include "../rng.h"
#include "args.h"
#include "cublas.h"
#include "gpu.h"
#include "nvml.h"
#include "read.h"
#include "result.h"
#include "rows.h"
#include "torch_hook.h"

/* torch's linear at one control point. */
typedef struct control {
  char model[64];
  int64_t m;
  double linear_us, bare_us;
} control;

enum { MOST_CONTROLS = 64 };

typedef struct bench {
  cuda_args args;
  const bench_torch *torch;    /* NULL: no PyTorch here */
  gpu gpu;
  nvml nvml;
  cublas cublas;
  kernel_rows rows;
  reader_choice reader;        /* of the shape before */
  rng order;                   /* of the rounds */
  result_list results;         /* of this run */
  result_list former;          /* of --from */
  control controls[MOST_CONTROLS];
  int control_count;
  int wrong;                   /* lines with a wrong result */
  char date[24];
} bench;

/* Everything about one shape: data, each pdl mode, lines.  An exit code; a wrong result
 * is no failure here but counted in b->wrong. */
int bench_shape(bench *b, const spec *s, int is_control);

/* The command.  argv[0] is its name, torch may be NULL. */
int bench_cuda_main(int argc, char **argv, const bench_torch *torch);

#endif /* BENCH_CUDA_H */
