/* The command line of tileglu bench --device cuda. */
#ifndef BENCH_CUDA_ARGS_H
#define BENCH_CUDA_ARGS_H

#include "../options.h"
#include "variant.h"

enum { TIME_LIMIT_REACHED = 5 }; /* exit code: stopped between two shapes, resumable */

typedef struct cuda_args {
  shape_args shape;
  const char *rows;          /* "chosen", "best", "near", "all" or NAME,...             */
  const char *from;          /* results file of a former run, for "best"; NULL          */
  int64_t top;               /* best rows taken from it, or near ones                   */
  double within;             /* near: predicted at most this share above the least      */
  const char *suite;         /* its name; NULL: none                                    */
  int64_t part, parts;       /* 1-based */
  double time_limit;         /* seconds; 0: none                                        */
  double wait_limit;         /* seconds that one wait for the GPU may take              */
  timing timing;
  int64_t rounds, burst_repeats;
  int burst, with_pdl[2], stable_weights, resume, json, host_time, controls;
  int alone;                 /* rows only: neither cuBLAS nor PyTorch                   */
  const char *out, *tables, *commit;
  const char *read_out, *invariant_out, *energy_out; /* files of further figures; NULL  */
  const char *tune_cache;    /* of the planner's contexts; NULL: none                   */
  double energy_ms, energy_warm_ms;
  const char *cublas, *cublaslt, *driver, *nvml;
  int64_t gpu;
  uint64_t seed;
} cuda_args;

/* Ends the program on wrong use, as argp does. */
void cuda_args_parse(cuda_args *args, int argc, char **argv);

#endif /* BENCH_CUDA_ARGS_H */
