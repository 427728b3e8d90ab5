/* A progress bar on stderr: only on a terminal, and only for work that turns out
 * to take more than two seconds. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>

typedef struct progress {
  const char *label;
  int64_t total;
  double start, drawn;   /* seconds */
  int terminal, visible;
} progress;

void progress_begin(progress *p, const char *label, int64_t total);
void progress_at(progress *p, int64_t done);
void progress_end(progress *p); /* wipes the bar */

/* Seconds on a clock that only goes forward. */
double clock_now(void);

#endif /* CLI_PROGRESS_H */
