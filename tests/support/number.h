/* bf16, fp16 and fp32 values as doubles: an implementation of its own, by exact
 * arithmetic rather than bit tricks, that shares nothing with the library. */
#ifndef TGLU_TEST_NUMBER_H
#define TGLU_TEST_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

size_t tt_bytes_of(tglu_dtype dtype);

/* Element `index` of an array of dtype at any address. */
double tt_load(tglu_dtype dtype, const void *base, int64_t index);
/* Rounds to nearest even and stores; NaN becomes a quiet NaN. */
void tt_store(tglu_dtype dtype, void *base, int64_t index, double value);
/* Bit pattern of an element, and of a value after rounding. */
uint32_t tt_bits_at(tglu_dtype dtype, const void *base, int64_t index);
uint32_t tt_bits_of(tglu_dtype dtype, double value);

/* Nearest value of dtype, ties to even, overflow to infinity.  Does not depend on
 * the thread's rounding mode. */
double tt_round(tglu_dtype dtype, double value);

/* Distance between neighbours of dtype around value (smallest subnormal below the
 * normal range), and |a - b| counted in steps of dtype. */
double tt_ulp(tglu_dtype dtype, double value);
int64_t tt_ulp_distance(tglu_dtype dtype, double a, double b);

#endif /* TGLU_TEST_NUMBER_H */
