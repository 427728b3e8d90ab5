#include "gpu_place.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"

int gpu_place_open(gpu *g, const tglu_context_options *options, const tglu_context_info *info) {
  const char *library = options->cuda_library;
  return gpu_open(g, library ? library : getenv("TILEGLU_CUDA_LIBRARY"), info->device);
}

/* One operand of a descriptor: where its address stands, and how much it spans. */
typedef struct piece {
  const void **place;
  int64_t rows, columns, ld;
} piece;

static size_t span(const piece *p, tglu_dtype dtype) {
  if (p->rows == 0 || p->columns == 0) return 0;
  int64_t ld = p->ld ? p->ld : p->columns;
  return (size_t)((p->rows - 1) * ld + p->columns) * tglu_dtype_bytes(dtype);
}

static int list_pieces(tglu_mlp_desc *d, op_kind kind, piece pieces[6]) {
  tglu_glu_desc *g = &d->glu;
  const int64_t n = g->intermediate, k = g->hidden;
  const piece all[] = {{&g->gate, n, k, g->ld},          {&g->up, n, k, g->ld},
                       {&g->gate_up, 2 * n, k, g->ld},   {&g->gate_bias, 1, n, 0},
                       {&g->up_bias, 1, n, 0},           {&g->gate_up_bias, 1, 2 * n, 0},
                       {&d->down, k, n, d->ld_down},     {&d->down_bias, 1, k, 0}};
  int count = 0;
  for (int i = 0; i < 8; i++) {
    if (*all[i].place && (i < 6 || kind == OP_MLP)) pieces[count++] = all[i];
  }
  return count;
}

static int place_all(gpu_weights *w, const gpu *g, op_kind kind, const tglu_mlp_desc *host,
                     size_t misalign, int copy) {
  piece pieces[6];
  memset(w, 0, sizeof *w);
  w->desc = *host;
  int count = list_pieces(&w->desc, kind, pieces), code = CLI_OK;
  for (int i = 0; i < count && code == CLI_OK; i++) {
    size_t bytes = span(&pieces[i], host->glu.dtype);
    code = gpu_allocate(g, &w->part[i], bytes + misalign, "weights");
    gpu_pointer to = w->part[i] + misalign;
    if (code == CLI_OK && copy && bytes) code = gpu_upload(g, to, *pieces[i].place, bytes);
    *pieces[i].place = (const void *)(uintptr_t)to;
  }
  return code;
}

int gpu_weights_new(gpu_weights *w, const gpu *g, op_kind kind, const tglu_mlp_desc *host,
                    size_t misalign) {
  return place_all(w, g, kind, host, misalign, 1);
}

int gpu_weights_reserve(gpu_weights *w, const gpu *g, op_kind kind, const tglu_mlp_desc *host,
                        size_t misalign) {
  return place_all(w, g, kind, host, misalign, 0);
}

void gpu_weights_free(gpu_weights *w, const gpu *g) {
  for (int i = 0; i < 6; i++) gpu_release(g, &w->part[i]);
}

/* Sentinels, bytes and sentinels. */
static size_t whole(const guard *host) {
  return (size_t)(host->data - host->base) + host->bytes + GUARD_BYTES;
}

int gpu_twin_new(gpu_twin *t, const gpu *g, const guard *host) {
  memset(t, 0, sizeof *t);
  if (!host->base) return CLI_OK;
  int code = gpu_allocate(g, &t->base, whole(host), "an operand");
  if (code == CLI_OK) code = gpu_upload(g, t->base, host->base, whole(host));
  t->data = (void *)(uintptr_t)(t->base + (uint64_t)(host->data - host->base));
  return code;
}

int gpu_twin_fetch(const gpu_twin *t, const gpu *g, guard *host) {
  if (!t->base) return CLI_OK;
  return gpu_check(g, g->to_host(host->base, t->base, whole(host)), "cuMemcpyDtoH");
}

void gpu_twin_free(gpu_twin *t, const gpu *g) { gpu_release(g, &t->base); }
