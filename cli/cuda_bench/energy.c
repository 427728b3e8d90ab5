#include "energy.h"

#include <math.h>
#include <time.h>

#include "../cli.h"
#include "../progress.h"

static const double batch_ms = 10;      /* enqueued at a time; two are ahead, or nearly */
static const double poll = 5e-4;        /* seconds between two looks at the counter */
static const double longest_step = 0.2; /* between two steps of it */

/* Replays without end.  They are enqueued little by little: the driver's queue is short, and
 * a thread that enqueues more than it holds is kept there until nearly all is done. */
typedef struct load {
  variant *v;
  const gpu *g;
  gpu_event marks[2];   /* each at the end of a batch */
  int oldest, batch;    /* of marks; replays a batch */
  int count;            /* replays enqueued so far */
} load;

typedef struct clock_mean {
  double sum;
  int count;
} clock_mean;

static void nap(double seconds) {
  nanosleep(&(struct timespec){0, (long)(1e9 * seconds)}, NULL);
}

static int enqueue(load *l) {
  for (int i = 0; i < l->batch; i++) {
    if (variant_replay(l->v, l->g)) return CLI_RUNTIME;
  }
  l->count += l->batch;
  int code = gpu_record(l->g, l->marks[l->oldest]);
  l->oldest = !l->oldest;
  return code;
}

static int load_begin(load *l, variant *v, const gpu *g) {
  *l = (load){.v = v, .g = g, .marks = {g->end, g->done},
              .batch = variant_replays_for(v, batch_ms)};
  return enqueue(l) || enqueue(l) ? CLI_RUNTIME : CLI_OK;
}

/* Another batch where one has ended. */
static int keep_up(load *l) {
  int result = l->g->event_query(l->marks[l->oldest]);
  if (result == GPU_NOT_READY) return CLI_OK;
  if (gpu_check(l->g, result, "%s", l->v->name)) return CLI_RUNTIME;
  return enqueue(l);
}

static int hold(load *l, const nvml *n, double until, clock_mean *clock) {
  while (clock_now() < until) {
    nap(2 * poll);
    double mhz = nvml_sm_mhz(n);
    if (isfinite(mhz)) {
      clock->sum += mhz;
      clock->count++;
    }
    if (keep_up(l)) return CLI_RUNTIME;
  }
  return CLI_OK;
}

/* To the counter's next step: what it is then, and when that is. */
static int step(load *l, const nvml *n, double *millijoules, double *when) {
  double before = nvml_millijoules(n), begin = clock_now();
  do {
    nap(poll);
    if (keep_up(l)) return CLI_RUNTIME;
    *millijoules = nvml_millijoules(n);
    *when = clock_now();
  } while (*millijoules == before && *when - begin < longest_step);
  return CLI_OK;
}

static int watch(load *l, const nvml *n, double seconds, energy_sample *e) {
  const gpu *g = l->g;
  clock_mean clock = {0};
  double from = 0, to = 0, begin = 0, end = 0, us = 0;
  if (step(l, n, &from, &begin) || gpu_record(g, g->start)) return CLI_RUNTIME;
  int before = l->count;
  if (hold(l, n, begin + seconds, &clock) || step(l, n, &to, &end) ||
      gpu_record(g, g->end) || gpu_wait(g, l->v->name) || gpu_elapsed_us(g, &us)) {
    return CLI_RUNTIME;
  }
  e->seconds = end - begin;
  e->watts = 1e-3 * (to - from) / e->seconds;
  e->mhz = clock.count ? clock.sum / clock.count : NAN;
  e->us = us / ((double)(l->count - before) * l->v->calls);
  return CLI_OK;
}

int energy_measure(variant *v, const gpu *g, const nvml *n, double warm_ms, double ms,
                   energy_sample *e) {
  load l;
  clock_mean ignored = {0};
  if (gpu_wait(g, v->name) || load_begin(&l, v, g) ||
      hold(&l, n, clock_now() + 1e-3 * warm_ms, &ignored)) {
    return CLI_RUNTIME;
  }
  return watch(&l, n, 1e-3 * ms, e);
}
