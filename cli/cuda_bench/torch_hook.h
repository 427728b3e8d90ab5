/* What a driver in the same process may add: contenders that it runs itself, on the
 * bench's data and stream.  PyTorch's, from Python. */
#ifndef BENCH_TORCH_HOOK_H
#define BENCH_TORCH_HOOK_H

#include <stdint.h>

/* A shape as the driver sees it.  Device addresses; x[i] is [m, k], w[i] is [2n, k] (gate
 * rows first), down is NULL for a GLU, else down[i] is [k, n].  Valid until finish. */
typedef struct bench_torch_shape {
  int64_t m, n, k;
  int32_t dtype;         /* as tglu_dtype                                            */
  int32_t sets, calls;   /* one replay is `calls` calls, of sets 0, 1, ... in turn   */
  int32_t pdl;           /* 1: before every call write_x(bench, set, stream)         */
  int32_t control;       /* 1: prepare linear too                                    */
  int32_t reserved;
  void *stream;          /* replays go here                                          */
  const uint64_t *x, *w, *down;
  int32_t (*write_x)(const void *bench, int32_t set, void *stream);
  const void *bench;
} bench_torch_shape;

enum { BENCH_TORCH_EAGER = 0, BENCH_TORCH_LINEAR = 1 };

/* Every one returns 0, or anything else after it has said why on standard error. */
typedef struct bench_torch {
  void *user;
  int32_t (*prepare)(void *user, const bench_torch_shape *shape);
  int32_t (*replay)(void *user, int32_t what);
  int32_t (*finish)(void *user);
} bench_torch;

#endif /* BENCH_TORCH_HOOK_H */
