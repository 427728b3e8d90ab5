#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/rows.h"

fake_cuda *fake;
static void *library;

static void *find(const char *name) {
  void *address = dlsym(library, name);
  if (address == NULL) {
    fprintf(stderr, "%s has no %s\n", FAKE_CUDA, name);
    exit(1);
  }
  return address;
}

void fake_open(void) {
  library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  fake = ((fake_cuda_state_fn)(uintptr_t)find("fake_cuda_state"))();
  fake_begin();
}

void fake_begin(void) { ((fake_cuda_reset_fn)(uintptr_t)find("fake_cuda_reset"))(); }

int fake_count(const char *call) {
  int count = 0;
  for (int32_t i = 0; i < fake->call_total && i < FAKE_CALLS; ++i)
    count += strcmp(fake->calls[i], call) == 0;
  return count;
}

int32_t fake_depth(void) {
  return ((fake_cuda_depth_fn)(uintptr_t)find("fake_cuda_depth"))();
}

int32_t fake_mode(void) {
  return ((fake_cuda_depth_fn)(uintptr_t)find("fake_cuda_capture_mode"))();
}

void fake_expect_balance(void) {
  for (int32_t i = 0; i < fake->module_total && i < FAKE_MODULES; ++i)
    assert_false(fake->modules[i].live);
  for (int i = 0; i < FAKE_DEVICES; ++i) assert_int_equal(fake->retained[i], 0);
  assert_int_equal(fake->balance_errors, 0);
  assert_int_equal(fake_depth(), 0);
  assert_int_equal(fake_mode(), TGLU__CU_STREAM_CAPTURE_MODE_GLOBAL);
}

void fake_push(int32_t device) {
  tglu__CUcontext context;
  tglu__CUresult (*retain)(tglu__CUcontext *, tglu__CUdevice) =
    (tglu__CUresult(*)(tglu__CUcontext *, tglu__CUdevice))(uintptr_t)find(
      "cuDevicePrimaryCtxRetain");
  tglu__CUresult (*push)(tglu__CUcontext) =
    (tglu__CUresult(*)(tglu__CUcontext))(uintptr_t)find("cuCtxPushCurrent_v2");
  assert_int_equal(retain(&context, device), 0);
  fake->retained[device] = 0;
  assert_int_equal(push(context), 0);
}

void fake_pop(void) {
  tglu__CUcontext context;
  tglu__CUresult (*pop)(tglu__CUcontext *) =
    (tglu__CUresult(*)(tglu__CUcontext *))(uintptr_t)find("cuCtxPopCurrent_v2");
  assert_int_equal(pop(&context), 0);
}

void expect_message(const char *word) {
  if (strstr(tglu_last_error(), word) == NULL) {
    print_error("\"%s\" does not contain \"%s\"\n", tglu_last_error(), word);
    fail();
  }
}

int kernels_built(void) {
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    if (tglu__rows[i].cubin->code != NULL) continue;
    print_message("skipped: built without nvcc, so without kernels\n");
    return 0;
  }
  return 1;
}
