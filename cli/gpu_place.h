/* Operands on the GPU: what the command has on the host, placed there and fetched back. */
#ifndef CLI_GPU_PLACE_H
#define CLI_GPU_PLACE_H

#include <tileglu/tileglu.h>

#include "cuda_bench/gpu.h"
#include "guard.h"
#include "op.h"

/* Opens the GPU of a context made with these options: the same driver library, also where
 * TILEGLU_CUDA_LIBRARY names it.  An exit code. */
int gpu_place_open(gpu *g, const tglu_context_options *options, const tglu_context_info *info);

/* Copies of an object's weights and biases.  They begin misalign bytes past a multiple of
 * 256.  desc is the host's with the copies' addresses. */
typedef struct gpu_weights {
  tglu_mlp_desc desc;
  gpu_pointer part[6];
} gpu_weights;

/* A GLU's descriptor has no down.  An exit code; gpu_weights_free in any case. */
int gpu_weights_new(gpu_weights *w, const gpu *g, op_kind kind, const tglu_mlp_desc *host,
                    size_t misalign);
/* The same without copying: memory of that size, for its addresses alone. */
int gpu_weights_reserve(gpu_weights *w, const gpu *g, op_kind kind, const tglu_mlp_desc *host,
                        size_t misalign);
void gpu_weights_free(gpu_weights *w, const gpu *g);

/* A guard's twin: its bytes and sentinels, at the same distance from a multiple of 64. */
typedef struct gpu_twin {
  gpu_pointer base;
  void *data;            /* address of the guard's bytes on the device; NULL: none */
} gpu_twin;

/* An empty guard (nothing allocated) has an empty twin.  An exit code. */
int gpu_twin_new(gpu_twin *t, const gpu *g, const guard *host);
int gpu_twin_fetch(const gpu_twin *t, const gpu *g, guard *host);
void gpu_twin_free(gpu_twin *t, const gpu *g);

#endif /* CLI_GPU_PLACE_H */
