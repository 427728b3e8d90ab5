/* One shape: the check of each contender, the rounds, the bursts, the lines. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../mem.h"
#include "../row_names.h"
#include "../stats.h"
#include "energy.h"
#include "pick.h"
#include "session.h"

/* ---- results ---- */

/* Poisons the outputs, replays what will be timed, compares. */
static int check_one(session *s, int which) {
  const gpu *g = s->d->g;
  variant *v = &s->variants[which];
  if (data_poison(s->d) || variant_replay(v, g) || gpu_wait(g, v->name)) return CLI_RUNTIME;
  return data_check(s->d, &s->accuracy[which]);
}

/* cuBLAS and the activation kernel: the share of elements that they have off by > 1 %. */
static int check_standard(session *s) {
  int standard = s->d->spec.op == OP_DOWN ? GEMM_EX : UNFUSED;
  s->reference_share = NAN;
  if (!session_has(s, standard)) return CLI_OK;
  int code = check_one(s, standard);
  if (code != CLI_OK) return code;
  const accuracy *a = &s->accuracy[standard];
  s->reference_share = a->share_over_1pct;
  if (a->not_finite == 0 && a->rel_l2 < 0x1p-6) return CLI_OK;
  return cli_error(CLI_MISMATCH, "cuBLAS and the activation kernel are wrong themselves: "
                   "relative L2 %.2e, %lld elements not finite: nothing is measured", a->rel_l2,
                   (long long)a->not_finite);
}

static int check_all(session *s) {
  int code = check_standard(s);
  if (code != CLI_OK) return code;
  for (int i = INVARIANT; i < s->count; i++) {
    if (!session_has(s, i)) continue;
    code = check_one(s, i);
    if (code != CLI_OK) return code;
    s->variants[i].failed = !accuracy_passes(&s->accuracy[i]);
    if (!s->variants[i].failed) continue;
    s->b->wrong++;
    cli_warn("%s: WRONG RESULT at m %lld n %lld k %lld pdl %d: relative L2 %.2e, %lld "
             "elements not finite; it is not timed", s->variants[i].name,
             (long long)s->d->spec.tokens, (long long)s->d->spec.intermediate,
             (long long)s->d->spec.hidden, s->pdl, s->accuracy[i].rel_l2,
             (long long)s->accuracy[i].not_finite);
  }
  return CLI_OK;
}

/* ---- rounds ---- */

static void shuffle(rng *r, int *order, int count) {
  for (int i = count - 1; i > 0; i--) {
    int j = (int)rng_below(r, (uint64_t)i + 1), held = order[i];
    order[i] = order[j];
    order[j] = held;
  }
}

typedef int (*measure)(variant *v, const gpu *g, const nvml *n, const timing *t);

/* Rounds over the variants for which take[i] is 1, each in a new random order. */
static int rounds(session *s, const char *take, int64_t count, measure how) {
  bench *b = s->b;
  int *order = mem_zeroed((size_t)s->count, sizeof *order), taken = 0, code = CLI_OK;
  for (int i = 0; i < s->count; i++) {
    variant_reset(&s->variants[i]);
    if (take[i]) order[taken++] = i;
  }
  for (int64_t round = 0; round < count && code == CLI_OK; round++) {
    shuffle(&b->order, order, taken);
    for (int i = 0; i < taken && code == CLI_OK; i++) {
      code = how(&s->variants[order[i]], &b->gpu, &b->nvml, &b->args.timing);
    }
  }
  mem_free(order);
  return code;
}

typedef struct figures {
  double median, least, most, mhz;
} figures;

/* NaNs where it was not measured.  The writer's own time of the same round is
 * subtracted. */
static figures figures_of(const session *s, int which) {
  const variant *v = &s->variants[which], *writer = &s->variants[WRITER];
  if (v->samples == 0) return (figures){NAN, NAN, NAN, NAN};
  double us[MOST_ROUNDS], mhz[MOST_ROUNDS];
  size_t clocks = 0;
  for (int i = 0; i < v->samples; i++) {
    us[i] = v->us[i] - (i < writer->samples ? writer->us[i] : 0);
    if (isfinite(v->mhz[i])) mhz[clocks++] = v->mhz[i];
  }
  figures f = {.mhz = stats_median(mhz, clocks)};
  f.median = stats_median(us, (size_t)v->samples); /* sorts */
  f.least = us[0];
  f.most = us[v->samples - 1];
  return f;
}

/* ---- lines ---- */

static void fill_identity(const session *s, const char *mode, result *r) {
  const bench *b = s->b;
  const spec *p = &s->d->spec;
  result_clear(r);
  result_text(r->date, sizeof r->date, b->date);
  result_text(r->commit, sizeof r->commit, b->args.commit);
  result_text(r->card, sizeof r->card, b->gpu.name);
  result_text(r->driver, sizeof r->driver, b->nvml.driver);
  result_text(r->model, sizeof r->model, p->model ? p->model : "custom");
  r->m = p->tokens;
  r->n = p->intermediate;
  r->k = p->hidden;
  result_text(r->dtype, sizeof r->dtype, tglu_dtype_name(p->dtype));
  result_text(r->activation, sizeof r->activation, tglu_activation_name(p->activation));
  result_text(r->layout, sizeof r->layout, tglu_layout_name(p->layout));
  result_text(r->op, sizeof r->op, op_name(p->op));
  result_text(r->mode, sizeof r->mode, mode);
  r->pdl = s->pdl;
  r->seed = (int64_t)b->args.seed;
}

/* The fastest of cuBLAS's ways. */
static int bare_variant(const session *s) {
  int best = GEMM_EX;
  for (int i = GEMM_LT; i <= GEMM_MIXED; i++) {
    double us = figures_of(s, i).median, least = figures_of(s, best).median;
    if (isfinite(us) && !(least <= us)) best = i;
  }
  return best;
}

static void fill_baselines(const session *s, result *r) {
  static const char *const names[] = {[GEMM_EX] = "cublasGemmEx", [GEMM_LT] = "cublasLt",
                                      [GEMM_MIXED] = "mixed"};
  int bare = bare_variant(s);
  r->bare_us = figures_of(s, bare).median;
  result_text(r->bare, sizeof r->bare, isfinite(r->bare_us) ? names[bare] : "");
  r->unfused_us = figures_of(s, UNFUSED).median;
  r->eager_us = figures_of(s, EAGER).median;
  r->read_us = figures_of(s, READ).median;
  r->read_tbs = 1e-6 * (double)data_weight_bytes(&s->d->spec) / r->read_us;
  if (session_has(s, READ)) result_text(r->read_kernel, sizeof r->read_kernel, s->reader.name);
}

static void fill_rows(const session *s, int which, result *r) {
  result_text(r->row, sizeof r->row, session_row_name(s, which));
  result_text(r->row_hash, sizeof r->row_hash, session_row_hash(s, which));
  result_text(r->down_row, sizeof r->down_row, session_down_name(s, which));
  result_text(r->down_row_hash, sizeof r->down_row_hash, session_down_hash(s, which));
}

static void fill_row(const session *s, int which, result *r) {
  const accuracy *a = &s->accuracy[which];
  const spec *p = &s->d->spec;
  figures f = figures_of(s, which);
  fill_rows(s, which, r);
  r->chosen = which == FIRST_ROW;
  r->rel_l2 = a->rel_l2;
  r->share_over_1pct = a->share_over_1pct;
  r->share_over_1pct_large = a->share_over_1pct_large;
  r->excluded_share = a->excluded_share;
  r->reference_share_over_1pct = s->reference_share;
  r->us = f.median;
  r->us_min = f.least;
  r->us_max = f.most;
  r->sm_clock_mhz = f.mhz;
  r->ratio_bare = f.median / r->bare_us;
  r->ratio_unfused = f.median / r->unfused_us;
  r->ratio_eager = f.median / r->eager_us;
  r->share_of_read = r->read_us / f.median;
  r->weight_tbs = 1e-6 * (double)data_weight_bytes(p) / f.median;
  r->tflops = 1e-6 * data_flops(p) / f.median;
  r->share_of_989 = r->tflops / 989;
  r->tbs = 1e-6 * data_bytes(p) / f.median;
}

static void fill_invariant(const session *s, result *r) {
  result_text(r->invariant_row, sizeof r->invariant_row, session_row_name(s, INVARIANT));
  result_text(r->invariant_row_hash, sizeof r->invariant_row_hash,
              session_row_hash(s, INVARIANT));
  result_text(r->invariant_down_row, sizeof r->invariant_down_row,
              session_down_name(s, INVARIANT));
  result_text(r->invariant_down_row_hash, sizeof r->invariant_down_row_hash,
              session_down_hash(s, INVARIANT));
  r->invariant_us = figures_of(s, INVARIANT).median;
  r->invariant_cost = r->invariant_us / r->us;
}

/* To each of the files that take it. */
static int add_line(session *s, result *r) {
  const cuda_args *a = &s->b->args;
  int sustained = strcmp(r->mode, "sustained") == 0, code = CLI_OK;
  result_push(&s->b->results, r);
  if (a->out) {
    code = result_append(a->out, s->d->spec.op == OP_MLP ? RESULT_MLP : RESULT_GLU, r);
  }
  if (code == CLI_OK && a->read_out && sustained) {
    code = result_append(a->read_out, RESULT_READ, r);
  }
  if (code == CLI_OK && session_has(s, INVARIANT) && r->chosen && sustained) {
    code = result_append(a->invariant_out, RESULT_INVARIANT, r);
  }
  return code;
}

static int add_lines(session *s, const char *mode, const char *take) {
  result base;
  fill_identity(s, mode, &base);
  fill_baselines(s, &base);
  int code = CLI_OK;
  for (int i = FIRST_ROW; i < s->count && code == CLI_OK; i++) {
    if (!session_has(s, i) || (!take[i] && !s->variants[i].failed)) continue;
    result r = base;
    fill_row(s, i, &r);
    if (r.chosen && session_has(s, INVARIANT)) fill_invariant(s, &r);
    code = add_line(s, &r);
  }
  return code;
}

static void say_mode(const session *s, const char *mode) {
  const result *best = NULL, *chosen = NULL;
  const result_list *all = &s->b->results;
  for (size_t i = all->count; i-- > 0;) {
    const result *r = &all->items[i];
    if (!pick_same_shape(r, &s->d->spec) || r->pdl != s->pdl || strcmp(r->mode, mode) != 0) {
      break;
    }
    if (r->chosen) chosen = r;
    if (isfinite(r->us) && (!best || r->us < best->us)) best = r;
  }
  if (!best || !chosen) return;
  fprintf(stderr, "%s %s m %lld pdl %d %s: chosen %s%s %.2f us (%.0f TFLOP/s), best %s %.2f",
          chosen->op, chosen->model, (long long)chosen->m, s->pdl, mode,
          row_short_name(chosen->row), s->ways[FIRST_ROW].plan.tuned ? " (tuned)" : "",
          chosen->us, chosen->tflops, row_short_name(best->row), best->us);
  if (isfinite(chosen->bare_us)) {
    fprintf(stderr, ", bare %.2f (%s), R %.3f and %.3f", chosen->bare_us, chosen->bare,
            chosen->ratio_bare, best->ratio_bare);
  }
  if (isfinite(chosen->ratio_eager)) fprintf(stderr, ", eager %.2f", chosen->eager_us);
  if (isfinite(chosen->read_us)) fprintf(stderr, ", read %.2f", chosen->read_us);
  fprintf(stderr, ", %d sets, %d calls\n", s->d->sets, s->calls);
}

static int sustained(session *s) {
  bench *b = s->b;
  char *take = mem_zeroed((size_t)s->count, 1);
  for (int i = 0; i < s->count; i++) take[i] = session_has(s, i) && !s->variants[i].failed;
  int code = rounds(s, take, b->args.rounds, variant_measure);
  if (code == CLI_OK) code = add_lines(s, "sustained", take);
  if (code == CLI_OK) say_mode(s, "sustained");
  if (code == CLI_OK && session_has(s, LINEAR) && b->control_count < MOST_CONTROLS) {
    result r;
    fill_baselines(s, &r);
    control *c = &b->controls[b->control_count++];
    result_text(c->model, sizeof c->model, s->d->spec.model ? s->d->spec.model : "custom");
    c->m = s->d->spec.tokens;
    c->linear_us = figures_of(s, LINEAR).median;
    c->bare_us = r.bare_us;
  }
  mem_free(take);
  return code;
}

static int burst(session *s) {
  char *take = mem_zeroed((size_t)s->count, 1);
  for (int i = 0; i < s->count; i++) {
    take[i] = (i <= GEMM_MIXED || i == FIRST_ROW) && session_has(s, i) && !s->variants[i].failed;
  }
  int code = rounds(s, take, s->b->args.burst_repeats, variant_burst);
  if (code == CLI_OK) code = add_lines(s, "burst", take);
  if (code == CLI_OK) say_mode(s, "burst");
  mem_free(take);
  return code;
}

/* Energy of cuBLAS's fastest way and of the planner's choice, in turn, twice: drift shows. */
static int energy(session *s) {
  const cuda_args *a = &s->b->args;
  int which[] = {bare_variant(s), FIRST_ROW}, code = CLI_OK;
  for (int turn = 0; turn < 4 && code == CLI_OK; turn++) {
    int i = turn % 2;
    variant *v = &s->variants[which[i]];
    energy_sample e;
    if (!session_has(s, which[i]) || v->failed) continue;
    code = energy_measure(v, &s->b->gpu, &s->b->nvml, a->energy_warm_ms, a->energy_ms, &e);
    if (code != CLI_OK) break;
    result r;
    fill_identity(s, "energy", &r);
    fill_rows(s, FIRST_ROW, &r);
    result_text(r.variant, sizeof r.variant, i == 0 ? v->name : "chosen");
    r.us = e.us;
    r.watts = e.watts;
    r.millijoules = 1e-3 * e.watts * e.us;
    r.seconds = e.seconds;
    r.sm_clock_mhz = e.mhz;
    code = result_append(a->energy_out, RESULT_ENERGY, &r);
  }
  return code;
}

static int run_session(bench *b, data *d, gemm_chain *m, int pdl, int is_control) {
  session s = {.b = b, .d = d, .gemm = m, .pdl = pdl,
               .control = is_control && pdl == 0 && d->spec.op == OP_GLU};
  s.calls = variant_calls(d);
  int code = session_prepare(&s);
  if (code == CLI_OK) code = check_all(&s);
  if (code == CLI_OK) code = sustained(&s);
  if (code == CLI_OK && b->args.energy_out) code = energy(&s);
  if (code == CLI_OK && b->args.burst) code = burst(&s);
  session_end(&s);
  return code;
}

int bench_shape(bench *b, const spec *s, int is_control) {
  data d;
  gemm_chain m = {0};
  int code = data_create(&d, &b->gpu, s, b->args.seed);
  if (code == CLI_OK && !b->args.alone) {
    code = chain_create(&m, &b->cublas, &d, &b->args.timing);
  }
  for (int pdl = 0; pdl < 2 && code == CLI_OK; pdl++) {
    if (b->args.with_pdl[pdl]) code = run_session(b, &d, &m, pdl, is_control);
  }
  chain_destroy(&m);
  data_destroy(&d);
  return code;
}
