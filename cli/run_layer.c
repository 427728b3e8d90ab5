#include "run_layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "guard.h"
#include "mem.h"
#include "progress.h"
#include "stats.h"

enum { LEAST_ROUNDS = 5 };
/* Rounds go on until this time is over and the times agree, or until the second, which
 * is for a machine that others use too. */
static const double seconds_per_layer = 0.1, most_seconds = 0.5;

/* The operands that fused and unfused calls share while they are timed. */
typedef struct bench_pair {
  op fused;
  baseline unfused;
  int has_unfused;
  guard out, workspace, scratch;
  tglu_run_args args;
} bench_pair;

static void pair_free(bench_pair *p) {
  op_destroy(&p->fused);
  if (p->has_unfused) baseline_free(&p->unfused);
  guard_free(&p->out);
  guard_free(&p->workspace);
  guard_free(&p->scratch);
}

static int pair_memory(bench_pair *p, const tglu_glu_desc *d, int64_t tokens) {
  size_t workspace = 0, scratch = 0;
  tglu_status status = op_workspace_bytes(&p->fused, tokens, &workspace);
  if (!status && p->has_unfused) {
    status = baseline_scratch_bytes(&p->unfused, tokens, &scratch);
  }
  if (status) return cli_library_error(CLI_RUNTIME, "workspace");
  size_t bytes = (size_t)tokens * (size_t)d->hidden * tglu_dtype_bytes(d->dtype);
  if (guard_new(&p->out, bytes, 0) || guard_new(&p->workspace, workspace, 0) ||
      guard_new(&p->scratch, scratch, 0)) {
    return cli_error(CLI_RUNTIME, "out of memory for %lld tokens", (long long)tokens);
  }
  p->args.out = p->out.data;
  p->args.workspace = workspace ? p->workspace.data : NULL;
  p->args.workspace_bytes = workspace;
  return CLI_OK;
}

static int pair_new(bench_pair *p, const tools *t, const run_plan *plan,
                    const tglu_mlp_desc *desc, const void *x, int64_t tokens) {
  memset(p, 0, sizeof *p);
  tglu_run_args_init(&p->args);
  p->args.x = x;
  p->args.tokens = tokens;
  if (op_create(&p->fused, OP_MLP, t->context, desc) != TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "mlp");
  }
  if (plan->unfused) {
    tglu_status status = baseline_new(&p->unfused, OP_MLP, t->context, desc, t->hot,
                                      t->threads);
    if (status != TGLU_OK && status != TGLU_ERR_UNSUPPORTED) {
      return cli_library_error(CLI_RUNTIME, "the unfused way");
    }
    p->has_unfused = status == TGLU_OK;
  }
  return pair_memory(p, &desc->glu, tokens);
}

static int run_fused(bench_pair *p, double *seconds) {
  double start = clock_now();
  if (op_run(&p->fused, &p->args) != TGLU_OK) return cli_library_error(CLI_RUNTIME, "run");
  *seconds = clock_now() - start;
  return CLI_OK;
}

static int run_unfused(bench_pair *p, double *seconds, double *parts) {
  double start = clock_now();
  if (baseline_run(&p->unfused, &p->args, p->scratch.data, p->scratch.bytes, parts) !=
      TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "the unfused way");
  }
  *seconds = clock_now() - start;
  return CLI_OK;
}

/* The unfused way must compute the same thing, or its time means nothing. */
static int compare_ways(bench_pair *p, const tglu_glu_desc *d, int64_t tokens) {
  const int64_t count = tokens * d->hidden;
  double seconds, difference = 0, size = 0;
  int code = run_fused(p, &seconds);
  if (code != CLI_OK || !p->has_unfused) return code;
  double *fused = mem_zeroed((size_t)count, sizeof *fused);
  double *other = mem_zeroed((size_t)count, sizeof *other);
  p->unfused.hot->widen(p->out.data, d->dtype, count, fused);
  code = run_unfused(p, &seconds, NULL);
  p->unfused.hot->widen(p->out.data, d->dtype, count, other);
  for (int64_t i = 0; i < count; i++) {
    difference += (fused[i] - other[i]) * (fused[i] - other[i]);
    size += fused[i] * fused[i];
  }
  mem_free(fused);
  mem_free(other);
  double limit = 4 * compare_unit(d->dtype);
  if (code != CLI_OK || !isfinite(size)) return code;
  if (!(sqrt(difference) <= limit * sqrt(size))) {
    return cli_error(CLI_MISMATCH, "the unfused way differs from the fused by relative L2 "
                     "%.3g, more than %.3g", sqrt(difference / size), limit);
  }
  return CLI_OK;
}

/* Whether rounds may end: their number and time, and that their times agree. */
static int enough(const double *fused, double *sorted, int64_t rounds, double spent) {
  if (rounds < LEAST_ROUNDS || spent < seconds_per_layer) return 0;
  if (spent > most_seconds) return 1;
  memcpy(sorted, fused, (size_t)rounds * sizeof *sorted);
  return stats_spread(sorted, (size_t)rounds) <= RUN_NOISY;
}

static int time_rounds(bench_pair *p, const run_plan *plan, rng *random, layer_run *r) {
  int64_t capacity = plan->rounds ? plan->rounds : 4096;
  double *fused = mem_zeroed((size_t)capacity, sizeof *fused);
  double *unfused = mem_zeroed((size_t)capacity, sizeof *unfused);
  double *sorted = mem_zeroed((size_t)capacity, sizeof *sorted);
  double parts[BASELINE_PARTS] = {0};
  double start = clock_now();
  int code = CLI_OK;
  int64_t i = 0;
  for (; i < capacity && code == CLI_OK; i++) {
    if (!plan->rounds && enough(fused, sorted, i, clock_now() - start)) break;
    int unfused_first = (int)rng_below(random, 2);
    if (unfused_first && p->has_unfused) code = run_unfused(p, &unfused[i], parts);
    if (code == CLI_OK) code = run_fused(p, &fused[i]);
    if (code == CLI_OK && !unfused_first && p->has_unfused) {
      code = run_unfused(p, &unfused[i], parts);
    }
  }
  if (code == CLI_OK) {
    r->rounds = i;
    r->us = 1e6 * stats_median(fused, (size_t)i);
    r->spread = stats_spread(fused, (size_t)i);
    r->unfused_us = p->has_unfused ? 1e6 * stats_median(unfused, (size_t)i) : 0;
    for (int j = 0; j < BASELINE_PARTS; j++) r->part_us[j] = 1e6 * parts[j] / (double)i;
  }
  mem_free(fused);
  mem_free(unfused);
  mem_free(sorted);
  return code;
}

static void describe(const layer *l, int64_t tokens, layer_run *r) {
  const tglu_glu_desc *d = &l->mlp.desc.glu;
  memset(r, 0, sizeof *r);
  r->number = l->mlp.layer;
  snprintf(r->prefix, sizeof r->prefix, "%s", l->mlp.prefix ? l->mlp.prefix : "");
  snprintf(r->family, sizeof r->family, "%s", l->mlp.family ? l->mlp.family : "");
  snprintf(r->activation_source, sizeof r->activation_source, "%s",
           l->mlp.activation_source ? l->mlp.activation_source : "");
  r->hidden = d->hidden;
  r->intermediate = d->intermediate;
  r->dtype = d->dtype;
  r->activation = d->activation;
  r->layout = d->layout;
  r->flops = op_flops(OP_MLP, d, tokens);
}

static int check_layer(const tools *t, const layer *l, const void *x, int64_t tokens,
                       rng *random, layer_run *r) {
  const tglu_glu_desc *d = &l->mlp.desc.glu;
  const spec s = {.op = OP_MLP, .tokens = tokens, .hidden = d->hidden,
                  .intermediate = d->intermediate, .dtype = d->dtype,
                  .activation = d->activation, .layout = d->layout};
  check_result result;
  int code = check_call(t, &s, &l->mlp.desc, x, random, NULL, &result);
  if (code != CLI_OK) return code;
  if (result.refused) return cli_library_error(CLI_RUNTIME, "layer %d", (int)r->number);
  r->comparison = result.comparison;
  r->checked = 1;
  return CLI_OK;
}

/* Both ways compared and timed on the CPU. */
static int time_on_cpu(const tools *t, const run_plan *plan, const tglu_mlp_desc *desc,
                       const void *x, int64_t tokens, rng *random, layer_run *r) {
  bench_pair p;
  tglu_plan_info info;
  int code = pair_new(&p, t, plan, desc, x, tokens);
  if (code == CLI_OK && op_plan(&p.fused, tokens, &info) == TGLU_OK) {
    snprintf(r->row, sizeof r->row, "%s", info.row ? info.row : "");
    snprintf(r->down_row, sizeof r->down_row, "%s", info.down_row ? info.down_row : "");
  }
  if (code == CLI_OK) code = compare_ways(&p, &desc->glu, tokens);
  if (code == CLI_OK) code = time_rounds(&p, plan, random, r);
  pair_free(&p);
  return code;
}

int run_layer(const tools *t, const run_plan *plan, const layer *l,
              const hidden_states *states, uint64_t seed, layer_run *r) {
  const tglu_mlp_desc *desc = &l->mlp.desc;
  describe(l, states->tokens, r);
  void *x = hidden_matrix(states, desc->glu.hidden, desc->glu.dtype, seed);
  if (!x) return CLI_INPUT;
  rng random;
  rng_seed(&random, seed);
  int code = plan->check ? check_layer(t, l, x, states->tokens, &random, r) : CLI_OK;
  if (code == CLI_OK) {
    code = (t->gpu ? run_gpu_times : time_on_cpu)(t, plan, desc, x, states->tokens, &random, r);
  }
  mem_free(x);
  return code;
}
