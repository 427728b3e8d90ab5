/* Dot kernels on f16 weights: one token (1x8) and few tokens (3x4); see dot.h. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/dot.h"

void tglu__avx2_dot_f16_1x8(const tglu__unit_args *args) {
  dot_unit_1x8(TGLU_DTYPE_F16, args);
}

void tglu__avx2_dot_f16_3x4(const tglu__unit_args *args) {
  dot_unit_3x4(TGLU_DTYPE_F16, args);
}
