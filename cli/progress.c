#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const double first_shown = 2.0, redrawn_every = 0.25; /* seconds */

double clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void draw(const progress *p) {
  enum { WIDTH = 32 };
  double spent = clock_now() - p->start;
  double share = (double)p->done / (double)p->total;
  if (share > 1) share = 1;
  char bar[WIDTH + 1];
  for (int i = 0; i < WIDTH; i++) bar[i] = i < share * WIDTH ? '#' : '.';
  bar[WIDTH] = 0;
  fprintf(stderr, "\r%s [%s] %3.0f %%  %.0f s", p->label, bar, 100 * share, spent);
  if (share > 0) fprintf(stderr, ", %.0f s left", spent / share - spent);
  fputs(" \033[K", stderr);
  fflush(stderr);
}

/* Waits, or returns at once where the work has ended; the lock is held. */
static void wait_until(progress *p, double seconds) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  int64_t nanoseconds = end.tv_nsec + (int64_t)(seconds * 1e9);
  end.tv_sec += (time_t)(nanoseconds / 1000000000);
  end.tv_nsec = (long)(nanoseconds % 1000000000);
  while (!p->quit && pthread_cond_timedwait(&p->wake, &p->lock, &end) == 0) continue;
}

static void *draw_main(void *argument) {
  progress *p = argument;
  int visible = 0;
  pthread_mutex_lock(&p->lock);
  wait_until(p, first_shown);
  while (!p->quit) {
    draw(p);
    visible = 1;
    wait_until(p, redrawn_every);
  }
  pthread_mutex_unlock(&p->lock);
  if (visible) fputs("\r\033[K", stderr);
  return NULL;
}

void progress_begin(progress *p, const char *label, int64_t total) {
  p->label = label;
  p->total = total > 0 ? total : 1;
  p->done = 0;
  p->start = clock_now();
  p->quit = 0;
  p->drawing = 0;
  if (!isatty(STDERR_FILENO)) return;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  p->drawing = pthread_create(&p->thread, NULL, draw_main, p) == 0;
}

void progress_at(progress *p, int64_t done) { p->done = done; }

void progress_end(progress *p) {
  if (!p->drawing) return;
  pthread_mutex_lock(&p->lock);
  p->quit = 1;
  pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->lock);
  pthread_join(p->thread, NULL);
  p->drawing = 0;
}
