#include "gpu_mlp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const void *pointer_of(gpu_pointer p) { return (const void *)(uintptr_t)p; }

gpu_mlp_case gpu_mlp_plain(bool linear, int64_t m, int64_t n, int64_t k, int dtype,
                           uint64_t seed) {
  return (gpu_mlp_case){
    .linear = linear,
    .glu = {.m = m, .n = n, .k = k, .dtype = dtype, .activation = TGLU_ACTIVATION_SILU,
            .layout = TGLU_LAYOUT_SEPARATE, .alpha = 1.702f, .limit = 7.0f, .offset = 1.0f,
            .seed = seed}};
}

void gpu_mlp_align(gpu_mlp_case *c) {
  gpu_case *g = &c->glu;
  g->ldx_extra = (8 - (c->linear ? g->n : g->k) % 8) % 8;
  g->ldw_extra = (8 - g->k % 8) % 8;
  c->ldd_extra = (8 - g->n % 8) % 8;
}

/* H as the library puts it: 256-byte aligned in the workspace, its stride a multiple of
 * 64 elements.  Among guards the workspace may begin anywhere before it; as an allocation of
 * its own it begins there and has its slack behind. */
static bool create_glu(gpu_mlp_operands *o) {
  gpu_case glu = o->c.glu;
  glu.ldo_extra = (glu.n + 63) / 64 * 64 - glu.n;
  glu.out_off = 0;
  if (!gpu_operands_create(&glu, &o->glu)) return false;
  o->workspace_bytes = (size_t)(glu.m * o->glu.ldo) * 2 + 255;
  if (!gpu_separate) {
    o->workspace = o->glu.out - (uint64_t)((256 - o->c.workspace_off % 256) % 256);
    return true;
  }
  o->workspace = o->glu.out = o->glu.out_buffer = gpu_take(o->workspace_bytes);
  return o->workspace != 0;
}

bool gpu_mlp_operands_create(const gpu_mlp_case *c, gpu_mlp_operands *o) {
  const gpu_case *g = &c->glu;
  *o = (gpu_mlp_operands){.c = *c, .mark = gpu_arena_mark()};
  bool room = true;
  if (c->linear) {
    o->ldx = g->n + g->ldx_extra;
    o->x = gpu_matrix(g->dtype, g->m, g->n, o->ldx, g->x_off, g->seed, 1.0f, NULL, NULL);
    room = o->x != 0;
  } else {
    room = create_glu(o);
  }
  o->ldd = g->n + c->ldd_extra;
  o->ldo = g->k + c->ldo_extra;
  o->ldr = g->k + c->ldr_extra;
  o->down = gpu_matrix(g->dtype, g->k, g->n, o->ldd, c->down_off, g->seed + 10,
                       1.5f / sqrtf((float)g->n), NULL, NULL);
  if (c->down_bias)
    o->down_bias = gpu_matrix(g->dtype, 1, g->k, g->k, c->down_off, g->seed + 11, 0.5f, NULL,
                              NULL);
  if (c->residual == 1)
    o->residual = gpu_matrix(g->dtype, g->m, g->k, o->ldr, c->residual_off, g->seed + 12, 1.0f,
                             NULL, NULL);
  if (c->residual == 2)
    o->kept = gpu_matrix(g->dtype, g->m, g->k, g->k, 0, g->seed + 12, 1.0f, NULL, NULL);
  o->out = gpu_matrix(g->dtype, g->m, g->k, o->ldo, c->out_off, 0, 0, &o->out_buffer,
                      &o->out_elements);
  if (c->residual == 2) {
    o->residual = o->out;
    o->ldr = o->ldo;
  }
  room = room && o->down != 0 && o->out != 0 && (!c->down_bias || o->down_bias != 0) &&
         (!c->residual || o->residual != 0) && (c->residual != 2 || o->kept != 0);
  if (room) {
    gpu_mlp_poison(o, NULL);
    GPU(synchronize());
    return true;
  }
  gpu_mlp_operands_destroy(o);
  return false;
}

void gpu_mlp_operands_destroy(gpu_mlp_operands *o) { gpu_arena_release(o->mark); }

void gpu_mlp_args(const gpu_mlp_operands *o, gpu_stream stream, tglu_run_args *a) {
  tglu_run_args_init(a);
  a->x = pointer_of(o->c.linear ? o->x : o->glu.x);
  a->ldx = o->c.linear ? o->ldx : o->glu.ldx;
  a->tokens = o->c.glu.m;
  a->out = (void *)(uintptr_t)o->out;
  a->ldo = o->ldo;
  a->residual = pointer_of(o->residual);
  a->ldr = o->residual != 0 ? o->ldr : 0;
  a->workspace = (void *)(uintptr_t)o->workspace;
  a->workspace_bytes = o->workspace_bytes;
  a->stream = stream;
}

void gpu_mlp_poison(const gpu_mlp_operands *o, gpu_stream stream) {
  const gpu_case *g = &o->c.glu;
  if (!o->c.linear) gpu_poison(&o->glu, stream);
  gpu_pattern(o->out_buffer, o->out_elements, stream);
  if (o->c.residual == 2)
    gpu_fill(o->out, g->dtype, g->m, g->k, o->ldo, g->seed + 12, 1.0f, stream);
}

static ref_result judge_down(const gpu_mlp_operands *o) {
  const gpu_case *g = &o->c.glu;
  bool kept = o->c.residual == 2;
  ref_linear p = {.m = g->m, .n = g->k, .k = g->n, .dtype = g->dtype,
                  .ldx = o->c.linear ? o->ldx : o->glu.ldo,
                  .x = pointer_of(o->c.linear ? o->x : o->glu.out),
                  .ldw = o->ldd, .w = pointer_of(o->down),
                  .bias = pointer_of(o->down_bias),
                  .residual = pointer_of(kept ? o->kept : o->residual),
                  .ldr = kept ? g->k : o->ldr,
                  .out = pointer_of(o->out), .ldo = o->ldo};
  int64_t row_step = g->row_step > 0 ? g->row_step : 1, first_row = (p.m - 1) % row_step;
  gpu_pointer result = gpu_result_begin();
  void *judge[] = {&p, &first_row, &row_step, &result};
  gpu_launch(REF_JUDGE_LINEAR, gpu_blocks((p.m / row_step + 1) * p.n), NULL, judge);
  gpu_check_around(o->out_buffer, o->out_elements, o->out, p.m, p.n, p.ldo);
  return gpu_result_end();
}

void gpu_mlp_describe(const gpu_mlp_case *c, char *text, size_t bytes) {
  char glu[256];
  gpu_describe(&c->glu, glu, sizeof glu);
  snprintf(text, bytes,
           "%s %s; bias=%d residual=%d ldd+%lld ldo+%lld ldr+%lld d@%lld out@%lld r@%lld "
           "workspace@%lld", c->linear ? "linear" : "mlp", glu, c->down_bias, c->residual,
           (long long)c->ldd_extra, (long long)c->ldo_extra, (long long)c->ldr_extra,
           (long long)c->down_off, (long long)c->out_off, (long long)c->residual_off,
           (long long)c->workspace_off);
}

bool gpu_mlp_judge(const gpu_mlp_operands *o, const char *row) {
  char text[512], what[160];
  gpu_mlp_describe(&o->c, text, sizeof text);
  if (!o->c.linear) {
    ref_result h = gpu_judge(&o->glu, 0);
    snprintf(what, sizeof what, "H, %s", row);
    if (!gpu_report(what, text, &h)) return false;
  }
  ref_result r = judge_down(o);
  snprintf(what, sizeof what, "out, %s", row);
  return gpu_report(what, text, &r);
}

tglu_status gpu_object_create(tglu_context *context, const gpu_mlp_operands *o,
                              gpu_object *object) {
  const gpu_case *g = &o->c.glu;
  *object = (gpu_object){NULL, NULL};
  if (o->c.linear) {
    tglu_linear_desc d;
    tglu_linear_desc_init(&d);
    d.in_features = g->n;
    d.out_features = g->k;
    d.dtype = (tglu_dtype)g->dtype;
    d.weight = pointer_of(o->down);
    d.ld = o->ldd;
    d.bias = pointer_of(o->down_bias);
    return tglu_linear_create(context, &d, &object->linear);
  }
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  gpu_operands_desc(&o->glu, &d.glu);
  d.down = pointer_of(o->down);
  d.ld_down = o->ldd;
  d.down_bias = pointer_of(o->down_bias);
  return tglu_mlp_create(context, &d, &object->mlp);
}

tglu_status gpu_object_run(const gpu_object *object, const tglu_run_args *a) {
  return object->linear != NULL ? tglu_linear_run(object->linear, a)
                                : tglu_mlp_run(object->mlp, a);
}

void gpu_object_destroy(gpu_object *object) {
  tglu_mlp_destroy(object->mlp);
  tglu_linear_destroy(object->linear);
  *object = (gpu_object){NULL, NULL};
}

/* A row that says so serves no such call: asked by a run of it, outside of any capture. */
bool gpu_object_prepare(tglu_context *context, const gpu_mlp_operands *o, gpu_object *object) {
  tglu_run_args a;
  gpu_mlp_args(o, NULL, &a);
  tglu_status status = gpu_object_create(context, o, object);
  if (status == TGLU_OK) {
    status = gpu_object_run(object, &a);
    GPU(synchronize());
    gpu_mlp_poison(o, NULL);
    GPU(synchronize());
  }
  if (status == TGLU_OK) return true;
  char text[512];
  gpu_mlp_describe(&o->c, text, sizeof text);
  if (!gpu_unserved(status)) gpu_require(false, "%s: %s", tglu_last_error(), text);
  gpu_object_destroy(object);
  return false;
}

bool gpu_run_mlp_case(tglu_context *context, const char *row, const gpu_mlp_case *c) {
  char text[512];
  gpu_mlp_describe(c, text, sizeof text);
  gpu_mlp_operands o;
  if (!gpu_mlp_operands_create(c, &o)) {
    gpu_skip("no room on the device: %s", text);
    return true;
  }
  gpu_object object;
  tglu_run_args a;
  gpu_mlp_args(&o, NULL, &a);
  tglu_status status = gpu_object_create(context, &o, &object);
  if (status == TGLU_OK) status = gpu_object_run(&object, &a);
  bool ok = gpu_unserved(status) ||
            gpu_require(status == TGLU_OK, "%s: %s", tglu_last_error(), text);
  if (status == TGLU_OK) {
    GPU(synchronize());
    ok = gpu_mlp_judge(&o, row);
  }
  gpu_object_destroy(&object);
  gpu_mlp_operands_destroy(&o);
  return ok;
}
