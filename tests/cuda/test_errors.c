/* What goes wrong and what must stay whole, on the fake driver: every call failing in
 * turn, captures, the caller's context, threads, forks, refused arguments. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/driver.h"
#include "fake.h"
#include "plan/rows.h"

static const void *pointer(uint64_t offset) {
  return (const void *)(uintptr_t)(UINT64_C(0x7f0000000000) + offset);
}

static tglu_context_options options_for_fake(void) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CUDA;
  options.cuda_library = FAKE_CUDA;
  return options;
}

static tglu_glu_desc small_desc(int64_t n, int64_t k) {
  tglu_glu_desc d;
  tglu_glu_desc_init(&d);
  d.hidden = k;
  d.intermediate = n;
  d.dtype = TGLU_DTYPE_BF16;
  d.activation = TGLU_ACTIVATION_SILU;
  d.layout = TGLU_LAYOUT_SEPARATE;
  d.gate = pointer(0);
  d.up = pointer(1ull << 32);
  return d;
}

static tglu_run_args small_args(int64_t tokens) {
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = pointer(2ull << 32);
  a.tokens = tokens;
  a.out = (void *)(uintptr_t)pointer(3ull << 32);
  return a;
}

/* An MLP, in one launch. */
static tglu_status run_mlp(tglu_context *context) {
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu = small_desc(512, 256);
  d.down = pointer(4ull << 32);
  tglu_mlp *mlp;
  tglu_status status = tglu_mlp_create(context, &d, &mlp);
  if (status != TGLU_OK) {
    assert_null(mlp);
  } else {
    tglu_run_args a = small_args(3);
    a.workspace = (void *)(uintptr_t)pointer(5ull << 32);
    a.workspace_bytes = 1 << 20;
    status = tglu_mlp_run(mlp, &a);
  }
  tglu_mlp_destroy(mlp);
  return status;
}

/* Context, object (with a row forced an MLP, else a GLU), run; whatever was made is taken down
 * again. */
static tglu_status scenario(const tglu_context_options *options) {
  tglu_context *context;
  tglu_status status = tglu_context_create(options, &context);
  if (status != TGLU_OK) {
    assert_null(context);
    return status;
  }
  if (options->row != NULL) {
    status = run_mlp(context);
    tglu_context_destroy(context);
    return status;
  }
  tglu_glu_desc d = small_desc(512, 256);
  tglu_glu *glu;
  status = tglu_glu_create(context, &d, &glu);
  if (status != TGLU_OK) {
    assert_null(glu);
  } else {
    tglu_run_args a = small_args(300);
    status = tglu_glu_run(glu, &a);
  }
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  return status;
}

static const char *first_mlp_row(void) {
  for (int32_t i = 0; i < tglu__row_total; ++i)
    if (tglu__rows[i].op == tglu__op_mlp && tglu__rows[i].dtype == TGLU_DTYPE_BF16)
      return tglu__rows[i].name;
  return NULL;
}

/* Each call fails the first time, the second, ... until it is not called that often. */
static void every_call_fails_in_turn(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  static const char *const ignored[] = {"cuGetErrorName", "cuGetErrorString",
                                        /* of taking down: nobody to tell */
                                        "cuModuleUnload", "cuDevicePrimaryCtxRelease_v2",
                                        "cuCtxPopCurrent_v2"};
  static const char *const calls[] = {
#define NAME(field, name, required, arguments) name,
    TGLU__DRIVER_MAP(NAME)
#undef NAME
  };
  tglu_context_options options = options_for_fake();
  int planted = 0;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
    int skip_it = 0;
    for (size_t j = 0; j < sizeof ignored / sizeof ignored[0]; ++j)
      skip_it |= strcmp(calls[i], ignored[j]) == 0;
    if (skip_it) continue;
    fake_begin();
    options.row = NULL;
    assert_int_equal(scenario(&options), TGLU_OK);
    int times = fake_count(calls[i]);
    options.row = times == 0 ? first_mlp_row() : NULL;
    if (times == 0) {
      assert_int_equal(scenario(&options), TGLU_OK);
      times = fake_count(calls[i]);
    }
    assert_true(times > 0);
    for (int after = 0; after < times; ++after) {
      for (int code = 2; code <= 700; code += 698) { /* out of memory; illegal address */
        fake_begin();
        fake->fail_call = calls[i];
        fake->fail_after = after;
        fake->fail_code = code;
        tglu_status status = scenario(&options);
        /* The last of the switches back is not told: the work is done. */
        bool switching = strcmp(calls[i], "cuThreadExchangeStreamCaptureMode") == 0 ||
                         strcmp(calls[i], "cuCtxPushCurrent_v2") == 0 ||
                         strcmp(calls[i], "cuCtxGetCurrent") == 0;
        if (status == TGLU_OK && switching) continue;
        if (status == TGLU_OK)
          fail_msg("%s failing after %d calls is not noticed", calls[i], after);
        char name[64];
        snprintf(name, sizeof name, "%s", calls[i]);
        char *suffix = strstr(name, "_v2");
        if (suffix != NULL) *suffix = '\0';
        expect_message(name);
        bool start = strcmp(calls[i], "cuInit") == 0 ||
                     strcmp(calls[i], "cuDriverGetVersion") == 0;
        assert_int_equal(status, start       ? TGLU_ERR_NO_DRIVER
                                 : code == 2 ? TGLU_ERR_OUT_OF_MEMORY
                                             : TGLU_ERR_DEVICE);
        if (!switching) fake_expect_balance();
        ++planted;
      }
    }
  }
  print_message("%d failures planted\n", planted);
  assert_true(planted > 60);
}

/* H18: the very first call in a process may come inside a capture. */
static void inside_a_capture(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  fake->capturing = 1;
  tglu_context_options options = options_for_fake();
  if (scenario(&options) != TGLU_OK) fail_msg("%s", tglu_last_error());
  assert_int_equal(fake->launch_total, 1);
  fake_expect_balance();
  /* The fake does refuse without the switch: the test can fail. */
  tglu__driver driver;
  tglu__CUcontext primary;
  assert_int_equal(tglu__driver_open(FAKE_CUDA, &driver), TGLU_OK);
  assert_int_equal(driver.primary_ctx_retain(&primary, 0), FAKE_STREAM_CAPTURE_UNSUPPORTED);
  tglu__driver_close(&driver);
}

/* H16: whatever is current before is current after, in every step. */
static void current_context_is_kept(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  tglu_context_options options = options_for_fake();
  for (int current = -1; current < 2; ++current) {
    fake_begin();
    fake->devices = 2;
    if (current >= 0) fake_push(current);
    int32_t depth = fake_depth();
    assert_int_equal(scenario(&options), TGLU_OK);
    assert_int_equal(fake_depth(), depth);
    assert_int_equal(fake->launches[0].device, 0);
    if (current >= 0) fake_pop();
    fake_expect_balance();
  }
}

static void pointers_of_elsewhere(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  fake->devices = 2;
  tglu_context_options options = options_for_fake();
  tglu_context *context;
  assert_int_equal(tglu_context_create(&options, &context), TGLU_OK);
  tglu_glu_desc d = small_desc(512, 256);
  tglu_glu *glu;
  fake->host_pointer = (uintptr_t)d.up;
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_ERR_INVALID_ARGUMENT);
  expect_message("up: ");
  expect_message("host memory");
  fake->host_pointer = 0;
  fake->other_pointer = (uintptr_t)d.gate;
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_ERR_INVALID_ARGUMENT);
  expect_message("gate: ");
  expect_message("device 1");
  fake->other_pointer = 0;
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_OK);
  tglu_run_args a = small_args(9);
  fake->other_pointer = (uintptr_t)a.x;
  assert_int_equal(tglu_glu_run(glu, &a), TGLU_ERR_INVALID_ARGUMENT);
  expect_message("x: ");
  fake->other_pointer = (uintptr_t)a.out;
  assert_int_equal(tglu_glu_run(glu, &a), TGLU_ERR_INVALID_ARGUMENT);
  expect_message("out: ");
  assert_int_equal(fake->launch_total, 0);
  fake->other_pointer = 0;
  assert_int_equal(tglu_glu_run(glu, &a), TGLU_OK);
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  fake_expect_balance();
}

/* H05: nothing to do is success without a call, and what follows is right. */
static void nothing_to_do(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  tglu_context_options options = options_for_fake();
  tglu_context *context;
  assert_int_equal(tglu_context_create(&options, &context), TGLU_OK);
  tglu_glu_desc d = small_desc(512, 256);
  tglu_glu *glu, *empty;
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_OK);
  d.intermediate = 0;
  assert_int_equal(tglu_glu_create(context, &d, &empty), TGLU_OK);
  int32_t calls = fake->call_total;
  tglu_run_args a = small_args(0);
  a.x = NULL;
  a.out = NULL;
  assert_int_equal(tglu_glu_run(glu, &a), TGLU_OK);
  a = small_args(5);
  assert_int_equal(tglu_glu_run(empty, &a), TGLU_OK);
  assert_int_equal(fake->call_total, calls);
  a = small_args(3);
  assert_int_equal(tglu_glu_run(glu, &a), TGLU_OK);
  assert_int_equal(fake->launch_total, 1);
  tglu_glu_destroy(empty);
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  fake_expect_balance();
}

static void refusals(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  tglu_context_options options = options_for_fake();
  tglu_context *context;
  assert_int_equal(tglu_context_create(&options, &context), TGLU_OK);
  tglu_glu_desc d = small_desc(512, 256);
  tglu_glu *glu;
  d.dtype = TGLU_DTYPE_F32;
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_ERR_UNSUPPORTED);
  expect_message("f32");
  tglu_mlp_desc m;
  tglu_mlp_desc_init(&m);
  m.glu = small_desc(512, 256);
  m.down = pointer(5ull << 32);
  tglu_mlp *mlp;
  m.glu.dtype = TGLU_DTYPE_F32;
  assert_int_equal(tglu_mlp_create(context, &m, &mlp), TGLU_ERR_UNSUPPORTED);
  expect_message("f32");
  d = small_desc(INT64_C(1) << 31, 8);
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_ERR_UNSUPPORTED);
  expect_message("intermediate");
  d = small_desc(8, INT64_C(1) << 31);
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_ERR_UNSUPPORTED);
  expect_message("hidden");
  tglu_context_destroy(context);
  fake_expect_balance();
}

/* The option and the variable; the option's default is on. */
static void pdl_option(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  static const struct {
    const char *variable;
    int32_t option, attribute;
  } cases[] = {{NULL, 1, 1}, {NULL, 0, 0}, {"0", 1, 0}, {"1", 1, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    fake_begin();
    if (cases[i].variable != NULL) setenv("TILEGLU_PDL", cases[i].variable, 1);
    tglu_context_options options = options_for_fake();
    assert_int_equal(options.pdl, 1);
    options.pdl = cases[i].option;
    tglu_status status = scenario(&options);
    unsetenv("TILEGLU_PDL");
    if (status != TGLU_OK) fail_msg("%s", tglu_last_error());
    const fake_launch *l = &fake->launches[0];
    int32_t found = 0;
    for (uint32_t j = 0; j < l->config.numAttrs; ++j) found |= l->attributes[j].id == 6;
    assert_int_equal(found, cases[i].attribute);
  }
}

/* Host memory: every allocation failing in turn, and none during run. */
typedef struct heap {
  int allocations, live, fail_at;
} heap;

static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
  heap *h = user;
  if (h->allocations++ == h->fail_at) return NULL;
  void *memory;
  if (posix_memalign(&memory, alignment, bytes) != 0) return NULL;
  ++h->live;
  return memory;
}

static void heap_free(void *user, void *memory, size_t bytes) {
  (void)bytes;
  --((heap *)user)->live;
  free(memory);
}

static void allocations_fail_in_turn(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  heap h = {.fail_at = -1};
  tglu_context_options options = options_for_fake();
  options.alloc = heap_alloc;
  options.free = heap_free;
  options.alloc_user = &h;
  fake_begin();
  assert_int_equal(scenario(&options), TGLU_OK);
  int total = h.allocations;
  assert_true(total >= 4);
  for (int i = 0; i < total; ++i) {
    h = (heap){.fail_at = i};
    fake_begin();
    assert_int_equal(scenario(&options), TGLU_ERR_OUT_OF_MEMORY);
    assert_int_equal(h.live, 0);
    fake_expect_balance();
  }
  h = (heap){.fail_at = -1};
  fake_begin();
  tglu_context *context;
  assert_int_equal(tglu_context_create(&options, &context), TGLU_OK);
  tglu_glu_desc d = small_desc(512, 256);
  tglu_glu *glu;
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_OK);
  int before = h.allocations;
  for (int64_t tokens = 1; tokens < 100; ++tokens) {
    tglu_run_args a = small_args(tokens);
    assert_int_equal(tglu_glu_run(glu, &a), TGLU_OK);
  }
  assert_int_equal(h.allocations, before);
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  assert_int_equal(h.live, 0);
}

/* H21: first use from many threads at once. */
enum { THREADS = 16, ROUNDS = 20 };
static pthread_barrier_t barrier;
static int thread_failures;

static void *first_use(void *shared) {
  tglu_context *own = NULL;
  tglu_context_options options = options_for_fake();
  pthread_barrier_wait(&barrier);
  if (shared == NULL && tglu_context_create(&options, &own) != TGLU_OK)
    __atomic_add_fetch(&thread_failures, 1, __ATOMIC_RELAXED);
  tglu_context *context = shared != NULL ? shared : own;
  for (int i = 0; i < ROUNDS && context != NULL; ++i) {
    tglu_glu_desc d = small_desc(128 * (i + 1), 64 * (i + 1));
    tglu_run_args a = small_args(100 * (i + 1));
    tglu_glu *glu;
    if (tglu_glu_create(context, &d, &glu) != TGLU_OK || tglu_glu_run(glu, &a) != TGLU_OK)
      __atomic_add_fetch(&thread_failures, 1, __ATOMIC_RELAXED);
    tglu_glu_destroy(glu);
  }
  tglu_context_destroy(own);
  return NULL;
}

static void many_threads(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  for (int shared = 0; shared < 2; ++shared) {
    fake_begin();
    tglu_context *context = NULL;
    tglu_context_options options = options_for_fake();
    if (shared) assert_int_equal(tglu_context_create(&options, &context), TGLU_OK);
    pthread_barrier_init(&barrier, NULL, THREADS);
    thread_failures = 0;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i)
      assert_int_equal(pthread_create(&threads[i], NULL, first_use, context), 0);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(thread_failures, 0);
    assert_int_equal(fake->launch_total, THREADS * ROUNDS);
    tglu_context_destroy(context);
    fake_expect_balance();
    /* One module a row and context, however many threads came at once. */
    if (shared) assert_true(fake->module_total <= tglu__row_total);
  }
}

/* H23: a child forked after the driver was started gets a clear error, and taking down
 * what it inherited does not touch the driver. */
static void forked_child(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  tglu_context_options options = options_for_fake();
  tglu_context *context;
  assert_int_equal(tglu_context_create(&options, &context), TGLU_OK);
  tglu_glu_desc d = small_desc(512, 256);
  tglu_run_args a = small_args(7);
  tglu_glu *glu;
  assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_OK);
  int32_t calls = fake->call_total;
  pid_t child = fork();
  if (child == 0) {
    tglu_context *other;
    tglu_glu *second;
    int failures = 0;
    failures += tglu_glu_run(glu, &a) != TGLU_ERR_FORKED;
    failures += strstr(tglu_last_error(), "fork") == NULL;
    failures += tglu_glu_create(context, &d, &second) != TGLU_ERR_FORKED;
    failures += tglu_context_create(&options, &other) != TGLU_ERR_FORKED;
    options.backend = TGLU_BACKEND_AUTO;
    failures += tglu_context_create(&options, &other) != TGLU_OK; /* the CPU still works */
    tglu_context_destroy(other);
    tglu_glu_destroy(glu);
    tglu_context_destroy(context);
    failures += fake->call_total != calls;
    _exit(failures);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_int_equal(tglu_glu_run(glu, &a), TGLU_OK); /* the parent goes on */
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  fake_expect_balance();
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_call_fails_in_turn), cmocka_unit_test(inside_a_capture),
    cmocka_unit_test(current_context_is_kept),  cmocka_unit_test(pointers_of_elsewhere),
    cmocka_unit_test(nothing_to_do),            cmocka_unit_test(refusals),
    cmocka_unit_test(pdl_option),               cmocka_unit_test(allocations_fail_in_turn),
    cmocka_unit_test(many_threads),             cmocka_unit_test(forked_child),
  };
  fake_open();
  return cmocka_run_group_tests_name("cuda_errors", tests, NULL, NULL);
}
