/* The checks of one call: integers only, no allocation, no text unless one fails. */
#include "internal.h"

#define INVALID(...) tglu__fail(TGLU_ERR_INVALID_ARGUMENT, __VA_ARGS__)

/* Resolves 0 to tight and refuses what cannot be: strides below the columns and
 * matrices that memory cannot hold. */
static tglu_status resolve_stride(const char *ld_name, const char *name, int64_t given,
                                  const void *base, int64_t rows, int64_t columns,
                                  size_t element, int64_t *ld)
{
  *ld = given == 0 ? columns : given;
  if (*ld < columns)
    return INVALID("%s: %lld is below the %lld columns of %s (0 means tight)", ld_name,
                   (long long)given, (long long)columns, name);
  return tglu__check_extent(name, base, rows, columns, *ld, element);
}

static tglu_status check_pointer(const char *name, const void *pointer, bool required,
                                 size_t alignment)
{
  if (!pointer && required) return INVALID("%s: must not be NULL", name);
  if ((uintptr_t)pointer % alignment != 0)
    return INVALID("%s: %p is not a multiple of the element's %zu bytes, which this "
                   "backend needs", name, pointer, alignment);
  return TGLU_OK;
}

static tglu__region region_of(const void *base, int64_t rows, int64_t columns, int64_t ld,
                              size_t element)
{
  return (tglu__region){(uintptr_t)base, (uint64_t)rows, (uint64_t)columns * element,
                        (uint64_t)ld * element};
}

/* One thing that the call reads; base NULL: nothing. */
typedef struct input {
  const char *name;
  const void *base;
  int64_t rows, columns, ld;
} input;

static tglu_status check_apart(const char *name, const tglu__region *region,
                               const input *inputs, size_t count, size_t element)
{
  for (size_t i = 0; i < count; i++) {
    const input *in = &inputs[i];
    if (!in->base || in->rows == 0 || in->columns == 0) continue;
    const tglu__region other = region_of(in->base, in->rows, in->columns, in->ld, element);
    if (tglu__regions_overlap(region, &other))
      return tglu__fail(TGLU_ERR_OVERLAP, "%s: overlaps %s (bytes from %p on, and from %p)",
                        name, in->name, (const void *)region->begin, in->base);
  }
  return TGLU_OK;
}

/* The one overlap that is allowed: the residual is out itself. */
static bool same_matrix(const tglu__call *call)
{
  return call->residual == call->out && (call->ldr == call->ldo || call->tokens == 1);
}

static tglu_status check_overlaps(const tglu__problem *p, const tglu__call *call)
{
  const size_t element = tglu_dtype_bytes(p->dtype);
  const tglu__operand_names names = tglu__names_of(p);
  const input inputs[] = {
    {"x", call->x, call->tokens, tglu__x_columns(p), call->ldx},
    {names.gate, p->gate, p->n, p->k, p->ld},
    {names.up, p->up, p->n, p->k, p->ld},
    {names.gate_bias, p->gate_bias, p->n, 1, p->bias_stride},
    {names.up_bias, p->up_bias, p->n, 1, p->bias_stride},
    {names.down, p->down, p->k, p->n, p->ld_down},
    {names.down_bias, p->down_bias, 1, p->k, p->k},
    {"residual", call->residual, call->tokens, p->k, call->ldr},
  };
  const size_t count = sizeof inputs / sizeof inputs[0];
  const tglu__region out =
    region_of(call->out, call->tokens, tglu__out_columns(p), call->ldo, element);
  tglu_status status =
    check_apart("out", &out, inputs, same_matrix(call) ? count - 1 : count, element);
  if (status || !call->workspace) return status;

  const tglu__region workspace = {(uintptr_t)call->workspace, 1, call->workspace_bytes,
                                  call->workspace_bytes};
  if (tglu__regions_overlap(&workspace, &out))
    return tglu__fail(TGLU_ERR_OVERLAP, "workspace: its %zu bytes from %p overlap out",
                      call->workspace_bytes, call->workspace);
  return check_apart("workspace", &workspace, inputs, count, element);
}

static tglu_status check_workspace(const tglu__object *object, const tglu_run_args *args,
                                   tglu__call *call)
{
  const tglu_context *context = object->context;
  const size_t needed =
    object->plan ? context->ops->workspace_bytes(context, object->plan, call->tokens) : 0;
  const size_t given = args->workspace ? args->workspace_bytes : 0;
  if (given > INT64_MAX)
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT,
                      "workspace_bytes: %zu is more than the 2^63 - 1 that a buffer may have",
                      given);
  if (given < needed)
    return tglu__fail(TGLU_ERR_WORKSPACE,
                      "workspace: %zu bytes are needed for %lld tokens, %zu were given%s",
                      needed, (long long)call->tokens, given,
                      args->workspace ? "" : " (it is NULL)");
  call->workspace = given > 0 ? args->workspace : NULL;
  call->workspace_bytes = given;
  return given > 0 ? tglu__check_extent("workspace", call->workspace, 1, (int64_t)given,
                                        (int64_t)given, 1)
                   : TGLU_OK;
}

/* Strides of the three matrices, and their addresses' alignment. */
static tglu_status check_matrices(const tglu__object *object, const tglu_run_args *args,
                                  bool pointers_required, tglu__call *call)
{
  const tglu__problem *p = &object->problem;
  const size_t element = tglu_dtype_bytes(p->dtype);
  const size_t alignment = object->context->ops->needs_element_alignment ? element : 1;
  tglu_status status = check_pointer("x", args->x, pointers_required, alignment);
  if (!status) status = check_pointer("out", args->out, pointers_required, alignment);
  if (!status) status = check_pointer("residual", args->residual, false, alignment);
  if (!status)
    status = resolve_stride("ldx", "x", args->ldx, args->x, args->tokens,
                            tglu__x_columns(p), element, &call->ldx);
  if (!status)
    status = resolve_stride("ldo", "out", args->ldo, args->out, args->tokens,
                            tglu__out_columns(p), element, &call->ldo);
  if (!status)
    status = resolve_stride("ldr", "residual", args->ldr, args->residual, args->tokens,
                            p->k, element, &call->ldr);
  call->x = args->x;
  call->out = args->out;
  call->residual = args->residual;
  return status;
}

tglu_status tglu__call_check(const tglu__object *object, const tglu_run_args *given,
                             tglu__check check, tglu__call *call)
{
  const tglu__problem *p = &object->problem;
  tglu_run_args args;
  tglu_status status = tglu__struct_in("args", given, sizeof args, sizeof args, &args);
  if (status) return status;
  call->tokens = 0;
  if (args.tokens < 0)
    return INVALID("tokens: %lld is negative", (long long)args.tokens);
  if (args.stream && !object->context->ops->has_streams)
    return INVALID("stream: must be NULL on the %s backend",
                   tglu_backend_name(object->context->ops->id));
  if (args.residual && !p->has_down)
    return INVALID("residual: must be NULL for a glu (an mlp or a linear adds one)");
  if (args.tokens == 0 || (p->n == 0 && !p->has_down)) return TGLU_OK;

  status = check_matrices(object, &args, check == TGLU__CHECK_RUN, call);
  if (!status) status = tglu__check_tokens(p, args.tokens);
  if (status) return status;
  call->tokens = args.tokens;
  call->stream = args.stream;
  call->workspace = args.workspace;
  call->workspace_bytes = args.workspace_bytes;
  if (check == TGLU__CHECK_EXPLAIN) return TGLU_OK;

  status = check_workspace(object, &args, call);
  if (!status) status = check_overlaps(p, call);
  if (status) call->tokens = 0;
  return status;
}

void tglu_run_args_init(tglu_run_args *args)
{
  if (args) *args = (tglu_run_args){.size = sizeof *args};
}
