/* The tuner's measurements on a GPU: those of the bench. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cmd_tune.h"
#include "cuda_bench/nvml.h"
#include "cuda_bench/rows.h"
#include "cuda_bench/variant.h"
#include "mem.h"

typedef struct contender {
  variant variant;
  row_calls calls;
} contender;

typedef struct session {
  cuda_args args;            /* what of the bench's options counts here */
  int pdl, count;
  gpu gpu;
  nvml nvml;
  kernel_rows rows;
  data data;
  contender list[TUNE_CANDIDATES];
} session;

static void take_args(session *s, const tune_args *args) {
  const char *driver = args->place.options.cuda_library;
  s->pdl = args->pdl;
  s->args = (cuda_args){.gpu = args->gpu, .nvml = args->nvml, .seed = args->place.seed,
                        .driver = driver ? driver : getenv("TILEGLU_CUDA_LIBRARY")};
  s->args.timing = (timing){.settle_ms = args->settle_ms, .sample_ms = args->sample_ms};
}

static int open_cuda(const tune_args *args, void **state) {
  session *s = mem_zeroed(1, sizeof *s);
  *state = s;
  take_args(s, args);
  int code = gpu_open(&s->gpu, s->args.driver, (int)args->gpu);
  if (code != CLI_OK) return code;
  s->gpu.wait_limit = args->limit;
  nvml_open(&s->nvml, s->args.nvml, s->gpu.pci);
  return rows_open(&s->rows, &s->args);
}

static int begin(void *state, const spec *spec, char *untuned, size_t bytes) {
  session *s = state;
  row_plan plan = {0};
  int code = data_create(&s->data, &s->gpu, spec, s->args.seed);
  if (code == CLI_OK) code = rows_plan(&s->rows, ROWS_PLANNER, s->pdl, &s->data, &plan);
  if (code != CLI_OK) return code;
  int row = spec->op == OP_DOWN ? plan.down_row : plan.row;
  snprintf(untuned, bytes, "%s", row >= 0 ? s->rows.items[row].name : "");
  return CLI_OK;
}

static int predict(void *state, const char *name, double *us) {
  session *s = state;
  row_plan plan;
  int row = rows_find(&s->rows, name);
  if (row < 0) return cli_error(CLI_RUNTIME, "there is no row %s", name);
  int code = rows_plan(&s->rows, row, s->pdl, &s->data, &plan);
  *us = code == CLI_OK && plan.predicted_us > 0 ? plan.predicted_us : INFINITY;
  return code;
}

static int prepare(void *state, int i, const char *name, int *supported) {
  session *s = state;
  contender *c = &s->list[i];
  row_plan plan;
  int row = rows_find(&s->rows, name);
  if (row < 0) return cli_error(CLI_RUNTIME, "there is no row %s", name);
  int code = rows_plan(&s->rows, row, s->pdl, &s->data, &plan);
  *supported = plan.supported;
  if (code != CLI_OK || !plan.supported) return code;
  if (i >= s->count) s->count = i + 1;
  variant_init(&c->variant, name);
  code = row_calls_create(&c->calls, &s->rows, row, s->pdl, &s->data);
  if (code != CLI_OK) return code;
  c->variant.enqueue = row_calls_enqueue;
  c->variant.user = &c->calls;
  code = variant_capture(&c->variant, &s->data, variant_calls(&s->data), s->pdl);
  return code == CLI_OK ? variant_estimate(&c->variant, &s->gpu) : code;
}

static int check(void *state, int i, char *why, size_t bytes) {
  session *s = state;
  variant *v = &s->list[i].variant;
  accuracy a;
  if (data_poison(&s->data) || variant_replay(v, &s->gpu) || gpu_wait(&s->gpu, v->name) ||
      data_check(&s->data, &a)) {
    return CLI_RUNTIME;
  }
  if (accuracy_passes(&a)) return CLI_OK;
  snprintf(why, bytes, "wrong result: relative L2 error %.2e, %lld elements not finite",
           a.rel_l2, (long long)a.not_finite);
  return CLI_OK;
}

static int sample(void *state, int i, double share, double *us) {
  session *s = state;
  variant *v = &s->list[i].variant;
  timing t = s->args.timing;
  t.settle_ms *= share;
  t.sample_ms *= share;
  variant_reset(v);
  int code = variant_measure(v, &s->gpu, &s->nvml, &t);
  *us = v->us[0];
  return code;
}

static void end(void *state) {
  session *s = state;
  for (int i = 0; i < s->count; i++) {
    if (!s->list[i].variant.us) continue;
    variant_destroy(&s->list[i].variant, &s->gpu);
    row_calls_destroy(&s->list[i].calls);
  }
  s->count = 0;
  data_destroy(&s->data);
}

static void close_cuda(void *state) {
  session *s = state;
  rows_close(&s->rows);
  nvml_close(&s->nvml);
  gpu_close(&s->gpu);
  mem_free(s);
}

const tune_backend tune_cuda = {open_cuda, begin, predict, prepare, check, sample, end,
                                close_cuda};
