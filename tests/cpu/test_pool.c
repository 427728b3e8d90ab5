/* The thread pool: every slot once, callers in turn, the floating-point environment,
 * and what is left of it after fork. */
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "cpu/pool.h"

/* ThreadSanitizer does not support threads that a forked child starts. */
#if defined(__SANITIZE_THREAD__)
#define NO_THREADS_AFTER_FORK
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK
#endif
#endif

enum { THREADS = 4, CALLERS = 8, ROUNDS = 20 };

static tglu__pool *new_pool(int32_t threads) {
  tglu__pool *pool = NULL;
  assert_int_equal(tglu__pool_create(threads, &pool), TGLU_OK);
  assert_non_null(pool);
  return pool;
}

static void count_slot(void *argument, int32_t slot) {
  atomic_fetch_add((_Atomic int *)argument + slot, 1);
}

/* Runs one region and says whether each slot was run just once. */
static bool every_slot_once(tglu__pool *pool, int32_t slots) {
  _Atomic int counts[THREADS + 1] = {0};
  tglu__pool_enter(pool);
  tglu__pool_run(pool, count_slot, counts, slots);
  tglu__pool_leave(pool);
  for (int32_t i = 0; i <= THREADS; i++)
    if (counts[i] != (i < slots)) return false;
  return true;
}

static void test_slots(void **state) {
  (void)state;
  for (int32_t threads = 1; threads <= THREADS; threads++) {
    tglu__pool *pool = new_pool(threads);
    assert_int_equal(tglu__pool_threads(pool), threads);
    for (int sleep = 0; sleep < 2; sleep++) {
      tglu__pool_set_sleep(pool, sleep != 0);
      for (int32_t slots = 1; slots <= threads; slots++)
        for (int i = 0; i < 5; i++) assert_true(every_slot_once(pool, slots));
    }
    tglu__pool_destroy(pool);
  }
  tglu__pool_destroy(NULL);
}

static void test_bounds(void **state) {
  (void)state;
  tglu__pool *pool = (tglu__pool *)1;
  assert_int_equal(tglu__pool_create(-1, &pool), TGLU_ERR_INVALID_ARGUMENT);
  assert_null(pool);
  assert_int_equal(tglu__pool_create(TGLU__POOL_MAX_THREADS + 1, &pool),
                   TGLU_ERR_INVALID_ARGUMENT);
}

/* threads 0: as many as this process may use, and no more when it may use one. */
static void test_affinity(void **state) {
  (void)state;
  cpu_set_t all, one;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  tglu__pool *pool = new_pool(0);
  assert_int_equal(tglu__pool_threads(pool), CPU_COUNT(&all));
  tglu__pool_destroy(pool);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  pool = new_pool(0);
  assert_int_equal(tglu__pool_threads(pool), 1);
  tglu__pool_destroy(pool);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

typedef struct crowd {
  tglu__pool *pool;
  int inside;          /* plain on purpose: ThreadSanitizer must see no race */
  int data[THREADS];
  _Atomic int faults;
} crowd;

static void touch_slot(void *argument, int32_t slot) {
  crowd *c = argument;
  if (c->inside != 1) atomic_fetch_add(&c->faults, 1);
  c->data[slot]++;
}

static void *caller(void *argument) {
  crowd *c = argument;
  for (int i = 0; i < ROUNDS; i++) {
    tglu__pool_enter(c->pool);
    if (++c->inside != 1) atomic_fetch_add(&c->faults, 1);
    int before[THREADS];
    memcpy(before, c->data, sizeof before);
    tglu__pool_run(c->pool, touch_slot, c, THREADS);
    for (int slot = 0; slot < THREADS; slot++)
      if (c->data[slot] != before[slot] + 1) atomic_fetch_add(&c->faults, 1);
    c->inside--;
    tglu__pool_leave(c->pool);
  }
  return NULL;
}

static void test_concurrent_callers(void **state) {
  (void)state;
  crowd c = {.pool = new_pool(THREADS)};
  pthread_t threads[CALLERS];
  for (int i = 0; i < CALLERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, caller, &c), 0);
  for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(c.faults, 0);
  for (int slot = 0; slot < THREADS; slot++) assert_int_equal(c.data[slot], CALLERS * ROUNDS);
  tglu__pool_destroy(c.pool);
}

/* Tasks see nearest rounding, and leave what they found. */
static void check_rounding(void *argument, int32_t slot) {
  (void)slot;
  if (fegetround() != FE_TONEAREST) atomic_fetch_add((_Atomic int *)argument, 1);
}

static void test_floating_point_mode(void **state) {
  (void)state;
  for (int32_t threads = 1; threads <= 2; threads++) {
    _Atomic int faults = 0;
    tglu__pool *pool = new_pool(threads);
    assert_int_equal(fesetround(FE_UPWARD), 0);
    feraiseexcept(FE_INEXACT);
    tglu__pool_enter(pool);
    tglu__pool_run(pool, check_rounding, &faults, threads);
    tglu__pool_leave(pool);
    int mode = fegetround(), raised = fetestexcept(FE_INEXACT);
    fesetround(FE_TONEAREST);
    assert_int_equal(faults, 0);
    assert_int_equal(mode, FE_UPWARD);
    assert_int_not_equal(raised, 0);
    tglu__pool_destroy(pool);
  }
}

/* A child's verdict, within ten seconds; a hang ends by its alarm. */
static int exit_code_of(pid_t child) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int use_in_child(tglu__pool *pool) {
  alarm(10);
  if (!every_slot_once(pool, THREADS)) return 1;
  pid_t grandchild = fork();
  if (grandchild == 0) {
    alarm(10);
    _exit(every_slot_once(pool, THREADS) ? 0 : 1);
  }
  int status = 0;
  if (waitpid(grandchild, &status, 0) != grandchild || status != 0) return 2;
#ifndef NO_THREADS_AFTER_FORK
  tglu__pool *own = NULL; /* a new pool in the child has threads again */
  if (tglu__pool_create(THREADS, &own) != TGLU_OK) return 3;
  if (!every_slot_once(own, THREADS)) return 4;
  tglu__pool_destroy(own);
#endif
  tglu__pool_destroy(pool);
  return 0;
}

static void test_fork(void **state) {
  (void)state;
  tglu__pool *pool = new_pool(THREADS);
  assert_true(every_slot_once(pool, THREADS));
  pid_t child = fork();
  if (child == 0) _exit(use_in_child(pool));
  assert_int_equal(exit_code_of(child), 0);
  assert_true(every_slot_once(pool, THREADS));
  tglu__pool_destroy(pool);
}

typedef struct holder {
  tglu__pool *pool;
  pthread_barrier_t held, forked;
} holder;

static void *hold(void *argument) {
  holder *h = argument;
  tglu__pool_enter(h->pool);
  pthread_barrier_wait(&h->held);
  pthread_barrier_wait(&h->forked);
  tglu__pool_leave(h->pool);
  return NULL;
}

/* The lock that another thread holds when the process forks is free in the child. */
static void test_fork_while_held(void **state) {
  (void)state;
  holder h = {.pool = new_pool(THREADS)};
  pthread_t thread;
  pthread_barrier_init(&h.held, NULL, 2);
  pthread_barrier_init(&h.forked, NULL, 2);
  assert_int_equal(pthread_create(&thread, NULL, hold, &h), 0);
  pthread_barrier_wait(&h.held);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(every_slot_once(h.pool, THREADS) ? 0 : 1);
  }
  pthread_barrier_wait(&h.forked);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(exit_code_of(child), 0);
  assert_true(every_slot_once(h.pool, THREADS));
  tglu__pool_destroy(h.pool);
}

/* A pool that cannot have its threads is refused; the packaged library would wait for
 * them for ever. */
static void test_no_room(void **state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(NO_THREADS_AFTER_FORK)
  print_message("SKIP: a sanitizer's shadow memory is larger than any limit\n");
  skip();
#else
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    struct rlimit limit = {512u << 20, 512u << 20}; /* some sixty stacks of 8 MiB */
    tglu__pool *pool = NULL;
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    tglu_status status = tglu__pool_create(1000, &pool);
    bool refused = status == TGLU_ERR_OUT_OF_MEMORY && pool == NULL &&
                   strstr(tglu_last_error(), "threads: a pool of 1000") != NULL;
    if (refused) status = tglu__pool_create(3, &pool); /* and a smaller one works */
    _exit(refused && status == TGLU_OK && every_slot_once(pool, 3) ? 0 : 1);
  }
  assert_int_equal(exit_code_of(child), 0);
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_slots),
    cmocka_unit_test(test_bounds),
    cmocka_unit_test(test_no_room),
    cmocka_unit_test(test_affinity),
    cmocka_unit_test(test_concurrent_callers),
    cmocka_unit_test(test_floating_point_mode),
    cmocka_unit_test(test_fork),
    cmocka_unit_test(test_fork_while_held),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
