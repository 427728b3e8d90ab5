#include "cpu/driver.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "cpu/numeric.h"

/* What all slots of one run share. */
typedef struct run_state {
  const tglu__product *product;
  const tglu__cpu_row *row;
  tglu__blocking blocking;
  float *scratch;
  _Atomic int64_t next_item;
} run_state;

/* One slot's scratch, and the item at hand: tokens [token, token + tokens) and columns
 * [column, column + columns). */
typedef struct slot_state {
  const run_state *run;
  float *x, *c, *unit, *bias0, *bias1;
  int64_t token, tokens, column, columns;
} slot_state;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static const char *element(const void *base, int64_t index, int64_t size) {
  return (const char *)base + index * size;
}

/* x of the item's tokens, k in [k0, k0 + count), to fp32 in scratch. */
static void load_x(const slot_state *s, int64_t k0, int64_t count) {
  const tglu__product *p = s->run->product;
  int64_t size = tglu__dtype_size(p->dtype), ldx = s->run->blocking.ldx;
  for (int64_t t = 0; t < s->tokens; t++)
    s->run->row->load_x(element(p->x, (s->token + t) * p->ldx + k0, size), count,
                        s->x + t * ldx);
}

static const float *load_bias(const tglu__product *p, const void *bias, int64_t column,
                              int64_t columns, float *out) {
  if (bias == NULL) return NULL;
  for (int64_t i = 0; i < columns; i++)
    out[i] = tglu__load(p->dtype, bias, (column + i) * p->bias_stride);
  return out;
}

/* Addresses of a unit's weight rows at k0; past the last column it is repeated. */
static void unit_rows(const slot_state *s, int64_t first_column, int64_t k0,
                      const void **rows) {
  const tglu__product *p = s->run->product;
  int64_t size = tglu__dtype_size(p->dtype), last = p->columns - 1;
  int32_t count = s->run->row->unit_rows, half = count / 2;
  if (p->op == TGLU__OP_GLU) {
    for (int32_t r = 0; r < half; r++) {
      int64_t index = smaller(first_column + r, last) * p->ldw + k0;
      rows[r] = element(p->w0, index, size);
      rows[half + r] = element(p->w1, index, size);
    }
  } else {
    for (int32_t r = 0; r < count; r++)
      rows[r] = element(p->w0, smaller(first_column + r, last) * p->ldw + k0, size);
  }
}

/* One unit times one block of K, added to the sums of all the item's tokens.  offset is
 * the unit's first column within the group; x holds the block.  args->next becomes
 * args->rows, and the following call's rows become args->next. */
static void run_unit(const slot_state *s, tglu__unit_args *args, int64_t offset, int64_t k0,
                     const float *x, int64_t next_offset, int64_t next_k0) {
  const tglu__cpu_row *row = s->run->row;
  const tglu__product *p = s->run->product;
  const tglu__blocking *b = &s->run->blocking;
  bool glu = row->op == TGLU__OP_GLU;
  memcpy(args->rows, args->next, sizeof args->rows);
  if (next_offset < s->columns && next_k0 < p->k)
    unit_rows(s, s->column + next_offset, next_k0, args->next);
  args->x = x;
  args->kc = smaller(b->kc, p->k - k0);
  args->first = k0 == 0;
  args->c0 = s->c + offset;
  args->c1 = args->c0 + (glu ? b->column_group : row->unit_rows / 2);
  row->unit(args);
}

static void store_item(const slot_state *s) {
  const tglu__product *p = s->run->product;
  const tglu__blocking *b = &s->run->blocking;
  int64_t size = tglu__dtype_size(p->dtype);
  int64_t ldc = b->column_group * (p->op == TGLU__OP_GLU ? 2 : 1);
  tglu__store_args args;
  args.bias0 = load_bias(p, p->bias0, s->column, s->columns, s->bias0);
  args.bias1 = load_bias(p, p->bias1, s->column, s->columns, s->bias1);
  args.count = s->columns;
  args.act = p->act;
  for (int64_t t = 0; t < s->tokens; t++) {
    int64_t token = s->token + t;
    args.c0 = s->c + t * ldc;
    args.c1 = args.c0 + b->column_group;
    args.residual = p->residual == NULL
                        ? NULL
                        : element(p->residual, token * p->ldr + s->column, size);
    args.out = (char *)p->out + (token * p->ldo + s->column) * size;
    s->run->row->store(&args);
  }
}

/* K innermost: a unit's rows are read from end to end, as memory likes it. */
static void run_resident(const slot_state *s, tglu__unit_args *args) {
  int64_t k = s->run->product->k, kc = s->run->blocking.kc;
  int64_t step = tglu__row_columns(s->run->row);
  for (int64_t offset = 0; offset < s->columns; offset += step)
    for (int64_t k0 = 0; k0 < k; k0 += kc) {
      bool last = k0 + kc >= k;
      run_unit(s, args, offset, k0, s->x + k0, last ? offset + step : offset,
               last ? 0 : k0 + kc);
    }
}

/* K outermost: a block of x is converted once for all units of the group. */
static void run_blocked(const slot_state *s, tglu__unit_args *args) {
  int64_t k = s->run->product->k, kc = s->run->blocking.kc;
  int64_t step = tglu__row_columns(s->run->row);
  for (int64_t k0 = 0; k0 < k; k0 += kc) {
    load_x(s, k0, smaller(kc, k - k0));
    for (int64_t offset = 0; offset < s->columns; offset += step) {
      bool last = offset + step >= s->columns;
      run_unit(s, args, offset, k0, s->x, last ? 0 : offset + step, last ? k0 + kc : k0);
    }
  }
}

static void run_item(const slot_state *s) {
  const tglu__blocking *b = &s->run->blocking;
  tglu__unit_args args;
  args.ldx = b->ldx;
  args.tokens = s->tokens;
  args.ldc = b->column_group * (s->run->row->op == TGLU__OP_GLU ? 2 : 1);
  args.scratch = s->unit;
  unit_rows(s, s->column, 0, args.next);
  if (b->resident)
    run_resident(s, &args);
  else
    run_blocked(s, &args);
  store_item(s);
}

/* The pool's task: takes items until there are none.  Items of one column group follow
 * each other, so that threads share its weights in the last-level cache. */
static void run_slot(void *argument, int32_t slot) {
  run_state *run = argument;
  const tglu__product *p = run->product;
  const tglu__blocking *b = &run->blocking;
  float *base = run->scratch + (int64_t)slot * TGLU__SCRATCH_SLOT;
  slot_state s = {.run = run, .x = base, .c = base + TGLU__SCRATCH_X};
  s.unit = s.c + TGLU__SCRATCH_C;
  s.bias0 = s.unit + TGLU__UNIT_SCRATCH_FLOATS;
  s.bias1 = s.bias0 + TGLU__SCRATCH_BIAS / 2;
  bool loaded = false;
  int64_t items = b->token_blocks * b->column_groups;
  for (;;) {
    int64_t item = atomic_fetch_add_explicit(&run->next_item, 1, memory_order_relaxed);
    if (item >= items) return;
    s.token = item % b->token_blocks * b->token_block;
    s.tokens = smaller(b->token_block, p->tokens - s.token);
    s.column = item / b->token_blocks * b->column_group;
    s.columns = smaller(b->column_group, p->columns - s.column);
    if (b->resident && !loaded) {
      load_x(&s, 0, p->k);
      loaded = true;
    }
    run_item(&s);
  }
}

void tglu__product_run(const tglu__product *product, const tglu__cpu_row *row,
                       tglu__pool *pool, float *scratch) {
  run_state run = {.product = product, .row = row, .scratch = scratch};
  run.blocking = tglu__block(row, tglu__pool_threads(pool), product->tokens,
                             product->columns, product->k);
  atomic_init(&run.next_item, 0);
  tglu__pool_run(pool, run_slot, &run, run.blocking.slots);
}
