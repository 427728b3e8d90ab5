#include "host_time.h"

#include "../cli.h"
#include "../progress.h"
#include "../stats.h"

enum { BATCH = 400, BATCHES = 41 }; /* a batch fits the launch queue */

static int first_result(bench *b, const data *d, double *ms) {
  double begin = clock_now();
  tglu_context_options o;
  tglu_context_options_init(&o);
  o.backend = TGLU_BACKEND_CUDA;
  o.device = (int32_t)b->args.gpu;
  o.tune_cache = "";
  o.cuda_library = b->args.driver;
  tglu_context *context = NULL;
  tglu_glu *glu = NULL;
  tglu_mlp_desc desc;
  tglu_mlp_desc_init(&desc);
  data_bind(d, 0, &desc);
  if (tglu_context_create(&o, &context) != TGLU_OK ||
      tglu_glu_create(context, &desc.glu, &glu) != TGLU_OK) {
    int code = cli_library_error(CLI_RUNTIME, "creation");
    tglu_context_destroy(context);
    return code;
  }
  row_object object = {.glu = glu};
  gpu_pointer no_workspace = 0;
  row_calls once = {.d = d, .objects = &object, .workspaces = &no_workspace};
  int code = row_calls_enqueue(&once, 0, b->gpu.stream);
  if (code == CLI_OK) code = gpu_wait(&b->gpu, "the first result");
  *ms = 1e3 * (clock_now() - begin);
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  return code;
}

static int enqueue_empty(bench *b) {
  static const struct {
    _Alignas(64) unsigned char bytes[BENCH_EMPTY_BYTES];
  } parameter;
  void *parameters[] = {(void *)(uintptr_t)&parameter};
  gpu_launch_config config = {.grid_x = 1, .grid_y = 1, .grid_z = 1,
                              .block_x = BENCH_THREADS, .block_y = 1, .block_z = 1,
                              .stream = b->gpu.stream};
  int result = b->gpu.launch(&config, b->gpu.empty_kernel, parameters, NULL);
  return result ? gpu_check(&b->gpu, result, "launch of the empty kernel") : CLI_OK;
}

/* Mean of one batch; the device catches up after it, outside the time. */
static int batch(bench *b, row_calls *calls, double *ns) {
  double begin = clock_now();
  for (int i = 0; i < BATCH; i++) {
    int set = calls ? i % calls->d->sets : 0;
    int code = calls ? row_calls_enqueue(calls, set, b->gpu.stream) : enqueue_empty(b);
    if (code != CLI_OK) return code;
  }
  *ns = 1e9 * (clock_now() - begin) / BATCH;
  return gpu_wait(&b->gpu, "a batch of launches");
}

int host_time_measure(bench *b, const spec *p, host_time *t) {
  data d;
  row_calls calls[2] = {{0}, {0}};
  double ns[3][BATCHES];
  int code = data_create(&d, &b->gpu, p, b->args.seed);
  if (code == CLI_OK) code = first_result(b, &d, &t->first_result_ms);
  if (code == CLI_OK) code = rows_open(&b->rows, &b->args);
  for (int pdl = 0; pdl < 2 && code == CLI_OK; pdl++) {
    code = row_calls_create(&calls[pdl], &b->rows, ROWS_PLANNER, pdl, &d);
  }
  for (int i = 0; i < BATCHES && code == CLI_OK; i++) {
    code = batch(b, &calls[0], &ns[0][i]);
    if (code == CLI_OK) code = batch(b, &calls[1], &ns[1][i]);
    if (code == CLI_OK) code = batch(b, NULL, &ns[2][i]);
  }
  if (code == CLI_OK) {
    t->run_ns[0] = stats_median(ns[0], BATCHES);
    t->run_ns[1] = stats_median(ns[1], BATCHES);
    t->empty_ns = stats_median(ns[2], BATCHES);
  }
  row_calls_destroy(&calls[0]);
  row_calls_destroy(&calls[1]);
  data_destroy(&d);
  return code;
}
