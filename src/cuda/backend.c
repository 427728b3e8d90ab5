/* The CUDA backend's table. */
#include "cuda/plan.h"

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
                 tglu__row_smem_bytes(row, 1, 1) <= cuda->facts.smem_bytes &&
                 cuda->facts.clusters[row->cluster_m] > 0 &&
                 (row->op != tglu__op_mlp || cuda->facts.cooperative);
}

static size_t copied_bytes(const tglu_context *context, const void *plan) {
  (void)context, (void)plan;
  return 0;
}

static int64_t bucket_tokens(int64_t tokens) {
  return tglu__bucket_tokens(tglu__bucket_of(tokens));
}

const tglu__backend_ops tglu__cuda_backend = {
  .id = TGLU_BACKEND_CUDA,
  .open = tglu__cuda_open,
  .close = tglu__cuda_close,
  .row_count = row_count,
  .row_get = row_get,
  .plan_create = tglu__cuda_plan_create,
  .plan_destroy = tglu__cuda_plan_destroy,
  .workspace_bytes = tglu__cuda_workspace_bytes,
  .run = tglu__cuda_run,
  .explain = tglu__cuda_explain,
  .plan_info = tglu__cuda_plan_info,
  .copied_bytes = copied_bytes,
  .bucket_tokens = bucket_tokens,
  .needs_element_alignment = true,
  .has_streams = true,
};
