/* A few threads for the oracle and the baseline's activation pass.  They sleep
 * between jobs, so they never compete with the library's own pool. */
#ifndef CLI_POOL_H
#define CLI_POOL_H

#include <stdint.h>

typedef struct pool pool;

/* Handles items begin ... end - 1; thread is 0 ... pool_threads - 1. */
typedef void (*pool_fn)(void *context, int64_t begin, int64_t end, int thread);

/* threads >= 1, the caller's own included; fewer where the system refuses. */
pool *pool_new(int threads);
int pool_threads(const pool *p);
/* Runs fn over 0 ... count - 1 in pieces of at most grain; returns when all are
 * done.  One job at a time. */
void pool_for(pool *p, int64_t count, int64_t grain, pool_fn fn, void *context);
void pool_free(pool *p); /* accepts NULL */

#endif /* CLI_POOL_H */
