/* Creation and launch of a GLU on the CUDA backend. */
#include "cuda/glu_plan.h"

#include <string.h>

#include "../kernels/sm90/smem_layout.h"
#include "plan/tune.h"

enum { INVARIANT_TOKENS = 4096 }; /* batch-invariant objects are planned for this many */

_Static_assert(sizeof(tglu_tensor_map) == sizeof(tglu__CUtensorMap), "one tensor map");

static size_t entries_bytes(void) {
  return sizeof(tglu__cuda_plan) + (size_t)tglu__row_total * sizeof(tglu__cuda_entry);
}

static size_t plan_bytes(void) {
  size_t bytes = entries_bytes();
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    if (tglu__rows[i].loader == tglu__loader_general) bytes += sizeof(tglu_glu_general_launch);
  }
  return bytes;
}

/* An empty plan; the general rows' records find their places behind the entries. */
static void clear_plan(tglu__cuda_plan *plan) {
  memset(plan, 0, plan_bytes());
  char *place = (char *)plan + entries_bytes();
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    if (tglu__rows[i].loader != tglu__loader_general) continue;
    plan->entries[i].general = (tglu_glu_general_launch *)(void *)place;
    place += sizeof(tglu_glu_general_launch);
  }
}

/* ---- tensor maps ---- */

/* A matrix of 16-bit elements as one map sees it. */
typedef struct view {
  uintptr_t address;     /* on 16 bytes                                         */
  int64_t rows, columns;
  int64_t stride;        /* elements, a multiple of 8                           */
} view;

static tglu__CUresult encode(const tglu__driver *driver, tglu_tensor_map *map,
                             tglu_dtype dtype, const view *v, int32_t box_rows,
                             int32_t box_columns, int32_t swizzle) {
  uint64_t dims[2] = {(uint64_t)v->columns, (uint64_t)v->rows};
  uint64_t strides[1] = {2 * (uint64_t)v->stride};
  uint32_t box[2] = {(uint32_t)box_columns, (uint32_t)box_rows};
  uint32_t element_strides[2] = {1, 1};
  int32_t type = dtype == TGLU_DTYPE_BF16 ? TGLU__CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                          : TGLU__CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return driver->tensor_map_encode_tiled(
    (tglu__CUtensorMap *)map, type, 2, (void *)v->address, dims, strides, box,
    element_strides, TGLU__CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
    TGLU__CU_TENSOR_MAP_L2_PROMOTION_L2_128B, TGLU__CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* An aligned matrix.  One row has no stride that counts, so it gets one that does. */
static view whole(const void *pointer, int64_t rows, int64_t columns, int64_t ld) {
  return (view){(uintptr_t)pointer, rows, columns, rows == 1 ? (columns + 7) / 8 * 8 : ld};
}

/* Residue classes of rows that the general loader needs for this operand (launch.h): as
 * many as make their stride a multiple of 8 elements, and more while rows that begin off 16
 * bytes would reach beyond it. */
static int32_t classes_of(const void *pointer, int64_t rows, int64_t columns, int64_t ld) {
  if (rows == 1) return 1;
  int32_t classes = ld % 8 == 0 ? 1 : ld % 4 == 0 ? 2 : ld % 2 == 0 ? 4 : 8;
  bool shifted = ld % 8 != 0 || (uintptr_t)pointer % 16 != 0;
  while (shifted && classes < 8 && classes * ld < columns + 7) classes *= 2;
  return classes;
}

/* The maps and shifts of one operand's classes; rows_of_tile of its rows a tile. */
static tglu__CUresult encode_classes(const tglu__driver *driver, tglu_dtype dtype,
                                     const void *pointer, int64_t rows, int64_t columns,
                                     int64_t ld, int32_t classes, int32_t rows_of_tile,
                                     tglu_tensor_map *maps, int32_t *shifts) {
  for (int32_t s = 0; s < classes; ++s) {
    maps[s] = maps[0]; /* of a class without rows: any valid one */
    if (s >= rows) continue;
    uintptr_t start = (uintptr_t)pointer + 2 * (uint64_t)s * (uint64_t)ld;
    shifts[s] = (int32_t)(start % 16 / 2);
    view v = {start - start % 16, (rows - s - 1) / classes + 1, columns + shifts[s],
              rows == 1 ? (columns + shifts[s] + 7) / 8 * 8 : classes * ld};
    tglu__CUresult result = encode(driver, &maps[s], dtype, &v, rows_of_tile / classes,
                                   TGLU_RAW_ROW_BYTES / 2, TGLU__CU_TENSOR_MAP_SWIZZLE_NONE);
    if (result != TGLU__CUDA_SUCCESS) return result;
  }
  return TGLU__CUDA_SUCCESS;
}

static tglu_status encode_weights(const tglu__driver *driver, const tglu__row *row,
                                  const tglu__problem *p, tglu__cuda_entry *entry) {
  int32_t classes_gate = classes_of(p->gate, p->n, p->k, p->ld);
  int32_t classes_up = classes_of(p->up, p->n, p->k, p->ld);
  int32_t classes = classes_gate > classes_up ? classes_gate : classes_up;
  tglu_glu_general_launch *g = entry->general;
  if (g != NULL) g->w_classes = classes;
  const struct {
    const void *pointer;
    tglu_tensor_map *map, *maps;
    int32_t *shifts;
    const char *what;
  } weights[] = {{p->gate, &entry->record.gate, g != NULL ? g->gate : NULL,
                  g != NULL ? g->gate_shift : NULL, "gate: cuTensorMapEncodeTiled"},
                 {p->up, &entry->record.up, g != NULL ? g->up : NULL,
                  g != NULL ? g->up_shift : NULL, "up: cuTensorMapEncodeTiled"}};
  for (int i = 0; i < 2; ++i) {
    tglu__CUresult result;
    if (g == NULL) {
      view v = whole(weights[i].pointer, p->n, p->k, p->ld);
      result = encode(driver, weights[i].map, p->dtype, &v, tglu__row_weight_box_rows(row),
                      TGLU_TILE_K, TGLU__CU_TENSOR_MAP_SWIZZLE_128B);
    } else {
      result = encode_classes(driver, p->dtype, weights[i].pointer, p->n, p->k, p->ld,
                              classes, row->tile_n, weights[i].maps,
                              weights[i].shifts);
    }
    if (result != TGLU__CUDA_SUCCESS)
      return tglu__driver_fail(driver, result, weights[i].what);
  }
  return TGLU_OK;
}

static int32_t out_swizzle(int32_t tile_n) {
  switch (tglu_out_box_swizzle(tile_n)) {
    case 128: return TGLU__CU_TENSOR_MAP_SWIZZLE_128B;
    case 64: return TGLU__CU_TENSOR_MAP_SWIZZLE_64B;
    default: return TGLU__CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

/* ---- creation ---- */

static tglu_status fill_entry(tglu_context *context, int32_t row, tglu__cuda_plan *plan) {
  tglu__cuda *cuda = context->state;
  const tglu__problem *p = &plan->problem;
  tglu__cuda_entry *entry = &plan->entries[row];
  if (entry->function != NULL) return TGLU_OK;
  tglu__cuda_kernel kernel;
  tglu_status status = tglu__cuda_load(cuda, row, &kernel);
  if (status != TGLU_OK) return status;
  entry->record = (tglu_glu_launch){
    .n = (int32_t)p->n,
    .k = (int32_t)p->k,
    .activation = (int32_t)p->activation,
    .flags = context->options.stable_weights ? TGLU_LAUNCH_STABLE_WEIGHTS : 0,
    .alpha = p->alpha,
    .limit = p->limit,
    .offset = p->offset,
    .gate_bias = p->gate_bias,
    .up_bias = p->up_bias,
    .bias_stride = p->bias_stride,
  };
  status = encode_weights(&cuda->driver, &tglu__rows[row], p, entry);
  if (status != TGLU_OK) return status;
  if (entry->general != NULL) entry->general->base = entry->record;
  entry->clusters = kernel.clusters;
  entry->function = kernel.function;
  return TGLU_OK;
}

int64_t tglu__cuda_planned_tokens(const tglu_context *context, int32_t bucket) {
  if (context->options.batch_invariant) return INVARIANT_TOKENS;
  int64_t tokens = tglu__bucket_tokens(bucket);
  return tokens > INT32_MAX ? INT32_MAX : tokens;
}

static int16_t choose_row(const tglu_context *context, const tglu__problem *problem,
                          const tglu__call_facts *facts) {
  const tglu__cuda *cuda = context->state;
  tglu__choice choice;
  if (cuda->forced_row >= 0) {
    const tglu__row *row = &tglu__rows[cuda->forced_row];
    bool valid = tglu__row_valid(row, problem, facts, &cuda->facts, NULL);
    return (int16_t)(valid ? cuda->forced_row : -1);
  }
  const tglu__tuned *tuned = tglu__tune_find(context, TGLU__TUNE_GLU, problem->dtype,
                                             problem->n, problem->k, facts->tokens);
  if (tuned != NULL &&
      tglu__row_valid(&tglu__rows[tuned->row], problem, facts, &cuda->facts, NULL))
    return (int16_t)tuned->row;
  tglu__plan_choose(problem, facts, &cuda->facts, &choice, NULL);
  return (int16_t)choice.row;
}

static tglu_status fill_buckets(tglu_context *context, tglu__cuda_plan *plan) {
  bool served = false;
  for (int32_t b = 0; b < TGLU__BUCKETS; ++b) {
    tglu__call_facts facts = {.tokens = tglu__cuda_planned_tokens(context, b),
                              .x_reachable = true};
    plan->general[b] = choose_row(context, &plan->problem, &facts);
    facts.x_aligned = true;
    plan->aligned[b] = choose_row(context, &plan->problem, &facts);
    int16_t rows[2] = {plan->aligned[b], plan->general[b]};
    for (int i = 0; i < 2; ++i) {
      if (rows[i] < 0) continue;
      served = true;
      tglu_status status = fill_entry(context, rows[i], plan);
      if (status != TGLU_OK) return status;
    }
  }
  if (served) return TGLU_OK;
  tglu__call_facts facts = {.tokens = 1, .x_aligned = true, .x_reachable = true};
  return tglu__cuda_refuse(context->state, &plan->problem, &facts);
}

static tglu_status check_pointers(const tglu__cuda *cuda, const tglu__problem *p) {
  bool separate = p->layout == TGLU_LAYOUT_SEPARATE;
  const struct {
    const char *name, *merged;
    const void *pointer;
  } operands[] = {{"gate", "gate_up", p->gate},
                  {"up", "gate_up", p->up},
                  {"gate_bias", "gate_up_bias", p->gate_bias},
                  {"up_bias", "gate_up_bias", p->up_bias}};
  for (size_t i = 0; i < sizeof operands / sizeof operands[0]; ++i) {
    tglu_status status = tglu__cuda_check_memory(
      cuda, separate ? operands[i].name : operands[i].merged, operands[i].pointer);
    if (status != TGLU_OK) return status;
  }
  return TGLU_OK;
}

static tglu_status create(tglu_context *context, const tglu__problem *problem,
                          tglu__cuda_plan *plan) {
  const tglu__cuda *cuda = context->state;
  clear_plan(plan);
  plan->problem = *problem;
  tglu__cuda_scope scope;
  tglu_status status = tglu__cuda_enter_slow(cuda, &scope);
  if (status != TGLU_OK) return status;
  status = check_pointers(cuda, problem);
  if (status == TGLU_OK) status = fill_buckets(context, plan);
  tglu__cuda_leave_slow(cuda, &scope);
  return status;
}

tglu_status tglu__cuda_plan_create(tglu_context *context, const tglu__problem *problem,
                                   void **out) {
  if (problem->has_down)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "down: the cuda backend has no kernel for the "
                      "down projection");
  if (problem->dtype == TGLU_DTYPE_F32)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "dtype: f32 is served by the cpu backend only");
  tglu__cuda_plan *plan = tglu__alloc(context, plan_bytes(), _Alignof(tglu__cuda_plan));
  if (plan == NULL)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "object: %zu bytes could not be allocated",
                      plan_bytes());
  tglu_status status = create(context, problem, plan);
  if (status != TGLU_OK) {
    tglu__cuda_plan_destroy(context, plan);
    return status;
  }
  *out = plan;
  return TGLU_OK;
}

void tglu__cuda_plan_destroy(tglu_context *context, void *plan) {
  tglu__free(context, plan, plan_bytes());
}

/* ---- which row ---- */

tglu__call_facts tglu__cuda_call_facts(const tglu_context *context, const tglu__call *call) {
  int64_t rows = context->options.batch_invariant && call->tokens == 1 ? 2 : call->tokens;
  return (tglu__call_facts){
    .tokens = call->tokens,
    .x_aligned = tglu__matrix_aligned(call->x, rows, call->ldx),
    .x_reachable = tglu__matrix_reachable(rows, call->ldx)};
}

int32_t tglu__cuda_select(const tglu__cuda_plan *plan, const tglu__call_facts *facts) {
  if (facts->tokens > INT32_MAX) return -1;
  if (!facts->x_aligned && !facts->x_reachable) return -1;
  int32_t bucket = tglu__bucket_of(facts->tokens);
  return facts->x_aligned ? plan->aligned[bucket] : plan->general[bucket];
}

/* The argument that keeps the rows from serving a call whose sizes fit. */
static const char *culprit(const tglu__problem *p, const tglu__call_facts *facts) {
  bool separate = p->layout == TGLU_LAYOUT_SEPARATE;
  if ((uintptr_t)p->gate % 16 != 0) return separate ? "gate" : "gate_up";
  if (p->n > 1 && p->ld % 8 != 0) return "ld";
  if ((uintptr_t)p->up % 16 != 0) return separate ? "up" : "gate_up";
  if (!facts->x_aligned) return "x";
  if (p->n > INT32_MAX) return "intermediate";
  if (p->k > INT32_MAX - 384) return "hidden";
  if (facts->tokens > INT32_MAX) return "tokens";
  return "sm_limit";
}

tglu_status tglu__cuda_refuse(const tglu__cuda *cuda, const tglu__problem *problem,
                              const tglu__call_facts *facts) {
  const char *why = NULL;
  if (cuda->forced_row >= 0) {
    const tglu__row *row = &tglu__rows[cuda->forced_row];
    tglu__row_valid(row, problem, facts, &cuda->facts, &why);
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "row: %s, which is forced, %s", row->name,
                      why != NULL ? why : "cannot serve this call");
  }
  bool dtype_served = false;
  const char *reason = NULL;
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    if (tglu__rows[i].dtype != problem->dtype) continue;
    dtype_served = true;
    tglu__row_valid(&tglu__rows[i], problem, facts, &cuda->facts, &why);
    if (reason == NULL) reason = why;
  }
  if (!dtype_served)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "dtype: the cuda backend has no kernel row for "
                      "%s", tglu_dtype_name(problem->dtype));
  return tglu__fail(TGLU_ERR_UNSUPPORTED, "%s: no kernel row serves this: each %s",
                    culprit(problem, facts), reason != NULL ? reason : "is too small");
}

const char *tglu__cuda_direct_store(const tglu__problem *problem, const tglu__call *call) {
  if (problem->n % 8 != 0) return "intermediate is not a multiple of 8";
  if ((uintptr_t)call->out % 16 != 0) return "out is not on 16 bytes";
  if (call->tokens == 1) return NULL;
  if (call->ldo % 8 != 0) return "ldo is not a multiple of 8";
  if (call->ldo >= (int64_t)1 << 39) return "ldo is 2^39 or more";
  return NULL;
}

/* ---- run ---- */

/* Fills in what every record has of a call; sets the direct-store flag. */
static tglu_status fill_call(const tglu__driver *driver, const tglu__problem *p,
                             const tglu__row *row, const tglu__call *call,
                             const tglu__choice *choice, tglu_glu_launch *record) {
  record->m = (int32_t)call->tokens;
  record->tile_rows = choice->tile_rows;
  record->tile_columns = choice->tile_columns;
  record->group = choice->group;
  record->out_pointer = call->out;
  record->ldo = call->ldo;
  if (row->loader == tglu__loader_general || tglu__cuda_direct_store(p, call) != NULL) {
    record->flags |= TGLU_LAUNCH_DIRECT_STORE;
    record->out = record->gate; /* prefetched by the kernel, so it must be a map */
    return TGLU_OK;
  }
  view v = whole(call->out, call->tokens, p->n, call->ldo);
  tglu__CUresult result =
    encode(driver, &record->out, p->dtype, &v, 64, tglu_out_box_columns(row->tile_n),
           out_swizzle(row->tile_n));
  if (result == TGLU__CUDA_SUCCESS) return TGLU_OK;
  return tglu__driver_fail(driver, result, "out: cuTensorMapEncodeTiled");
}

static tglu_status launch(const tglu_context *context, const tglu__cuda_entry *entry,
                          const tglu__choice *choice, void *stream, void *record) {
  const tglu__cuda *cuda = context->state;
  const tglu__row *row = &tglu__rows[choice->row];
  tglu__CUlaunchAttribute attributes[2];
  uint32_t count = 0;
  const int32_t size = row->cluster_m;
  if (size > 1) {
    attributes[count].id = TGLU__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim.x = (uint32_t)size;
    attributes[count].value.clusterDim.y = 1;
    attributes[count++].value.clusterDim.z = 1;
  }
  if (context->options.pdl) {
    attributes[count].id = TGLU__CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  int32_t clusters = choice->clusters < entry->clusters ? choice->clusters : entry->clusters;
  tglu__CUlaunchConfig config = {.gridDimX = (uint32_t)(clusters * size),
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = (uint32_t)tglu__row_threads(row),
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = (uint32_t)choice->smem_bytes,
                                 .hStream = stream,
                                 .attrs = attributes,
                                 .numAttrs = count};
  void *parameters[] = {record};
  tglu__CUresult result =
    cuda->driver.launch_kernel_ex(&config, entry->function, parameters, NULL);
  if (result == TGLU__CUDA_SUCCESS) return TGLU_OK;
  return tglu__driver_fail(&cuda->driver, result, "stream: cuLaunchKernelEx");
}

/* A row with the tma loader. */
static tglu_status run_tma(const tglu_context *context, const tglu__cuda_plan *plan,
                           const tglu__call *call, const tglu__choice *choice) {
  const tglu__cuda *cuda = context->state;
  const tglu__cuda_entry *entry = &plan->entries[choice->row];
  const tglu__row *row = &tglu__rows[choice->row];
  const tglu__problem *p = &plan->problem;
  tglu_glu_launch record = entry->record;
  view v = whole(call->x, call->tokens, p->k, call->ldx);
  tglu__CUresult result =
    encode(&cuda->driver, &record.x, p->dtype, &v, row->tile_m, TGLU_TILE_K,
           TGLU__CU_TENSOR_MAP_SWIZZLE_128B);
  if (result != TGLU__CUDA_SUCCESS)
    return tglu__driver_fail(&cuda->driver, result, "x: cuTensorMapEncodeTiled");
  tglu_status status = fill_call(&cuda->driver, p, row, call, choice, &record);
  if (status != TGLU_OK) return status;
  return launch(context, entry, choice, call->stream, &record);
}

/* A row with the general loader: a map for each residue class of x's rows. */
static tglu_status run_general(const tglu_context *context, const tglu__cuda_plan *plan,
                               const tglu__call *call, const tglu__choice *choice) {
  const tglu__cuda *cuda = context->state;
  const tglu__cuda_entry *entry = &plan->entries[choice->row];
  const tglu__row *row = &tglu__rows[choice->row];
  const tglu__problem *p = &plan->problem;
  tglu_glu_general_launch record = *entry->general;
  record.x_classes = classes_of(call->x, call->tokens, p->k, call->ldx);
  tglu__CUresult result =
    encode_classes(&cuda->driver, p->dtype, call->x, call->tokens, p->k, call->ldx,
                   record.x_classes, row->tile_m, record.x, record.x_shift);
  if (result != TGLU__CUDA_SUCCESS)
    return tglu__driver_fail(&cuda->driver, result, "x: cuTensorMapEncodeTiled");
  tglu_status status = fill_call(&cuda->driver, p, row, call, choice, &record.base);
  if (status != TGLU_OK) return status;
  return launch(context, entry, choice, call->stream, &record);
}

tglu_status tglu__cuda_run(const tglu_context *context, const void *planned,
                           const tglu__call *call) {
  const tglu__cuda *cuda = context->state;
  const tglu__cuda_plan *plan = planned;
  const tglu__problem *p = &plan->problem;
  tglu_status status = tglu__cuda_check_fork();
  if (status != TGLU_OK) return status;
  /* One device: a wrong pointer can only be host memory.  Several: mixing is easy. */
  if (cuda->device_total > 1) {
    status = tglu__cuda_check_memory(cuda, "x", call->x);
    if (status == TGLU_OK) status = tglu__cuda_check_memory(cuda, "out", call->out);
    if (status != TGLU_OK) return status;
  }
  tglu__call_facts facts = tglu__cuda_call_facts(context, call);
  int32_t row = tglu__cuda_select(plan, &facts);
  if (row < 0) return tglu__cuda_refuse(cuda, p, &facts);
  tglu__choice choice;
  tglu__plan_launch(row, p, call->tokens, &cuda->facts, &choice);
  /* NOTE: cuTensorMapEncodeTiled, too, wants a current context. */
  bool pushed;
  status = tglu__cuda_enter(cuda, &pushed);
  if (status != TGLU_OK) return status;
  status = tglu__rows[row].loader == tglu__loader_general
             ? run_general(context, plan, call, &choice)
             : run_tma(context, plan, call, &choice);
  tglu__cuda_leave(cuda, pushed);
  return status;
}
