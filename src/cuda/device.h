/* The CUDA part of a context: driver, device facts, loaded kernel rows. */
#ifndef TGLU_CUDA_DEVICE_H
#define TGLU_CUDA_DEVICE_H

#include <pthread.h>

#include "cuda/driver.h"
#include "plan/choose.h"

/* One kernel row, loaded into the primary context. */
typedef struct tglu__cuda_kernel {
  tglu__CUmodule module;     /* NULL: not loaded                                */
  tglu__CUfunction function;
  int32_t clusters;          /* most that can be resident, after the SM limit   */
} tglu__cuda_kernel;

typedef struct tglu__cuda {
  tglu__driver driver;
  int32_t ordinal, device_total;
  tglu__CUdevice device;
  tglu__CUcontext primary;   /* retained                                        */
  tglu__device_facts facts;  /* after the SM limit                              */
  int32_t forced_row;        /* index into tglu__rows, -1: the planner chooses  */
  char name[128];
  pthread_mutex_t lock;      /* of kernels; taken at creation only              */
  tglu__cuda_kernel kernels[]; /* tglu__row_total of them                       */
} tglu__cuda;

tglu_status tglu__cuda_open(tglu_context *context, void **state);
void tglu__cuda_close(tglu_context *context, void *state);

/* TGLU_ERR_FORKED in a child of the process that started the driver. */
tglu_status tglu__cuda_check_fork(void);

/* Makes the primary context current; leave undoes that, so the caller's is as it
 * was.  Checks for forks. */
tglu_status tglu__cuda_enter(const tglu__cuda *cuda, bool *pushed);
void tglu__cuda_leave(const tglu__cuda *cuda, bool pushed);

/* The same for creation and destruction, where calls may be needed that a stream
 * capture would forbid: also switches the thread's capture mode to relaxed, and
 * leave switches it back.  Legal because nothing here touches the capturing stream. */
typedef struct tglu__cuda_scope {
  bool pushed;
  int32_t mode;
} tglu__cuda_scope;
tglu_status tglu__cuda_enter_slow(const tglu__cuda *cuda, tglu__cuda_scope *scope);
void tglu__cuda_leave_slow(const tglu__cuda *cuda, const tglu__cuda_scope *scope);

/* Loads the row unless it is there, sets its shared-memory limit, asks how many of its clusters
 * fit (0 of a row of op mlp that needs more of an SM than there is).  Within a slow scope; any
 * number of threads at once. */
tglu_status tglu__cuda_load(tglu__cuda *cuda, int32_t row, tglu__cuda_kernel *kernel);

/* Refuses a pointer that is not memory of this device, naming it.  NULL passes. */
tglu_status tglu__cuda_check_memory(const tglu__cuda *cuda, const char *name,
                                    const void *pointer);

#endif /* TGLU_CUDA_DEVICE_H */
