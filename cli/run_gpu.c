/* `tileglu run` on the GPU: fused against unfused, timed by the device's clock. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cuda_bench/kernels/bench_kernels.h"
#include "gpu_place.h"
#include "mem.h"
#include "numbers.h"
#include "run_layer.h"
#include "stats.h"

enum { CALLS = 20, ROUNDS = 15 }; /* calls of a sample; rounds unless --repeat says */

typedef struct gpu_pair {
  const gpu *g;
  gpu_weights weights;
  op fused;
  baseline unfused;
  int has_unfused;
  bench_problem problem;                    /* of the activation pass */
  gpu_pointer x, y, h, out, workspace, baseline_workspace;
  size_t workspace_bytes, baseline_bytes;
  int64_t tokens, intermediate, hidden;
} gpu_pair;

static void *address(gpu_pointer p) { return (void *)(uintptr_t)p; }

static void pair_free(gpu_pair *p) {
  op_destroy(&p->fused);
  if (p->has_unfused) baseline_free(&p->unfused);
  gpu_pointer *memory[] = {&p->x, &p->y, &p->h, &p->out, &p->workspace, &p->baseline_workspace};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) gpu_release(p->g, memory[i]);
  gpu_weights_free(&p->weights, p->g);
}

/* ---- the ways ---- */

static int run_fused(gpu_pair *p) {
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = address(p->x);
  a.tokens = p->tokens;
  a.out = address(p->out);
  a.workspace = address(p->workspace);
  a.workspace_bytes = p->workspace_bytes;
  a.stream = p->g->stream;
  return op_run(&p->fused, &a) == TGLU_OK ? CLI_OK : cli_library_error(CLI_RUNTIME, "run");
}

static int run_linear(gpu_pair *p, const tglu_linear *linear, gpu_pointer x, gpu_pointer out,
                      int64_t ldo) {
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = address(x);
  a.tokens = p->tokens;
  a.out = address(out);
  a.ldo = ldo;
  a.workspace = address(p->baseline_workspace);
  a.workspace_bytes = p->baseline_bytes;
  a.stream = p->g->stream;
  if (tglu_linear_run(linear, &a) == TGLU_OK) return CLI_OK;
  return cli_library_error(CLI_RUNTIME, "the unfused way");
}

/* Gate and up lie side by side in y [tokens, 2 intermediate]. */
static int run_part(gpu_pair *p, int part) {
  gpu_pointer up = p->y + 2 * (uint64_t)p->intermediate;
  void *parameters[] = {&p->problem, &p->y, &p->h};
  switch (part) {
  case BASELINE_GATE: return run_linear(p, p->unfused.gate, p->x, p->y, 2 * p->intermediate);
  case BASELINE_UP: return run_linear(p, p->unfused.up, p->x, up, 2 * p->intermediate);
  case BASELINE_DOWN: return run_linear(p, p->unfused.down, p->h, p->out, 0);
  default:
    return gpu_launch(p->g, p->g->activate_kernel, p->tokens * p->intermediate, p->g->stream,
                      parameters);
  }
}

enum { WAY_FUSED = -2, WAY_UNFUSED = -1 }; /* or a part of the latter */

static int run_way(gpu_pair *p, int way) {
  if (way == WAY_FUSED) return run_fused(p);
  if (way != WAY_UNFUSED) return run_part(p, way);
  int code = CLI_OK;
  for (int part = 0; part < BASELINE_PARTS && code == CLI_OK; part++) code = run_part(p, part);
  return code;
}

/* Microseconds of one call. */
static int sample(gpu_pair *p, int way, double *us) {
  int code = gpu_record(p->g, p->g->start);
  for (int i = 0; i < CALLS && code == CLI_OK; i++) code = run_way(p, way);
  if (code == CLI_OK) code = gpu_record(p->g, p->g->end);
  if (code == CLI_OK) code = gpu_wait(p->g, way == WAY_FUSED ? "run" : "the unfused way");
  if (code == CLI_OK) code = gpu_elapsed_us(p->g, us);
  *us /= CALLS;
  return code;
}

/* ---- creation ---- */

static tglu_status baseline_workspace(gpu_pair *p) {
  const tglu_linear *linears[] = {p->unfused.gate, p->unfused.up, p->unfused.down};
  for (int i = 0; i < 3; i++) {
    size_t bytes = 0;
    tglu_status status = tglu_linear_workspace_bytes(linears[i], p->tokens, &bytes);
    if (status) return status;
    if (bytes > p->baseline_bytes) p->baseline_bytes = bytes;
  }
  return TGLU_OK;
}

/* Not where it would have to rearrange biases on the device. */
static int make_unfused(gpu_pair *p, const tools *t) {
  const tglu_glu_desc *d = &p->weights.desc.glu;
  if (d->layout == TGLU_LAYOUT_INTERLEAVED && d->gate_up_bias) return CLI_OK;
  tglu_status status = baseline_new(&p->unfused, OP_MLP, t->context, &p->weights.desc, t->hot,
                                    t->threads);
  if (status == TGLU_ERR_UNSUPPORTED) return CLI_OK;
  p->has_unfused = status == TGLU_OK;
  if (status == TGLU_OK) status = baseline_workspace(p);
  if (status != TGLU_OK) return cli_library_error(CLI_RUNTIME, "the unfused way");
  p->problem = (bench_problem){.m = p->tokens, .n = d->intermediate, .k = d->hidden,
                               .dtype = (int32_t)d->dtype,
                               .activation = (int32_t)d->activation, .alpha = d->alpha,
                               .limit = d->limit, .offset = d->offset,
                               .up_column = d->intermediate};
  return CLI_OK;
}

static int make_memory(gpu_pair *p, const void *x) {
  const gpu *g = p->g;
  size_t m = (size_t)p->tokens, n = (size_t)p->intermediate, k = (size_t)p->hidden;
  if (op_workspace_bytes(&p->fused, p->tokens, &p->workspace_bytes) != TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "workspace");
  }
  if (gpu_allocate(g, &p->x, 2 * m * k, "x") || gpu_allocate(g, &p->out, 2 * m * k, "out") ||
      gpu_allocate(g, &p->workspace, p->workspace_bytes, "a workspace") ||
      gpu_allocate(g, &p->baseline_workspace, p->baseline_bytes, "a workspace") ||
      (p->has_unfused && (gpu_allocate(g, &p->y, 4 * m * n, "gate and up") ||
                          gpu_allocate(g, &p->h, 2 * m * n, "H")))) {
    return CLI_RUNTIME;
  }
  return gpu_upload(g, p->x, x, 2 * m * k);
}

static int pair_new(gpu_pair *p, const tools *t, const run_plan *plan,
                    const tglu_mlp_desc *desc, const void *x, int64_t tokens) {
  memset(p, 0, sizeof *p);
  p->g = t->gpu;
  p->tokens = tokens;
  p->intermediate = desc->glu.intermediate;
  p->hidden = desc->glu.hidden;
  int code = gpu_weights_new(&p->weights, p->g, OP_MLP, desc, 0);
  if (code != CLI_OK) return code;
  if (op_create(&p->fused, OP_MLP, t->context, &p->weights.desc) != TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "mlp");
  }
  if (plan->unfused) code = make_unfused(p, t);
  return code == CLI_OK ? make_memory(p, x) : code;
}

/* ---- figures ---- */

static int fetch(gpu_pair *p, int way, uint16_t *out) {
  size_t count = (size_t)(p->tokens * p->hidden);
  int code = gpu_check(p->g, p->g->set16(p->out, BENCH_POISON, count), "cuMemsetD16");
  if (code == CLI_OK) code = gpu_check(p->g, p->g->synchronize(), "cuCtxSynchronize");
  if (code == CLI_OK) code = run_way(p, way);
  if (code == CLI_OK) code = gpu_wait(p->g, "run");
  if (code != CLI_OK) return code;
  return gpu_check(p->g, p->g->to_host(out, p->out, 2 * count), "cuMemcpyDtoH");
}

/* The unfused way must compute the same thing, or its time means nothing. */
static int compare_ways(gpu_pair *p, tglu_dtype dtype) {
  const int64_t count = p->tokens * p->hidden;
  uint16_t *a = mem_zeroed(2 * (size_t)count, sizeof *a), *b = a + count;
  double difference = 0, size = 0, limit = 4 * compare_unit(dtype);
  int code = fetch(p, WAY_FUSED, a);
  if (code == CLI_OK) code = fetch(p, WAY_UNFUSED, b);
  for (int64_t i = 0; i < count && code == CLI_OK; i++) {
    double v = num_load(a, dtype, i), d = v - num_load(b, dtype, i);
    difference += d * d;
    size += v * v;
  }
  mem_free(a);
  if (code != CLI_OK || !isfinite(size) || sqrt(difference) <= limit * sqrt(size)) return code;
  return cli_error(CLI_MISMATCH, "the unfused way differs from the fused by relative L2 %.3g, "
                   "more than %.3g", sqrt(difference / size), limit);
}

static int time_rounds(gpu_pair *p, const run_plan *plan, rng *random, layer_run *r) {
  const int64_t rounds = plan->rounds ? plan->rounds : ROUNDS;
  double *fused = mem_zeroed(2 * (size_t)rounds, sizeof *fused), *unfused = fused + rounds;
  int code = CLI_OK;
  for (int64_t i = 0; i < rounds && code == CLI_OK; i++) {
    int first = (int)rng_below(random, 2);
    for (int j = 0; j < 2 && code == CLI_OK; j++) {
      if (j == first) code = sample(p, WAY_FUSED, &fused[i]);
      else if (p->has_unfused) code = sample(p, WAY_UNFUSED, &unfused[i]);
    }
  }
  for (int part = 0; p->has_unfused && part < BASELINE_PARTS && code == CLI_OK; part++) {
    code = sample(p, part, &r->part_us[part]);
  }
  if (code == CLI_OK) {
    r->rounds = rounds;
    r->us = stats_median(fused, (size_t)rounds);
    r->spread = stats_spread(fused, (size_t)rounds);
    r->unfused_us = p->has_unfused ? stats_median(unfused, (size_t)rounds) : 0;
  }
  mem_free(fused);
  return code;
}

int run_gpu_times(const tools *t, const run_plan *plan, const tglu_mlp_desc *desc,
                  const void *x, int64_t tokens, rng *random, layer_run *r) {
  gpu_pair p;
  tglu_plan_info info;
  double warm = 0;
  int code = pair_new(&p, t, plan, desc, x, tokens);
  if (code == CLI_OK && op_plan(&p.fused, tokens, &info) == TGLU_OK) {
    snprintf(r->row, sizeof r->row, "%s", info.row ? info.row : "");
    snprintf(r->down_row, sizeof r->down_row, "%s", info.down_row ? info.down_row : "");
  }
  if (code == CLI_OK && p.has_unfused) code = compare_ways(&p, desc->glu.dtype);
  if (code == CLI_OK) code = sample(&p, WAY_FUSED, &warm);
  if (code == CLI_OK) code = time_rounds(&p, plan, random, r);
  pair_free(&p);
  return code;
}
