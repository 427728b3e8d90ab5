/* The bench's kernels (kernels/bench.cu), compiled for sm_90a and embedded. */
#ifndef BENCH_CUBIN_H
#define BENCH_CUBIN_H

#include <stddef.h>

extern const unsigned char bench_cubin[];
extern const size_t bench_cubin_bytes; /* 0: built without nvcc */

#endif /* BENCH_CUBIN_H */
