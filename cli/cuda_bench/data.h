/* Inputs and outputs of one shape on the device: sets that the calls take in turn, so
 * that nothing is still in L2 from the call before. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include "../options.h"
#include "accuracy.h"
#include "gpu.h"
#include "kernels/bench_kernels.h"

/* M tokens, N = intermediate, K = hidden.  0 where the op has no such matrix. */
typedef struct data_set {
  gpu_pointer x;       /* [M, K]; op down: [M, N]; the same values in every set         */
  gpu_pointer weights; /* one piece: w, then down                                       */
  gpu_pointer w;       /* [2N, K]: gate and up, as the layout says                      */
  gpu_pointer down;    /* [K, N]                                                        */
  gpu_pointer y;       /* [M, 2N]: of the unfused way; of gemm3 the second's input too  */
  gpu_pointer h;       /* [M, N]: op glu: the result; op mlp: of the unfused way        */
  gpu_pointer out;     /* the result: h, or [M, K]                                      */
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
  double *reference;             /* [row_count, columns of the result] of set 0 */
  uint16_t *sample;              /* [row_count, columns of the result] */
} data;

int64_t data_in_columns(const spec *s);   /* of x */
int64_t data_out_columns(const spec *s);  /* of the result */
size_t data_weight_bytes(const spec *s);  /* of one set, with the gap between its halves */
double data_flops(const spec *s);         /* of one call */
double data_bytes(const spec *s);         /* that one call reads and writes at least */
/* Sets whose operands and results together exceed three times the L2 cache. */
int data_sets_for(const spec *s, int64_t l2_bytes);

/* Allocates, fills at random and computes the reference.  An exit code. */
int data_create(data *d, const gpu *g, const spec *s, uint64_t seed);
void data_destroy(data *d);

/* Enqueue: X of a set written again; Y of a set to H of that set. */
int data_write_x(const data *d, int set, gpu_stream stream);
int data_activate(const data *d, int set, gpu_stream stream);

/* Every result := NaN. */
int data_poison(const data *d);
/* Compares the result of set 0 with the reference (whole, on the sampled rows) and counts
 * what is not finite in any result. */
int data_check(data *d, accuracy *a);

/* The weights of a set as the layout has them: gate and up, or both in one; and down.
 * Op down: gate and up are taken from down's memory, so that an MLP can be planned. */
void data_bind(const data *d, int set, tglu_mlp_desc *desc);

/* Computes d->reference (reference.c).  An exit code. */
int data_reference(data *d);

#endif /* BENCH_DATA_H */
