#include "rng.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t splitmix(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t value, int bits) {
  return (value << bits) | (value >> (64 - bits));
}

void tt_rng_seed(tt_rng *rng, uint64_t seed) {
  for (int i = 0; i < 4; i++) rng->state[i] = splitmix(&seed);
}

uint64_t tt_rng_next(tt_rng *rng) {
  uint64_t *s = rng->state;
  const uint64_t result = rotate_left(s[1] * 5, 7) * 9;
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate_left(s[3], 45);
  return result;
}

int64_t tt_rng_between(tt_rng *rng, int64_t low, int64_t high) {
  return low + (int64_t)(tt_rng_next(rng) % (uint64_t)(high - low + 1));
}

double tt_rng_unit(tt_rng *rng) {
  return (double)(tt_rng_next(rng) >> 11) * 0x1p-53;
}

double tt_rng_normal(tt_rng *rng) {
  double a, b, s;
  do { /* Marsaglia's polar method; the second value is dropped on purpose: the
          stream then depends on nothing but the state */
    a = 2 * tt_rng_unit(rng) - 1;
    b = 2 * tt_rng_unit(rng) - 1;
    s = a * a + b * b;
  } while (s >= 1 || s == 0);
  return a * sqrt(-2 * log(s) / s);
}

uint64_t tt_seed_mix(uint64_t seed, uint64_t index) {
  uint64_t state = seed ^ (index * UINT64_C(0xd1342543de82ef95));
  return splitmix(&state);
}

static uint64_t parse_number(const char *name, const char *text) {
  char *end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 0);
  if (errno != 0 || *text == '\0' || *end != '\0') {
    fprintf(stderr, "%s: \"%s\" is not a number\n", name, text);
    exit(2);
  }
  return value;
}

uint64_t tt_seed_from_environment(uint64_t fallback) {
  const char *text = getenv("TGLU_TEST_SEED");
  if (text == NULL) return fallback;
  if (strcmp(text, "random") == 0) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return tt_seed_mix((uint64_t)now.tv_sec, (uint64_t)now.tv_nsec);
  }
  return parse_number("TGLU_TEST_SEED", text);
}

int64_t tt_count_from_environment(const char *name, int64_t fallback) {
  const char *text = getenv(name);
  return text == NULL ? fallback : (int64_t)parse_number(name, text);
}
