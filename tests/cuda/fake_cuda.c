#include "fake_cuda.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static fake_cuda state = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct tglu__CUctx_st {
  int32_t device;
} primaries[FAKE_DEVICES] = {{0}, {1}};

enum { STACK = 16 };
static _Thread_local tglu__CUcontext stack[STACK];
static _Thread_local int32_t depth;
static _Thread_local int32_t capture_mode = TGLU__CU_STREAM_CAPTURE_MODE_GLOBAL;

EXPORT fake_cuda *fake_cuda_state(void);
EXPORT void fake_cuda_reset(void);
EXPORT int32_t fake_cuda_depth(void);
EXPORT int32_t fake_cuda_capture_mode(void);

fake_cuda *fake_cuda_state(void) { return &state; }
int32_t fake_cuda_depth(void) { return depth; }
int32_t fake_cuda_capture_mode(void) { return capture_mode; }

void fake_cuda_reset(void) {
  pthread_mutex_t lock = state.lock;
  memset(&state, 0, sizeof state);
  state.lock = lock;
  state.version = 13000;
  state.devices = 1;
  state.major = 9;
  state.sm_count = 132;
  state.smem_bytes = 232448;
  state.cooperative = state.blocks_an_sm = 1;
  state.clusters_of_4 = 30;
  depth = 0;
  capture_mode = TGLU__CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* Records the call; the result that it is to fail with, or 0. */
static tglu__CUresult record(const char *name) {
  pthread_mutex_lock(&state.lock);
  if (state.call_total < FAKE_CALLS) state.calls[state.call_total] = name;
  ++state.call_total;
  tglu__CUresult result = 0;
  if (state.fail_call != NULL && strcmp(state.fail_call, name) == 0 &&
      state.fail_after-- <= 0) {
    result = state.fail_code;
  }
  pthread_mutex_unlock(&state.lock);
  return result;
}

#define RECORD(name)                                     \
  do {                                                   \
    const tglu__CUresult planted_ = record(name);        \
    if (planted_ != TGLU__CUDA_SUCCESS) return planted_; \
  } while (0)
/* Calls that a stream capture forbids to a thread that has not relaxed its mode. */
#define UNSAFE()                                                                    \
  do {                                                                              \
    if (state.capturing && capture_mode != TGLU__CU_STREAM_CAPTURE_MODE_RELAXED)     \
      return FAKE_STREAM_CAPTURE_UNSUPPORTED;                                       \
  } while (0)
#define CALL(name, ...)                           \
  EXPORT tglu__CUresult name(__VA_ARGS__);        \
  tglu__CUresult name(__VA_ARGS__)

CALL(cuInit, uint32_t flags) {
  RECORD("cuInit");
  return flags != 0 ? TGLU__CUDA_ERROR_INVALID_VALUE : state.init_result;
}

CALL(cuDriverGetVersion, int32_t *version) {
  RECORD("cuDriverGetVersion");
  *version = state.version;
  return 0;
}

CALL(cuGetErrorName, tglu__CUresult error, const char **text) {
  (void)error;
  *text = "FAKE_ERROR";
  return 0;
}

CALL(cuGetErrorString, tglu__CUresult error, const char **text) {
  (void)error;
  *text = "a planted failure";
  return 0;
}

CALL(cuDeviceGetCount, int32_t *count) {
  RECORD("cuDeviceGetCount");
  *count = state.devices;
  return 0;
}

CALL(cuDeviceGet, tglu__CUdevice *device, int32_t ordinal) {
  RECORD("cuDeviceGet");
  *device = ordinal;
  return ordinal < state.devices ? 0 : 101;
}

CALL(cuDeviceGetName, char *name, int32_t bytes, tglu__CUdevice device) {
  (void)device;
  RECORD("cuDeviceGetName");
  strncpy(name, "Fake H200", (size_t)bytes);
  return 0;
}

CALL(cuDeviceGetAttribute, int32_t *value, int32_t attribute, tglu__CUdevice device) {
  (void)device;
  RECORD("cuDeviceGetAttribute");
  switch (attribute) {
    case TGLU__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state.major; break;
    case TGLU__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state.minor; break;
    case TGLU__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = state.sm_count; break;
    case TGLU__CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = state.smem_bytes;
      break;
    case TGLU__CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: *value = state.cooperative; break;
    default: return TGLU__CUDA_ERROR_INVALID_VALUE;
  }
  return 0;
}

CALL(cuDevicePrimaryCtxRetain, tglu__CUcontext *ctx, tglu__CUdevice device) {
  RECORD("cuDevicePrimaryCtxRetain");
  UNSAFE();
  pthread_mutex_lock(&state.lock);
  ++state.retained[device];
  pthread_mutex_unlock(&state.lock);
  *ctx = &primaries[device];
  return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, tglu__CUdevice device) {
  RECORD("cuDevicePrimaryCtxRelease_v2");
  pthread_mutex_lock(&state.lock);
  if (--state.retained[device] < 0) ++state.balance_errors;
  pthread_mutex_unlock(&state.lock);
  return 0;
}

CALL(cuCtxGetCurrent, tglu__CUcontext *ctx) {
  RECORD("cuCtxGetCurrent");
  *ctx = depth > 0 ? stack[depth - 1] : NULL;
  return 0;
}

CALL(cuCtxPushCurrent_v2, tglu__CUcontext ctx) {
  RECORD("cuCtxPushCurrent_v2");
  if (depth == STACK) return TGLU__CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = ctx;
  return 0;
}

CALL(cuCtxPopCurrent_v2, tglu__CUcontext *ctx) {
  RECORD("cuCtxPopCurrent_v2");
  if (depth == 0) {
    ++state.balance_errors;
    return 201;
  }
  *ctx = stack[--depth];
  return 0;
}

/* A fat binary: magic, version 1, a header of 16 bytes; then one packed cubin of sm_90. */
static bool is_image(const void *data) {
  static const unsigned char head[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
  const unsigned char *at = (const unsigned char *)data;
  return memcmp(at, head, sizeof head) == 0 && at[16] == 2 && at[16 + 28] == 90;
}

CALL(cuModuleLoadData, tglu__CUmodule *module, const void *data) {
  RECORD("cuModuleLoadData");
  UNSAFE();
  if (depth == 0) return 201;
  if (!is_image(data)) return 200;
  pthread_mutex_lock(&state.lock);
  fake_module *at = &state.modules[state.module_total++ % FAKE_MODULES];
  *at = (fake_module){.live = 1, .device = stack[depth - 1]->device};
  pthread_mutex_unlock(&state.lock);
  *module = (tglu__CUmodule)(void *)at;
  return 0;
}

CALL(cuModuleUnload, tglu__CUmodule module) {
  RECORD("cuModuleUnload");
  UNSAFE();
  fake_module *at = (fake_module *)(void *)module;
  if (!at->live || depth == 0) ++state.balance_errors;
  at->live = 0;
  return 0;
}

CALL(cuModuleGetFunction, tglu__CUfunction *function, tglu__CUmodule module,
     const char *name) {
  RECORD("cuModuleGetFunction");
  UNSAFE();
  fake_module *at = (fake_module *)(void *)module;
  strncpy(at->kernel, name, sizeof at->kernel - 1);
  *function = (tglu__CUfunction)(void *)at;
  return 0;
}

CALL(cuFuncSetAttribute, tglu__CUfunction function, int32_t attribute, int32_t value) {
  RECORD("cuFuncSetAttribute");
  UNSAFE();
  if (attribute != TGLU__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
      value > state.smem_bytes)
    return TGLU__CUDA_ERROR_INVALID_VALUE;
  ((fake_module *)(void *)function)->smem_limit = value;
  return 0;
}

CALL(cuFuncLoad, tglu__CUfunction function) {
  RECORD("cuFuncLoad");
  UNSAFE();
  ((fake_module *)(void *)function)->loaded = 1;
  return 0;
}

CALL(cuOccupancyMaxActiveClusters, int32_t *clusters, tglu__CUfunction function,
     const tglu__CUlaunchConfig *config) {
  (void)function;
  RECORD("cuOccupancyMaxActiveClusters");
  if (config->numAttrs != 1 ||
      config->attrs[0].id != TGLU__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    return TGLU__CUDA_ERROR_INVALID_VALUE;
  int32_t size = (int32_t)config->attrs[0].value.clusterDim.x;
  *clusters = size == 4 ? state.clusters_of_4 : state.sm_count / size;
  return 0;
}

CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int32_t *blocks, tglu__CUfunction function,
     int32_t threads, size_t smem_bytes) {
  RECORD("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (threads != 384 || smem_bytes > (size_t)((fake_module *)(void *)function)->smem_limit)
    return TGLU__CUDA_ERROR_INVALID_VALUE;
  *blocks = state.blocks_an_sm;
  return 0;
}

CALL(cuThreadExchangeStreamCaptureMode, int32_t *mode) {
  RECORD("cuThreadExchangeStreamCaptureMode");
  int32_t before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return 0;
}

CALL(cuPointerGetAttribute, void *value, int32_t attribute, tglu__CUdeviceptr pointer) {
  RECORD("cuPointerGetAttribute");
  if (pointer == state.host_pointer) return TGLU__CUDA_ERROR_INVALID_VALUE;
  int32_t answer = 0;
  if (attribute == TGLU__CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    answer = TGLU__CU_MEMORYTYPE_DEVICE;
  if (attribute == TGLU__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    answer = pointer == state.other_pointer ? 1 : 0;
  memcpy(value, &answer, sizeof answer);
  return 0;
}

CALL(cuTensorMapEncodeTiled, tglu__CUtensorMap *map, int32_t type, uint32_t rank,
     void *address, const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
     const uint32_t *element_strides, int32_t interleave, int32_t swizzle,
     int32_t l2_promotion, int32_t oob_fill) {
  RECORD("cuTensorMapEncodeTiled");
  if (depth == 0) return TGLU__CUDA_ERROR_INVALID_CONTEXT; /* as a real driver does */
  uint32_t swizzle_bytes = swizzle == 0 ? 1024 : 16u << swizzle;
  if (rank == 3 && (strides[1] % 16 != 0 || strides[1] >= (uint64_t)1 << 40 || box[2] == 0 ||
                    box[2] > 256 || dims[2] == 0 || dims[2] > (uint64_t)1 << 32 ||
                    strides[1] < strides[0] * dims[1]))
    return TGLU__CUDA_ERROR_INVALID_VALUE;
  if ((uintptr_t)map % 64 != 0 || (uintptr_t)address % 16 != 0 || strides[0] % 16 != 0 ||
      strides[0] >= (uint64_t)1 << 40 || (rank != 2 && rank != 3) || box[0] > 256 || box[1] > 256 ||
      box[0] == 0 || box[1] == 0 || box[0] * 2 % 16 != 0 || box[0] * 2 > swizzle_bytes ||
      dims[0] == 0 || dims[1] == 0 || dims[0] > (uint64_t)1 << 32 ||
      dims[1] > (uint64_t)1 << 32 || strides[0] < dims[0] * 2)
    return TGLU__CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&state.lock);
  int32_t index = state.encode_total++;
  state.encodes[index % FAKE_ENCODES] =
    (fake_encode){.type = type, .rank = rank, .address = (uintptr_t)address,
                  .dims = {dims[0], dims[1], rank > 2 ? dims[2] : 0},
                  .stride = strides[0], .outer_stride = rank > 2 ? strides[1] : 0,
                  .box = {box[0], box[1], rank > 2 ? box[2] : 0},
                  .element_strides = {element_strides[0], element_strides[1]},
                  .interleave = interleave, .swizzle = swizzle,
                  .l2_promotion = l2_promotion, .oob_fill = oob_fill};
  pthread_mutex_unlock(&state.lock);
  memset(map, 0, sizeof *map);
  map->opaque[0] = FAKE_MAP_MAGIC + (uint64_t)index;
  return 0;
}

/* Bytes of the kernel's parameter, by its schedule. */
static size_t record_bytes(const char *kernel) {
  if (strstr(kernel, "_sm90_stream_mlp") != NULL) return sizeof(tglu_stream_mlp_launch);
  if (strstr(kernel, "_sm90_stream") != NULL) return sizeof(tglu_stream_launch);
  if (strstr(kernel, "_sm90_down_diag") != NULL) return sizeof(tglu_down_diag_launch);
  if (strstr(kernel, "_sm90_down_") != NULL) return sizeof(tglu_down_launch);
  if (strstr(kernel, "_general_") != NULL) return sizeof(tglu_glu_general_launch);
  const char *paired = strstr(kernel, "_paired_");
  int tile_m, tile_n = 0;
  if (paired != NULL) sscanf(paired, "_paired_%*[a-z]_%dx%d", &tile_m, &tile_n);
  return tile_n % 8 != 0 ? sizeof(tglu_glu_tail_launch) : sizeof(tglu_glu_launch);
}

/* CTAs that wait for each other must all be resident. */
static bool fits_cooperative(const tglu__CUlaunchConfig *config) {
  const uint32_t ctas = config->gridDimX * config->gridDimY * config->gridDimZ;
  for (uint32_t i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == TGLU__CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      return state.cooperative && ctas <= (uint32_t)(state.sm_count * state.blocks_an_sm);
  return true;
}

CALL(cuLaunchKernelEx, const tglu__CUlaunchConfig *config, tglu__CUfunction function,
     void **parameters, void **extra) {
  RECORD("cuLaunchKernelEx");
  const fake_module *module = (const fake_module *)(void *)function;
  if (depth == 0 || extra != NULL || config->numAttrs > 4 || !module->live ||
      stack[depth - 1]->device != module->device || config->gridDimX == 0 ||
      (int32_t)config->sharedMemBytes > module->smem_limit)
    return TGLU__CUDA_ERROR_INVALID_VALUE;
  if (!fits_cooperative(config)) return TGLU__CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  pthread_mutex_lock(&state.lock);
  fake_launch *at = &state.launches[state.launch_total++ % FAKE_LAUNCHES];
  at->config = *config;
  memcpy(at->attributes, config->attrs, config->numAttrs * sizeof at->attributes[0]);
  memset(&at->record, 0, sizeof at->record);
  memcpy(&at->record, parameters[0], record_bytes(module->kernel));
  memcpy(at->kernel, module->kernel, sizeof at->kernel);
  at->device = stack[depth - 1]->device;
  at->smem_limit = module->smem_limit;
  pthread_mutex_unlock(&state.lock);
  return 0;
}
