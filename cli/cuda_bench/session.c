#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "../mem.h"
#include "../row_names.h"
#include "pick.h"

static int writer_enqueue(void *user, int set, gpu_stream stream) {
  return data_write_x(user, set, stream);
}

static int32_t hook_write_x(const void *user, int32_t set, void *stream) {
  return data_write_x(user, set, stream);
}

static int prepare(session *s, int which, int (*enqueue)(void *, int, gpu_stream),
                   void *user, int write_x) {
  variant *v = &s->variants[which];
  v->enqueue = enqueue;
  v->user = user;
  int code = variant_capture(v, s->d, s->calls, write_x);
  return code == CLI_OK ? variant_estimate(v, s->d->g) : code;
}

/* ---- names ---- */

/* The row by which a line goes: a GLU's, an MLP's first, or op down's only one. */
static const kernel_row *first_row(const session *s, int which) {
  const row_plan *p = &s->ways[which].plan;
  int row = s->d->spec.op == OP_DOWN ? p->down_row : p->row;
  return row >= 0 ? &s->b->rows.items[row] : NULL;
}

static const kernel_row *second_row(const session *s, int which) {
  const row_plan *p = &s->ways[which].plan;
  return s->d->spec.op == OP_MLP && p->down_row >= 0 ? &s->b->rows.items[p->down_row] : NULL;
}

const char *session_row_name(const session *s, int which) {
  const kernel_row *row = first_row(s, which);
  return row ? row->name : "";
}

const char *session_row_hash(const session *s, int which) {
  const kernel_row *row = first_row(s, which);
  return row ? row->hash : "";
}

const char *session_down_name(const session *s, int which) {
  const kernel_row *row = second_row(s, which);
  return row ? row->name : "";
}

const char *session_down_hash(const session *s, int which) {
  const kernel_row *row = second_row(s, which);
  return row ? row->hash : "";
}

/* ---- rows ---- */

static int is_listed(const session *s, const row_plan *plan) {
  for (int i = FIRST_ROW; i < s->count; i++) {
    const row_plan *p = &s->ways[i].plan;
    if (p->row == plan->row && p->down_row == plan->down_row) return 1;
  }
  return 0;
}

static int prepare_way(session *s, int which, int force, const row_plan *plan) {
  char name[200];
  s->ways[which].plan = *plan;
  const char *second = session_down_name(s, which);
  snprintf(name, sizeof name, "%s%s%s", session_row_name(s, which), second[0] ? "+" : "",
           second);
  variant_name(&s->variants[which], name);
  row_calls *calls = &s->ways[which].calls;
  int code = row_calls_create(calls, &s->b->rows, force, s->pdl, s->d);
  return code == CLI_OK ? prepare(s, which, row_calls_enqueue, calls, s->pdl) : code;
}

/* Unless the same rows are there already. */
static int add_way(session *s, int force, const row_plan *plan) {
  if (!plan->supported || is_listed(s, plan)) return CLI_OK;
  variant_init(&s->variants[s->count++], "");
  return prepare_way(s, s->count - 1, force, plan);
}

static int is_best(const session *s, const int *best, int count, const char *name) {
  for (int i = 0; i < count; i++) {
    const result *r = &s->b->former.items[best[i]];
    if (strcmp(r->row, name) == 0 || strcmp(r->down_row, name) == 0) return 1;
  }
  return 0;
}

typedef struct candidate {
  int force;
  row_plan plan;
} candidate;

static int by_prediction(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->plan.predicted_us != y->plan.predicted_us) {
    return x->plan.predicted_us < y->plan.predicted_us ? -1 : 1;
  }
  return x->force - y->force;
}

/* Of the candidates those near the least prediction, at most `top`. */
static int add_near(session *s, candidate *list, int count) {
  const cuda_args *a = &s->b->args;
  int taken = 0, code = CLI_OK;
  qsort(list, (size_t)count, sizeof *list, by_prediction);
  for (int i = 0; i < count && taken < a->top && code == CLI_OK; i++) {
    double least = list[0].plan.predicted_us;
    if (list[i].plan.predicted_us > (1 + a->within) * least) break;
    code = add_way(s, list[i].force, &list[i].plan);
    taken++;
  }
  return code;
}

static int prepare_rows(session *s) {
  kernel_rows *rows = &s->b->rows;
  const char *wanted = s->b->args.rows;
  int best[128], near = strcmp(wanted, "near") == 0, all = near || strcmp(wanted, "all") == 0;
  int best_count = pick_best(&s->b->former, &s->d->spec, s->pdl, (int)s->b->args.top, best);
  row_plan plan;
  int code = rows_plan(rows, ROWS_PLANNER, s->pdl, s->d, &plan);
  if (code == CLI_OK) code = add_way(s, ROWS_PLANNER, &plan);
  if (strcmp(wanted, "chosen") == 0) return code;
  candidate *list = mem_zeroed((size_t)rows->count + 1, sizeof *list);
  int count = 0;
  for (int row = 0; row < rows->count && code == CLI_OK; row++) {
    const char *name = rows->items[row].name;
    int take = all || is_best(s, best, best_count, name) ||
               (strcmp(wanted, "best") != 0 && row_names_hold(wanted, name));
    if (!take) continue;
    code = rows_plan(rows, row, s->pdl, s->d, &plan);
    if (code == CLI_OK && near && plan.supported) list[count++] = (candidate){row, plan};
    if (code == CLI_OK && !near) code = add_way(s, row, &plan);
  }
  if (code == CLI_OK) code = add_near(s, list, count);
  mem_free(list);
  return code;
}

static int prepare_invariant(session *s) {
  row_plan plan;
  int code = rows_plan(&s->b->rows, ROWS_INVARIANT, s->pdl, s->d, &plan);
  if (code != CLI_OK || !plan.supported) return code;
  return prepare_way(s, INVARIANT, ROWS_INVARIANT, &plan);
}

/* ---- PyTorch ---- */

static int prepare_torch(session *s) {
  const bench_torch *torch = s->b->torch;
  const data *d = s->d;
  int plain = d->spec.layout == TGLU_LAYOUT_SEPARATE ||
              d->spec.layout == TGLU_LAYOUT_STACKED_GATE_FIRST;
  if (!torch || s->b->args.alone || !plain || d->spec.activation != TGLU_ACTIVATION_SILU ||
      d->spec.op == OP_DOWN) {
    return CLI_OK;
  }
  size_t sets = (size_t)d->sets;
  uint64_t *x = mem_zeroed(3 * sets, sizeof *x), *w = x + sets, *down = w + sets;
  for (int i = 0; i < d->sets; i++) {
    x[i] = d->set[i].x;
    w[i] = d->set[i].w;
    down[i] = d->set[i].down;
  }
  bench_torch_shape shape = {.m = d->spec.tokens, .n = d->spec.intermediate,
                             .k = d->spec.hidden, .dtype = (int32_t)d->spec.dtype,
                             .sets = d->sets, .calls = s->calls, .pdl = s->pdl,
                             .control = s->control, .stream = d->g->stream, .x = x, .w = w,
                             .down = d->spec.op == OP_MLP ? down : NULL,
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
  return code;
}

/* ---- all ---- */

static int prepare_cublas(session *s) {
  if (s->gemm->count == 0) return CLI_OK;
  int code = prepare(s, GEMM_EX, chain_enqueue_ex, s->gemm, s->pdl);
  if (code == CLI_OK && chain_has_lt(s->gemm)) {
    code = prepare(s, GEMM_LT, chain_enqueue_lt, s->gemm, s->pdl);
  }
  if (code == CLI_OK && chain_is_mixed(s->gemm)) {
    code = prepare(s, GEMM_MIXED, chain_enqueue_faster, s->gemm, s->pdl);
  }
  if (code == CLI_OK && s->d->spec.op != OP_DOWN) {
    code = prepare(s, UNFUSED, chain_enqueue_unfused, s->gemm, s->pdl);
  }
  return code;
}

int session_prepare(session *s) {
  static const char *const names[FIRST_ROW] = {"write_x", "cublasGemmEx", "cublasLt",
    "cublas, the faster of each", "unfused", "eager", "linear", "read", "batch-invariant"};
  bench *b = s->b;
  size_t most = (size_t)(FIRST_ROW + b->rows.count + 1);
  s->variants = mem_zeroed(most, sizeof *s->variants);
  s->ways = mem_zeroed(most, sizeof *s->ways);
  s->accuracy = mem_zeroed(most, sizeof *s->accuracy);
  for (; s->count < FIRST_ROW; s->count++) {
    variant_init(&s->variants[s->count], names[s->count]);
  }
  int code = CLI_OK;
  if (s->pdl) code = prepare(s, WRITER, writer_enqueue, s->d, 0);
  if (code == CLI_OK) code = prepare_cublas(s);
  if (code == CLI_OK && (b->args.read_out || s->d->spec.op == OP_MLP)) {
    code = reader_create(&s->reader, s->d, &b->args.timing, &b->reader);
    if (code == CLI_OK) code = prepare(s, READ, reader_enqueue, &s->reader, s->pdl);
  }
  if (code == CLI_OK) code = prepare_rows(s);
  if (code == CLI_OK && b->args.invariant_out) code = prepare_invariant(s);
  return code == CLI_OK ? prepare_torch(s) : code;
}

void session_end(session *s) {
  if (s->b->torch) s->b->torch->finish(s->b->torch->user);
  for (int i = 0; i < s->count; i++) variant_destroy(&s->variants[i], s->d->g);
  for (int i = INVARIANT; i < s->count; i++) row_calls_destroy(&s->ways[i].calls);
  mem_free(s->variants);
  mem_free(s->ways);
  mem_free(s->accuracy);
}
