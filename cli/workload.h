/* The operands of a random problem: seeded normal numbers, sentinels around every
 * matrix, NaN in every gap. */
#ifndef CLI_WORKLOAD_H
#define CLI_WORKLOAD_H

#include "guard.h"
#include "options.h"
#include "rng.h"

/* Weights and biases; desc is ready for tglu_mlp_create (its glu for a GLU). */
typedef struct weights {
  tglu_mlp_desc desc;
  guard part[6]; /* gate or gate_up, up, down, and their biases */
} weights;

/* Deviation 1 / sqrt(columns), so that every product has about deviation 1.  Returns
 * 0, or -1 out of memory. */
int weights_new(weights *w, const spec *s, rng *random);
void weights_free(weights *w);

/* What one call reads and writes. */
typedef struct operands {
  guard x, residual, out, workspace;
  tglu_run_args args;    /* ready for a run */
} operands;

int operands_new(operands *o, const spec *s, size_t workspace_bytes, rng *random);
/* Fills out with NaN again. */
void operands_poison(operands *o);
/* Bytes changed in sentinels and in the gaps between the rows of out. */
size_t operands_damage(const operands *o, const spec *s);
void operands_free(operands *o);

#endif /* CLI_WORKLOAD_H */
