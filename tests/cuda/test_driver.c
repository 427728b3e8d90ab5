/* The driver table: what is said when the driver is missing, incomplete, old, broken
 * or on another GPU, and that nothing touches it before a context asks (H23, H28). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/driver.h"
#include "fake.h"

static tglu_status create(const char *library, tglu_backend backend, int32_t device,
                          tglu_context **context) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = backend;
  options.device = device;
  options.cuda_library = library;
  return tglu_context_create(&options, context);
}

static void expect_refusal(const char *library, int32_t device, tglu_status status,
                           const char *word) {
  tglu_context *context = (tglu_context *)(void *)&fake;
  assert_int_equal(create(library, TGLU_BACKEND_CUDA, device, &context), status);
  assert_null(context);
  expect_message(word);
  /* auto goes on with the CPU and says the same reason. */
  if (device > 0) return;
  assert_int_equal(create(library, TGLU_BACKEND_AUTO, device, &context), TGLU_OK);
  tglu_context_info info;
  tglu_context_info_init(&info);
  assert_int_equal(tglu_context_get_info(context, &info), TGLU_OK);
  assert_int_equal(info.backend, TGLU_BACKEND_CPU);
  assert_non_null(strstr(info.reason, word));
  tglu_context_destroy(context);
}

static void missing_file(void **unused) {
  (void)unused;
  expect_refusal("/nonexistent/libcuda.so.1", -1, TGLU_ERR_NO_DRIVER,
                 "/nonexistent/libcuda.so.1");
}

static void not_a_library(void **unused) {
  (void)unused;
  char path[] = "/tmp/tileglu_not_elf_XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  assert_int_equal(write(file, "plain text", 10), 10);
  close(file);
  expect_refusal(path, -1, TGLU_ERR_NO_DRIVER, path);
  unlink(path);
}

/* A copy of the fake in which the exported name is spelled differently. */
static void write_without(const char *name, const char *path) {
  FILE *in = fopen(FAKE_CUDA, "rb");
  assert_non_null(in);
  fseek(in, 0, SEEK_END);
  size_t bytes = (size_t)ftell(in), length = strlen(name);
  rewind(in);
  char *data = malloc(bytes);
  assert_non_null(data);
  assert_int_equal(fread(data, 1, bytes, in), bytes);
  fclose(in);
  int found = 0;
  for (size_t i = 1; i + length < bytes; ++i) {
    if (data[i - 1] == 0 && memcmp(data + i, name, length + 1) == 0) {
      data[i] = 'X';
      ++found;
    }
  }
  assert_true(found > 0);
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(data, 1, bytes, out), bytes);
  fclose(out);
  free(data);
}

static void missing_symbols(void **unused) {
  (void)unused;
  static const struct {
    const char *name;
    int required;
  } calls[] = {
#define NAME(field, name, required, arguments) {name, required},
    TGLU__DRIVER_MAP(NAME)
#undef NAME
  };
  int required = 0;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/tileglu_fake_%d_%zu.so", (int)getpid(), i);
    write_without(calls[i].name, path);
    if (calls[i].required) {
      expect_refusal(path, -1, TGLU_ERR_NO_DRIVER, calls[i].name);
      ++required;
    } else {
      tglu__driver driver;
      void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      assert_non_null(handle);
      ((fake_cuda_reset_fn)(uintptr_t)dlsym(handle, "fake_cuda_reset"))();
      assert_int_equal(tglu__driver_open(path, &driver), TGLU_OK);
      tglu__driver_close(&driver);
      dlclose(handle);
    }
    unlink(path);
  }
  assert_true(required >= 20);
}

static void broken_start(void **unused) {
  (void)unused;
  fake_begin();
  fake->init_result = 999;
  expect_refusal(FAKE_CUDA, -1, TGLU_ERR_NO_DRIVER, "cuInit");
  fake_begin();
  fake->init_result = 100;
  expect_refusal(FAKE_CUDA, -1, TGLU_ERR_NO_DEVICE, "no CUDA device");
  fake_begin();
  fake->version = 11080;
  expect_refusal(FAKE_CUDA, -1, TGLU_ERR_NO_DRIVER, "CUDA 11.8");
  assert_int_equal(fake_count("cuDevicePrimaryCtxRetain"), 0);
}

static void wrong_device(void **unused) {
  (void)unused;
  fake_begin();
  fake->devices = 0;
  expect_refusal(FAKE_CUDA, -1, TGLU_ERR_NO_DEVICE, "0 CUDA devices");
  fake_begin();
  expect_refusal(FAKE_CUDA, 1, TGLU_ERR_NO_DEVICE, "1 was asked for");
  static const int32_t others[][2] = {{8, 0}, {8, 9}, {9, 1}, {10, 0}, {12, 0}};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
    fake_begin();
    fake->major = others[i][0];
    fake->minor = others[i][1];
    char words[64];
    snprintf(words, sizeof words, "compute capability %d.%d", (int)others[i][0],
             (int)others[i][1]);
    expect_refusal(FAKE_CUDA, -1, TGLU_ERR_NO_DEVICE, words);
    assert_int_equal(fake_count("cuDevicePrimaryCtxRetain"), 0);
  }
}

/* The CPU, versions and names never start the driver. */
static void untouched_before_use(void **unused) {
  (void)unused;
  fake_begin();
  tglu_context *context;
  assert_int_equal(create(FAKE_CUDA, TGLU_BACKEND_CPU, -1, &context), TGLU_OK);
  assert_true(tglu_version() > 0);
  tglu_context_destroy(context);
  assert_int_equal(fake->call_total, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(missing_file),   cmocka_unit_test(not_a_library),
    cmocka_unit_test(missing_symbols), cmocka_unit_test(broken_start),
    cmocka_unit_test(wrong_device),   cmocka_unit_test(untouched_before_use),
  };
  fake_open();
  return cmocka_run_group_tests_name("cuda_driver", tests, NULL, NULL);
}
