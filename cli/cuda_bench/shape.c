/* One shape: its contenders, the check of each, the rounds, the bursts, the lines. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../mem.h"
#include "../stats.h"
#include "bench_cuda.h"
#include "gemm.h"
#include "pick.h"

enum { WRITER, GEMM_EX, GEMM_LT, UNFUSED, EAGER, LINEAR, FIRST_ROW };

/* One shape under one pdl. */
typedef struct session {
  bench *b;
  data *d;
  gemm *gemm;
  int pdl, calls, chosen, control;
  variant *variants;           /* FIRST_ROW fixed ones, then rows; calls 0: not there */
  int count;
  row_calls *row_calls;        /* [count - FIRST_ROW] */
  int *row;                    /* their indices in the table */
  accuracy *accuracy;
  double reference_share;      /* of cuBLAS and the activation kernel */
} session;

static int writer_enqueue(void *user, int set, gpu_stream stream) {
  return data_write_x(user, set, stream);
}

static int32_t hook_write_x(const void *user, int32_t set, void *stream) {
  return data_write_x(user, set, stream);
}

static int is_there(const session *s, int which) { return s->variants[which].calls > 0; }

static int prepare(session *s, int which, int (*enqueue)(void *, int, gpu_stream),
                   void *user, int write_x) {
  variant *v = &s->variants[which];
  v->enqueue = enqueue;
  v->user = user;
  int code = variant_capture(v, s->d, s->calls, write_x);
  return code == CLI_OK ? variant_estimate(v, s->d->g) : code;
}

/* ---- contenders ---- */

static int wanted(session *s, int row, const int *best, int best_count) {
  const cuda_args *a = &s->b->args;
  const char *name = s->b->rows.items[row].name;
  if (row == s->chosen || strcmp(a->rows, "all") == 0) return 1;
  if (strcmp(a->rows, "chosen") == 0) return 0;
  for (int i = 0; i < best_count; i++) {
    if (strcmp(s->b->former.items[best[i]].row, name) == 0) return 1;
  }
  return strcmp(a->rows, "best") != 0 && pick_named(a->rows, name);
}

static int prepare_rows(session *s) {
  kernel_rows *rows = &s->b->rows;
  int best[128];
  int best_count = pick_best(&s->b->former, &s->d->spec, s->pdl, (int)s->b->args.top, best);
  for (int row = 0; row < rows->count; row++) {
    if (!wanted(s, row, best, best_count)) continue;
    int at = s->count - FIRST_ROW, supported = 0;
    s->row[at] = row;
    variant_init(&s->variants[s->count], rows->items[row].name);
    s->count++;
    int code = row_calls_create(&s->row_calls[at], rows, row, s->pdl, s->d, &supported);
    if (code != CLI_OK) return code;
    if (supported) {
      code = prepare(s, FIRST_ROW + at, row_calls_enqueue, &s->row_calls[at], s->pdl);
      if (code != CLI_OK) return code;
    } else if (row == s->chosen) {
      return cli_error(CLI_RUNTIME, "%s: the chosen row does not serve its shape",
                       rows->items[row].name);
    }
  }
  return CLI_OK;
}

static int prepare_torch(session *s) {
  const bench_torch *torch = s->b->torch;
  const data *d = s->d;
  int plain = d->spec.layout == TGLU_LAYOUT_SEPARATE ||
              d->spec.layout == TGLU_LAYOUT_STACKED_GATE_FIRST;
  if (!torch || !plain || d->spec.activation != TGLU_ACTIVATION_SILU) return CLI_OK;
  uint64_t *x = mem_zeroed((size_t)d->sets, sizeof *x), *w = mem_zeroed((size_t)d->sets, sizeof *w);
  for (int i = 0; i < d->sets; i++) {
    x[i] = d->set[i].x;
    w[i] = d->set[i].w;
  }
  bench_torch_shape shape = {.m = d->spec.tokens, .n = d->spec.intermediate,
                             .k = d->spec.hidden, .dtype = (int32_t)d->spec.dtype,
                             .sets = d->sets, .calls = s->calls, .pdl = s->pdl,
                             .control = s->control, .stream = d->g->stream, .x = x, .w = w,
                             .write_x = hook_write_x, .bench = d};
  int code = CLI_OK;
  if (torch->prepare(torch->user, &shape) != 0) {
    code = cli_error(CLI_RUNTIME, "eager: PyTorch's part could not be prepared");
  }
  for (int what = 0; what < 1 + s->control && code == CLI_OK; what++) {
    variant *v = &s->variants[EAGER + what];
    v->torch = torch;
    v->torch_what = what;
    v->calls = s->calls;
    code = variant_estimate(v, d->g);
  }
  mem_free(x);
  mem_free(w);
  return code;
}

static int prepare_all(session *s) {
  static const char *const names[FIRST_ROW] = {"write_x", "cublasGemmEx", "cublasLt",
                                               "unfused", "eager", "linear"};
  int rows = s->b->rows.count;
  s->variants = mem_zeroed((size_t)(FIRST_ROW + rows), sizeof *s->variants);
  s->row_calls = mem_zeroed((size_t)rows + 1, sizeof *s->row_calls);
  s->row = mem_zeroed((size_t)rows + 1, sizeof *s->row);
  s->accuracy = mem_zeroed((size_t)(FIRST_ROW + rows), sizeof *s->accuracy);
  for (; s->count < FIRST_ROW; s->count++) {
    variant_init(&s->variants[s->count], names[s->count]);
  }
  int code = CLI_OK;
  if (s->pdl) code = prepare(s, WRITER, writer_enqueue, s->d, 0);
  if (code == CLI_OK) code = prepare(s, GEMM_EX, gemm_enqueue_ex, s->gemm, s->pdl);
  if (code == CLI_OK && s->gemm->best >= 0) {
    code = prepare(s, GEMM_LT, gemm_enqueue_lt, s->gemm, s->pdl);
  }
  if (code == CLI_OK) code = prepare(s, UNFUSED, gemm_enqueue_unfused, s->gemm, s->pdl);
  if (code == CLI_OK) code = prepare_rows(s);
  return code == CLI_OK ? prepare_torch(s) : code;
}

static void session_end(session *s) {
  if (s->b->torch) s->b->torch->finish(s->b->torch->user);
  for (int i = 0; i < s->count; i++) variant_destroy(&s->variants[i], s->d->g);
  for (int i = FIRST_ROW; i < s->count; i++) row_calls_destroy(&s->row_calls[i - FIRST_ROW]);
  mem_free(s->variants);
  mem_free(s->row_calls);
  mem_free(s->row);
  mem_free(s->accuracy);
}

/* ---- results ---- */

/* Poisons the outputs, replays what will be timed, compares. */
static int check_one(session *s, int which) {
  const gpu *g = s->d->g;
  variant *v = &s->variants[which];
  if (data_poison(s->d) || variant_replay(v, g) || gpu_wait(g, v->name)) return CLI_RUNTIME;
  return data_check(s->d, &s->accuracy[which]);
}

static int check_all(session *s) {
  int code = check_one(s, UNFUSED);
  if (code != CLI_OK) return code;
  const accuracy *unfused = &s->accuracy[UNFUSED];
  s->reference_share = unfused->share_over_1pct;
  if (unfused->not_finite || !(unfused->rel_l2 < 0x1p-6)) {
    return cli_error(CLI_MISMATCH, "cuBLAS and the activation kernel are wrong themselves: "
                     "relative L2 %.2e, %lld elements not finite: nothing is measured",
                     unfused->rel_l2, (long long)unfused->not_finite);
  }
  for (int i = FIRST_ROW; i < s->count; i++) {
    if (!is_there(s, i)) continue;
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
  result_text(r->mode, sizeof r->mode, mode);
  r->pdl = s->pdl;
  r->seed = (int64_t)b->args.seed;
}

static void fill_baselines(const session *s, result *r) {
  double ex = figures_of(s, GEMM_EX).median, lt = figures_of(s, GEMM_LT).median;
  int lt_is_bare = isfinite(lt) && !(ex <= lt);
  r->bare_us = lt_is_bare ? lt : ex;
  result_text(r->bare, sizeof r->bare,
              !isfinite(r->bare_us) ? "" : lt_is_bare ? "cublasLt" : "cublasGemmEx");
  r->unfused_us = figures_of(s, UNFUSED).median;
  r->eager_us = figures_of(s, EAGER).median;
}

static void fill_row(const session *s, int which, result *r) {
  const kernel_row *row = &s->b->rows.items[s->row[which - FIRST_ROW]];
  const accuracy *a = &s->accuracy[which];
  figures f = figures_of(s, which);
  double m = (double)r->m, n = (double)r->n, k = (double)r->k;
  result_text(r->row, sizeof r->row, row->name);
  result_text(r->row_hash, sizeof r->row_hash, row->hash);
  r->chosen = s->row[which - FIRST_ROW] == s->chosen;
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
  r->tflops = 4e-6 * m * n * k / f.median;
  r->share_of_989 = r->tflops / 989;
  r->tbs = 2e-6 * (m * k + 2 * n * k + m * n) / f.median;
}

static int add_lines(session *s, const char *mode, const char *take) {
  bench *b = s->b;
  result base;
  fill_identity(s, mode, &base);
  fill_baselines(s, &base);
  for (int i = FIRST_ROW; i < s->count; i++) {
    if (!is_there(s, i) || (!take[i] && !s->variants[i].failed)) continue;
    result r = base;
    fill_row(s, i, &r);
    result_push(&b->results, &r);
    int code = b->args.out ? result_append(b->args.out, &r) : CLI_OK;
    if (code != CLI_OK) return code;
  }
  return CLI_OK;
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
  fprintf(stderr, "%s m %lld pdl %d %s: bare %.2f us (%s), unfused %.2f, eager %.2f, "
          "chosen %s %.2f (R %.3f, %.0f TFLOP/s), best %s R %.3f, %d sets, %d calls\n",
          chosen->model, (long long)chosen->m, s->pdl, mode, chosen->bare_us, chosen->bare,
          chosen->unfused_us, chosen->eager_us, pick_short_name(chosen->row), chosen->us,
          chosen->ratio_bare, chosen->tflops, pick_short_name(best->row), best->ratio_bare,
          s->d->sets, s->calls);
}

static int sustained(session *s) {
  bench *b = s->b;
  char *take = mem_zeroed((size_t)s->count, 1);
  for (int i = 0; i < s->count; i++) take[i] = is_there(s, i) && !s->variants[i].failed;
  int code = rounds(s, take, b->args.rounds, variant_measure);
  if (code == CLI_OK) code = add_lines(s, "sustained", take);
  if (code == CLI_OK) say_mode(s, "sustained");
  if (code == CLI_OK && is_there(s, LINEAR) && b->control_count < MOST_CONTROLS) {
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
    int chosen = i >= FIRST_ROW && s->row[i - FIRST_ROW] == s->chosen;
    take[i] = (i <= GEMM_LT || chosen) && is_there(s, i) && !s->variants[i].failed;
  }
  int code = rounds(s, take, s->b->args.burst_repeats, variant_burst);
  if (code == CLI_OK) code = add_lines(s, "burst", take);
  if (code == CLI_OK) say_mode(s, "burst");
  mem_free(take);
  return code;
}

static int run_session(bench *b, data *d, gemm *m, int pdl, int chosen, int is_control) {
  session s = {.b = b, .d = d, .gemm = m, .pdl = pdl, .chosen = chosen,
               .control = is_control && pdl == 0};
  s.calls = variant_calls(d->spec.tokens, d->spec.intermediate, d->spec.hidden, d->sets);
  int code = prepare_all(&s);
  if (code == CLI_OK) code = check_all(&s);
  if (code == CLI_OK) code = sustained(&s);
  if (code == CLI_OK && b->args.burst) code = burst(&s);
  session_end(&s);
  return code;
}

int bench_shape(bench *b, const spec *s, int is_control) {
  data d;
  gemm m = {0};
  int chosen = -1;
  int code = data_create(&d, &b->gpu, s, b->args.seed);
  if (code == CLI_OK) code = rows_chosen(&b->rows, &d, &chosen);
  if (code == CLI_OK) code = gemm_create(&m, &b->cublas, &d);
  if (code == CLI_OK) {
    int calls = variant_calls(s->tokens, s->intermediate, s->hidden, d.sets);
    code = gemm_choose(&m, calls, &b->args.timing);
  }
  for (int pdl = 0; pdl < 2 && code == CLI_OK; pdl++) {
    if (b->args.with_pdl[pdl]) code = run_session(b, &d, &m, pdl, chosen, is_control);
  }
  if (m.b) gemm_destroy(&m);
  data_destroy(&d);
  return code;
}
