/* One layer of `tileglu run`: checked, then timed against the unfused way. */
#ifndef CLI_RUN_LAYER_H
#define CLI_RUN_LAYER_H

#include "baseline.h"
#include "check.h"
#include "layers.h"

enum { RUN_MAX_ROUNDS = 100000 };
#define RUN_NOISY 0.25 /* a spread above this is told to the user */

typedef struct run_plan {
  int64_t rounds;       /* 0: as many as fit the time */
  int check, unfused;
} run_plan;

typedef struct layer_run {
  int32_t number;
  char prefix[128], family[64], activation_source[96];
  int64_t hidden, intermediate;
  tglu_dtype dtype;
  tglu_activation activation;
  tglu_layout layout;
  char row[96], down_row[96];
  int64_t rounds;
  double us, spread, flops;                /* medians */
  double unfused_us;                       /* 0: not measured */
  double part_us[BASELINE_PARTS];          /* means */
  int checked;
  comparison comparison;
} layer_run;

/* Times fused and unfused on the GPU, on copies of the operands: calls back to back, by the
 * device's clock (run_gpu.c).  An exit code. */
int run_gpu_times(const tools *t, const run_plan *plan, const tglu_mlp_desc *desc,
                  const void *x, int64_t tokens, rng *random, layer_run *result);

/* Returns an exit code; a failed comparison is in the result, not in the code. */
int run_layer(const tools *t, const run_plan *plan, const layer *l,
              const hidden_states *states, uint64_t seed, layer_run *result);

#endif /* CLI_RUN_LAYER_H */
