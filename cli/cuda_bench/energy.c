#include "energy.h"

#include <math.h>
#include <time.h>

#include "../cli.h"
#include "../progress.h"

static const double longest_step = 0.2; /* seconds between two steps of the counter */

static void nap(double seconds) {
  struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
  nanosleep(&t, NULL);
}

/* Waits for the counter's next step, so that its coarse steps do not matter. */
static double step(const nvml *n, double *when) {
  double before = nvml_millijoules(n), begin = clock_now(), now = before;
  while (now == before && clock_now() - begin < longest_step) {
    nap(5e-4);
    now = nvml_millijoules(n);
  }
  *when = clock_now();
  return now;
}

static void watch(const nvml *n, double seconds, energy_sample *e) {
  double begin = 0, end = 0, sum = 0;
  int count = 0;
  double from = step(n, &begin);
  while (clock_now() - begin < seconds) {
    double mhz = nvml_sm_mhz(n);
    if (isfinite(mhz)) {
      sum += mhz;
      count++;
    }
    nap(5e-3);
  }
  double to = step(n, &end);
  e->seconds = end - begin;
  e->watts = 1e-3 * (to - from) / e->seconds;
  e->mhz = count ? sum / count : NAN;
}

int energy_measure(variant *v, const gpu *g, const nvml *n, const timing *t, double ms,
                   energy_sample *e) {
  double us = 0;
  int count = 0;
  if (gpu_wait(g, v->name) || variant_settle(v, g, t->settle_ms) ||
      variant_enqueue(v, g, ms + 2.5e3 * longest_step, &count)) {
    return CLI_RUNTIME;
  }
  nap(1e-3 * t->settle_ms);
  watch(n, 1e-3 * ms, e);
  if (gpu_wait(g, v->name) || gpu_elapsed_us(g, &us)) return CLI_RUNTIME;
  e->us = us / ((double)count * v->calls);
  return CLI_OK;
}
