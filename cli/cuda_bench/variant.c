#include "variant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../cli.h"
#include "../mem.h"
#include "../progress.h"

enum { CAPTURE_THREAD_LOCAL = 1, MOST_REPLAYS = 100000 };

void variant_name(variant *v, const char *name) {
  snprintf(v->name, sizeof v->name, "%s", name);
}

void variant_init(variant *v, const char *name) {
  memset(v, 0, sizeof *v);
  variant_name(v, name);
  v->us = mem_zeroed(MOST_ROUNDS, sizeof *v->us);
  v->mhz = mem_zeroed(MOST_ROUNDS, sizeof *v->mhz);
}

void variant_destroy(variant *v, const gpu *g) {
  if (v->exec) g->exec_destroy(v->exec);
  mem_free(v->us);
  mem_free(v->mhz);
  memset(v, 0, sizeof *v);
}

void variant_reset(variant *v) { v->samples = 0; }

int variant_calls(const data *d) {
  double us = 2 + fmax(data_flops(&d->spec) / 700e6, data_bytes(&d->spec) / 4e6);
  double want = fmin(3000 / us, 128);
  if (want < 8) want = fmax(2, fmin(8, 20000 / us));
  int whole = (int)ceil(want / d->sets);
  return d->sets * (whole > 1 ? whole : 1);
}

static int enqueue_all(variant *v, const data *d, int calls, int write_x) {
  for (int i = 0; i < calls; i++) {
    int set = i % d->sets;
    if (write_x && data_write_x(d, set, d->g->stream)) return CLI_RUNTIME;
    if (v->enqueue(v->user, set, d->g->stream)) return CLI_RUNTIME;
  }
  return CLI_OK;
}

int variant_capture(variant *v, const data *d, int calls, int write_x) {
  const gpu *g = d->g;
  v->calls = calls;
  int code = v->enqueue(v->user, 0, g->stream);
  if (code == CLI_OK) code = gpu_wait(g, v->name);
  if (code != CLI_OK) return code;
  if (gpu_check(g, g->begin_capture(g->stream, CAPTURE_THREAD_LOCAL),
                "%s: cuStreamBeginCapture", v->name)) {
    return CLI_RUNTIME;
  }
  code = enqueue_all(v, d, calls, write_x);
  gpu_graph graph = NULL;
  int ended = g->end_capture(g->stream, &graph);
  if (code == CLI_OK) code = gpu_check(g, ended, "%s: cuStreamEndCapture", v->name);
  if (code == CLI_OK) {
    code = gpu_check(g, g->instantiate(&v->exec, graph, 0), "%s: cuGraphInstantiate", v->name);
  }
  if (graph) g->graph_destroy(graph);
  return code;
}

int variant_replay(variant *v, const gpu *g) {
  if (!v->torch) {
    return gpu_check(g, g->graph_launch(v->exec, g->stream), "%s: cuGraphLaunch", v->name);
  }
  if (v->torch->replay(v->torch->user, v->torch_what) == 0) return CLI_OK;
  return cli_error(CLI_RUNTIME, "%s: the replay failed", v->name);
}

static int replays(variant *v, const gpu *g, int count) {
  for (int i = 0; i < count; i++) {
    if (variant_replay(v, g)) return CLI_RUNTIME;
  }
  return CLI_OK;
}

int variant_replays_for(const variant *v, double ms) {
  double count = ceil(1e3 * ms / v->replay_us);
  return count < 1 ? 1 : count > MOST_REPLAYS ? MOST_REPLAYS : (int)count;
}

static int timed(variant *v, const gpu *g, int count) {
  if (gpu_record(g, g->start)) return CLI_RUNTIME;
  if (replays(v, g, count)) return CLI_RUNTIME;
  return gpu_record(g, g->end);
}

int variant_estimate(variant *v, const gpu *g) {
  if (replays(v, g, 1) || gpu_wait(g, v->name)) return CLI_RUNTIME;
  if (timed(v, g, 1) || gpu_wait(g, v->name)) return CLI_RUNTIME;
  if (gpu_elapsed_us(g, &v->replay_us)) return CLI_RUNTIME;
  if (v->replay_us > 0) return CLI_OK;
  return cli_error(CLI_RUNTIME, "%s: a replay took no time", v->name);
}

static void sleep_until(double when) {
  double left = when - clock_now();
  if (left <= 0) return;
  struct timespec t = {(time_t)left, (long)(1e9 * (left - floor(left)))};
  nanosleep(&t, NULL);
}

/* The sample is under way and ends about sample_ms after `begin`. */
static int finish_sample(variant *v, const gpu *g, const nvml *n, double middle, int count) {
  double us = 0;
  sleep_until(middle);
  double mhz = nvml_sm_mhz(n);
  if (gpu_wait(g, v->name) || gpu_elapsed_us(g, &us)) return CLI_RUNTIME;
  if (!(us > 0)) return cli_error(CLI_RUNTIME, "%s: a sample took no time", v->name);
  if (v->samples == MOST_ROUNDS) return cli_error(CLI_USAGE, "too many rounds");
  v->mhz[v->samples] = mhz;
  v->us[v->samples++] = us / ((double)count * v->calls);
  v->replay_us = us / count;
  return CLI_OK;
}

int variant_measure(variant *v, const gpu *g, const nvml *n, const timing *t) {
  double begin = clock_now();
  int count = variant_replays_for(v, t->sample_ms);
  if (replays(v, g, variant_replays_for(v, t->settle_ms)) || timed(v, g, count)) {
    return CLI_RUNTIME;
  }
  return finish_sample(v, g, n, begin + 1e-3 * (t->settle_ms + t->sample_ms / 2), count);
}

int variant_burst(variant *v, const gpu *g, const nvml *n, const timing *t) {
  if (gpu_wait(g, v->name)) return CLI_RUNTIME;
  sleep_until(clock_now() + 1e-3 * t->idle_ms);
  double begin = clock_now();
  int count = variant_replays_for(v, t->burst_ms);
  if (timed(v, g, count)) return CLI_RUNTIME;
  return finish_sample(v, g, n, begin + 0.5e-3 * t->burst_ms, count);
}
