/* Which kernel row serves a product on the CPU, and into what blocks its work is cut.
 * Pure: no globals but the rows table, no allocation.  Private. */
#ifndef TGLU_CPU_PLAN_H
#define TGLU_CPU_PLAN_H

#include "cpu/kernel.h"

/* Scratch of one slot, in floats; blocks are chosen to fit. */
#define TGLU__SCRATCH_X (80 * 1024)   /* the token block's x                         */
#define TGLU__SCRATCH_C (48 * 1024)   /* its sums                                    */
#define TGLU__SCRATCH_BIAS 512        /* gate and up biases of a group               */
#define TGLU__SCRATCH_SLOT \
  (TGLU__SCRATCH_X + TGLU__SCRATCH_C + TGLU__UNIT_SCRATCH_FLOATS + TGLU__SCRATCH_BIAS)

/* An MLP's tokens go through both halves in chunks of at most this many, which bounds
 * the workspace. */
#define TGLU__MLP_CHUNK 384

/* What one context may use. */
typedef struct tglu__cpu_facts {
  tglu__isa isa;                  /* highest level allowed                           */
  int32_t threads;
  bool batch_invariant;
  const tglu__cpu_row *forced;    /* NULL: free choice                               */
} tglu__cpu_facts;

/* The one predicate: whether row can compute op on dtype under these facts. */
bool tglu__row_serves(const tglu__cpu_row *row, const tglu__cpu_facts *facts, tglu__op op,
                      tglu_dtype dtype);

/* The row for this many tokens.  Never NULL: the portable rows serve everything.  *why
 * (if not NULL) gets the reason, a static string. */
const tglu__cpu_row *tglu__row_choose(const tglu__cpu_facts *facts, tglu__op op,
                                      tglu_dtype dtype, int64_t tokens, const char **why);

typedef struct tglu__blocking {
  int64_t token_block, token_blocks;
  int64_t column_group, column_groups; /* columns of the result                      */
  bool resident;   /* all of x fits: converted once a slot, and K is the inner loop  */
  int64_t kc;      /* elements of K in a block but the last; depends on row and K only */
  int64_t ldx;     /* floats between tokens of the x block                           */
  int32_t slots;   /* threads worth waking                                           */
} tglu__blocking;

tglu__blocking tglu__block(const tglu__cpu_row *row, int32_t threads, int64_t tokens,
                           int64_t columns, int64_t k);

#endif /* TGLU_CPU_PLAN_H */
