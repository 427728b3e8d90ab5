/* The worker of tileglu tune: checks and times the candidates of one problem, and says each
 * step on a pipe before it does it. */
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli.h"
#include "cmd_tune.h"
#include "mem.h"
#include "rng.h"
#include "stats.h"

enum { FEW = 8 };
#define SCREEN_RATIO 1.6

typedef struct entry {
  char name[96];
  int out;              /* left out                                         */
  double slow;          /* least time of one that was too slow; 0: it was not */
  double median;        /* of one timed in full; 0: it is not               */
  int samples;
  double us[TUNE_ROUNDS];
} entry;

typedef struct work {
  const tune_args *args;
  const tune_backend *backend;
  void *state;
  size_t index;         /* of the problem          */
  op_kind op;
  int count;
  entry *entries;       /* [TUNE_CANDIDATES]       */
} work;

/* ---- orders ---- */

/* PARENT:BACKEND:GPU */
char *tune_contract(const tune_args *args) {
  return mem_text("%ld:%s:%d", (long)getpid(), tglu_backend_name(args->place.options.backend),
                  (int)args->gpu);
}

/* INDEX:OP:NAME,NAME,... */
char *tune_order(const tune_point *p) {
  char *text = mem_text("%zu:%s:", p->index, op_name(p->spec.op));
  for (int i = 0; i < p->count; i++) {
    if (p->list[i].state != TUNE_OPEN) continue;
    char *longer = mem_text("%s%s,", text, p->list[i].name);
    mem_free(text);
    text = longer;
  }
  char *line = mem_text("%s\n", text);
  mem_free(text);
  return line;
}

static int accept_contract(work *w, tune_args *args) {
  long parent = 0;
  char backend[8];
  int gpu = 0;
  if (sscanf(args->worker, "%ld:%7[a-z]:%d", &parent, backend, &gpu) != 3) {
    return cli_error(CLI_USAGE, "--worker is for the command's own use");
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a tuner that is killed leaves nothing behind */
  if (getppid() != (pid_t)parent) return cli_error(CLI_USAGE, "--worker: no such tuner");
  args->gpu = gpu; /* the tuner's choice may be the environment's */
  w->backend = strcmp(backend, "cuda") == 0 ? &tune_cuda : &tune_cpu;
  return CLI_OK;
}

static int accept_order(work *w, const char *text) {
  char op[8];
  int used = 0;
  if (sscanf(text, "%zu:%7[a-z]:%n", &w->index, op, &used) != 2 || used == 0 ||
      w->index >= shape_count(&w->args->shape)) {
    return cli_error(CLI_USAGE, "an order that is none: %s", text);
  }
  w->op = strcmp(op, "glu") == 0 ? OP_GLU : strcmp(op, "mlp") == 0 ? OP_MLP : OP_DOWN;
  w->count = 0;
  memset(w->entries, 0, TUNE_CANDIDATES * sizeof *w->entries);
  for (const char *at = text + used; *at && *at != '\n' && w->count < TUNE_CANDIDATES;) {
    size_t length = strcspn(at, ",\n");
    snprintf(w->entries[w->count++].name, sizeof w->entries[0].name, "%.*s", (int)length, at);
    at += length + (at[length] == ',');
  }
  return CLI_OK;
}

/* ---- steps ---- */

__attribute__((format(printf, 3, 4)))
static void say(const char *what, const char *name, const char *format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  dprintf(TUNE_PIPE, "%s\t%s\t%s\n", what, name, text);
}

static int check(work *w, int i) {
  char why[200] = "";
  entry *e = &w->entries[i];
  int code = w->backend->check(w->state, i, why, sizeof why);
  if (code != CLI_OK || !why[0]) return code;
  e->out = 1;
  say("wrong", e->name, "%s", why);
  return CLI_OK;
}

static int prepare(work *w, int i) {
  entry *e = &w->entries[i];
  int supported = 0;
  say("begin", e->name, "-");
  int code = w->backend->prepare(w->state, i, e->name, &supported);
  if (code == CLI_OK && supported) return check(w, i);
  if (code != CLI_OK) return code;
  e->out = 1;
  say("unsupported", e->name, "-");
  return CLI_OK;
}

/* Leaves out all but so many that are predicted to be fastest, and the library's own choice. */
static int leave_out_far(work *w, const char *untuned) {
  double us[TUNE_CANDIDATES];
  int code = CLI_OK;
  for (int i = 0; i < w->count && code == CLI_OK; i++) {
    code = w->backend->predict(w->state, w->entries[i].name, &us[i]);
  }
  for (int i = 0; i < w->count && code == CLI_OK; i++) {
    entry *e = &w->entries[i];
    int64_t faster = 0;
    for (int j = 0; j < w->count; j++) faster += us[j] < us[i];
    if (faster < w->args->near || strcmp(e->name, untuned) == 0) continue;
    e->out = 1;
    say("far", e->name, "-");
  }
  return code;
}

static double least(const entry *e) {
  double us = e->us[0];
  for (int i = 1; i < e->samples; i++) us = fmin(us, e->us[i]);
  return us;
}

/* Leaves out what was slower than the best by more than this ratio. */
static void leave_out_slow(work *w, double within) {
  double best = INFINITY;
  for (int i = 0; i < w->count; i++) {
    if (!w->entries[i].out) best = fmin(best, least(&w->entries[i]));
  }
  for (int i = 0; i < w->count; i++) {
    entry *e = &w->entries[i];
    if (e->out || least(e) <= within * best) continue;
    e->out = 1;
    e->slow = least(e);
    say("slow", e->name, "%.6f", e->slow);
  }
}

static int sample(work *w, int i, double share) {
  entry *e = &w->entries[i];
  say("sample", e->name, "-");
  return w->backend->sample(w->state, i, share, &e->us[e->samples++]);
}

static int round_of(work *w, rng *random, double share) {
  int order[TUNE_CANDIDATES], count = 0;
  for (int i = 0; i < w->count; i++) {
    if (!w->entries[i].out) order[count++] = i;
  }
  for (int i = count - 1; i > 0; i--) {
    int j = (int)rng_below(random, (uint64_t)i + 1), held = order[i];
    order[i] = order[j];
    order[j] = held;
  }
  for (int i = 0; i < count; i++) {
    int code = sample(w, order[i], share);
    if (code != CLI_OK) return code;
  }
  return CLI_OK;
}

/* Where there are many, a short look at each finds those that are out of the question; its
 * samples do not count. */
static int screen(work *w, rng *random) {
  int count = 0;
  for (int i = 0; i < w->count; i++) count += !w->entries[i].out;
  if (count <= FEW) return CLI_OK;
  int code = round_of(w, random, 0.1);
  if (code == CLI_OK) leave_out_slow(w, SCREEN_RATIO * w->args->within);
  for (int i = 0; i < w->count; i++) w->entries[i].samples = 0;
  return code;
}

/* Its result once more, which was checked on a cold start only; then its time counts. */
static int conclude(work *w, int i) {
  entry *e = &w->entries[i];
  say("begin", e->name, "-");
  int code = check(w, i);
  if (code != CLI_OK || e->out) return code;
  e->median = stats_median(e->us, (size_t)e->samples);
  say("time", e->name, "%.6f", e->median);
  return CLI_OK;
}

/* The fastest of those left out as slow, if its time is below the second's of those measured
 * in full, or there is no second; else -1.  One odd sample may have left it out. */
static int missed(const work *w) {
  double first = INFINITY, second = INFINITY;
  int best = -1;
  for (int i = 0; i < w->count; i++) {
    const entry *e = &w->entries[i];
    if (e->slow > 0 && (best < 0 || e->slow < w->entries[best].slow)) best = i;
    if (e->out || !(e->median > 0)) continue;
    second = fmin(second, fmax(first, e->median));
    first = fmin(first, e->median);
  }
  return best >= 0 && w->entries[best].slow < second ? best : -1;
}

/* In full, by itself. */
static int measure_missed(work *w, int i) {
  entry *e = &w->entries[i];
  int code = CLI_OK;
  e->out = 0;
  e->slow = 0;
  e->samples = 0;
  for (int64_t round = 0; round < w->args->rounds && code == CLI_OK; round++) {
    code = sample(w, i, 1);
  }
  return code == CLI_OK ? conclude(w, i) : code;
}

static int measure(work *w) {
  rng random;
  rng_seed(&random, w->args->place.seed + w->index);
  int code = screen(w, &random);
  for (int64_t round = 0; round < w->args->rounds && code == CLI_OK; round++) {
    code = round_of(w, &random, 1);
    if (code == CLI_OK && round == 1) leave_out_slow(w, w->args->within);
  }
  for (int i = 0; i < w->count && code == CLI_OK; i++) {
    if (!w->entries[i].out) code = conclude(w, i);
  }
  for (int i; code == CLI_OK && (i = missed(w)) >= 0;) code = measure_missed(w, i);
  return code;
}

spec tune_spec(const tune_args *args, size_t index, op_kind op) {
  spec s = shape_at(&args->shape, index);
  s.op = op;
  return s;
}

/* One problem. */
static int serve(work *w) {
  char untuned[96] = "";
  const spec s = tune_spec(w->args, w->index, w->op);
  int code = w->backend->begin(w->state, &s, untuned, sizeof untuned);
  if (code == CLI_OK) say("untuned", untuned, "-");
  if (code == CLI_OK && w->args->near) code = leave_out_far(w, untuned);
  for (int i = 0; i < w->count && code == CLI_OK; i++) {
    if (!w->entries[i].out) code = prepare(w, i);
  }
  if (code == CLI_OK) code = measure(w);
  if (code != CLI_OK) return code;
  w->backend->end(w->state);
  say("done", "-", "-");
  return CLI_OK;
}

int tune_work(tune_args *args) {
  work w = {.args = args};
  char *line = NULL;
  size_t room = 0;
  int code = accept_contract(&w, args);
  if (code != CLI_OK) return code;
  w.entries = mem_zeroed(TUNE_CANDIDATES, sizeof *w.entries);
  code = w.backend->open(args, &w.state);
  while (code == CLI_OK && getline(&line, &room, stdin) > 0) {
    code = accept_order(&w, line);
    if (code == CLI_OK) code = serve(&w);
  }
  if (code != CLI_OK) { /* with a device that failed, freeing may never end */
    fflush(NULL);
    _Exit(code);
  }
  w.backend->close(w.state);
  free(line);
  mem_free(w.entries);
  return CLI_OK;
}
