#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

double clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_begin(progress *p, const char *label, int64_t total) {
  p->label = label;
  p->total = total > 0 ? total : 1;
  p->start = clock_now();
  p->drawn = 0;
  p->terminal = isatty(STDERR_FILENO);
  p->visible = 0;
}

void progress_at(progress *p, int64_t done) {
  enum { WIDTH = 32 };
  if (!p->terminal) return;
  double now = clock_now(), spent = now - p->start;
  double share = (double)done / (double)p->total;
  if (share > 1) share = 1;
  double whole = share > 0 ? spent / share : 0;
  if (spent < 0.5 || whole < 2.0 || now - p->drawn < 0.1) return;
  char bar[WIDTH + 1];
  for (int i = 0; i < WIDTH; i++) bar[i] = i < share * WIDTH ? '#' : '.';
  bar[WIDTH] = 0;
  fprintf(stderr, "\r%s [%s] %3.0f %%  %.0f s left \033[K", p->label, bar, 100 * share,
          whole - spent);
  fflush(stderr);
  p->drawn = now;
  p->visible = 1;
}

void progress_end(progress *p) {
  if (p->visible) fputs("\r\033[K", stderr);
  p->visible = 0;
}
