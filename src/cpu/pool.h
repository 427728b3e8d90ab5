/* The threads of one CPU context: a wrapper of pthreadpool.  Private.
 *
 * A caller enters the pool, runs one or more parallel regions, and leaves it; what
 * it touches in between (the context's per-slot scratch) is its own.  Callers that
 * arrive at once wait in enter.
 *
 * After fork() the child has none of the worker threads: there the regions run on
 * the caller, slot after slot, and a lock that another thread of the parent held at
 * the moment of the fork is free again (pthread_atfork).  */
#ifndef TGLU_CPU_POOL_H
#define TGLU_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "internal.h"

#define TGLU__POOL_MAX_THREADS 1024

typedef struct tglu__pool tglu__pool;

/* threads 0: one for each CPU in this process's affinity mask. */
tglu_status tglu__pool_create(int32_t threads, tglu__pool **out);
void tglu__pool_destroy(tglu__pool *pool); /* accepts NULL */
int32_t tglu__pool_threads(const tglu__pool *pool);
/* Whether the threads sleep as soon as a region is done; false at first: they spin for a
 * while.  Not while the pool is in use. */
void tglu__pool_set_sleep(tglu__pool *pool, bool sleep);

void tglu__pool_enter(tglu__pool *pool);
void tglu__pool_leave(tglu__pool *pool);

/* task(argument, slot) once for each slot in [0, slots), slots <= threads, at once
 * where threads are free; returns when all are done.  Two slots may run on one
 * thread, one after the other.  Each task runs in the default floating-point
 * environment (nearest, no flush to zero, no traps), and its thread's own is put
 * back after it.  Only between enter and leave. */
typedef void (*tglu__pool_task)(void *argument, int32_t slot);
void tglu__pool_run(tglu__pool *pool, tglu__pool_task task, void *argument, int32_t slots);

#endif /* TGLU_CPU_POOL_H */
