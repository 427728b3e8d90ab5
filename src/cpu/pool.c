#include "cpu/pool.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <pthreadpool.h>
#include <sched.h>
#include <stdlib.h>

/* The packaged pthreadpool is not instrumented, so ThreadSanitizer can't see that a
 * region's tasks come after the caller's writes and before its later reads. */
#if defined(__SANITIZE_THREAD__)
#define TGLU__TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TGLU__TSAN 1
#endif
#endif
#ifdef TGLU__TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static void tsan_acquire(void *address) { __tsan_acquire(address); }
static void tsan_release(void *address) { __tsan_release(address); }
#else
static void tsan_acquire(void *address) { (void)address; }
static void tsan_release(void *address) { (void)address; }
#endif

/* Allocated by malloc, like pthreadpool's own, because a forked child must be able
 * to leave it behind: its workers can't be joined there. */
struct tglu__pool {
  pthread_mutex_t mutex;     /* held from enter to leave                             */
  pthreadpool_t workers;     /* NULL where threads is 1                              */
  int32_t threads;
  uint32_t flags;            /* pthreadpool's, for every region                      */
  bool forked;               /* this process is a child of the one with the workers  */
  char end;                  /* an address for ThreadSanitizer                       */
  tglu__pool *next, **link;  /* list of all pools, for the fork handlers             */
};

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static tglu__pool *list;
/* What a forked child could not free; kept reachable. */
static tglu__pool *left_behind;
static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;
static int handlers_error;

static void before_fork(void) { pthread_mutex_lock(&list_mutex); }

static void after_fork_parent(void) { pthread_mutex_unlock(&list_mutex); }

static void after_fork_child(void) {
  for (tglu__pool *pool = list; pool != NULL; pool = pool->next) {
    pool->forked = true;
    pthread_mutex_init(&pool->mutex, NULL);
  }
  pthread_mutex_unlock(&list_mutex);
}

static void register_handlers(void) {
  handlers_error = pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static int32_t usable_cpus(void) {
  int32_t count = 1;
  for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
    cpu_set_t *set = CPU_ALLOC((size_t)bits);
    if (set == NULL) break;
    size_t bytes = CPU_ALLOC_SIZE((size_t)bits);
    bool fits = sched_getaffinity(0, bytes, set) == 0;
    bool retry = !fits && errno == EINVAL; /* the kernel's mask is larger */
    if (fits) count = (int32_t)CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    if (!retry) break;
  }
  if (count < 1) count = 1;
  return count < TGLU__POOL_MAX_THREADS ? count : TGLU__POOL_MAX_THREADS;
}

/* ---- can this many threads start? ----
 * NOTE: pthreadpool_create ignores a thread that does not start and then waits for it for
 * ever (a limit of processes or address space), so the number is tried out first. */

typedef struct trial {
  pthread_mutex_t mutex;
  pthread_cond_t end;
  bool ended;
} trial;

static void *wait_for_end(void *argument) {
  trial *t = argument;
  pthread_mutex_lock(&t->mutex);
  while (!t->ended) pthread_cond_wait(&t->end, &t->mutex);
  pthread_mutex_unlock(&t->mutex);
  return NULL;
}

/* How many of `wanted` threads ran at one time. */
static int32_t startable(int32_t wanted) {
  pthread_t *threads = calloc((size_t)wanted, sizeof *threads);
  if (threads == NULL) return 0;
  trial t = {.mutex = PTHREAD_MUTEX_INITIALIZER, .end = PTHREAD_COND_INITIALIZER};
  int32_t started = 0;
  while (started < wanted && pthread_create(&threads[started], NULL, wait_for_end, &t) == 0)
    ++started;
  pthread_mutex_lock(&t.mutex);
  t.ended = true;
  pthread_cond_broadcast(&t.end);
  pthread_mutex_unlock(&t.mutex);
  for (int32_t i = 0; i < started; ++i) pthread_join(threads[i], NULL);
  pthread_cond_destroy(&t.end);
  pthread_mutex_destroy(&t.mutex);
  free(threads);
  return started;
}

tglu_status tglu__pool_create(int32_t threads, tglu__pool **out) {
  *out = NULL;
  if (threads < 0 || threads > TGLU__POOL_MAX_THREADS)
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "threads: %d is not in 0 to %d",
                      (int)threads, TGLU__POOL_MAX_THREADS);
  pthread_once(&handlers_once, register_handlers);
  if (handlers_error != 0)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: the fork handlers (error %d)",
                      handlers_error);
  tglu__pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: the thread pool");
  pool->threads = threads == 0 ? usable_cpus() : threads;
  if (pool->threads > 1) {
    const int32_t wanted = pool->threads;
    int32_t started = startable(wanted - 1);
    if (started == wanted - 1) pool->workers = pthreadpool_create((size_t)wanted);
    if (pool->workers == NULL) {
      free(pool);
      return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "threads: a pool of %d could not start, only "
                        "%d beside the caller's", (int)wanted, (int)started);
    }
  }
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_mutex_lock(&list_mutex);
  pool->next = list;
  pool->link = &list;
  if (list != NULL) list->link = &pool->next;
  list = pool;
  pthread_mutex_unlock(&list_mutex);
  *out = pool;
  return TGLU_OK;
}

void tglu__pool_destroy(tglu__pool *pool) {
  if (pool == NULL) return;
  pthread_mutex_lock(&list_mutex);
  *pool->link = pool->next;
  if (pool->next != NULL) pool->next->link = pool->link;
  bool leave_behind = pool->forked && pool->workers != NULL;
  if (leave_behind) {
    pool->next = left_behind;
    left_behind = pool;
  }
  pthread_mutex_unlock(&list_mutex);
  if (leave_behind) return;
  pthread_mutex_destroy(&pool->mutex);
  if (pool->workers != NULL) pthreadpool_destroy(pool->workers);
  free(pool);
}

int32_t tglu__pool_threads(const tglu__pool *pool) { return pool->threads; }

void tglu__pool_set_sleep(tglu__pool *pool, bool sleep) {
  pool->flags = sleep ? PTHREADPOOL_FLAG_YIELD_WORKERS : 0;
}

void tglu__pool_enter(tglu__pool *pool) { pthread_mutex_lock(&pool->mutex); }

void tglu__pool_leave(tglu__pool *pool) { pthread_mutex_unlock(&pool->mutex); }

typedef struct region {
  tglu__pool_task task;
  void *argument;
} region;

static void run_slot(const region *r, int32_t slot) {
  fenv_t environment;
  fegetenv(&environment);
  fesetenv(FE_DFL_ENV);
  r->task(r->argument, slot);
  fesetenv(&environment);
}

/* The region's own address orders what the caller wrote before the tasks, and what the
 * tasks wrote before the caller's return. */
static void run_slot_on_worker(void *argument, size_t slot) {
  tsan_acquire(argument);
  run_slot(argument, (int32_t)slot);
  tsan_release(argument);
}

void tglu__pool_run(tglu__pool *pool, tglu__pool_task task, void *argument, int32_t slots) {
  region r = {task, argument};
  if (slots > 1 && pool->workers != NULL && !pool->forked) {
    tsan_release(&r);
    pthreadpool_parallelize_1d(pool->workers, run_slot_on_worker, &r, (size_t)slots,
                               pool->flags);
    tsan_acquire(&r);
    return;
  }
  for (int32_t slot = 0; slot < slots; slot++) run_slot(&r, slot);
}
