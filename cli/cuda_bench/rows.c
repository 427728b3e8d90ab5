#include "rows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../cli.h"
#include "../mem.h"
#include "../row_names.h"

static int open_context(const kernel_rows *rows, int force, int pdl, tglu_context **out) {
  const cuda_args *args = rows->args;
  const char *row = force >= 0 ? rows->items[force].name : NULL;
  tglu_context_options o;
  if (*out) return CLI_OK;
  tglu_context_options_init(&o);
  o.backend = TGLU_BACKEND_CUDA;
  o.device = (int32_t)args->gpu;
  o.row = row;
  o.pdl = pdl;
  o.stable_weights = pdl && args->stable_weights;
  o.batch_invariant = force == ROWS_INVARIANT;
  o.tune_cache = force == ROWS_PLANNER && args->tune_cache ? args->tune_cache : "";
  o.cuda_library = args->driver;
  if (*o.tune_cache && out == &rows->planner[0]) o.log = log_warnings; /* once */
  if (tglu_context_create(&o, out) == TGLU_OK) return CLI_OK;
  return cli_library_error(CLI_RUNTIME, "context%s%s", row ? " with row " : "", row ? row : "");
}

/* The context that forces this, made when first asked for. */
static int context_of(kernel_rows *rows, int force, int pdl, tglu_context **context) {
  tglu_context **place = force == ROWS_PLANNER     ? &rows->planner[pdl]
                         : force == ROWS_INVARIANT ? &rows->invariant[pdl]
                                                   : &rows->items[force].context[pdl];
  int code = open_context(rows, force, pdl, place);
  *context = *place;
  return code;
}

int rows_open(kernel_rows *rows, const cuda_args *args) {
  memset(rows, 0, sizeof *rows);
  rows->args = args;
  if (args->tune_cache && *args->tune_cache && access(args->tune_cache, F_OK) != 0) {
    cli_warn("--tune-cache: %s: %s: the choice is the cost model's", args->tune_cache,
             strerror(errno));
  }
  if (open_context(rows, ROWS_PLANNER, 0, &rows->planner[0])) return CLI_RUNTIME;
  int count = tglu_row_count(rows->planner[0]);
  rows->items = mem_zeroed((size_t)(count > 0 ? count : 1), sizeof *rows->items);
  for (int i = 0; i < count; i++) {
    tglu_row_info info;
    tglu_row_info_init(&info);
    if (tglu_row_get(rows->planner[0], i, &info) != TGLU_OK) {
      return cli_library_error(CLI_RUNTIME, "row %d", i);
    }
    kernel_row *row = &rows->items[rows->count++];
    snprintf(row->name, sizeof row->name, "%s", info.name);
    snprintf(row->hash, sizeof row->hash, "%s", info.hash ? info.hash : "");
    row->op = strcmp(info.op, "glu") == 0   ? OP_GLU
              : strcmp(info.op, "mlp") == 0 ? OP_MLP
                                            : OP_DOWN;
    row->dtypes = info.dtypes;
    row->usable = info.usable;
  }
  return CLI_OK;
}

/* Whether the row could serve this op and type at all. */
static int may_serve(const kernel_row *row, op_kind op, tglu_dtype dtype) {
  return row->usable && (row->dtypes >> dtype & 1) && (op == OP_MLP || op == row->op);
}

int rows_check(const kernel_rows *rows) {
  static const char *const words[] = {"chosen", "best", "near", "all", NULL};
  const shape_args *s = &rows->args->shape;
  const char **known = mem_zeroed((size_t)rows->count + 1, sizeof *known);
  int count = 0;
  for (int i = 0; i < rows->count; i++) {
    int serves = 0;
    for (size_t j = 0; j < s->dtype_count; j++) {
      serves |= may_serve(&rows->items[i], s->op, s->dtypes[j]);
    }
    if (serves) known[count++] = rows->items[i].name;
  }
  int code = row_names_check(rows->args->rows, words, known, count, op_name(s->op));
  mem_free(known);
  return code;
}

void rows_close(kernel_rows *rows) {
  for (int pdl = 0; pdl < 2; pdl++) {
    for (int i = 0; i < rows->count; i++) tglu_context_destroy(rows->items[i].context[pdl]);
    tglu_context_destroy(rows->planner[pdl]);
    tglu_context_destroy(rows->invariant[pdl]);
  }
  mem_free(rows->items);
  memset(rows, 0, sizeof *rows);
}

int rows_find(const kernel_rows *rows, const char *name) {
  for (int i = 0; i < rows->count; i++) {
    if (strcmp(rows->items[i].name, name) == 0) return i;
  }
  return -1;
}

/* ---- plans ---- */

/* Of op down, too: it has no object that tells its plan, but an MLP with the same down
 * projection has. */
static tglu_status plan_of(tglu_context *context, const data *d, tglu_plan_info *info) {
  tglu_mlp_desc desc;
  tglu_glu *glu = NULL;
  tglu_mlp *mlp = NULL;
  tglu_status status;
  tglu_mlp_desc_init(&desc);
  tglu_plan_info_init(info);
  data_bind(d, 0, &desc);
  if (d->spec.op == OP_GLU) {
    status = tglu_glu_create(context, &desc.glu, &glu);
    if (status == TGLU_OK) status = tglu_glu_get_plan(glu, d->spec.tokens, info);
  } else {
    status = tglu_mlp_create(context, &desc, &mlp);
    if (status == TGLU_OK) status = tglu_mlp_get_plan(mlp, d->spec.tokens, info);
  }
  tglu_glu_destroy(glu);
  tglu_mlp_destroy(mlp);
  return status;
}

static int index_of(const kernel_rows *rows, const char *name, int *index) {
  *index = name ? rows_find(rows, name) : -1;
  if (!name || *index >= 0) return CLI_OK;
  return cli_error(CLI_RUNTIME, "the library chose %s, which is not in the list of rows", name);
}

int rows_plan(kernel_rows *rows, int force, int pdl, const data *d, row_plan *plan) {
  memset(plan, 0, sizeof *plan);
  if (force >= 0 && !may_serve(&rows->items[force], d->spec.op, d->spec.dtype)) return CLI_OK;
  tglu_context *context = NULL;
  tglu_plan_info info;
  int code = context_of(rows, force, pdl, &context);
  if (code != CLI_OK) return code;
  tglu_status status = plan_of(context, d, &info);
  if (status == TGLU_ERR_UNSUPPORTED && force != ROWS_PLANNER) return CLI_OK;
  /* A forced row may serve some counts of tokens and not this one. */
  if (status == TGLU_OK && force >= 0 && !info.row && !info.down_row) return CLI_OK;
  if (status != TGLU_OK || (!info.row && !info.down_row)) {
    return cli_library_error(CLI_RUNTIME, "%s",
                             force < 0 ? "the planner's choice" : rows->items[force].name);
  }
  if (d->spec.op == OP_DOWN) info.row = NULL;
  code = index_of(rows, info.row, &plan->row);
  if (code == CLI_OK) code = index_of(rows, info.down_row, &plan->down_row);
  plan->predicted_us = info.predicted_us;
  plan->tuned = info.tuned;
  plan->supported = code == CLI_OK &&
                    (force < 0 || plan->row == force || plan->down_row == force);
  return code;
}

/* ---- objects ---- */

static tglu_status object_create(tglu_context *context, const data *d, int set,
                                 row_object *o) {
  tglu_mlp_desc desc;
  tglu_mlp_desc_init(&desc);
  data_bind(d, set, &desc);
  if (d->spec.op == OP_GLU) return tglu_glu_create(context, &desc.glu, &o->glu);
  if (d->spec.op == OP_MLP) return tglu_mlp_create(context, &desc, &o->mlp);
  tglu_linear_desc linear;
  tglu_linear_desc_init(&linear);
  linear.in_features = d->spec.intermediate;
  linear.out_features = d->spec.hidden;
  linear.dtype = d->spec.dtype;
  linear.weight = desc.down;
  return tglu_linear_create(context, &linear, &o->linear);
}

static tglu_status workspace_bytes(const row_object *o, int64_t tokens, size_t *bytes) {
  if (o->glu) return tglu_glu_workspace_bytes(o->glu, tokens, bytes);
  if (o->mlp) return tglu_mlp_workspace_bytes(o->mlp, tokens, bytes);
  return tglu_linear_workspace_bytes(o->linear, tokens, bytes);
}

int row_calls_create(row_calls *c, kernel_rows *rows, int force, int pdl, const data *d) {
  memset(c, 0, sizeof *c);
  c->d = d;
  tglu_context *context = NULL;
  int code = context_of(rows, force, pdl, &context);
  if (code != CLI_OK) return code;
  c->objects = mem_zeroed((size_t)d->sets, sizeof *c->objects);
  c->workspaces = mem_zeroed((size_t)d->sets, sizeof *c->workspaces);
  for (int i = 0; i < d->sets; i++) {
    if (object_create(context, d, i, &c->objects[i]) != TGLU_OK ||
        workspace_bytes(&c->objects[i], d->spec.tokens, &c->workspace_bytes) != TGLU_OK) {
      return cli_library_error(CLI_RUNTIME, "%s",
                               force < 0 ? "the planner's choice" : rows->items[force].name);
    }
    if (c->workspace_bytes &&
        gpu_allocate(d->g, &c->workspaces[i], c->workspace_bytes, "a workspace")) {
      return CLI_RUNTIME;
    }
  }
  return CLI_OK;
}

void row_calls_destroy(row_calls *c) {
  for (int i = 0; c->objects && i < c->d->sets; i++) {
    tglu_glu_destroy(c->objects[i].glu);
    tglu_mlp_destroy(c->objects[i].mlp);
    tglu_linear_destroy(c->objects[i].linear);
    gpu_release(c->d->g, &c->workspaces[i]);
  }
  mem_free(c->objects);
  mem_free(c->workspaces);
  memset(c, 0, sizeof *c);
}

int row_calls_enqueue(void *user, int set, gpu_stream stream) {
  const row_calls *c = user;
  const data_set *s = &c->d->set[set];
  const row_object *o = &c->objects[set];
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = (const void *)(uintptr_t)s->x;
  a.tokens = c->d->spec.tokens;
  a.out = (void *)(uintptr_t)s->out;
  a.workspace = (void *)(uintptr_t)c->workspaces[set];
  a.workspace_bytes = c->workspace_bytes;
  a.stream = stream;
  tglu_status status = o->glu   ? tglu_glu_run(o->glu, &a)
                       : o->mlp ? tglu_mlp_run(o->mlp, &a)
                                : tglu_linear_run(o->linear, &a);
  if (status == TGLU_OK) return CLI_OK;
  return cli_library_error(CLI_RUNTIME, "run");
}
