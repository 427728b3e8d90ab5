#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "number.h"
#include "rng.h"

void tt_case_init(tt_case *c) {
  memset(c, 0, sizeof *c);
  c->dtype = TGLU_DTYPE_BF16;
  c->layout = TGLU_LAYOUT_SEPARATE;
  c->activation = TGLU_ACTIVATION_SILU;
  c->alpha = 1.702f;
  c->limit = 7.0f;
  c->offset = 1.0f;
  c->seed = 1;
}

int64_t tt_out_columns(const tt_case *c) {
  return c->op == TT_OP_MLP ? c->k : c->n;
}

int64_t tt_down_columns(const tt_case *c) {
  return c->op == TT_OP_MLP ? c->n : c->k;
}

int64_t tt_ld_x(const tt_case *c) { return c->k + c->pad_x; }
int64_t tt_ld_w(const tt_case *c) { return c->k + c->pad_w; }
int64_t tt_ld_down(const tt_case *c) { return tt_down_columns(c) + c->pad_down; }
int64_t tt_ld_out(const tt_case *c) { return tt_out_columns(c) + c->pad_out; }

int64_t tt_ld_residual(const tt_case *c) {
  return c->residual == TT_RESIDUAL_IN_PLACE ? tt_ld_out(c)
                                              : tt_out_columns(c) + c->pad_residual;
}

static bool separate(const tt_case *c) {
  return c->layout == TGLU_LAYOUT_SEPARATE;
}

/* Row of a [2N, K] matrix (or element of a [2N] bias) that holds gate or up. */
static int64_t merged_row(const tt_case *c, int64_t row, bool up) {
  switch (c->layout) {
    case TGLU_LAYOUT_STACKED_GATE_FIRST: return up ? c->n + row : row;
    case TGLU_LAYOUT_STACKED_UP_FIRST: return up ? row : c->n + row;
    case TGLU_LAYOUT_INTERLEAVED: return 2 * row + (up ? 1 : 0);
    case TGLU_LAYOUT_SEPARATE: break;
  }
  return row;
}

/* ---- operands in memory ---- */

/* A matrix whose last row ends the buffer: no trailing padding. */
static void create_matrix(const tt_case *c, tt_buffer *buffer, int64_t rows,
                          int64_t columns, int64_t ld, int misalign) {
  const int64_t elements = rows == 0 ? 0 : (rows - 1) * ld + columns;
  tt_buffer_create(buffer, (size_t)elements * tt_bytes_of(c->dtype), c->place,
                   (size_t)misalign);
}

static void fill_normal(const tt_case *c, tt_buffer *buffer, int64_t rows,
                        int64_t columns, int64_t ld, double scale, uint64_t stream) {
  tt_rng rng;
  tt_rng_seed(&rng, tt_seed_mix(c->seed, stream));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < columns; i++) {
      double value = scale * tt_rng_normal(&rng);
      if (tt_round(c->dtype, value) == 0) value = scale; /* no zero inputs */
      tt_store(c->dtype, buffer->data, r * ld + i, value);
    }
  }
}

static void create_random(const tt_case *c, tt_buffer *buffer, int64_t rows,
                          int64_t columns, int64_t ld, int misalign, double scale,
                          uint64_t stream) {
  create_matrix(c, buffer, rows, columns, ld, misalign);
  fill_normal(c, buffer, rows, columns, ld, scale, stream);
}

static uint64_t hash_inputs(const tt_operands *o) {
  const tt_buffer *inputs[] = {&o->x,         &o->gate,         &o->up,
                               &o->gate_up,   &o->gate_bias,    &o->up_bias,
                               &o->down,      &o->gate_up_bias, &o->down_bias,
                               &o->residual};
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    hash = tt_seed_mix(hash, tt_hash(inputs[i]->data, inputs[i]->bytes));
  }
  return hash;
}

static void create_gate_and_up(const tt_case *c, tt_operands *o) {
  const int64_t n = c->n, k = c->k, ld = tt_ld_w(c);
  const double scale = 2 / sqrt((double)k);
  if (separate(c)) {
    create_random(c, &o->gate, n, k, ld, c->misalign_w, scale, 2);
    create_random(c, &o->up, n, k, ld, c->misalign_w, scale, 3);
    if (c->gate_bias) create_random(c, &o->gate_bias, 1, n, n, c->misalign_w, 1, 4);
    if (c->up_bias) create_random(c, &o->up_bias, 1, n, n, c->misalign_w, 1, 5);
  } else {
    create_random(c, &o->gate_up, 2 * n, k, ld, c->misalign_w, scale, 2);
    if (c->gate_bias) {
      create_random(c, &o->gate_up_bias, 1, 2 * n, 2 * n, c->misalign_w, 1, 4);
    }
  }
}

static void create_down(const tt_case *c, tt_operands *o) {
  const int64_t rows = tt_out_columns(c), columns = tt_down_columns(c);
  const double scale = columns > 0 ? 0.5 / sqrt((double)columns) : 1;
  create_random(c, &o->down, rows, columns, tt_ld_down(c), c->misalign_w, scale, 6);
  if (c->down_bias) create_random(c, &o->down_bias, 1, rows, rows, c->misalign_w, 1, 7);
  if (c->residual != TT_RESIDUAL_NONE) { /* in place: the master copy */
    create_random(c, &o->residual, c->m, rows, tt_ld_residual(c), c->misalign_x, 1, 8);
  }
}

void tt_operands_create(const tt_case *c, tt_operands *o) {
  memset(o, 0, sizeof *o);
  create_random(c, &o->x, c->m, c->k, tt_ld_x(c), c->misalign_x, 1, 1);
  if (c->op != TT_OP_LINEAR) create_gate_and_up(c, o);
  if (c->op != TT_OP_GLU) create_down(c, o);
  create_matrix(c, &o->out, c->m, tt_out_columns(c), tt_ld_out(c), c->misalign_out);
  tt_reset_out(c, o);
  o->hash = hash_inputs(o);
}

void tt_operands_destroy(tt_operands *o) {
  tt_buffer *all[] = {&o->x,         &o->gate,    &o->up,           &o->gate_up,
                      &o->gate_bias, &o->up_bias, &o->gate_up_bias, &o->down,
                      &o->down_bias, &o->residual, &o->out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tt_buffer_destroy(all[i]);
}

void tt_reset_out(const tt_case *c, tt_operands *o) {
  const size_t element = tt_bytes_of(c->dtype);
  const size_t row_bytes = (size_t)tt_out_columns(c) * element;
  const size_t ld_bytes = (size_t)tt_ld_out(c) * element;
  for (size_t i = 0; i < o->out.bytes; i++) {
    o->out.data[i] = tt_pattern((int64_t)i);
  }
  for (int64_t r = 0; r < c->m; r++) {
    unsigned char *row = o->out.data + (size_t)r * ld_bytes;
    if (c->residual == TT_RESIDUAL_IN_PLACE) {
      memcpy(row, o->residual.data + (size_t)r * ld_bytes, row_bytes);
    } else {
      memset(row, 0xff, row_bytes);
    }
  }
}

void tt_pointers_of(const tt_operands *o, tt_pointers *p) {
  p->x = o->x.data;
  p->gate = o->gate.data;
  p->up = o->up.data;
  p->gate_up = o->gate_up.data;
  p->gate_bias = o->gate_bias.data;
  p->up_bias = o->up_bias.data;
  p->gate_up_bias = o->gate_up_bias.data;
  p->down = o->down.data;
  p->down_bias = o->down_bias.data;
  p->residual = o->residual.data;
  p->out = o->out.data;
}

/* ---- values ---- */

double tt_x_at(const tt_case *c, const tt_operands *o, int64_t token, int64_t i) {
  return tt_load(c->dtype, o->x.data, token * tt_ld_x(c) + i);
}

static double half_at(const tt_case *c, const tt_operands *o, int64_t row, int64_t i,
                      bool up) {
  const tt_buffer *own = up ? &o->up : &o->gate;
  const tt_buffer *buffer = separate(c) ? own : &o->gate_up;
  return tt_load(c->dtype, buffer->data, merged_row(c, row, up) * tt_ld_w(c) + i);
}

double tt_gate_at(const tt_case *c, const tt_operands *o, int64_t row, int64_t i) {
  return half_at(c, o, row, i, false);
}

double tt_up_at(const tt_case *c, const tt_operands *o, int64_t row, int64_t i) {
  return half_at(c, o, row, i, true);
}

static double half_bias_at(const tt_case *c, const tt_operands *o, int64_t row, bool up) {
  const tt_buffer *own = up ? &o->up_bias : &o->gate_bias;
  const tt_buffer *buffer = separate(c) ? own : &o->gate_up_bias;
  return buffer->data == NULL
             ? 0
             : tt_load(c->dtype, buffer->data, merged_row(c, row, up));
}

double tt_gate_bias_at(const tt_case *c, const tt_operands *o, int64_t row) {
  return half_bias_at(c, o, row, false);
}

double tt_up_bias_at(const tt_case *c, const tt_operands *o, int64_t row) {
  return half_bias_at(c, o, row, true);
}

double tt_down_at(const tt_case *c, const tt_operands *o, int64_t row, int64_t i) {
  return tt_load(c->dtype, o->down.data, row * tt_ld_down(c) + i);
}

double tt_down_bias_at(const tt_case *c, const tt_operands *o, int64_t row) {
  return o->down_bias.data == NULL ? 0 : tt_load(c->dtype, o->down_bias.data, row);
}

double tt_residual_at(const tt_case *c, const tt_operands *o, int64_t token, int64_t i) {
  return o->residual.data == NULL
             ? 0
             : tt_load(c->dtype, o->residual.data, token * tt_ld_residual(c) + i);
}

/* ---- the library's structs ---- */

static int64_t stride_argument(const tt_case *c, int64_t ld, int64_t pad) {
  return c->ld_zero && pad == 0 ? 0 : ld;
}

void tt_fill_desc(const tt_case *c, const tt_pointers *p, tglu_mlp_desc *desc) {
  tglu_mlp_desc_init(desc);
  tglu_glu_desc *glu = &desc->glu;
  glu->hidden = c->k;
  glu->intermediate = c->n;
  glu->dtype = c->dtype;
  glu->activation = c->activation;
  if (c->activation == TGLU_ACTIVATION_SWIGLUOAI) {
    glu->alpha = c->alpha;
    glu->limit = c->limit;
    glu->offset = c->offset;
  }
  glu->layout = c->layout;
  glu->ld = stride_argument(c, tt_ld_w(c), c->pad_w);
  glu->gate = p->gate;
  glu->up = p->up;
  glu->gate_up = p->gate_up;
  glu->gate_bias = p->gate_bias;
  glu->up_bias = p->up_bias;
  glu->gate_up_bias = p->gate_up_bias;
  if (c->op == TT_OP_MLP) {
    desc->down = p->down;
    desc->ld_down = stride_argument(c, tt_ld_down(c), c->pad_down);
    desc->down_bias = p->down_bias;
  }
}

void tt_fill_linear_desc(const tt_case *c, const tt_pointers *p,
                         tglu_linear_desc *desc) {
  tglu_linear_desc_init(desc);
  desc->in_features = c->k;
  desc->out_features = c->n;
  desc->dtype = c->dtype;
  desc->weight = p->down;
  desc->ld = stride_argument(c, tt_ld_down(c), c->pad_down);
  desc->bias = p->down_bias;
}

void tt_fill_args(const tt_case *c, const tt_pointers *p, tglu_run_args *args) {
  tglu_run_args_init(args);
  args->x = p->x;
  args->ldx = stride_argument(c, tt_ld_x(c), c->pad_x);
  args->tokens = c->m;
  args->out = p->out;
  args->ldo = stride_argument(c, tt_ld_out(c), c->pad_out);
  if (c->residual == TT_RESIDUAL_IN_PLACE) {
    args->residual = p->out;
    args->ldr = args->ldo;
  } else if (c->residual == TT_RESIDUAL_APART) {
    args->residual = p->residual;
    args->ldr = stride_argument(c, tt_ld_residual(c), c->pad_residual);
  }
}

/* ---- after the call ---- */

static bool gaps_intact(const tt_case *c, const tt_operands *o, char *why, size_t bytes) {
  const size_t element = tt_bytes_of(c->dtype);
  const size_t row_bytes = (size_t)tt_out_columns(c) * element;
  const size_t ld_bytes = (size_t)tt_ld_out(c) * element;
  for (int64_t r = 0; r + 1 < c->m; r++) {
    for (size_t i = row_bytes; i < ld_bytes; i++) {
      const size_t at = (size_t)r * ld_bytes + i;
      if (o->out.data[at] != tt_pattern((int64_t)at)) {
        snprintf(why, bytes, "out: byte %zu of the gap after row %lld was written",
                 i - row_bytes, (long long)r);
        return false;
      }
    }
  }
  return true;
}

bool tt_operands_intact(const tt_case *c, const tt_operands *o, char *why,
                        size_t why_bytes) {
  static const char *const names[] = {"x",         "gate",    "up",           "gate_up",
                                      "gate_bias", "up_bias", "gate_up_bias", "down",
                                      "down_bias", "residual", "out"};
  const tt_buffer *all[] = {&o->x,         &o->gate,    &o->up,           &o->gate_up,
                            &o->gate_bias, &o->up_bias, &o->gate_up_bias, &o->down,
                            &o->down_bias, &o->residual, &o->out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    int64_t offset;
    if (all[i]->map != NULL && !tt_buffer_intact(all[i], &offset)) {
      snprintf(why, why_bytes, "%s: sentinel at byte %lld of %zu was overwritten",
               names[i], (long long)offset, all[i]->bytes);
      return false;
    }
  }
  if (hash_inputs(o) != o->hash) {
    snprintf(why, why_bytes, "an input was changed");
    return false;
  }
  return gaps_intact(c, o, why, why_bytes);
}

void tt_case_text(const tt_case *c, char *text, size_t bytes) {
  static const char *const ops[] = {"glu", "mlp", "linear"};
  static const char *const residuals[] = {"none", "apart", "in_place"};
  static const char *const places[] = {"inside", "page_end", "page_start"};
  snprintf(text, bytes,
           "%s %s %s %s(%g,%g,%g) m=%lld n=%lld k=%lld bias=%d%d%d residual=%s "
           "pad x%lld w%lld down%lld out%lld res%lld ld_zero=%d place=%s "
           "misalign x%d w%d out%d seed=%llu",
           ops[c->op], tglu_dtype_name(c->dtype),
           tglu_layout_name(c->layout), tglu_activation_name(c->activation),
           (double)c->alpha, (double)c->limit, (double)c->offset, (long long)c->m,
           (long long)c->n, (long long)c->k, c->gate_bias, c->up_bias, c->down_bias,
           residuals[c->residual], (long long)c->pad_x, (long long)c->pad_w,
           (long long)c->pad_down, (long long)c->pad_out, (long long)c->pad_residual,
           c->ld_zero, places[c->place], c->misalign_x, c->misalign_w, c->misalign_out,
           (unsigned long long)c->seed);
}
