/* Opens libtileglu.so and turns its statuses into exceptions. */
#include "core.h"

#include <dlfcn.h>
#include <string.h>

core_library core_lib;
PyObject *core_error;
static void *handle;

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)
#define HEADER_VERSION                                                                    \
  TEXT(TGLU_VERSION_MAJOR) "." TEXT(TGLU_VERSION_MINOR) "." TEXT(TGLU_VERSION_PATCH)

/* dlsym's result is an object pointer that holds a function's address. */
static bool find(void *library, const char *path, const char *name, void *function)
{
  void *symbol = dlsym(library, name);
  if (!symbol) {
    PyErr_Format(PyExc_ImportError, "tileglu " HEADER_VERSION " needs %s, which %s lacks",
                 name, path);
    return false;
  }
  memcpy(function, &symbol, sizeof symbol);
  return true;
}

static bool find_all(void *library, const char *path, core_library *calls)
{
  if (!find(library, path, "tglu_version", &calls->version) ||
      !find(library, path, "tglu_version_string", &calls->version_string))
    return false;
  const uint32_t version =
    TGLU_VERSION_MAJOR * 10000 + TGLU_VERSION_MINOR * 100 + TGLU_VERSION_PATCH;
  if (calls->version() != version) { /* they lie side by side: no less than equal will do */
    PyErr_Format(PyExc_ImportError,
                 "tileglu._core was built for libtileglu " HEADER_VERSION
                 " and found libtileglu %s at %s: install one version of the package",
                 calls->version_string(), path);
    return false;
  }
#define FIND(name)                                                                        \
  if (!find(library, path, "tglu_" #name, &calls->name)) return false;
  CORE_CALLS(FIND)
#undef FIND
  return true;
}

bool core_open(const char *path)
{
  if (handle) return true;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    PyErr_Format(PyExc_ImportError, "tileglu: its library does not load: %s", dlerror());
    return false;
  }
  core_library calls;
  if (!find_all(library, path, &calls)) {
    dlclose(library);
    return false;
  }
  core_lib = calls;
  handle = library;
  return true;
}

bool core_is_open(void)
{
  if (!handle) PyErr_SetString(PyExc_ImportError, "tileglu._core: open was not called");
  return handle != NULL;
}

PyObject *core_raise(tglu_status status)
{
  if (PyErr_Occurred()) return NULL;
  if (status == TGLU_ERR_INVALID_ARGUMENT)
    PyErr_SetString(PyExc_ValueError, core_lib.last_error());
  else if (status == TGLU_ERR_OUT_OF_MEMORY)
    PyErr_SetString(PyExc_MemoryError, core_lib.last_error());
  else
    PyErr_Format(core_error, "%s: %s", core_lib.status_name(status), core_lib.last_error());
  return NULL;
}
