/* MLPs and linears on the fake driver: the two launches and their order, H in the
 * workspace, records of the down rows, errors before the first launch. */
#include <stdio.h>
#include <string.h>

#include "fake_mlp.h"

static const fake_shape shapes[] = {
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
        fake_options o = {.pdl = variant % 2, .stable = variant / 2,
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

/* Each row forced, as what it serves of an MLP; each down row also as a linear. */
static void every_row_forced(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  for (int32_t r = 0; r < tglu__row_total; ++r) {
    const tglu__row *row = &tglu__rows[r];
    if (!has_row(tglu__op_down, row->dtype, tglu__loader_tma)) continue;
    fake_begin();
    fake_options o = {.row = row->name, .pdl = 1};
    const bool diag = tglu__row_is_diag(row);
    fake_shape s = {.m = row->op == tglu__op_mlp || diag ? row->tile_m : row->tile_m * 2 + 1,
                    .n = diag ? 576 : 520,
                    .k = 264, .bias = 1, .residual = 1};
    assert_int_equal(check_mlp(&o, &s, row->dtype), 1);
    assert_string_equal(fake->launches[row->op == tglu__op_down].kernel, row->name);
    if (row->op == tglu__op_down) {
      assert_int_equal(check_linear(&o, &s, row->dtype), 1);
      assert_string_equal(fake->launches[0].kernel, row->name);
    } else {
      tglu_context *context = fake_context(&o);
      tglu_linear_desc d = fake_linear_desc(&s, row->dtype);
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
  fake_options o = {.pdl = 1};
  tglu_context *context = fake_context(&o);
  fake_shape s = {.m = 9, .n = 72, .k = 64};
  tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
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
    tglu_run_args a = fake_args(&s, s.k);
    fake_workspace(&s, &a);
    fake->launch_total = 0;
    assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_OK);
    assert_int_equal(fake->launch_total, 2);
  }
  tglu_run_args a = fake_args(&s, s.k);
  fake_workspace(&s, &a);
  a.workspace_bytes -= 1;
  fake->launch_total = 0;
  assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE);
  a.workspace = NULL;
  assert_int_equal(tglu_mlp_run(mlp, &a), TGLU_ERR_WORKSPACE);
  fake_workspace(&s, &a);
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
  fake_options o = {.pdl = 1};
  fake_shape s = {.m = 300, .n = 520, .k = 264, .residual = 1};
  static const char *const calls[] = {"cuTensorMapEncodeTiled", "cuCtxGetCurrent",
                                      "cuCtxPushCurrent_v2", "cuLaunchKernelEx"};
  int planted = 0;
  for (int c = 0; c < 4; ++c) {
    for (int after = 0;; ++after) {
      fake_begin();
      tglu_context *context = fake_context(&o);
      tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
      tglu_mlp *mlp;
      assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
      fake->launch_total = 0;
      fake->fail_call = calls[c];
      fake->fail_after = after;
      fake->fail_code = 700;
      tglu_run_args a = fake_args(&s, s.k);
      fake_workspace(&s, &a);
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
  fake_options o = {.pdl = 1};
  tglu_context *context = fake_context(&o);
  fake_shape s = {.m = 7, .n = 0, .k = 264, .bias = 1, .residual = 2};
  tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
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
  tglu_run_args a = fake_args(&s, s.k);
  fake->launch_total = 0;
  if (tglu_mlp_run(mlp, &a) != TGLU_OK) fail_msg("%s", tglu_last_error());
  assert_int_equal(fake->launch_total, 1);
  const tglu_stream_launch *r = &fake->launches[0].record.stream;
  assert_int_equal(r->k, 0);
  assert_int_equal(r->n, s.k);
  assert_int_equal(r->m, s.m);
  assert_ptr_equal(r->gate_bias, fake_at(AT_BIAS));
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
      fake_options o = {.pdl = 1, .invariant = 1};
      fake_shape s = {.m = m, .n = 2048, .k = 2048, .ldx_extra = extra};
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
  fake_options o = {.pdl = 1};
  fake_shape s = {.m = 16, .n = 520, .k = 264, .residual = 2};
  assert_int_equal(check_mlp(&o, &s, TGLU_DTYPE_BF16), 1);
  assert_int_equal(check_linear(&o, &s, TGLU_DTYPE_BF16), 1);
  fake_expect_balance();
}

static void pointers_of_elsewhere(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  fake_begin();
  fake->devices = 2;
  fake_options o = {.pdl = 1};
  tglu_context *context = fake_context(&o);
  fake_shape s = {.m = 16, .n = 520, .k = 264, .bias = 1, .residual = 1};
  tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_linear_desc l = fake_linear_desc(&s, TGLU_DTYPE_BF16);
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
  tglu_run_args a = fake_args(&s, s.k);
  fake_workspace(&s, &a);
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
  fake_options o = {.pdl = 1};
  tglu_context *context = fake_context(&o);
  fake_shape s = {.n = 4864, .k = 896};
  tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
  tglu_mlp *mlp;
  assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
  tglu_object_info object;
  tglu_object_info_init(&object);
  assert_int_equal(tglu_mlp_get_info(mlp, &object), TGLU_OK);
  assert_int_equal(object.copied_bytes, 0);
  assert_int_equal(object.weight_bytes, 6 * s.n * s.k);
  for (s.m = 16; s.m <= 4096; s.m *= 4) { /* fewer may be one launch: test_one_launch.c */
    tglu_plan_info info;
    tglu_plan_info_init(&info);
    assert_int_equal(tglu_mlp_get_plan(mlp, s.m, &info), TGLU_OK);
    assert_non_null(info.row);
    assert_non_null(info.down_row);
    assert_int_equal(info.tuned, 0);
    assert_true(info.predicted_us > 6e6 * 4.358 / 4.8e6);
    tglu_run_args a = fake_args(&s, s.k);
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

/* What a row of down_diag makes of 896 outputs on 132 and on 50 SMs: 224 units of 4. */
static void explain_diag(void **unused) {
  (void)unused;
  if (!down_built()) skip();
  for (int limited = 0; limited < 2; ++limited) {
    fake_begin();
    fake_options o = {.row = "down_bf16_sm90_down_diag_4x16_s13_c1",
                      .sm_limit = limited ? 50 : 0};
    tglu_context *context = fake_context(&o);
    fake_shape s = {.m = 4, .n = 4864, .k = 896};
    tglu_mlp_desc d = fake_mlp_desc(&s, TGLU_DTYPE_BF16);
    tglu_mlp *mlp;
    assert_int_equal(tglu_mlp_create(context, &d, &mlp), TGLU_OK);
    tglu_run_args a = fake_args(&s, s.k);
    char text[4096];
    assert_int_equal(tglu_mlp_explain(mlp, &a, text, sizeof text), TGLU_OK);
    const char *grid = limited ? "grid: 50 CTAs of 288 threads, 16 to 20 outputs in 2 passes"
                               : "grid: 132 CTAs of 288 threads, 4 to 8 outputs in 1 passes";
    if (strstr(text, grid) == NULL || strstr(text, "8 slices of K") == NULL)
      fail_msg("no \"%s\" in\n%s", grid, text);
    tglu_mlp_destroy(mlp);
    tglu_context_destroy(context);
    fake_expect_balance();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_shape),          cmocka_unit_test(every_row_forced),
    cmocka_unit_test(workspace),            cmocka_unit_test(nothing_half_launched),
    cmocka_unit_test(intermediate_of_zero), cmocka_unit_test(batch_invariant_takes_one_row),
    cmocka_unit_test(inside_a_capture),     cmocka_unit_test(pointers_of_elsewhere),
    cmocka_unit_test(explain_and_plan),     cmocka_unit_test(explain_diag),
  };
  fake_open();
  return cmocka_run_group_tests_name("cuda_mlp", tests, NULL, NULL);
}
