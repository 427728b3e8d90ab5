#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { OLDEST_DRIVER = 12000 }; /* the first with tensor maps and cuLaunchKernelEx */

static const char default_file[] = "libcuda.so.1";

/* ---- forks ---- */

static _Atomic uint32_t forks;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_result;

static void count_fork(void) { atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed); }

static void watch(void) { watch_result = pthread_atfork(NULL, NULL, count_fork); }

static tglu_status watch_forks(void) {
  pthread_once(&watch_once, watch);
  if (watch_result == 0) return TGLU_OK;
  return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: no memory to watch for forks");
}

uint32_t tglu__fork_count(void) {
  return atomic_load_explicit(&forks, memory_order_relaxed);
}

/* ---- the library ---- */

/* RTLD_NODELETE: a driver that has run keeps threads and handlers, so closing it may
 * only drop a reference. */
static tglu_status open_file(const char *file, tglu__driver *driver) {
  driver->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (driver->handle != NULL) return TGLU_OK;
  const char *reason = dlerror();
  return tglu__fail(TGLU_ERR_NO_DRIVER, "cuda_library: %s could not be opened: %s", file,
                    reason != NULL ? reason : "no reason given");
}

static tglu_status find_calls(const char *file, tglu__driver *driver) {
  static const struct {
    const char *name;
    size_t offset;
    int required;
  } calls[] = {
#define CALL(field, name, required, arguments) \
  {name, offsetof(tglu__driver, field), required},
    TGLU__DRIVER_MAP(CALL)
#undef CALL
  };
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
    void *address = dlsym(driver->handle, calls[i].name);
    if (address == NULL && calls[i].required) {
      return tglu__fail(TGLU_ERR_NO_DRIVER,
                        "cuda_library: %s has no %s: the driver is too old", file,
                        calls[i].name);
    }
    memcpy((char *)driver + calls[i].offset, &address, sizeof address);
  }
  return TGLU_OK;
}

static tglu_status start(const char *file, tglu__driver *driver) {
  tglu__CUresult result = driver->init(0);
  if (result == TGLU__CUDA_ERROR_NO_DEVICE) {
    return tglu__fail(TGLU_ERR_NO_DEVICE, "device: the driver %s finds no CUDA device", file);
  }
  if (result != TGLU__CUDA_SUCCESS) {
    tglu__driver_fail(driver, result, "cuda_library: cuInit");
    return TGLU_ERR_NO_DRIVER;
  }
  tglu_status status = watch_forks();
  if (status != TGLU_OK) return status;
  result = driver->driver_get_version(&driver->version);
  if (result != TGLU__CUDA_SUCCESS) {
    tglu__driver_fail(driver, result, "cuda_library: cuDriverGetVersion");
    return TGLU_ERR_NO_DRIVER;
  }
  if (driver->version < OLDEST_DRIVER) {
    return tglu__fail(TGLU_ERR_NO_DRIVER,
                      "cuda_library: %s serves CUDA %d.%d, at least %d.%d is needed", file,
                      driver->version / 1000, driver->version % 1000 / 10,
                      OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
  }
  return TGLU_OK;
}

tglu_status tglu__driver_open(const char *file, tglu__driver *driver) {
  if (file == NULL) file = default_file;
  *driver = (tglu__driver){0};
  tglu_status status = open_file(file, driver);
  if (status == TGLU_OK) status = find_calls(file, driver);
  if (status == TGLU_OK) status = start(file, driver);
  if (status != TGLU_OK) tglu__driver_close(driver);
  return status;
}

void tglu__driver_close(tglu__driver *driver) {
  if (driver->handle != NULL) dlclose(driver->handle);
  *driver = (tglu__driver){0};
}

tglu_status tglu__driver_fail(const tglu__driver *driver, tglu__CUresult result,
                              const char *what) {
  const char *name = NULL, *text = NULL;
  driver->get_error_name(result, &name);
  driver->get_error_string(result, &text);
  tglu_status status = result == TGLU__CUDA_ERROR_OUT_OF_MEMORY ? TGLU_ERR_OUT_OF_MEMORY
                                                                : TGLU_ERR_DEVICE;
  return tglu__fail(status, "%s failed with %s (%d): %s", what,
                    name != NULL ? name : "an unknown error", (int)result,
                    text != NULL ? text : "no text");
}
