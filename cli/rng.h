/* Seeded random numbers (xoshiro256**): the same seed gives the same numbers on
 * every machine. */
#ifndef CLI_RNG_H
#define CLI_RNG_H

#include <stdint.h>

#include <tileglu/tileglu.h>

typedef struct rng { uint64_t state[4]; } rng;

void rng_seed(rng *r, uint64_t seed);
uint64_t rng_next(rng *r);
uint64_t rng_below(rng *r, uint64_t bound);   /* 0 ... bound - 1; bound >= 1 */
double rng_normal(rng *r);                    /* mean 0, deviation 1 */

/* count normal numbers of deviation scale.  Beyond 65,536 they are drawn from a
 * table of that many, which is quick enough for gigabytes of weights. */
void rng_fill_normal(rng *r, void *data, tglu_dtype dtype, int64_t count, double scale);

#endif /* CLI_RNG_H */
