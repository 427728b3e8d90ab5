/* The activations of cpu/activation.h in vectors of eight fp32, without libm.  Relative
 * error below 2^-18 down to the smallest subnormal result (2^-16 is promised down to a
 * gate of -20, and an absolute 2^-24 below).
 *
 * exp is kept as m * 2^n until the last multiplications, so that a result below
 * the range of its factors is neither lost nor rounded twice.  Where min or max meets a
 * NaN, x86 gives the second operand: data comes second, so that NaN stays NaN. */
#ifndef TGLU_CPU_KERNELS_AVX2_ACT_H
#define TGLU_CPU_KERNELS_AVX2_ACT_H

#include <float.h>

#include "cpu/activation.h"
#include "cpu/kernels/avx2/vec.h"

TGLU__INLINE __m256 all(float value) { return _mm256_set1_ps(value); }

TGLU__INLINE __m256 negated(__m256 v) { return _mm256_xor_ps(v, all(-0.0f)); }

/* exp(high + low) = m * s0 * s1 for high <= 0 and a small correction low; m is near 1,
 * s0 and s1 are powers of two.  Below -170 m is 0. */
typedef struct scaled_exp {
  __m256 m, s0, s1;
} scaled_exp;

TGLU__INLINE __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

TGLU__INLINE scaled_exp exp_scaled(__m256 high, __m256 low) {
  const __m256 lowest = all(-170.0f);
  __m256 under = _mm256_cmp_ps(high, lowest, _CMP_LT_OQ);
  __m256 a = _mm256_max_ps(lowest, high);
  __m256 n = _mm256_round_ps(_mm256_mul_ps(a, all(0x1.715476p+0f)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  /* ln 2 in two parts, the first short enough that n times it is exact. */
  __m256 r = _mm256_fnmadd_ps(n, all(0x1.62e4p-1f), a);
  r = _mm256_fnmadd_ps(n, all(0x1.7f7d1cp-20f), r);
  r = _mm256_add_ps(r, low);
  /* The series to r^7: the rest is below 2^-27 for |r| <= ln 2 / 2. */
  __m256 p = all(1.0f / 5040.0f);
  p = _mm256_fmadd_ps(p, r, all(1.0f / 720.0f));
  p = _mm256_fmadd_ps(p, r, all(1.0f / 120.0f));
  p = _mm256_fmadd_ps(p, r, all(1.0f / 24.0f));
  p = _mm256_fmadd_ps(p, r, all(1.0f / 6.0f));
  p = _mm256_fmadd_ps(p, r, all(0.5f));
  p = _mm256_fmadd_ps(p, r, all(1.0f));
  p = _mm256_fmadd_ps(p, r, all(1.0f));
  __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  scaled_exp e = {_mm256_andnot_ps(under, p), power_of_two(half),
                  power_of_two(_mm256_sub_epi32(whole, half))};
  return e;
}

TGLU__INLINE __m256 whole_exp(const scaled_exp *e) {
  return _mm256_mul_ps(_mm256_mul_ps(e->m, e->s0), e->s1);
}

/* factor * sigma(z + z_low).  sigma(z) is 1 / (1 + e) for z >= 0 and e / (1 + e) below,
 * with e = exp(-|z|). */
TGLU__INLINE __m256 times_sigma(__m256 factor, __m256 z, __m256 z_low) {
  const __m256 one = all(1.0f);
  __m256 positive = _mm256_cmp_ps(z, _mm256_setzero_ps(), _CMP_GE_OQ);
  __m256 flip = _mm256_and_ps(positive, all(-0.0f));
  scaled_exp e = exp_scaled(_mm256_xor_ps(z, flip), _mm256_xor_ps(z_low, flip));
  __m256 below = _mm256_div_ps(_mm256_blendv_ps(e.m, one, positive),
                               _mm256_add_ps(one, whole_exp(&e)));
  __m256 s0 = _mm256_blendv_ps(e.s0, one, positive);
  __m256 s1 = _mm256_blendv_ps(e.s1, one, positive);
  return _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(below, s0), factor), s1);
}

/* As a factor -inf acts like the lowest finite number: times 0 it is 0, not NaN. */
TGLU__INLINE __m256 finite_below(__m256 g) { return _mm256_max_ps(all(-FLT_MAX), g); }

/* z = 2 sqrt(2/pi) (g + 0.044715 g^3) in two floats: with a relative error of 2^-24 in z
 * alone exp(z) would be off by more than 2^-17. */
TGLU__INLINE __m256 act_gelu_tanh(__m256 g) {
  const __m256 c0 = all(0x1.988454p+0f), c0_low = all(-0x1.857936p-25f);
  const __m256 c1 = all(0x1.2444f2p-4f), c1_low = all(0x1.49b16ap-29f);
  /* Beyond 100 sigma is 0 or 1, and squares must not overflow. */
  __m256 x = _mm256_min_ps(all(100.0f), _mm256_max_ps(all(-100.0f), g));
  __m256 s = _mm256_mul_ps(x, x), s_low = _mm256_fmsub_ps(x, x, s);
  __m256 a = _mm256_mul_ps(c1, s), a_low = _mm256_fmsub_ps(c1, s, a);
  a_low = _mm256_fmadd_ps(c1, s_low, _mm256_fmadd_ps(c1_low, s, a_low));
  __m256 p = _mm256_add_ps(c0, a), b = _mm256_sub_ps(p, c0); /* two-sum */
  __m256 p_low = _mm256_add_ps(_mm256_sub_ps(c0, _mm256_sub_ps(p, b)),
                               _mm256_sub_ps(a, b));
  p_low = _mm256_add_ps(p_low, _mm256_add_ps(a_low, c0_low));
  __m256 z = _mm256_mul_ps(x, p);
  __m256 z_low = _mm256_fmadd_ps(x, p_low, _mm256_fmsub_ps(x, p, z));
  return times_sigma(finite_below(g), z, z_low);
}

/* erfc(t / sqrt 2) / 2 = exp(-t^2 / 2) q(t), where q, between 1/2 and 0.4 / t, is fitted
 * for t up to 16 as v times a polynomial in v = 1 / (1 + 0.35 t): off by 2^-22 in fp32. */
TGLU__INLINE __m256 act_gelu_erf(__m256 g) {
  const __m256 one = all(1.0f);
  __m256 t = _mm256_andnot_ps(all(-0.0f), g);
  /* 160 squared over 2 is beyond the range of exp_scaled. */
  __m256 x = _mm256_min_ps(all(160.0f), t);
  __m256 s = _mm256_mul_ps(x, x), s_low = _mm256_fmsub_ps(x, x, s);
  scaled_exp e = exp_scaled(_mm256_mul_ps(all(-0.5f), s), _mm256_mul_ps(all(-0.5f), s_low));
  __m256 v = _mm256_div_ps(one, _mm256_fmadd_ps(all(0.35f), x, one));
  __m256 q = all(-0x1.ddd692p-6f);
  q = _mm256_fmadd_ps(q, v, all(0x1.270bf4p-3f));
  q = _mm256_fmadd_ps(q, v, all(-0x1.060de2p-2f));
  q = _mm256_fmadd_ps(q, v, all(0x1.467636p-3f));
  q = _mm256_fmadd_ps(q, v, all(-0x1.7d4bccp-6f));
  q = _mm256_fmadd_ps(q, v, all(0x1.b07322p-4f));
  q = _mm256_fmadd_ps(q, v, all(0x1.eac2a2p-4f));
  q = _mm256_fmadd_ps(q, v, all(0x1.1e7144p-3f));
  q = _mm256_fmadd_ps(q, v, all(0x1.1df1bep-3f));
  q = _mm256_mul_ps(q, v);
  __m256 factor = finite_below(g);
  __m256 tail = _mm256_mul_ps(_mm256_mul_ps(e.m, q), e.s0);
  __m256 below = _mm256_mul_ps(_mm256_mul_ps(tail, factor), e.s1);
  __m256 above = _mm256_mul_ps(factor, _mm256_fnmadd_ps(whole_exp(&e), q, one));
  __m256 positive = _mm256_cmp_ps(g, _mm256_setzero_ps(), _CMP_GE_OQ);
  return _mm256_blendv_ps(below, above, positive);
}

/* act(gate) * up of eight pairs; kind is a constant at each use. */
TGLU__INLINE __m256 act_glu(tglu_activation kind, const tglu__act *act, __m256 gate,
                            __m256 up) {
  const __m256 zero = _mm256_setzero_ps();
  switch (kind) {
    case TGLU_ACTIVATION_SILU:
      return _mm256_mul_ps(times_sigma(finite_below(gate), gate, zero), up);
    case TGLU_ACTIVATION_GELU_TANH: return _mm256_mul_ps(act_gelu_tanh(gate), up);
    case TGLU_ACTIVATION_GELU_ERF: return _mm256_mul_ps(act_gelu_erf(gate), up);
    case TGLU_ACTIVATION_RELU: return _mm256_mul_ps(_mm256_max_ps(zero, gate), up);
    case TGLU_ACTIVATION_SIGMOID:
      return _mm256_mul_ps(times_sigma(all(1.0f), gate, zero), up);
    case TGLU_ACTIVATION_SWIGLUOAI: break;
  }
  const __m256 limit = all(act->limit), alpha = all(act->alpha);
  __m256 g = finite_below(_mm256_min_ps(limit, gate));
  __m256 z = _mm256_mul_ps(alpha, g), z_low = _mm256_fmsub_ps(alpha, g, z);
  __m256 u = _mm256_max_ps(negated(limit), _mm256_min_ps(limit, up));
  z_low = _mm256_andnot_ps(_mm256_cmp_ps(_mm256_andnot_ps(all(-0.0f), z), all(1024.0f),
                                         _CMP_GT_OQ), z_low);
  return _mm256_mul_ps(times_sigma(g, z, z_low), _mm256_add_ps(u, all(act->offset)));
}

#endif /* TGLU_CPU_KERNELS_AVX2_ACT_H */
