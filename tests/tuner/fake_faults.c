/* A driver over the bench's fake one (tests/cuda_bench), on which single rows go wrong.  Its
 * calls are found first, the rest behind it.  Memory belongs to the device last retained.
 * Each variable holds part of a row's name:
 *
 *   FAULT_ERROR   a launch of it returns an error
 *   FAULT_CRASH   a launch of it ends the process by a signal
 *   FAULT_EXIT    a launch of it ends the process as if all were well
 *   FAULT_SPIN    a launch of it never returns
 *   FAULT_HANG    the device never finishes after it
 *   FAULT_LATE    crashes in its sixth replay, while it is timed
 *   FAULT_TURN    its result is right when it is first checked, and wrong from then on
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cuda_bench/fake.h"

enum { NOT_READY = 600, LAUNCH_FAILED = 719 };

static int hung;

static int is_meant(const char *variable, const char *kernel) {
  const char *text = getenv(variable);
  return text && *text && strstr(kernel, text) != NULL;
}

static void *behind(const char *name) {
  void *call = dlsym(RTLD_NEXT, name);
  if (!call) abort();
  return call;
}

FAKE_EXPORT int cuLaunchKernelEx(const void *config, const char *function, void **parameters,
                                 void **extra);
FAKE_EXPORT int cuGraphLaunch(fake_op **exec, void *stream);
FAKE_EXPORT int cuEventQuery(const void *event);
FAKE_EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
FAKE_EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer);

int cuLaunchKernelEx(const void *config, const char *function, void **parameters,
                     void **extra) {
  int (*call)(const void *, const char *, void **, void **);
  *(void **)&call = behind("cuLaunchKernelEx");
  if (is_meant("FAULT_ERROR", function)) return LAUNCH_FAILED;
  if (is_meant("FAULT_CRASH", function)) {
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would catch it */
    raise(SIGSEGV);
  }
  if (is_meant("FAULT_EXIT", function)) _exit(0);
  while (is_meant("FAULT_SPIN", function)) pause();
  if (is_meant("FAULT_HANG", function)) hung = 1;
  return call(config, function, parameters, extra);
}

/* A graph begins with its nodes' array; the last is the row's. */
int cuGraphLaunch(fake_op **exec, void *stream) {
  static int replays;
  int (*call)(fake_op **, void *);
  *(void **)&call = behind("cuGraphLaunch");
  if (is_meant("FAULT_LATE", (*exec)->kernel) && ++replays == 6) raise(SIGKILL);
  if (is_meant("FAULT_TURN", (*exec)->kernel) && ++replays > 6) {
    setenv("FAKE_WRONG", (*exec)->kernel, 1);
  }
  return call(exec, stream);
}

int cuEventQuery(const void *event) {
  int (*call)(const void *);
  *(void **)&call = behind("cuEventQuery");
  return hung ? NOT_READY : call(event);
}

static int device_in_use;

int cuDevicePrimaryCtxRetain(void **context, int device) {
  int (*call)(void **, int);
  *(void **)&call = behind("cuDevicePrimaryCtxRetain");
  device_in_use = device;
  return call(context, device);
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer) {
  enum { DEVICE_ORDINAL = 9 };
  int (*call)(void *, int, uint64_t);
  *(void **)&call = behind("cuPointerGetAttribute");
  if (attribute != DEVICE_ORDINAL) return call(value, attribute, pointer);
  memcpy(value, &device_in_use, sizeof device_in_use);
  return 0;
}
