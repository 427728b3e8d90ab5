#include "rows.h"

#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../mem.h"

static void options_of(const cuda_args *args, const char *row, int pdl,
                       tglu_context_options *o) {
  tglu_context_options_init(o);
  o->backend = TGLU_BACKEND_CUDA;
  o->device = (int32_t)args->gpu;
  o->row = row;
  o->pdl = pdl;
  o->stable_weights = pdl && args->stable_weights;
  o->tune_cache = "";
  o->cuda_library = args->driver;
}

int rows_open(kernel_rows *rows, const cuda_args *args) {
  memset(rows, 0, sizeof *rows);
  rows->args = args;
  tglu_context_options o;
  options_of(args, NULL, 0, &o);
  if (tglu_context_create(&o, &rows->planner) != TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "context");
  }
  int count = tglu_row_count(rows->planner);
  rows->items = mem_zeroed((size_t)(count > 0 ? count : 1), sizeof *rows->items);
  for (int i = 0; i < count; i++) {
    tglu_row_info info;
    tglu_row_info_init(&info);
    if (tglu_row_get(rows->planner, i, &info) != TGLU_OK) {
      return cli_library_error(CLI_RUNTIME, "row %d", i);
    }
    if (strcmp(info.op, "glu") != 0) continue;
    kernel_row *row = &rows->items[rows->count++];
    snprintf(row->name, sizeof row->name, "%s", info.name);
    snprintf(row->hash, sizeof row->hash, "%s", info.hash ? info.hash : "");
    row->dtypes = info.dtypes;
    row->usable = info.usable;
  }
  return CLI_OK;
}

void rows_close(kernel_rows *rows) {
  for (int i = 0; i < rows->count; i++) {
    tglu_context_destroy(rows->items[i].context[0]);
    tglu_context_destroy(rows->items[i].context[1]);
  }
  tglu_context_destroy(rows->planner);
  mem_free(rows->items);
  memset(rows, 0, sizeof *rows);
}

int rows_find(const kernel_rows *rows, const char *name) {
  for (int i = 0; i < rows->count; i++) {
    if (strcmp(rows->items[i].name, name) == 0) return i;
  }
  return -1;
}

static void describe(const data *d, int set, tglu_glu_desc *desc) {
  tglu_glu_desc_init(desc);
  data_bind(d, set, desc);
}

int rows_chosen(const kernel_rows *rows, const data *d, int *chosen) {
  tglu_glu_desc desc;
  describe(d, 0, &desc);
  tglu_glu *glu = NULL;
  tglu_plan_info plan;
  tglu_plan_info_init(&plan);
  if (tglu_glu_create(rows->planner, &desc, &glu) != TGLU_OK ||
      tglu_glu_get_plan(glu, d->spec.tokens, &plan) != TGLU_OK || !plan.row) {
    int code = cli_library_error(CLI_RUNTIME, "the planner's choice");
    tglu_glu_destroy(glu);
    return code;
  }
  *chosen = rows_find(rows, plan.row);
  tglu_glu_destroy(glu);
  if (*chosen >= 0) return CLI_OK;
  return cli_error(CLI_RUNTIME, "the planner chose %s, which is not in the list of rows",
                   plan.row);
}

static int open_context(kernel_rows *rows, int row, int pdl) {
  kernel_row *r = &rows->items[row];
  if (r->context[pdl]) return CLI_OK;
  tglu_context_options o;
  options_of(rows->args, r->name, pdl, &o);
  if (tglu_context_create(&o, &r->context[pdl]) == TGLU_OK) return CLI_OK;
  return cli_library_error(CLI_RUNTIME, "context with row %s", r->name);
}

int row_calls_create(row_calls *c, kernel_rows *rows, int row, int pdl, const data *d,
                     int *supported) {
  const kernel_row *r = &rows->items[row];
  memset(c, 0, sizeof *c);
  c->d = d;
  *supported = r->usable && (r->dtypes >> d->spec.dtype & 1);
  if (!*supported) return CLI_OK;
  int code = open_context(rows, row, pdl);
  if (code != CLI_OK) return code;
  c->objects = mem_zeroed((size_t)d->sets, sizeof(tglu_glu *));
  for (int i = 0; i < d->sets; i++) {
    tglu_glu_desc desc;
    describe(d, i, &desc);
    tglu_status status = tglu_glu_create(r->context[pdl], &desc, &c->objects[i]);
    if (status == TGLU_OK) continue;
    *supported = 0;
    if (status == TGLU_ERR_UNSUPPORTED) return CLI_OK;
    return cli_library_error(CLI_RUNTIME, "%s", r->name);
  }
  tglu_plan_info plan;
  tglu_plan_info_init(&plan);
  tglu_status status = tglu_glu_get_plan(c->objects[0], d->spec.tokens, &plan);
  *supported = status == TGLU_OK && plan.row && strcmp(plan.row, r->name) == 0;
  return CLI_OK;
}

void row_calls_destroy(row_calls *c) {
  for (int i = 0; c->objects && i < c->d->sets; i++) tglu_glu_destroy(c->objects[i]);
  mem_free(c->objects);
  memset(c, 0, sizeof *c);
}

int row_calls_enqueue(void *user, int set, gpu_stream stream) {
  const row_calls *c = user;
  const data_set *s = &c->d->set[set];
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = (const void *)(uintptr_t)s->x;
  a.tokens = c->d->spec.tokens;
  a.out = (void *)(uintptr_t)s->h;
  a.stream = stream;
  if (tglu_glu_run(c->objects[set], &a) == TGLU_OK) return CLI_OK;
  return cli_library_error(CLI_RUNTIME, "run");
}
