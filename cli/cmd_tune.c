/* tileglu tune: measures the rows that can serve a problem and stores the winners in the
 * tuning cache. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cmd_tune.h"
#include "json_out.h"
#include "mem.h"
#include "progress.h"
#include "table.h"

enum { OPTION_CACHE = OPTION_OWN, OPTION_ROUNDS, OPTION_SETTLE, OPTION_SAMPLE,
       OPTION_WITHIN, OPTION_NEAR, OPTION_CANDIDATE, OPTION_PDL, OPTION_GPU, OPTION_LIBRARY,
       OPTION_NVML, OPTION_DRY, OPTION_WORKER };
enum { ONE_LAUNCH_TOKENS = 8 }; /* rows of op mlp take no more */

static const struct argp_option tune_options[] = {
  {NULL, 0, NULL, 0, "How to measure:", 3},
  {"rounds", OPTION_ROUNDS, "N", 0, "rounds, each in a new random order (default 5)", 3},
  {"settle-ms", OPTION_SETTLE, "MS", 0, "run before each sample (40)", 3},
  {"sample-ms", OPTION_SAMPLE, "MS", 0, "length of a sample (50)", 3},
  {"within", OPTION_WITHIN, "RATIO", 0,
   "after two rounds, go on with the rows up to this times the best (1.25)", 3},
  {"near", OPTION_NEAR, "N", 0,
   "GPU: only the N rows that the cost model predicts to be fastest (default: all)", 3},
  {"candidate-limit", OPTION_CANDIDATE, "SECONDS", 0,
   "a row that takes longer for one step is left out (30)", 3},
  {"pdl", OPTION_PDL, "0|1", 0,
   "GPU: 0 (default): a chain of plain calls; 1: each call follows a kernel that writes X", 3},
  {NULL, 0, NULL, 0, "Where:", 4},
  {"gpu", OPTION_GPU, "N", 0, "ordinal of the GPU (default: TILEGLU_DEVICE, or 0)", 4},
  {"cuda-library", OPTION_LIBRARY, "FILE", 0, "the driver (libcuda.so.1)", 4},
  {"nvml", OPTION_NVML, "FILE", 0, "for clocks (libnvidia-ml.so.1)", 4},
  {"tune-cache", OPTION_CACHE, "FILE", 0,
   "the cache (default: TILEGLU_TUNE_CACHE, or tileglu/tune.txt in the user's cache)", 4},
  {"dry-run", OPTION_DRY, NULL, 0, "measure, and store nothing", 4},
  {"worker", OPTION_WORKER, "ORDER", OPTION_HIDDEN, NULL, 4},
  {0},
};

static double real(const char *name, const char *text, double least, double most,
                   struct argp_state *state) {
  double value = 0;
  if (!parse_real(text, &value) || !(value >= least && value <= most)) {
    argp_error(state, "--%s: \"%s\" is not a number from %g to %g", name, text, least, most);
  }
  return value;
}

static void check(const tune_args *a, struct argp_state *state) {
  const tglu_context_options *o = &a->place.options;
  const shape_args *s = &a->shape;
  const unsigned allowed = SHAPE_BIT(OPTION_MODEL) | SHAPE_BIT(OPTION_HIDDEN_SIZE) |
    SHAPE_BIT(OPTION_INTERMEDIATE) | SHAPE_BIT(OPTION_TOKENS) | SHAPE_BIT(OPTION_OP) |
    SHAPE_BIT(OPTION_DTYPE) | SHAPE_BIT(OPTION_ACTIVATION) | SHAPE_BIT(OPTION_ALPHA) |
    SHAPE_BIT(OPTION_LIMIT) | SHAPE_BIT(OPTION_OFFSET) | SHAPE_BIT(OPTION_LAYOUT);
  const char *stranger = shape_stranger(s, allowed);
  if (stranger) argp_error(state, "--%s: winners do not depend on it", stranger);
  if (!shape_given(s)) {
    argp_error(state, "name a shape: --model, or --hidden and --intermediate (\"tileglu "
               "bench --list\" prints the models)");
  }
  if (o->row) argp_error(state, "--row: a forced row leaves nothing to tune");
  if (o->batch_invariant) argp_error(state, "--batch-invariant takes no row from the cache");
  for (size_t i = 0; i < s->token_count; i++) {
    if (s->tokens[i] == 0) argp_error(state, "--tokens: 0 cannot be timed");
  }
  if (s->intermediate == 0) argp_error(state, "--intermediate: 0 cannot be timed");
  if (getenv("TILEGLU_ROW")) {
    argp_error(state, "the environment sets TILEGLU_ROW, which leaves nothing to tune: unset "
               "it");
  }
}

static error_t parse(int key, char *text, struct argp_state *state) {
  tune_args *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT:
    state->child_inputs[0] = &a->place;
    state->child_inputs[1] = &a->shape;
    return 0;
  case OPTION_CACHE: a->place.options.tune_cache = text; return 0;
  case OPTION_ROUNDS: a->rounds = option_integer("rounds", text, 1, TUNE_ROUNDS, state); return 0;
  case OPTION_SETTLE: a->settle_ms = real("settle-ms", text, 1e-3, 1e4, state); return 0;
  case OPTION_SAMPLE: a->sample_ms = real("sample-ms", text, 1e-3, 1e4, state); return 0;
  case OPTION_WITHIN: a->within = real("within", text, 1, 1e6, state); return 0;
  case OPTION_NEAR: a->near = option_integer("near", text, 1, TUNE_CANDIDATES, state); return 0;
  case OPTION_CANDIDATE: a->limit = real("candidate-limit", text, 1e-3, 1e5, state); return 0;
  case OPTION_PDL: a->pdl = (int)option_integer("pdl", text, 0, 1, state); return 0;
  case OPTION_GPU: a->gpu = option_integer("gpu", text, 0, 1023, state); return 0;
  case OPTION_LIBRARY: a->place.options.cuda_library = text; return 0;
  case OPTION_NVML: a->nvml = text; return 0;
  case OPTION_DRY: a->dry_run = 1; return 0;
  case OPTION_WORKER: a->worker = text; return 0;
  case ARGP_KEY_ARG: argp_error(state, "no argument is taken, not \"%s\"", text); return 0;
  case ARGP_KEY_END: check(a, state); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const char doc[] =
  "Measures the kernel rows that can serve a problem, and stores the fastest and the second "
  "in the tuning cache, from which the library takes its choice from then on.\n"
  "\n"
  "Rows take turns in a new random order every round, over inputs that rotate through more "
  "than three times the last cache; the median over the rounds counts.  Each row's result "
  "is checked before it is timed, and again after: a wrong one cannot win.  A process of its "
  "own does the work, so a row that crashes or hangs is left out and named, and the others "
  "are tuned.  The command may be killed at any time: what was stored stays."
  "\v"
  "Without --tokens: 1 to 8192 in nineteen steps.  --op glu or down is one half of an MLP, "
  "mlp (the default) is both; for few tokens one launch for both is then compared with two, "
  "which the winner of op glu stands for.\n"
  "\n"
  "Examples:\n"
  "  tileglu tune --model Qwen2.5-7B\n"
  "  tileglu tune --hidden 4096 --intermediate 14336 --tokens 1,16,64 --op glu\n"
  "\n"
  "Exit status: 0 every winner is stored; 1 they are, but a row failed or was wrong; 2 wrong "
  "use; 3 a winner could not be stored; 4 memory, device or backend failed, or of a problem "
  "no row could be measured.";

static void defaults(tune_args *a) {
  static const int64_t tokens[] = {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768,
                                   1024, 1536, 2048, 4096, 8192};
  memset(a, 0, sizeof *a);
  place_init(&a->place);
  shape_init(&a->shape, OP_MLP, 1);
  a->shape.op_down = 1;
  memcpy(a->shape.tokens, tokens, sizeof tokens);
  a->shape.token_count = sizeof tokens / sizeof tokens[0];
  a->rounds = 5;
  a->gpu = -1;
  a->settle_ms = 40;
  a->sample_ms = 50;
  a->within = 1.25;
  a->limit = 30;
}

/* ---- the whole ---- */

typedef struct tuner {
  tune_args *args;
  tune_crew *crew;
  tglu_context *context;
  tglu_context_info info;
  table *table;
  json_t *points;
  int64_t stored;
  int flawed, unsaved;    /* rows that failed or were wrong; winners not saved */
  char glu[96];           /* the last winner of op glu; "": it has none        */
} tuner;

/* Why what the options ask for cannot be done by this backend, or in this place; NULL: it
 * can. */
static const char *refusal(const tuner *t, int *code) {
  *code = CLI_USAGE;
  if (t->info.backend == TGLU_BACKEND_CPU) {
    if (t->args->near) return "--near: the cpu backend predicts no times";
    if (t->args->pdl) return "--pdl: the cpu backend launches no kernels";
  }
  *code = CLI_INPUT;
  if (*t->info.tune_cache || t->args->dry_run) return NULL;
  return "nothing is measured, since no winner could be stored: there is no cache (--tune-cache "
         "or TILEGLU_TUNE_CACHE is empty, or neither XDG_CACHE_HOME nor HOME is a usable path); "
         "--tune-cache FILE names one, --dry-run needs none";
}

static int open_tuner(tuner *t) {
  tglu_context_options *o = &t->args->place.options;
  o->device = (int32_t)t->args->gpu;
  int code = CLI_OK;
  tglu_status status = tglu_context_create(o, &t->context);
  if (status != TGLU_OK) return cli_library_error(place_exit_code(status), "context");
  tglu_context_info_init(&t->info);
  tglu_context_get_info(t->context, &t->info);
  const char *why = refusal(t, &code);
  if (why) cli_error(code, "%s", why);
  else code = t->args->dry_run ? CLI_OK : tune_check_cache(t->info.tune_cache);
  if (code != CLI_OK) {
    tglu_context_destroy(t->context);
    return code;
  }
  o->backend = t->info.backend; /* the worker's too */
  t->args->gpu = t->info.device;
  fprintf(stderr, "tuning on %s: %s; cache: %s\n", tglu_backend_name(t->info.backend),
          t->info.device_name, *t->info.tune_cache ? t->info.tune_cache : "none");
  return CLI_OK;
}

static void add_candidate(tune_point *p, const char *name) {
  candidate *c = &p->list[p->count++];
  *c = (candidate){.state = TUNE_OPEN, .us = NAN};
  snprintf(c->name, sizeof c->name, "%s", name);
}

/* Rows of this op and type; on the CPU those of the ISA level in use, since the others are
 * never faster.  Of op mlp also two launches, by the name of the first one's row. */
static int list_candidates(const tuner *t, tune_point *p) {
  const char *op = op_name(p->spec.op);
  for (int32_t i = 0; i < tglu_row_count(t->context); i++) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    if (tglu_row_get(t->context, i, &row) != TGLU_OK) {
      return cli_library_error(CLI_RUNTIME, "row %d", (int)i);
    }
    int other_isa = t->info.cpu_isa && strcmp(t->info.cpu_isa, row.isa) != 0;
    if (!row.usable || other_isa || strcmp(row.op, op) != 0 ||
        !(row.dtypes >> p->spec.dtype & 1) || p->count == TUNE_CANDIDATES) {
      continue;
    }
    add_candidate(p, row.name);
  }
  if (p->spec.op == OP_MLP && p->count < TUNE_CANDIDATES) add_candidate(p, t->glu);
  if (p->count > 0) return CLI_OK;
  return cli_error(CLI_RUNTIME, "the %s backend has no row for op %s and %s",
                   tglu_backend_name(t->info.backend), op, tglu_dtype_name(p->spec.dtype));
}

/* Of those measured in full. */
static const candidate *fastest(const tune_point *p, const candidate *but) {
  const candidate *best = NULL;
  for (int i = 0; i < p->count; i++) {
    const candidate *c = &p->list[i];
    if (c != but && c->state == TUNE_TIMED && (!best || c->us < best->us)) best = c;
  }
  return best;
}

static int store(tuner *t, const tune_point *p, const candidate *best,
                 const candidate *second) {
  tglu_tune_entry e;
  if (t->args->dry_run) return CLI_OK;
  tglu_tune_entry_init(&e);
  e.op = op_name(p->spec.op);
  e.dtype = p->spec.dtype;
  e.hidden = p->spec.hidden;
  e.intermediate = p->spec.intermediate;
  e.tokens = p->spec.tokens;
  e.row = best->name;
  e.us = best->us;
  e.runner_up = second ? second->name : NULL;
  e.runner_up_us = second ? second->us : 0;
  tglu_status status = tglu_tune_record(t->context, &e);
  if (status == TGLU_OK) {
    t->stored++;
    return CLI_OK;
  }
  t->unsaved = 1;
  return cli_library_error(status == TGLU_ERR_IO ? CLI_INPUT : CLI_RUNTIME, "not saved");
}

static double time_of(const tune_point *p, const char *name) {
  for (int i = 0; i < p->count; i++) {
    if (strcmp(p->list[i].name, name) == 0) return p->list[i].us;
  }
  return NAN;
}

static void report_json(tuner *t, const tune_point *p, const candidate *best,
                        const candidate *second) {
  static const char *const states[] = {"open", "timed", "slow", "unsupported", "wrong",
                                       "failed", "far"};
  json_t *o = json_object(), *list = json_array();
  jo_text(o, "model", p->spec.model);
  jo_text(o, "op", op_name(p->spec.op));
  jo_text(o, "dtype", tglu_dtype_name(p->spec.dtype));
  jo_int(o, "tokens", p->spec.tokens);
  jo_int(o, "intermediate", p->spec.intermediate);
  jo_int(o, "hidden", p->spec.hidden);
  jo_text(o, "row", best ? best->name : NULL);
  jo_real(o, "us", best ? best->us : NAN);
  jo_text(o, "runner_up", second ? second->name : NULL);
  jo_real(o, "runner_up_us", second ? second->us : NAN);
  jo_text(o, "untuned", p->untuned[0] ? p->untuned : NULL);
  jo_real(o, "untuned_us", time_of(p, p->untuned));
  for (int i = 0; i < p->count; i++) {
    const candidate *c = &p->list[i];
    json_t *one = json_object();
    jo_text(one, "row", c->name);
    jo_text(one, "state", states[c->state]);
    jo_real(one, "us", c->us);
    jo_text(one, "why", c->why[0] ? c->why : NULL);
    json_array_append_new(list, one);
  }
  json_object_set_new(o, "candidates", list);
  json_array_append_new(t->points, o);
}

static void report(tuner *t, const tune_point *p, const candidate *best,
                   const candidate *second) {
  double untuned = time_of(p, p->untuned);
  table_cell(t->table, "%s", p->spec.model ? p->spec.model : "-");
  table_cell(t->table, "%s", op_name(p->spec.op));
  table_cell(t->table, "%s", tglu_dtype_name(p->spec.dtype));
  table_cell(t->table, "%lld", (long long)p->spec.tokens);
  table_cell(t->table, "%s", best ? best->name : "none");
  table_cell(t->table, best ? "%.2f" : "-", best ? best->us : 0);
  table_cell(t->table, second ? "%+.1f %%" : "-", second ? 100 * (second->us / best->us - 1) : 0);
  table_cell(t->table, best && isfinite(untuned) ? "%+.1f %%" : "-",
             best ? 100 * (untuned / best->us - 1) : 0);
  report_json(t, p, best, second);
}

/* What is wrong with rows, once each; returns how many there are. */
static int note_flaws(tuner *t, const tune_point *p) {
  char name[256];
  int flawed = 0;
  spec_text(&p->spec, name, sizeof name);
  for (int i = 0; i < p->count; i++) {
    const candidate *c = &p->list[i];
    if (c->state != TUNE_WRONG && c->state != TUNE_FAILED) continue;
    flawed++;
    if (c->state == TUNE_WRONG) cli_warn("%s: %s: %s", name, c->name, c->why);
  }
  t->flawed |= flawed > 0;
  return flawed;
}

/* A line on standard error, over a progress bar where there is one. */
static void say_winner(const tune_point *p, const char *name, const candidate *best) {
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
  fprintf(stderr, "%s%s%s: %s %.2f us\n", p->spec.model ? p->spec.model : "",
          p->spec.model ? " " : "", name, best->name, best->us);
}

static int tune_point_at(tuner *t, size_t index, op_kind op) {
  tune_point *p = mem_zeroed(1, sizeof *p);
  p->index = index;
  p->spec = tune_spec(t->args, index, op);
  int code = list_candidates(t, p);
  if (code == CLI_OK) code = tune_supervise(t->crew, p);
  const candidate *best = fastest(p, NULL), *second = best ? fastest(p, best) : NULL;
  if (op == OP_GLU) snprintf(t->glu, sizeof t->glu, "%s", best ? best->name : "");
  if (code == CLI_OK) {
    char name[256];
    spec_text(&p->spec, name, sizeof name);
    const int flawed = note_flaws(t, p);
    report(t, p, best, second);
    if (best) {
      say_winner(p, name, best);
      code = store(t, p, best, second);
    } else {
      code = flawed ? cli_error(CLI_RUNTIME, "%s: no row is left: %d failed, were wrong or took "
                                "too long", name, flawed)
                    : cli_error(CLI_RUNTIME, "%s: no row serves it", name);
    }
  }
  mem_free(p);
  return code;
}

/* Whether one half's operands fit into this machine; says so, once for both, if not. */
static int check_memory(const tuner *t, size_t index) {
  const op_kind op = t->args->shape.op;
  const spec glu = tune_spec(t->args, index, OP_GLU), down = tune_spec(t->args, index, OP_DOWN);
  double need = fmax(op == OP_DOWN ? 0 : tune_cpu_bytes(&glu),
                     op == OP_GLU ? 0 : tune_cpu_bytes(&down));
  double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  if (t->info.backend != TGLU_BACKEND_CPU || need <= have) return CLI_OK;
  return cli_error(CLI_RUNTIME, "--tokens %lld, --n %lld, --k %lld: the operands take %.0f "
                   "bytes, and this machine has %.0f", (long long)glu.tokens,
                   (long long)glu.intermediate, (long long)glu.hidden, need, have);
}

/* Whether one launch for both halves is to be compared with two: behind a winner of op glu. */
static int may_be_one_launch(const tuner *t, size_t index) {
  const spec s = tune_spec(t->args, index, OP_MLP);
  int found = 0;
  for (int32_t i = 0; i < tglu_row_count(t->context); i++) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    found |= tglu_row_get(t->context, i, &row) == TGLU_OK && row.usable &&
             strcmp(row.op, op_name(OP_MLP)) == 0 && (row.dtypes >> s.dtype & 1);
  }
  return found && s.tokens <= ONE_LAUNCH_TOKENS;
}

/* A failure to save ends it: the next winner would not fare better. */
static int tune_all(tuner *t) {
  static const op_kind order[] = {OP_GLU, OP_DOWN, OP_MLP};
  const op_kind op = t->args->shape.op;
  const size_t count = shape_count(&t->args->shape);
  int worst = CLI_OK;
  progress bar;
  int64_t done = 0, all = (int64_t)count * (op == OP_MLP ? 2 : 1);
  for (size_t i = 0; i < count; i++) all += op == OP_MLP && may_be_one_launch(t, i);
  progress_begin(&bar, "tune", all);
  for (size_t i = 0; i < count && !t->unsaved; i++) {
    int fits = check_memory(t, i);
    if (fits > worst) worst = fits;
    for (int j = 0; j < 3 && !t->unsaved && fits == CLI_OK; j++) {
      const op_kind one = order[j];
      if (op != OP_MLP && op != one) continue;
      if (one == OP_MLP && !(may_be_one_launch(t, i) && t->glu[0])) continue;
      int code = tune_point_at(t, i, one);
      if (code > worst) worst = code;
      progress_at(&bar, ++done);
    }
  }
  progress_end(&bar);
  return worst != CLI_OK ? worst : t->flawed ? CLI_MISMATCH : CLI_OK;
}

static int print(tuner *t) {
  if (!t->args->place.json) {
    table_print(t->table, stdout);
    printf("\n%lld winners stored%s%s\n", (long long)t->stored,
           t->stored ? " in " : "", t->stored ? t->info.tune_cache : "");
    return CLI_OK;
  }
  json_t *document = jo_document("tune");
  jo_text(document, "backend", tglu_backend_name(t->info.backend));
  jo_text(document, "device", t->info.device_name);
  jo_text(document, "cache", *t->info.tune_cache ? t->info.tune_cache : NULL);
  jo_int(document, "stored", t->stored);
  json_object_set(document, "points", t->points);
  return jo_print(document);
}

int cmd_tune(int argc, char **argv) {
  static const char *const heads[] = {"<model", "<op", "<dtype", "tokens", "<winner", "us",
                                      "second", "untuned", NULL};
  static const int refused[] = {OPTION_ROW, OPTION_INVARIANT, OPTION_BIAS, OPTION_RESIDUAL,
                                OPTION_PAD, OPTION_MISALIGN, 0};
  offered_argp place, shape;
  tune_args args;
  defaults(&args);
  offer_argp(&place, &place_argp, refused);
  offer_shape(&shape, &args.shape, refused);
  const struct argp_child children[] = {{&place.argp, 0, NULL, 1}, {&shape.argp, 0, NULL, 2},
                                        {0}};
  const struct argp argp = {tune_options, parse, NULL, doc, children, NULL, NULL};
  argp_parse(&argp, argc, argv, 0, NULL, &args);
  if (args.worker) return tune_work(&args);
  tuner t = {.args = &args};
  int code = open_tuner(&t);
  if (code != CLI_OK) return code;
  t.table = table_new(heads);
  t.points = json_array();
  t.crew = tune_crew_new(&args, argc, argv);
  code = tune_all(&t);
  tune_crew_end(t.crew);
  int printed = print(&t);
  table_free(t.table);
  json_decref(t.points);
  tglu_context_destroy(t.context);
  return code != CLI_OK ? code : printed;
}
