/* A GLU or an MLP behind one set of calls. */
#ifndef CLI_OP_H
#define CLI_OP_H

#include <tileglu/tileglu.h>

/* OP_DOWN is the second half of an MLP alone, which the GPU bench times. */
typedef enum op_kind { OP_GLU, OP_MLP, OP_DOWN } op_kind;

typedef struct op {
  op_kind kind;
  tglu_glu *glu;
  tglu_mlp *mlp;
} op;

/* A GLU or an MLP: that from the whole descriptor, a GLU from its first half. */
tglu_status op_create(op *o, op_kind kind, tglu_context *context, const tglu_mlp_desc *desc);
tglu_status op_run(const op *o, const tglu_run_args *args);
tglu_status op_workspace_bytes(const op *o, int64_t tokens, size_t *bytes);
tglu_status op_explain(const op *o, const tglu_run_args *args, char *buffer, size_t bytes);
tglu_status op_plan(const op *o, int64_t tokens, tglu_plan_info *info);
tglu_status op_info(const op *o, tglu_object_info *info);
void op_destroy(op *o); /* accepts a zeroed one */

const char *op_name(op_kind kind); /* "glu", "mlp", "down" */
int64_t op_columns(op_kind kind, const tglu_glu_desc *desc); /* of the result */
/* Floating point operations of one call: 4 M N K for a GLU, 6 M N K for an MLP, 2 M N K
 * for its second half. */
double op_flops(op_kind kind, const tglu_glu_desc *desc, int64_t tokens);
/* Bytes of weights that one call reads. */
double op_weight_bytes(op_kind kind, const tglu_glu_desc *desc);

#endif /* CLI_OP_H */
