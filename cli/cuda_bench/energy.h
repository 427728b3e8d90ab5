/* Energy a call takes, by the GPU's own counter. */
#ifndef BENCH_ENERGY_H
#define BENCH_ENERGY_H

#include "nvml.h"
#include "variant.h"

typedef struct energy_sample {
  double us;             /* a call */
  double watts;          /* mean over `seconds`; NaN where NVML has no counter */
  double mhz;            /* mean SM clock; NaN where unknown */
  double seconds;        /* between two steps of the counter */
} energy_sample;

/* Settles, then runs the variant for `ms` and more, all of it under load.  An exit code. */
int energy_measure(variant *v, const gpu *g, const nvml *n, const timing *t, double ms,
                   energy_sample *e);

#endif /* BENCH_ENERGY_H */
