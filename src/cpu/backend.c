/* The CPU behind tglu__backend_ops: opening a context, and turning an object and a call
 * into one product (GLU, linear) or chunks of two (MLP). */
#include <stdio.h>
#include <string.h>

#include "cpu/cpuid.h"
#include "cpu/driver.h"
#include "cpu/numeric.h"
#include "cpu/plan.h"
#include "cpu/pool.h"
#include "internal.h"
#include "plan/tune.h"

#define CACHE_LINE 64

typedef struct cpu_state {
  tglu__cpu_facts facts;
  tglu__pool *pool;
  float *scratch;
  size_t scratch_bytes;
  char name[TGLU__CPU_NAME_BYTES];
} cpu_state;

enum { BUCKETS = 32 }; /* of token counts: up to 1, 2, 4, ... 2^31 */

typedef struct cpu_plan {
  tglu__problem problem;
  const tglu__tuned *tuned[2][BUCKETS]; /* by op; NULL: by rule */
} cpu_plan;

static const cpu_state *state_of(const tglu_context *context) { return context->state; }

/* ---- opening ---- */

static bool build_has(tglu__isa isa) {
  for (int32_t i = 0; i < tglu__cpu_row_count; i++)
    if (tglu__cpu_rows[i].isa == isa) return true;
  return false;
}

/* Best level that this CPU, this OS and this build have in common. */
static tglu__isa best_isa(void) {
  tglu__cpuid_facts facts;
  tglu__cpuid_read(&facts);
  tglu__isa isa = tglu__cpuid_level(&facts);
  while (isa > TGLU__ISA_PORTABLE && !build_has(isa)) isa = (tglu__isa)(isa - 1);
  return isa;
}

const char *tglu_cpu_isa(void) { return tglu__isa_name(best_isa()); }

static tglu_status choose_isa(const char *asked, tglu__isa *out) {
  *out = best_isa();
  if (asked == NULL) return TGLU_OK;
  tglu__isa isa = tglu__isa_from_name(asked);
  if (isa == TGLU__ISA_COUNT)
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT,
                      "cpu_isa: \"%s\" is none of portable, avx2, avx512, amx", asked);
  char have[64] = "";
  for (int i = 0; i < TGLU__ISA_COUNT; i++) {
    if (!build_has((tglu__isa)i)) continue;
    if (have[0] != '\0') strcat(have, ", ");
    strcat(have, tglu__isa_name((tglu__isa)i));
  }
  if (!build_has(isa))
    return tglu__fail(TGLU_ERR_UNSUPPORTED,
                      "cpu_isa: this build has no %s kernels; it has %s", asked, have);
  if (isa > *out)
    return tglu__fail(TGLU_ERR_UNSUPPORTED,
                      "cpu_isa: this CPU or OS does not enable %s; the best here is %s",
                      asked, tglu__isa_name(*out));
  *out = isa;
  return TGLU_OK;
}

static const tglu__cpu_row *row_by_name(const char *name) {
  for (int32_t i = 0; name != NULL && i < tglu__cpu_row_count; i++)
    if (strcmp(tglu__cpu_rows[i].name, name) == 0) return &tglu__cpu_rows[i];
  return NULL;
}

static void cpu_close(tglu_context *context, void *opaque) {
  cpu_state *state = opaque;
  if (state == NULL) return;
  tglu__pool_destroy(state->pool);
  tglu__free(context, state->scratch, state->scratch_bytes);
  tglu__free(context, state, sizeof *state);
}

/* The pool and each thread's scratch, so that run allocates nothing. */
static tglu_status open_threads(tglu_context *context, cpu_state *state) {
  tglu_status status = tglu__pool_create(context->options.threads, &state->pool);
  if (status != TGLU_OK) return status;
  tglu__pool_set_sleep(state->pool, context->options.sleep_threads != 0);
  state->facts.threads = tglu__pool_threads(state->pool);
  size_t bytes = (size_t)state->facts.threads * TGLU__SCRATCH_SLOT * sizeof(float);
  state->scratch = tglu__alloc(context, bytes, CACHE_LINE);
  if (state->scratch == NULL)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: scratch of %d threads, %zu bytes",
                      (int)state->facts.threads, bytes);
  state->scratch_bytes = bytes;
  return TGLU_OK;
}

static tglu_status cpu_open(tglu_context *context, void **out) {
  *out = NULL;
  tglu__isa isa;
  tglu_status status = choose_isa(context->options.cpu_isa, &isa);
  if (status != TGLU_OK) return status;
  const tglu__cpu_row *forced = row_by_name(context->options.row);
  if (forced != NULL && forced->schedule == TGLU__SCHEDULE_STREAM &&
      context->options.batch_invariant)
    return tglu__fail(TGLU_ERR_UNSUPPORTED,
                      "row: \"%s\" sums in an order that depends on the number of tokens, "
                      "which batch_invariant excludes", forced->name);
  cpu_state *state = tglu__alloc(context, sizeof *state, CACHE_LINE);
  if (state == NULL)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: %zu bytes", sizeof *state);
  memset(state, 0, sizeof *state);
  state->facts.isa = isa;
  state->facts.batch_invariant = context->options.batch_invariant != 0;
  state->facts.forced = forced;
  tglu__cpuid_name(state->name);
  status = open_threads(context, state);
  if (status != TGLU_OK) {
    cpu_close(context, state);
    return status;
  }
  context->info.device = -1;
  context->info.threads = state->facts.threads;
  context->info.device_name = state->name;
  context->info.cpu_isa = tglu__isa_name(isa);
  *out = state;
  return TGLU_OK;
}

/* ---- rows ---- */

static int32_t cpu_row_count(const tglu_context *context) {
  (void)context;
  return tglu__cpu_row_count;
}

static const char *op_name(tglu__op op) { return op == TGLU__OP_GLU ? "glu" : "down"; }

static const char *schedule_name(tglu__schedule schedule) {
  static const char *const names[] = {"stream", "dot", "panel"};
  return names[schedule];
}

static void cpu_row_get(const tglu_context *context, int32_t index, tglu_row_info *info) {
  const tglu__cpu_row *row = &tglu__cpu_rows[index];
  info->name = row->name;
  info->op = op_name(row->op);
  info->schedule = schedule_name(row->schedule);
  info->isa = tglu__isa_name(row->isa);
  info->hash = "";
  info->dtypes = 1 << row->dtype;
  const tglu__cpu_facts *facts = &state_of(context)->facts;
  info->usable = row->isa <= facts->isa &&
                 !(facts->batch_invariant && row->schedule == TGLU__SCHEDULE_STREAM);
}

/* ---- objects ---- */

static bool has_glu(const tglu__problem *problem) { return problem->gate != NULL; }

/* A row that was forced must be used by this object, or the object is refused. */
static tglu_status check_forced(const cpu_state *state, const tglu__problem *problem) {
  const tglu__cpu_row *row = state->facts.forced;
  if (row == NULL) return TGLU_OK;
  bool has_op = row->op == TGLU__OP_GLU ? has_glu(problem) : problem->has_down;
  if (!has_op)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "row: \"%s\" serves op %s, which this object "
                      "does not have", row->name, op_name(row->op));
  if (row->dtype != problem->dtype)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "row: \"%s\" serves dtype %s, the object has "
                      "%s", row->name, tglu_dtype_name(row->dtype),
                      tglu_dtype_name(problem->dtype));
  return TGLU_OK;
}

/* Of counts up to 2^31. */
static int32_t bucket_of(int64_t tokens) {
  int32_t bucket = 0;
  while (INT64_C(1) << bucket < tokens) bucket++;
  return bucket;
}

static int64_t cpu_bucket_tokens(int64_t tokens) { return INT64_C(1) << bucket_of(tokens); }

/* The measured winners that serve this problem. */
static void take_tuned(const tglu_context *context, cpu_plan *plan) {
  const tglu__problem *p = &plan->problem;
  static const tglu__tune_op ops[] = {[TGLU__OP_GLU] = TGLU__TUNE_GLU,
                                      [TGLU__OP_DOWN] = TGLU__TUNE_DOWN};
  for (int op = 0; op < 2; op++) {
    for (int b = 0; b < BUCKETS; b++) {
      const tglu__tuned *t =
          tglu__tune_find(context, ops[op], p->dtype, p->n, p->k, INT64_C(1) << b);
      bool serves = t != NULL && tglu__row_serves(&tglu__cpu_rows[t->row],
                                                  &state_of(context)->facts, (tglu__op)op,
                                                  p->dtype);
      plan->tuned[op][b] = serves ? t : NULL;
    }
  }
}

static tglu_status cpu_plan_create(tglu_context *context, const tglu__problem *problem,
                                   void **out) {
  *out = NULL;
  tglu_status status = check_forced(state_of(context), problem);
  if (status != TGLU_OK) return status;
  cpu_plan *plan = tglu__alloc(context, sizeof *plan, CACHE_LINE);
  if (plan == NULL)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "object: %zu bytes", sizeof *plan);
  plan->problem = *problem;
  take_tuned(context, plan);
  *out = plan;
  return TGLU_OK;
}

static void cpu_plan_destroy(tglu_context *context, void *plan) {
  tglu__free(context, plan, sizeof(cpu_plan));
}

static int64_t chunk_of(int64_t tokens) {
  return tokens < TGLU__MLP_CHUNK ? tokens : TGLU__MLP_CHUNK;
}

static size_t cpu_workspace_bytes(const tglu_context *context, const void *opaque,
                                  int64_t tokens) {
  (void)context;
  const tglu__problem *problem = &((const cpu_plan *)opaque)->problem;
  if (!has_glu(problem) || !problem->has_down || tokens == 0) return 0;
  return (size_t)chunk_of(tokens) * (size_t)problem->n *
             (size_t)tglu__dtype_size(problem->dtype) + CACHE_LINE - 1;
}

static const tglu__tuned *tuned_for(const cpu_plan *plan, tglu__op op, int64_t tokens) {
  return tokens <= INT64_C(1) << (BUCKETS - 1) ? plan->tuned[op][bucket_of(tokens)] : NULL;
}

static const tglu__cpu_row *choose(const tglu_context *context, const cpu_plan *plan,
                                   tglu__op op, int64_t tokens, const char **why) {
  const tglu__tuned *tuned = tuned_for(plan, op, tokens);
  if (tuned != NULL) {
    if (why != NULL) *why = "tuned";
    return &tglu__cpu_rows[tuned->row];
  }
  return tglu__row_choose(&state_of(context)->facts, op, plan->problem.dtype, tokens, why);
}

/* ---- run ---- */

static tglu__product glu_product(const tglu__problem *problem, const tglu__call *call) {
  return (tglu__product){
    .op = TGLU__OP_GLU, .dtype = problem->dtype,
    .tokens = call->tokens, .columns = problem->n, .k = problem->k,
    .x = call->x, .ldx = call->ldx,
    .w0 = problem->gate, .w1 = problem->up, .ldw = problem->ld,
    .bias0 = problem->gate_bias, .bias1 = problem->up_bias,
    .bias_stride = problem->bias_stride,
    .out = call->out, .ldo = call->ldo,
    .act = {problem->activation, problem->alpha, problem->limit, problem->offset}};
}

static tglu__product down_product(const tglu__problem *problem, const tglu__call *call) {
  return (tglu__product){
    .op = TGLU__OP_DOWN, .dtype = problem->dtype,
    .tokens = call->tokens, .columns = problem->k, .k = problem->n,
    .x = call->x, .ldx = call->ldx,
    .w0 = problem->down, .ldw = problem->ld_down,
    .bias0 = problem->down_bias, .bias_stride = 1,
    .residual = call->residual, .ldr = call->ldr,
    .out = call->out, .ldo = call->ldo};
}

static void run_product(const tglu_context *context, const cpu_plan *plan,
                        const tglu__product *product, int64_t call_tokens) {
  const cpu_state *state = state_of(context);
  const tglu__cpu_row *row = choose(context, plan, product->op, call_tokens, NULL);
  tglu__product_run(product, row, state->pool, state->scratch);
}

/* Both halves for one chunk of tokens after the other; H of a chunk is in the
 * workspace.  The rows are those of the whole call, also for the last, short chunk. */
static void run_mlp(const tglu_context *context, const cpu_plan *plan,
                    const tglu__call *call) {
  const tglu__problem *problem = &plan->problem;
  int64_t size = tglu__dtype_size(problem->dtype), chunk = chunk_of(call->tokens);
  uintptr_t address = (uintptr_t)call->workspace;
  char *h = (char *)call->workspace + (CACHE_LINE - address % CACHE_LINE) % CACHE_LINE;
  for (int64_t token = 0; token < call->tokens; token += chunk) {
    tglu__call part = *call;
    part.tokens = chunk < call->tokens - token ? chunk : call->tokens - token;
    part.x = (const char *)call->x + token * call->ldx * size;
    part.out = h;
    part.ldo = problem->n;
    tglu__product glu = glu_product(problem, &part);
    run_product(context, plan, &glu, call->tokens);
    part.x = h;
    part.ldx = problem->n;
    part.out = (char *)call->out + token * call->ldo * size;
    part.ldo = call->ldo;
    if (call->residual != NULL)
      part.residual = (const char *)call->residual + token * call->ldr * size;
    tglu__product down = down_product(problem, &part);
    run_product(context, plan, &down, call->tokens);
  }
}

static tglu_status cpu_run(const tglu_context *context, const void *opaque,
                           const tglu__call *call) {
  const cpu_plan *plan = opaque;
  const tglu__problem *problem = &plan->problem;
  tglu__pool *pool = state_of(context)->pool;
  tglu__pool_enter(pool);
  if (has_glu(problem) && problem->has_down) {
    run_mlp(context, plan, call);
  } else {
    tglu__product product =
        has_glu(problem) ? glu_product(problem, call) : down_product(problem, call);
    run_product(context, plan, &product, call->tokens);
  }
  tglu__pool_leave(pool);
  return TGLU_OK;
}

/* ---- what would run ---- */

/* Why this row: the rule, or what was measured. */
static void say_why(const cpu_plan *plan, tglu__op op, int64_t tokens, const char *rule,
                    char *text, size_t bytes) {
  const tglu__tuned *t = tuned_for(plan, op, tokens);
  if (t == NULL) {
    snprintf(text, bytes, "%s", rule);
    return;
  }
  int length = snprintf(text, bytes, "tuned, for up to %lld tokens: %.1f us measured",
                        (long long)t->tokens, t->us);
  if (t->runner_up >= 0 && length > 0 && (size_t)length < bytes)
    snprintf(text + length, bytes - (size_t)length, "; runner-up %s, %.1f us",
             tglu__cpu_rows[t->runner_up].name, t->runner_up_us);
}

static size_t explain_product(const tglu_context *context, const cpu_plan *plan,
                              const tglu__product *product, int64_t call_tokens,
                              char *buffer, size_t bytes) {
  const char *rule;
  char why[256];
  const tglu__cpu_row *row = choose(context, plan, product->op, call_tokens, &rule);
  say_why(plan, product->op, call_tokens, rule, why, sizeof why);
  tglu__blocking b = tglu__block(row, state_of(context)->facts.threads, product->tokens,
                                 product->columns, product->k);
  int length = snprintf(
      buffer, bytes,
      "%s: row %s (%s). %lld tokens x %lld columns x K %lld on %d of %d threads, in blocks "
      "of %lld tokens x %lld columns, K block %lld%s.\n",
      op_name(product->op), row->name, why, (long long)product->tokens,
      (long long)product->columns, (long long)product->k, (int)b.slots,
      (int)state_of(context)->facts.threads, (long long)b.token_block,
      (long long)b.column_group, (long long)b.kc,
      b.resident ? ", x held in fp32 in each core's cache" : "");
  return length < 0 ? 0 : (size_t)length;
}

static size_t cpu_explain(const tglu_context *context, const void *opaque,
                          const tglu__call *call, char *buffer, size_t bytes) {
  const cpu_plan *plan = opaque;
  const tglu__problem *problem = &plan->problem;
  tglu__call part = *call;
  bool mlp = has_glu(problem) && problem->has_down;
  if (mlp) part.tokens = chunk_of(call->tokens);
  size_t length = 0;
  if (has_glu(problem)) {
    tglu__product glu = glu_product(problem, &part);
    length += explain_product(context, plan, &glu, call->tokens, buffer, bytes);
  }
  if (problem->has_down) {
    size_t used = length < bytes ? length : bytes;
    tglu__product down = down_product(problem, &part);
    length += explain_product(context, plan, &down, call->tokens, buffer + used,
                              bytes - used);
  }
  if (mlp && part.tokens < call->tokens) {
    size_t used = length < bytes ? length : bytes;
    int more = snprintf(buffer + used, bytes - used,
                        "mlp: both halves for %lld tokens after the other, H of those in "
                        "the workspace.\n", (long long)part.tokens);
    length += more < 0 ? 0 : (size_t)more;
  }
  return length;
}

static void cpu_plan_info(const tglu_context *context, const void *opaque, int64_t tokens,
                          tglu_plan_info *info) {
  const cpu_plan *plan = opaque;
  const tglu__problem *problem = &plan->problem;
  tglu__op first = has_glu(problem) ? TGLU__OP_GLU : TGLU__OP_DOWN;
  bool both = first == TGLU__OP_GLU && problem->has_down;
  info->row = choose(context, plan, first, tokens, NULL)->name;
  info->down_row = both ? choose(context, plan, TGLU__OP_DOWN, tokens, NULL)->name : NULL;
  info->tuned = tuned_for(plan, first, tokens) != NULL ||
                (both && tuned_for(plan, TGLU__OP_DOWN, tokens) != NULL);
  info->predicted_us = 0;
}

static size_t cpu_copied_bytes(const tglu_context *context, const void *plan) {
  (void)context;
  (void)plan;
  return 0;
}

const tglu__backend_ops tglu__cpu_backend = {
  .id = TGLU_BACKEND_CPU,
  .open = cpu_open,
  .close = cpu_close,
  .row_count = cpu_row_count,
  .row_get = cpu_row_get,
  .plan_create = cpu_plan_create,
  .plan_destroy = cpu_plan_destroy,
  .workspace_bytes = cpu_workspace_bytes,
  .run = cpu_run,
  .explain = cpu_explain,
  .plan_info = cpu_plan_info,
  .copied_bytes = cpu_copied_bytes,
  .bucket_tokens = cpu_bucket_tokens,
  .needs_element_alignment = false,
  .has_streams = false,
};
