/* The bench's own access to the CUDA driver: opened at run time, nothing linked.  Types
 * are plain C ones; names and values follow cuda.h (driver API 13.0, all in 12.0). */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t gpu_pointer;
typedef struct gpu_stream_st *gpu_stream;
typedef struct gpu_event_st *gpu_event;
typedef struct gpu_graph_st *gpu_graph;
typedef struct gpu_exec_st *gpu_exec;
typedef struct gpu_module_st *gpu_module;
typedef struct gpu_function_st *gpu_function;

enum { GPU_NOT_READY = 600, GPU_NO_DEVICE = 100 };

typedef struct gpu_launch_attribute { /* 72 bytes */
  uint32_t id;
  char pad[4];
  uint64_t value[8];
} gpu_launch_attribute;

typedef struct gpu_launch_config {
  uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  gpu_stream stream;
  gpu_launch_attribute *attributes;
  uint32_t attribute_count;
} gpu_launch_config;

/* XX(field, exported name, arguments); the names carry the _v2 that cuda.h hides. */
#define GPU_CALLS(XX)                                                                     \
  XX(init, "cuInit", (unsigned flags))                                                    \
  XX(driver_version, "cuDriverGetVersion", (int *version))                                \
  XX(error_name, "cuGetErrorName", (int error, const char **text))                        \
  XX(error_string, "cuGetErrorString", (int error, const char **text))                    \
  XX(device_count, "cuDeviceGetCount", (int *count))                                      \
  XX(device_get, "cuDeviceGet", (int *device, int ordinal))                               \
  XX(device_name, "cuDeviceGetName", (char *name, int bytes, int device))                 \
  XX(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))   \
  XX(device_pci, "cuDeviceGetPCIBusId", (char *text, int bytes, int device))              \
  XX(retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                    \
  XX(release, "cuDevicePrimaryCtxRelease_v2", (int device))                               \
  XX(get_current, "cuCtxGetCurrent", (void **context))                                    \
  XX(set_current, "cuCtxSetCurrent", (void *context))                                     \
  XX(synchronize, "cuCtxSynchronize", (void))                                             \
  XX(memory_info, "cuMemGetInfo_v2", (size_t *available, size_t *total))                  \
  XX(allocate, "cuMemAlloc_v2", (gpu_pointer *pointer, size_t bytes))                     \
  XX(release_memory, "cuMemFree_v2", (gpu_pointer pointer))                               \
  XX(to_device, "cuMemcpyHtoD_v2", (gpu_pointer to, const void *from, size_t bytes))      \
  XX(to_host, "cuMemcpyDtoH_v2", (void *to, gpu_pointer from, size_t bytes))              \
  XX(set16, "cuMemsetD16_v2", (gpu_pointer to, unsigned short value, size_t count))       \
  XX(module_load, "cuModuleLoadData", (gpu_module *module, const void *image))            \
  XX(module_unload, "cuModuleUnload", (gpu_module module))                                \
  XX(module_function, "cuModuleGetFunction",                                              \
     (gpu_function *function, gpu_module module, const char *name))                       \
  XX(launch, "cuLaunchKernelEx",                                                          \
     (const gpu_launch_config *config, gpu_function function, void **parameters,          \
      void **extra))                                                                      \
  XX(stream_create, "cuStreamCreate", (gpu_stream *stream, unsigned flags))               \
  XX(stream_destroy, "cuStreamDestroy_v2", (gpu_stream stream))                           \
  XX(begin_capture, "cuStreamBeginCapture_v2", (gpu_stream stream, int mode))             \
  XX(end_capture, "cuStreamEndCapture", (gpu_stream stream, gpu_graph *graph))            \
  XX(instantiate, "cuGraphInstantiateWithFlags",                                          \
     (gpu_exec *exec, gpu_graph graph, unsigned long long flags))                         \
  XX(graph_launch, "cuGraphLaunch", (gpu_exec exec, gpu_stream stream))                   \
  XX(exec_destroy, "cuGraphExecDestroy", (gpu_exec exec))                                 \
  XX(graph_destroy, "cuGraphDestroy", (gpu_graph graph))                                  \
  XX(event_create, "cuEventCreate", (gpu_event *event, unsigned flags))                   \
  XX(event_destroy, "cuEventDestroy_v2", (gpu_event event))                               \
  XX(event_record, "cuEventRecord", (gpu_event event, gpu_stream stream))                 \
  XX(event_query, "cuEventQuery", (gpu_event event))                                      \
  XX(event_elapsed, "cuEventElapsedTime", (float *ms, gpu_event start, gpu_event end))

/* The bench's kernels, by their names in kernels/bench.cu. */
#define GPU_KERNELS(XX)                                                                   \
  XX(fill) XX(write_x) XX(empty) XX(activate) XX(reference) XX(reference_down)            \
  XX(read4) XX(read8) XX(read16) XX(count_bad)

typedef struct gpu {
#define GPU_FIELD_(field, name, arguments) int (*field) arguments;
  GPU_CALLS(GPU_FIELD_)
#undef GPU_FIELD_
#define GPU_KERNEL_(name) gpu_function name##_kernel;
  GPU_KERNELS(GPU_KERNEL_)
#undef GPU_KERNEL_
  void *library;
  gpu_module module;
  gpu_stream stream;          /* non-blocking: everything here runs on it          */
  gpu_event start, end, done;
  int device, sm_count;
  int64_t l2_bytes;
  char name[128], pci[32];
  int version;                /* 13000 is CUDA 13.0 */
  double wait_limit;          /* seconds after which a wait gives up                */
} gpu;

/* Opens the library (NULL: "libcuda.so.1"), the device's primary context, and loads the
 * kernels.  Returns an exit code, the reason said. */
int gpu_open(gpu *g, const char *library, int device);
void gpu_close(gpu *g);

/* 0 if result is success; else prints "what: CUDA_ERROR_... " and returns CLI_RUNTIME. */
__attribute__((format(printf, 3, 4)))
int gpu_check(const gpu *g, int result, const char *what, ...);

/* Launches one of the kernels on stream, a thread for each of items or a few each. */
int gpu_launch(const gpu *g, gpu_function kernel, int64_t items, gpu_stream stream,
               void **parameters);

/* Waits until the stream has done what it was given.  A device that does not finish
 * within wait_limit ends the program: nothing can be freed or asked then. */
int gpu_wait(const gpu *g, const char *what);

/* Records `which` on the stream. */
int gpu_record(const gpu *g, gpu_event which);
/* Microseconds between start and end, after gpu_wait. */
int gpu_elapsed_us(const gpu *g, double *us);

int gpu_allocate(const gpu *g, gpu_pointer *pointer, size_t bytes, const char *what);
void gpu_release(const gpu *g, gpu_pointer *pointer); /* accepts 0 */
/* Copies to the device, done when it returns. */
int gpu_upload(const gpu *g, gpu_pointer to, const void *from, size_t bytes);

#endif /* BENCH_GPU_H */
