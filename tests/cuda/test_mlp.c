/* MLPs and linears on the fake driver: the two launches and their order, H in the
 * workspace, records of the down rows, errors before the first launch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

static const uint64_t GATE = 0, UP = 1ull << 36, DOWN = 2ull << 36, BIAS = 3ull << 36,
                      X = 4ull << 36, OUT = 5ull << 36, RESIDUAL = 6ull << 36,
                      WORKSPACE = 7ull << 36;

static void *at(uint64_t offset) { return (void *)(uintptr_t)(BASE + offset); }

typedef struct options {
  const char *row;
  int32_t sm_limit, pdl, stable, invariant;
} options;

static tglu_context *open_context(const options *o) {
  tglu_context_options c;
  tglu_context_options_init(&c);
  c.backend = TGLU_BACKEND_CUDA;
  c.cuda_library = FAKE_CUDA;
  c.tune_cache = "";
  c.row = o->row;
  c.sm_limit = o->sm_limit;
  c.pdl = o->pdl;
  c.stable_weights = o->stable;
  c.batch_invariant = o->invariant;
  tglu_context *context;
  if (tglu_context_create(&c, &context) != TGLU_OK) fail_msg("%s", tglu_last_error());
  return context;
}

/* A problem and a call; offsets in bytes, extras in elements. */
typedef struct shape {
  int64_t m, n, k;
  int64_t ldx_extra, ldd_extra, ldo_extra, ldr_extra;
  uint64_t x_off, down_off, out_off, residual_off, workspace_off;
  int bias, residual; /* residual 2: out itself */
} shape;

static tglu_mlp_desc mlp_desc(const shape *s, tglu_dtype dtype) {
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu.hidden = s->k;
  d.glu.intermediate = s->n;
  d.glu.dtype = dtype;
  d.glu.activation = TGLU_ACTIVATION_SILU;
  d.glu.layout = TGLU_LAYOUT_SEPARATE;
  d.glu.gate = at(GATE);
  d.glu.up = at(UP);
  d.glu.ld = s->k == 0 ? 0 : (s->k + 7) / 8 * 8;
  d.down = at(DOWN + s->down_off);
  d.ld_down = s->n + s->ldd_extra;
  d.down_bias = s->bias ? at(BIAS) : NULL;
  return d;
}

static tglu_linear_desc linear_desc(const shape *s, tglu_dtype dtype) {
  tglu_linear_desc d;
  tglu_linear_desc_init(&d);
  d.in_features = s->n;
  d.out_features = s->k;
  d.dtype = dtype;
  d.weight = at(DOWN + s->down_off);
  d.ld = s->n + s->ldd_extra;
  d.bias = s->bias ? at(BIAS) : NULL;
  return d;
}

static tglu_run_args args_of(const shape *s, int64_t x_columns) {
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = at(X + s->x_off);
  a.ldx = x_columns + s->ldx_extra;
  a.tokens = s->m;
  a.out = at(OUT + s->out_off);
  a.ldo = s->k + s->ldo_extra;
  if (s->residual == 1) {
    a.residual = at(RESIDUAL + s->residual_off);
    a.ldr = s->k + s->ldr_extra;
  } else if (s->residual == 2) {
    a.residual = a.out;
    a.ldr = a.ldo;
  }
  a.stream = STREAM;
  return a;
}

static int64_t h_stride(const shape *s) { return (s->n + 63) / 64 * 64; }

static void with_workspace(const shape *s, tglu_run_args *a) {
  a->workspace = at(WORKSPACE + s->workspace_off);
  a->workspace_bytes = (size_t)(s->m * h_stride(s) * 2 + 255);
}

/* The launch of a down row, x and its stride as given. */
static void expect_down(const fake_launch *l, const shape *s, const tglu_run_args *a,
                        uint64_t x, int64_t ldx, int flags, int32_t sms,
                        int32_t pdl) {
  const tglu__row *row = launched_row(l);
  assert_int_equal(row->op, tglu__op_down);
  expect_config(l, row, s->m, s->k, s->n, sms, pdl);
  int64_t ldd = s->n + s->ldd_extra;
  uint64_t bias = s->bias ? BASE + BIAS : 0;
  if (tglu__row_is_stream(row)) {
    const tglu_stream_launch *r = &l->record.stream;
    assert_int_equal((uintptr_t)r->x, x);
    assert_int_equal(r->ldx, ldx);
    assert_int_equal((uintptr_t)r->gate, BASE + DOWN + s->down_off);
    assert_null(r->up);
    assert_int_equal(r->ldw, ldd);
    assert_int_equal((uintptr_t)r->gate_bias, bias);
    assert_null(r->up_bias);
    if (bias) assert_int_equal(r->bias_stride, 1);
    assert_ptr_equal(r->residual, a->residual);
    if (a->residual != NULL) assert_int_equal(r->ldr, a->ldr);
    assert_ptr_equal(r->out, a->out);
    assert_int_equal(r->ldo, a->ldo);
    assert_int_equal(r->m, s->m);
    assert_int_equal(r->n, s->k);
    assert_int_equal(r->k, s->n);
    assert_int_equal(r->flags, flags);
    return;
  }
  const tglu_down_launch *r = &l->record.down;
  bool split = row->schedule == tglu__schedule_down_split, one = s->m == 1;
  bool direct = s->k % 8 != 0 || s->out_off % 16 != 0 || (!one && a->ldo % 8 != 0);
  int64_t height = row->tile_m * (split ? 1 : row->cluster_m);
  uint64_t m = (uint64_t)s->m, n = (uint64_t)s->k, k = (uint64_t)s->n;
  uint32_t box = (uint32_t)(split ? row->tile_n : row->tile_n / row->cluster_m);
  expect_map(&r->x, x, row->dtype, k, m, one ? (k + 7) / 8 * 8 : (uint64_t)ldx, 64,
             (uint32_t)expected_x_rows(row, s->m), 3);
  assert_int_equal(r->x_rows, expected_x_rows(row, s->m));
  expect_map(&r->w, BASE + DOWN, row->dtype, k, n,
             n == 1 ? (k + 7) / 8 * 8 : (uint64_t)ldd, 64, box, 3);
  if (direct || split) {
    assert_memory_equal(&r->out, &r->w, sizeof r->w);
  } else {
    expect_out_map(&r->out, row, BASE + OUT, n, m,
                   one ? (n + 7) / 8 * 8 : (uint64_t)a->ldo);
  }
  assert_int_equal(r->m, s->m);
  assert_int_equal(r->n, s->k);
  assert_int_equal(r->k, s->n);
  assert_int_equal(r->tile_rows, (s->m + height - 1) / height);
  assert_int_equal(r->tile_columns, (s->k + row->tile_n - 1) / row->tile_n);
  assert_true(r->group >= 1);
  assert_int_equal(r->flags, flags | (direct ? TGLU_LAUNCH_DIRECT_STORE : 0));
  assert_int_equal((uintptr_t)r->bias, bias);
  assert_ptr_equal(r->residual, a->residual);
  if (a->residual != NULL) assert_int_equal(r->ldr, a->ldr);
  assert_ptr_equal(r->out_pointer, a->out);
  assert_int_equal(r->ldo, a->ldo);
}

/* The GLU in front of it: its output is H, whatever the kind of the row. */
static void expect_glu(const fake_launch *l, const shape *s, uint64_t h, int flags,
                       int32_t sms, int32_t pdl) {
  const tglu__row *row = launched_row(l);
  assert_int_equal(row->op, tglu__op_glu);
  expect_config(l, row, s->m, s->n, s->k, sms, pdl);
  if (tglu__row_is_stream(row)) {
    const tglu_stream_launch *r = &l->record.stream;
    assert_int_equal((uintptr_t)r->x, BASE + X + s->x_off);
    assert_int_equal((uintptr_t)r->out, h);
    assert_int_equal(r->ldo, h_stride(s));
    assert_null(r->residual);
    assert_int_equal(r->flags, flags);
    return;
  }
  const tglu_glu_launch *r = &l->record.general.base;
  bool direct = s->n % 8 != 0 || row->loader == tglu__loader_general;
  assert_int_equal((uintptr_t)r->out_pointer, h);
  assert_int_equal(r->ldo, h_stride(s));
  assert_int_equal(r->flags, flags | (direct ? TGLU_LAUNCH_DIRECT_STORE : 0));
  if (!direct)
    expect_out_map(&r->out, row, h, (uint64_t)s->n, (uint64_t)s->m,
                   s->m == 1 ? (uint64_t)(s->n + 7) / 8 * 8 : (uint64_t)h_stride(s));
}

static bool aligned_down(const shape *s) {
  return s->down_off % 16 == 0 && (s->k == 1 || (s->n + s->ldd_extra) % 8 == 0);
}

/* One shape through an MLP; 1 if it was launched, 0 if refused for want of a general down
 * row, as it must be then. */
static int check_mlp(const options *o, const shape *s, tglu_dtype dtype) {
  tglu_context *context = open_context(o);
  tglu_mlp_desc d = mlp_desc(s, dtype);
  tglu_mlp *mlp;
  tglu_status status = tglu_mlp_create(context, &d, &mlp);
  if (status != TGLU_OK && !aligned_down(s)) {
    assert_int_equal(status, TGLU_ERR_UNSUPPORTED);
    expect_message("down");
    tglu_context_destroy(context);
    return 0;
  }
  if (status != TGLU_OK) fail_msg("%s", tglu_last_error());
  tglu_run_args a = args_of(s, s->k);
  with_workspace(s, &a);
  size_t bytes = 0;
  assert_int_equal(tglu_mlp_workspace_bytes(mlp, s->m, &bytes), TGLU_OK);
  assert_int_equal(bytes, a.workspace_bytes);
  fake->launch_total = 0;
  int32_t first = fake->call_total = 0;
  if (tglu_mlp_run(mlp, &a) != TGLU_OK) fail_msg("%s", tglu_last_error());
  expect_calls(first, 2);
  assert_int_equal(fake->launch_total, 2);
  uint64_t h = (BASE + WORKSPACE + s->workspace_off + 255) / 256 * 256;
  assert_true(h + (uint64_t)(s->m * h_stride(s)) * 2 <=
              (uintptr_t)a.workspace + a.workspace_bytes);
  int32_t sms = o->sm_limit > 0 ? o->sm_limit : 132;
  int stable = o->stable ? TGLU_LAUNCH_STABLE_WEIGHTS : 0;
  expect_glu(&fake->launches[0], s, h, stable, sms, o->pdl);
  /* Behind the GLU, which has waited for whatever wrote the weights. */
  expect_down(&fake->launches[1], s, &a, h, h_stride(s), TGLU_LAUNCH_STABLE_WEIGHTS, sms,
              1);
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  return 1;
}

static int check_linear(const options *o, const shape *s, tglu_dtype dtype) {
  tglu_context *context = open_context(o);
  tglu_linear_desc d = linear_desc(s, dtype);
  tglu_linear *linear;
  tglu_status status = tglu_linear_create(context, &d, &linear);
  tglu_run_args a = args_of(s, s->n);
  bool x_aligned = s->x_off % 16 == 0 && (s->m == 1 || a.ldx % 8 == 0);
  fake->launch_total = 0;
  int32_t first = fake->call_total = 0;
  if (status == TGLU_OK) status = tglu_linear_run(linear, &a);
  if (status != TGLU_OK && !(aligned_down(s) && x_aligned)) {
    assert_int_equal(status, TGLU_ERR_UNSUPPORTED);
    expect_message(aligned_down(s) ? "x: " : s->down_off % 16 != 0 ? "weight: " : "ld: ");
    assert_int_equal(fake->launch_total, 0);
    tglu_linear_destroy(linear);
    tglu_context_destroy(context);
    return 0;
  }
  if (status != TGLU_OK) fail_msg("%s", tglu_last_error());
  size_t bytes = 1;
  assert_int_equal(tglu_linear_workspace_bytes(linear, s->m, &bytes), TGLU_OK);
  assert_int_equal(bytes, 0);
  expect_calls(first, 1);
  int32_t sms = o->sm_limit > 0 ? o->sm_limit : 132;
  expect_down(&fake->launches[0], s, &a, BASE + X + s->x_off, a.ldx,
              o->stable ? TGLU_LAUNCH_STABLE_WEIGHTS : 0, sms, o->pdl);
  tglu_linear_destroy(linear);
  tglu_context_destroy(context);
  return 1;
}

static const shape shapes[] = {
  {.m = 1, .n = 64, .k = 64},
  {.m = 1, .n = 4864, .k = 896, .bias = 1, .residual = 1},
  {.m = 3, .n = 8, .k = 16, .residual = 2, .workspace_off = 1},
  {.m = 16, .n = 200, .k = 136, .workspace_off = 16, .bias = 1},
  {.m = 33, .n = 131, .k = 72, .ldd_extra = 5, .residual = 2, .workspace_off = 255},
  {.m = 64, .n = 4864, .k = 896, .residual = 1, .residual_off = 2, .ldr_extra = 3},
  {.m = 128, .n = 520, .k = 1001, .bias = 1, .workspace_off = 64},
  {.m = 257, .n = 1000, .k = 512, .out_off = 2, .residual = 1},
  {.m = 300, .n = 264, .k = 200, .ldo_extra = 3, .residual = 2},
  {.m = 300, .n = 264, .k = 200, .ldo_extra = 8, .ldx_extra = 8, .workspace_off = 32},
  {.m = 300, .n = 264, .k = 200, .ldx_extra = 3},
  {.m = 300, .n = 264, .k = 200, .x_off = 6},
  {.m = 5, .n = 131, .k = 72, .ldx_extra = 1},
  {.m = 5, .n = 136, .k = 72, .down_off = 2},
  {.m = 4096, .n = 18944, .k = 3584, .bias = 1, .residual = 1},
  {.m = 65537, .n = 32768, .k = 16},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static bool down_built(void) {
  if (!kernels_built()) return false;
  if (has_row(tglu__op_down, TGLU_DTYPE_BF16, tglu__loader_tma)) return true;
  print_message("skipped: this build has no down rows\n");
  return false;
}

static void every_shape(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  int launched = 0, refused = 0;
  for (int i = 0; i < SHAPES; ++i) {
    for (int variant = 0; variant < 4; ++variant) {
      for (int dtype = TGLU_DTYPE_BF16; dtype <= TGLU_DTYPE_F16; ++dtype) {
        if (!has_row(tglu__op_down, (tglu_dtype)dtype, tglu__loader_tma)) continue;
        options o = {.pdl = variant % 2, .stable = variant / 2,
                     .sm_limit = variant == 3 ? 77 : 0};
        fake_begin();
        int ok = check_mlp(&o, &shapes[i], (tglu_dtype)dtype);
        ok += check_linear(&o, &shapes[i], (tglu_dtype)dtype);
        launched += ok;
        refused += 2 - ok;
        fake_expect_balance();
      }
    }
  }
  print_message("%d launched, %d refused for want of a general row\n", launched, refused);
  assert_true(launched > refused);
}

/* Each row forced, as the half of an MLP that it serves; each down row also as a linear. */
static void every_row_forced(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  for (int32_t r = 0; r < tglu__row_total; ++r) {
    const tglu__row *row = &tglu__rows[r];
    if (!has_row(tglu__op_down, row->dtype, tglu__loader_tma)) continue;
    fake_begin();
    options o = {.row = row->name, .pdl = 1};
    shape s = {.m = row->tile_m * 2 + 1, .n = 520, .k = 264, .bias = 1, .residual = 1};
    assert_int_equal(check_mlp(&o, &s, row->dtype), 1);
    assert_string_equal(fake->launches[row->op == tglu__op_down].kernel, row->name);
    if (row->op == tglu__op_down) {
      assert_int_equal(check_linear(&o, &s, row->dtype), 1);
      assert_string_equal(fake->launches[0].kernel, row->name);
    } else {
      tglu_context *context = open_context(&o);
      tglu_linear_desc d = linear_desc(&s, row->dtype);
      tglu_linear *linear;
      assert_int_equal(tglu_linear_create(context, &d, &linear), TGLU_ERR_UNSUPPORTED);
      expect_message("row: ");
      expect_message("another operation");
      tglu_context_destroy(context);
    }
    fake_expect_balance();
  }
}

/* H has room for its last row wherever the workspace lies; one byte less is refused. */
static void workspace(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  fake_begin();
  options o = {.pdl = 1};
  tglu_context *context = open_context(&o);
  shape s = {.m = 9, .n = 72, .k = 64};
  tglu_mlp_desc d = mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
  size_t bytes;
  for (int64_t tokens = 0; tokens < 40; ++tokens) {
    assert_int_equal(tglu_mlp_workspace_bytes(mlp, tokens, &bytes), TGLU_OK);
    assert_int_equal(bytes, tokens == 0 ? 0 : tokens * 128 * 2 + 255);
  }
  assert_int_equal(tglu_mlp_workspace_bytes(mlp, INT64_C(1) << 40, &bytes), TGLU_OK);
  assert_int_equal(bytes, (UINT64_C(1) << 48) + 255);
  for (s.workspace_off = 0; s.workspace_off < 257; ++s.workspace_off) {
    tglu_run_args a = args_of(&s, s.k);
    with_workspace(&s, &a);
    fake->launch_total = 0;
    assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_OK);
    assert_int_equal(fake->launch_total, 2);
  }
  tglu_run_args a = args_of(&s, s.k);
  with_workspace(&s, &a);
  a.workspace_bytes -= 1;
  fake->launch_total = 0;
  assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE);
  a.workspace = NULL;
  assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE);
  with_workspace(&s, &a);
  a.workspace = (char *)a.out - 8; /* meets out */
  assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_ERR_OVERLAP);
  a.tokens = 0;
  a.workspace = NULL;
  assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_OK);
  assert_int_equal(fake->launch_total, 0);
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  fake_expect_balance();
}

/* Whatever fails while a call is prepared fails before the first launch. */
static void nothing_half_launched(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  options o = {.pdl = 1};
  shape s = {.m = 300, .n = 520, .k = 264, .residual = 1};
  static const char *const calls[] = {"cuTensorMapEncodeTiled", "cuCtxGetCurrent",
                                      "cuCtxPushCurrent_v2", "cuLaunchKernelEx"};
  int planted = 0;
  for (int c = 0; c < 4; ++c) {
    for (int after = 0;; ++after) {
      fake_begin();
      tglu_context *context = open_context(&o);
      tglu_mlp_desc d = mlp_desc(&s, TGLU_DTYPE_BF16);
      tglu_mlp *mlp;
      assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
      fake->launch_total = 0;
      fake->fail_call = calls[c];
      fake->fail_after = after;
      fake->fail_code = 700;
      tglu_run_args a = args_of(&s, s.k);
      with_workspace(&s, &a);
      tglu_status status = tglu_mlp_run(mlp, &a);
      fake->fail_call = NULL;
      tglu_mlp_destroy(mlp);
      tglu_context_destroy(context);
      fake_expect_balance();
      if (status == TGLU_OK) break;
      assert_int_equal(status, TGLU_ERR_DEVICE);
      /* A launch that fails is the driver's word, not a refusal; the first alone writes
       * nothing but the workspace. */
      assert_int_equal(fake->launch_total, c == 3 ? after : 0);
      ++planted;
    }
  }
  assert_true(planted >= 4);
}

/* H05: out = down_bias + residual, by a row with nothing to sum. */
static void intermediate_of_zero(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  fake_begin();
  options o = {.pdl = 1};
  tglu_context *context = open_context(&o);
  shape s = {.m = 7, .n = 0, .k = 264, .bias = 1, .residual = 2};
  tglu_mlp_desc d = mlp_desc(&s, TGLU_DTYPE_BF16);
  d.glu.gate = d.glu.up = d.down = NULL;
  tglu_mlp *mlp;
  bool stream = false;
  for (int32_t r = 0; r < tglu__row_total; ++r)
    stream = stream || (tglu__rows[r].op == tglu__op_down && tglu__row_is_stream(&tglu__rows[r]));
  if (!stream) {
    assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_ERR_UNSUPPORTED);
    expect_message("intermediate");
    tglu_context_destroy(context);
    return;
  }
  if (tglu_mlp_create(context, &d, &mlp) != TGLU_OK) fail_msg("%s", tglu_last_error());
  size_t bytes = 1;
  assert_int_equal(tglu_mlp_workspace_bytes(mlp, s.m, &bytes), TGLU_OK);
  assert_int_equal(bytes, 0);
  tglu_run_args a = args_of(&s, s.k);
  fake->launch_total = 0;
  if (tglu_mlp_run(mlp, &a) != TGLU_OK) fail_msg("%s", tglu_last_error());
  assert_int_equal(fake->launch_total, 1);
  const tglu_stream_launch *r = &fake->launches[0].record.stream;
  assert_int_equal(r->k, 0);
  assert_int_equal(r->n, s.k);
  assert_int_equal(r->m, s.m);
  assert_ptr_equal(r->gate_bias, at(BIAS));
  assert_ptr_equal(r->residual, a.out);
  assert_ptr_equal(r->out, a.out);
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  assert_int_equal(tglu_mlp_get_plan(mlp, s.m, &info), TGLU_OK);
  assert_null(info.row);
  assert_non_null(info.down_row);
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  fake_expect_balance();
}

/* H32: one row for each half, however many tokens, aligned x or not. */
static void batch_invariant_takes_one_row(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  char rows[2][2][128] = {{"", ""}, {"", ""}};
  for (int64_t m = 1; m <= 70000; m = m * 3 + (m == 1)) {
    for (int extra = 0; extra < 2; ++extra) {
      fake_begin();
      options o = {.pdl = 1, .invariant = 1};
      shape s = {.m = m, .n = 2048, .k = 2048, .ldx_extra = extra};
      assert_int_equal(check_mlp(&o, &s, TGLU_DTYPE_BF16), 1);
      for (int op = 0; op < 2; ++op) {
        char *name = rows[extra][op];
        if (name[0] == '\0') snprintf(name, sizeof rows[0][0], "%s", fake->launches[op].kernel);
        assert_string_equal(fake->launches[op].kernel, name);
      }
    }
  }
  assert_string_equal(rows[0][1], rows[1][1]); /* x is the GLU's alone */
}

/* H18: created and run for the first time inside a capture. */
static void inside_a_capture(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  fake_begin();
  fake->capturing = 1;
  options o = {.pdl = 1};
  shape s = {.m = 16, .n = 520, .k = 264, .residual = 2};
  assert_int_equal(check_mlp(&o, &s, TGLU_DTYPE_BF16), 1);
  assert_int_equal(check_linear(&o, &s, TGLU_DTYPE_BF16), 1);
  fake_expect_balance();
}

static void pointers_of_elsewhere(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  fake_begin();
  fake->devices = 2;
  options o = {.pdl = 1};
  tglu_context *context = open_context(&o);
  shape s = {.m = 16, .n = 520, .k = 264, .bias = 1, .residual = 1};
  tglu_mlp_desc d = mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_linear_desc l = linear_desc(&s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  tglu_linear *linear;
  const struct {
    const void *pointer;
    const char *mlp, *linear;
  } bound[] = {{d.down, "down: ", "weight: "}, {d.down_bias, "down_bias: ", "bias: "}};
  for (int i = 0; i < 2; ++i) {
    fake->host_pointer = (uintptr_t)bound[i].pointer;
    assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_ERR_INVALID_ARGUMENT);
    expect_message(bound[i].mlp);
    assert_int_equal(tglu_linear_create(context, &l, &linear), TGLU_ERR_INVALID_ARGUMENT);
    expect_message(bound[i].linear);
  }
  fake->host_pointer = 0;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
  tglu_run_args a = args_of(&s, s.k);
  with_workspace(&s, &a);
  const struct {
    const void *pointer;
    const char *name;
  } given[] = {{a.x, "x: "}, {a.out, "out: "}, {a.residual, "residual: "},
               {a.workspace, "workspace: "}};
  fake->launch_total = 0;
  for (int i = 0; i < 4; ++i) {
    fake->other_pointer = (uintptr_t)given[i].pointer;
    assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_ERR_INVALID_ARGUMENT);
    expect_message(given[i].name);
  }
  assert_int_equal(fake->launch_total, 0);
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  fake_expect_balance();
}

static void explain_and_plan(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  fake_begin();
  options o = {.pdl = 1};
  tglu_context *context = open_context(&o);
  shape s = {.n = 4864, .k = 896};
  tglu_mlp_desc d = mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
  tglu_object_info object;
  tglu_object_info_init(&object);
  assert_int_equal(tglu_mlp_get_info(mlp, &object), TGLU_OK);
  assert_int_equal(object.copied_bytes, 0);
  assert_int_equal(object.weight_bytes, 6 * s.n * s.k);
  for (s.m = 1; s.m <= 4096; s.m *= 4) {
    tglu_plan_info info;
    tglu_plan_info_init(&info);
    assert_int_equal(tglu_mlp_get_plan(mlp, s.m, &info), TGLU_OK);
    assert_non_null(info.row);
    assert_non_null(info.down_row);
    assert_int_equal(info.tuned, 0);
    assert_true(info.predicted_us > 6e6 * 4.358 / 4.8e6);
    tglu_run_args a = args_of(&s, s.k);
    char text[4096];
    assert_int_equal(tglu_mlp_explain(mlp, &a, text, sizeof text), TGLU_OK);
    const char *const words[] = {info.row, info.down_row, "glu: ", "down: ", "cost model",
                                 "predicted", "launch: two", "grid: "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
      if (strstr(text, words[i]) == NULL) fail_msg("no \"%s\" in\n%s", words[i], text);
  }
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_shape),          cmocka_unit_test(every_row_forced),
    cmocka_unit_test(workspace),            cmocka_unit_test(nothing_half_launched),
    cmocka_unit_test(intermediate_of_zero), cmocka_unit_test(batch_invariant_takes_one_row),
    cmocka_unit_test(inside_a_capture),     cmocka_unit_test(pointers_of_elsewhere),
    cmocka_unit_test(explain_and_plan),
  };
  fake_open();
  return cmocka_run_group_tests_name("cuda_mlp", tests, NULL, NULL);
}
