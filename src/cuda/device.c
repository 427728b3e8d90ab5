/* Why modules of the primary context, one a row, and not cuLibrary: a library's
 * kernels are shared by every context of a device, and so are the attributes set on
 * them; they are loaded into a context on first use, which under lazy loading is the
 * first launch: possibly inside a capture, which forbids the loading.  A module
 * belongs to one tglu_context, is loaded for good at creation, and no other part of
 * the process can lower the shared-memory limit set on its functions.  The price is
 * a copy of the code per tglu_context on the same device. */
#include "cuda/device.h"

#include <stdio.h>
#include <string.h>

static size_t state_bytes(void) {
  return sizeof(tglu__cuda) + (size_t)tglu__row_total * sizeof(tglu__cuda_kernel);
}

/* ---- entering and leaving ---- */

tglu_status tglu__cuda_check_fork(void) {
  if (tglu__fork_count() == 0) return TGLU_OK;
  return tglu__fail(TGLU_ERR_FORKED, "context: CUDA was in use before this process was "
                    "forked; fork before the first CUDA context, or start a new program");
}

tglu_status tglu__cuda_enter(const tglu__cuda *cuda, bool *pushed) {
  *pushed = false;
  tglu_status status = tglu__cuda_check_fork();
  if (status != TGLU_OK) return status;
  tglu__CUcontext current = NULL;
  tglu__CUresult result = cuda->driver.ctx_get_current(&current);
  if (result != TGLU__CUDA_SUCCESS)
    return tglu__driver_fail(&cuda->driver, result, "context: cuCtxGetCurrent");
  if (current == cuda->primary) return TGLU_OK;
  result = cuda->driver.ctx_push_current(cuda->primary);
  if (result != TGLU__CUDA_SUCCESS)
    return tglu__driver_fail(&cuda->driver, result, "context: cuCtxPushCurrent");
  *pushed = true;
  return TGLU_OK;
}

void tglu__cuda_leave(const tglu__cuda *cuda, bool pushed) {
  tglu__CUcontext ignored;
  if (pushed) cuda->driver.ctx_pop_current(&ignored);
}

static tglu_status relax(const tglu__driver *driver, int32_t *mode) {
  *mode = TGLU__CU_STREAM_CAPTURE_MODE_RELAXED;
  tglu__CUresult result = driver->thread_exchange_stream_capture_mode(mode);
  if (result == TGLU__CUDA_SUCCESS) return TGLU_OK;
  return tglu__driver_fail(driver, result, "context: cuThreadExchangeStreamCaptureMode");
}

static void unrelax(const tglu__driver *driver, int32_t mode) {
  driver->thread_exchange_stream_capture_mode(&mode);
}

tglu_status tglu__cuda_enter_slow(const tglu__cuda *cuda, tglu__cuda_scope *scope) {
  tglu_status status = tglu__cuda_enter(cuda, &scope->pushed);
  if (status != TGLU_OK) return status;
  status = relax(&cuda->driver, &scope->mode);
  if (status != TGLU_OK) tglu__cuda_leave(cuda, scope->pushed);
  return status;
}

void tglu__cuda_leave_slow(const tglu__cuda *cuda, const tglu__cuda_scope *scope) {
  unrelax(&cuda->driver, scope->mode);
  tglu__cuda_leave(cuda, scope->pushed);
}

/* ---- kernel rows ---- */

static tglu_status row_fail(const tglu__cuda *cuda, const tglu__row *row, const char *call,
                            tglu__CUresult result) {
  char what[256];
  snprintf(what, sizeof what, "row: %s: %s", row->name, call);
  return tglu__driver_fail(&cuda->driver, result, what);
}

/* Whether the row, whose CTAs wait for each other, gets an SM a CTA with all the shared memory
 * that there is: else none is resident. */
static tglu_status ask_ctas(const tglu__cuda *cuda, const tglu__row *row,
                            tglu__cuda_kernel *kernel) {
  int32_t an_sm = 0;
  tglu__CUresult result = cuda->driver.occupancy_max_active_blocks(
    &an_sm, kernel->function, tglu__row_threads(row), (size_t)cuda->facts.smem_bytes);
  if (result != TGLU__CUDA_SUCCESS)
    return row_fail(cuda, row, "cuOccupancyMaxActiveBlocksPerMultiprocessor", result);
  if (an_sm < 1) kernel->clusters = 0;
  return TGLU_OK;
}

/* Most clusters of the row that are resident at once, after the SM limit. */
static tglu_status ask_clusters(const tglu__cuda *cuda, const tglu__row *row,
                                tglu__cuda_kernel *kernel) {
  int32_t size = row->cluster_m;
  int32_t room = cuda->facts.sm_count / size;
  kernel->clusters = room;
  if (row->op == tglu__op_mlp) return ask_ctas(cuda, row, kernel);
  if (size == 1) return TGLU_OK; /* a CTA an SM: its shared memory fills it */
  tglu__CUlaunchAttribute attribute = {.id = TGLU__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
  attribute.value.clusterDim.x = (uint32_t)size;
  attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  tglu__CUlaunchConfig config = {.gridDimX = (uint32_t)size,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = (uint32_t)tglu__row_threads(row),
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = (uint32_t)tglu__row_smem_bytes(row, 1, 1),
                                 .attrs = &attribute,
                                 .numAttrs = 1};
  tglu__CUresult result = cuda->driver.occupancy_max_active_clusters(
    &kernel->clusters, kernel->function, &config);
  if (result != TGLU__CUDA_SUCCESS)
    return row_fail(cuda, row, "cuOccupancyMaxActiveClusters", result);
  if (kernel->clusters > room) kernel->clusters = room;
  return TGLU_OK;
}

/* Stream rows need more for some calls than for others: all that there is. */
static int32_t smem_limit(const tglu__cuda *cuda, const tglu__row *row) {
  if (tglu__row_is_stream(row)) return cuda->facts.smem_bytes;
  return (int32_t)tglu__row_smem_bytes(row, 1, 1);
}

static tglu_status load(const tglu__cuda *cuda, const tglu__row *row,
                        tglu__cuda_kernel *kernel) {
  const tglu__driver *driver = &cuda->driver;
  if (row->cubin->code == NULL) {
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "row: %s: built without nvcc, so without its "
                      "kernel", row->name);
  }
  tglu__CUresult result = driver->module_load_data(&kernel->module, row->cubin->code);
  if (result != TGLU__CUDA_SUCCESS) {
    kernel->module = NULL;
    return row_fail(cuda, row, "cuModuleLoadData", result);
  }
  const char *call = "cuModuleGetFunction";
  result = driver->module_get_function(&kernel->function, kernel->module, row->name);
  if (result == TGLU__CUDA_SUCCESS) {
    call = "cuFuncSetAttribute";
    result = driver->func_set_attribute(kernel->function,
                                        TGLU__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        smem_limit(cuda, row));
  }
  if (result == TGLU__CUDA_SUCCESS && driver->func_load != NULL) {
    call = "cuFuncLoad"; /* since 12.4; before, getting the function loads it */
    result = driver->func_load(kernel->function);
  }
  if (result != TGLU__CUDA_SUCCESS) return row_fail(cuda, row, call, result);
  return ask_clusters(cuda, row, kernel);
}

static void unload(const tglu__cuda *cuda, tglu__cuda_kernel *kernel) {
  if (kernel->module != NULL) cuda->driver.module_unload(kernel->module);
  *kernel = (tglu__cuda_kernel){0};
}

tglu_status tglu__cuda_load(tglu__cuda *cuda, int32_t row, tglu__cuda_kernel *kernel) {
  tglu__cuda_kernel *slot = &cuda->kernels[row];
  tglu_status status = TGLU_OK;
  pthread_mutex_lock(&cuda->lock);
  if (slot->module == NULL) {
    status = load(cuda, &tglu__rows[row], slot);
    if (status != TGLU_OK) unload(cuda, slot);
  }
  *kernel = *slot;
  pthread_mutex_unlock(&cuda->lock);
  return status;
}

/* ---- memory ---- */

tglu_status tglu__cuda_check_memory(const tglu__cuda *cuda, const char *name,
                                    const void *pointer) {
  if (pointer == NULL) return TGLU_OK;
  const tglu__driver *driver = &cuda->driver;
  tglu__CUdeviceptr address = (uintptr_t)pointer;
  uint32_t type = 0, managed = 0;
  int32_t ordinal = -1;
  tglu__CUresult result =
    driver->pointer_get_attribute(&type, TGLU__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (result == TGLU__CUDA_ERROR_INVALID_VALUE ||
      (result == TGLU__CUDA_SUCCESS && type == TGLU__CU_MEMORYTYPE_HOST)) {
    if (result == TGLU__CUDA_SUCCESS &&
        driver->pointer_get_attribute(&managed, TGLU__CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      address) == TGLU__CUDA_SUCCESS && managed)
      return TGLU_OK;
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "%s: %p is host memory; a CUDA context "
                      "reads and writes memory of its device", name, pointer);
  }
  if (result == TGLU__CUDA_SUCCESS)
    result = driver->pointer_get_attribute(
      &ordinal, TGLU__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  if (result != TGLU__CUDA_SUCCESS) {
    char what[64];
    snprintf(what, sizeof what, "%s: cuPointerGetAttribute", name);
    return tglu__driver_fail(driver, result, what);
  }
  if (ordinal == cuda->ordinal) return TGLU_OK;
  return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "%s: %p is memory of CUDA device %d, the "
                    "context is on device %d", name, pointer, (int)ordinal,
                    (int)cuda->ordinal);
}

/* ---- open ---- */

static tglu_status find_device(tglu__cuda *cuda, int32_t wanted) {
  const tglu__driver *driver = &cuda->driver;
  cuda->ordinal = wanted < 0 ? 0 : wanted;
  tglu__CUresult result = driver->device_get_count(&cuda->device_total);
  if (result != TGLU__CUDA_SUCCESS)
    return tglu__driver_fail(driver, result, "device: cuDeviceGetCount");
  if (cuda->ordinal >= cuda->device_total) {
    return tglu__fail(TGLU_ERR_NO_DEVICE, "device: %d was asked for, the driver has %d CUDA "
                      "device%s", (int)cuda->ordinal, (int)cuda->device_total,
                      cuda->device_total == 1 ? "" : "s");
  }
  result = driver->device_get(&cuda->device, cuda->ordinal);
  if (result != TGLU__CUDA_SUCCESS)
    return tglu__driver_fail(driver, result, "device: cuDeviceGet");
  result = driver->device_get_name(cuda->name, sizeof cuda->name, cuda->device);
  if (result != TGLU__CUDA_SUCCESS)
    return tglu__driver_fail(driver, result, "device: cuDeviceGetName");
  return TGLU_OK;
}

static tglu_status read_facts(tglu__cuda *cuda, int32_t sm_limit) {
  int32_t major = 0, minor = 0;
  const struct {
    int32_t attribute;
    int32_t *value;
  } wanted[] = {
    {TGLU__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
    {TGLU__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
    {TGLU__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &cuda->facts.sm_count},
    {TGLU__CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &cuda->facts.smem_bytes},
    {TGLU__CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &cuda->facts.cooperative},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
    tglu__CUresult result = cuda->driver.device_get_attribute(
      wanted[i].value, wanted[i].attribute, cuda->device);
    if (result != TGLU__CUDA_SUCCESS)
      return tglu__driver_fail(&cuda->driver, result, "device: cuDeviceGetAttribute");
  }
  if (major != 9 || minor != 0) {
    return tglu__fail(TGLU_ERR_NO_DEVICE, "device: %d, %s, has compute capability %d.%d; the "
                      "kernels need 9.0 (Hopper)", (int)cuda->ordinal, cuda->name,
                      (int)major, (int)minor);
  }
  if (sm_limit > 0 && sm_limit < cuda->facts.sm_count) cuda->facts.sm_count = sm_limit;
  return TGLU_OK;
}

/* How many clusters of each size fit, by one row of that size; also shows at once
 * whether this driver takes the kernels at all. */
static tglu_status read_clusters(tglu__cuda *cuda) {
  cuda->facts.clusters[1] = cuda->facts.sm_count;
  for (int32_t row = 0; row < tglu__row_total; ++row) {
    int32_t size = tglu__rows[row].cluster_m;
    bool first = size <= TGLU__MAX_CLUSTER;
    for (int32_t i = 0; i < row; ++i) first = first && tglu__rows[i].cluster_m != size;
    if (!first) continue;
    tglu__cuda_kernel kernel;
    tglu_status status = tglu__cuda_load(cuda, row, &kernel);
    if (status != TGLU_OK) return status;
    cuda->facts.clusters[size] = kernel.clusters;
  }
  return TGLU_OK;
}

static tglu_status retain(tglu__cuda *cuda) {
  int32_t mode;
  tglu_status status = relax(&cuda->driver, &mode);
  if (status != TGLU_OK) return status;
  tglu__CUresult result = cuda->driver.primary_ctx_retain(&cuda->primary, cuda->device);
  unrelax(&cuda->driver, mode);
  if (result == TGLU__CUDA_SUCCESS) return TGLU_OK;
  cuda->primary = NULL;
  return tglu__driver_fail(&cuda->driver, result, "device: cuDevicePrimaryCtxRetain");
}

static tglu_status open_device(tglu__cuda *cuda, const tglu_context_options *options) {
  tglu_status status = find_device(cuda, options->device);
  if (status == TGLU_OK) status = read_facts(cuda, options->sm_limit);
  if (status == TGLU_OK) status = retain(cuda);
  if (status != TGLU_OK) return status;
  tglu__cuda_scope scope;
  status = tglu__cuda_enter_slow(cuda, &scope);
  if (status != TGLU_OK) return status;
  status = read_clusters(cuda);
  tglu__cuda_leave_slow(cuda, &scope);
  return status;
}

tglu_status tglu__cuda_open(tglu_context *context, void **state) {
  tglu_status status = tglu__cuda_check_fork();
  if (status != TGLU_OK) return status;
  const tglu_context_options *options = &context->options;
  tglu__cuda *cuda = tglu__alloc(context, state_bytes(), _Alignof(tglu__cuda));
  if (cuda == NULL)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: %zu bytes could not be allocated",
                      state_bytes());
  memset(cuda, 0, state_bytes());
  pthread_mutex_init(&cuda->lock, NULL);
  cuda->forced_row = options->row != NULL ? tglu__row_find(options->row) : -1;
  status = tglu__driver_open(options->cuda_library, &cuda->driver);
  if (status == TGLU_OK) status = open_device(cuda, options);
  if (status != TGLU_OK) {
    tglu__cuda_close(context, cuda);
    return status;
  }
  context->info.device = cuda->ordinal;
  context->info.sm_count = cuda->facts.sm_count;
  context->info.compute_capability = 90;
  context->info.device_name = cuda->name;
  context->info.driver_version = cuda->driver.version;
  *state = cuda;
  return TGLU_OK;
}

/* In a forked child only memory is freed: the driver is the parent's. */
void tglu__cuda_close(tglu_context *context, void *state) {
  tglu__cuda *cuda = state;
  bool ours = tglu__fork_count() == 0;
  tglu__cuda_scope scope;
  if (ours && cuda->primary != NULL) {
    if (tglu__cuda_enter_slow(cuda, &scope) == TGLU_OK) {
      for (int32_t i = 0; i < tglu__row_total; ++i) unload(cuda, &cuda->kernels[i]);
      tglu__cuda_leave_slow(cuda, &scope);
    }
    cuda->driver.primary_ctx_release(cuda->device);
  }
  if (ours) tglu__driver_close(&cuda->driver);
  pthread_mutex_destroy(&cuda->lock);
  tglu__free(context, cuda, state_bytes());
}
