#include "data.h"

#include <math.h>
#include <string.h>

#include "../cli.h"
#include "../mem.h"

enum { MOST_SETS = 4096 };

int data_sets_for(int64_t m, int64_t n, int64_t k, int64_t l2_bytes) {
  int64_t one = 2 * (m * k + 2 * n * k + m * n), sets = 3 * l2_bytes / one + 1;
  return (int)(sets < MOST_SETS ? sets : MOST_SETS);
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

static int allocate(data *d) {
  const gpu *g = d->g;
  const spec *s = &d->spec;
  size_t m = (size_t)s->tokens, n = (size_t)s->intermediate, k = (size_t)s->hidden;
  size_t available = 0, total = 0;
  if (gpu_check(g, g->memory_info(&available, &total), "cuMemGetInfo")) return CLI_RUNTIME;
  size_t need = 2 * ((size_t)d->sets * (m * k + 2 * n * k + 3 * m * n) + m * k);
  if (need > available / 16 * 15) {
    return cli_error(CLI_RUNTIME, "m %zu n %zu k %zu: %zu MiB of GPU memory are needed, %zu "
                     "of %zu MiB are free", m, n, k, need >> 20, available >> 20,
                     total >> 20);
  }
  for (int i = 0; i < d->sets; i++) {
    data_set *set = &d->set[i];
    if (gpu_allocate(g, &set->x, 2 * m * k, "X") || gpu_allocate(g, &set->w, 4 * n * k, "W") ||
        gpu_allocate(g, &set->y, 4 * m * n, "Y") || gpu_allocate(g, &set->h, 2 * m * n, "H")) {
      return CLI_RUNTIME;
    }
  }
  return gpu_allocate(g, &d->source, 2 * m * k, "X") || gpu_allocate(g, &d->counter, 8, "a count")
           ? CLI_RUNTIME : CLI_OK;
}

static int fill(const data *d, gpu_pointer out, int64_t count, uint64_t seed, float scale) {
  int32_t dtype = (int32_t)d->spec.dtype;
  void *parameters[] = {&out, &count, &seed, &scale, &dtype};
  return gpu_launch(d->g, d->g->fill_kernel, count, d->g->stream, parameters);
}

static int fill_all(data *d, uint64_t seed) {
  const spec *s = &d->spec;
  int64_t x = s->tokens * s->hidden, w = 2 * s->intermediate * s->hidden;
  if (fill(d, d->source, x, seed, 1)) return CLI_RUNTIME;
  for (int i = 0; i < d->sets; i++) {
    uint64_t own = seed + 1 + (uint64_t)i;
    if (fill(d, d->set[i].w, w, own, (float)(1 / sqrt((double)s->hidden))) ||
        data_write_x(d, i, d->g->stream)) {
      return CLI_RUNTIME;
    }
  }
  return gpu_wait(d->g, "filling the inputs");
}

static int compute_reference(data *d, uint64_t seed) {
  const gpu *g = d->g;
  int64_t n = d->spec.intermediate;
  d->row_count = accuracy_rows(d->spec.tokens, BENCH_REFERENCE_ROWS, seed, d->rows);
  size_t count = (size_t)d->row_count * (size_t)n;
  d->reference = mem_zeroed(count, sizeof *d->reference);
  d->sample = mem_zeroed(count, sizeof *d->sample);
  gpu_pointer rows = 0, reference = 0;
  int32_t row_count = d->row_count;
  void *parameters[] = {&d->problem, &d->set[0].x, &rows, &row_count, &reference};
  int code = CLI_RUNTIME;
  if (gpu_allocate(g, &rows, sizeof d->rows, "row numbers") == CLI_OK &&
      gpu_allocate(g, &reference, 8 * count, "the reference") == CLI_OK &&
      gpu_upload(g, rows, d->rows, sizeof d->rows) == CLI_OK &&
      gpu_launch(g, g->reference_kernel, 32 * n, g->stream, parameters) == CLI_OK &&
      gpu_wait(g, "the reference") == CLI_OK) {
    code = gpu_check(g, g->to_host(d->reference, reference, 8 * count), "cuMemcpyDtoH");
  }
  gpu_release(g, &rows);
  gpu_release(g, &reference);
  return code;
}

int data_create(data *d, const gpu *g, const spec *s, uint64_t seed) {
  memset(d, 0, sizeof *d);
  d->g = g;
  d->spec = *s;
  d->sets = data_sets_for(s->tokens, s->intermediate, s->hidden, g->l2_bytes);
  d->set = mem_zeroed((size_t)d->sets, sizeof *d->set);
  int code = allocate(d);
  if (code != CLI_OK) return code;
  describe(d);
  code = fill_all(d, seed);
  return code == CLI_OK ? compute_reference(d, seed) : code;
}

void data_destroy(data *d) {
  for (int i = 0; d->set && i < d->sets; i++) {
    gpu_release(d->g, &d->set[i].x);
    gpu_release(d->g, &d->set[i].w);
    gpu_release(d->g, &d->set[i].y);
    gpu_release(d->g, &d->set[i].h);
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
  int64_t count = d->spec.tokens * d->spec.hidden;
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
  size_t count = (size_t)(d->spec.tokens * d->spec.intermediate);
  for (int i = 0; i < d->sets; i++) {
    if (gpu_check(d->g, d->g->set16(d->set[i].h, BENCH_POISON, count), "cuMemsetD16")) {
      return CLI_RUNTIME;
    }
  }
  return gpu_check(d->g, d->g->synchronize(), "poisoning the outputs");
}

static int count_bad(const data *d, int64_t *bad) {
  const gpu *g = d->g;
  int64_t count = d->spec.tokens * d->spec.intermediate;
  int32_t dtype = (int32_t)d->spec.dtype;
  uint64_t total = 0;
  if (gpu_upload(g, d->counter, &total, sizeof total)) return CLI_RUNTIME;
  for (int i = 0; i < d->sets; i++) {
    gpu_pointer h = d->set[i].h, counter = d->counter;
    void *parameters[] = {&h, &count, &dtype, &counter};
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
  int64_t n = d->spec.intermediate, bad = 0;
  if (count_bad(d, &bad)) return CLI_RUNTIME;
  for (int i = 0; i < d->row_count; i++) {
    gpu_pointer from = d->set[0].h + 2 * (uint64_t)(d->rows[i] * n);
    if (gpu_check(g, g->to_host(d->sample + i * n, from, 2 * (size_t)n), "cuMemcpyDtoH")) {
      return CLI_RUNTIME;
    }
  }
  *a = accuracy_of(d->sample, d->spec.dtype, d->reference, d->row_count, n);
  a->not_finite = bad;
  return CLI_OK;
}

void data_bind(const data *d, int set, tglu_glu_desc *desc) {
  const spec *s = &d->spec;
  const char *w = (const char *)(uintptr_t)d->set[set].w;
  desc->hidden = s->hidden;
  desc->intermediate = s->intermediate;
  desc->dtype = s->dtype;
  desc->activation = s->activation;
  desc->alpha = s->alpha;
  desc->limit = s->limit;
  desc->offset = s->offset;
  desc->layout = s->layout;
  if (s->layout == TGLU_LAYOUT_SEPARATE) {
    desc->gate = w;
    desc->up = w + 2 * s->intermediate * s->hidden;
  } else {
    desc->gate_up = w;
  }
}
