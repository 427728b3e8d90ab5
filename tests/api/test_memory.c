/* Every allocation of the process is counted: none in run, none left behind, and
 * each may fail.  The counters stand in for the C library's functions, which a
 * sanitizer's run-time does too: with one of those this is a counted skip. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

#if defined(__has_feature)
#define FEATURE(name) __has_feature(name)
#else
#define FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                     \
  FEATURE(address_sanitizer) || FEATURE(thread_sanitizer)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

static atomic_long allocations, releases;

#if !UNDER_SANITIZER
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *pointer, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *pointer);

#pragma GCC visibility push(default) /* or the libraries would not see them */
void *malloc(size_t bytes)
{
  atomic_fetch_add(&allocations, 1);
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
  atomic_fetch_add(&allocations, 1);
  return __libc_calloc(count, bytes);
}

void *realloc(void *pointer, size_t bytes)
{
  atomic_fetch_add(&allocations, 1);
  if (pointer) atomic_fetch_add(&releases, 1);
  return __libc_realloc(pointer, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
  atomic_fetch_add(&allocations, 1);
  return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **pointer, size_t alignment, size_t bytes)
{
  *pointer = memalign(alignment, bytes);
  return *pointer ? 0 : ENOMEM;
}

void free(void *pointer)
{
  if (pointer) atomic_fetch_add(&releases, 1);
  __libc_free(pointer);
}
#pragma GCC visibility pop
#endif

/* ---- the caller's allocator ---- */

typedef struct ledger {
  atomic_int calls, live;
  atomic_long bytes;
  int fail_at; /* 0: never */
} ledger;

static void *ledger_alloc(void *user, size_t bytes, size_t alignment)
{
  ledger *book = user;
  if (atomic_fetch_add(&book->calls, 1) + 1 == book->fail_at) return NULL;
  void *pointer = NULL;
  if (bytes == 0 || posix_memalign(&pointer, alignment, bytes)) return NULL;
  memset(pointer, 0xa5, bytes);
  atomic_fetch_add(&book->live, 1);
  atomic_fetch_add(&book->bytes, (long)bytes);
  return pointer;
}

static void ledger_free(void *user, void *pointer, size_t bytes)
{
  ledger *book = user;
  atomic_fetch_sub(&book->live, 1);
  atomic_fetch_sub(&book->bytes, (long)bytes);
  free(pointer);
}

/* ---- a problem of each type ---- */

enum { N = 70, K = 50, M = 40 };
static _Alignas(64) unsigned char gate[N * K * 4], up[N * K * 4], down[N * K * 4];
static _Alignas(64) unsigned char x[M * K * 4], out[M * N * 4], room[1 << 20];

/* Any bytes but those of NaN and infinity. */
static void fill(unsigned char *bytes, size_t count, uint64_t *seed)
{
  for (size_t i = 0; i < count; i++) {
    bytes[i] = (unsigned char)(next_random(seed) | 1u);
    if (i % 2 == 1) bytes[i] = (unsigned char)(0x3c | (bytes[i] & 0x83));
  }
}

static tglu_mlp_desc describe(tglu_dtype dtype)
{
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu.hidden = K;
  d.glu.intermediate = N;
  d.glu.dtype = dtype;
  d.glu.activation = TGLU_ACTIVATION_GELU_ERF;
  d.glu.layout = TGLU_LAYOUT_SEPARATE;
  d.glu.gate = gate;
  d.glu.up = up;
  d.down = down;
  return d;
}

static tglu_status make(const char *isa, ledger *book, tglu_dtype dtype,
                        tglu_context **context, tglu_glu **glu, tglu_mlp **mlp)
{
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  options.threads = 2;
  options.cpu_isa = isa;
  options.tune_cache = "";
  if (book) {
    options.alloc = ledger_alloc;
    options.free = ledger_free;
    options.alloc_user = book;
  }
  const tglu_mlp_desc d = describe(dtype);
  tglu_status status = tglu_context_create(&options, context);
  if (!status) status = tglu_glu_create(*context, &d.glu, glu);
  if (!status) status = tglu_mlp_create(*context, &d, mlp);
  return status;
}

static void drop(tglu_context *context, tglu_glu *glu, tglu_mlp *mlp)
{
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  tglu_glu_destroy(glu);
}

static void run_both(tglu_glu *glu, tglu_mlp *mlp, int64_t tokens)
{
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = x;
  a.out = out;
  a.tokens = tokens;
  size_t bytes = 0;
  assert_ok(tglu_glu_workspace_bytes(glu, tokens, &bytes));
  assert_true(bytes <= sizeof room);
  a.workspace = bytes ? room : NULL;
  a.workspace_bytes = bytes;
  assert_ok(tglu_glu_run(glu, &a));
  assert_ok(tglu_mlp_workspace_bytes(mlp, tokens, &bytes));
  assert_true(bytes <= sizeof room);
  a.workspace = bytes ? room : NULL;
  a.workspace_bytes = bytes;
  assert_ok(tglu_mlp_run(mlp, &a));
}

static const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};
static const char *const levels[] = {"portable", NULL}; /* NULL: the best there is */

static void run_allocates_nothing(void **state)
{
  (void)state;
  if (UNDER_SANITIZER) {
    print_message("SKIP: a sanitizer's allocator cannot be counted\n");
    skip();
  }
  for (size_t l = 0; l < 2; l++)
    for (size_t t = 0; t < 3; t++) {
      tglu_context *context = NULL;
      tglu_glu *glu = NULL;
      tglu_mlp *mlp = NULL;
      const long before_create = atomic_load(&allocations);
      assert_ok(make(levels[l], NULL, dtypes[t], &context, &glu, &mlp));
      assert_true(atomic_load(&allocations) > before_create); /* the counter counts */
      const long before = atomic_load(&allocations), freed = atomic_load(&releases);
      for (int64_t tokens = 0; tokens <= M; tokens += 1 + tokens / 2)
        run_both(glu, mlp, tokens);
      assert_int_equal(atomic_load(&allocations), before);
      assert_int_equal(atomic_load(&releases), freed);
      drop(context, glu, mlp);
    }
}

static void nothing_is_left_behind(void **state)
{
  (void)state;
  for (size_t t = 0; t < 3; t++) {
    ledger book = {0};
    tglu_context *context = NULL;
    tglu_glu *glu = NULL;
    tglu_mlp *mlp = NULL;
    assert_ok(make(NULL, &book, dtypes[t], &context, &glu, &mlp));
    const int calls = book.calls;
    assert_true(calls >= 6);
    run_both(glu, mlp, M);
    assert_int_equal(book.calls, calls); /* never called from run */
    drop(context, glu, mlp);
    assert_int_equal(book.live, 0);
    assert_int_equal(book.bytes, 0);
  }
}

/* What the C library itself keeps is warm after the first round. */
static void the_process_does_not_grow(void **state)
{
  (void)state;
  if (UNDER_SANITIZER) {
    print_message("SKIP: a sanitizer's allocator cannot be counted\n");
    skip();
  }
  long live = 0;
  for (int round = 0; round < 5; round++) {
    tglu_context *context = NULL;
    tglu_glu *glu = NULL;
    tglu_mlp *mlp = NULL;
    assert_ok(make(NULL, NULL, TGLU_DTYPE_BF16, &context, &glu, &mlp));
    run_both(glu, mlp, M);
    drop(context, glu, mlp);
    const long now = atomic_load(&allocations) - atomic_load(&releases);
    if (round > 1) assert_int_equal(now, live);
    live = now;
  }
}

static void every_allocation_may_fail(void **state)
{
  (void)state;
  int failures = 0;
  for (int n = 1;; n++) {
    ledger book = {.fail_at = n};
    tglu_context *context = NULL;
    tglu_glu *glu = NULL;
    tglu_mlp *mlp = NULL;
    const tglu_status status =
      make(NULL, &book, TGLU_DTYPE_BF16, &context, &glu, &mlp);
    if (status == TGLU_OK) run_both(glu, mlp, 3);
    drop(context, glu, mlp);
    assert_int_equal(book.live, 0);
    assert_int_equal(book.bytes, 0);
    if (status == TGLU_OK && book.calls < n) break;
    /* A backend may do without something; it may not fail in another way. */
    if (status != TGLU_OK) {
      assert_int_equal(status, TGLU_ERR_OUT_OF_MEMORY);
      assert_true(tglu_last_error()[0] != '\0');
      failures++;
    }
  }
  assert_true(failures >= 6);
}

int main(void)
{
  uint64_t seed = 3;
  fill(gate, sizeof gate, &seed);
  fill(up, sizeof up, &seed);
  fill(down, sizeof down, &seed);
  fill(x, sizeof x, &seed);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(run_allocates_nothing),
    cmocka_unit_test(nothing_is_left_behind),
    cmocka_unit_test(the_process_does_not_grow),
    cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
