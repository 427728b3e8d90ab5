#include "cpu/plan.h"

#include <stddef.h>

enum {
  PANEL_TOKENS = 192,       /* x block of 192 x 256 floats and sums of 192 x 256: half of
                               a 1 MiB L2 cache                                        */
  DOT_TOKENS = 96,
  GROUP_ROWS = 256,         /* weight rows a group, at most                            */
  GROUP_ROWS_MIN = 32,
  ITEMS_PER_SLOT = 4,       /* so that the last item's time matters little             */
  FEW_TOKENS = 24,          /* up to here transposing the weights costs more than the
                               sums across vectors                                     */
  SMALL_PRODUCTS = 1 << 17  /* below this a wake-up costs more than a thread saves     */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

bool tglu__row_serves(const tglu__cpu_row *row, const tglu__cpu_facts *facts, tglu__op op,
                      tglu_dtype dtype) {
  return row->op == op && row->dtype == dtype && row->isa <= facts->isa;
}

/* Rank of a row for this many tokens: the largest wins. */
static int rank(const tglu__cpu_row *row, int64_t tokens, bool batch_invariant) {
  int isa = 100 * (int)row->isa;
  bool many = tokens > FEW_TOKENS && !batch_invariant;
  if ((row->schedule == TGLU__SCHEDULE_PANEL) != many) return isa;
  /* The rows of one token; they sum in the same order as the others of their kind. */
  if ((row->tile_tokens == 1) == (tokens == 1)) return isa + 2;
  return isa + 1;
}

static const char *reason(const tglu__cpu_row *row, int64_t tokens, bool batch_invariant) {
  if (row->isa == TGLU__ISA_PORTABLE) return "portable: one row for every number of tokens";
  if (row->schedule == TGLU__SCHEDULE_PANEL)
    return "many tokens: weights are transposed a block at a time and serve all of them";
  if (tokens == 1) return "one token: weights are streamed once, in vectors along K";
  if (tokens > FEW_TOKENS && batch_invariant)
    return "batch_invariant: the order of summation of few tokens";
  return "few tokens: vectors along K cost less than transposing the weights";
}

const tglu__cpu_row *tglu__row_choose(const tglu__cpu_facts *facts, tglu__op op,
                                      tglu_dtype dtype, int64_t tokens, const char **why) {
  if (facts->forced != NULL && tglu__row_serves(facts->forced, facts, op, dtype)) {
    if (why != NULL) *why = "forced by the option row";
    return facts->forced;
  }
  const tglu__cpu_row *best = NULL;
  for (int32_t i = 0; i < tglu__cpu_row_count; i++) {
    const tglu__cpu_row *row = &tglu__cpu_rows[i];
    if (!tglu__row_serves(row, facts, op, dtype)) continue;
    if (best == NULL || rank(row, tokens, facts->batch_invariant) >
                            rank(best, tokens, facts->batch_invariant))
      best = row;
  }
  if (why != NULL) *why = reason(best, tokens, facts->batch_invariant);
  return best;
}

tglu__blocking tglu__block(const tglu__cpu_row *row, int32_t threads, int64_t tokens,
                           int64_t columns, int64_t k) {
  tglu__blocking b = {0};
  int64_t rows_per_column = row->op == TGLU__OP_GLU ? 2 : 1;
  b.ldx = round_up(k, TGLU__K_ALIGN) + TGLU__K_ALIGN;
  b.resident = row->schedule == TGLU__SCHEDULE_DOT && tokens <= DOT_TOKENS &&
               tokens <= TGLU__SCRATCH_X / b.ldx;
  if (!b.resident) b.ldx = row->kc + TGLU__K_ALIGN;

  int64_t most = row->schedule == TGLU__SCHEDULE_DOT ? DOT_TOKENS : PANEL_TOKENS;
  b.token_blocks = ceil_div(tokens, most);
  b.token_block = ceil_div(tokens, b.token_blocks);
  if (b.token_blocks > 1) b.token_block = round_up(b.token_block, row->tile_tokens);
  b.token_block = smaller(b.token_block, tokens);
  b.token_blocks = ceil_div(tokens, b.token_block);

  double products = (double)tokens * (double)(columns * rows_per_column) * (double)k;
  bool small = products < SMALL_PRODUCTS;
  b.slots = small ? 1 : threads;
  int64_t group_rows = GROUP_ROWS;
  for (; group_rows > GROUP_ROWS_MIN; group_rows /= 2) {
    int64_t groups = ceil_div(columns, group_rows / rows_per_column);
    if (groups * b.token_blocks >= (int64_t)ITEMS_PER_SLOT * b.slots) break;
  }
  b.column_group = group_rows / rows_per_column;
  b.column_groups = ceil_div(columns, b.column_group);
  b.slots = (int32_t)smaller(b.slots, b.column_groups * b.token_blocks);
  return b;
}
