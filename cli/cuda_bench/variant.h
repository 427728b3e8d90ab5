/* One contender on one shape: a graph of calls that take the data sets in turn, and what
 * was measured of it. */
#ifndef BENCH_VARIANT_H
#define BENCH_VARIANT_H

#include "data.h"
#include "gpu.h"
#include "nvml.h"
#include "torch_hook.h"

enum { MOST_ROUNDS = 1000 };

typedef struct variant variant;
struct variant {
  char name[200];
  /* Enqueues the call on one set; an exit code.  Not used where the hook replays. */
  int (*enqueue)(void *user, int set, gpu_stream stream);
  void *user;
  const bench_torch *torch;    /* NULL: native */
  int torch_what;
  gpu_exec exec;
  int calls;                   /* of one replay */
  double replay_us;            /* about */
  int failed;                  /* a wrong result: not timed */
  int samples;
  double *us;                  /* per sample: one call */
  double *mhz;                 /* NaN where unknown */
};

typedef struct timing {
  double settle_ms, sample_ms;
  double idle_ms, burst_ms;
} timing;

void variant_init(variant *v, const char *name);
void variant_name(variant *v, const char *name);
void variant_destroy(variant *v, const gpu *g);

/* Calls of one replay: every set equally often, at least 8 calls and about 3 ms, fewer of
 * very long ones. */
int variant_calls(const data *d);

/* Runs the first call by itself, then captures `calls` calls, each after a write of X
 * where write_x is 1.  An exit code. */
int variant_capture(variant *v, const data *d, int calls, int write_x);
/* Enqueues one replay. */
int variant_replay(variant *v, const gpu *g);
/* Replays once, waits, and notes how long that takes. */
int variant_estimate(variant *v, const gpu *g);

/* Number of replays that take about this long, at least 1. */
int variant_replays_for(const variant *v, double ms);

/* Settles, then samples; adds one sample.  NVML's clock is read in mid-sample. */
int variant_measure(variant *v, const gpu *g, const nvml *n, const timing *t);
/* Idles, then measures the first burst_ms; adds one sample. */
int variant_burst(variant *v, const gpu *g, const nvml *n, const timing *t);
/* Drops the samples taken so far. */
void variant_reset(variant *v);

#endif /* BENCH_VARIANT_H */
