/* The activations, one value at a time, in plain C: the portable kernels' own, and
 * the reference of the others.  Computed in double and rounded once to fp32, so that
 * results are within half a unit of fp32 down to its subnormals.  Private; static
 * inline only.
 *
 * Edge cases, the same on every backend: NaN in gate or up stays NaN (also through
 * min, max and clamp); an activation of a gate of -inf is 0 (its limit), not NaN. */
#ifndef TGLU_CPU_ACTIVATION_H
#define TGLU_CPU_ACTIVATION_H

#include <float.h>
#include <math.h>

#include <tileglu/tileglu.h>

typedef struct tglu__act {
  tglu_activation kind;
  float alpha, limit, offset; /* swigluoai */
} tglu__act;

static inline double tglu__sigma(double z) { return 1.0 / (1.0 + exp(-z)); }

/* The activation of gate alone; for swigluoai g' * sigma(alpha g'). */
static inline float tglu__act_gate(const tglu__act *act, float gate) {
  /* -inf * 0 would be NaN. */
  double g = gate < -FLT_MAX ? -FLT_MAX : gate;
  switch (act->kind) {
    case TGLU_ACTIVATION_SILU: return (float)(g * tglu__sigma(g));
    case TGLU_ACTIVATION_GELU_TANH: /* 2 sqrt(2/pi) (g + 0.044715 g^3) */
      return (float)(g * tglu__sigma(1.5957691216057308 * (g + 0.044715 * g * g * g)));
    case TGLU_ACTIVATION_GELU_ERF:
      return (float)(0.5 * g * erfc(g * -0.70710678118654752));
    case TGLU_ACTIVATION_RELU: return gate < 0.0f ? 0.0f : gate;
    case TGLU_ACTIVATION_SIGMOID: return (float)tglu__sigma(gate);
    case TGLU_ACTIVATION_SWIGLUOAI: {
      double limited = g > act->limit ? act->limit : g;
      return (float)(limited * tglu__sigma(act->alpha * limited));
    }
  }
  return NAN;
}

/* act(gate) * up, in fp32. */
static inline float tglu__act_glu(const tglu__act *act, float gate, float up) {
  float activated = tglu__act_gate(act, gate);
  if (act->kind == TGLU_ACTIVATION_SWIGLUOAI) {
    up = up > act->limit ? act->limit : up;
    up = up < -act->limit ? -act->limit : up;
    up += act->offset;
  }
  return activated * up;
}

#endif /* TGLU_CPU_ACTIVATION_H */
