/* The CUDA backend's table, and what it says in words. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda/glu_plan.h"
#include "plan/tune.h"

static int32_t row_count(const tglu_context *context) {
  (void)context;
  return tglu__row_total;
}

static void row_get(const tglu_context *context, int32_t index, tglu_row_info *info) {
  const tglu__cuda *cuda = context->state;
  const tglu__row *row = &tglu__rows[index];
  info->name = row->name;
  info->op = row->op_name;
  info->schedule = row->schedule_name;
  info->isa = "sm90";
  info->hash = row->cubin->hash;
  info->dtypes = 1 << row->dtype;
  info->usable = row->cubin->code != NULL &&
                 tglu__row_smem_bytes(row) <= cuda->facts.smem_bytes &&
                 cuda->facts.clusters[row->cluster_m] > 0;
}

static size_t workspace_bytes(const tglu_context *context, const void *plan, int64_t tokens) {
  (void)context, (void)plan, (void)tokens;
  return 0;
}

static size_t copied_bytes(const tglu_context *context, const void *plan) {
  (void)context, (void)plan;
  return 0;
}

static int64_t bucket_tokens(int64_t tokens) {
  return tglu__bucket_tokens(tglu__bucket_of(tokens));
}

/* ---- explain ---- */

/* A text that may be cut; length counts what it would have been. */
typedef struct text {
  char *buffer;
  size_t bytes, length;
} text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void say(text *to, const char *format, ...) {
  char *at = to->length < to->bytes ? to->buffer + to->length : NULL;
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(at, at != NULL ? to->bytes - to->length : 0, format, arguments);
  va_end(arguments);
  if (n > 0) to->length += (size_t)n;
}

/* The winner that chose this row; NULL: the cost model did. */
static const tglu__tuned *tuned_of(const tglu_context *context, const tglu__problem *p,
                                   int32_t row, int64_t tokens) {
  const tglu__tuned *tuned =
    tglu__tune_find(context, TGLU__TUNE_GLU, p->dtype, p->n, p->k, tokens);
  return tuned != NULL && tuned->row == row ? tuned : NULL;
}

/* The choice as it was made, so that reasons and figures are its own. */
static void say_why(text *to, const tglu_context *context, const tglu__problem *problem,
                    int32_t row, tglu__call_facts facts) {
  const tglu__cuda *cuda = context->state;
  if (cuda->forced_row >= 0) {
    say(to, "why: forced by the option row\n");
    return;
  }
  facts.tokens = tglu__cuda_planned_tokens(context, tglu__bucket_of(facts.tokens));
  const tglu__tuned *tuned = tuned_of(context, problem, row, facts.tokens);
  if (tuned != NULL) {
    say(to, "why: tuned, for up to %lld tokens: %.1f us measured", (long long)tuned->tokens,
        tuned->us);
    if (tuned->runner_up >= 0)
      say(to, "; runner-up %s, %.1f us", tglu__rows[tuned->runner_up].name,
          tuned->runner_up_us);
    say(to, "\n");
    return;
  }
  tglu__choice best, second;
  tglu__plan_choose(problem, &facts, &cuda->facts, &best, &second);
  say(to, "why: %s, planned for %lld tokens: %.1f us predicted",
      context->options.batch_invariant ? "cost model, batch-invariant" : "cost model",
      (long long)facts.tokens, best.predicted_us);
  if (second.row >= 0)
    say(to, "; runner-up %s, %.1f us", tglu__rows[second.row].name, second.predicted_us);
  say(to, "\n");
}

static void say_path(text *to, const tglu__row *row, const tglu__problem *problem,
                     const tglu__call_facts *facts, const tglu__call *call) {
  const char *why = NULL;
  if (row->loader == tglu__loader_tma) {
    say(to, "loads: tma (pointers on 16 bytes, strides multiples of 8)\n");
  } else {
    if (!facts->x_aligned) why = "x is not on 16 bytes, or ldx is not a multiple of 8";
    if (!tglu__matrix_aligned(problem->gate, problem->n, problem->ld) ||
        !tglu__matrix_aligned(problem->up, problem->n, problem->ld))
      why = "the weights are not on 16 bytes, or ld is not a multiple of 8";
    say(to, "loads: general, the slower path%s%s\n", why != NULL ? ": " : "",
        why != NULL ? why : "");
  }
  why = tglu__cuda_direct_store(problem, call);
  if (row->loader == tglu__loader_general) why = "the general loader permutes its rows";
  say(to, "stores: %s%s\n", why != NULL ? "direct, the slower path: " : "tma",
      why != NULL ? why : "");
}

size_t tglu__cuda_explain(const tglu_context *context, const void *planned,
                          const tglu__call *call, char *buffer, size_t bytes) {
  const tglu__cuda *cuda = context->state;
  const tglu__cuda_plan *plan = planned;
  const tglu__problem *problem = &plan->problem;
  text to = {buffer, bytes, 0};
  tglu__call_facts facts = tglu__cuda_call_facts(context, call);
  int32_t index = tglu__cuda_select(plan, &facts);
  if (index < 0) {
    char before[1024]; /* explain succeeds, so it leaves the last message alone */
    snprintf(before, sizeof before, "%s", tglu_last_error());
    tglu__cuda_refuse(cuda, problem, &facts);
    say(&to, "no kernel row serves this call\n%s\n", tglu_last_error());
    tglu__fail(TGLU_OK, "%s", before);
    return to.length;
  }
  const tglu__row *row = &tglu__rows[index];
  const tglu__cuda_entry *entry = &plan->entries[index];
  tglu__choice choice;
  tglu__plan_launch(index, problem, call->tokens, &cuda->facts, &choice);
  if (choice.clusters > entry->clusters) choice.clusters = entry->clusters;
  int64_t tiles = (int64_t)choice.tile_rows * choice.tile_columns;
  say(&to, "row: %s\n", row->name);
  say(&to, "schedule: %s, tile %d x %d, %d stages, clusters of %d along tokens\n",
      row->schedule_name, (int)row->tile_m, (int)row->tile_n, (int)row->stages,
      (int)row->cluster_m);
  say(&to, "tiles: %d x %d of %d x %d, in groups of %d rows\n", (int)choice.tile_rows,
      (int)choice.tile_columns, (int)(row->tile_m * row->cluster_m), (int)row->tile_n,
      (int)choice.group);
  say(&to, "grid: %d CTAs of %d threads in %d clusters, %.2f waves, on %d SMs\n",
      (int)(choice.clusters * row->cluster_m), (int)tglu__row_threads(row),
      (int)choice.clusters, (double)tiles / choice.clusters, (int)cuda->facts.sm_count);
  say(&to, "shared memory: %d bytes a CTA\n", (int)choice.smem_bytes);
  say_path(&to, row, problem, &facts, call);
  say(&to, "layout: %s, read in place\n", tglu_layout_name(problem->layout));
  say_why(&to, context, problem, index, facts);
  say(&to, "launch: one, programmatic stream serialization %s\n",
      context->options.pdl ? "on" : "off");
  return to.length;
}

void tglu__cuda_plan_info(const tglu_context *context, const void *planned, int64_t tokens,
                          tglu_plan_info *info) {
  const tglu__cuda *cuda = context->state;
  const tglu__cuda_plan *plan = planned;
  tglu__call_facts facts = {.tokens = tokens, .x_aligned = true,
                            .x_reachable = true};
  int32_t row = tglu__cuda_select(plan, &facts);
  if (row < 0) return;
  tglu__choice choice;
  tglu__plan_launch(row, &plan->problem, tokens, &cuda->facts, &choice);
  info->row = tglu__rows[row].name;
  info->tuned = tuned_of(context, &plan->problem, row, tokens) != NULL;
  info->predicted_us = tglu__plan_cost_us(&choice, &plan->problem, tokens);
}

const tglu__backend_ops tglu__cuda_backend = {
  .id = TGLU_BACKEND_CUDA,
  .open = tglu__cuda_open,
  .close = tglu__cuda_close,
  .row_count = row_count,
  .row_get = row_get,
  .plan_create = tglu__cuda_plan_create,
  .plan_destroy = tglu__cuda_plan_destroy,
  .workspace_bytes = workspace_bytes,
  .run = tglu__cuda_run,
  .explain = tglu__cuda_explain,
  .plan_info = tglu__cuda_plan_info,
  .copied_bytes = copied_bytes,
  .bucket_tokens = bucket_tokens,
  .needs_element_alignment = true,
  .has_streams = true,
};
