#include "rng.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "numbers.h"

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

void rng_seed(rng *r, uint64_t seed) {
  for (int i = 0; i < 4; i++) { /* splitmix64 */
    seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = seed;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    r->state[i] = z ^ z >> 31;
  }
}

uint64_t rng_next(rng *r) {
  uint64_t *s = r->state;
  uint64_t result = rotate(s[1] * 5, 7) * 9;
  uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate(s[3], 45);
  return result;
}

uint64_t rng_below(rng *r, uint64_t bound) { return rng_next(r) % bound; }

double rng_normal(rng *r) {
  double u = ((double)(rng_next(r) >> 11) + 0.5) * 0x1p-53; /* never 0 */
  double v = (double)(rng_next(r) >> 11) * 0x1p-53;
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

enum { TABLE = 65536 };

static void fill_from_table(rng *r, void *data, size_t width, int64_t count,
                            const unsigned char *table) {
  unsigned char *to = data;
  uint64_t bits = 0;
  for (int64_t i = 0; i < count; i++) {
    if ((i & 3) == 0) bits = rng_next(r);
    memcpy(to + (size_t)i * width, table + (size_t)(bits & (TABLE - 1)) * width, width);
    bits >>= 16;
  }
}

void rng_fill_normal(rng *r, void *data, tglu_dtype dtype, int64_t count, double scale) {
  int64_t direct = count < TABLE ? count : TABLE;
  for (int64_t i = 0; i < direct; i++) num_store(data, dtype, i, scale * rng_normal(r));
  if (count <= TABLE) return;
  size_t width = dtype == TGLU_DTYPE_F32 ? 4 : 2;
  /* The first TABLE elements of the data are the table. */
  if (width == 2) {
    fill_from_table(r, (unsigned char *)data + TABLE * 2, 2, count - TABLE, data);
  } else {
    fill_from_table(r, (unsigned char *)data + TABLE * 4, 4, count - TABLE, data);
  }
}
