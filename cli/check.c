#include "check.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "gpu_place.h"
#include "json_out.h"
#include "mem.h"
#include "numbers.h"
#include "oracle.h"
#include "workload.h"

/* CPUs that this process may use. */
static int usable_cpus(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count > 0 ? count : 1;
}

static int open_gpu(tools *t, const place_args *args) {
  t->gpu = mem_zeroed(1, sizeof *t->gpu);
  return gpu_place_open(t->gpu, &args->options, &t->info);
}

int tools_open(tools *t, const place_args *args) {
  memset(t, 0, sizeof *t);
  int code = place_open(args, &t->context, &t->info);
  if (code != CLI_OK) return code;
  int threads = t->info.threads;
  if (t->info.backend == TGLU_BACKEND_CUDA) {
    code = open_gpu(t, args);
    threads = args->options.threads ? args->options.threads : usable_cpus();
  }
  t->hot = hot_for(t->info.cpu_isa ? t->info.cpu_isa : tglu_cpu_isa());
  t->threads = pool_new(threads);
  if (code != CLI_OK) tools_close(t);
  return code;
}

void tools_close(tools *t) {
  pool_free(t->threads);
  tglu_context_destroy(t->context);
  if (t->gpu) {
    gpu_close(t->gpu);
    mem_free(t->gpu);
  }
  memset(t, 0, sizeof *t);
}

void tools_json(const tools *t, json_t *document) {
  jo_text(document, "backend", tglu_backend_name(t->info.backend));
  jo_text(document, "device", t->info.device_name);
  jo_text(document, "isa", t->info.cpu_isa);
  jo_int(document, "threads", t->info.threads);
}

void tools_print(const tools *t, FILE *stream) {
  const char *name = t->info.device_name ? t->info.device_name : "unnamed";
  if (t->gpu) {
    fprintf(stream, "cuda: %s, %d SMs\n", name, (int)t->info.sm_count);
    return;
  }
  fprintf(stream, "%s: %s, %s, %d thread%s\n", tglu_backend_name(t->info.backend), name,
          t->info.cpu_isa ? t->info.cpu_isa : "?", (int)t->info.threads,
          t->info.threads == 1 ? "" : "s");
}

int injection_parse(injections *all, const char *text) {
  static const struct {
    const char *prefix;
    int target;
  } targets[] = {{"out:", INJECT_OUT}, {"ref:", INJECT_REFERENCE}, {"x:", INJECT_X},
                 {"guard:", INJECT_GUARD}};
  if (all->count == INJECTIONS) return 0;
  injection *fault = &all->list[all->count];
  fault->target = INJECT_OUT;
  for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
    size_t length = strlen(targets[i].prefix);
    if (strncmp(text, targets[i].prefix, length) != 0) continue;
    fault->target = targets[i].target;
    text += length;
    break;
  }
  char *end;
  fault->value = strtod(text, &end);
  if (end == text || *end != '@') return 0;
  fault->index = -1;
  if (strcmp(end + 1, "all") != 0 && !parse_int(end + 1, 0, INT64_MAX, &fault->index)) {
    return 0;
  }
  all->count++;
  return 1;
}

/* Writes into a [rows, columns] matrix of the type, or of double where dtype is 0. */
static void inject(const injection *fault, void *matrix, tglu_dtype dtype, int64_t rows,
                   int64_t columns, int64_t ld) {
  for (int64_t i = 0; i < rows * columns; i++) {
    if (fault->index >= 0 && fault->index != i) continue;
    int64_t at = i / columns * ld + i % columns;
    if (dtype) {
      num_store(matrix, dtype, at, fault->value);
    } else {
      ((double *)matrix)[at] = fault->value;
    }
  }
}

static void inject_all(const injections *faults, int target, void *matrix, tglu_dtype dtype,
                       int64_t rows, int64_t columns, int64_t ld) {
  for (size_t i = 0; faults && i < faults->count; i++) {
    if ((int)faults->list[i].target != target) continue;
    inject(&faults->list[i], matrix, dtype, rows, columns, ld);
  }
}

static void inject_guard(const injections *faults, const guard *out) {
  for (size_t i = 0; faults && i < faults->count; i++) {
    const injection *fault = &faults->list[i];
    if (fault->target != INJECT_GUARD || fault->index >= GUARD_BYTES) continue;
    out->data[out->bytes + (size_t)(fault->index < 0 ? 0 : fault->index)] ^= 0xff;
  }
}

static void judge(const tools *t, const spec *s, const tglu_mlp_desc *desc,
                  operands *data, const injections *faults, comparison *c) {
  const int64_t columns = op_columns(s->op, &desc->glu);
  const size_t count = (size_t)(s->tokens * columns);
  double *reference = mem_zeroed(count, sizeof *reference);
  double *allowed = mem_zeroed(count, sizeof *allowed);
  const oracle_call call = {.kind = s->op, .desc = desc, .tokens = s->tokens,
                            .x = data->args.x, .ldx = data->args.ldx,
                            .residual = data->args.residual, .ldr = data->args.ldr};
  oracle_run(&call, t->hot, t->threads, reference, allowed);
  inject_all(faults, INJECT_OUT, data->out.data, s->dtype, s->tokens, columns,
             data->args.ldo);
  inject_all(faults, INJECT_REFERENCE, reference, 0, s->tokens, columns, columns);
  inject_guard(faults, &data->out);
  compare_begin(c, s->op, s->dtype);
  compare_add(c, data->out.data, data->args.ldo, reference, allowed, s->tokens, columns);
  c->guard_damage = (int64_t)operands_damage(data, s);
  mem_free(reference);
  mem_free(allowed);
}

/* op_run on copies of the operands, and the results fetched. */
static tglu_status run_on_gpu(const gpu *g, const op *o, operands *data, int *code) {
  const guard *from[] = {&data->x, &data->out, &data->residual, &data->workspace};
  gpu_twin twins[4] = {{0}};
  tglu_status status = TGLU_OK;
  for (int i = 0; i < 4 && *code == CLI_OK; i++) *code = gpu_twin_new(&twins[i], g, from[i]);
  if (*code == CLI_OK) {
    tglu_run_args args = data->args;
    args.x = twins[0].data;
    args.out = twins[1].data;
    args.residual = args.residual ? twins[2].data : NULL;
    args.workspace = args.workspace ? twins[3].data : NULL;
    args.stream = g->stream;
    status = op_run(o, &args);
    *code = gpu_wait(g, "run");
  }
  if (*code == CLI_OK) *code = gpu_twin_fetch(&twins[0], g, &data->x);
  if (*code == CLI_OK) *code = gpu_twin_fetch(&twins[1], g, &data->out);
  if (*code == CLI_OK) *code = gpu_twin_fetch(&twins[3], g, &data->workspace);
  for (int i = 0; i < 4; i++) gpu_twin_free(&twins[i], g);
  return status;
}

static int run_and_judge(const tools *t, const op *o, const spec *s,
                         const tglu_mlp_desc *desc, const void *x, rng *random,
                         const injections *faults, check_result *result) {
  size_t workspace = 0;
  operands data;
  if (op_workspace_bytes(o, s->tokens, &workspace) != TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "workspace");
  }
  if (operands_new(&data, s, workspace, random) != 0) {
    return cli_error(CLI_RUNTIME, "out of memory for %lld tokens", (long long)s->tokens);
  }
  if (x && data.x.bytes) memcpy(data.x.data, x, data.x.bytes);
  inject_all(faults, INJECT_X, data.x.data, s->dtype, s->tokens, s->hidden, data.args.ldx);
  int code = CLI_OK;
  tglu_status status = t->gpu ? run_on_gpu(t->gpu, o, &data, &code) : op_run(o, &data.args);
  if (code != CLI_OK) {
    operands_free(&data);
    return code;
  }
  if (status == TGLU_ERR_UNSUPPORTED) {
    result->refused = status;
  } else if (status != TGLU_OK) {
    code = cli_library_error(CLI_RUNTIME, "run");
  } else {
    judge(t, s, desc, &data, faults, &result->comparison);
  }
  operands_free(&data);
  return code;
}

/* bound: what the object reads, which may be a copy of desc's weights. */
static int create_and_check(const tools *t, const spec *s, const tglu_mlp_desc *desc,
                            const tglu_mlp_desc *bound, const void *x, rng *random,
                            const injections *faults, check_result *result) {
  op o;
  tglu_status status = op_create(&o, s->op, t->context, bound);
  if (status == TGLU_ERR_UNSUPPORTED) {
    result->refused = status;
    return CLI_OK;
  }
  if (status != TGLU_OK) {
    return cli_library_error(place_exit_code(status), "%s", op_name(s->op));
  }
  tglu_plan_info plan;
  if (op_plan(&o, s->tokens, &plan) == TGLU_OK) {
    snprintf(result->row, sizeof result->row, "%s", plan.row ? plan.row : "");
    snprintf(result->down_row, sizeof result->down_row, "%s",
             plan.down_row ? plan.down_row : "");
  }
  int code = run_and_judge(t, &o, s, desc, x, random, faults, result);
  op_destroy(&o);
  return code;
}

int check_call(const tools *t, const spec *s, const tglu_mlp_desc *desc, const void *x,
               rng *random, const injections *faults, check_result *result) {
  memset(result, 0, sizeof *result);
  compare_begin(&result->comparison, s->op, s->dtype);
  if (!t->gpu) return create_and_check(t, s, desc, desc, x, random, faults, result);
  gpu_weights copies;
  int code = gpu_weights_new(&copies, t->gpu, s->op, desc, (size_t)s->misalign);
  if (code == CLI_OK) {
    code = create_and_check(t, s, desc, &copies.desc, x, random, faults, result);
  }
  gpu_weights_free(&copies, t->gpu);
  return code;
}

int check_spec(const tools *t, const spec *s, uint64_t seed, const injections *faults,
               check_result *result) {
  rng random;
  weights w;
  rng_seed(&random, seed);
  if (weights_new(&w, s, &random) != 0) {
    char text[256];
    spec_text(s, text, sizeof text);
    return cli_error(CLI_RUNTIME, "out of memory for the weights of %s", text);
  }
  int code = check_call(t, s, &w.desc, NULL, &random, faults, result);
  weights_free(&w);
  return code;
}
