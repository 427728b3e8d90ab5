/* rows.def as a table. */
#include "cpu/kernel.h"
#include "cpu/kernels/portable/portable.h"
#ifdef TGLU__BUILD_AVX2
#include "cpu/kernels/avx2/avx2.h"
#endif

#define OP_glu TGLU__OP_GLU
#define OP_down TGLU__OP_DOWN
#define DTYPE_bf16 TGLU_DTYPE_BF16
#define DTYPE_f16 TGLU_DTYPE_F16
#define DTYPE_f32 TGLU_DTYPE_F32
#define ISA_portable TGLU__ISA_PORTABLE
#define ISA_avx2 TGLU__ISA_AVX2
#define SCHEDULE_dot TGLU__SCHEDULE_DOT
#define SCHEDULE_stream TGLU__SCHEDULE_STREAM
#define SCHEDULE_panel TGLU__SCHEDULE_PANEL

#define ROW(row_op, type, isa_, schedule_, tokens, columns, rows, block)            \
  {.name = #row_op "_" #type "_" #isa_ "_" #schedule_ "_" #tokens "x" #columns,     \
   .op = OP_##row_op,                                                               \
   .dtype = DTYPE_##type,                                                           \
   .isa = ISA_##isa_,                                                               \
   .schedule = SCHEDULE_##schedule_,                                                \
   .tile_tokens = tokens,                                                           \
   .unit_rows = rows,                                                               \
   .kc = block,                                                                     \
   .load_x = LOAD_X(isa_, schedule_, type),                                         \
   .unit = tglu__##isa_##_##schedule_##_##type##_##tokens##x##rows,                 \
   .store = tglu__##isa_##_store_##row_op##_##type},

/* The order of x in scratch goes with the schedule; the portable ISA has but one. */
#define LOAD_X(isa_, schedule_, type) LOAD_X_##isa_(schedule_, type)
#define LOAD_X_portable(schedule_, type) tglu__portable_load_x_##type
#define LOAD_X_avx2(schedule_, type) LOAD_X_avx2_##schedule_(type)
#define LOAD_X_avx2_stream(type) tglu__avx2_load_x_dot_##type
#define LOAD_X_avx2_dot(type) tglu__avx2_load_x_dot_##type
#define LOAD_X_avx2_panel(type) tglu__avx2_load_x_panel_##type

const tglu__cpu_row tglu__cpu_rows[] = {
#include "cpu/rows.def"
};

const int32_t tglu__cpu_row_count =
    (int32_t)(sizeof tglu__cpu_rows / sizeof tglu__cpu_rows[0]);
