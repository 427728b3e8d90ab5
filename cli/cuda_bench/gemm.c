#include "gemm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../cli.h"

static const float one = 1, zero = 0;

static void *pointer(gpu_pointer p) { return (void *)(uintptr_t)p; }

static int data_type(const data *d) {
  return d->spec.dtype == TGLU_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Row-major Y [M, rows] is the column-major [rows, M] = W' X, both operands k by k: "TN". */
static int create_descriptors(gemm *m) {
  cublas *b = m->b;
  int type = data_type(m->d);
  uint64_t rows = (uint64_t)m->rows, tokens = (uint64_t)m->d->spec.tokens;
  uint64_t k = (uint64_t)m->k, workspace = CUBLAS_WORKSPACE;
  int32_t transpose = CUBLAS_OP_T, keep = CUBLAS_OP_N;
  if (cublas_check(b->desc_create(&m->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "cublasLtMatmulDescCreate") ||
      cublas_check(b->desc_set(m->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                               sizeof transpose), "cublasLtMatmulDescSetAttribute TRANSA") ||
      cublas_check(b->desc_set(m->desc, CUBLASLT_MATMUL_DESC_TRANSB, &keep, sizeof keep),
                   "cublasLtMatmulDescSetAttribute TRANSB") ||
      cublas_check(b->layout_create(&m->weights, type, k, rows, (int64_t)k),
                   "cublasLtMatrixLayoutCreate W") ||
      cublas_check(b->layout_create(&m->tokens, type, k, tokens, (int64_t)k),
                   "cublasLtMatrixLayoutCreate X") ||
      cublas_check(b->layout_create(&m->out, type, rows, tokens, (int64_t)rows),
                   "cublasLtMatrixLayoutCreate Y") ||
      cublas_check(b->pref_create(&m->preference), "cublasLtMatmulPreferenceCreate") ||
      cublas_check(b->pref_set(m->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                               &workspace, sizeof workspace),
                   "cublasLtMatmulPreferenceSetAttribute")) {
    return CLI_RUNTIME;
  }
  return CLI_OK;
}

static int gemm_create(gemm *m, cublas *b, const data *d, gemm_which which) {
  const spec *s = &d->spec;
  memset(m, 0, sizeof *m);
  m->b = b;
  m->d = d;
  m->which = which;
  m->rows = which == GEMM_DOWN ? s->hidden : 2 * s->intermediate;
  m->k = which == GEMM_DOWN ? s->intermediate : s->hidden;
  m->best = -1;
  if (m->rows > INT32_MAX || m->k > INT32_MAX || s->tokens > INT32_MAX) {
    return cli_error(CLI_USAGE, "bench: a size beyond cublasGemmEx's 32 bits");
  }
  int code = create_descriptors(m);
  if (code != CLI_OK) return code;
  code = cublas_check(b->heuristic(b->lt_handle, m->desc, m->weights, m->tokens, m->out,
                                   m->out, m->preference, CUBLAS_HEURISTICS, m->heuristics,
                                   &m->found), "cublasLtMatmulAlgoGetHeuristic");
  if (code == CLI_OK && (m->found < 0 || m->found > CUBLAS_HEURISTICS)) {
    return cli_error(CLI_RUNTIME, "cublasLtMatmulAlgoGetHeuristic: %d results", m->found);
  }
  return code;
}

static void gemm_destroy(gemm *m) {
  if (m->preference) m->b->pref_destroy(m->preference);
  if (m->out) m->b->layout_destroy(m->out);
  if (m->tokens) m->b->layout_destroy(m->tokens);
  if (m->weights) m->b->layout_destroy(m->weights);
  if (m->desc) m->b->desc_destroy(m->desc);
  memset(m, 0, sizeof *m);
}

static gpu_pointer weight_of(const gemm *m, int set) {
  const data_set *s = &m->d->set[set];
  return m->which == GEMM_DOWN ? s->down : s->w;
}

static gpu_pointer result_of(const gemm *m, int set) {
  const data_set *s = &m->d->set[set];
  return m->which == GEMM_DOWN ? s->out : s->y;
}

/* x without an activation before. */
static gpu_pointer bare_x(const gemm *m, int set) {
  const data_set *s = &m->d->set[set];
  return m->which == GEMM_DOWN && m->d->spec.op == OP_MLP ? s->y : s->x;
}

static int multiply_ex(const gemm *m, gpu_pointer x, int set) {
  const cublas *b = m->b;
  int rows = (int)m->rows, k = (int)m->k, type = data_type(m->d);
  return cublas_check(b->gemm_ex(b->handle, CUBLAS_OP_T, CUBLAS_OP_N, rows,
                                 (int)m->d->spec.tokens, k, &one, pointer(weight_of(m, set)),
                                 type, k, pointer(x), type, k, &zero,
                                 pointer(result_of(m, set)), type, rows, CUBLAS_COMPUTE_32F,
                                 CUBLAS_GEMM_DEFAULT), "cublasGemmEx");
}

static int matmul(const gemm *m, int which, gpu_pointer x, int set, gpu_stream stream) {
  const cublas *b = m->b;
  const cublas_lt_heuristic *h = &m->heuristics[which];
  void *out = pointer(result_of(m, set));
  return b->matmul(b->lt_handle, m->desc, &one, pointer(weight_of(m, set)), m->weights,
                   pointer(x), m->tokens, &zero, out, m->out, out, m->out, &h->algo,
                   pointer(b->lt_workspace), CUBLAS_WORKSPACE, stream);
}

static int multiply_lt(const gemm *m, gpu_pointer x, int set, gpu_stream stream) {
  return cublas_check(matmul(m, m->best, x, set, stream), "cublasLtMatmul");
}

static int multiply_faster(const gemm *m, gpu_pointer x, int set, gpu_stream stream) {
  return m->ex_is_faster ? multiply_ex(m, x, set) : multiply_lt(m, x, set, stream);
}

static int enqueue_ex(void *user, int set, gpu_stream stream) {
  (void)stream; /* cublas_open set it */
  return multiply_ex(user, bare_x(user, set), set);
}

static int enqueue_lt(void *user, int set, gpu_stream stream) {
  return multiply_lt(user, bare_x(user, set), set, stream);
}

/* A heuristic can still be refused by cublasLtMatmul: then it is passed over. */
static int usable(const gemm *m, int which) {
  return m->heuristics[which].state == 0 &&
         m->heuristics[which].workspace_bytes <= CUBLAS_WORKSPACE &&
         matmul(m, which, bare_x(m, 0), 0, m->d->g->stream) == 0;
}

/* Best of two short samples of what m->best (-1: cublasGemmEx) is. */
static int try_one(gemm *m, int calls, const timing *t, double *us) {
  const gpu *g = m->d->g;
  nvml none = {0};
  variant v;
  variant_init(&v, m->best < 0 ? "cublasGemmEx" : "cublasLt");
  v.enqueue = m->best < 0 ? enqueue_ex : enqueue_lt;
  v.user = m;
  int code = variant_capture(&v, m->d, calls, 0);
  if (code == CLI_OK) code = variant_estimate(&v, g);
  for (int i = 0; i < 2 && code == CLI_OK; i++) code = variant_measure(&v, g, &none, t);
  if (code == CLI_OK) *us = fmin(v.us[0], v.us[1]);
  variant_destroy(&v, g);
  return code;
}

static int gemm_choose(gemm *m, int calls, const timing *t) {
  timing brief = {.settle_ms = t->settle_ms / 4, .sample_ms = t->sample_ms / 5};
  double ex_us = INFINITY, best_us = INFINITY, us = INFINITY;
  int best = -1;
  m->best = -1;
  if (try_one(m, calls, &brief, &ex_us)) return CLI_RUNTIME;
  for (int i = 0; i < m->found; i++) {
    if (!usable(m, i)) continue;
    if (gpu_wait(m->d->g, "cublasLtMatmul")) return CLI_RUNTIME;
    m->best = i;
    if (try_one(m, calls, &brief, &us)) return CLI_RUNTIME;
    if (us < best_us) {
      best = i;
      best_us = us;
    }
  }
  m->best = best;
  m->ex_is_faster = ex_us <= best_us;
  return CLI_OK;
}

/* ---- one after the other ---- */

int chain_create(gemm_chain *c, cublas *b, const data *d, const timing *t) {
  memset(c, 0, sizeof *c);
  c->d = d;
  int code = CLI_OK;
  for (int which = GEMM_GATE_UP; which <= GEMM_DOWN && code == CLI_OK; which++) {
    if (d->spec.op == (which == GEMM_DOWN ? OP_GLU : OP_DOWN)) continue;
    gemm *m = &c->part[c->count++];
    code = gemm_create(m, b, d, (gemm_which)which);
    if (code == CLI_OK) code = gemm_choose(m, variant_calls(d), t);
  }
  return code;
}

void chain_destroy(gemm_chain *c) {
  for (int i = 0; i < c->count; i++) gemm_destroy(&c->part[i]);
  memset(c, 0, sizeof *c);
}

int chain_has_lt(const gemm_chain *c) {
  return c->part[0].best >= 0 && (c->count == 1 || c->part[1].best >= 0);
}

int chain_is_mixed(const gemm_chain *c) {
  return c->count == 2 && c->part[0].ex_is_faster != c->part[1].ex_is_faster;
}

int chain_enqueue_ex(void *user, int set, gpu_stream stream) {
  gemm_chain *c = user;
  int code = CLI_OK;
  for (int i = 0; i < c->count && code == CLI_OK; i++) {
    code = enqueue_ex(&c->part[i], set, stream);
  }
  return code;
}

int chain_enqueue_lt(void *user, int set, gpu_stream stream) {
  gemm_chain *c = user;
  int code = CLI_OK;
  for (int i = 0; i < c->count && code == CLI_OK; i++) {
    code = enqueue_lt(&c->part[i], set, stream);
  }
  return code;
}

int chain_enqueue_faster(void *user, int set, gpu_stream stream) {
  const gemm_chain *c = user;
  int code = CLI_OK;
  for (int i = 0; i < c->count && code == CLI_OK; i++) {
    code = multiply_faster(&c->part[i], bare_x(&c->part[i], set), set, stream);
  }
  return code;
}

int chain_enqueue_unfused(void *user, int set, gpu_stream stream) {
  const gemm_chain *c = user;
  const data_set *s = &c->d->set[set];
  int code = multiply_faster(&c->part[0], s->x, set, stream);
  if (code == CLI_OK) code = data_activate(c->d, set, stream);
  if (code == CLI_OK && c->count == 2) code = multiply_faster(&c->part[1], s->h, set, stream);
  return code;
}
