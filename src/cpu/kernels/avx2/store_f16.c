/* Epilogues with f16 results; see store.h. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/store.h"

void tglu__avx2_store_glu_f16(const tglu__store_args *args) {
  store_glu(TGLU_DTYPE_F16, args);
}

void tglu__avx2_store_down_f16(const tglu__store_args *args) {
  store_down(TGLU_DTYPE_F16, args);
}
