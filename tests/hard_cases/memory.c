/* H05 H12 H14 H59 H62: empty sizes, strides, addresses, overlaps, at one ISA level. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "number.h"
#include "oracle.h"
#include "probe.h"
#include "runner.h"

static const char *isa;
static const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};

static void expect_failure(tglu_status got, tglu_status want, const char *word) {
  if (got != want || strstr(tglu_last_error(), word) == NULL) {
    fail_msg("got %s: \"%s\"; want %s naming \"%s\"", tglu_status_name(got),
             got == TGLU_OK ? "" : tglu_last_error(), tglu_status_name(want), word);
  }
}

static void check(const tt_case *c) {
  char why[TT_WHY_BYTES], text[TT_WHY_BYTES];
  tt_case_text(c, text, sizeof text);
  if (!tt_check_case(probe_context, c, NULL, why, sizeof why)) {
    fail_msg("%s at %s: %s", text, isa, why);
  }
}

/* ---- H05 ---- */

static void h05_no_tokens_then_three(void **state) {
  (void)state;
  for (int i = 0; i < 9; i++) {
    tt_case c;
    tt_operands o;
    tt_pointers p;
    tt_object object;
    char why[TT_WHY_BYTES];
    tt_case_init(&c);
    c.op = (tt_op)(i / 3);
    c.dtype = dtypes[i % 3];
    c.m = 3;
    c.n = 17;
    c.k = 29;
    tt_operands_create(&c, &o);
    tt_pointers_of(&o, &p);
    assert_int_equal(tt_object_create(probe_context, &c, &p, &object), TGLU_OK);
    tglu_run_args args;
    tglu_run_args_init(&args);
    assert_int_equal(tt_object_run_bare(&object, &args), TGLU_OK); /* all NULL */
    tt_fill_args(&c, &p, &args);
    args.tokens = 0;
    const uint64_t before = tt_hash(o.out.data, o.out.bytes);
    if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
    assert_true(tt_hash(o.out.data, o.out.bytes) == before);
    size_t bytes = 1;
    assert_int_equal(tt_object_workspace(&object, 0, &bytes), TGLU_OK);
    tt_object_destroy(&object);
    tt_operands_destroy(&o);
    check(&c);
  }
}

static void h05_no_intermediate(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    tt_case c;
    tt_operands o;
    char why[TT_WHY_BYTES];
    tt_case_init(&c);
    c.dtype = dtypes[i];
    c.m = 5;
    c.k = 24;
    c.pad_out = 16; /* a row to see that nothing is written */
    tt_operands_create(&c, &o);
    const uint64_t before = tt_hash(o.out.data, o.out.bytes);
    if (!tt_run(probe_context, &c, &o, why, sizeof why)) fail_msg("%s", why);
    assert_true(tt_hash(o.out.data, o.out.bytes) == before);
    tt_operands_destroy(&o);
    /* The MLP's sum over nothing: bias + residual. */
    c.op = TT_OP_MLP;
    for (int residual = 0; residual < 3; residual++) {
      for (int bias = 0; bias < 2; bias++) {
        c.residual = (tt_residual)residual;
        c.down_bias = bias;
        c.pad_residual = 3;
        check(&c);
      }
    }
  }
}

static void h05_no_hidden(void **state) {
  (void)state;
  float w[16] = {0};
  tglu_glu_desc desc = probe_desc(TGLU_DTYPE_F32, TGLU_ACTIVATION_SILU);
  tglu_glu *glu = (tglu_glu *)1;
  desc.layout = TGLU_LAYOUT_SEPARATE;
  desc.intermediate = 4;
  desc.gate = w;
  desc.up = w;
  for (int64_t hidden = -1; hidden <= 0; hidden++) {
    desc.hidden = hidden;
    expect_failure(tglu_glu_create(probe_context, &desc, &glu),
                   TGLU_ERR_INVALID_ARGUMENT, "hidden");
    assert_null(glu);
  }
}

/* ---- H12, H59 ---- */

/* x is a view into a matrix of [33, 3K + 1]; weights may be a few bytes off. */
static void run_view(tglu_dtype dtype, int64_t k, int64_t first, int64_t ldx,
                     size_t weight_off) {
  enum { M = 33, N = 40 };
  const size_t element = tt_bytes_of(dtype);
  tt_case c;
  tt_operands o;
  tt_pointers p;
  tt_object object;
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  tt_case_init(&c);
  c.dtype = dtype;
  c.m = M;
  c.n = N;
  c.k = k;
  c.misalign_w = (int)weight_off;
  tt_operands_create(&c, &o);
  tt_pointers_of(&o, &p);
  if (!tt_run(probe_context, &c, &o, why, sizeof why)) fail_msg("%s", why);
  unsigned char *expected = malloc(o.out.bytes);
  memcpy(expected, o.out.data, o.out.bytes);
  tt_reference reference;
  tt_report report;
  tt_reference_create(&c, &o, &reference);
  tt_compare(dtype, o.out.data, N, &reference, &report);
  if (!tt_report_passes(&report, 0x1p-19, why, sizeof why)) fail_msg("%s", why);
  tt_reference_destroy(&reference);

  tt_buffer base; /* all NaN around the view */
  tt_buffer_create(&base, (size_t)((M - 1) * ldx + first + k) * element, TT_PLACE_END, 0);
  for (int64_t t = 0; t < M; t++) {
    memcpy(base.data + (size_t)(t * ldx + first) * element,
           o.x.data + (size_t)(t * k) * element, (size_t)k * element);
  }
  p.x = base.data + (size_t)first * element;
  assert_int_equal(tt_object_create(probe_context, &c, &p, &object), TGLU_OK);
  tt_fill_args(&c, &p, &args);
  args.ldx = ldx;
  tt_reset_out(&c, &o);
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  if (memcmp(expected, o.out.data, o.out.bytes) != 0) {
    fail_msg("%s at %s: x as columns from %lld of rows of %lld gives other values",
             tglu_dtype_name(dtype), isa, (long long)first, (long long)ldx);
  }
  tt_object_destroy(&object);
  tt_buffer_destroy(&base);
  tt_operands_destroy(&o);
  free(expected);
}

static void h12_views_are_read_as_views(void **state) {
  (void)state;
  for (int d = 0; d < 3; d++) {
    static const int64_t ks[] = {64, 61};
    for (int i = 0; i < 2; i++) {
      const int64_t k = ks[i];
      run_view(dtypes[d], k, k, 3 * k + 1, 0);
      run_view(dtypes[d], k, 1, 3 * k + 1, 0);
      run_view(dtypes[d], k, 1, k, 0);
      run_view(dtypes[d], k, k, 3 * k + 1, 2);
    }
  }
}

static void h12_any_workspace_address(void **state) {
  (void)state;
  for (int d = 0; d < 3; d++) {
    tt_case c;
    tt_operands o;
    tt_pointers p;
    tt_object object;
    tglu_run_args args;
    size_t bytes;
    tt_case_init(&c);
    c.op = TT_OP_MLP;
    c.dtype = dtypes[d];
    c.m = 19;
    c.n = 45;
    c.k = 64;
    tt_operands_create(&c, &o);
    tt_pointers_of(&o, &p);
    assert_int_equal(tt_object_create(probe_context, &c, &p, &object), TGLU_OK);
    assert_int_equal(tt_object_workspace(&object, c.m, &bytes), TGLU_OK);
    assert_true(bytes > 0); /* H has to go somewhere */
    tt_fill_args(&c, &p, &args);
    uint64_t first = 0;
    for (size_t off = 0; off <= 64; off++) {
      tt_buffer workspace;
      int64_t at;
      tt_buffer_create(&workspace, bytes, TT_PLACE_INSIDE, off);
      args.workspace = workspace.data;
      args.workspace_bytes = bytes;
      tt_reset_out(&c, &o);
      assert_int_equal(tt_object_run_bare(&object, &args), TGLU_OK);
      assert_true(tt_buffer_intact(&workspace, &at));
      tt_buffer_destroy(&workspace);
      const uint64_t hash = tt_hash(o.out.data, o.out.bytes);
      if (off == 0) first = hash;
      assert_true(hash == first);
    }
    args.workspace_bytes = bytes - 1;
    args.workspace = o.x.data; /* refused before it is looked at */
    tt_reset_out(&c, &o);
    const uint64_t poison = tt_hash(o.out.data, o.out.bytes);
    expect_failure(tt_object_run_bare(&object, &args), TGLU_ERR_WORKSPACE, "workspace");
    args.workspace = NULL;
    args.workspace_bytes = bytes;
    expect_failure(tt_object_run_bare(&object, &args), TGLU_ERR_WORKSPACE, "workspace");
    assert_true(tt_hash(o.out.data, o.out.bytes) == poison);
    tt_object_destroy(&object);
    tt_operands_destroy(&o);
  }
}

static void h59_weights_at_any_byte(void **state) {
  (void)state;
  for (int i = 0; i < 9; i++) {
    for (int off = 0; off < 8; off++) {
      tt_case c;
      tt_case_init(&c);
      c.op = (tt_op)(i / 3);
      c.dtype = dtypes[i % 3];
      c.m = 6;
      c.n = 33;
      c.k = 70;
      c.gate_bias = c.up_bias = c.down_bias = true;
      c.misalign_w = 62 + off;
      check(&c);
    }
  }
}

/* ---- H14 ---- */

typedef struct overlap_test {
  tt_case c;
  tt_operands o;
  tt_pointers p;
  tt_object object;
  tglu_run_args args;
  tt_buffer workspace;
} overlap_test;

static void overlap_create(overlap_test *t, tt_op op) {
  size_t bytes;
  tt_case_init(&t->c);
  t->c.op = op;
  t->c.m = 128;
  t->c.n = t->c.k = 256;
  t->c.layout = TGLU_LAYOUT_STACKED_GATE_FIRST;
  t->c.gate_bias = t->c.up_bias = true;
  t->c.down_bias = true;
  if (op != TT_OP_GLU) t->c.residual = TT_RESIDUAL_APART;
  tt_operands_create(&t->c, &t->o);
  tt_pointers_of(&t->o, &t->p);
  assert_int_equal(tt_object_create(probe_context, &t->c, &t->p, &t->object), TGLU_OK);
  assert_int_equal(tt_object_workspace(&t->object, t->c.m, &bytes), TGLU_OK);
  tt_buffer_create(&t->workspace, bytes + 8192, TT_PLACE_INSIDE, 0);
  tt_fill_args(&t->c, &t->p, &t->args);
  t->args.workspace = t->workspace.data;
  t->args.workspace_bytes = t->workspace.bytes;
}

static void overlap_destroy(overlap_test *t) {
  char why[TT_WHY_BYTES];
  if (!tt_operands_intact(&t->c, &t->o, why, sizeof why)) fail_msg("%s", why);
  tt_object_destroy(&t->object);
  tt_operands_destroy(&t->o);
  tt_buffer_destroy(&t->workspace);
}

static void refused(const overlap_test *t, const char *what, void *out, int64_t ldo,
                    tglu_status want) {
  tglu_run_args args = t->args;
  args.out = out;
  args.ldo = ldo;
  const tglu_status got = tt_object_run_bare(&t->object, &args);
  if (got != want || strstr(tglu_last_error(), "out") == NULL) {
    fail_msg("%s: got %s: %s", what, tglu_status_name(got), tglu_last_error());
  }
}

static void h14_overlaps_are_refused(void **state) {
  (void)state;
  for (int op = 0; op < 3; op++) {
    overlap_test t;
    overlap_create(&t, (tt_op)op);
    unsigned char *x = t.o.x.data;
    const size_t row = 256 * 2;
    refused(&t, "ldo below the columns", t.o.out.data, 255, TGLU_ERR_INVALID_ARGUMENT);
    refused(&t, "column-major", t.o.out.data, 1, TGLU_ERR_INVALID_ARGUMENT);
    refused(&t, "negative ldo", t.o.out.data, -256, TGLU_ERR_INVALID_ARGUMENT);
    refused(&t, "out = x", x, 0, TGLU_ERR_OVERLAP);
    refused(&t, "out over the last row of x", x + 127 * row, 0, TGLU_ERR_OVERLAP);
    refused(&t, "out ends in x's first byte", x - 128 * row + 1, 0, TGLU_ERR_OVERLAP);
    refused(&t, "out = workspace", t.workspace.data, 0, TGLU_ERR_OVERLAP);
    if (op != TT_OP_LINEAR) {
      refused(&t, "out = gate_up", t.o.gate_up.data, 0, TGLU_ERR_OVERLAP);
      refused(&t, "out in the second half", t.o.gate_up.data + t.o.gate_up.bytes - 2, 0,
              TGLU_ERR_OVERLAP);
      refused(&t, "out at a bias", t.o.gate_up_bias.data + 2, 0, TGLU_ERR_OVERLAP);
    }
    if (op != TT_OP_GLU) {
      refused(&t, "out = down", t.o.down.data, 0, TGLU_ERR_OVERLAP);
      refused(&t, "out at down_bias", t.o.down_bias.data + t.o.down_bias.bytes - 2, 0,
              TGLU_ERR_OVERLAP);
      refused(&t, "out one row into the residual", t.o.residual.data + row, 0,
              TGLU_ERR_OVERLAP);
      refused(&t, "the residual with another stride", t.o.residual.data, 300,
              TGLU_ERR_OVERLAP);
    }
    tglu_run_args args = t.args; /* a workspace inside an input */
    args.workspace = x;
    if (t.o.x.bytes < args.workspace_bytes) args.workspace_bytes = t.o.x.bytes;
    size_t needed;
    assert_int_equal(tt_object_workspace(&t.object, t.c.m, &needed), TGLU_OK);
    if (needed <= args.workspace_bytes) {
      expect_failure(tt_object_run_bare(&t.object, &args), TGLU_ERR_OVERLAP, "workspace");
    }
    assert_int_equal(tt_object_run_bare(&t.object, &t.args), TGLU_OK); /* and goes on */
    overlap_destroy(&t);
  }
}

/* x, residual and out as columns of one matrix do not overlap: right, or refused. */
static void h14_neighbours_in_one_matrix(void **state) {
  (void)state;
  overlap_test t;
  overlap_create(&t, TT_OP_MLP);
  const int64_t ld = 3 * 256;
  const size_t row = 256 * 2;
  tt_buffer shared;
  tt_buffer_create(&shared, (size_t)(128 * ld) * 2, TT_PLACE_END, 0);
  for (size_t i = 0; i < 128; i++) {
    memcpy(shared.data + i * 3 * row, t.o.x.data + i * row, row);
    memcpy(shared.data + i * 3 * row + 2 * row, t.o.residual.data + i * row, row);
  }
  assert_int_equal(tt_object_run_bare(&t.object, &t.args), TGLU_OK);
  tglu_run_args args = t.args;
  args.x = shared.data;
  args.out = shared.data + row;
  args.residual = shared.data + 2 * row;
  args.ldx = args.ldo = args.ldr = ld;
  const tglu_status status = tt_object_run_bare(&t.object, &args);
  if (status == TGLU_OK) {
    for (size_t i = 0; i < 128; i++) {
      assert_memory_equal(shared.data + i * 3 * row + row, t.o.out.data + i * row, row);
      assert_memory_equal(shared.data + i * 3 * row, t.o.x.data + i * row, row);
    }
  } else {
    assert_int_equal(status, TGLU_ERR_OVERLAP);
  }
  tt_buffer_destroy(&shared);
  overlap_destroy(&t);
}

/* ---- H62: a stride in the wrong unit, or of the transposed matrix ---- */

static void h62_strides_below_the_row(void **state) {
  (void)state;
  static float w[2048];
  tglu_mlp_desc desc;
  tglu_mlp *mlp;
  tglu_mlp_desc_init(&desc);
  desc.glu = probe_desc(TGLU_DTYPE_F32, TGLU_ACTIVATION_SILU);
  desc.glu.hidden = 20;
  desc.glu.intermediate = 30;
  desc.glu.layout = TGLU_LAYOUT_SEPARATE;
  desc.glu.gate = w;
  desc.glu.up = w + 600;
  desc.down = w + 1200;
  desc.glu.ld = 19;
  expect_failure(tglu_mlp_create(probe_context, &desc, &mlp), TGLU_ERR_INVALID_ARGUMENT,
                 "ld");
  assert_null(mlp);
  assert_non_null(strstr(tglu_last_error(), "19"));
  assert_non_null(strstr(tglu_last_error(), "20"));
  desc.glu.ld = 0;
  desc.ld_down = 20; /* the transposed matrix's stride */
  expect_failure(tglu_mlp_create(probe_context, &desc, &mlp), TGLU_ERR_INVALID_ARGUMENT,
                 "ld_down");
  assert_non_null(strstr(tglu_last_error(), "30"));
  desc.ld_down = -30;
  expect_failure(tglu_mlp_create(probe_context, &desc, &mlp), TGLU_ERR_INVALID_ARGUMENT,
                 "ld_down");
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  probe_context = tt_cpu_context(isa, 2, false);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h05_no_tokens_then_three),
      cmocka_unit_test(h05_no_intermediate),
      cmocka_unit_test(h05_no_hidden),
      cmocka_unit_test(h12_views_are_read_as_views),
      cmocka_unit_test(h12_any_workspace_address),
      cmocka_unit_test(h59_weights_at_any_byte),
      cmocka_unit_test(h14_overlaps_are_refused),
      cmocka_unit_test(h14_neighbours_in_one_matrix),
      cmocka_unit_test(h62_strides_below_the_row),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  tglu_context_destroy(probe_context);
  return failed;
}
