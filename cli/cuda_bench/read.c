#include "read.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "../cli.h"

/* Loads in flight against blocks an SM: which is best depends on the number of bytes. */
static const struct {
  size_t kernel;         /* field of gpu */
  int loads, blocks;
} tried[] = {
  {offsetof(gpu, read4_kernel), 4, 4},  {offsetof(gpu, read4_kernel), 4, 8},
  {offsetof(gpu, read8_kernel), 8, 2},  {offsetof(gpu, read8_kernel), 8, 4},
  {offsetof(gpu, read16_kernel), 16, 1}, {offsetof(gpu, read16_kernel), 16, 2},
};
enum { TRIED = sizeof tried / sizeof tried[0] };

int reader_enqueue(void *user, int set, gpu_stream stream) {
  const reader *r = user;
  const gpu *g = r->d->g;
  gpu_function kernel = *(const gpu_function *)((const char *)g + tried[r->kernel].kernel);
  gpu_pointer from = r->d->set[set].weights, sink = r->d->counter;
  int64_t count = (int64_t)(data_weight_bytes(&r->d->spec) / 16);
  int64_t blocks = (int64_t)g->sm_count * tried[r->kernel].blocks;
  int64_t share = (count + blocks - 1) / blocks;
  void *parameters[] = {&from, &count, &share, &sink};
  return gpu_launch(g, kernel, blocks * BENCH_THREADS, stream, parameters);
}

static int try_one(reader *r, const timing *t, double *us) {
  const gpu *g = r->d->g;
  nvml none = {0};
  variant v;
  variant_init(&v, "read");
  v.enqueue = reader_enqueue;
  v.user = r;
  int code = variant_capture(&v, r->d, variant_calls(r->d), 0);
  if (code == CLI_OK) code = variant_estimate(&v, g);
  for (int i = 0; i < 2 && code == CLI_OK; i++) code = variant_measure(&v, g, &none, t);
  if (code == CLI_OK) *us = fmin(v.us[0], v.us[1]);
  variant_destroy(&v, g);
  return code;
}

int reader_create(reader *r, const data *d, const timing *t, reader_choice *last) {
  timing brief = {.settle_ms = t->settle_ms / 4, .sample_ms = t->sample_ms / 5};
  double best = INFINITY, us = INFINITY;
  r->d = d;
  if (last->bytes != data_weight_bytes(&d->spec)) {
    for (r->kernel = 0; r->kernel < TRIED; r->kernel++) {
      if (try_one(r, &brief, &us)) return CLI_RUNTIME;
      if (us >= best) continue;
      best = us;
      last->kernel = r->kernel;
    }
    last->bytes = data_weight_bytes(&d->spec);
  }
  r->kernel = last->kernel;
  snprintf(r->name, sizeof r->name, "read%d_x%d", tried[r->kernel].loads,
           tried[r->kernel].blocks);
  return CLI_OK;
}
