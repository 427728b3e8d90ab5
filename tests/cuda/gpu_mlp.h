/* An MLP or a linear on the device: operands, reference, one case from creation to verdict. */
#ifndef TGLU_TEST_GPU_MLP_H
#define TGLU_TEST_GPU_MLP_H

#include "gpu.h"

/* glu is an MLP's first half; of a linear only its m, n (columns of x), k (columns of the
 * result), dtype, seed, row_step, x_off and ldx_extra count.  Extras and offsets in
 * elements, that of the workspace in bytes off 256. */
typedef struct gpu_mlp_case {
  gpu_case glu;
  bool linear;
  int down_bias, residual;  /* residual: 0 none, 1 a matrix of its own, 2 out itself */
  int64_t ldd_extra, ldo_extra, ldr_extra;
  int64_t down_off, out_off, residual_off;
  int64_t workspace_off;
} gpu_mlp_case;

typedef struct gpu_mlp_operands {
  gpu_mlp_case c;
  gpu_operands glu;         /* of an MLP; its output is H, in the workspace            */
  int64_t ldx, ldd, ldo, ldr;
  gpu_pointer x;            /* of a linear                                             */
  gpu_pointer down, down_bias, residual;
  gpu_pointer kept;         /* residual 2: what out holds before the call, tight       */
  gpu_pointer out, out_buffer;
  int64_t out_elements;
  gpu_pointer workspace;
  size_t workspace_bytes;
  size_t mark;
} gpu_mlp_operands;

/* An object, NULL where it could not be made; one of both. */
typedef struct gpu_object {
  tglu_mlp *mlp;
  tglu_linear *linear;
} gpu_object;

bool gpu_mlp_operands_create(const gpu_mlp_case *c, gpu_mlp_operands *o); /* false: no room */
void gpu_mlp_operands_destroy(gpu_mlp_operands *o);
void gpu_mlp_args(const gpu_mlp_operands *o, gpu_stream stream, tglu_run_args *a);
/* Out and H poisoned; out filled again where it is the residual. */
void gpu_mlp_poison(const gpu_mlp_operands *o, gpu_stream stream);
/* H against the GLU's reference, out against the reference of H as it lies in the
 * workspace, and what lies around both. */
bool gpu_mlp_judge(const gpu_mlp_operands *o, const char *row);

tglu_status gpu_object_create(tglu_context *context, const gpu_mlp_operands *o,
                              gpu_object *object);
tglu_status gpu_object_run(const gpu_object *object, const tglu_run_args *a);
void gpu_object_destroy(gpu_object *object);
/* Creates it; false, counted, if that failed or a forced row cannot serve the call. */
bool gpu_object_prepare(tglu_context *context, const gpu_mlp_operands *o, gpu_object *object);

/* The whole way: create, run, judge, destroy. */
bool gpu_run_mlp_case(tglu_context *context, const char *row, const gpu_mlp_case *c);
void gpu_mlp_describe(const gpu_mlp_case *c, char *text, size_t bytes);

/* A plain one to start from, tight and aligned. */
gpu_mlp_case gpu_mlp_plain(bool linear, int64_t m, int64_t n, int64_t k, int dtype,
                           uint64_t seed);
/* Strides of weights and x up to the next multiple of 8, so that TMA rows take it. */
void gpu_mlp_align(gpu_mlp_case *c);

#endif /* TGLU_TEST_GPU_MLP_H */
