/* Options, environment, the choice of a backend, and the life of a context. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "fake.h"

static int reset(void **state)
{
  (void)state;
  fake_reset();
  return 0;
}

static tglu_context_options defaults(void)
{
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.tune_cache = "";
  return options;
}

static tglu_status try_options(const tglu_context_options *options)
{
  tglu_context *context = (tglu_context *)&fake;
  tglu_status status = tglu_context_create(options, &context);
  if (status) assert_null(context);
  tglu_context_destroy(context);
  assert_int_equal(fake.opens, fake.closes);
  return status;
}

static void bad_options_are_named(void **state)
{
  (void)state;
#define REFUSE(field, value)                                                       \
  do {                                                                             \
    tglu_context_options o = defaults();                                           \
    o.field = value;                                                               \
    assert_refused(try_options(&o), TGLU_ERR_INVALID_ARGUMENT, #field);            \
  } while (0)
  REFUSE(backend, (tglu_backend)3);
  REFUSE(backend, (tglu_backend)-1);
  REFUSE(device, -2);
  REFUSE(threads, -1);
  REFUSE(threads, 1025);
  REFUSE(sm_limit, -1);
  REFUSE(batch_invariant, 2);
  REFUSE(stable_weights, -1);
  REFUSE(pdl, 2);
  REFUSE(sleep_threads, -1);
  REFUSE(row, "");
  REFUSE(cpu_isa, "sse9");
  REFUSE(cpu_isa, "");
  REFUSE(cpu_isa, "AVX2");
  REFUSE(cuda_library, "");
#undef REFUSE
  tglu_context_options o = defaults();
  o.backend = TGLU_BACKEND_CPU;
  o.device = 1;
  assert_refused(try_options(&o), TGLU_ERR_INVALID_ARGUMENT, "device");
  o.device = 0;
  assert_ok(try_options(&o));
  assert_refused(tglu_context_create(&o, NULL), TGLU_ERR_INVALID_ARGUMENT, "out");
}

static void bad_variables_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *name, *value;
    tglu_status status;
  } cases[] = {
    {"TILEGLU_BACKEND", "gpu", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_BACKEND", "", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_DEVICE", "one", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_DEVICE", "-2", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_THREADS", "2x", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_THREADS", "", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_THREADS", "-1", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_THREADS", "4294967298", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_THREADS", "99999999999999999999", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_CPU_ISA", "mmx", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_CPU_ISA", "amx", TGLU_ERR_UNSUPPORTED},
    {"TILEGLU_ROW", "", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_ROW", "glu_nowhere", TGLU_ERR_NOT_FOUND},
    {"TILEGLU_ROW", "glu_fake_future", TGLU_ERR_UNSUPPORTED},
    {"TILEGLU_SM_LIMIT", "-5", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_PDL", "yes", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_PDL", "3", TGLU_ERR_INVALID_ARGUMENT},
    {"TILEGLU_CUDA_LIBRARY", "", TGLU_ERR_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fake_reset();
    fake.isa_refused = "amx";
    fake.cuda_open = TGLU_ERR_NO_DRIVER;
    setenv(cases[i].name, cases[i].value, 1);
    assert_refused(try_options(NULL), cases[i].status, cases[i].name);
  }
}

static void an_option_wins_over_its_variable(void **state)
{
  (void)state;
  setenv("TILEGLU_BACKEND", "nonsense", 1);
  setenv("TILEGLU_DEVICE", "nonsense", 1);
  setenv("TILEGLU_THREADS", "nonsense", 1);
  setenv("TILEGLU_SM_LIMIT", "nonsense", 1);
  setenv("TILEGLU_PDL", "nonsense", 1);
  setenv("TILEGLU_CPU_ISA", "nonsense", 1);
  setenv("TILEGLU_ROW", "nonsense", 1);
  tglu_context_options o = defaults();
  o.backend = TGLU_BACKEND_CPU;
  o.device = 0;
  o.threads = 5;
  o.sm_limit = 7;
  o.pdl = 0;
  o.cpu_isa = "avx2";
  o.row = "glu_fake_plain";
  assert_ok(try_options(&o));
  /* The same options by name of the wrong argument blame the option. */
  o.row = "glu_nowhere";
  assert_refused(try_options(&o), TGLU_ERR_NOT_FOUND, "row");
  assert_says("glu_fake_plain, glu_fake_future");
}

static void good_variables_arrive(void **state)
{
  (void)state;
  setenv("TILEGLU_BACKEND", "cuda", 1);
  setenv("TILEGLU_DEVICE", "2", 1);
  setenv("TILEGLU_THREADS", "6", 1);
  setenv("TILEGLU_CPU_ISA", "portable", 1);
  setenv("TILEGLU_ROW", "glu_fake_plain", 1);
  setenv("TILEGLU_SM_LIMIT", "77", 1);
  setenv("TILEGLU_PDL", "0", 1);
  setenv("TILEGLU_TUNE_CACHE", "", 1);
  setenv("TILEGLU_CUDA_LIBRARY", "libfake.so", 1);
  tglu_context *context = NULL;
  assert_ok(tglu_context_create(NULL, &context));
  const tglu_context_options *seen = &context->options;
  assert_int_equal(seen->backend, TGLU_BACKEND_CUDA);
  assert_int_equal(seen->device, 2);
  assert_int_equal(seen->threads, 6);
  assert_string_equal(seen->cpu_isa, "portable");
  assert_string_equal(seen->row, "glu_fake_plain");
  assert_int_equal(seen->sm_limit, 77);
  assert_int_equal(seen->pdl, 0);
  assert_string_equal(seen->tune_cache, "");
  assert_string_equal(seen->cuda_library, "libfake.so");
  assert_ptr_not_equal(seen->row, getenv("TILEGLU_ROW"));
  tglu_context_info info;
  tglu_context_info_init(&info);
  assert_ok(tglu_context_get_info(context, &info));
  assert_string_equal(info.reason, "cuda: asked for by TILEGLU_BACKEND");
  assert_int_equal(info.device, 2);
  tglu_context_destroy(context);
}

static void tune_cache_has_a_default_place(void **state)
{
  (void)state;
  static const struct {
    const char *xdg, *home, *path;
  } cases[] = {
    {"/x", "/h", "/x/tileglu/tune.txt"},
    {NULL, "/h", "/h/.cache/tileglu/tune.txt"},
    {"relative", "/h", "/h/.cache/tileglu/tune.txt"},
    {"", "", ""},
    {NULL, NULL, ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fake_reset();
    if (cases[i].xdg) setenv("XDG_CACHE_HOME", cases[i].xdg, 1);
    else unsetenv("XDG_CACHE_HOME");
    if (cases[i].home) setenv("HOME", cases[i].home, 1);
    else unsetenv("HOME");
    tglu_context *context = NULL;
    assert_ok(tglu_context_create(NULL, &context));
    assert_string_equal(context->options.tune_cache, cases[i].path);
    tglu_context_destroy(context);
  }
}

static void auto_takes_the_gpu_or_says_why_not(void **state)
{
  (void)state;
  tglu_context *context = NULL;
  tglu_context_options o = defaults();
  tglu_context_info info;
  tglu_context_info_init(&info);
  assert_ok(tglu_context_create(&o, &context));
  assert_ok(tglu_context_get_info(context, &info));
  assert_int_equal(info.backend, TGLU_BACKEND_CUDA);
  assert_string_equal(info.reason, "auto: fake gpu is a usable Hopper GPU");
  tglu_context_destroy(context);

  const tglu_status soft[] = {TGLU_ERR_UNSUPPORTED, TGLU_ERR_NO_DRIVER,
                              TGLU_ERR_NO_DEVICE, TGLU_ERR_DEVICE, TGLU_ERR_FORKED};
  for (size_t i = 0; i < sizeof soft / sizeof soft[0]; i++) {
    fake.cuda_open = soft[i];
    assert_ok(tglu_context_create(&o, &context));
    assert_ok(tglu_context_get_info(context, &info));
    assert_int_equal(info.backend, TGLU_BACKEND_CPU);
    assert_int_equal(info.threads, 3);
    assert_int_equal(info.device, -1);
    assert_non_null(strstr(info.reason, "the fake GPU is switched off"));
    tglu_context_destroy(context);
  }
  o.device = 1; /* a GPU that was asked for by number is not replaced in silence */
  assert_refused(tglu_context_create(&o, &context), TGLU_ERR_NO_DEVICE, "device");
  o.device = -1;
  fake.cuda_open = TGLU_ERR_INVALID_ARGUMENT;
  assert_refused(tglu_context_create(&o, &context), TGLU_ERR_INVALID_ARGUMENT, "device");
  fake.cuda_open = TGLU_ERR_NO_DRIVER;
  o.backend = TGLU_BACKEND_CUDA;
  assert_refused(tglu_context_create(&o, &context), TGLU_ERR_NO_DRIVER, "device");
  assert_null(context);
}

/* ---- sizes ---- */

/* A size that was never set, on a struct behind which no memory is. */
static void wild_sizes_are_not_read_through(void)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  unsigned char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED);
  assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
  tglu_context_options *last = (void *)(pages + page - sizeof *last);
  *last = defaults();
  assert_ok(try_options(last));
  for (size_t size = sizeof *last + 5000; size > 5000; size *= 16) {
    last->size = size;
    assert_refused(try_options(last), TGLU_ERR_INVALID_ARGUMENT, "options");
  }
  last->size = (size_t)-1;
  assert_refused(try_options(last), TGLU_ERR_INVALID_ARGUMENT, "options");
  munmap(pages, 2 * page);
}

static void struct_sizes(void **state)
{
  (void)state;
  struct {
    tglu_context_options o;
    unsigned char tail[16];
  } wide;
  memset(&wide, 0, sizeof wide);
  wide.o = defaults();
  wide.o.size = sizeof wide.o - 8;
  assert_refused(try_options(&wide.o), TGLU_ERR_INVALID_ARGUMENT, "options");
  wide.o.size = 0;
  assert_refused(try_options(&wide.o), TGLU_ERR_INVALID_ARGUMENT, "options");
  wild_sizes_are_not_read_through();
  wide.o.size = sizeof wide;
  assert_ok(try_options(&wide.o));
  wide.tail[15] = 1;
  assert_refused(try_options(&wide.o), TGLU_ERR_INVALID_ARGUMENT, "options");
  assert_says("0.1.0");

  struct {
    tglu_context_info info;
    unsigned char tail[8];
  } out;
  tglu_context *context = NULL;
  wide.o = defaults();
  assert_ok(tglu_context_create(&wide.o, &context));
  memset(&out, 0, sizeof out);
  out.info.size = sizeof out;
  assert_ok(tglu_context_get_info(context, &out.info));
  assert_int_equal(out.info.size, sizeof out);
  assert_string_equal(out.info.device_name, "fake gpu");
  out.tail[0] = 9;
  assert_refused(tglu_context_get_info(context, &out.info), TGLU_ERR_INVALID_ARGUMENT,
                 "info");
  out.info.size = 8;
  out.info.device_name = "untouched";
  assert_refused(tglu_context_get_info(context, &out.info), TGLU_ERR_INVALID_ARGUMENT,
                 "info");
  assert_string_equal(out.info.device_name, "untouched");
  assert_refused(tglu_context_get_info(context, NULL), TGLU_ERR_INVALID_ARGUMENT, "info");
  tglu_context_destroy(context);
}

static void rows(void **state)
{
  (void)state;
  tglu_context *context = NULL;
  tglu_context_options o = defaults();
  assert_ok(tglu_context_create(&o, &context));
  tglu_row_info info;
  tglu_row_info_init(&info);
  assert_int_equal(tglu_row_count(context), 2);
  assert_ok(tglu_row_get(context, 1, &info));
  assert_string_equal(info.name, "glu_fake_future");
  assert_int_equal(info.usable, 0);
  assert_int_equal(info.size, sizeof info);
  assert_refused(tglu_row_get(context, 2, &info), TGLU_ERR_INVALID_ARGUMENT, "index");
  assert_refused(tglu_row_get(context, -1, &info), TGLU_ERR_INVALID_ARGUMENT, "index");
  assert_refused(tglu_row_get(context, 0, NULL), TGLU_ERR_INVALID_ARGUMENT, "info");
  assert_refused(tglu_row_get(NULL, 0, &info), TGLU_ERR_INVALID_ARGUMENT, "context");
  assert_int_equal(tglu_row_count(NULL), 0);
  assert_refused(tglu_context_get_info(NULL, NULL), TGLU_ERR_INVALID_ARGUMENT, "context");
  tglu_context_destroy(context);
  tglu_context_destroy(NULL);
}

/* ---- allocator and log ---- */

typedef struct ledger {
  int calls, live, fail_at; /* fail_at 0: never */
  size_t bytes;
} ledger;

static void *ledger_alloc(void *user, size_t bytes, size_t alignment)
{
  ledger *book = user;
  assert_true(bytes > 0);
  assert_true(alignment >= 64 && (alignment & (alignment - 1)) == 0);
  if (++book->calls == book->fail_at) return NULL;
  void *pointer = NULL;
  if (posix_memalign(&pointer, alignment, bytes)) return NULL;
  memset(pointer, 0xa5, bytes);
  book->live++;
  book->bytes += bytes;
  return pointer;
}

static void ledger_free(void *user, void *pointer, size_t bytes)
{
  ledger *book = user;
  assert_non_null(pointer);
  book->live--;
  book->bytes -= bytes;
  free(pointer);
}

static void every_allocation_may_fail(void **state)
{
  (void)state;
  float gate[4] = {1, 2, 3, 4}, up[4] = {4, 3, 2, 1};
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  desc.hidden = desc.intermediate = 2;
  desc.dtype = TGLU_DTYPE_F32;
  desc.activation = TGLU_ACTIVATION_SILU;
  desc.layout = TGLU_LAYOUT_SEPARATE;
  desc.gate = gate;
  desc.up = up;
  int failures = 0;
  for (int n = 1;; n++) {
    fake_reset();
    fake.cuda_open = TGLU_ERR_NO_DRIVER;
    ledger book = {.fail_at = n};
    tglu_context_options o = defaults();
    o.alloc = ledger_alloc;
    o.free = ledger_free;
    o.alloc_user = &book;
    o.row = "glu_fake_plain";
    o.cpu_isa = "portable";
    o.cuda_library = "x";
    tglu_context *context = NULL;
    tglu_glu *glu = (tglu_glu *)&book;
    tglu_status status = tglu_context_create(&o, &context);
    if (status == TGLU_OK) {
      status = tglu_glu_create(context, &desc, &glu);
      if (status) assert_null(glu);
      else tglu_glu_destroy(glu);
    } else {
      assert_null(context);
    }
    tglu_context_destroy(context);
    assert_int_equal(book.live, 0);
    assert_int_equal(book.bytes, 0);
    if (status == TGLU_OK) {
      assert_true(book.calls < n);
      break;
    }
    assert_int_equal(status, TGLU_ERR_OUT_OF_MEMORY);
    failures++;
  }
  assert_true(failures >= 9); /* context, 4 texts, reason, state, object, plan */

  tglu_context_options half = defaults();
  half.alloc = ledger_alloc;
  assert_refused(try_options(&half), TGLU_ERR_INVALID_ARGUMENT, "free");
  half.alloc = NULL;
  half.free = ledger_free;
  assert_refused(try_options(&half), TGLU_ERR_INVALID_ARGUMENT, "alloc");
}

static void remember(void *user, tglu_log_level level, const char *message)
{
  if (level == TGLU_LOG_INFO) strncpy(user, message, 255);
}

static void log_says_which_backend(void **state)
{
  (void)state;
  char message[256] = "";
  tglu_context_options o = defaults();
  o.backend = TGLU_BACKEND_CPU;
  o.log = remember;
  o.log_user = message;
  assert_ok(try_options(&o));
  assert_string_equal(message, "tileglu 0.1.0: cpu: asked for by the option backend");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, reset)
  const struct CMUnitTest tests[] = {
    TEST(bad_options_are_named),
    TEST(bad_variables_are_named),
    TEST(an_option_wins_over_its_variable),
    TEST(good_variables_arrive),
    TEST(tune_cache_has_a_default_place),
    TEST(auto_takes_the_gpu_or_says_why_not),
    TEST(struct_sizes),
    TEST(rows),
    TEST(every_allocation_may_fail),
    TEST(log_says_which_backend),
  };
  return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
