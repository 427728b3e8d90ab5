/* Creation of an object on the CUDA backend. */
#include "cuda/plan.h"

#include <string.h>

#include "cuda/maps.h"

/* ---- which row ---- */

/* The largest count of the bucket that a launch can have. */
static int64_t most_tokens(int32_t bucket) {
  int64_t tokens = tglu__bucket_tokens(bucket);
  return tokens > INT32_MAX ? INT32_MAX : tokens;
}

int64_t tglu__cuda_planned_tokens(const tglu_context *context, int32_t bucket) {
  return context->options.batch_invariant ? TGLU__INVARIANT_MOST : most_tokens(bucket);
}

static bool forced(const tglu__cuda *cuda, tglu__op op) {
  return cuda->forced_row >= 0 && tglu__rows[cuda->forced_row].op == op;
}

const tglu__tuned *tglu__cuda_tuned(const tglu_context *context, tglu__op op,
                                    const tglu__problem *problem, int64_t tokens) {
  static const tglu__tune_op ops[TGLU__OPS] = {[tglu__op_glu] = TGLU__TUNE_GLU,
                                               [tglu__op_down] = TGLU__TUNE_DOWN,
                                               [tglu__op_mlp] = TGLU__TUNE_MLP};
  return tglu__tune_find(context, ops[op], problem->dtype, problem->n, problem->k, tokens);
}

/* The winner, if it is valid here. */
static const tglu__tuned *tuned_row(const tglu_context *context, tglu__op op,
                                    const tglu__problem *problem,
                                    const tglu__call_facts *facts) {
  const tglu__cuda *cuda = context->state;
  const tglu__tuned *tuned = tglu__cuda_tuned(context, op, problem, facts->tokens);
  bool valid = tuned != NULL && tglu__row_valid(&tglu__rows[tuned->row], problem, facts,
                                                &cuda->facts, NULL);
  return valid ? tuned : NULL;
}

/* One launch for both halves, where it was measured or else is predicted to be faster than two.
 * A prediction does not replace a half that was measured.  Not in place of a half that is
 * forced.  Not under batch_invariant: more tokens than it takes would have other bits. */
static int32_t choose_one_launch(const tglu_context *context, const tglu__problem *problem,
                                 const tglu__call_facts *facts) {
  const tglu__cuda *cuda = context->state;
  if (cuda->forced_row >= 0 || context->options.batch_invariant) return -1;
  const tglu__tuned *tuned = tuned_row(context, tglu__op_mlp, problem, facts);
  if (tuned != NULL) return tglu__rows[tuned->row].op == tglu__op_mlp ? tuned->row : -1;
  if (tuned_row(context, tglu__op_glu, problem, facts) != NULL ||
      tuned_row(context, tglu__op_down, problem, facts) != NULL)
    return -1;
  tglu__choice choice;
  bool found = tglu__plan_choose(tglu__op_mlp, problem, facts, &cuda->facts, &choice, NULL);
  if (!found || choice.predicted_us >= tglu__plan_pair_us(problem, facts, &cuda->facts))
    return -1;
  return choice.row;
}

int32_t tglu__cuda_choose_row(const tglu_context *context, tglu__op op,
                              const tglu__problem *problem, const tglu__call_facts *facts) {
  const tglu__cuda *cuda = context->state;
  if (forced(cuda, op)) {
    const tglu__row *row = &tglu__rows[cuda->forced_row];
    return tglu__row_valid(row, problem, facts, &cuda->facts, NULL) ? cuda->forced_row : -1;
  }
  if (op == tglu__op_mlp) return choose_one_launch(context, problem, facts);
  const tglu__tuned *tuned = tuned_row(context, op, problem, facts);
  if (tuned != NULL) return tuned->row;
  tglu__choice choice;
  (context->options.batch_invariant ? tglu__plan_choose_invariant : tglu__plan_choose)(
    op, problem, facts, &cuda->facts, &choice, NULL);
  return choice.row;
}

const tglu__cuda_entry *tglu__cuda_select(const tglu__cuda_plan *plan, tglu__op op,
                                          const tglu__call_facts *facts) {
  if (facts->tokens > INT32_MAX) return NULL;
  if (!facts->x_aligned && !facts->x_reachable) return NULL;
  const tglu__cuda_table *table = &plan->tables[op];
  int32_t bucket = tglu__bucket_of(facts->tokens);
  int16_t entry = facts->x_aligned ? table->aligned[bucket] : table->general[bucket];
  return entry < 0 ? NULL : &plan->entries[entry];
}

bool tglu__cuda_in_one_launch(const tglu__cuda *cuda, const tglu__cuda_plan *plan,
                              const tglu__call_facts *facts) {
  return tglu__op_present(tglu__op_mlp, &plan->problem) &&
         (forced(cuda, tglu__op_mlp) ||
          tglu__cuda_select(plan, tglu__op_mlp, facts) != NULL);
}

/* The argument that keeps the rows from serving a call. */
static const char *culprit(tglu__op op, const tglu__problem *p,
                           const tglu__call_facts *facts) {
  const tglu__operand_names names = tglu__names_of(p);
  bool linear = tglu__is_linear(p);
  tglu__shape shape = tglu__op_shape(op, p);
  const char *columns = linear ? "out_features" : op == tglu__op_glu ? "intermediate" : "hidden";
  const char *depth = linear ? "in_features" : op == tglu__op_glu ? "hidden" : "intermediate";
  if (op == tglu__op_glu) {
    if ((uintptr_t)p->gate % 16 != 0) return names.gate;
    if (p->n > 1 && p->ld % 8 != 0) return "ld";
    if ((uintptr_t)p->up % 16 != 0) return names.up;
  } else {
    if ((uintptr_t)p->down % 16 != 0) return names.down;
    if (p->k > 1 && p->ld_down % 8 != 0) return linear ? "ld" : "ld_down";
  }
  if (!facts->x_aligned) return "x";
  if (shape.n > INT32_MAX - 255) return columns;
  if (shape.k > INT32_MAX - 512 || shape.k == 0) return depth;
  if (facts->tokens > INT32_MAX) return "tokens";
  return "sm_limit";
}

tglu_status tglu__cuda_refuse(const tglu__cuda *cuda, tglu__op op,
                              const tglu__problem *problem, const tglu__call_facts *facts) {
  const char *why = NULL;
  if (forced(cuda, op)) {
    const tglu__row *row = &tglu__rows[cuda->forced_row];
    tglu__row_valid(row, problem, facts, &cuda->facts, &why);
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "row: %s, which is forced, %s", row->name,
                      why != NULL ? why : "cannot serve this call");
  }
  bool served = false;
  const char *reason = NULL;
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    if (tglu__rows[i].dtype != problem->dtype || tglu__rows[i].op != op) continue;
    served = true;
    tglu__row_valid(&tglu__rows[i], problem, facts, &cuda->facts, &why);
    if (reason == NULL) reason = why;
  }
  if (!served)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "dtype: the cuda backend has no kernel row for "
                      "%s and op %s", tglu_dtype_name(problem->dtype),
                      op == tglu__op_glu ? "glu" : "down");
  return tglu__fail(TGLU_ERR_UNSUPPORTED, "%s: no kernel row serves this: each %s",
                    culprit(op, problem, facts), reason != NULL ? reason : "is too small");
}

/* ---- the tables ---- */

/* Rows without repeats: an entry for each. */
typedef struct row_set {
  int32_t count;
  int16_t rows[TGLU__OPS * 2 * TGLU__BUCKETS];
} row_set;

/* The index of the row, which is added unless it is there; -1 for -1. */
static int16_t index_of(row_set *set, int32_t row) {
  if (row < 0) return -1;
  for (int32_t i = 0; i < set->count; ++i)
    if (set->rows[i] == row) return (int16_t)i;
  set->rows[set->count] = (int16_t)row;
  return (int16_t)set->count++;
}

/* The entry of each bucket, for x that is aligned or whatever it is; whether any is served.
 * Batch-invariant: one row, in all buckets but those of more tokens than it can serve. */
static bool fill_entries(const tglu_context *context, tglu__op op,
                         const tglu__problem *problem, bool x_aligned, row_set *set,
                         int16_t entries[TGLU__BUCKETS]) {
  const tglu__cuda *cuda = context->state;
  tglu__call_facts facts = {.x_aligned = x_aligned, .x_reachable = true};
  int32_t row = -1;
  bool served = false;
  for (int32_t b = 0; b < TGLU__BUCKETS; ++b) {
    facts.tokens = tglu__cuda_planned_tokens(context, b);
    if (b == 0 || !context->options.batch_invariant)
      row = tglu__cuda_choose_row(context, op, problem, &facts);
    facts.tokens = most_tokens(b);
    const bool serves = row >= 0 && tglu__row_valid(&tglu__rows[row], problem, &facts,
                                                    &cuda->facts, NULL);
    entries[b] = index_of(set, serves ? row : -1);
    served = served || serves;
  }
  return served;
}

/* Whether any call is served. */
static bool fill_table(const tglu_context *context, tglu__op op, const tglu__problem *problem,
                       row_set *set, tglu__cuda_table *table) {
  const bool general = fill_entries(context, op, problem, false, set, table->general);
  const bool aligned = fill_entries(context, op, problem, true, set, table->aligned);
  return general || aligned;
}

static tglu_status fill_tables(const tglu_context *context, const tglu__problem *problem,
                               row_set *set, tglu__cuda_table tables[TGLU__OPS]) {
  const tglu__cuda *cuda = context->state;
  const tglu__call_facts facts = {.tokens = tglu__cuda_planned_tokens(context, 0),
                                  .x_aligned = true, .x_reachable = true};
  const bool one_launch = forced(cuda, tglu__op_mlp);
  set->count = 0;
  memset(tables, 0xff, TGLU__OPS * sizeof tables[0]); /* -1 */
  if (cuda->forced_row >= 0) {
    tglu__op op = tglu__rows[cuda->forced_row].op;
    if (!tglu__op_present(op, problem)) return tglu__cuda_refuse(cuda, op, problem, &facts);
  }
  for (tglu__op op = tglu__op_glu; op <= tglu__op_mlp; ++op) {
    if (!tglu__op_present(op, problem) || (one_launch && op != tglu__op_mlp)) continue;
    bool served = fill_table(context, op, problem, set, &tables[op]);
    if (!served && (one_launch || op != tglu__op_mlp))
      return tglu__cuda_refuse(cuda, op, problem, &facts);
  }
  return TGLU_OK;
}

/* ---- the entries ---- */

/* Both maps of a GLU's record; *name: the operand of the last one. */
static tglu__CUresult encode_pair(const tglu__driver *driver, const tglu__problem *p,
                                  int32_t box_rows, tglu_tensor_map *gate,
                                  tglu_tensor_map *up, const char **name) {
  const tglu__operand_names names = tglu__names_of(p);
  *name = names.gate;
  tglu__CUresult result = tglu__cuda_map_operand(driver, gate, p->dtype, p->gate, p->n, p->k,
                                                 p->ld, box_rows);
  if (result != TGLU__CUDA_SUCCESS) return result;
  *name = names.up;
  return tglu__cuda_map_operand(driver, up, p->dtype, p->up, p->n, p->k, p->ld, box_rows);
}

/* Both maps of a down row's weights: of whole tiles, and of what the last column has left. */
static tglu__CUresult encode_down(const tglu__driver *driver, const tglu__row *row,
                                  const tglu__problem *p, tglu_down_launch *record) {
  int64_t left = (p->k - 1) % row->tile_n + 1;
  record->w_last_rows = (int32_t)((left + 7) / 8 * 8);
  tglu__CUresult result = tglu__cuda_map_operand(driver, &record->w, p->dtype, p->down, p->k,
                                                 p->n, p->ld_down, tglu__row_weight_box_rows(row));
  if (result != TGLU__CUDA_SUCCESS) return result;
  return tglu__cuda_map_operand(driver, &record->w_last, p->dtype, p->down, p->k, p->n,
                                p->ld_down, record->w_last_rows);
}

static tglu_status encode_weights(const tglu__driver *driver, const tglu__row *row,
                                  const tglu__problem *p, tglu__cuda_entry *entry) {
  const tglu__operand_names names = tglu__names_of(p);
  tglu_glu_general_launch *g = entry->general;
  tglu__CUresult result = TGLU__CUDA_SUCCESS;
  const char *name = names.down;
  if (row->op == tglu__op_down) {
    result = encode_down(driver, row, p, &entry->record.down);
  } else if (g != NULL) {
    int32_t gate = tglu__cuda_classes(p->gate, p->n, p->k, p->ld);
    int32_t up = tglu__cuda_classes(p->up, p->n, p->k, p->ld);
    g->w_classes = gate > up ? gate : up;
    name = names.gate;
    result = tglu__cuda_map_classes(driver, p->dtype, p->gate, p->n, p->k, p->ld,
                                    g->w_classes, row->tile_n, g->gate, g->gate_shift);
    if (result == TGLU__CUDA_SUCCESS) {
      name = names.up;
      result = tglu__cuda_map_classes(driver, p->dtype, p->up, p->n, p->k, p->ld,
                                      g->w_classes, row->tile_n, g->up, g->up_shift);
    }
  } else {
    tglu__cuda_record *to = &entry->record;
    result = encode_pair(driver, p, tglu__row_weight_box_rows(row), &to->glu.gate, &to->glu.up,
                         &name);
    if (result == TGLU__CUDA_SUCCESS && tglu__row_has_tail(row))
      result = encode_pair(driver, p, TGLU_TAIL_COLUMNS, &to->tail.gate_tail,
                           &to->tail.up_tail, &name);
  }
  if (result == TGLU__CUDA_SUCCESS) return TGLU_OK;
  return tglu__cuda_map_fail(driver, result, name);
}

/* The down projection of an MLP starts behind its GLU, which has waited for all work before
 * it: so what could have written the weights is done. */
static int32_t flags_of(const tglu_context *context, tglu__op op, const tglu__problem *p) {
  bool behind_glu = op == tglu__op_down && tglu__op_present(tglu__op_glu, p);
  return context->options.stable_weights || behind_glu ? TGLU_LAUNCH_STABLE_WEIGHTS : 0;
}

static tglu_glu_launch glu_record(const tglu__problem *p, int32_t flags) {
  return (tglu_glu_launch){
    .n = (int32_t)p->n,
    .k = (int32_t)p->k,
    .activation = (int32_t)p->activation,
    .flags = flags,
    .alpha = p->alpha,
    .limit = p->limit,
    .offset = p->offset,
    .gate_bias = p->gate_bias,
    .up_bias = p->up_bias,
    .bias_stride = p->bias_stride,
  };
}

static tglu_down_launch down_record(const tglu__problem *p, int32_t flags) {
  return (tglu_down_launch){
    .n = (int32_t)p->k, .k = (int32_t)p->n, .flags = flags, .bias = p->down_bias};
}

/* Both parts of K; one that is not there has the other's map. */
static tglu_status encode_diag(const tglu__driver *driver, const tglu__problem *p,
                               tglu_down_diag_launch *r) {
  const int64_t main_k = tglu_diag_main_k(r->k), tail_k = r->k - main_k;
  const uint16_t *weights = p->down;
  tglu__CUresult result = TGLU__CUDA_SUCCESS;
  if (main_k > 0)
    result = tglu__cuda_map_slices(driver, &r->w, p->dtype, weights, p->k,
                                   main_k / TGLU_DIAG_SLICES, p->ld_down);
  if (tail_k > 0 && result == TGLU__CUDA_SUCCESS)
    result = tglu__cuda_map_slices(driver, &r->tail, p->dtype, weights + main_k, p->k,
                                   tail_k / TGLU_DIAG_SLICES, p->ld_down);
  if (main_k == 0) r->w = r->tail;
  if (tail_k == 0) r->tail = r->w;
  if (result == TGLU__CUDA_SUCCESS) return TGLU_OK;
  return tglu__cuda_map_fail(driver, result, tglu__names_of(p).down);
}

static tglu_down_diag_launch diag_record(const tglu__problem *p, int32_t flags) {
  return (tglu_down_diag_launch){.n = (int32_t)p->k, .k = (int32_t)p->n,
                                 .flags = flags, .bias = p->down_bias};
}

static tglu_stream_launch stream_record(tglu__op op, const tglu__problem *p, int32_t flags) {
  if (op == tglu__op_down)
    return (tglu_stream_launch){.gate = p->down, .ldw = p->ld_down,
                                .gate_bias = p->down_bias, .bias_stride = 1,
                                .n = (int32_t)p->k, .k = (int32_t)p->n, .flags = flags};
  return (tglu_stream_launch){.gate = p->gate,
                              .up = p->up,
                              .ldw = p->ld,
                              .gate_bias = p->gate_bias,
                              .up_bias = p->up_bias,
                              .bias_stride = p->bias_stride,
                              .n = (int32_t)p->n,
                              .k = (int32_t)p->k,
                              .activation = (int32_t)p->activation,
                              .flags = flags,
                              .alpha = p->alpha,
                              .limit = p->limit,
                              .offset = p->offset};
}

/* Where H lies, the call says; and each half's n is the other's k. */
static tglu_stream_mlp_launch mlp_record(const tglu__problem *p, int32_t flags) {
  return (tglu_stream_mlp_launch){.glu = stream_record(tglu__op_glu, p, flags),
                                  .down = stream_record(tglu__op_down, p, flags)};
}

static tglu_status fill_entry(tglu_context *context, const tglu__problem *p,
                              tglu__cuda_entry *entry) {
  tglu__cuda *cuda = context->state;
  const tglu__row *row = &tglu__rows[entry->row];
  const int32_t flags = flags_of(context, row->op, p);
  tglu__cuda_kernel kernel;
  tglu_status status = tglu__cuda_load(cuda, entry->row, &kernel);
  if (status != TGLU_OK) return status;
  entry->function = kernel.function;
  entry->clusters = kernel.clusters;
  if (row->op == tglu__op_mlp) {
    entry->record.mlp = mlp_record(p, flags);
    return TGLU_OK;
  }
  if (tglu__row_is_stream(row)) {
    entry->record.stream = stream_record(row->op, p, flags);
    return TGLU_OK;
  }
  if (tglu__row_is_diag(row)) {
    entry->record.diag = diag_record(p, flags);
    return encode_diag(&cuda->driver, p, &entry->record.diag);
  }
  if (row->op == tglu__op_down) {
    entry->record.down = down_record(p, flags);
  } else {
    entry->record.glu = glu_record(p, flags);
  }
  if (entry->general != NULL) entry->general->base = entry->record.glu;
  return encode_weights(&cuda->driver, row, p, entry);
}

/* ---- creation ---- */

static bool has_general_record(int32_t row) {
  return tglu__rows[row].schedule == tglu__schedule_paired_general;
}

/* An empty plan with an entry for each row of the set; the general rows' records find
 * their places behind the entries. */
static tglu__cuda_plan *allocate(const tglu_context *context, const row_set *set) {
  size_t entries = sizeof(tglu__cuda_plan) + (size_t)set->count * sizeof(tglu__cuda_entry);
  size_t bytes = entries;
  for (int32_t i = 0; i < set->count; ++i)
    if (has_general_record(set->rows[i])) bytes += sizeof(tglu_glu_general_launch);
  tglu__cuda_plan *plan = tglu__alloc(context, bytes, _Alignof(tglu__cuda_plan));
  if (plan == NULL) {
    tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "object: %zu bytes could not be allocated", bytes);
    return NULL;
  }
  memset(plan, 0, bytes);
  plan->bytes = bytes;
  char *place = (char *)plan + entries;
  for (int32_t i = 0; i < set->count; ++i) {
    plan->entries[i].row = set->rows[i];
    if (!has_general_record(set->rows[i])) continue;
    plan->entries[i].general = (tglu_glu_general_launch *)(void *)place;
    place += sizeof(tglu_glu_general_launch);
  }
  return plan;
}

static tglu_status check_pointers(const tglu__cuda *cuda, const tglu__problem *p) {
  const tglu__operand_names names = tglu__names_of(p);
  const struct {
    const char *name;
    const void *pointer;
  } operands[] = {{names.gate, p->gate},           {names.up, p->up},
                  {names.gate_bias, p->gate_bias}, {names.up_bias, p->up_bias},
                  {names.down, p->down},           {names.down_bias, p->down_bias}};
  for (size_t i = 0; i < sizeof operands / sizeof operands[0]; ++i) {
    if (p->n == 0 && operands[i].pointer != p->down_bias) continue; /* not read */
    tglu_status status =
      tglu__cuda_check_memory(cuda, operands[i].name, operands[i].pointer);
    if (status != TGLU_OK) return status;
  }
  return TGLU_OK;
}

/* A row whose CTAs can not all be resident at once does not serve: two launches do. */
static tglu_status check_residence(const tglu__cuda *cuda, tglu__cuda_plan *plan) {
  tglu__cuda_table *table = &plan->tables[tglu__op_mlp];
  for (int32_t b = 0; b < TGLU__BUCKETS; ++b) {
    const int16_t entry = table->aligned[b];
    if (entry < 0 || plan->entries[entry].clusters > 0) continue;
    if (forced(cuda, tglu__op_mlp))
      return tglu__fail(TGLU_ERR_UNSUPPORTED, "row: %s, which is forced, needs a block on "
                        "every SM, and this context allows none",
                        tglu__rows[cuda->forced_row].name);
    table->aligned[b] = -1;
  }
  return TGLU_OK;
}

/* Within a slow scope. */
static tglu_status create(tglu_context *context, const tglu__problem *problem,
                          tglu__cuda_plan **out) {
  row_set set;
  tglu__cuda_table tables[TGLU__OPS];
  tglu_status status = check_pointers(context->state, problem);
  if (status == TGLU_OK) status = fill_tables(context, problem, &set, tables);
  if (status != TGLU_OK) return status;
  tglu__cuda_plan *plan = allocate(context, &set);
  if (plan == NULL) return TGLU_ERR_OUT_OF_MEMORY;
  plan->problem = *problem;
  memcpy(plan->tables, tables, sizeof tables);
  for (int32_t i = 0; i < set.count && status == TGLU_OK; ++i)
    status = fill_entry(context, problem, &plan->entries[i]);
  if (status == TGLU_OK) status = check_residence(context->state, plan);
  if (status != TGLU_OK) {
    tglu__cuda_plan_destroy(context, plan);
    return status;
  }
  *out = plan;
  return TGLU_OK;
}

tglu_status tglu__cuda_plan_create(tglu_context *context, const tglu__problem *problem,
                                   void **out) {
  if (problem->dtype == TGLU_DTYPE_F32)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "dtype: f32 is served by the cpu backend only");
  const tglu__cuda *cuda = context->state;
  tglu__cuda_plan *plan = NULL;
  tglu__cuda_scope scope;
  tglu_status status = tglu__cuda_enter_slow(cuda, &scope);
  if (status != TGLU_OK) return status;
  status = create(context, problem, &plan);
  tglu__cuda_leave_slow(cuda, &scope);
  if (status == TGLU_OK) *out = plan;
  return status;
}

void tglu__cuda_plan_destroy(tglu_context *context, void *plan) {
  tglu__free(context, plan, ((const tglu__cuda_plan *)plan)->bytes);
}
