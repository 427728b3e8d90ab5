/* A call: checks, the record on the stack, one launch an operation. */
#include "cuda/plan.h"

#include "cuda/maps.h"

/* ---- the call of one operation ---- */

/* H lies in the workspace from a multiple of this many bytes on, each row of it too at a
 * multiple of 128. */
enum { H_ALIGNMENT = 256, H_COLUMNS = 64 };

static int64_t h_stride(int64_t n) { return (n + H_COLUMNS - 1) / H_COLUMNS * H_COLUMNS; }

static bool is_mlp(const tglu__problem *problem) {
  return tglu__op_present(tglu__op_glu, problem) && problem->has_down;
}

size_t tglu__cuda_workspace_bytes(const tglu_context *context, const void *planned,
                                  int64_t tokens) {
  (void)context;
  const tglu__problem *problem = &((const tglu__cuda_plan *)planned)->problem;
  if (!is_mlp(problem) || tokens == 0) return 0;
  const size_t row = 2 * (size_t)h_stride(problem->n), slack = H_ALIGNMENT - 1;
  if ((size_t)tokens > (SIZE_MAX - slack) / row) return SIZE_MAX;
  return (size_t)tokens * row + slack;
}

tglu__call tglu__cuda_operation_call(const tglu__problem *problem, tglu__op op,
                                     const tglu__call *call) {
  tglu__call own = *call;
  if (!is_mlp(problem) || op == tglu__op_mlp) return own;
  uintptr_t h = (uintptr_t)call->workspace;
  h += (H_ALIGNMENT - h % H_ALIGNMENT) % H_ALIGNMENT;
  if (op == tglu__op_glu) {
    own.out = (void *)h;
    own.ldo = h_stride(problem->n);
    own.residual = NULL;
  } else {
    own.x = (const void *)h;
    own.ldx = h_stride(problem->n);
  }
  return own;
}

tglu__call_facts tglu__cuda_call_facts(const tglu_context *context,
                                       const tglu__problem *problem, tglu__op op,
                                       const tglu__call *call) {
  tglu__call own = tglu__cuda_operation_call(problem, op, call);
  tglu__call_facts facts = {.tokens = own.tokens, .x_aligned = true, .x_reachable = true};
  if (tglu__op_shape(op, problem).k == 0) return facts; /* no x */
  int64_t rows = context->options.batch_invariant && own.tokens == 1 ? 2 : own.tokens;
  facts.x_aligned = tglu__matrix_aligned(own.x, rows, own.ldx);
  facts.x_reachable = tglu__matrix_reachable(rows, own.ldx);
  return facts;
}

void tglu__cuda_launch_choice(const tglu__cuda *cuda, const tglu__problem *problem,
                              const tglu__cuda_entry *entry, int64_t tokens,
                              tglu__choice *choice) {
  tglu__plan_launch(entry->row, problem, tokens, &cuda->facts, choice);
  if (!tglu__row_is_stream(&tglu__rows[entry->row]) && choice->clusters > entry->clusters)
    choice->clusters = entry->clusters;
}

const char *tglu__cuda_direct_store(const tglu__problem *problem, tglu__op op,
                                    const tglu__call *call) {
  if (tglu__op_shape(op, problem).n % 8 != 0)
    return op == tglu__op_glu ? "intermediate is not a multiple of 8"
                              : "hidden (out_features) is not a multiple of 8";
  if ((uintptr_t)call->out % 16 != 0) return "out is not on 16 bytes";
  if (call->tokens == 1) return NULL;
  if (call->ldo % 8 != 0) return "ldo is not a multiple of 8";
  if (call->ldo >= (int64_t)1 << 39) return "ldo is 2^39 or more";
  return NULL;
}

/* ---- records ---- */

/* One launch, ready: whatever can be refused has been. */
typedef struct prepared {
  union {
    tglu__cuda_record any;
    tglu_glu_general_launch general;
  } record;
  tglu__choice choice;
  tglu__CUfunction function;
} prepared;

static void fill_stream(const tglu__call *call, tglu_stream_launch *record) {
  record->x = call->x;
  record->ldx = call->ldx;
  record->residual = call->residual;
  record->ldr = call->ldr;
  record->out = call->out;
  record->ldo = call->ldo;
  record->m = (int32_t)call->tokens;
}

static void fill_diag(const tglu__row *row, const tglu__call *call, const tglu__choice *choice,
                      tglu_down_diag_launch *record) {
  record->x = call->x;
  record->ldx = call->ldx;
  record->residual = call->residual;
  record->ldr = call->ldr;
  record->out = call->out;
  record->ldo = call->ldo;
  record->m = (int32_t)call->tokens;
  tglu_diag_divide(record, choice->clusters, record->m, row->tile_n, row->stages);
}

/* Both halves, each as it has it in a launch of its own. */
static void fill_mlp(const tglu__problem *p, const tglu__cuda_entry *entry,
                     const tglu__call *call, tglu_stream_mlp_launch *record) {
  const tglu__call glu = tglu__cuda_operation_call(p, tglu__op_glu, call);
  const tglu__call down = tglu__cuda_operation_call(p, tglu__op_down, call);
  *record = entry->record.mlp;
  fill_stream(&glu, &record->glu);
  fill_stream(&down, &record->down);
}

/* The map of x in boxes for wgmma, no higher than the tokens need. */
static tglu_status map_x(const tglu__driver *driver, const tglu__row *row, int64_t k,
                         const tglu__call *call, int32_t *x_rows, tglu_tensor_map *map) {
  int64_t whole = (call->tokens + 7) / 8 * 8;
  *x_rows = whole < row->tile_m ? (int32_t)whole : row->tile_m;
  tglu__CUresult result = tglu__cuda_map_operand(driver, map, row->dtype, call->x,
                                                 call->tokens, k, call->ldx, *x_rows);
  return result == TGLU__CUDA_SUCCESS ? TGLU_OK : tglu__cuda_map_fail(driver, result, "x");
}

/* The map of the output, unless it is stored directly: then a copy of any valid one, since
 * the kernels prefetch it. */
static tglu_status map_out(const tglu__driver *driver, const tglu__row *row, int64_t n,
                           const tglu__call *call, bool direct, const tglu_tensor_map *any,
                           tglu_tensor_map *map) {
  *map = *any;
  if (direct || row->schedule == tglu__schedule_down_split) return TGLU_OK;
  tglu__CUresult result =
    tglu__cuda_map_out(driver, map, row, call->out, call->tokens, n, call->ldo);
  return result == TGLU__CUDA_SUCCESS ? TGLU_OK : tglu__cuda_map_fail(driver, result, "out");
}

/* Both maps of a down row's x: of whole tiles, and of what the last row of tiles has left. */
static tglu_status map_x_down(const tglu__driver *driver, const tglu__problem *p,
                              const tglu__row *row, const tglu__call *call,
                              tglu_down_launch *record) {
  int64_t left = (call->tokens - 1) % row->tile_m + 1;
  record->x_last_rows = (int32_t)((left + 7) / 8 * 8);
  tglu__CUresult result =
    tglu__cuda_map_operand(driver, &record->x_last, row->dtype, call->x, call->tokens, p->n,
                           call->ldx, record->x_last_rows);
  if (result == TGLU__CUDA_SUCCESS && call->tokens > row->tile_m &&
      record->x_last_rows != row->tile_m)
    result = tglu__cuda_map_operand(driver, &record->x, row->dtype, call->x, call->tokens,
                                    p->n, call->ldx, row->tile_m);
  else
    record->x = record->x_last;
  return result == TGLU__CUDA_SUCCESS ? TGLU_OK : tglu__cuda_map_fail(driver, result, "x");
}

static tglu_status fill_down(const tglu__driver *driver, const tglu__problem *p,
                             const tglu__row *row, const tglu__call *call,
                             const tglu__choice *choice, tglu_down_launch *record) {
  bool direct = tglu__cuda_direct_store(p, tglu__op_down, call) != NULL;
  record->m = (int32_t)call->tokens;
  record->tile_rows = choice->tile_rows;
  record->tile_columns = choice->tile_columns;
  record->group = choice->group;
  record->flags |= direct ? TGLU_LAUNCH_DIRECT_STORE : 0;
  record->residual = call->residual;
  record->ldr = call->ldr;
  record->out_pointer = call->out;
  record->ldo = call->ldo;
  tglu_status status = map_x_down(driver, p, row, call, record);
  if (status != TGLU_OK) return status;
  return map_out(driver, row, p->k, call, direct, &record->w, &record->out);
}

/* What both records of a GLU have of a call; all but x. */
static tglu_status fill_glu(const tglu__driver *driver, const tglu__problem *p,
                            const tglu__row *row, const tglu__call *call,
                            const tglu__choice *choice, tglu_glu_launch *record) {
  bool direct = row->loader == tglu__loader_general ||
                tglu__cuda_direct_store(p, tglu__op_glu, call) != NULL;
  record->m = (int32_t)call->tokens;
  record->tile_rows = choice->tile_rows;
  record->tile_columns = choice->tile_columns;
  record->group = choice->group;
  record->flags |= direct ? TGLU_LAUNCH_DIRECT_STORE : 0;
  record->out_pointer = call->out;
  record->ldo = call->ldo;
  return map_out(driver, row, p->n, call, direct, &record->gate, &record->out);
}

/* A map for each residue class of x's rows. */
static tglu_status map_x_classes(const tglu__driver *driver, const tglu__problem *p,
                                 const tglu__row *row, const tglu__call *call,
                                 tglu_glu_general_launch *record) {
  record->x_classes = tglu__cuda_classes(call->x, call->tokens, p->k, call->ldx);
  tglu__CUresult result =
    tglu__cuda_map_classes(driver, p->dtype, call->x, call->tokens, p->k, call->ldx,
                           record->x_classes, row->tile_m, record->x, record->x_shift);
  return result == TGLU__CUDA_SUCCESS ? TGLU_OK : tglu__cuda_map_fail(driver, result, "x");
}

static tglu_status fill_record(const tglu__driver *driver, const tglu__problem *p,
                               const tglu__cuda_entry *entry, const tglu__call *call,
                               prepared *to) {
  const tglu__row *row = &tglu__rows[entry->row];
  if (entry->general != NULL) {
    tglu_glu_general_launch *record = &to->record.general;
    *record = *entry->general;
    tglu_status status = map_x_classes(driver, p, row, call, record);
    if (status != TGLU_OK) return status;
    return fill_glu(driver, p, row, call, &to->choice, &record->base);
  }
  if (row->op == tglu__op_mlp) {
    fill_mlp(p, entry, call, &to->record.any.mlp);
    return TGLU_OK;
  }
  if (tglu__row_is_stream(row)) {
    to->record.any.stream = entry->record.stream;
    fill_stream(call, &to->record.any.stream);
    return TGLU_OK;
  }
  if (tglu__row_is_diag(row)) {
    to->record.any.diag = entry->record.diag;
    fill_diag(row, call, &to->choice, &to->record.any.diag);
    return TGLU_OK;
  }
  if (row->op == tglu__op_down) {
    to->record.any.down = entry->record.down;
    return fill_down(driver, p, row, call, &to->choice, &to->record.any.down);
  }
  tglu_glu_launch *record = &to->record.any.glu;
  if (tglu__row_has_tail(row)) {
    to->record.any.tail = entry->record.tail;
  } else {
    *record = entry->record.glu;
  }
  tglu_status status = map_x(driver, row, p->k, call, &record->x_rows, &record->x);
  if (status != TGLU_OK) return status;
  return fill_glu(driver, p, row, call, &to->choice, record);
}

static tglu_status prepare(const tglu__cuda *cuda, const tglu__problem *p,
                           const tglu__cuda_entry *entry, tglu__op op,
                           const tglu__call *call, prepared *to) {
  tglu__call own = tglu__cuda_operation_call(p, op, call);
  tglu__cuda_launch_choice(cuda, p, entry, call->tokens, &to->choice);
  to->function = entry->function;
  return fill_record(&cuda->driver, p, entry, &own, to);
}

/* ---- launch ---- */

/* `behind`: the second launch of an MLP, whose start overlaps the first in any case: what the
 * option keeps apart is the caller's work before this call from this call.
 *
 * NOTE: a cooperative launch never overlaps the work before it: nothing says that its CTAs, if
 * they come one by one as SMs are left, are still all resident before another stream's such
 * launch takes the rest, and then both would wait for ever. */
static tglu__CUresult enqueue(const tglu_context *context, void *stream, prepared *p,
                              bool behind) {
  const tglu__cuda *cuda = context->state;
  const tglu__row *row = &tglu__rows[p->choice.row];
  const bool cooperative = row->op == tglu__op_mlp;
  tglu__CUlaunchAttribute attributes[2];
  uint32_t count = 0;
  const int32_t size = row->cluster_m;
  if (size > 1) {
    attributes[count].id = TGLU__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim.x = (uint32_t)size;
    attributes[count].value.clusterDim.y = 1;
    attributes[count++].value.clusterDim.z = 1;
  }
  if (cooperative) {
    attributes[count].id = TGLU__CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count++].value.cooperative = 1;
  } else if (context->options.pdl || behind) {
    attributes[count].id = TGLU__CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  tglu__CUlaunchConfig config = {.gridDimX = (uint32_t)(p->choice.clusters * size),
                                 .gridDimY = (uint32_t)p->choice.grid_y,
                                 .gridDimZ = 1,
                                 .blockDimX = (uint32_t)tglu__row_threads(row),
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = (uint32_t)p->choice.smem_bytes,
                                 .hStream = stream,
                                 .attrs = attributes,
                                 .numAttrs = count};
  void *parameters[] = {&p->record};
  return cuda->driver.launch_kernel_ex(&config, p->function, parameters, NULL);
}

/* Everything is prepared before the first launch, so that what can be refused is refused with
 * nothing begun.  *too_large: the one launch of an MLP was refused since this stream has fewer
 * SMs than the device (a green context's); nothing has begun. */
static tglu_status run(const tglu_context *context, const tglu__problem *problem,
                       const tglu__cuda_entry *const entries[TGLU__OPS],
                       const tglu__call *call, bool *too_large) {
  const tglu__cuda *cuda = context->state;
  prepared ready[TGLU__OPS];
  tglu_status status = TGLU_OK;
  *too_large = false;
  for (tglu__op op = tglu__op_glu; op <= tglu__op_mlp && status == TGLU_OK; ++op)
    if (entries[op] != NULL)
      status = prepare(cuda, problem, entries[op], op, call, &ready[op]);
  for (tglu__op op = tglu__op_glu; op <= tglu__op_mlp && status == TGLU_OK; ++op) {
    if (entries[op] == NULL) continue;
    bool behind = op == tglu__op_down && entries[tglu__op_glu] != NULL;
    tglu__CUresult result = enqueue(context, call->stream, &ready[op], behind);
    *too_large = result == TGLU__CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    if (result != TGLU__CUDA_SUCCESS)
      status = tglu__driver_fail(&cuda->driver, result, "stream: cuLaunchKernelEx");
  }
  return status;
}

/* One device: a wrong pointer can only be host memory.  Several: mixing is easy. */
static tglu_status check_memory(const tglu__cuda *cuda, const tglu__call *call) {
  if (cuda->device_total == 1) return TGLU_OK;
  tglu_status status = tglu__cuda_check_memory(cuda, "x", call->x);
  if (status == TGLU_OK) status = tglu__cuda_check_memory(cuda, "out", call->out);
  if (status == TGLU_OK) status = tglu__cuda_check_memory(cuda, "residual", call->residual);
  if (status == TGLU_OK)
    status = tglu__cuda_check_memory(cuda, "workspace", call->workspace);
  return status;
}

/* The entries that serve a call: that of op mlp, unless `apart`, or one for each half that there
 * is. */
static tglu_status select_entries(const tglu_context *context, const tglu__cuda_plan *plan,
                                  const tglu__call *call, bool apart,
                                  const tglu__cuda_entry *entries[TGLU__OPS]) {
  const tglu__cuda *cuda = context->state;
  const tglu__problem *problem = &plan->problem;
  tglu__call_facts facts = tglu__cuda_call_facts(context, problem, tglu__op_mlp, call);
  const bool one = !apart && tglu__cuda_in_one_launch(cuda, plan, &facts);
  for (tglu__op op = tglu__op_glu; op <= tglu__op_mlp; ++op) {
    entries[op] = NULL;
    if (!tglu__op_present(op, problem) || one != (op == tglu__op_mlp)) continue;
    facts = tglu__cuda_call_facts(context, problem, op, call);
    entries[op] = tglu__cuda_select(plan, op, &facts);
    if (entries[op] == NULL) return tglu__cuda_refuse(cuda, op, problem, &facts);
  }
  return TGLU_OK;
}

tglu_status tglu__cuda_run(const tglu_context *context, const void *planned,
                           const tglu__call *call) {
  const tglu__cuda *cuda = context->state;
  const tglu__cuda_plan *plan = planned;
  tglu_status status = tglu__cuda_check_fork();
  const tglu__cuda_entry *entries[TGLU__OPS];
  if (status == TGLU_OK) status = check_memory(cuda, call);
  if (status == TGLU_OK) status = select_entries(context, plan, call, false, entries);
  if (status != TGLU_OK) return status;
  /* NOTE: cuTensorMapEncodeTiled, too, wants a current context. */
  bool pushed;
  status = tglu__cuda_enter(cuda, &pushed);
  if (status != TGLU_OK) return status;
  bool too_large;
  status = run(context, &plan->problem, entries, call, &too_large);
  if (too_large && cuda->forced_row < 0) {
    status = select_entries(context, plan, call, true, entries);
    if (status == TGLU_OK) status = run(context, &plan->problem, entries, call, &too_large);
  }
  tglu__cuda_leave(cuda, pushed);
  return status;
}
