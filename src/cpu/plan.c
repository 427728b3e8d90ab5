#include "cpu/plan.h"

#include <stddef.h>

enum {
  PANEL_TOKENS = 192,       /* x block of 192 x 320 floats and sums of 192 x 256: not
                               half of a 1 MiB L2 cache                                */
  K_TOKENS = 96,            /* likewise where vectors go along K                       */
  GROUP_ROWS = 256,         /* weight rows a group, at most                            */
  GROUP_ROWS_MIN = 32,
  ITEMS_PER_SLOT = 4,       /* so that the last item's time matters little             */
  STREAM_TOKENS = 8,        /* up to here memory is slower than the arithmetic         */
  DOT_TOKENS = 56,          /* up to here transposing the weights costs more than the
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

static tglu__schedule best_schedule(int64_t tokens, bool batch_invariant) {
  if (batch_invariant) return TGLU__SCHEDULE_DOT;
  if (tokens <= STREAM_TOKENS) return TGLU__SCHEDULE_STREAM;
  return tokens <= DOT_TOKENS ? TGLU__SCHEDULE_DOT : TGLU__SCHEDULE_PANEL;
}

static const char *reason(const tglu__cpu_row *row, bool batch_invariant) {
  if (row->isa == TGLU__ISA_PORTABLE) return "portable: one row for every number of tokens";
  if (batch_invariant) return "batch_invariant: one order of summation for all";
  switch (row->schedule) {
    case TGLU__SCHEDULE_STREAM: return "very few tokens: weights are streamed in order";
    case TGLU__SCHEDULE_DOT: return "few tokens: vectors along K, nothing is transposed";
    case TGLU__SCHEDULE_PANEL: break;
  }
  return "many tokens: weights are transposed a block at a time and serve all of them";
}

const tglu__cpu_row *tglu__row_choose(const tglu__cpu_facts *facts, tglu__op op,
                                      tglu_dtype dtype, int64_t tokens, const char **why) {
  if (facts->forced != NULL && tglu__row_serves(facts->forced, facts, op, dtype)) {
    if (why != NULL) *why = "forced by the option row";
    return facts->forced;
  }
  tglu__schedule schedule = best_schedule(tokens, facts->batch_invariant);
  const tglu__cpu_row *best = NULL;
  for (int32_t i = 0; i < tglu__cpu_row_count; i++) {
    const tglu__cpu_row *row = &tglu__cpu_rows[i];
    if (!tglu__row_serves(row, facts, op, dtype)) continue;
    if (best == NULL || row->isa > best->isa ||
        (row->isa == best->isa && row->schedule == schedule))
      best = row;
  }
  if (why != NULL) *why = reason(best, facts->batch_invariant);
  return best;
}

tglu__blocking tglu__block(const tglu__cpu_row *row, int32_t threads, int64_t tokens,
                           int64_t columns, int64_t k) {
  tglu__blocking b = {0};
  int64_t rows_per_column = row->op == TGLU__OP_GLU ? 2 : 1;
  bool along_k = row->schedule != TGLU__SCHEDULE_PANEL;
  b.kc = round_up(ceil_div(k, ceil_div(k, row->kc)), TGLU__K_ALIGN); /* equal blocks */
  b.ldx = round_up(k, TGLU__K_ALIGN) + TGLU__K_ALIGN;
  b.resident = along_k && tokens <= K_TOKENS && tokens <= TGLU__SCRATCH_X / b.ldx;
  if (!b.resident) b.ldx = b.kc + TGLU__K_ALIGN;

  int64_t most = along_k ? smaller(K_TOKENS, TGLU__SCRATCH_X / b.ldx) : PANEL_TOKENS;
  if (!b.resident) most -= most % row->tile_tokens;
  b.token_blocks = ceil_div(tokens, most);
  b.token_block = round_up(ceil_div(tokens, b.token_blocks), row->tile_tokens);
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
