/* Sizes around every tile edge, all K remainders, prime strides, odd addresses and
 * buffers that end or begin at an unreadable page, at one ISA level. */
#include <stdio.h>

#include "batch.h"
#include "cmocka_all.h"

static const char *isa;
static tglu_context *context;

static const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};
static const tt_op ops[] = {TT_OP_GLU, TT_OP_MLP, TT_OP_LINEAR};

/* A case with something of everything; layouts, activations and places rotate with
 * the counter, so that each meets every kind of edge. */
static void prepare(tt_case *c, tt_op op, tglu_dtype dtype, int64_t counter) {
  tt_case_init(c);
  c->op = op;
  c->dtype = dtype;
  c->layout = (tglu_layout)(1 + counter % 4);
  c->activation = (tglu_activation)(1 + counter % 6);
  c->place = counter % 3 == 2 ? TT_PLACE_START : TT_PLACE_END;
  c->gate_bias = c->up_bias = counter % 2 == 0;
  c->down_bias = counter % 5 < 2;
  if (op != TT_OP_GLU) c->residual = (tt_residual)(counter % 3);
  c->seed = 1000 + (uint64_t)counter;
}

static void check_sizes(tt_batch *batch, int64_t m, int64_t n, int64_t k) {
  for (int o = 0; o < 3; o++) {
    for (int d = 0; d < 3; d++) {
      tt_case c;
      prepare(&c, ops[o], dtypes[d], batch->cases);
      c.m = m;
      c.n = n;
      c.k = k;
      tt_batch_check(batch, &c);
    }
  }
}

static void begin(tt_batch *batch, const char *name, char *text, size_t bytes) {
  snprintf(text, bytes, "%s %s", name, isa);
  tt_batch_begin(batch, text, context);
}

static void small_m_n(void **state) {
  (void)state;
  char text[64];
  tt_batch batch;
  begin(&batch, "every small m x n", text, sizeof text);
  for (int64_t m = 1; m <= 9; m++) {
    for (int64_t n = 1; n <= 18; n++) check_sizes(&batch, m, n, 11);
  }
  assert_true(tt_batch_end(&batch));
}

static void tile_edges(void **state) {
  (void)state;
  static const int64_t tiles[] = {12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  char text[64];
  tt_batch batch;
  begin(&batch, "tile edges", text, sizeof text);
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    for (int64_t d = -1; d <= 1; d++) {
      check_sizes(&batch, tiles[i] + d, 5, 17);
      check_sizes(&batch, 3, tiles[i] + d, 17);
      check_sizes(&batch, 7, tiles[i] + d, 34);
    }
  }
  assert_true(tt_batch_end(&batch));
}

static void k_remainders(void **state) {
  (void)state;
  static const int64_t blocks[] = {96, 128, 256, 512, 1024, 2048, 4096};
  char text[64];
  tt_batch batch;
  begin(&batch, "k remainders", text, sizeof text);
  for (int64_t k = 1; k <= 66; k++) {
    check_sizes(&batch, 1, 9, k);
    check_sizes(&batch, 7, 17, k);
  }
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    for (int64_t d = -1; d <= 1; d++) check_sizes(&batch, 5, 9, blocks[i] + d);
  }
  assert_true(tt_batch_end(&batch));
}

/* x too large to stay converted: K in blocks for groups of tokens. */
static void blocked_k(void **state) {
  (void)state;
  static const int64_t sizes[][2] = {{13, 4096}, {12, 4097}, {49, 1025}, {97, 513},
                                     {41, 1201}, {193, 320}, {200, 321}, {1, 8193}};
  char text[64];
  tt_batch batch;
  begin(&batch, "blocked k", text, sizeof text);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    check_sizes(&batch, sizes[i][0], 9, sizes[i][1]);
  }
  check_sizes(&batch, 49, 37, 1030);
  assert_true(tt_batch_end(&batch));
}

static void prime_strides(void **state) {
  (void)state;
  static const int64_t pads[] = {1, 2, 3, 7, 13, 31, 61};
  enum { PADS = sizeof pads / sizeof *pads };
  char text[64];
  tt_batch batch;
  begin(&batch, "prime strides", text, sizeof text);
  for (int i = 0; i < 6 * PADS; i++) {
    for (int o = 0; o < 3; o++) {
      for (int d = 0; d < 3; d++) {
        tt_case c;
        prepare(&c, ops[o], dtypes[d], batch.cases);
        c.m = 1 + i % 17;
        c.n = 19 + i;
        c.k = 23 + 5 * (i % 9);
        c.pad_x = pads[i % PADS];
        c.pad_w = pads[(i + 1) % PADS];
        c.pad_down = pads[(i + 2) % PADS];
        c.pad_out = pads[(i + 3) % PADS];
        c.pad_residual = pads[(i + 4) % PADS];
        tt_batch_check(&batch, &c);
      }
    }
  }
  assert_true(tt_batch_end(&batch));
}

static void odd_addresses(void **state) {
  (void)state;
  char text[64];
  tt_batch batch;
  begin(&batch, "odd addresses", text, sizeof text);
  for (int off = 0; off < 34; off++) {
    for (int o = 0; o < 3; o++) {
      for (int d = 0; d < 3; d++) {
        tt_case c;
        prepare(&c, ops[o], dtypes[d], batch.cases);
        c.place = TT_PLACE_INSIDE;
        c.m = 1 + off % 9;
        c.n = 37;
        c.k = 40 + off % 3;
        c.misalign_x = off;
        c.misalign_w = (off * 7) % 64;
        c.misalign_out = (off * 11) % 64;
        tt_batch_check(&batch, &c);
      }
    }
  }
  assert_true(tt_batch_end(&batch));
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  context = tt_cpu_context(isa, 2, false);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_m_n),     cmocka_unit_test(tile_edges),
      cmocka_unit_test(k_remainders),  cmocka_unit_test(blocked_k),
      cmocka_unit_test(prime_strides), cmocka_unit_test(odd_addresses),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  tglu_context_destroy(context);
  return failed;
}
