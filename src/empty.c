/* The MLP without an intermediate: the empty sum, plus down_bias, plus residual.
 * No kernel row serves it; host memory only. */
#include "cpu/numeric.h"
#include "internal.h"

#include <fenv.h>

static void fill_row(const tglu__problem *problem, const tglu__call *call, int64_t row)
{
  const tglu_dtype dtype = problem->dtype;
  for (int64_t column = 0; column < problem->k; column++) {
    float sum = 0.0f;
    if (problem->down_bias) sum += tglu__load(dtype, problem->down_bias, column);
    if (call->residual)
      sum += tglu__load(dtype, call->residual, row * call->ldr + column);
    tglu__store(dtype, call->out, row * call->ldo + column, sum);
  }
}

void tglu__empty_mlp_run(const tglu__problem *problem, const tglu__call *call)
{
  fenv_t environment;
  fegetenv(&environment);
  fesetenv(FE_DFL_ENV);
  for (int64_t row = 0; row < call->tokens; row++) fill_row(problem, call, row);
  fesetenv(&environment);
}
