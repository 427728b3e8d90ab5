/* Panel kernel on bf16 weights: many tokens; see panel.h. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/panel.h"

void tglu__avx2_panel_bf16_6x16(const tglu__unit_args *args) {
  panel_unit_6x16(TGLU_DTYPE_BF16, args);
}
