#include "baseline.h"

#include <string.h>

#include "mem.h"
#include "progress.h"

enum { ALIGN = 64 };

/* Where gate and up lie, whatever the layout: the first row, the stride, the bias. */
typedef struct half {
  const char *weight;
  int64_t ld;
  const char *bias;
  int64_t bias_stride;
} half;

static half half_of(const tglu_glu_desc *d, int up) {
  const int64_t width = (int64_t)tglu_dtype_bytes(d->dtype);
  const int64_t ld = d->ld ? d->ld : d->hidden;
  if (d->layout == TGLU_LAYOUT_SEPARATE) {
    return (half){up ? d->up : d->gate, ld, up ? d->up_bias : d->gate_bias, 1};
  }
  int interleaved = d->layout == TGLU_LAYOUT_INTERLEAVED;
  int second = d->layout == TGLU_LAYOUT_STACKED_UP_FIRST ? !up : up;
  int64_t row = second ? (interleaved ? 1 : d->intermediate) : 0;
  half h = {(const char *)d->gate_up + row * ld * width, interleaved ? 2 * ld : ld,
            d->gate_up_bias, interleaved ? 2 : 1};
  if (h.bias) h.bias += row * width;
  return h;
}

static tglu_status make_half(tglu_context *context, const tglu_glu_desc *d, int up,
                             void **bias_copy, tglu_linear **out) {
  const half h = half_of(d, up);
  const size_t width = tglu_dtype_bytes(d->dtype);
  tglu_linear_desc desc;
  tglu_linear_desc_init(&desc);
  desc.in_features = d->hidden;
  desc.out_features = d->intermediate;
  desc.dtype = d->dtype;
  desc.weight = h.weight;
  desc.ld = h.ld;
  desc.bias = h.bias;
  if (h.bias && h.bias_stride != 1) {
    char *copy = mem_zeroed((size_t)d->intermediate, width);
    for (int64_t i = 0; i < d->intermediate; i++) {
      memcpy(copy + (size_t)i * width, h.bias + (size_t)(i * h.bias_stride) * width, width);
    }
    *bias_copy = copy;
    desc.bias = copy;
  }
  return tglu_linear_create(context, &desc, out);
}

static tglu_status make_down(tglu_context *context, const tglu_mlp_desc *d,
                             tglu_linear **out) {
  tglu_linear_desc desc;
  tglu_linear_desc_init(&desc);
  desc.in_features = d->glu.intermediate;
  desc.out_features = d->glu.hidden;
  desc.dtype = d->glu.dtype;
  desc.weight = d->down;
  desc.ld = d->ld_down;
  desc.bias = d->down_bias;
  return tglu_linear_create(context, &desc, out);
}

tglu_status baseline_new(baseline *b, op_kind kind, tglu_context *context,
                         const tglu_mlp_desc *desc, const hot_loops *hot, pool *threads) {
  const tglu_glu_desc *d = &desc->glu;
  *b = (baseline){.kind = kind, .intermediate = d->intermediate, .dtype = d->dtype,
                  .activation = {d->activation, d->alpha, d->limit, d->offset},
                  .hot = hot, .threads = threads};
  tglu_status status = make_half(context, d, 0, &b->gate_bias, &b->gate);
  if (!status) status = make_half(context, d, 1, &b->up_bias, &b->up);
  if (!status && kind == OP_MLP) status = make_down(context, desc, &b->down);
  if (status) baseline_free(b);
  return status;
}

void baseline_free(baseline *b) {
  tglu_linear_destroy(b->gate);
  tglu_linear_destroy(b->up);
  tglu_linear_destroy(b->down);
  mem_free(b->gate_bias);
  mem_free(b->up_bias);
  memset(b, 0, sizeof *b);
}

static size_t half_bytes(const baseline *b, int64_t tokens) {
  size_t bytes = (size_t)tokens * (size_t)b->intermediate * tglu_dtype_bytes(b->dtype);
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static tglu_status workspace_bytes(const baseline *b, int64_t tokens, size_t *most) {
  const tglu_linear *linears[] = {b->gate, b->up, b->down};
  *most = 0;
  for (int i = 0; i < 3; i++) {
    size_t bytes = 0;
    if (!linears[i]) continue;
    tglu_status status = tglu_linear_workspace_bytes(linears[i], tokens, &bytes);
    if (status) return status;
    if (bytes > *most) *most = bytes;
  }
  return TGLU_OK;
}

tglu_status baseline_scratch_bytes(const baseline *b, int64_t tokens, size_t *bytes) {
  tglu_status status = workspace_bytes(b, tokens, bytes);
  *bytes += 3 * half_bytes(b, tokens);
  return status;
}

typedef struct pass {
  const baseline *b;
  const char *gate, *up;
  char *h;
} pass;

static void activation_piece(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const pass *p = context;
  int64_t width = (int64_t)tglu_dtype_bytes(p->b->dtype);
  p->b->hot->activate(p->gate + begin * width, p->up + begin * width, p->h + begin * width,
                      p->b->dtype, end - begin, &p->b->activation);
}

static void count_time(double *seconds, int part, double *since) {
  if (!seconds) return;
  double now = clock_now();
  seconds[part] += now - *since;
  *since = now;
}

tglu_status baseline_run(const baseline *b, const tglu_run_args *args, void *scratch,
                         size_t scratch_bytes, double *seconds) {
  enum { PIECE = 16384 }; /* elements: below that one thread is quicker than two */
  const size_t bytes = half_bytes(b, args->tokens);
  char *gate = scratch, *up = gate + bytes, *h = up + bytes;
  double since = seconds ? clock_now() : 0;
  tglu_run_args a = *args;
  a.ldo = a.ldr = 0;
  a.residual = NULL;
  a.workspace = h + bytes;
  a.workspace_bytes = scratch_bytes - 3 * bytes;
  a.out = gate;
  tglu_status status = tglu_linear_run(b->gate, &a);
  if (status) return status;
  count_time(seconds, BASELINE_GATE, &since);
  a.out = up;
  status = tglu_linear_run(b->up, &a);
  if (status) return status;
  count_time(seconds, BASELINE_UP, &since);
  pass p = {b, gate, up, b->down ? h : args->out};
  pool_for(b->threads, args->tokens * b->intermediate, PIECE, activation_piece, &p);
  count_time(seconds, BASELINE_ACTIVATION, &since);
  if (!b->down) return TGLU_OK;
  a.x = h;
  a.ldx = 0;
  a.out = args->out;
  a.residual = args->residual;
  a.ldr = args->ldr;
  status = tglu_linear_run(b->down, &a);
  count_time(seconds, BASELINE_DOWN, &since);
  return status;
}
