/* The driver library, opened at run time: a table of its calls. */
#ifndef TGLU_CUDA_DRIVER_H
#define TGLU_CUDA_DRIVER_H

#include "cuda/cuda_abi.h"
#include "internal.h"

/* The one list of the calls in use: XX(field, exported name, required, arguments).
 * The exported names carry the _v2 that cuda.h hides behind macros: without it the
 * symbol is an older ABI. */
#define TGLU__DRIVER_MAP(XX)                                                             \
  XX(init, "cuInit", 1, (uint32_t flags))                                                \
  XX(driver_get_version, "cuDriverGetVersion", 1, (int32_t *version))                    \
  XX(get_error_name, "cuGetErrorName", 1, (tglu__CUresult error, const char **text))     \
  XX(get_error_string, "cuGetErrorString", 1, (tglu__CUresult error, const char **text)) \
  XX(device_get_count, "cuDeviceGetCount", 1, (int32_t *count))                          \
  XX(device_get, "cuDeviceGet", 1, (tglu__CUdevice *device, int32_t ordinal))            \
  XX(device_get_name, "cuDeviceGetName", 1,                                              \
     (char *name, int32_t bytes, tglu__CUdevice device))                                 \
  XX(device_get_attribute, "cuDeviceGetAttribute", 1,                                    \
     (int32_t *value, int32_t attribute, tglu__CUdevice device))                         \
  XX(primary_ctx_retain, "cuDevicePrimaryCtxRetain", 1,                                  \
     (tglu__CUcontext *ctx, tglu__CUdevice device))                                      \
  XX(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", 1, (tglu__CUdevice device))    \
  XX(ctx_get_current, "cuCtxGetCurrent", 1, (tglu__CUcontext *ctx))                      \
  XX(ctx_push_current, "cuCtxPushCurrent_v2", 1, (tglu__CUcontext ctx))                  \
  XX(ctx_pop_current, "cuCtxPopCurrent_v2", 1, (tglu__CUcontext *ctx))                   \
  XX(module_load_data, "cuModuleLoadData", 1, (tglu__CUmodule *module, const void *data))\
  XX(module_unload, "cuModuleUnload", 1, (tglu__CUmodule module))                        \
  XX(module_get_function, "cuModuleGetFunction", 1,                                      \
     (tglu__CUfunction *function, tglu__CUmodule module, const char *name))              \
  XX(func_set_attribute, "cuFuncSetAttribute", 1,                                        \
     (tglu__CUfunction function, int32_t attribute, int32_t value))                      \
  XX(func_load, "cuFuncLoad", 0, (tglu__CUfunction function))                            \
  XX(occupancy_max_active_clusters, "cuOccupancyMaxActiveClusters", 1,                   \
     (int32_t *clusters, tglu__CUfunction function, const tglu__CUlaunchConfig *config)) \
  XX(occupancy_max_active_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 1,      \
     (int32_t *blocks, tglu__CUfunction function, int32_t threads, size_t smem_bytes))   \
  XX(thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode", 1,        \
     (int32_t *mode))                                                                    \
  XX(pointer_get_attribute, "cuPointerGetAttribute", 1,                                  \
     (void *value, int32_t attribute, tglu__CUdeviceptr pointer))                        \
  XX(tensor_map_encode_tiled, "cuTensorMapEncodeTiled", 1,                               \
     (tglu__CUtensorMap *map, int32_t type, uint32_t rank, void *address,                \
      const uint64_t *dims, const uint64_t *strides, const uint32_t *box,                \
      const uint32_t *element_strides, int32_t interleave, int32_t swizzle,              \
      int32_t l2_promotion, int32_t oob_fill))                                           \
  XX(launch_kernel_ex, "cuLaunchKernelEx", 1,                                            \
     (const tglu__CUlaunchConfig *config, tglu__CUfunction function, void **parameters,  \
      void **extra))

typedef struct tglu__driver {
  void *handle;      /* of dlopen                                              */
  int32_t version;   /* of cuDriverGetVersion: 13000 is 13.0                   */
#define TGLU__DRIVER_FIELD_(field, name, required, arguments) tglu__CUresult(*field) arguments;
  TGLU__DRIVER_MAP(TGLU__DRIVER_FIELD_)
#undef TGLU__DRIVER_FIELD_
} tglu__driver;

/* Opens the file (NULL: "libcuda.so.1"), finds every call and starts the driver.
 * TGLU_ERR_NO_DRIVER names the file and what is missing; TGLU_ERR_NO_DEVICE where
 * the driver finds none.  Nothing stays open after a failure. */
tglu_status tglu__driver_open(const char *file, tglu__driver *driver);
void tglu__driver_close(tglu__driver *driver);

/* The message of a failed driver call: sets it and returns TGLU_ERR_DEVICE, or
 * TGLU_ERR_OUT_OF_MEMORY where the driver says that.  what: "x: cuSomething". */
tglu_status tglu__driver_fail(const tglu__driver *driver, tglu__CUresult result,
                              const char *what);

/* Forks of this process since tglu__driver_open first started a driver, counted in
 * the child.  Not 0: the driver is the parent's, and CUDA is closed to this process. */
uint32_t tglu__fork_count(void);

#endif /* TGLU_CUDA_DRIVER_H */
