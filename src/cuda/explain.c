/* What the CUDA backend says of a plan. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda/plan.h"

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
static const tglu__tuned *tuned_of(const tglu_context *context, tglu__op op,
                                   const tglu__problem *p, int32_t row, int64_t tokens) {
  const tglu__tuned *tuned = tglu__cuda_tuned(context, op, p, tokens);
  return tuned != NULL && tuned->row == row ? tuned : NULL;
}

/* The winner of op mlp, if it says that two launches were faster than one. */
static const tglu__tuned *tuned_apart(const tglu_context *context, const tglu__problem *p,
                                      int64_t tokens) {
  const tglu__tuned *tuned = tglu__cuda_tuned(context, tglu__op_mlp, p, tokens);
  return tuned != NULL && tglu__rows[tuned->row].op == tglu__op_glu ? tuned : NULL;
}

/* The row is the same for all numbers of tokens; the times are those of this call. */
static void say_invariant(text *to, const tglu__cuda *cuda, tglu__op op,
                          const tglu__problem *problem, const tglu__call_facts *facts) {
  tglu__choice best, second;
  tglu__plan_choose_invariant(op, problem, facts, &cuda->facts, &best, &second);
  say(to, "why: cost model, batch-invariant: least mean over 1 ... %d tokens; %.1f us "
      "predicted for %lld", TGLU__INVARIANT_MOST, best.predicted_us, (long long)facts->tokens);
  if (second.row >= 0)
    say(to, "; runner-up %s, %.1f us", tglu__rows[second.row].name, second.predicted_us);
  say(to, "\n");
}

/* The choice as it was made, so that reasons and figures are its own. */
static void say_why(text *to, const tglu_context *context, tglu__op op,
                    const tglu__problem *problem, int32_t row, tglu__call_facts facts) {
  const tglu__cuda *cuda = context->state;
  if (row == cuda->forced_row) {
    say(to, "why: forced by the option row\n");
    return;
  }
  if (context->options.batch_invariant) {
    say_invariant(to, cuda, op, problem, &facts);
    return;
  }
  facts.tokens = tglu__cuda_planned_tokens(context, tglu__bucket_of(facts.tokens));
  const tglu__tuned *tuned = tuned_of(context, op, problem, row, facts.tokens);
  if (tuned != NULL) {
    say(to, "why: tuned, for up to %lld tokens: %.1f us measured", (long long)tuned->tokens,
        tuned->us);
    if (tuned->runner_up >= 0)
      say(to, "; runner-up %s, %.1f us",
          op == tglu__op_mlp && tglu__rows[tuned->runner_up].op == tglu__op_glu
            ? "two launches"
            : tglu__rows[tuned->runner_up].name,
          tuned->runner_up_us);
    say(to, "\n");
    return;
  }
  tglu__choice best, second;
  tglu__plan_choose(op, problem, &facts, &cuda->facts, &best, &second);
  say(to, "why: cost model, planned for %lld tokens: %.1f us predicted",
      (long long)facts.tokens, best.predicted_us);
  if (second.row >= 0)
    say(to, "; runner-up %s, %.1f us", tglu__rows[second.row].name, second.predicted_us);
  if (op == tglu__op_mlp)
    say(to, "; two launches, %.1f us", tglu__plan_pair_us(problem, &facts, &cuda->facts));
  say(to, "\n");
}

static void say_path(text *to, const tglu__row *row, const tglu__problem *problem,
                     const tglu__call_facts *facts, const tglu__call *call) {
  bool stream = tglu__row_is_stream(row);
  const char *why = NULL;
  if (row->loader == tglu__loader_tma) {
    say(to, "loads: %s (pointers on 16 bytes, strides multiples of 8)\n",
        stream ? "16 bytes at a time" : "tma");
  } else {
    if (!facts->x_aligned) why = "x is not on 16 bytes, or ldx is not a multiple of 8";
    if (!tglu__weights_aligned(row->op, problem))
      why = "the weights are not on 16 bytes, or ld is not a multiple of 8";
    say(to, "loads: general, the slower path%s%s\n", why != NULL ? ": " : "",
        why != NULL ? why : "");
  }
  if (stream || tglu__row_is_diag(row)) {
    say(to, "stores: ordinary ones, any address and stride\n");
    return;
  }
  why = tglu__cuda_direct_store(problem, row->op, call);
  if (row->loader == tglu__loader_general) why = "the general loader permutes its rows";
  if (row->schedule == tglu__schedule_down_split) {
    say(to, "stores: by the CTA of the cluster that adds up an output\n");
  } else {
    const char *way = tglu__row_has_tail(row) ? "tma, four columns of a tile direct"
                                              : "tma";
    say(to, "stores: %s%s\n", why != NULL ? "direct, the slower path: " : way,
        why != NULL ? why : "");
  }
}

static void say_stream(text *to, const tglu__cuda *cuda, const tglu__row *row,
                       const tglu__choice *choice) {
  say(to, "schedule: %s, passes of %d outputs for %d tokens, %d stages\n",
      row->schedule_name, (int)row->tile_n, (int)row->tile_m, (int)row->stages);
  say(to, "grid: %d x %d CTAs of %d threads, tokens x outputs, %d passes each, on %d SMs\n",
      (int)choice->clusters, (int)choice->grid_y, (int)tglu__row_threads(row),
      (int)choice->waves, (int)cuda->facts.sm_count);
}

static void say_one_launch(text *to, const tglu__cuda *cuda, const tglu__row *row,
                           const tglu__choice *choice) {
  say(to, "schedule: %s, passes of %d outputs of H, then of %d of out, for %d tokens, %d "
      "stages\n", row->schedule_name, (int)row->tile_n, TGLU_STREAM_MLP_DOWN_ROWS,
      (int)row->tile_m, (int)row->stages);
  say(to, "grid: %d CTAs of %d threads, which wait once for each other, %d passes each, on %d "
      "SMs\n", (int)choice->clusters, (int)tglu__row_threads(row), (int)choice->waves,
      (int)cuda->facts.sm_count);
}

static void say_diag(text *to, const tglu__cuda *cuda, const tglu__row *row,
                     const tglu__problem *problem, const tglu__choice *choice, int64_t tokens) {
  tglu_down_diag_launch part = {.n = (int32_t)problem->k, .k = (int32_t)problem->n};
  tglu_diag_divide(&part, choice->clusters, (int32_t)tokens, row->tile_n, row->stages);
  say(to, "schedule: %s, 8 slices of K beside each other, passes of %d outputs, %d stages\n",
      row->schedule_name, (int)(part.height * TGLU_DIAG_UNIT), (int)part.stages);
  say(to, "grid: %d CTAs of %d threads, %d to %d outputs in %d passes each, on %d SMs\n",
      (int)choice->clusters, (int)tglu__row_threads(row), (int)(part.share * TGLU_DIAG_UNIT),
      (int)((part.share + (part.larger > 0)) * TGLU_DIAG_UNIT), (int)part.passes,
      (int)cuda->facts.sm_count);
}

static void say_tiles(text *to, const tglu__cuda *cuda, const tglu__row *row,
                      const tglu__choice *choice) {
  bool split = row->schedule == tglu__schedule_down_split;
  int64_t tiles = (int64_t)choice->tile_rows * choice->tile_columns;
  say(to, "schedule: %s, tile %d x %d, %d stages, clusters of %d %s\n", row->schedule_name,
      (int)row->tile_m, (int)row->tile_n, (int)row->stages, (int)row->cluster_m,
      split ? "that split K" : "along tokens");
  say(to, "tiles: %d x %d of %d x %d, in groups of %d rows\n", (int)choice->tile_rows,
      (int)choice->tile_columns, (int)(row->tile_m * (split ? 1 : row->cluster_m)),
      (int)row->tile_n, (int)choice->group);
  say(to, "grid: %d CTAs of %d threads in %d clusters, %.2f waves, on %d SMs\n",
      (int)(choice->clusters * row->cluster_m), (int)tglu__row_threads(row),
      (int)choice->clusters, (double)tiles / choice->clusters, (int)cuda->facts.sm_count);
}

/* One operation of the object.  False: no row serves the call. */
static bool say_operation(text *to, const tglu_context *context, const tglu__cuda_plan *plan,
                          tglu__op op, const tglu__call *call) {
  const tglu__cuda *cuda = context->state;
  const tglu__problem *problem = &plan->problem;
  tglu__call own = tglu__cuda_operation_call(problem, op, call);
  tglu__call_facts facts = tglu__cuda_call_facts(context, problem, op, call);
  const tglu__cuda_entry *entry = tglu__cuda_select(plan, op, &facts);
  if (entry == NULL) {
    char before[1024]; /* explain succeeds, so it leaves the last message alone */
    snprintf(before, sizeof before, "%s", tglu_last_error());
    tglu__cuda_refuse(cuda, op, problem, &facts);
    say(to, "no kernel row serves this call\n%s\n", tglu_last_error());
    tglu__fail(TGLU_OK, "%s", before);
    return false;
  }
  const tglu__row *row = &tglu__rows[entry->row];
  tglu__choice choice;
  tglu__cuda_launch_choice(cuda, problem, entry, own.tokens, &choice);
  say(to, "row: %s\n", row->name);
  if (op == tglu__op_mlp) {
    say_one_launch(to, cuda, row, &choice);
  } else if (tglu__row_is_stream(row)) {
    say_stream(to, cuda, row, &choice);
  } else if (tglu__row_is_diag(row)) {
    say_diag(to, cuda, row, problem, &choice, own.tokens);
  } else {
    say_tiles(to, cuda, row, &choice);
  }
  int64_t needed = tglu__row_smem_bytes(row, own.tokens, tglu__op_shape(op, problem).k);
  say(to, "shared memory: %d bytes a CTA%s\n", (int)choice.smem_bytes,
      choice.smem_bytes > needed ? ", more than half an SM's, to have it alone" : "");
  say_path(to, row, problem, &facts, &own);
  if (op != tglu__op_down)
    say(to, "layout: %s, read in place\n", tglu_layout_name(problem->layout));
  say_why(to, context, op, problem, entry->row, facts);
  return true;
}

size_t tglu__cuda_explain(const tglu_context *context, const void *planned,
                          const tglu__call *call, char *buffer, size_t bytes) {
  const tglu__cuda_plan *plan = planned;
  const tglu__problem *problem = &plan->problem;
  const tglu__call_facts facts = tglu__cuda_call_facts(context, problem, tglu__op_mlp, call);
  bool glu = tglu__op_present(tglu__op_glu, problem);
  bool both = glu && problem->has_down;
  text to = {buffer, bytes, 0};
  if (tglu__cuda_in_one_launch(context->state, plan, &facts)) {
    say(&to, "mlp: H into the workspace, out from H\n");
    say_operation(&to, context, plan, tglu__op_mlp, call);
    say(&to, "launch: one, cooperative, programmatic stream serialization off\n");
    return to.length;
  }
  bool served = true;
  if (both) say(&to, "glu: H into the workspace\n");
  if (glu) served = say_operation(&to, context, plan, tglu__op_glu, call);
  if (both) say(&to, "down: out from H\n");
  if (problem->has_down)
    served = say_operation(&to, context, plan, tglu__op_down, call) && served;
  if (!served) {
    say(&to, "launch: none\n");
    return to.length;
  }
  say(&to, "launch: %s, programmatic stream serialization %s%s\n", both ? "two" : "one",
      context->options.pdl ? "on" : "off",
      both && !context->options.pdl ? " (but between the two)" : "");
  const tglu__tuned *apart = both ? tuned_apart(context, problem, call->tokens) : NULL;
  if (apart != NULL) say(&to, "two launches: tuned, %.1f us measured\n", apart->us);
  return to.length;
}

/* The row of one operation with aligned operands, NULL if there is none; adds up. */
static const char *row_info(const tglu_context *context, const tglu__cuda_plan *plan,
                            tglu__op op, int64_t tokens, tglu_plan_info *info, double *us) {
  const tglu__cuda *cuda = context->state;
  const tglu__problem *problem = &plan->problem;
  tglu__call_facts facts = {.tokens = tokens, .x_aligned = true, .x_reachable = true};
  const tglu__cuda_entry *entry = tglu__cuda_select(plan, op, &facts);
  if (entry == NULL) return NULL;
  tglu__choice choice;
  tglu__cuda_launch_choice(cuda, problem, entry, tokens, &choice);
  *us = tglu__plan_cost_us(&choice, problem, tokens);
  if (tuned_of(context, op, problem, entry->row, tokens) != NULL) info->tuned = 1;
  return tglu__rows[entry->row].name;
}

void tglu__cuda_plan_info(const tglu_context *context, const void *planned, int64_t tokens,
                          tglu_plan_info *info) {
  const tglu__cuda_plan *plan = planned;
  const tglu__call_facts facts = {.tokens = tokens, .x_aligned = true, .x_reachable = true};
  double glu_us = 0, down_us = 0;
  if (tglu__cuda_in_one_launch(context->state, plan, &facts)) {
    info->row = row_info(context, plan, tglu__op_mlp, tokens, info, &info->predicted_us);
    return;
  }
  const char *glu = row_info(context, plan, tglu__op_glu, tokens, info, &glu_us);
  const char *down = row_info(context, plan, tglu__op_down, tokens, info, &down_us);
  bool linear = tglu__is_linear(&plan->problem);
  info->row = linear ? down : glu;
  info->down_row = linear ? NULL : down;
  if (glu != NULL && down != NULL && tuned_apart(context, &plan->problem, tokens) != NULL)
    info->tuned = 1;
  info->predicted_us =
    glu != NULL && down != NULL ? tglu__plan_mlp_us(glu_us, down_us) : glu_us + down_us;
}
