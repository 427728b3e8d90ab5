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

/* Runs the variant for warm_ms, and on through `ms` and more, which are measured from one step
 * of the counter to another.  An exit code. */
int energy_measure(variant *v, const gpu *g, const nvml *n, double warm_ms, double ms,
                   energy_sample *e);

#endif /* BENCH_ENERGY_H */
