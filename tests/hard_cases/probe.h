/* Small GLUs whose accumulators hold exactly the values asked for. */
#ifndef TGLU_TEST_PROBE_H
#define TGLU_TEST_PROBE_H

#include <stdint.h>

#include <tileglu/tileglu.h>

/* A CPU context at the level that the test was started with. */
extern tglu_context *probe_context;

/* out[t, j] = act(gate[j]) * up[j] for `tokens` equal tokens: hidden = 8, x = [1,0,...],
 * first column of the weights gate and up, the rest 0.  `desc` names dtype,
 * activation and its parameters; layout and pointers are filled here.  out is
 * [tokens, count], in dtype.  A failed call fails the test. */
void probe_glu(const tglu_glu_desc *desc, int64_t tokens, int64_t count,
               const double *gate, const double *up, void *out);

/* One element, tokens = count = 1. */
double probe_one(tglu_dtype dtype, tglu_activation activation, double gate, double up);

/* A GLU description with these three set. */
tglu_glu_desc probe_desc(tglu_dtype dtype, tglu_activation activation);

#endif /* TGLU_TEST_PROBE_H */
