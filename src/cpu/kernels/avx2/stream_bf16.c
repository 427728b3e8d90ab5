/* Stream kernel on bf16 weights: one to four tokens; see stream.h. */
#include "cpu/kernels/avx2/avx2.h"
#include "cpu/kernels/avx2/stream.h"

void tglu__avx2_stream_bf16_4x8(const tglu__unit_args *args) {
  stream_unit_4x8(TGLU_DTYPE_BF16, args);
}
