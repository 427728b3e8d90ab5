/* A plain read of a buffer as fast as this CPU does it with AVX2 loads: the yardstick
 * of bench/cpu_vs_torch.py for one token, where time is weight bytes over bandwidth.
 * Built and called by that script, one call a thread. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the buffer once, 256 bytes a step (a tail shorter than that is left out), and
 * returns the sum of what it read so that nothing can be left out.  buffer: any
 * address. */
uint64_t tileglu_bench_read(const void *buffer, size_t bytes) {
  const char *p = buffer;
  __m256i sum[8];
  for (int i = 0; i < 8; i++) sum[i] = _mm256_setzero_si256();
  for (size_t at = 0; at + 256 <= bytes; at += 256) {
    for (int i = 0; i < 8; i++) {
      const __m256i *lane = (const __m256i *)(p + at + 32 * i);
      sum[i] = _mm256_add_epi64(sum[i], _mm256_loadu_si256(lane));
    }
  }
  for (int i = 1; i < 8; i++) sum[0] = _mm256_add_epi64(sum[0], sum[i]);
  uint64_t words[4];
  _mm256_storeu_si256((__m256i *)words, sum[0]);
  return words[0] + words[1] + words[2] + words[3];
}
