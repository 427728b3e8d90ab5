/* Inputs and outputs of one shape on the device: sets that the calls take in turn, so
 * that nothing is still in L2 from the call before. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include "../options.h"
#include "accuracy.h"
#include "gpu.h"
#include "kernels/bench_kernels.h"

typedef struct data_set {
  gpu_pointer x;   /* [M, K]; the same values in every set   */
  gpu_pointer w;   /* [2N, K]: both weights, as the layout says */
  gpu_pointer y;   /* [M, 2N]: of the unfused way            */
  gpu_pointer h;   /* [M, N]: the result                     */
} data_set;

typedef struct data {
  const gpu *g;
  spec spec;
  bench_problem problem;         /* of set 0 */
  int sets;
  data_set *set;
  gpu_pointer source;            /* X again, read by the kernel that writes X */
  gpu_pointer counter;
  int64_t rows[BENCH_REFERENCE_ROWS];
  int row_count;
  double *reference;             /* [row_count, N] of set 0 */
  uint16_t *sample;              /* [row_count, N] */
} data;

/* Sets whose X, W and H together exceed three times the L2 cache. */
int data_sets_for(int64_t m, int64_t n, int64_t k, int64_t l2_bytes);

/* Allocates, fills at random and computes the reference.  An exit code. */
int data_create(data *d, const gpu *g, const spec *s, uint64_t seed);
void data_destroy(data *d);

/* Enqueue: X of a set written again; Y of a set to H of that set. */
int data_write_x(const data *d, int set, gpu_stream stream);
int data_activate(const data *d, int set, gpu_stream stream);

/* Every H := NaN. */
int data_poison(const data *d);
/* Compares H of set 0 with the reference (whole, on the sampled rows) and counts what is
 * not finite in any H. */
int data_check(data *d, accuracy *a);

/* The weights of a set as the layout has them: gate and up, or both in one. */
void data_bind(const data *d, int set, tglu_glu_desc *desc);

#endif /* BENCH_DATA_H */
