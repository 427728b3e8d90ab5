/* Launch records, field by field, against values worked out here from the row's name
 * and the call: shapes x layouts x alignments x options, on the fake driver. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

static const void *at(uint64_t offset) { return (const void *)(uintptr_t)(BASE + offset); }

static tglu_context *open_context(const char *row, int32_t sm_limit, int32_t pdl) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CUDA;
  options.cuda_library = FAKE_CUDA;
  options.row = row;
  options.sm_limit = sm_limit;
  options.pdl = pdl;
  options.stable_weights = pdl == 0;
  tglu_context *context;
  if (tglu_context_create(&options, &context) != TGLU_OK) fail_msg("%s", tglu_last_error());
  return context;
}

/* A problem and a call, as small numbers. */
typedef struct shape {
  int64_t m, n, k;
  tglu_layout layout;
  int64_t ld_extra, ldx_extra, ldo_extra; /* beyond tight                       */
  uint64_t x_off, out_off;                /* bytes off 16                       */
  int bias;
} shape;

enum { GATE = 0 };
static const uint64_t UP = 1ull << 36, BIAS = 2ull << 36, X = 3ull << 36, OUT = 4ull << 36;

static tglu_glu *make(tglu_context *context, const shape *s, tglu_dtype dtype,
                      tglu_glu_desc *d) {
  tglu_glu_desc_init(d);
  d->hidden = s->k;
  d->intermediate = s->n;
  d->dtype = dtype;
  d->activation = TGLU_ACTIVATION_SWIGLUOAI;
  d->alpha = 1.5f;
  d->limit = 6.0f;
  d->offset = 0.5f;
  d->layout = s->layout;
  d->ld = s->k + s->ld_extra;
  if (s->layout == TGLU_LAYOUT_SEPARATE) {
    d->gate = at(GATE);
    d->up = at(UP);
    d->gate_bias = s->bias ? at(BIAS) : NULL;
    d->up_bias = s->bias ? at(BIAS + (1u << 30)) : NULL;
  } else {
    d->gate_up = at(GATE);
    d->gate_up_bias = s->bias ? at(BIAS) : NULL;
  }
  tglu_glu *glu;
  if (tglu_glu_create(context, d, &glu) != TGLU_OK) fail_msg("%s", tglu_last_error());
  return glu;
}

/* Gate and up addresses, stride and bias of the layout, as the header says. */
typedef struct triple {
  uint64_t gate, up, ld, gate_bias, up_bias, bias_stride;
} triple;

static triple triple_of(const shape *s) {
  uint64_t ld = (uint64_t)(s->k + s->ld_extra), n = (uint64_t)s->n;
  switch (s->layout) {
    case TGLU_LAYOUT_SEPARATE:
      return (triple){BASE, BASE + UP, ld, BASE + BIAS, BASE + BIAS + (1u << 30), 1};
    case TGLU_LAYOUT_STACKED_GATE_FIRST:
      return (triple){BASE, BASE + 2 * n * ld, ld, BASE + BIAS, BASE + BIAS + 2 * n, 1};
    case TGLU_LAYOUT_STACKED_UP_FIRST:
      return (triple){BASE + 2 * n * ld, BASE, ld, BASE + BIAS + 2 * n, BASE + BIAS, 1};
    default:
      return (triple){BASE, BASE + 2 * ld, 2 * ld, BASE + BIAS, BASE + BIAS + 2, 2};
  }
}

/* A stream row: pointers as they are, no maps. */
static void expect_stream_record(const fake_launch *l, const shape *s, int32_t pdl) {
  const tglu_stream_launch *r = &l->record.stream;
  triple t = triple_of(s);
  assert_int_equal((uintptr_t)r->x, BASE + X + s->x_off);
  assert_int_equal(r->ldx, s->k + s->ldx_extra);
  assert_int_equal((uintptr_t)r->gate, t.gate);
  assert_int_equal((uintptr_t)r->up, t.up);
  assert_int_equal(r->ldw, t.ld);
  assert_int_equal((uintptr_t)r->gate_bias, s->bias ? t.gate_bias : 0);
  assert_int_equal((uintptr_t)r->up_bias, s->bias ? t.up_bias : 0);
  if (s->bias) assert_int_equal(r->bias_stride, t.bias_stride);
  assert_null(r->residual);
  assert_int_equal((uintptr_t)r->out, BASE + OUT + s->out_off);
  assert_int_equal(r->ldo, s->n + s->ldo_extra);
  assert_int_equal(r->m, s->m);
  assert_int_equal(r->n, s->n);
  assert_int_equal(r->k, s->k);
  assert_int_equal(r->activation, TGLU_ACTIVATION_SWIGLUOAI);
  assert_int_equal(r->flags, pdl == 0 ? TGLU_LAUNCH_STABLE_WEIGHTS : 0);
  assert_true(r->alpha == 1.5f && r->limit == 6.0f && r->offset == 0.5f);
}

static void expect_record(const fake_launch *l, const tglu__row *row, const shape *s,
                          tglu_dtype dtype, int32_t pdl) {
  const tglu_glu_launch *r = &l->record.general.base;
  triple t = triple_of(s);
  int64_t ldx = s->k + s->ldx_extra, ldo = s->n + s->ldo_extra;
  int one = s->m == 1;
  int general = row->loader == tglu__loader_general;
  int direct = general || s->n % 8 != 0 || s->out_off % 16 != 0 || (!one && ldo % 8 != 0);
  assert_int_equal(r->m, s->m);
  assert_int_equal(r->n, s->n);
  assert_int_equal(r->k, s->k);
  assert_int_equal(r->tile_rows, (s->m - 1) / (row->tile_m * row->cluster_m) + 1);
  assert_int_equal(r->tile_columns, (s->n - 1) / row->tile_n + 1);
  assert_true(r->group >= 1);
  assert_int_equal(r->activation, TGLU_ACTIVATION_SWIGLUOAI);
  assert_int_equal(r->flags, (direct ? 1 : 0) | (pdl == 0 ? 2 : 0));
  assert_true(r->alpha == 1.5f && r->limit == 6.0f && r->offset == 0.5f);
  assert_int_equal((uintptr_t)r->gate_bias, s->bias ? t.gate_bias : 0);
  assert_int_equal((uintptr_t)r->up_bias, s->bias ? t.up_bias : 0);
  if (s->bias) assert_int_equal(r->bias_stride, t.bias_stride);
  assert_int_equal((uintptr_t)r->out_pointer, BASE + OUT + s->out_off);
  assert_int_equal(r->ldo, ldo);
  uint64_t k = (uint64_t)s->k, n = (uint64_t)s->n, m = (uint64_t)s->m;
  if (general) {
    const tglu_glu_general_launch *g = &l->record.general;
    expect_classes(g->x, g->x_shift, g->x_classes, BASE + X + s->x_off, dtype, k, m,
                   (uint64_t)ldx, (uint32_t)row->tile_m);
    expect_classes(g->gate, g->gate_shift, g->w_classes, t.gate, dtype, k, n, t.ld,
                   (uint32_t)row->tile_n);
    expect_classes(g->up, g->up_shift, g->w_classes, t.up, dtype, k, n, t.ld,
                   (uint32_t)row->tile_n);
  } else {
    uint32_t tail = (uint32_t)row->tile_n % 8;
    uint32_t share = (uint32_t)(row->schedule == tglu__schedule_gate_first
                                  ? row->tile_n / row->cluster_m
                                  : row->tile_n) - tail;
    uint64_t ldw = n == 1 ? (k + 7) / 8 * 8 : t.ld;
    expect_map(&r->gate, t.gate, dtype, k, n, ldw, 64, share, 3);
    expect_map(&r->up, t.up, dtype, k, n, ldw, 64, share, 3);
    expect_map(&r->x, BASE + X, dtype, k, m, one ? (k + 7) / 8 * 8 : (uint64_t)ldx, 64,
               (uint32_t)expected_x_rows(row, s->m), 3);
    assert_int_equal(r->x_rows, expected_x_rows(row, s->m));
    if (tail != 0) {
      expect_map(&l->record.tail.gate_tail, t.gate, dtype, k, n, ldw, 64, tail, 3);
      expect_map(&l->record.tail.up_tail, t.up, dtype, k, n, ldw, 64, tail, 3);
    }
  }
  if (!direct)
    expect_out_map(&r->out, row, BASE + OUT, n, m,
                   one ? (n + 7) / 8 * 8 : (uint64_t)ldo);
}

static tglu_status run_shape(const tglu_glu *glu, const shape *s) {
  tglu_run_args args;
  tglu_run_args_init(&args);
  args.x = at(X + s->x_off);
  args.ldx = s->k + s->ldx_extra;
  args.tokens = s->m;
  args.out = (void *)(uintptr_t)(BASE + OUT + s->out_off);
  args.ldo = s->n + s->ldo_extra;
  args.stream = STREAM;
  return tglu_glu_run(glu, &args);
}

/* One shape through creation and run; returns 1 if it was launched, 0 if refused as
 * it must be without a general row. */
static int check(tglu_context *context, const shape *s, tglu_dtype dtype, int32_t room,
                 int32_t pdl) {
  tglu_glu_desc d;
  tglu_glu *glu = make(context, s, dtype, &d);
  fake->encode_total = fake->launch_total = 0;
  tglu_glu_destroy(glu);
  glu = make(context, s, dtype, &d); /* so that its encodes are recorded from 0 */
  int32_t first = fake->call_total = 0;
  tglu_status status = run_shape(glu, s);
  int aligned = s->x_off % 16 == 0 && (s->m == 1 || (s->k + s->ldx_extra) % 8 == 0);
  if (!aligned && !has_row(tglu__op_glu, dtype, tglu__loader_general)) {
    assert_int_equal(status, TGLU_ERR_UNSUPPORTED);
    expect_message("x:");
    assert_int_equal(fake->launch_total, 0);
    tglu_glu_destroy(glu);
    return 0;
  }
  if (status != TGLU_OK) fail_msg("%s", tglu_last_error());
  assert_int_equal(fake->launch_total, 1);
  expect_calls(first, 1);
  const fake_launch *l = &fake->launches[0];
  const tglu__row *row = launched_row(l);
  assert_int_equal(row->op, tglu__op_glu);
  assert_int_equal(row->dtype, dtype);
  if (!aligned) assert_int_equal(row->loader, tglu__loader_general);
  expect_config(l, row, s->m, s->n, s->k, room, pdl);
  if (tglu__row_is_stream(row)) {
    expect_stream_record(l, s, pdl);
  } else {
    expect_record(l, row, s, dtype, pdl);
  }
  tglu_glu_destroy(glu);
  return 1;
}

static const shape shapes[] = {
  {.m = 1, .n = 1, .k = 8, .layout = 1},
  {.m = 1, .n = 4864, .k = 896, .layout = 1, .bias = 1},
  {.m = 1, .n = 88, .k = 64, .layout = 1, .ldx_extra = 3, .ldo_extra = 5},
  {.m = 3, .n = 8, .k = 16, .layout = 4, .bias = 1},
  {.m = 128, .n = 96, .k = 64, .layout = 2},
  {.m = 129, .n = 97, .k = 72, .layout = 1},
  {.m = 256, .n = 1000, .k = 4104, .layout = 3, .bias = 1},
  {.m = 257, .n = 130, .k = 1001, .layout = 1, .ld_extra = 7, .ldx_extra = 7},
  {.m = 300, .n = 200, .k = 512, .layout = 1, .ldo_extra = 8, .ldx_extra = 16},
  {.m = 300, .n = 200, .k = 512, .layout = 1, .ldo_extra = 3},
  {.m = 300, .n = 200, .k = 512, .layout = 1, .out_off = 2},
  {.m = 300, .n = 200, .k = 512, .layout = 1, .x_off = 2},
  {.m = 300, .n = 200, .k = 512, .layout = 1, .ldx_extra = 1},
  {.m = 1024, .n = 18944, .k = 3584, .layout = 1},
  {.m = 8192, .n = 29568, .k = 8192, .layout = 2, .bias = 1},
  {.m = 65537, .n = 32768, .k = 16, .layout = 1},
  {.m = 131073, .n = 8, .k = 16384, .layout = 1},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Strides too short for K and a shift: the fake refuses maps that reach beyond a stride. */
static void short_strides(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  tglu_context *context = open_context(NULL, 0, 1);
  int launched = 0;
  for (int k = 1; k <= 9; ++k) {
    for (int extra = 0; extra <= 8; ++extra) {
      for (int off = 0; off < 8; ++off) {
        shape s = {.m = 33, .n = 24, .k = k, .layout = 1, .x_off = 2 * off,
                   .ldx_extra = extra, .ld_extra = 8 - extra};
        launched += check(context, &s, TGLU_DTYPE_BF16, 132, 1);
      }
    }
  }
  assert_int_equal(launched, 9 * 9 * 8);
  tglu_context_destroy(context);
  fake_expect_balance();
}

static void every_shape(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  int launched = 0, refused = 0;
  for (int pdl = 0; pdl < 2; ++pdl) {
    fake_begin();
    tglu_context *context = open_context(NULL, 0, pdl);
    for (int i = 0; i < SHAPES; ++i) {
      for (int dtype = TGLU_DTYPE_BF16; dtype <= TGLU_DTYPE_F16; ++dtype) {
        if (!has_row(tglu__op_glu, (tglu_dtype)dtype, tglu__loader_tma)) continue;
        int ok = check(context, &shapes[i], (tglu_dtype)dtype, 132, pdl);
        launched += ok;
        refused += !ok;
      }
    }
    tglu_context_destroy(context);
    fake_expect_balance();
  }
  print_message("%d launches compared, %d refused for want of a general row\n", launched,
                refused);
  assert_true(launched >= 2 * (SHAPES - 2));
}

static void every_row_forced(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  for (int32_t r = 0; r < tglu__row_total; ++r) {
    if (tglu__rows[r].op != tglu__op_glu) continue;
    fake_begin();
    tglu_context *context = open_context(tglu__rows[r].name, 0, 1);
    for (int i = 0; i < 4 * 4; ++i) { /* a tile's part, several tiles; each layout */
      static const int64_t outputs[] = {1, 3, 67, 520};
      shape s = {.m = 513, .n = outputs[i % 4], .k = 264, .layout = 1 + i / 4};
      assert_int_equal(check(context, &s, tglu__rows[r].dtype, 132, 1), 1);
      assert_string_equal(fake->launches[0].kernel, tglu__rows[r].name);
    }
    tglu_context_destroy(context);
    fake_expect_balance();
  }
}

/* H30: any number of SMs; the grid is whole clusters, never more CTAs than SMs. */
static void sm_limits(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  static const int32_t limits[] = {1, 2, 3, 77, 78, 114, 131, 132, 500};
  int smallest = 8;
  for (int32_t r = 0; r < tglu__row_total; ++r)
    if (tglu__rows[r].op == tglu__op_glu && tglu__rows[r].dtype == TGLU_DTYPE_BF16 &&
        tglu__rows[r].cluster_m < smallest)
      smallest = tglu__rows[r].cluster_m;
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; ++i) {
    fake_begin();
    tglu_context *context = open_context(NULL, limits[i], 1);
    int32_t room = limits[i] < 132 ? limits[i] : 132;
    tglu_context_info info;
    tglu_context_info_init(&info);
    tglu_context_get_info(context, &info);
    assert_int_equal(info.sm_count, room);
    shape few = {.m = 8, .n = 96, .k = 64, .layout = 1};
    shape many = {.m = 8192, .n = 4864, .k = 896, .layout = 1};
    if (room < smallest) {
      tglu_glu_desc d;
      tglu_glu_desc_init(&d);
      d.hidden = d.intermediate = 64;
      d.dtype = TGLU_DTYPE_BF16;
      d.activation = TGLU_ACTIVATION_SILU;
      d.layout = TGLU_LAYOUT_SEPARATE;
      d.gate = at(GATE);
      d.up = at(UP);
      tglu_glu *glu;
      assert_int_equal(tglu_glu_create(context, &d, &glu), TGLU_ERR_UNSUPPORTED);
      expect_message("sm_limit");
    } else {
      assert_int_equal(check(context, &few, TGLU_DTYPE_BF16, room, 1), 1);
      assert_int_equal(check(context, &many, TGLU_DTYPE_BF16, room, 1), 1);
    }
    tglu_context_destroy(context);
    fake_expect_balance();
  }
}

static void explain_and_plan(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  tglu_context *context = open_context(NULL, 0, 1);
  shape s = {.m = 1000, .n = 4861, .k = 896, .layout = TGLU_LAYOUT_STACKED_GATE_FIRST};
  tglu_glu_desc d;
  tglu_glu *glu = make(context, &s, TGLU_DTYPE_BF16, &d);
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_int_equal(tglu_glu_get_plan(glu, s.m, &info), TGLU_OK);
  assert_non_null(info.row);
  assert_null(info.down_row);
  assert_true(info.predicted_us > 0);
  tglu_run_args args;
  tglu_run_args_init(&args);
  args.x = at(X);
  args.tokens = s.m;
  args.out = (void *)(uintptr_t)(BASE + OUT);
  char text[4096];
  assert_int_equal(tglu_glu_explain(glu, &args, text, sizeof text), TGLU_OK);
  static const char *const words[] = {"grid: ", "waves", "shared memory", "loads: tma",
                                      "intermediate is not a multiple of 8",
                                      "stacked_gate_first", "cost model", "predicted",
                                      "programmatic stream serialization on"};
  assert_non_null(strstr(text, info.row));
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
    if (strstr(text, words[i]) == NULL) fail_msg("no \"%s\" in\n%s", words[i], text);
  assert_int_equal(tglu_glu_explain(glu, &args, text, 20), TGLU_ERR_BUFFER_TOO_SMALL);
  assert_int_equal(strlen(text), 19);
  args.tokens = INT64_C(1) << 31;
  assert_int_equal(tglu_glu_explain(glu, &args, text, sizeof text), TGLU_OK);
  assert_non_null(strstr(text, "no kernel row serves"));
  assert_non_null(strstr(text, "launch: none\n"));
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
}

/* H32: one row for every number of tokens, aligned x or not, one token included. */
static void batch_invariant_takes_one_row(void **unused) {
  (void)unused;
  if (!kernels_built()) skip();
  fake_begin();
  tglu_context_options o;
  tglu_context_options_init(&o);
  o.backend = TGLU_BACKEND_CUDA;
  o.cuda_library = FAKE_CUDA;
  o.batch_invariant = 1;
  tglu_context *context = NULL;
  assert_int_equal(tglu_context_create(&o, &context), TGLU_OK);
  for (int extra = 0; extra < 2; ++extra) {
    char first[128] = "";
    for (int64_t m = 1; m <= 70000; m = m * 3 + (m == 1)) {
      shape s = {.m = m, .n = 2048, .k = 2048, .layout = 1, .ldx_extra = extra};
      tglu_glu_desc d;
      tglu_glu *glu = make(context, &s, TGLU_DTYPE_BF16, &d);
      fake->launch_total = 0;
      assert_int_equal(run_shape(glu, &s), TGLU_OK);
      if (first[0] == '\0') snprintf(first, sizeof first, "%s", fake->launches[0].kernel);
      assert_string_equal(fake->launches[0].kernel, first);
      tglu_glu_destroy(glu);
    }
  }
  tglu_context_destroy(context);
  fake_expect_balance();
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(batch_invariant_takes_one_row),
    cmocka_unit_test(every_shape),
    cmocka_unit_test(short_strides), cmocka_unit_test(every_row_forced),
    cmocka_unit_test(sm_limits), cmocka_unit_test(explain_and_plan),
  };
  fake_open();
  return cmocka_run_group_tests_name("cuda_launch", tests, NULL, NULL);
}
