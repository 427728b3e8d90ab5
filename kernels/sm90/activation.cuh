/* The activations on the device, in fp32 on the fp32 accumulators: the gate factor
 * and the up factor, whose product is rounded once by the caller.
 *
 * silu(g) = g / (1 + 2^(-g log2 e)) by ex2.approx and rcp.approx: relative error
 * below 2^-19 for g >= -20.  Below about -87.3, where 1 + e^-g passes 2^126, it is -0; so
 * is silu(-inf), since the gate is first raised to -FLT_MAX by a max that keeps NaN.
 * Values of `activation` are those of tglu_activation. */
#ifndef TGLU_SM90_ACTIVATION_CUH
#define TGLU_SM90_ACTIVATION_CUH

#include "ptx.cuh"

enum {
  ACTIVATION_SILU = 1, ACTIVATION_GELU_TANH = 2, ACTIVATION_GELU_ERF = 3,
  ACTIVATION_RELU = 4, ACTIVATION_SIGMOID = 5, ACTIVATION_SWIGLUOAI = 6
};

#define LOG2_E 1.4426950408889634f
#define LOWEST_FLOAT -3.402823466e38f

/* 1 / (1 + 2^-t) */
TGLU_DEVICE float sigmoid_exp2(float t) { return rcp_approx(1.0f + exp2_approx(-t)); }

/* x/2 erfc(-x / sqrt 2), without cancellation for x < 0.  With z = |x| / sqrt 2 and
 * t = 1 / (1 + z/2), erfc(z) = t 2^(P(t) - z^2 log2 e); P is our Chebyshev fit of degree
 * 7 on z in [0, 14.4], relative error of erfc 1.2e-6. */
TGLU_DEVICE float gelu_erf(float x) {
  const float t = rcp_approx(fmaf(fabsf(x), 0.35355339059327f, 1.0f));
  float e = fmaf(t, -0.2883475941f, 1.154576078f);
  e = fmaf(t, e, -1.560057818f);
  e = fmaf(t, e, 0.6051603868f);
  e = fmaf(t, e, -0.1062232507f);
  e = fmaf(t, e, 0.5816892793f);
  e = fmaf(t, e, 1.438796503f);
  e = fmaf(t, e, -1.825595211f);
  const float half_erfc = 0.5f * t * exp2_approx(fmaf(x * x, -0.5f * LOG2_E, e));
  return x * (x > 0.0f ? 1.0f - half_erfc : half_erfc);
}

TGLU_DEVICE float silu(float g) {
  const float x = max_nan(g, LOWEST_FLOAT);
  return x * sigmoid_exp2(x * LOG2_E);
}

/* Replaces g[0..Count) by the gate factors of any activation.  The activation is the
 * same for the whole grid, so the branches are uniform.  silu, gelu_tanh, sigmoid and
 * swigluoai share one form: x sigma(x (a + b x^2)), or sigma alone. */
template <int Count>
TGLU_DEVICE void gate_factor(int32_t activation, float alpha, float limit, float (&g)[Count]) {
  if (activation == ACTIVATION_GELU_ERF) {
#pragma unroll
    for (int i = 0; i < Count; i++) g[i] = gelu_erf(max_nan(g[i], LOWEST_FLOAT));
  } else if (activation == ACTIVATION_RELU) {
#pragma unroll
    for (int i = 0; i < Count; i++) g[i] = max_nan(g[i], 0.0f);
  } else {
    const bool tanh_form = activation == ACTIVATION_GELU_TANH;
    const bool clamped = activation == ACTIVATION_SWIGLUOAI;
    const bool alone = activation == ACTIVATION_SIGMOID;
    const float c = 2.0f * 0.7978845608028654f * LOG2_E; /* 2 sqrt(2/pi) */
    const float a = tanh_form ? c : clamped ? alpha * LOG2_E : LOG2_E;
    const float b = tanh_form ? c * 0.044715f : 0.0f;
#pragma unroll
    for (int i = 0; i < Count; i++) {
      float x = max_nan(g[i], LOWEST_FLOAT);
      if (clamped) x = min_nan(x, limit);
      const float slope = tanh_form ? fmaf(b, x * x, a) : a;
      g[i] = (alone ? 1.0f : x) * sigmoid_exp2(x * slope);
    }
  }
}

/* Replaces u[0..Count) by the up factors. */
template <int Count>
TGLU_DEVICE void up_factor(int32_t activation, float limit, float offset, float (&u)[Count]) {
  if (activation == ACTIVATION_SWIGLUOAI) {
#pragma unroll
    for (int i = 0; i < Count; i++) {
      u[i] = min_nan(max_nan(u[i], -limit), limit) + offset;
    }
  }
}

#endif /* TGLU_SM90_ACTIVATION_CUH */
