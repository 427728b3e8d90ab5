/* Epilogues with f32 results; see store.h. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/store.h"

void tglu__avx2_store_glu_f32(const tglu__store_args *args) {
  store_glu(TGLU_DTYPE_F32, args);
}

void tglu__avx2_store_down_f32(const tglu__store_args *args) {
  store_down(TGLU_DTYPE_F32, args);
}
