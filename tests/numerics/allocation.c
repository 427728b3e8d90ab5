/* run allocates nothing: malloc and its kin are replaced by counting ones for the
 * whole process, worker threads included. */
#include <errno.h>
#include <features.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "runner.h"

static atomic_bool counting;
static atomic_int allocations;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TT_SANITIZED 1
#elif defined(__has_feature)
#define TT_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define TT_SANITIZED 0
#endif

#if defined(__GLIBC__) && !TT_SANITIZED
#define TT_COUNTS 1
#define TT_EXPORT __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *pointer, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void count(void) {
  if (atomic_load(&counting)) atomic_fetch_add(&allocations, 1);
}

TT_EXPORT void *malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}

TT_EXPORT void *calloc(size_t number, size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}

TT_EXPORT void *realloc(void *pointer, size_t bytes) {
  count();
  return __libc_realloc(pointer, bytes);
}

TT_EXPORT void *aligned_alloc(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}

TT_EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes) {
  count();
  *out = __libc_memalign(alignment, bytes);
  return *out == NULL ? ENOMEM : 0;
}
#else
#define TT_COUNTS 0
#endif

static void need_counts(void) {
  if (TT_COUNTS) return;
  printf("SKIP: allocations are counted with glibc and without sanitizers\n");
  skip();
}

static void creating_is_counted(void **state) {
  (void)state;
  need_counts();
  atomic_store(&allocations, 0);
  atomic_store(&counting, true);
  tglu_context *context = tt_cpu_context(NULL, 2, false);
  atomic_store(&counting, false);
  assert_true(atomic_load(&allocations) > 0);
  tglu_context_destroy(context);
}

static void check_run(tglu_context *context, tt_op op, tglu_dtype dtype, int64_t m) {
  tt_case c;
  tt_operands o;
  tt_pointers p;
  tt_object object;
  tglu_run_args args;
  size_t bytes;
  tt_case_init(&c);
  c.op = op;
  c.dtype = dtype;
  c.m = m;
  c.n = 70;
  c.k = 130;
  c.gate_bias = c.up_bias = c.down_bias = true;
  tt_operands_create(&c, &o);
  tt_pointers_of(&o, &p);
  assert_int_equal(tt_object_create(context, &c, &p, &object), TGLU_OK);
  assert_int_equal(tt_object_workspace(&object, m, &bytes), TGLU_OK);
  tt_fill_args(&c, &p, &args);
  args.workspace = bytes > 0 ? malloc(bytes) : NULL;
  args.workspace_bytes = bytes;
  atomic_store(&allocations, 0);
  atomic_store(&counting, true);
  const tglu_status first = tt_object_run_bare(&object, &args); /* the very first */
  const tglu_status second = tt_object_run_bare(&object, &args);
  atomic_store(&counting, false);
  assert_int_equal(first, TGLU_OK);
  assert_int_equal(second, TGLU_OK);
  if (atomic_load(&allocations) != 0) {
    fail_msg("%d allocations in run: op %d, %s, %lld tokens", atomic_load(&allocations),
             (int)op, tglu_dtype_name(dtype), (long long)m);
  }
  free(args.workspace);
  tt_object_destroy(&object);
  tt_operands_destroy(&o);
}

static void running_allocates_nothing(void **state) {
  (void)state;
  static const int64_t tokens[] = {0, 1, 5, 30, 200};
  need_counts();
  for (int i = 0; i < 4; i++) {
    tglu_context *context = tt_cpu_context(i < 2 ? NULL : "portable", 1 + i % 2, i == 1);
    for (int kind = 0; kind < 9; kind++) {
      for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
        check_run(context, (tt_op)(kind / 3), (tglu_dtype)(1 + kind % 3), tokens[t]);
      }
    }
    tglu_context_destroy(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(creating_is_counted),
      cmocka_unit_test(running_allocates_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
