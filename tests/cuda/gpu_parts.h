/* The parts of the GPU test (gpu_glu.c runs them). */
#ifndef TGLU_TEST_GPU_PARTS_H
#define TGLU_TEST_GPU_PARTS_H

#include "gpu.h"

typedef struct gpu_options {
  uint64_t seed;
  double seconds;      /* budget of one part; what is left out is a counted skip  */
  long long sweep;     /* cases of the sweep                                      */
  const char *row;     /* only this row, NULL: all                                */
  double part_end;     /* set by the program: time at which the part must stop    */
} gpu_options;

double gpu_now(void);
bool gpu_out_of_time(const gpu_options *options);
/* For every row of the library that options select. */
void gpu_each_row(const gpu_options *options,
                  void (*visit)(const gpu_options *, const char *row, int dtype));
void gpu_each_down_row(const gpu_options *options,
                       void (*visit)(const gpu_options *, const char *row, int dtype));

void gpu_each_mlp_row(const gpu_options *options,
                      void (*visit)(const gpu_options *, const char *row, int dtype));

/* gpu_correct.c */
void part_selfcheck(const gpu_options *options);
void part_edges(const gpu_options *options);
void part_matrix(const gpu_options *options);
void part_small(const gpu_options *options);
void part_sweep(const gpu_options *options);
void part_models(const gpu_options *options);
void part_offsets(const gpu_options *options);
void part_values(const gpu_options *options);
/* gpu_mlp.c */
void part_linear(const gpu_options *options);
void part_mlp(const gpu_options *options);
void part_down_small(const gpu_options *options);
void part_down_around(const gpu_options *options);
/* gpu_one_launch.c */
void part_one_launch(const gpu_options *options);
void part_one_small(const gpu_options *options);
/* gpu_mlp_order.c */
void part_down_order(const gpu_options *options);
void part_mlp_order(const gpu_options *options);
void part_one_order(const gpu_options *options);
void part_invariant(const gpu_options *options);
/* gpu_order.c */
void part_repeat(const gpu_options *options);
void part_capture(const gpu_options *options);
void part_streams(const gpu_options *options);
void part_threads(const gpu_options *options);
void part_contexts(const gpu_options *options);
void part_sms(const gpu_options *options);
void part_pdl(const gpu_options *options);
void part_beside(const gpu_options *options);
void part_host(const gpu_options *options);
void part_planted(const gpu_options *options);

#endif /* TGLU_TEST_GPU_PARTS_H */
