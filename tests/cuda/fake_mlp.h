/* MLPs and linears on the fake driver: contexts, descriptors and calls of made-up addresses,
 * and what their launches must be. */
#ifndef TGLU_TEST_CUDA_FAKE_MLP_H
#define TGLU_TEST_CUDA_FAKE_MLP_H

#include "records.h"

/* Offsets of the operands from BASE. */
#define AT_GATE UINT64_C(0)
#define AT_UP (UINT64_C(1) << 36)
#define AT_DOWN (UINT64_C(2) << 36)
#define AT_BIAS (UINT64_C(3) << 36)
#define AT_X (UINT64_C(4) << 36)
#define AT_OUT (UINT64_C(5) << 36)
#define AT_RESIDUAL (UINT64_C(6) << 36)
#define AT_WORKSPACE (UINT64_C(7) << 36)

typedef struct fake_options {
  const char *row, *tune_cache; /* tune_cache NULL: none */
  int32_t sm_limit, pdl, stable, invariant;
} fake_options;

/* A problem and a call; offsets in bytes, extras in elements. */
typedef struct fake_shape {
  int64_t m, n, k;
  int64_t ldx_extra, ldd_extra, ldo_extra, ldr_extra;
  uint64_t x_off, down_off, out_off, residual_off, workspace_off;
  int bias, residual; /* residual 2: out itself */
} fake_shape;

void *fake_at(uint64_t offset);
tglu_context *fake_context(const fake_options *o);
tglu_mlp_desc fake_mlp_desc(const fake_shape *s, tglu_dtype dtype);
tglu_linear_desc fake_linear_desc(const fake_shape *s, tglu_dtype dtype);
/* A call without a workspace, which fake_workspace adds. */
tglu_run_args fake_args(const fake_shape *s, int64_t x_columns);
void fake_workspace(const fake_shape *s, tglu_run_args *a);

/* Whether the planner has one launch for both halves of such an MLP. */
bool fake_in_one_launch(const fake_options *o, const fake_shape *s, tglu_dtype dtype);

/* One shape through an MLP or a linear, every launch compared; 1 if it was launched, 0 if
 * refused for want of a general down row, as it must be then. */
int check_mlp(const fake_options *o, const fake_shape *s, tglu_dtype dtype);
int check_linear(const fake_options *o, const fake_shape *s, tglu_dtype dtype);

#endif /* TGLU_TEST_CUDA_FAKE_MLP_H */
