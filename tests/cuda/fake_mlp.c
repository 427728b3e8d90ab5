#include "fake_mlp.h"

#include "plan/choose.h"

void *fake_at(uint64_t offset) { return (void *)(uintptr_t)(BASE + offset); }

tglu_context *fake_context(const fake_options *o) {
  tglu_context_options c;
  tglu_context_options_init(&c);
  c.backend = TGLU_BACKEND_CUDA;
  c.cuda_library = FAKE_CUDA;
  c.tune_cache = o->tune_cache != NULL ? o->tune_cache : "";
  c.row = o->row;
  c.sm_limit = o->sm_limit;
  c.pdl = o->pdl;
  c.stable_weights = o->stable;
  c.batch_invariant = o->invariant;
  tglu_context *context;
  if (tglu_context_create(&c, &context) != TGLU_OK) fail_msg("%s", tglu_last_error());
  return context;
}

tglu_mlp_desc fake_mlp_desc(const fake_shape *s, tglu_dtype dtype) {
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu.hidden = s->k;
  d.glu.intermediate = s->n;
  d.glu.dtype = dtype;
  d.glu.activation = TGLU_ACTIVATION_SILU;
  d.glu.layout = TGLU_LAYOUT_SEPARATE;
  d.glu.gate = fake_at(AT_GATE);
  d.glu.up = fake_at(AT_UP);
  d.glu.ld = s->k == 0 ? 0 : (s->k + 7) / 8 * 8;
  d.down = fake_at(AT_DOWN + s->down_off);
  d.ld_down = s->n + s->ldd_extra;
  d.down_bias = s->bias ? fake_at(AT_BIAS) : NULL;
  return d;
}

tglu_linear_desc fake_linear_desc(const fake_shape *s, tglu_dtype dtype) {
  tglu_linear_desc d;
  tglu_linear_desc_init(&d);
  d.in_features = s->n;
  d.out_features = s->k;
  d.dtype = dtype;
  d.weight = fake_at(AT_DOWN + s->down_off);
  d.ld = s->n + s->ldd_extra;
  d.bias = s->bias ? fake_at(AT_BIAS) : NULL;
  return d;
}

tglu_run_args fake_args(const fake_shape *s, int64_t x_columns) {
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = fake_at(AT_X + s->x_off);
  a.ldx = x_columns + s->ldx_extra;
  a.tokens = s->m;
  a.out = fake_at(AT_OUT + s->out_off);
  a.ldo = s->k + s->ldo_extra;
  if (s->residual == 1) {
    a.residual = fake_at(AT_RESIDUAL + s->residual_off);
    a.ldr = s->k + s->ldr_extra;
  } else if (s->residual == 2) {
    a.residual = a.out;
    a.ldr = a.ldo;
  }
  a.stream = STREAM;
  return a;
}

static int64_t h_stride(const fake_shape *s) { return (s->n + 63) / 64 * 64; }

void fake_workspace(const fake_shape *s, tglu_run_args *a) {
  a->workspace = fake_at(AT_WORKSPACE + s->workspace_off);
  a->workspace_bytes = (size_t)(s->m * h_stride(s) * 2 + 255);
}

/* All of a stream row's record but the flags. */
static void expect_down_record(const tglu_stream_launch *r, const fake_shape *s,
                               const tglu_run_args *a, uint64_t x, int64_t ldx) {
  const uint64_t bias = s->bias ? BASE + AT_BIAS : 0;
  assert_int_equal((uintptr_t)r->x, x);
  assert_int_equal(r->ldx, ldx);
  assert_int_equal((uintptr_t)r->gate, BASE + AT_DOWN + s->down_off);
  assert_null(r->up);
  assert_int_equal(r->ldw, s->n + s->ldd_extra);
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
}

/* A part of K from column `from` on: 8 slices of `slice` elements. */
static void expect_slices(const tglu_tensor_map *map, const tglu__row *row,
                          const fake_shape *s, uint64_t from, uint64_t slice) {
  assert_int_equal(map->opaque[0] & ~UINT64_C(0xffffffff), FAKE_MAP_MAGIC);
  const fake_encode *e = &fake->encodes[map->opaque[0] & 0xffffffff];
  assert_int_equal(e->type, row->dtype == TGLU_DTYPE_BF16 ? 9 : 6);
  assert_int_equal(e->rank, 3);
  assert_int_equal(e->address, BASE + AT_DOWN + s->down_off + 2 * from);
  assert_int_equal(e->dims[0], slice);
  assert_int_equal(e->dims[1], 8);
  assert_int_equal(e->dims[2], s->k);
  assert_int_equal(e->stride, 2 * slice);
  assert_int_equal(e->outer_stride,
                   s->k == 1 ? 16 * slice : 2 * (uint64_t)(s->n + s->ldd_extra));
  assert_int_equal(e->box[0], 64);
  assert_int_equal(e->box[1], 8);
  assert_int_equal(e->box[2], 4);
  assert_int_equal(e->swizzle, 3);
  assert_int_equal(e->l2_promotion, 2);
  assert_int_equal(e->oob_fill, 0);
}

static void expect_diag(const fake_launch *l, const fake_shape *s, const tglu_run_args *a,
                        uint64_t x, int64_t ldx, int flags) {
  const tglu__row *row = launched_row(l);
  const tglu_down_diag_launch *r = &l->record.diag;
  const uint64_t main_k = (uint64_t)s->n / 512 * 512, tail = (uint64_t)s->n - main_k;
  if (main_k > 0) expect_slices(&r->w, row, s, 0, main_k / 8);
  if (tail > 0) expect_slices(&r->tail, row, s, main_k, tail / 8);
  if (main_k == 0 || tail == 0) assert_memory_equal(&r->w, &r->tail, sizeof r->w);
  assert_int_equal((uintptr_t)r->x, x);
  assert_int_equal(r->ldx, ldx);
  assert_int_equal((uintptr_t)r->bias, s->bias ? BASE + AT_BIAS : 0);
  assert_ptr_equal(r->residual, a->residual);
  if (a->residual != NULL) assert_int_equal(r->ldr, a->ldr);
  assert_ptr_equal(r->out, a->out);
  assert_int_equal(r->ldo, a->ldo);
  assert_int_equal(r->m, s->m);
  assert_int_equal(r->n, s->k);
  assert_int_equal(r->k, s->n);
  assert_int_equal(r->flags, flags);
  const int32_t ctas = (int32_t)l->config.gridDimX, units = ((int32_t)s->k + 3) / 4;
  assert_int_equal(r->share * ctas + r->larger, units);
  assert_true(r->larger >= 0 && r->larger < ctas && r->share >= 1);
  assert_true(4 * r->height <= row->tile_n && r->stages >= 3 && r->stages <= row->stages);
  const int32_t most = r->share + (r->larger > 0);
  assert_true(r->passes * r->height >= most && (r->passes - 1) * r->height < most);
  assert_true(s->m <= row->tile_m);
  const int64_t tokens = (s->n + 511) / 512 * s->m * 1024;
  assert_true(r->stages * ((r->height + 1) / 2) * 8192 + tokens <= 232448 - 2048);
}

/* The launch of a down row, x and its stride as given. */
static void expect_down(const fake_launch *l, const fake_shape *s, const tglu_run_args *a,
                        uint64_t x, int64_t ldx, int flags, int32_t sms,
                        int32_t pdl) {
  const tglu__row *row = launched_row(l);
  assert_int_equal(row->op, tglu__op_down);
  expect_config(l, row, s->m, s->k, s->n, sms, pdl);
  int64_t ldd = s->n + s->ldd_extra;
  uint64_t bias = s->bias ? BASE + AT_BIAS : 0;
  if (tglu__row_is_stream(row)) {
    expect_down_record(&l->record.stream, s, a, x, ldx);
    assert_int_equal(l->record.stream.flags, flags);
    return;
  }
  if (tglu__row_is_diag(row)) {
    expect_diag(l, s, a, x, ldx, flags);
    return;
  }
  const tglu_down_launch *r = &l->record.down;
  bool split = row->schedule == tglu__schedule_down_split, one = s->m == 1;
  bool direct = s->k % 8 != 0 || s->out_off % 16 != 0 || (!one && a->ldo % 8 != 0);
  int64_t height = row->tile_m * (split ? 1 : row->cluster_m);
  uint64_t m = (uint64_t)s->m, n = (uint64_t)s->k, k = (uint64_t)s->n;
  uint32_t box = (uint32_t)(split ? row->tile_n : row->tile_n / row->cluster_m);
  uint64_t x_stride = one ? (k + 7) / 8 * 8 : (uint64_t)ldx;
  uint64_t w_stride = n == 1 ? (k + 7) / 8 * 8 : (uint64_t)ldd;
  uint32_t x_left = ((uint32_t)(s->m - 1) % (uint32_t)row->tile_m / 8 + 1) * 8;
  uint32_t w_left = ((uint32_t)(s->k - 1) % (uint32_t)row->tile_n / 8 + 1) * 8;
  expect_map(&r->x, x, row->dtype, k, m, x_stride, 64,
             s->m > row->tile_m ? (uint32_t)row->tile_m : x_left, 3);
  expect_map(&r->x_last, x, row->dtype, k, m, x_stride, 64, x_left, 3);
  expect_map(&r->w, BASE + AT_DOWN, row->dtype, k, n, w_stride, 64, box, 3);
  expect_map(&r->w_last, BASE + AT_DOWN, row->dtype, k, n, w_stride, 64, w_left, 3);
  assert_int_equal(r->x_last_rows, x_left);
  assert_int_equal(r->w_last_rows, w_left);
  if (direct || split) {
    assert_memory_equal(&r->out, &r->w, sizeof r->w);
  } else {
    expect_out_map(&r->out, row, BASE + AT_OUT, n, m,
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
static void expect_glu(const fake_launch *l, const fake_shape *s, uint64_t h, int flags,
                       int32_t sms, int32_t pdl) {
  const tglu__row *row = launched_row(l);
  assert_int_equal(row->op, tglu__op_glu);
  expect_config(l, row, s->m, s->n, s->k, sms, pdl);
  if (tglu__row_is_stream(row)) {
    const tglu_stream_launch *r = &l->record.stream;
    assert_int_equal((uintptr_t)r->x, BASE + AT_X + s->x_off);
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

static bool aligned_down(const fake_shape *s) {
  return s->down_off % 16 == 0 && (s->k == 1 || (s->n + s->ldd_extra) % 8 == 0);
}

static bool aligned_x(const fake_shape *s) {
  return s->x_off % 16 == 0 && (s->m == 1 || (s->k + s->ldx_extra) % 8 == 0);
}

bool fake_in_one_launch(const fake_options *o, const fake_shape *s, tglu_dtype dtype) {
  if (o->row != NULL) return tglu__rows[tglu__row_find(o->row)].op == tglu__op_mlp;
  if (o->invariant || !aligned_x(s)) return false;
  const tglu_mlp_desc d = fake_mlp_desc(s, dtype);
  const tglu__problem p = {.dtype = dtype, .n = s->n, .k = s->k, .gate = d.glu.gate,
                           .up = d.glu.up, .ld = d.glu.ld, .has_down = true, .down = d.down,
                           .ld_down = d.ld_down};
  tglu__device_facts facts = {.sm_count = o->sm_limit > 0 ? o->sm_limit : fake->sm_count,
                              .smem_bytes = fake->smem_bytes,
                              .cooperative = fake->cooperative};
  for (int32_t size = 1; size <= TGLU__MAX_CLUSTER; ++size)
    facts.clusters[size] = size == 4 && facts.sm_count / 4 > fake->clusters_of_4
                             ? fake->clusters_of_4
                             : facts.sm_count / size;
  const tglu__call_facts call = {.tokens = tglu__bucket_tokens(tglu__bucket_of(s->m)),
                                 .x_aligned = true, .x_reachable = true};
  tglu__choice one;
  return tglu__plan_choose(tglu__op_mlp, &p, &call, &facts, &one, NULL) &&
         one.predicted_us < tglu__plan_pair_us(&p, &call, &facts);
}

/* The one launch of both halves. */
static void expect_one_launch(const fake_launch *l, const fake_shape *s, const tglu_run_args *a,
                              uint64_t h, int flags, int32_t sms, int32_t pdl) {
  const tglu__row *row = launched_row(l);
  const tglu_stream_launch *glu = &l->record.mlp.glu, *down = &l->record.mlp.down;
  assert_int_equal(row->op, tglu__op_mlp);
  assert_true(s->m <= row->tile_m);
  expect_config(l, row, s->m, s->n, s->k, sms, pdl);
  assert_int_equal((uintptr_t)glu->x, BASE + AT_X + s->x_off);
  assert_int_equal(glu->ldx, s->k + s->ldx_extra);
  assert_int_equal((uintptr_t)glu->gate, BASE + AT_GATE);
  assert_int_equal((uintptr_t)glu->up, BASE + AT_UP);
  assert_int_equal(glu->ldw, (s->k + 7) / 8 * 8);
  assert_null(glu->gate_bias);
  assert_null(glu->residual);
  assert_int_equal((uintptr_t)glu->out, h);
  assert_int_equal(glu->ldo, h_stride(s));
  assert_int_equal(glu->m, s->m);
  assert_int_equal(glu->n, s->n);
  assert_int_equal(glu->k, s->k);
  assert_int_equal(glu->activation, TGLU_ACTIVATION_SILU);
  assert_int_equal(glu->flags, flags);
  expect_down_record(down, s, a, h, h_stride(s));
}

int check_mlp(const fake_options *o, const fake_shape *s, tglu_dtype dtype) {
  tglu_context *context = fake_context(o);
  tglu_mlp_desc d = fake_mlp_desc(s, dtype);
  tglu_mlp *mlp;
  tglu_status status = tglu_mlp_create(context, &d, &mlp);
  if (status != TGLU_OK && !aligned_down(s)) {
    assert_int_equal(status, TGLU_ERR_UNSUPPORTED);
    expect_message("down");
    tglu_context_destroy(context);
    return 0;
  }
  if (status != TGLU_OK) fail_msg("%s", tglu_last_error());
  tglu_run_args a = fake_args(s, s->k);
  fake_workspace(s, &a);
  size_t bytes = 0;
  assert_int_equal(tglu_mlp_workspace_bytes(mlp, s->m, &bytes), TGLU_OK);
  assert_int_equal(bytes, a.workspace_bytes);
  fake->launch_total = 0;
  int32_t first = fake->call_total = 0;
  if (tglu_mlp_run(mlp, &a) != TGLU_OK) fail_msg("%s", tglu_last_error());
  const bool one = fake_in_one_launch(o, s, dtype);
  expect_calls(first, one ? 1 : 2);
  assert_int_equal(fake->launch_total, one ? 1 : 2);
  uint64_t h = (BASE + AT_WORKSPACE + s->workspace_off + 255) / 256 * 256;
  assert_true(h + (uint64_t)(s->m * h_stride(s)) * 2 <=
              (uintptr_t)a.workspace + a.workspace_bytes);
  int32_t sms = o->sm_limit > 0 ? o->sm_limit : 132;
  int stable = o->stable ? TGLU_LAUNCH_STABLE_WEIGHTS : 0;
  if (one) {
    expect_one_launch(&fake->launches[0], s, &a, h, stable, sms, o->pdl);
  } else {
    expect_glu(&fake->launches[0], s, h, stable, sms, o->pdl);
    /* Behind the GLU, which has waited for whatever wrote the weights. */
    expect_down(&fake->launches[1], s, &a, h, h_stride(s), TGLU_LAUNCH_STABLE_WEIGHTS, sms, 1);
  }
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
  return 1;
}

int check_linear(const fake_options *o, const fake_shape *s, tglu_dtype dtype) {
  tglu_context *context = fake_context(o);
  tglu_linear_desc d = fake_linear_desc(s, dtype);
  tglu_linear *linear;
  tglu_status status = tglu_linear_create(context, &d, &linear);
  tglu_run_args a = fake_args(s, s->n);
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
  expect_down(&fake->launches[0], s, &a, BASE + AT_X + s->x_off, a.ldx,
              o->stable ? TGLU_LAUNCH_STABLE_WEIGHTS : 0, sms, o->pdl);
  tglu_linear_destroy(linear);
  tglu_context_destroy(context);
  return 1;
}
