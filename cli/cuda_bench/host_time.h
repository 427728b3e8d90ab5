/* Host time of the library's calls on the GPU. */
#ifndef BENCH_HOST_TIME_H
#define BENCH_HOST_TIME_H

#include "bench_cuda.h"

typedef struct host_time {
  double first_result_ms;      /* context created ... first result there             */
  double run_ns[2];            /* tglu_glu_run, [pdl]: enqueued only                 */
  double empty_ns;             /* cuLaunchKernelEx of an empty kernel, as many bytes */
} host_time;

/* Needs the gpu open and nothing of the library used before.  An exit code. */
int host_time_measure(bench *b, const spec *s, host_time *t);

#endif /* BENCH_HOST_TIME_H */
