#include "gpu.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cli.h"
#include "../progress.h"
#include "bench_cubin.h"
#include "kernels/bench_kernels.h"

_Static_assert(sizeof(gpu_launch_attribute) == 72, "as in cuda.h");
_Static_assert(sizeof(gpu_launch_config) == 56, "as in cuda.h");

enum { /* CUdevice_attribute */
  ATTRIBUTE_SM_COUNT = 16, ATTRIBUTE_L2_BYTES = 38, ATTRIBUTE_MAJOR = 75
};
enum { NON_BLOCKING = 1 };

int gpu_check(const gpu *g, int result, const char *what, ...) {
  if (result == 0) return CLI_OK;
  char text[256];
  va_list list;
  va_start(list, what);
  vsnprintf(text, sizeof text, what, list);
  va_end(list);
  const char *name = NULL, *string = NULL;
  g->error_name(result, &name);
  g->error_string(result, &string);
  return cli_error(CLI_RUNTIME, "%s: %s (%d): %s", text, name ? name : "unknown error",
                   result, string ? string : "no text");
}

static int find_calls(gpu *g, const char *file) {
  static const struct {
    const char *name;
    size_t offset;
  } calls[] = {
#define CALL(field, name, arguments) {name, offsetof(gpu, field)},
    GPU_CALLS(CALL)
#undef CALL
  };
  g->library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!g->library) {
    const char *reason = dlerror();
    return cli_error(CLI_RUNTIME, "cuda: no CUDA driver: %s",
                     reason ? reason : file);
  }
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    void *address = dlsym(g->library, calls[i].name);
    if (!address) {
      return cli_error(CLI_RUNTIME, "cuda: %s has no %s: the driver is too old",
                       file, calls[i].name);
    }
    memcpy((char *)g + calls[i].offset, &address, sizeof address);
  }
  return CLI_OK;
}

static int open_device(gpu *g, int ordinal) {
  int count = 0, major = 0, l2 = 0;
  int result = g->init(0);
  if (result == GPU_NO_DEVICE) {
    return cli_error(CLI_RUNTIME, "cuda: the driver finds no GPU");
  }
  if (gpu_check(g, result, "cuInit")) return CLI_RUNTIME;
  if (gpu_check(g, g->driver_version(&g->version), "cuDriverGetVersion") ||
      gpu_check(g, g->device_count(&count), "cuDeviceGetCount")) {
    return CLI_RUNTIME;
  }
  if (ordinal >= count) {
    return cli_error(CLI_RUNTIME, "--gpu %d: there are %d GPUs", ordinal, count);
  }
  if (gpu_check(g, g->device_get(&g->device, ordinal), "cuDeviceGet") ||
      gpu_check(g, g->device_name(g->name, sizeof g->name, g->device), "cuDeviceGetName") ||
      gpu_check(g, g->device_pci(g->pci, sizeof g->pci, g->device), "cuDeviceGetPCIBusId") ||
      gpu_check(g, g->device_attribute(&major, ATTRIBUTE_MAJOR, g->device),
                "cuDeviceGetAttribute (compute capability)") ||
      gpu_check(g, g->device_attribute(&g->sm_count, ATTRIBUTE_SM_COUNT, g->device),
                "cuDeviceGetAttribute (multiprocessors)") ||
      gpu_check(g, g->device_attribute(&l2, ATTRIBUTE_L2_BYTES, g->device),
                "cuDeviceGetAttribute (L2 size)")) {
    return CLI_RUNTIME;
  }
  if (major != 9) {
    return cli_error(CLI_RUNTIME, "cuda: %s has compute capability %d, the kernel "
                     "rows need 9.0 (Hopper)", g->name, major);
  }
  g->l2_bytes = l2;
  return CLI_OK;
}

static int load_kernels(gpu *g) {
  static const struct {
    const char *name;
    size_t offset;
  } kernels[] = {
#define KERNEL(name) {"bench_" #name, offsetof(gpu, name##_kernel)},
    GPU_KERNELS(KERNEL)
#undef KERNEL
  };
  if (gpu_check(g, g->module_load(&g->module, bench_cubin), "loading the bench's kernels")) {
    return CLI_RUNTIME;
  }
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
    gpu_function function = NULL;
    if (gpu_check(g, g->module_function(&function, g->module, kernels[i].name),
                  "cuModuleGetFunction %s", kernels[i].name)) {
      return CLI_RUNTIME;
    }
    memcpy((char *)g + kernels[i].offset, &function, sizeof function);
  }
  return CLI_OK;
}

static int open_context(gpu *g) {
  void *context = NULL;
  if (gpu_check(g, g->retain(&context, g->device), "cuDevicePrimaryCtxRetain") ||
      gpu_check(g, g->set_current(context), "cuCtxSetCurrent") ||
      gpu_check(g, g->stream_create(&g->stream, NON_BLOCKING), "cuStreamCreate") ||
      gpu_check(g, g->event_create(&g->start, 0), "cuEventCreate") ||
      gpu_check(g, g->event_create(&g->end, 0), "cuEventCreate") ||
      gpu_check(g, g->event_create(&g->done, 0), "cuEventCreate")) {
    return CLI_RUNTIME;
  }
  return load_kernels(g);
}

int gpu_open(gpu *g, const char *library, int device) {
  memset(g, 0, sizeof *g);
  g->wait_limit = 60;
  if (bench_cubin_bytes == 0) {
    return cli_error(CLI_RUNTIME, "cuda: this build has no GPU kernels: it was "
                     "built without nvcc");
  }
  int code = find_calls(g, library ? library : "libcuda.so.1");
  if (code == CLI_OK) code = open_device(g, device);
  if (code == CLI_OK) code = open_context(g);
  return code;
}

void gpu_close(gpu *g) {
  if (g->module) g->module_unload(g->module);
  if (g->start) g->event_destroy(g->start);
  if (g->end) g->event_destroy(g->end);
  if (g->done) g->event_destroy(g->done);
  if (g->stream) {
    g->stream_destroy(g->stream);
    g->set_current(NULL);
    g->release(g->device);
  }
  if (g->library) dlclose(g->library);
  memset(g, 0, sizeof *g);
}

int gpu_launch(const gpu *g, gpu_function kernel, int64_t items, gpu_stream stream,
               void **parameters) {
  int64_t blocks = (items + BENCH_THREADS - 1) / BENCH_THREADS, most = 16 * g->sm_count;
  if (blocks > most) blocks = most;
  if (blocks < 1) blocks = 1;
  gpu_launch_config config = {.grid_x = (uint32_t)blocks, .grid_y = 1, .grid_z = 1,
                              .block_x = BENCH_THREADS, .block_y = 1, .block_z = 1,
                              .stream = stream};
  return gpu_check(g, g->launch(&config, kernel, parameters, NULL),
                   "launch of one of the bench's kernels");
}

int gpu_record(const gpu *g, gpu_event which) {
  return gpu_check(g, g->event_record(which, g->stream), "cuEventRecord");
}

int gpu_wait(const gpu *g, const char *what) {
  if (gpu_record(g, g->done)) return CLI_RUNTIME;
  double begin = clock_now();
  for (;;) {
    int result = g->event_query(g->done);
    if (result != GPU_NOT_READY) return gpu_check(g, result, "%s", what);
    if (clock_now() - begin > g->wait_limit) {
      cli_error(CLI_RUNTIME, "%s: the GPU did not finish within %.0f s: given up", what,
                g->wait_limit);
      fflush(NULL);
      _Exit(CLI_RUNTIME);
    }
    nanosleep(&(struct timespec){0, 50000}, NULL);
  }
}

int gpu_elapsed_us(const gpu *g, double *us) {
  float ms = 0;
  int code = gpu_check(g, g->event_elapsed(&ms, g->start, g->end), "cuEventElapsedTime");
  *us = 1e3 * (double)ms;
  return code;
}

int gpu_allocate(const gpu *g, gpu_pointer *pointer, size_t bytes, const char *what) {
  *pointer = 0;
  return gpu_check(g, g->allocate(pointer, bytes > 0 ? bytes : 1), "%zu bytes for %s", bytes,
                   what);
}

void gpu_release(const gpu *g, gpu_pointer *pointer) {
  if (*pointer) g->release_memory(*pointer);
  *pointer = 0;
}

int gpu_upload(const gpu *g, gpu_pointer to, const void *from, size_t bytes) {
  if (gpu_check(g, g->to_device(to, from, bytes), "cuMemcpyHtoD")) return CLI_RUNTIME;
  return gpu_check(g, g->synchronize(), "cuCtxSynchronize");
}
