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

/* Row-major Y [M, 2N] is the column-major [2N, M] = W' X, both operands K by K: "TN". */
static int create_descriptors(gemm *m) {
  cublas *b = m->b;
  const spec *s = &m->d->spec;
  int type = data_type(m->d);
  uint64_t rows = 2 * (uint64_t)s->intermediate, tokens = (uint64_t)s->tokens;
  uint64_t k = (uint64_t)s->hidden, workspace = CUBLAS_WORKSPACE;
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

int gemm_create(gemm *m, cublas *b, const data *d) {
  memset(m, 0, sizeof *m);
  m->b = b;
  m->d = d;
  m->best = -1;
  if (2 * d->spec.intermediate > INT32_MAX || d->spec.hidden > INT32_MAX ||
      d->spec.tokens > INT32_MAX) {
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

void gemm_destroy(gemm *m) {
  if (m->preference) m->b->pref_destroy(m->preference);
  if (m->out) m->b->layout_destroy(m->out);
  if (m->tokens) m->b->layout_destroy(m->tokens);
  if (m->weights) m->b->layout_destroy(m->weights);
  if (m->desc) m->b->desc_destroy(m->desc);
  memset(m, 0, sizeof *m);
}

int gemm_enqueue_ex(void *user, int set, gpu_stream stream) {
  const gemm *m = user;
  const cublas *b = m->b;
  const data_set *s = &m->d->set[set];
  int rows = 2 * (int)m->d->spec.intermediate, k = (int)m->d->spec.hidden;
  int type = data_type(m->d);
  (void)stream; /* cublas_open set it */
  return cublas_check(b->gemm_ex(b->handle, CUBLAS_OP_T, CUBLAS_OP_N, rows,
                                 (int)m->d->spec.tokens, k, &one, pointer(s->w), type, k,
                                 pointer(s->x), type, k, &zero, pointer(s->y), type, rows,
                                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT), "cublasGemmEx");
}

static int matmul(const gemm *m, int which, int set, gpu_stream stream) {
  const cublas *b = m->b;
  const data_set *s = &m->d->set[set];
  const cublas_lt_heuristic *h = &m->heuristics[which];
  return b->matmul(b->lt_handle, m->desc, &one, pointer(s->w), m->weights, pointer(s->x),
                   m->tokens, &zero, pointer(s->y), m->out, pointer(s->y), m->out, &h->algo,
                   pointer(b->lt_workspace), CUBLAS_WORKSPACE, stream);
}

int gemm_enqueue_lt(void *user, int set, gpu_stream stream) {
  const gemm *m = user;
  return cublas_check(matmul(m, m->best, set, stream), "cublasLtMatmul");
}

int gemm_enqueue_faster(void *user, int set, gpu_stream stream) {
  const gemm *m = user;
  return m->ex_is_faster ? gemm_enqueue_ex(user, set, stream)
                         : gemm_enqueue_lt(user, set, stream);
}

int gemm_enqueue_unfused(void *user, int set, gpu_stream stream) {
  const gemm *m = user;
  int code = gemm_enqueue_faster(user, set, stream);
  return code == CLI_OK ? data_activate(m->d, set, stream) : code;
}

/* A heuristic can still be refused by cublasLtMatmul: then it is passed over. */
static int usable(const gemm *m, int which) {
  return m->heuristics[which].state == 0 &&
         m->heuristics[which].workspace_bytes <= CUBLAS_WORKSPACE &&
         matmul(m, which, 0, m->d->g->stream) == 0;
}

/* Best of two short samples of what m->best (-1: cublasGemmEx) is. */
static int try_one(gemm *m, int calls, const timing *t, double *us) {
  const gpu *g = m->d->g;
  nvml none = {0};
  variant v;
  variant_init(&v, m->best < 0 ? "cublasGemmEx" : "cublasLt");
  v.enqueue = m->best < 0 ? gemm_enqueue_ex : gemm_enqueue_lt;
  v.user = m;
  int code = variant_capture(&v, m->d, calls, 0);
  if (code == CLI_OK) code = variant_estimate(&v, g);
  for (int i = 0; i < 2 && code == CLI_OK; i++) code = variant_measure(&v, g, &none, t);
  if (code == CLI_OK) *us = fmin(v.us[0], v.us[1]);
  variant_destroy(&v, g);
  return code;
}

int gemm_choose(gemm *m, int calls, const timing *t) {
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
