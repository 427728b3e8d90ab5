#include "cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../cli.h"

_Static_assert(sizeof(cublas_lt_algo) == 64, "as documented");
_Static_assert(sizeof(cublas_lt_heuristic) == 96, "as documented");

typedef struct entry {
  const char *name;
  size_t offset;
} entry;

#define ENTRY(field, name, arguments) {name, offsetof(cublas, field)},
static const entry calls[] = {CUBLAS_CALLS(ENTRY)};
static const entry lt_calls[] = {CUBLASLT_CALLS(ENTRY)};
#undef ENTRY

static const char *status_name(int status) {
  switch (status) {
  case 1: return "not initialized";
  case 3: return "allocation failed";
  case 7: return "invalid value";
  case 8: return "architecture mismatch";
  case 11: return "mapping error";
  case 13: return "execution failed";
  case 14: return "internal error";
  case 15: return "not supported";
  default: return "unknown status";
  }
}

int cublas_check(int status, const char *what) {
  if (status == 0) return CLI_OK;
  return cli_error(CLI_RUNTIME, "%s: cuBLAS status %d (%s)", what, status,
                   status_name(status));
}

static int find(cublas *b, void *library, const char *file, const entry *list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    void *address = dlsym(library, list[i].name);
    if (!address) return cli_error(CLI_RUNTIME, "%s has no %s", file, list[i].name);
    memcpy((char *)b + list[i].offset, &address, sizeof address);
  }
  return CLI_OK;
}

/* "…/libcublas.so.13" -> "…/libcublasLt.so.13". */
static int beside(const char *path, char *lt, size_t bytes) {
  const char *name = strrchr(path, '/');
  name = name ? name + 1 : path;
  if (strncmp(name, "libcublas", 9) != 0) {
    return cli_error(CLI_USAGE, "--cublas: %s is no libcublas.so: name cuBLASLt with "
                     "--cublaslt too", path);
  }
  int length = (int)(name - path) + 9;
  if ((size_t)snprintf(lt, bytes, "%.*sLt%s", length, path, path + length) >= bytes) {
    return cli_error(CLI_USAGE, "--cublas: the path is too long");
  }
  return CLI_OK;
}

/* cuBLASLt first and for all to see: cuBLAS needs it by name. */
static int open_pair(cublas *b, const char *path, const char *lt_path, int quiet) {
  char lt[4096];
  int code = CLI_OK;
  if (!lt_path) {
    code = beside(path, lt, sizeof lt);
    lt_path = lt;
  }
  if (code != CLI_OK) return code;
  b->lt_library = dlopen(lt_path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (b->lt_library) {
    b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (!b->lt_library || !b->library) {
    const char *reason = dlerror();
    if (!quiet) cli_error(CLI_INPUT, "cuBLAS: %s", reason ? reason : path);
    if (b->lt_library) dlclose(b->lt_library);
    b->lt_library = NULL;
    return CLI_INPUT;
  }
  code = find(b, b->library, path, calls, sizeof calls / sizeof calls[0]);
  if (code != CLI_OK) return code;
  return find(b, b->lt_library, lt_path, lt_calls, sizeof lt_calls / sizeof lt_calls[0]);
}

static int open_libraries(cublas *b, const char *path, const char *lt_path) {
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
  if (path) return open_pair(b, path, lt_path, 0);
  for (int i = 0; i < 2; i++) {
    int code = open_pair(b, names[i], lt_path, 1);
    if (code != CLI_INPUT) return code;
  }
  return cli_error(CLI_INPUT, "cuBLAS: neither %s nor %s is found: name one with --cublas",
                   names[0], names[1]);
}

int cublas_open(cublas *b, const gpu *g, const char *path, const char *lt_path) {
  memset(b, 0, sizeof *b);
  int code = open_libraries(b, path, lt_path);
  if (code != CLI_OK) return code;
  if (gpu_allocate(g, &b->workspace, CUBLAS_WORKSPACE, "cuBLAS's workspace") ||
      gpu_allocate(g, &b->lt_workspace, CUBLAS_WORKSPACE, "cuBLASLt's workspace") ||
      cublas_check(b->create(&b->handle), "cublasCreate") ||
      cublas_check(b->get_version(b->handle, &b->version), "cublasGetVersion") ||
      cublas_check(b->set_stream(b->handle, g->stream), "cublasSetStream") ||
      cublas_check(b->set_workspace(b->handle, (void *)(uintptr_t)b->workspace,
                                    CUBLAS_WORKSPACE), "cublasSetWorkspace") ||
      cublas_check(b->lt_create(&b->lt_handle), "cublasLtCreate")) {
    return CLI_RUNTIME;
  }
  return CLI_OK;
}

void cublas_close(cublas *b, const gpu *g) {
  if (b->lt_handle) b->lt_destroy(b->lt_handle);
  if (b->handle) b->destroy(b->handle);
  gpu_release(g, &b->workspace);
  gpu_release(g, &b->lt_workspace);
  if (b->library) dlclose(b->library);
  if (b->lt_library) dlclose(b->lt_library);
  memset(b, 0, sizeof *b);
}
