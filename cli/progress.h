/* A progress bar on stderr: only on a terminal, and only for work that has taken two
 * seconds.  A thread draws it, so that it lives through steps of any length. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct progress {
  const char *label;
  int64_t total;
  _Atomic int64_t done;
  double start;          /* seconds */
  int drawing;           /* the thread exists */
  int quit;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
} progress;

void progress_begin(progress *p, const char *label, int64_t total);
void progress_at(progress *p, int64_t done);
void progress_end(progress *p); /* wipes the bar; due after every progress_begin */

/* Seconds on a clock that only goes forward. */
double clock_now(void);

#endif /* CLI_PROGRESS_H */
