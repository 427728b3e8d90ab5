/* Dot kernel on f16 weights: few tokens; see dot.h. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/dot.h"

void tglu__avx2_dot_f16_3x4(const tglu__unit_args *args) {
  dot_unit_3x4(TGLU_DTYPE_F16, args);
}
