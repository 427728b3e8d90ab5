#include "data.h"

#include <math.h>
#include <string.h>

#include "../cli.h"
#include "../mem.h"

enum { MOST_SETS = 4096 };

int64_t data_in_columns(const spec *s) {
  return s->op == OP_DOWN ? s->intermediate : s->hidden;
}

int64_t data_out_columns(const spec *s) {
  return s->op == OP_GLU ? s->intermediate : s->hidden;
}

static size_t gate_up_bytes(const spec *s) {
  return s->op == OP_DOWN ? 0 : 4 * (size_t)(s->intermediate * s->hidden);
}

static size_t down_bytes(const spec *s) {
  return s->op == OP_GLU ? 0 : 2 * (size_t)(s->intermediate * s->hidden);
}

/* Where down begins: gate and up, rounded up to what cuMemAlloc aligns to. */
static size_t down_offset(const spec *s) { return (gate_up_bytes(s) + 255) / 256 * 256; }

size_t data_weight_bytes(const spec *s) {
  return s->op == OP_GLU ? gate_up_bytes(s) : down_offset(s) + down_bytes(s);
}

static double matrices(const spec *s) {
  return s->op == OP_GLU ? 2 : s->op == OP_MLP ? 3 : 1;
}

double data_flops(const spec *s) {
  return 2 * matrices(s) * (double)s->tokens * (double)s->intermediate * (double)s->hidden;
}

double data_bytes(const spec *s) {
  return 2 * ((double)s->tokens * (double)(data_in_columns(s) + data_out_columns(s)) +
              matrices(s) * (double)s->intermediate * (double)s->hidden);
}

int data_sets_for(const spec *s, int64_t l2_bytes) {
  double sets = floor(3 * (double)l2_bytes / data_bytes(s)) + 1;
  return (int)fmin(sets, MOST_SETS);
}

static void describe(data *d) {
  const spec *s = &d->spec;
  bench_problem *p = &d->problem;
  int64_t n = s->intermediate, k = s->hidden;
  *p = (bench_problem){.m = s->tokens, .n = n, .k = k, .dtype = (int32_t)s->dtype,
                       .activation = (int32_t)s->activation, .alpha = s->alpha,
                       .limit = s->limit, .offset = s->offset};
  int up_first = s->layout == TGLU_LAYOUT_STACKED_UP_FIRST;
  p->interleaved = s->layout == TGLU_LAYOUT_INTERLEAVED;
  p->gate_column = up_first ? n : 0;
  p->up_column = up_first ? 0 : n;
  p->ldw = p->interleaved ? 2 * k : k;
  uint64_t w = d->set[0].w, half = 2 * (uint64_t)(n * k);
  p->gate = up_first ? w + half : w;
  p->up = p->interleaved ? w + 2 * (uint64_t)k : up_first ? w : w + half;
}

/* Bytes of a set beside x, which has a copy. */
static size_t set_bytes(const spec *s) {
  size_t m = (size_t)s->tokens, n = (size_t)s->intermediate, k = (size_t)s->hidden;
  size_t bytes = data_weight_bytes(s);
  if (s->op != OP_DOWN) bytes += 6 * m * n;      /* y and h */
  if (s->op == OP_MLP) bytes += 2 * m * n;       /* a workspace */
  return s->op == OP_GLU ? bytes : bytes + 2 * m * k;
}

static int allocate_set(const data *d, data_set *set) {
  const gpu *g = d->g;
  const spec *s = &d->spec;
  size_t m = (size_t)s->tokens, n = (size_t)s->intermediate, k = (size_t)s->hidden;
  if (gpu_allocate(g, &set->x, 2 * m * (size_t)data_in_columns(s), "X") ||
      gpu_allocate(g, &set->weights, data_weight_bytes(s), "the weights")) {
    return CLI_RUNTIME;
  }
  if (s->op != OP_DOWN) {
    set->w = set->weights;
    if (gpu_allocate(g, &set->y, 4 * m * n, "Y") || gpu_allocate(g, &set->h, 2 * m * n, "H")) {
      return CLI_RUNTIME;
    }
  }
  set->out = set->h;
  if (s->op == OP_GLU) return CLI_OK;
  set->down = set->weights + down_offset(s);
  return gpu_allocate(g, &set->out, 2 * m * k, "O");
}

static int allocate(data *d) {
  const gpu *g = d->g;
  const spec *s = &d->spec;
  size_t available = 0, total = 0, x = 2 * (size_t)(s->tokens * data_in_columns(s));
  if (gpu_check(g, g->memory_info(&available, &total), "cuMemGetInfo")) return CLI_RUNTIME;
  size_t need = (size_t)d->sets * (set_bytes(s) + x) + x;
  if (need > available / 16 * 15) {
    return cli_error(CLI_RUNTIME, "m %lld n %lld k %lld: %zu MiB of GPU memory are needed, "
                     "%zu of %zu MiB are free", (long long)s->tokens,
                     (long long)s->intermediate, (long long)s->hidden, need >> 20,
                     available >> 20, total >> 20);
  }
  for (int i = 0; i < d->sets; i++) {
    if (allocate_set(d, &d->set[i])) return CLI_RUNTIME;
  }
  return gpu_allocate(g, &d->source, x, "X") || gpu_allocate(g, &d->counter, 8, "a count")
           ? CLI_RUNTIME : CLI_OK;
}

static int fill(const data *d, gpu_pointer out, int64_t count, uint64_t seed, float scale) {
  int32_t dtype = (int32_t)d->spec.dtype;
  void *parameters[] = {&out, &count, &seed, &scale, &dtype};
  return gpu_launch(d->g, d->g->fill_kernel, count, d->g->stream, parameters);
}

/* Every product's deviation is about 1. */
static int fill_weights(const data *d, const data_set *set, uint64_t seed) {
  const spec *s = &d->spec;
  int64_t half = s->intermediate * s->hidden;
  int code = CLI_OK;
  if (set->w) code = fill(d, set->w, 2 * half, seed, (float)(1 / sqrt((double)s->hidden)));
  if (set->down && code == CLI_OK) {
    float scale = (float)(1 / sqrt((double)s->intermediate));
    code = fill(d, set->down, half, seed ^ UINT64_C(0x5555555555555555), scale);
  }
  return code;
}

static int fill_all(data *d, uint64_t seed) {
  const spec *s = &d->spec;
  if (fill(d, d->source, s->tokens * data_in_columns(s), seed, 1)) return CLI_RUNTIME;
  for (int i = 0; i < d->sets; i++) {
    if (fill_weights(d, &d->set[i], seed + 1 + (uint64_t)i) ||
        data_write_x(d, i, d->g->stream)) {
      return CLI_RUNTIME;
    }
  }
  return gpu_wait(d->g, "filling the inputs");
}

int data_create(data *d, const gpu *g, const spec *s, uint64_t seed) {
  memset(d, 0, sizeof *d);
  d->g = g;
  d->spec = *s;
  d->sets = data_sets_for(s, g->l2_bytes);
  d->set = mem_zeroed((size_t)d->sets, sizeof *d->set);
  int code = allocate(d);
  if (code != CLI_OK) return code;
  describe(d);
  code = fill_all(d, seed);
  if (code != CLI_OK) return code;
  d->row_count = accuracy_rows(s->tokens, BENCH_REFERENCE_ROWS, seed, d->rows);
  size_t count = (size_t)d->row_count * (size_t)data_out_columns(s);
  d->reference = mem_zeroed(count, sizeof *d->reference);
  d->sample = mem_zeroed(count, sizeof *d->sample);
  return data_reference(d);
}

void data_destroy(data *d) {
  for (int i = 0; d->set && i < d->sets; i++) {
    data_set *set = &d->set[i];
    if (set->out != set->h) gpu_release(d->g, &set->out);
    gpu_release(d->g, &set->x);
    gpu_release(d->g, &set->weights);
    gpu_release(d->g, &set->y);
    gpu_release(d->g, &set->h);
  }
  if (d->g) {
    gpu_release(d->g, &d->source);
    gpu_release(d->g, &d->counter);
  }
  mem_free(d->set);
  mem_free(d->reference);
  mem_free(d->sample);
  memset(d, 0, sizeof *d);
}

int data_write_x(const data *d, int set, gpu_stream stream) {
  int64_t count = d->spec.tokens * data_in_columns(&d->spec);
  gpu_pointer x = d->set[set].x, source = d->source;
  void *parameters[] = {&x, &source, &count};
  return gpu_launch(d->g, d->g->write_x_kernel, (count + 7) / 8, stream, parameters);
}

int data_activate(const data *d, int set, gpu_stream stream) {
  bench_problem p = d->problem;
  gpu_pointer y = d->set[set].y, h = d->set[set].h;
  void *parameters[] = {&p, &y, &h};
  int64_t items = p.m * (p.n % 8 ? p.n : p.n / 8);
  return gpu_launch(d->g, d->g->activate_kernel, items, stream, parameters);
}

int data_poison(const data *d) {
  size_t count = (size_t)(d->spec.tokens * data_out_columns(&d->spec));
  for (int i = 0; i < d->sets; i++) {
    if (gpu_check(d->g, d->g->set16(d->set[i].out, BENCH_POISON, count), "cuMemsetD16")) {
      return CLI_RUNTIME;
    }
  }
  return gpu_check(d->g, d->g->synchronize(), "poisoning the outputs");
}

static int count_bad(const data *d, int64_t *bad) {
  const gpu *g = d->g;
  int64_t count = d->spec.tokens * data_out_columns(&d->spec);
  int32_t dtype = (int32_t)d->spec.dtype;
  uint64_t total = 0;
  if (gpu_upload(g, d->counter, &total, sizeof total)) return CLI_RUNTIME;
  for (int i = 0; i < d->sets; i++) {
    gpu_pointer out = d->set[i].out, counter = d->counter;
    void *parameters[] = {&out, &count, &dtype, &counter};
    if (gpu_launch(g, g->count_bad_kernel, count, g->stream, parameters)) return CLI_RUNTIME;
  }
  if (gpu_wait(g, "the check") ||
      gpu_check(g, g->to_host(&total, d->counter, sizeof total), "cuMemcpyDtoH")) {
    return CLI_RUNTIME;
  }
  *bad = (int64_t)total;
  return CLI_OK;
}

int data_check(data *d, accuracy *a) {
  const gpu *g = d->g;
  int64_t n = data_out_columns(&d->spec), bad = 0;
  if (count_bad(d, &bad)) return CLI_RUNTIME;
  for (int i = 0; i < d->row_count; i++) {
    gpu_pointer from = d->set[0].out + 2 * (uint64_t)(d->rows[i] * n);
    if (gpu_check(g, g->to_host(d->sample + i * n, from, 2 * (size_t)n), "cuMemcpyDtoH")) {
      return CLI_RUNTIME;
    }
  }
  *a = accuracy_of(d->sample, d->spec.dtype, d->reference, d->row_count, n);
  a->not_finite = bad;
  return CLI_OK;
}

void data_bind(const data *d, int set, tglu_mlp_desc *mlp) {
  const spec *s = &d->spec;
  const data_set *from = &d->set[set];
  tglu_glu_desc *desc = &mlp->glu;
  desc->hidden = s->hidden;
  desc->intermediate = s->intermediate;
  desc->dtype = s->dtype;
  desc->activation = s->activation;
  desc->alpha = s->alpha;
  desc->limit = s->limit;
  desc->offset = s->offset;
  desc->layout = s->layout;
  mlp->down = (const void *)(uintptr_t)from->down;
  if (s->op == OP_DOWN) {
    desc->layout = TGLU_LAYOUT_SEPARATE;
    /* Off 16 bytes, so that no row computes both halves: what is asked for is the second. */
    desc->gate = desc->up = (const char *)mlp->down + 2;
    return;
  }
  const char *w = (const char *)(uintptr_t)from->w;
  if (s->layout == TGLU_LAYOUT_SEPARATE) {
    desc->gate = w;
    desc->up = w + 2 * s->intermediate * s->hidden;
  } else {
    desc->gate_up = w;
  }
}
