#include "workload.h"

#include <math.h>
#include <string.h>

enum { GATE, UP, DOWN, GATE_BIAS, UP_BIAS, DOWN_BIAS };

/* Bytes of [rows, columns] with stride ld; -1 if that is beyond any memory. */
static int matrix_bytes(int64_t rows, int64_t columns, int64_t ld, size_t width,
                        size_t *bytes) {
  *bytes = 0;
  if (rows == 0 || columns == 0) return 0;
  double whole = ((double)(rows - 1) * (double)ld + (double)columns) * (double)width;
  if (whole > 0x1p46) return -1;
  *bytes = ((size_t)(rows - 1) * (size_t)ld + (size_t)columns) * width;
  return 0;
}

static int matrix_new(guard *g, const spec *s, int64_t rows, int64_t columns) {
  size_t bytes;
  if (matrix_bytes(rows, columns, columns + s->pad, tglu_dtype_bytes(s->dtype), &bytes)) {
    return -1;
  }
  return guard_new(g, bytes, (size_t)s->misalign);
}

static int random_matrix(guard *g, const spec *s, int64_t rows, int64_t columns,
                         double scale, rng *random) {
  if (matrix_new(g, s, rows, columns) != 0) return -1;
  if (s->pad == 0) {
    rng_fill_normal(random, g->data, s->dtype, rows * columns, scale);
    return 0;
  }
  size_t stride = (size_t)(columns + s->pad) * tglu_dtype_bytes(s->dtype);
  for (int64_t r = 0; r < rows; r++) {
    rng_fill_normal(random, g->data + (size_t)r * stride, s->dtype, columns, scale);
  }
  return 0;
}

static int random_vector(guard *g, const spec *s, int64_t count, rng *random) {
  if (!s->bias) return 0;
  spec tight = *s;
  tight.pad = 0;
  return random_matrix(g, &tight, 1, count, 0.5, random);
}

int weights_new(weights *w, const spec *s, rng *random) {
  memset(w, 0, sizeof *w);
  const int merged = s->layout != TGLU_LAYOUT_SEPARATE;
  const int64_t n = s->intermediate, k = s->hidden, first = merged ? 2 * n : n;
  const double into = 1 / sqrt((double)k), back = 1 / sqrt((double)(n ? n : 1));
  int bad = random_matrix(&w->part[GATE], s, first, k, into, random);
  bad = bad || random_vector(&w->part[GATE_BIAS], s, first, random);
  if (!merged) {
    bad = bad || random_matrix(&w->part[UP], s, n, k, into, random);
    bad = bad || random_vector(&w->part[UP_BIAS], s, n, random);
  }
  if (s->op == OP_MLP) {
    bad = bad || random_matrix(&w->part[DOWN], s, k, n, back, random);
    bad = bad || random_vector(&w->part[DOWN_BIAS], s, k, random);
  }
  if (bad) {
    weights_free(w);
    return -1;
  }
  tglu_mlp_desc_init(&w->desc);
  tglu_glu_desc *d = &w->desc.glu;
  d->hidden = k;
  d->intermediate = n;
  d->dtype = s->dtype;
  d->activation = s->activation;
  d->alpha = s->alpha;
  d->limit = s->limit;
  d->offset = s->offset;
  d->layout = s->layout;
  d->ld = k + s->pad;
  if (merged) {
    d->gate_up = w->part[GATE].data;
    d->gate_up_bias = w->part[GATE_BIAS].data;
  } else {
    d->gate = w->part[GATE].data;
    d->up = w->part[UP].data;
    d->gate_bias = w->part[GATE_BIAS].data;
    d->up_bias = w->part[UP_BIAS].data;
  }
  w->desc.down = w->part[DOWN].data;
  w->desc.ld_down = n + s->pad;
  w->desc.down_bias = w->part[DOWN_BIAS].data;
  return 0;
}

void weights_free(weights *w) {
  for (size_t i = 0; i < sizeof w->part / sizeof w->part[0]; i++) guard_free(&w->part[i]);
}

static int64_t out_columns(const spec *s) {
  return s->op == OP_MLP ? s->hidden : s->intermediate;
}

int operands_new(operands *o, const spec *s, size_t workspace_bytes, rng *random) {
  memset(o, 0, sizeof *o);
  const int64_t columns = out_columns(s);
  int bad = random_matrix(&o->x, s, s->tokens, s->hidden, 1, random);
  bad = bad || matrix_new(&o->out, s, s->tokens, columns);
  if (s->residual) {
    bad = bad || random_matrix(&o->residual, s, s->tokens, columns, 1, random);
  }
  bad = bad || guard_new(&o->workspace, workspace_bytes, (size_t)s->misalign);
  if (bad) {
    operands_free(o);
    return -1;
  }
  tglu_run_args_init(&o->args);
  o->args.x = o->x.data;
  o->args.ldx = s->hidden + s->pad;
  o->args.tokens = s->tokens;
  o->args.out = o->out.data;
  o->args.ldo = columns + s->pad;
  o->args.residual = o->residual.data;
  o->args.ldr = s->residual ? columns + s->pad : 0;
  o->args.workspace = workspace_bytes ? o->workspace.data : NULL;
  o->args.workspace_bytes = workspace_bytes;
  return 0;
}

void operands_poison(operands *o) { memset(o->out.data, 0xff, o->out.bytes); }

size_t operands_damage(const operands *o, const spec *s) {
  size_t damage = guard_damage(&o->out) + guard_damage(&o->workspace) + guard_damage(&o->x);
  size_t width = tglu_dtype_bytes(s->dtype), row = (size_t)out_columns(s) * width;
  size_t gap = (size_t)s->pad * width;
  for (int64_t r = 0; r + 1 < s->tokens && row; r++) {
    const unsigned char *bytes = o->out.data + (size_t)r * (row + gap) + row;
    for (size_t i = 0; i < gap; i++) damage += bytes[i] != 0xff;
  }
  return damage;
}

void operands_free(operands *o) {
  guard_free(&o->x);
  guard_free(&o->residual);
  guard_free(&o->out);
  guard_free(&o->workspace);
}
