/* Seeded random numbers for tests: xoshiro256** seeded by splitmix64.  The same
 * seed gives the same stream on every machine. */
#ifndef TGLU_TEST_RNG_H
#define TGLU_TEST_RNG_H

#include <stdint.h>

typedef struct tt_rng { uint64_t state[4]; } tt_rng;

void tt_rng_seed(tt_rng *rng, uint64_t seed);
uint64_t tt_rng_next(tt_rng *rng);
int64_t tt_rng_between(tt_rng *rng, int64_t low, int64_t high); /* both included */
double tt_rng_unit(tt_rng *rng);                                 /* [0, 1)        */
double tt_rng_normal(tt_rng *rng);                               /* mean 0, sd 1  */

/* Mixes two numbers into a seed, so that case `index` of a sweep depends only on
 * (seed, index) and can be run alone. */
uint64_t tt_seed_mix(uint64_t seed, uint64_t index);

/* The sweep's seed: TGLU_TEST_SEED (a number, or "random" for one from the
 * clock), else fallback.  The caller prints it. */
uint64_t tt_seed_from_environment(uint64_t fallback);

/* A count from the environment, else fallback; a bad number is fatal. */
int64_t tt_count_from_environment(const char *name, int64_t fallback);

#endif /* TGLU_TEST_RNG_H */
