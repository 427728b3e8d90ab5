/* Epilogues with bf16 results; see store.h. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/store.h"

void tglu__avx2_store_glu_bf16(const tglu__store_args *args) {
  store_glu(TGLU_DTYPE_BF16, args);
}

void tglu__avx2_store_down_bf16(const tglu__store_args *args) {
  store_down(TGLU_DTYPE_BF16, args);
}
