/* Eight or sixteen elements of a dtype to and from fp32 vectors, at any address.
 * Compiled with AVX2 flags only; static inline only. */
#ifndef TGLU_CPU_KERNELS_AVX2_VEC_H
#define TGLU_CPU_KERNELS_AVX2_VEC_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include <tileglu/tileglu.h>

#define TGLU__INLINE static inline __attribute__((always_inline))

/* A loop with constant bounds whose body must become straight code, so that arrays of
 * vectors live in registers; not so for the sanitizers, which take minutes over it. */
#if defined(__has_feature)
#define TGLU__CLANG_FEATURE(feature) __has_feature(feature)
#else
#define TGLU__CLANG_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    TGLU__CLANG_FEATURE(address_sanitizer) || TGLU__CLANG_FEATURE(thread_sanitizer) || \
    TGLU__CLANG_FEATURE(undefined_behavior_sanitizer)
#define TGLU__UNROLL
#elif defined(__clang__)
#define TGLU__UNROLL _Pragma("clang loop unroll(full)")
#else
#define TGLU__UNROLL _Pragma("GCC unroll 16")
#endif

/* Loads for vectors with more than one use.  lddqu is an ordinary load to the CPU; a
 * plain one gcc repeats as the memory operand of each use, and loads are what bounds
 * these loops. */
TGLU__INLINE __m256i load_once(const void *p) {
  return _mm256_lddqu_si256((const __m256i *)p);
}

TGLU__INLINE int64_t size_of(tglu_dtype dtype) { return dtype == TGLU_DTYPE_F32 ? 4 : 2; }

/* Brings the cache line of p + ahead near; it need not be valid. */
TGLU__INLINE void fetch(const char *p, int64_t ahead) {
  _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)ahead), _MM_HINT_T0);
}

/* Brings part `part` of `parts` of each of the rows near: `bytes` at each address, which
 * need not be valid. */
TGLU__INLINE void fetch_rows(const void *const *rows, int count, int64_t bytes, int64_t part,
                             int64_t parts) {
  int64_t lines = (bytes + 63) / 64;
  int64_t begin = lines * part / parts, end = lines * (part + 1) / parts;
  for (int r = 0; r < count; r++)
    for (int64_t line = begin; line < end; line++)
      fetch(rows[r], 64 * line);
}

/* Eight consecutive elements, in order. */
TGLU__INLINE __m256 load8(tglu_dtype dtype, const char *p) {
  if (dtype == TGLU_DTYPE_F32) {
    return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
  }
  __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
  if (dtype == TGLU_DTYPE_F16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* The first count (0 to 7) of eight elements; the rest are 0. */
TGLU__INLINE __m256 load8_part(tglu_dtype dtype, const char *p, int64_t count) {
  char buffer[32] = {0};
  memcpy(buffer, p, (size_t)(count * size_of(dtype)));
  return load8(dtype, buffer);
}

/* Half 0 or 1 of sixteen consecutive elements, in the order of the kernels along K: the
 * first and last eight, but for bf16 those at even and odd places, since these need
 * one instruction each. */
TGLU__INLINE __m256 bf16_half(__m256i pairs, int half) {
  return _mm256_castsi256_ps(
      half == 0 ? _mm256_slli_epi32(pairs, 16)
                : _mm256_blend_epi16(pairs, _mm256_setzero_si256(), 0x55));
}

TGLU__INLINE __m256 load16_half(tglu_dtype dtype, const char *p, int half) {
  if (dtype != TGLU_DTYPE_BF16) return load8(dtype, p + half * 8 * size_of(dtype));
  return bf16_half(_mm256_loadu_si256((const __m256i *)(const void *)p), half);
}

/* Both halves of sixteen elements. */
TGLU__INLINE void load16(tglu_dtype dtype, const char *p, __m256 *half0, __m256 *half1) {
  if (dtype == TGLU_DTYPE_BF16) {
    __m256i pairs = load_once(p);
    *half0 = bf16_half(pairs, 0);
    *half1 = bf16_half(pairs, 1);
  } else {
    *half0 = load16_half(dtype, p, 0);
    *half1 = load16_half(dtype, p, 1);
  }
}

/* Eight floats rounded to bf16, nearest even; a NaN stays one. */
TGLU__INLINE __m128i bf16_from_f32(__m256 value) {
  __m256i bits = _mm256_castps_si256(value);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  __m256i chosen = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan));
  chosen = _mm256_srli_epi32(chosen, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(chosen),
                          _mm256_extracti128_si256(chosen, 1));
}

/* Rounds eight floats to dtype and stores the first count (1 to 8). */
TGLU__INLINE void store8(tglu_dtype dtype, char *p, __m256 value, int64_t count) {
  char buffer[32];
  char *to = count == 8 ? p : buffer;
  if (dtype == TGLU_DTYPE_F32) {
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_castps_si256(value));
  } else {
    __m128i halves = dtype == TGLU_DTYPE_BF16
                         ? bf16_from_f32(value)
                         : _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)(void *)to, halves);
  }
  if (count != 8) memcpy(p, buffer, (size_t)(count * size_of(dtype)));
}

#endif /* TGLU_CPU_KERNELS_AVX2_VEC_H */
