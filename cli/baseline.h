/* The unfused way, made of the library's own kernels: gate product to memory, up
 * product to memory, a separate activation pass over both, then down.  Same threads,
 * same micro-kernels; what differs is what this project is about. */
#ifndef CLI_BASELINE_H
#define CLI_BASELINE_H

#include <tileglu/tileglu.h>

#include "hot.h"
#include "op.h"
#include "pool.h"

enum { BASELINE_GATE, BASELINE_UP, BASELINE_ACTIVATION, BASELINE_DOWN, BASELINE_PARTS };

typedef struct baseline {
  op_kind kind;
  int64_t intermediate;
  tglu_dtype dtype;
  hot_activation activation;
  tglu_linear *gate, *up, *down;   /* down NULL for a GLU */
  void *gate_bias, *up_bias;       /* tight copies of interleaved biases */
  const hot_loops *hot;
  pool *threads;
} baseline;

/* desc's weights are bound, like by an object.  On failure nothing is held. */
tglu_status baseline_new(baseline *b, op_kind kind, tglu_context *context,
                         const tglu_mlp_desc *desc, const hot_loops *hot, pool *threads);
/* Bytes of memory for both intermediates, H and the library's workspace. */
tglu_status baseline_scratch_bytes(const baseline *b, int64_t tokens, size_t *bytes);
/* Runs it; out must be tight.  seconds (BASELINE_PARTS of them), if not NULL, get each
 * part's time added. */
tglu_status baseline_run(const baseline *b, const tglu_run_args *args, void *scratch,
                         size_t scratch_bytes, double *seconds);
void baseline_free(baseline *b); /* accepts a zeroed one */

#endif /* CLI_BASELINE_H */
