#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>

#include "mem.h"

typedef struct worker {
  pool *owner;
  int number;
  pthread_t thread;
} worker;

struct pool {
  int threads;
  worker *workers;        /* threads - 1 */
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  uint64_t job;           /* counts jobs; a worker waits for the next */
  int busy;               /* workers not yet done with this job       */
  int quit;
  pool_fn fn;
  void *context;
  int64_t count, grain;
  _Atomic int64_t next;
};

static void work(pool *p, int thread) {
  for (;;) {
    int64_t begin = atomic_fetch_add(&p->next, p->grain);
    if (begin >= p->count) return;
    int64_t end = begin + p->grain < p->count ? begin + p->grain : p->count;
    p->fn(p->context, begin, end, thread);
  }
}

static void *worker_main(void *argument) {
  worker *self = argument;
  pool *p = self->owner;
  uint64_t seen = 0;
  pthread_mutex_lock(&p->lock);
  for (;;) {
    while (p->job == seen && !p->quit) pthread_cond_wait(&p->wake, &p->lock);
    if (p->quit) break;
    seen = p->job;
    pthread_mutex_unlock(&p->lock);
    work(p, self->number);
    pthread_mutex_lock(&p->lock);
    if (--p->busy == 0) pthread_cond_signal(&p->done);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

pool *pool_new(int threads) {
  pool *p = mem_zeroed(1, sizeof *p);
  p->threads = 1;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  if (threads <= 1) return p;
  p->workers = mem_zeroed((size_t)threads - 1, sizeof *p->workers);
  for (int i = 1; i < threads; i++) {
    worker *w = &p->workers[i - 1];
    w->owner = p;
    w->number = i;
    if (pthread_create(&w->thread, NULL, worker_main, w) != 0) break;
    p->threads++;
  }
  return p;
}

int pool_threads(const pool *p) { return p->threads; }

void pool_for(pool *p, int64_t count, int64_t grain, pool_fn fn, void *context) {
  if (count <= 0) return;
  if (p->threads == 1 || count <= grain) {
    fn(context, 0, count, 0);
    return;
  }
  pthread_mutex_lock(&p->lock);
  p->fn = fn;
  p->context = context;
  p->count = count;
  p->grain = grain;
  atomic_store(&p->next, 0);
  p->busy = p->threads - 1;
  p->job++;
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  work(p, 0);
  pthread_mutex_lock(&p->lock);
  while (p->busy > 0) pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

void pool_free(pool *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->quit = 1;
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  for (int i = 1; i < p->threads; i++) pthread_join(p->workers[i - 1].thread, NULL);
  mem_free(p->workers);
  mem_free(p);
}
