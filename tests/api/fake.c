#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_state fake;

void fake_reset(void)
{
  static const char *const names[] = {
    "TILEGLU_BACKEND", "TILEGLU_DEVICE", "TILEGLU_THREADS", "TILEGLU_CPU_ISA",
    "TILEGLU_ROW", "TILEGLU_SM_LIMIT", "TILEGLU_PDL", "TILEGLU_TUNE_CACHE",
    "TILEGLU_CUDA_LIBRARY"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
  memset(&fake, 0, sizeof fake);
}

/* Both kinds allocate through the context, so that its failures are seen. */
enum { STATE_BYTES = 48, PLAN_BYTES = 72 };

static tglu_status open_common(tglu_context *context, void **state)
{
  fake.options = context->options;
  *state = tglu__alloc(context, STATE_BYTES, 16);
  if (!*state) return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: no memory");
  fake.opens++;
  return TGLU_OK;
}

static tglu_status open_cpu(tglu_context *context, void **state)
{
  const char *isa = context->options.cpu_isa;
  if (isa && fake.isa_refused && strcmp(isa, fake.isa_refused) == 0)
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "cpu_isa: this CPU lacks %s", isa);
  tglu_status status = open_common(context, state);
  context->info.threads = context->options.threads ? context->options.threads : 3;
  context->info.device_name = "fake cpu";
  context->info.cpu_isa = "portable";
  return status;
}

static tglu_status open_cuda(tglu_context *context, void **state)
{
  if (fake.cuda_open)
    return tglu__fail(fake.cuda_open, "device: the fake GPU is switched off");
  tglu_status status = open_common(context, state);
  context->info.device = context->options.device < 0 ? 0 : context->options.device;
  context->info.sm_count = 132;
  context->info.compute_capability = 90;
  context->info.device_name = "fake gpu";
  return status;
}

static void close_common(tglu_context *context, void *state)
{
  tglu__free(context, state, STATE_BYTES);
  fake.closes++;
}

static int32_t row_count(const tglu_context *context)
{
  (void)context;
  return 2;
}

static void row_get(const tglu_context *context, int32_t index, tglu_row_info *info)
{
  (void)context;
  info->name = index == 0 ? "glu_fake_plain" : "glu_fake_future";
  info->op = "glu";
  info->schedule = "dot";
  info->isa = index == 0 ? "portable" : "isa2099";
  info->hash = "";
  info->dtypes = 1 << TGLU_DTYPE_BF16;
  info->usable = index == 0;
}

static tglu_status plan_create(tglu_context *context, const tglu__problem *problem,
                               void **plan)
{
  fake.problem = *problem;
  if (fake.plan_status) return tglu__fail(fake.plan_status, "plan: planted");
  *plan = tglu__alloc(context, PLAN_BYTES, 64);
  if (!*plan) return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "plan: no memory");
  fake.plans++;
  return TGLU_OK;
}

static void plan_destroy(tglu_context *context, void *plan)
{
  tglu__free(context, plan, PLAN_BYTES);
  fake.destroyed++;
}

static size_t workspace_bytes(const tglu_context *context, const void *plan,
                              int64_t tokens)
{
  (void)context, (void)plan, (void)tokens;
  return fake.workspace;
}

static tglu_status run(const tglu_context *context, const void *plan,
                       const tglu__call *call)
{
  (void)context, (void)plan;
  fake.runs++;
  fake.call = *call;
  return fake.run_status ? tglu__fail(fake.run_status, "run: planted") : TGLU_OK;
}

static size_t explain(const tglu_context *context, const void *plan,
                      const tglu__call *call, char *buffer, size_t bytes)
{
  (void)context, (void)plan;
  return (size_t)snprintf(buffer, bytes, "fake row for %lld tokens, ldx %lld",
                          (long long)call->tokens, (long long)call->ldx);
}

static void plan_info(const tglu_context *context, const void *plan, int64_t tokens,
                      tglu_plan_info *info)
{
  (void)context, (void)plan;
  info->row = "glu_fake_plain";
  info->predicted_us = (double)tokens;
}

static size_t copied_bytes(const tglu_context *context, const void *plan)
{
  (void)context, (void)plan;
  return 77;
}

static int64_t bucket_tokens(int64_t tokens)
{
  return tokens <= 16 ? tokens : (tokens + 15) / 16 * 16;
}

const tglu__backend_ops tglu__cpu_backend = {
  TGLU_BACKEND_CPU, open_cpu, close_common, row_count, row_get, plan_create,
  plan_destroy, workspace_bytes, run, explain, plan_info, copied_bytes, bucket_tokens,
  false, false};

const tglu__backend_ops tglu__cuda_backend = {
  TGLU_BACKEND_CUDA, open_cuda, close_common, row_count, row_get, plan_create,
  plan_destroy, workspace_bytes, run, explain, plan_info, copied_bytes, bucket_tokens,
  true, true};
