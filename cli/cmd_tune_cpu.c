/* The tuner's measurements on the CPU: weights rotate over copies of more than three times
 * the last-level cache, results are compared with float64 sums. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cache.h"
#include "cli.h"
#include "cmd_tune.h"
#include "compare.h"
#include "guard.h"
#include "hot.h"
#include "mem.h"
#include "numbers.h"
#include "oracle.h"
#include "progress.h"
#include "rng.h"

enum { CHECKED_TOKENS = 4, MOST_COPIES = 256 };

typedef struct contender {
  tglu_context *context;
  tglu_glu **glu;          /* one a copy; or */
  tglu_linear **linear;
  int64_t next, calls;     /* calls: of a sample */
} contender;

typedef struct session {
  const tune_args *args;
  spec spec;
  int64_t in, columns;     /* of x, of the result       */
  int64_t copies;
  guard *weights;          /* gate and up, or down      */
  guard x, out;
  int tokens;              /* checked ones: their rows  */
  int64_t rows[CHECKED_TOKENS];
  double *reference;       /* [tokens, columns]         */
  contender list[TUNE_CANDIDATES];
} session;

static int is_glu(const session *s) { return s->spec.op == OP_GLU; }

/* ---- operands ---- */

static tglu_glu_desc describe(const session *s, int64_t copy) {
  const spec *p = &s->spec;
  tglu_glu_desc d;
  tglu_glu_desc_init(&d);
  d.hidden = p->hidden;
  d.intermediate = p->intermediate;
  d.dtype = p->dtype;
  d.activation = p->activation;
  d.alpha = p->alpha;
  d.limit = p->limit;
  d.offset = p->offset;
  d.layout = is_glu(s) ? p->layout : TGLU_LAYOUT_SEPARATE;
  const unsigned char *w = s->weights[copy].data;
  if (d.layout != TGLU_LAYOUT_SEPARATE) {
    d.gate_up = w;
    return d;
  }
  size_t half = (size_t)(p->intermediate * p->hidden) * tglu_dtype_bytes(p->dtype);
  d.gate = w;
  d.up = is_glu(s) ? w + half : w;
  return d;
}

static int out_of_memory(const spec *p) {
  return cli_error(CLI_RUNTIME, "--tokens %lld, --n %lld, --k %lld: out of memory for operands "
                   "of %.0f bytes", (long long)p->tokens, (long long)p->intermediate,
                   (long long)p->hidden, tune_cpu_bytes(p));
}

static int fill(guard *g, const spec *p, int64_t count, double scale, rng *random) {
  if (guard_new(g, (size_t)count * tglu_dtype_bytes(p->dtype), 0) != 0) {
    return out_of_memory(p);
  }
  rng_fill_normal(random, g->data, p->dtype, count, scale);
  return CLI_OK;
}

static double weight_bytes(const spec *p) {
  const tglu_glu_desc shape = {.hidden = p->hidden, .intermediate = p->intermediate,
                               .dtype = p->dtype};
  return op_weight_bytes(p->op, &shape);
}

static double copies_for(const spec *p) {
  double l3 = cache_level_bytes(3), l2 = cache_level_bytes(2);
  double cache = l3 > 0 ? l3 : l2 > 0 ? l2 : 32 * 0x1p20;
  return fmin(MOST_COPIES, floor(3 * cache / weight_bytes(p)) + 1);
}

double tune_cpu_bytes(const spec *p) {
  double columns = (double)p->intermediate + (double)p->hidden; /* of x and the result */
  return copies_for(p) * weight_bytes(p) +
         (double)p->tokens * columns * (double)tglu_dtype_bytes(p->dtype);
}

static int make_operands(session *s) {
  const spec *p = &s->spec;
  int64_t count = (is_glu(s) ? 2 : 1) * p->intermediate * p->hidden;
  rng random;
  rng_seed(&random, s->args->place.seed);
  s->copies = (int64_t)copies_for(p);
  s->weights = mem_zeroed((size_t)s->copies, sizeof *s->weights);
  int code = fill(&s->x, p, p->tokens * s->in, 1, &random);
  for (int64_t i = 0; i < s->copies && code == CLI_OK; i++) {
    code = fill(&s->weights[i], p, count, 1 / sqrt((double)s->in), &random);
  }
  size_t bytes = (size_t)(p->tokens * s->columns) * tglu_dtype_bytes(p->dtype);
  if (code == CLI_OK && guard_new(&s->out, bytes, 0) != 0) {
    code = out_of_memory(p);
  }
  return code;
}

/* ---- the reference ---- */

/* Row `row` of gate (which 0), up (1) or down in the first copy, in elements. */
static int64_t weight_row(const session *s, int which, int64_t row) {
  int64_t n = s->spec.intermediate;
  if (!is_glu(s)) return row;
  switch (s->spec.layout) {
  case TGLU_LAYOUT_INTERLEAVED: return 2 * row + which;
  case TGLU_LAYOUT_STACKED_UP_FIRST: return which ? row : n + row;
  default: return which ? n + row : row;
  }
}

static void make_reference(session *s) {
  const hot_loops *hot = hot_for(tglu_cpu_isa());
  const tglu_glu_desc desc = describe(s, 0);
  const size_t width = tglu_dtype_bytes(s->spec.dtype);
  double *x = mem_zeroed((size_t)(CHECKED_TOKENS * s->in), sizeof *x);
  double *w = mem_zeroed((size_t)s->in, sizeof *w), sums[2][HOT_ROWS], squares[HOT_ROWS];
  const double *a[HOT_ROWS];
  for (int t = 0; t < CHECKED_TOKENS; t++) { /* the last token again where there are fewer */
    int64_t row = s->rows[t < s->tokens ? t : s->tokens - 1];
    a[t] = x + t * s->in;
    hot->widen(s->x.data + (size_t)(row * s->in) * width, s->spec.dtype, s->in,
               x + t * s->in);
  }
  for (int64_t j = 0; j < s->columns; j++) {
    for (int which = 0; which < (is_glu(s) ? 2 : 1); which++) {
      size_t at = (size_t)(weight_row(s, which, j) * s->in) * width;
      hot->widen(s->weights[0].data + at, s->spec.dtype, s->in, w);
      hot->dot(w, a, a, CHECKED_TOKENS, s->in, sums[which], squares);
    }
    for (int t = 0; t < s->tokens; t++) {
      double gate_slope, up_slope;
      s->reference[t * s->columns + j] =
        is_glu(s) ? oracle_glu(&desc, sums[0][t], sums[1][t], &gate_slope, &up_slope)
                  : sums[0][t];
    }
  }
  mem_free(x);
  mem_free(w);
}

static void choose_rows(session *s) {
  int64_t m = s->spec.tokens;
  s->tokens = (int)(m < CHECKED_TOKENS ? m : CHECKED_TOKENS);
  for (int t = 0; t < s->tokens; t++) {
    s->rows[t] = s->tokens == 1 ? 0 : t * (m - 1) / (s->tokens - 1);
  }
  s->reference = mem_zeroed((size_t)(s->tokens * s->columns), sizeof *s->reference);
}

/* ---- the calls ---- */

static int open_context(const session *s, const char *row, tglu_context **context) {
  tglu_context_options o = s->args->place.options;
  o.backend = TGLU_BACKEND_CPU;
  o.row = row;
  o.tune_cache = "";
  if (tglu_context_create(&o, context) == TGLU_OK) return CLI_OK;
  return cli_library_error(CLI_RUNTIME, "context%s%s", row ? " with row " : "", row ? row : "");
}

/* The row that the library takes by itself. */
static int ask_untuned(session *s, char *untuned, size_t bytes) {
  tglu_context *context = NULL;
  tglu_mlp *mlp = NULL;
  tglu_mlp_desc desc;
  tglu_plan_info plan;
  tglu_mlp_desc_init(&desc);
  tglu_plan_info_init(&plan);
  desc.glu = describe(s, 0);
  desc.down = s->weights[0].data;
  int code = open_context(s, NULL, &context);
  if (code != CLI_OK) return code;
  if (tglu_mlp_create(context, &desc, &mlp) != TGLU_OK ||
      tglu_mlp_get_plan(mlp, s->spec.tokens, &plan) != TGLU_OK) {
    code = cli_library_error(CLI_RUNTIME, "the library's choice");
  }
  const char *row = is_glu(s) ? plan.row : plan.down_row;
  snprintf(untuned, bytes, "%s", row ? row : "");
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  return code;
}

static int open_cpu(const tune_args *args, void **state) {
  session *s = mem_zeroed(1, sizeof *s);
  s->args = args;
  *state = s;
  return CLI_OK;
}

static int begin(void *state, const spec *p, char *untuned, size_t bytes) {
  session *s = state;
  s->spec = *p;
  s->in = is_glu(s) ? p->hidden : p->intermediate;
  s->columns = is_glu(s) ? p->intermediate : p->hidden;
  int code = make_operands(s);
  if (code != CLI_OK) return code;
  choose_rows(s);
  make_reference(s);
  return ask_untuned(s, untuned, bytes);
}

static tglu_status create(const session *s, contender *c, int64_t copy) {
  const tglu_glu_desc desc = describe(s, copy);
  if (is_glu(s)) return tglu_glu_create(c->context, &desc, &c->glu[copy]);
  tglu_linear_desc linear;
  tglu_linear_desc_init(&linear);
  linear.in_features = s->in;
  linear.out_features = s->columns;
  linear.dtype = s->spec.dtype;
  linear.weight = s->weights[copy].data;
  return tglu_linear_create(c->context, &linear, &c->linear[copy]);
}

static int call(session *s, int i) {
  contender *c = &s->list[i];
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = s->x.data;
  a.tokens = s->spec.tokens;
  a.out = s->out.data;
  int64_t copy = c->next;
  c->next = (copy + 1) % s->copies;
  tglu_status status =
    is_glu(s) ? tglu_glu_run(c->glu[copy], &a) : tglu_linear_run(c->linear[copy], &a);
  return status == TGLU_OK ? CLI_OK : cli_library_error(CLI_RUNTIME, "run");
}

static int prepare(void *state, int i, const char *name, int *supported) {
  session *s = state;
  contender *c = &s->list[i];
  int code = open_context(s, name, &c->context);
  if (code != CLI_OK) return code;
  c->glu = mem_zeroed((size_t)s->copies, sizeof *c->glu);
  c->linear = mem_zeroed((size_t)s->copies, sizeof *c->linear);
  for (int64_t copy = 0; copy < s->copies; copy++) {
    tglu_status status = create(s, c, copy);
    if (status == TGLU_ERR_UNSUPPORTED) return CLI_OK; /* *supported is 0 */
    if (status != TGLU_OK) return cli_library_error(CLI_RUNTIME, "%s", name);
  }
  *supported = 1;
  return CLI_OK;
}

static int all_finite(const session *s) {
  for (int64_t i = 0; i < s->spec.tokens * s->columns; i++) {
    if (!isfinite(num_load(s->out.data, s->spec.dtype, i))) return 0;
  }
  return 1;
}

static int check(void *state, int i, char *why, size_t bytes) {
  session *s = state;
  double errors = 0, squares = 0;
  memset(s->out.data, 0xff, s->out.bytes); /* NaN */
  s->list[i].next = 0;
  int code = call(s, i);
  if (code != CLI_OK) return code;
  for (int t = 0; t < s->tokens; t++) {
    for (int64_t j = 0; j < s->columns; j++) {
      double r = s->reference[t * s->columns + j];
      double d = num_load(s->out.data, s->spec.dtype, s->rows[t] * s->columns + j) - r;
      errors += d * d;
      squares += r * r;
    }
  }
  double error = sqrt(errors / squares);
  if (!(error <= compare_unit(s->spec.dtype)) || !all_finite(s)) {
    snprintf(why, bytes, "wrong result: relative L2 error %.2e", error);
  } else if (guard_damage(&s->out)) {
    snprintf(why, bytes, "it writes outside of the result");
  }
  return CLI_OK;
}

static int calls_for(session *s, int i, double seconds, double *us) {
  double begin = clock_now(), spent = 0;
  int64_t calls = 0;
  int code = CLI_OK;
  for (; code == CLI_OK && (calls == 0 || spent < seconds); calls++) {
    code = call(s, i);
    spent = clock_now() - begin;
  }
  *us = 1e6 * spent / (double)calls;
  return code;
}

static int sample(void *state, int i, double share, double *us) {
  session *s = state;
  int code = calls_for(s, i, 1e-3 * share * s->args->settle_ms, us);
  return code == CLI_OK ? calls_for(s, i, 1e-3 * share * s->args->sample_ms, us) : code;
}

static void end(void *state) {
  session *s = state;
  for (int i = 0; i < TUNE_CANDIDATES; i++) {
    contender *c = &s->list[i];
    for (int64_t copy = 0; c->context && copy < s->copies; copy++) {
      tglu_glu_destroy(c->glu[copy]);
      tglu_linear_destroy(c->linear[copy]);
    }
    mem_free(c->glu);
    mem_free(c->linear);
    tglu_context_destroy(c->context);
  }
  for (int64_t i = 0; i < s->copies; i++) guard_free(&s->weights[i]);
  guard_free(&s->x);
  guard_free(&s->out);
  mem_free(s->weights);
  mem_free(s->reference);
  *s = (session){.args = s->args};
}

static void close_cpu(void *state) { mem_free(state); }

const tune_backend tune_cpu = {open_cpu, begin, NULL, prepare, check, sample, end, close_cpu};
