/* The driver library, and NVML. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../cli/cuda_bench/gpu.h"
#include "fake.h"

enum { LAUNCH_FAILED = 719, INVALID = 1, STACK = 16, MODULE = 32 /* functions */ };

typedef struct fake_graph {
  fake_op *ops;
  size_t count, capacity;
  int runs;
} fake_graph;

typedef struct fake_stream {
  fake_graph *capture;
} fake_stream;

typedef struct fake_function {
  char name[96];
} fake_function;

static double now_us;
static int dirty;             /* outputs were poisoned since the last graph */
static void *stack[STACK];    /* the bench has one thread */
static int depth;

void fake_advance(double us) { now_us += us; }

int fake_fails(const char *name) {
  static int seen;
  const char *wanted = getenv("FAKE_FAIL");
  if (!wanted) return 0;
  size_t length = strcspn(wanted, ":");
  if (strlen(name) != length || strncmp(wanted, name, length) != 0) return 0;
  int from = wanted[length] ? atoi(wanted + length + 1) : 0;
  return seen++ >= from;
}

/* ---- energy ---- */

#define BUSY 0.1 /* seconds */
#define ENERGY_STEP 0.02
static double spent_until, busy_until, spent_mj;
static unsigned long long shown_mj;

static double wall(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void spend_to(double when) {
  double busy = fmax(0, fmin(when, busy_until) - spent_until);
  spent_mj += 1e3 * (500 * busy + 100 * (when - spent_until - busy));
  spent_until = when;
}

/* The counter shows what was spent by its last step. */
static void spend(void) {
  double now = wall(), last = ENERGY_STEP * floor(now / ENERGY_STEP);
  if (spent_until == 0) spent_until = now;
  if (last > spent_until) {
    spend_to(last);
    shown_mj = (unsigned long long)spent_mj;
  }
  spend_to(now);
}

static void trace(const char *what, const char *kernel, size_t count) {
  const char *path = getenv("FAKE_TRACE");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s %s %zu %.3f\n", what, kernel, count, now_us);
  fclose(file);
}

static int number(const char *variable, int otherwise) {
  const char *text = getenv(variable);
  return text ? atoi(text) : otherwise;
}

static void graph_push(fake_graph *g, const fake_op *op) {
  if (g->count == g->capacity) {
    g->capacity = g->capacity ? 2 * g->capacity : 32;
    g->ops = realloc(g->ops, g->capacity * sizeof *g->ops);
    if (!g->ops) abort();
  }
  fake_op *to = &g->ops[g->count];
  *to = *op;
  for (size_t i = 0; i < g->count && !to->repeated; i++) {
    to->repeated = g->ops[i].run == op->run &&
                   memcmp(g->ops[i].words, op->words, sizeof op->words) == 0;
  }
  g->count++;
}

int fake_enqueue(void *stream, const fake_op *op) {
  fake_stream *s = stream;
  if (s && s->capture) {
    graph_push(s->capture, op);
    return 0;
  }
  op->run(op);
  now_us += op->us;
  return 0;
}

#define CALL(name, ...)                \
  FAKE_EXPORT int name(__VA_ARGS__);   \
  int name(__VA_ARGS__)
#define MAY_FAIL(name)                          \
  do {                                          \
    if (fake_fails(name)) return LAUNCH_FAILED; \
  } while (0)

CALL(cuInit, unsigned flags) {
  MAY_FAIL("cuInit");
  return flags ? INVALID : number("FAKE_INIT", 0);
}

CALL(cuDriverGetVersion, int *version) {
  MAY_FAIL("cuDriverGetVersion");
  *version = 13000;
  return 0;
}

CALL(cuGetErrorName, int error, const char **text) {
  *text = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_FAKE";
  return 0;
}

CALL(cuGetErrorString, int error, const char **text) {
  (void)error;
  *text = "a planted failure";
  return 0;
}

CALL(cuDeviceGetCount, int *count) {
  MAY_FAIL("cuDeviceGetCount");
  *count = number("FAKE_DEVICES", 1);
  return 0;
}

CALL(cuDeviceGet, int *device, int ordinal) {
  MAY_FAIL("cuDeviceGet");
  *device = ordinal;
  return 0;
}

CALL(cuDeviceGetName, char *name, int bytes, int device) {
  (void)device;
  MAY_FAIL("cuDeviceGetName");
  snprintf(name, (size_t)bytes, "Fake H200");
  return 0;
}

CALL(cuDeviceGetPCIBusId, char *text, int bytes, int device) {
  (void)device;
  MAY_FAIL("cuDeviceGetPCIBusId");
  snprintf(text, (size_t)bytes, "0000:01:00.0");
  return 0;
}

CALL(cuDeviceGetAttribute, int *value, int attribute, int device) {
  (void)device;
  MAY_FAIL("cuDeviceGetAttribute");
  switch (attribute) {
  case 16: *value = 132; return 0;
  case 38: *value = 65536; return 0; /* L2: small, as the shapes are */
  case 75: *value = number("FAKE_MAJOR", 9); return 0;
  case 76: *value = 0; return 0;
  case 95: *value = 1; return 0;
  case 97: *value = 232448; return 0;
  default: return INVALID;
  }
}

CALL(cuDevicePrimaryCtxRetain, void **context, int device) {
  static int primary;
  (void)device;
  MAY_FAIL("cuDevicePrimaryCtxRetain");
  *context = &primary;
  return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, int device) {
  (void)device;
  return 0;
}

CALL(cuCtxGetCurrent, void **context) {
  *context = depth ? stack[depth - 1] : NULL;
  return 0;
}

CALL(cuCtxSetCurrent, void *context) {
  MAY_FAIL("cuCtxSetCurrent");
  if (!depth) depth = 1;
  stack[depth - 1] = context;
  return 0;
}

CALL(cuCtxPushCurrent_v2, void *context) {
  if (depth == STACK) return INVALID;
  stack[depth++] = context;
  return 0;
}

CALL(cuCtxPopCurrent_v2, void **context) {
  if (!depth) return INVALID;
  *context = stack[--depth];
  return 0;
}

CALL(cuCtxSynchronize, void) {
  MAY_FAIL("cuCtxSynchronize");
  return 0;
}

CALL(cuMemGetInfo_v2, size_t *available, size_t *total) {
  MAY_FAIL("cuMemGetInfo");
  *available = (size_t)number("FAKE_MEMORY_MIB", 4096) << 20;
  *total = (size_t)8 << 30;
  return 0;
}

CALL(cuMemAlloc_v2, uint64_t *pointer, size_t bytes) {
  MAY_FAIL("cuMemAlloc");
  void *memory = NULL;
  if (posix_memalign(&memory, 256, bytes) != 0) return 2;
  memset(memory, 0xa5, bytes < 1 << 20 ? bytes : 1 << 20);
  *pointer = (uint64_t)(uintptr_t)memory;
  return 0;
}

CALL(cuMemFree_v2, uint64_t pointer) {
  free((void *)(uintptr_t)pointer);
  return 0;
}

CALL(cuMemcpyHtoD_v2, uint64_t to, const void *from, size_t bytes) {
  MAY_FAIL("cuMemcpyHtoD");
  memcpy((void *)(uintptr_t)to, from, bytes);
  return 0;
}

CALL(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t bytes) {
  MAY_FAIL("cuMemcpyDtoH");
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return 0;
}

CALL(cuMemsetD16_v2, uint64_t to, unsigned short value, size_t count) {
  MAY_FAIL("cuMemsetD16");
  uint16_t *data = (uint16_t *)(uintptr_t)to;
  for (size_t i = 0; i < count; i++) data[i] = value;
  dirty = 1;
  return 0;
}

/* A cubin, or a fat binary of version 1. */
static bool is_image(const void *image) {
  static const unsigned char fat[] = {0x50, 0xed, 0x55, 0xba, 1, 0};
  return memcmp(image, "\177ELF", 4) == 0 || memcmp(image, fat, sizeof fat) == 0;
}

CALL(cuModuleLoadData, fake_function **module, const void *image) {
  MAY_FAIL("cuModuleLoadData");
  if (!is_image(image)) return 200;
  *module = calloc(MODULE, sizeof **module);
  return *module ? 0 : 2;
}

CALL(cuModuleUnload, fake_function *module) {
  free(module);
  return 0;
}

CALL(cuModuleGetFunction, fake_function **function, fake_function *module, const char *name) {
  MAY_FAIL("cuModuleGetFunction");
  for (int i = 0; i < MODULE; i++) {
    if (module[i].name[0]) continue;
    snprintf(module[i].name, sizeof module[i].name, "%s", name);
    *function = &module[i];
    return 0;
  }
  return 500;
}

CALL(cuFuncSetAttribute, void *function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return 0;
}

CALL(cuFuncLoad, void *function) {
  (void)function;
  return 0;
}

CALL(cuOccupancyMaxActiveClusters, int *clusters, void *function,
     const gpu_launch_config *config) {
  (void)function;
  *clusters = 132 / (int)config->grid_x;
  return 0;
}

CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *function, int threads,
     size_t smem_bytes) {
  (void)function, (void)threads, (void)smem_bytes;
  *blocks = 1;
  return 0;
}

CALL(cuThreadExchangeStreamCaptureMode, int *mode) {
  *mode = 0;
  return 0;
}

CALL(cuPointerGetAttribute, void *value, int attribute, uint64_t pointer) {
  (void)pointer;
  int answer = attribute == 2 ? 2 : 0;
  memcpy(value, &answer, sizeof answer);
  return 0;
}

CALL(cuTensorMapEncodeTiled, uint64_t *map, int type, uint32_t rank, void *address,
     const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
     const uint32_t *element_strides, int interleave, int swizzle, int promotion, int fill) {
  (void)type, (void)dims, (void)box, (void)element_strides, (void)interleave;
  (void)swizzle, (void)promotion, (void)fill;
  memset(map, 0, 128);
  map[1] = (uint64_t)(uintptr_t)address;
  map[2] = strides[rank - 2];
  return 0;
}

CALL(cuLaunchKernelEx, const gpu_launch_config *config, fake_function *function,
     void **parameters, void **extra) {
  MAY_FAIL("cuLaunchKernelEx");
  fake_op op;
  if (extra || !config->grid_x || fake_kernel_op(function->name, parameters, &op)) return INVALID;
  return fake_enqueue(config->stream, &op);
}

CALL(cuStreamCreate, fake_stream **stream, unsigned flags) {
  MAY_FAIL("cuStreamCreate");
  *stream = calloc(1, sizeof **stream);
  return flags == 1 && *stream ? 0 : INVALID;
}

CALL(cuStreamDestroy_v2, fake_stream *stream) {
  free(stream);
  return 0;
}

CALL(cuStreamBeginCapture_v2, fake_stream *stream, int mode) {
  MAY_FAIL("cuStreamBeginCapture");
  if (stream->capture || mode < 0 || mode > 2) return 901;
  stream->capture = calloc(1, sizeof *stream->capture);
  return stream->capture ? 0 : 2;
}

CALL(cuStreamEndCapture, fake_stream *stream, fake_graph **graph) {
  if (!stream->capture) return 901;
  *graph = stream->capture;
  stream->capture = NULL;
  MAY_FAIL("cuStreamEndCapture");
  return 0;
}

CALL(cuGraphInstantiateWithFlags, fake_graph **exec, const fake_graph *graph,
     unsigned long long flags) {
  MAY_FAIL("cuGraphInstantiate");
  (void)flags;
  *exec = calloc(1, sizeof **exec);
  if (!*exec) return 2;
  for (size_t i = 0; i < graph->count; i++) graph_push(*exec, &graph->ops[i]);
  return 0;
}

static int graph_free(fake_graph *graph) {
  free(graph->ops);
  free(graph);
  return 0;
}

CALL(cuGraphExecDestroy, fake_graph *exec) { return graph_free(exec); }
CALL(cuGraphDestroy, fake_graph *graph) { return graph_free(graph); }

/* What a graph computes is computed when it first runs, and after outputs were poisoned. */
CALL(cuGraphLaunch, fake_graph *exec, fake_stream *stream) {
  MAY_FAIL("cuGraphLaunch");
  if (!stream || stream->capture) return INVALID;
  int compute = dirty || exec->runs++ == 0;
  dirty = 0;
  for (size_t i = 0; i < exec->count; i++) {
    if (compute && !exec->ops[i].repeated) exec->ops[i].run(&exec->ops[i]);
    now_us += exec->ops[i].us;
  }
  now_us += 1;
  spend();
  busy_until = wall() + BUSY;
  trace("graph", exec->count ? exec->ops[exec->count - 1].kernel : "none", exec->count);
  return 0;
}

CALL(cuEventCreate, double **event, unsigned flags) {
  (void)flags;
  MAY_FAIL("cuEventCreate");
  *event = calloc(1, sizeof **event);
  return *event ? 0 : 2;
}

CALL(cuEventDestroy_v2, double *event) {
  free(event);
  return 0;
}

CALL(cuEventRecord, double *event, void *stream) {
  (void)stream;
  MAY_FAIL("cuEventRecord");
  *event = now_us;
  trace("event", "-", 0);
  return 0;
}

CALL(cuEventQuery, const double *event) {
  (void)event;
  MAY_FAIL("cuEventQuery");
  return number("FAKE_HANG", 0) ? 600 : 0;
}

CALL(cuEventElapsedTime, float *ms, const double *start, const double *end) {
  MAY_FAIL("cuEventElapsedTime");
  *ms = (float)((*end - *start) * 1e-3);
  return 0;
}

/* ---- NVML ---- */

CALL(nvmlInit_v2, void) { return number("FAKE_NVML", 0); }
CALL(nvmlShutdown, void) { return 0; }

CALL(nvmlDeviceGetHandleByPciBusId_v2, const char *pci, void **device) {
  static int handle;
  *device = &handle;
  return strcmp(pci, "0000:01:00.0") == 0 ? 0 : 6;
}

CALL(nvmlSystemGetDriverVersion, char *text, unsigned bytes) {
  snprintf(text, bytes, "580.00.fake");
  return 0;
}

CALL(nvmlDeviceGetClockInfo, void *device, unsigned kind, unsigned *mhz) {
  (void)device;
  *mhz = 1395;
  return kind == 1 ? 0 : 2;
}

/* 500 W from a launch on for BUSY of this machine's time, 100 W otherwise; a step each 20 ms. */
CALL(nvmlDeviceGetTotalEnergyConsumption, void *device, unsigned long long *millijoules) {
  (void)device;
  spend();
  *millijoules = shown_mj;
  return 0;
}
