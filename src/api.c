/* The glu, mlp and linear calls of tileglu.h: one object behind all three. */
#include "internal.h"

#include <stdio.h>

#define INVALID(...) tglu__fail(TGLU_ERR_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- objects ---- */

static tglu_status plan(tglu__object *object)
{
  tglu_context *context = object->context;
  const tglu__problem *problem = &object->problem;
  if (problem->dtype == TGLU_DTYPE_F32 && context->ops->id != TGLU_BACKEND_CPU)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "dtype: f32 is served by the cpu backend only");
  if (context->ops->needs_element_alignment) {
    tglu_status status = tglu__problem_check_alignment(problem);
    if (status) return status;
  }
  /* Where a pointer is the device's, so is the writing of an empty sum. */
  bool empty = problem->n == 0 &&
               (!problem->has_down || context->ops->id == TGLU_BACKEND_CPU);
  return empty ? TGLU_OK : context->ops->plan_create(context, problem, &object->plan);
}

static tglu_status object_create(tglu_context *context, const tglu__problem *problem,
                                 tglu__object **out)
{
  tglu__object *object = tglu__alloc(context, sizeof *object, _Alignof(tglu__object));
  if (!object)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "object: %zu bytes could not be allocated",
                      sizeof *object);
  *object = (tglu__object){.context = context, .problem = *problem};
  tglu_status status = plan(object);
  if (status) {
    tglu__free(context, object, sizeof *object);
    return status;
  }
  tglu__context_retain(context);
  *out = object;
  return TGLU_OK;
}

static void object_destroy(tglu__object *object)
{
  tglu_context *context = object->context;
  if (object->plan) context->ops->plan_destroy(context, object->plan);
  tglu__free(context, object, sizeof *object);
  tglu__context_release(context);
}

static tglu_status null_object(const char *name)
{
  return INVALID("%s: must not be NULL", name);
}

static tglu_status object_run(const tglu__object *object, const tglu_run_args *args)
{
  tglu__call call;
  tglu_status status = tglu__call_check(object, args, TGLU__CHECK_RUN, &call);
  if (status || call.tokens == 0) return status;
  if (!object->plan) {
    tglu__empty_mlp_run(&object->problem, &call);
    return TGLU_OK;
  }
  return object->context->ops->run(object->context, object->plan, &call);
}

static tglu_status object_workspace(const tglu__object *object, int64_t tokens,
                                    size_t *bytes)
{
  if (!bytes) return INVALID("bytes: must not be NULL");
  tglu_status status = tglu__check_tokens(&object->problem, tokens);
  if (status) return status;
  *bytes = object->plan && tokens > 0
             ? object->context->ops->workspace_bytes(object->context, object->plan, tokens)
             : 0;
  return TGLU_OK;
}

static tglu_status object_explain(const tglu__object *object, const tglu_run_args *args,
                                  char *buffer, size_t bytes)
{
  if (!buffer) return INVALID("buffer: must not be NULL");
  if (bytes == 0) return INVALID("buffer_bytes: must not be 0");
  tglu__call call;
  tglu_status status = tglu__call_check(object, args, TGLU__CHECK_EXPLAIN, &call);
  if (status) return status;
  size_t length = 0;
  if (object->plan && call.tokens > 0)
    length =
      object->context->ops->explain(object->context, object->plan, &call, buffer, bytes);
  else
    length = (size_t)snprintf(buffer, bytes, "%s",
                              call.tokens > 0
                                ? "no kernel row: intermediate is 0, so out is down_bias + "
                                  "residual"
                              : object->plan ? "no kernel row: tokens is 0, nothing runs"
                                             : "no kernel row: nothing to compute");
  if (length < bytes) return TGLU_OK;
  return tglu__fail(TGLU_ERR_BUFFER_TOO_SMALL,
                    "buffer_bytes: the text needs %zu bytes, %zu were given", length + 1,
                    bytes);
}

static tglu_status object_get_info(const tglu__object *object, tglu_object_info *info)
{
  const tglu__problem *p = &object->problem;
  tglu_object_info filled;
  tglu_object_info_init(&filled);
  filled.hidden = p->k;
  filled.intermediate = p->n;
  filled.dtype = p->dtype;
  filled.activation = p->activation;
  filled.weight_bytes = (size_t)(p->has_down ? 3 : 2) * (size_t)p->n * (size_t)p->k *
                        tglu_dtype_bytes(p->dtype);
  filled.copied_bytes =
    object->plan ? object->context->ops->copied_bytes(object->context, object->plan) : 0;
  return tglu__struct_out("info", info, sizeof filled, sizeof filled, &filled);
}

static tglu_status object_get_plan(const tglu__object *object, int64_t tokens,
                                   tglu_plan_info *info)
{
  tglu_plan_info filled;
  tglu_plan_info_init(&filled);
  tglu_status status = tglu__check_tokens(&object->problem, tokens);
  if (status) return status;
  if (object->plan && tokens > 0)
    object->context->ops->plan_info(object->context, object->plan, tokens, &filled);
  return tglu__struct_out("info", info, sizeof filled, sizeof filled, &filled);
}

void tglu_object_info_init(tglu_object_info *info)
{
  if (info) *info = (tglu_object_info){.size = sizeof *info};
}

void tglu_plan_info_init(tglu_plan_info *info)
{
  if (info) *info = (tglu_plan_info){.size = sizeof *info};
}

/* ---- glu ---- */

tglu_status tglu_glu_create(tglu_context *context, const tglu_glu_desc *desc,
                            tglu_glu **out)
{
  if (!out) return INVALID("out: must not be NULL");
  *out = NULL;
  if (!context) return INVALID("context: must not be NULL");
  tglu__problem problem;
  tglu__object *object = NULL;
  tglu_status status = tglu__problem_from_glu(desc, &problem);
  if (!status) status = object_create(context, &problem, &object);
  if (!status) *out = (tglu_glu *)object;
  return status;
}

void tglu_glu_destroy(tglu_glu *glu)
{
  if (glu) object_destroy(&glu->object);
}

tglu_status tglu_glu_run(const tglu_glu *glu, const tglu_run_args *args)
{
  return glu ? object_run(&glu->object, args) : null_object("glu");
}

tglu_status tglu_glu_workspace_bytes(const tglu_glu *glu, int64_t tokens, size_t *bytes)
{
  return glu ? object_workspace(&glu->object, tokens, bytes) : null_object("glu");
}

tglu_status tglu_glu_explain(const tglu_glu *glu, const tglu_run_args *args, char *buffer,
                             size_t buffer_bytes)
{
  return glu ? object_explain(&glu->object, args, buffer, buffer_bytes)
             : null_object("glu");
}

tglu_status tglu_glu_get_info(const tglu_glu *glu, tglu_object_info *info)
{
  return glu ? object_get_info(&glu->object, info) : null_object("glu");
}

tglu_status tglu_glu_get_plan(const tglu_glu *glu, int64_t tokens, tglu_plan_info *info)
{
  return glu ? object_get_plan(&glu->object, tokens, info) : null_object("glu");
}

/* ---- mlp ---- */

tglu_status tglu_mlp_create(tglu_context *context, const tglu_mlp_desc *desc,
                            tglu_mlp **out)
{
  if (!out) return INVALID("out: must not be NULL");
  *out = NULL;
  if (!context) return INVALID("context: must not be NULL");
  tglu__problem problem;
  tglu__object *object = NULL;
  tglu_status status = tglu__problem_from_mlp(desc, &problem);
  if (!status) status = object_create(context, &problem, &object);
  if (!status) *out = (tglu_mlp *)object;
  return status;
}

void tglu_mlp_destroy(tglu_mlp *mlp)
{
  if (mlp) object_destroy(&mlp->object);
}

tglu_status tglu_mlp_run(const tglu_mlp *mlp, const tglu_run_args *args)
{
  return mlp ? object_run(&mlp->object, args) : null_object("mlp");
}

tglu_status tglu_mlp_workspace_bytes(const tglu_mlp *mlp, int64_t tokens, size_t *bytes)
{
  return mlp ? object_workspace(&mlp->object, tokens, bytes) : null_object("mlp");
}

tglu_status tglu_mlp_explain(const tglu_mlp *mlp, const tglu_run_args *args, char *buffer,
                             size_t buffer_bytes)
{
  return mlp ? object_explain(&mlp->object, args, buffer, buffer_bytes)
             : null_object("mlp");
}

tglu_status tglu_mlp_get_info(const tglu_mlp *mlp, tglu_object_info *info)
{
  return mlp ? object_get_info(&mlp->object, info) : null_object("mlp");
}

tglu_status tglu_mlp_get_plan(const tglu_mlp *mlp, int64_t tokens, tglu_plan_info *info)
{
  return mlp ? object_get_plan(&mlp->object, tokens, info) : null_object("mlp");
}

/* ---- linear ---- */

tglu_status tglu_linear_create(tglu_context *context, const tglu_linear_desc *desc,
                               tglu_linear **out)
{
  if (!out) return INVALID("out: must not be NULL");
  *out = NULL;
  if (!context) return INVALID("context: must not be NULL");
  tglu__problem problem;
  tglu__object *object = NULL;
  tglu_status status = tglu__problem_from_linear(desc, &problem);
  if (!status) status = object_create(context, &problem, &object);
  if (!status) *out = (tglu_linear *)object;
  return status;
}

void tglu_linear_destroy(tglu_linear *linear)
{
  if (linear) object_destroy(&linear->object);
}

tglu_status tglu_linear_run(const tglu_linear *linear, const tglu_run_args *args)
{
  return linear ? object_run(&linear->object, args) : null_object("linear");
}

tglu_status tglu_linear_workspace_bytes(const tglu_linear *linear, int64_t tokens,
                                        size_t *bytes)
{
  return linear ? object_workspace(&linear->object, tokens, bytes)
                : null_object("linear");
}
