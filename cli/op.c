#include "op.h"

#include <string.h>

tglu_status op_create(op *o, op_kind kind, tglu_context *context,
                      const tglu_mlp_desc *desc) {
  memset(o, 0, sizeof *o);
  o->kind = kind;
  return kind == OP_MLP ? tglu_mlp_create(context, desc, &o->mlp)
                        : tglu_glu_create(context, &desc->glu, &o->glu);
}

tglu_status op_run(const op *o, const tglu_run_args *args) {
  return o->mlp ? tglu_mlp_run(o->mlp, args) : tglu_glu_run(o->glu, args);
}

tglu_status op_workspace_bytes(const op *o, int64_t tokens, size_t *bytes) {
  return o->mlp ? tglu_mlp_workspace_bytes(o->mlp, tokens, bytes)
                : tglu_glu_workspace_bytes(o->glu, tokens, bytes);
}

tglu_status op_explain(const op *o, const tglu_run_args *args, char *buffer, size_t bytes) {
  return o->mlp ? tglu_mlp_explain(o->mlp, args, buffer, bytes)
                : tglu_glu_explain(o->glu, args, buffer, bytes);
}

tglu_status op_plan(const op *o, int64_t tokens, tglu_plan_info *info) {
  tglu_plan_info_init(info);
  return o->mlp ? tglu_mlp_get_plan(o->mlp, tokens, info)
                : tglu_glu_get_plan(o->glu, tokens, info);
}

tglu_status op_info(const op *o, tglu_object_info *info) {
  tglu_object_info_init(info);
  return o->mlp ? tglu_mlp_get_info(o->mlp, info) : tglu_glu_get_info(o->glu, info);
}

void op_destroy(op *o) {
  tglu_mlp_destroy(o->mlp);
  tglu_glu_destroy(o->glu);
  memset(o, 0, sizeof *o);
}

const char *op_name(op_kind kind) {
  return kind == OP_MLP ? "mlp" : kind == OP_DOWN ? "down" : "glu";
}

int64_t op_columns(op_kind kind, const tglu_glu_desc *desc) {
  return kind == OP_GLU ? desc->intermediate : desc->hidden;
}

/* Weight matrices that one call reads. */
static double op_matrices(op_kind kind) {
  return kind == OP_MLP ? 3.0 : kind == OP_DOWN ? 1.0 : 2.0;
}

double op_flops(op_kind kind, const tglu_glu_desc *desc, int64_t tokens) {
  double mnk = (double)tokens * (double)desc->intermediate * (double)desc->hidden;
  return 2 * op_matrices(kind) * mnk;
}

double op_weight_bytes(op_kind kind, const tglu_glu_desc *desc) {
  double matrix = (double)desc->intermediate * (double)desc->hidden *
                  (double)tglu_dtype_bytes(desc->dtype);
  return op_matrices(kind) * matrix;
}
