/* libcublas and libcublasLt, each from this file (FAKE_LT says which). */
#include <stdlib.h>
#include <string.h>

#include "../../cli/cuda_bench/cublas.h"
#include "fake.h"

enum { NOT_SUPPORTED = 15, INVALID_VALUE = 7, FAILED = 13 };

#define CALL(name, ...)                \
  FAKE_EXPORT int name(__VA_ARGS__);   \
  int name(__VA_ARGS__)
#define MAY_FAIL(name)                   \
  do {                                   \
    if (fake_fails(name)) return FAILED; \
  } while (0)

static int dtype_of(int type) { return type == CUDA_R_16BF ? 1 : type == CUDA_R_16F ? 2 : 0; }

#ifndef FAKE_LT
typedef struct handle {
  void *stream;
} handle;

CALL(cublasCreate_v2, handle **h) {
  MAY_FAIL("cublasCreate");
  *h = calloc(1, sizeof **h);
  return *h ? 0 : 3;
}

CALL(cublasDestroy_v2, handle *h) {
  free(h);
  return 0;
}

CALL(cublasGetVersion_v2, handle *h, int *version) {
  (void)h;
  *version = 130000;
  return 0;
}

CALL(cublasSetStream_v2, handle *h, void *stream) {
  h->stream = stream;
  return 0;
}

CALL(cublasSetWorkspace_v2, handle *h, void *workspace, size_t bytes) {
  (void)h;
  return workspace && bytes == 32 << 20 ? 0 : INVALID_VALUE;
}

CALL(cublasGemmEx, handle *h, int transa, int transb, int m, int n, int k, const void *alpha,
     const void *a, int a_type, int lda, const void *b, int b_type, int ldb, const void *beta,
     void *c, int c_type, int ldc, int compute, int algo) {
  MAY_FAIL("cublasGemmEx");
  float one = 0, zero = 1;
  memcpy(&one, alpha, sizeof one);
  memcpy(&zero, beta, sizeof zero);
  if (transa != CUBLAS_OP_T || transb != CUBLAS_OP_N || lda != k || ldb != k || ldc != m ||
      a_type != b_type || a_type != c_type || compute != CUBLAS_COMPUTE_32F || algo != -1 ||
      one != 1 || zero != 0) {
    return INVALID_VALUE;
  }
  fake_gemm g = {a, b, c, m, n, k, dtype_of(a_type)};
  return fake_enqueue_gemm(h->stream, &g, 3.2, "gemm_ex") ? FAILED : 0;
}
#else
typedef struct layout {
  int type;
  int64_t rows, columns, ld;
} layout;

typedef struct desc {
  int transpose_a, transpose_b;
} desc;

CALL(cublasLtCreate, int **h) {
  MAY_FAIL("cublasLtCreate");
  *h = calloc(1, sizeof **h);
  return *h ? 0 : 3;
}

CALL(cublasLtDestroy, int *h) {
  free(h);
  return 0;
}

CALL(cublasLtMatmulDescCreate, desc **d, int compute, int scale) {
  *d = calloc(1, sizeof **d);
  return *d && compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? 0 : INVALID_VALUE;
}

CALL(cublasLtMatmulDescDestroy, desc *d) {
  free(d);
  return 0;
}

CALL(cublasLtMatmulDescSetAttribute, desc *d, int attribute, const void *value, size_t bytes) {
  if (bytes != 4) return INVALID_VALUE;
  memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &d->transpose_a : &d->transpose_b, value, 4);
  return attribute == 3 || attribute == 4 ? 0 : INVALID_VALUE;
}

CALL(cublasLtMatrixLayoutCreate, layout **l, int type, uint64_t rows, uint64_t columns,
     int64_t ld) {
  *l = calloc(1, sizeof **l);
  if (!*l) return 3;
  **l = (layout){type, (int64_t)rows, (int64_t)columns, ld};
  return 0;
}

CALL(cublasLtMatrixLayoutDestroy, layout *l) {
  free(l);
  return 0;
}

CALL(cublasLtMatmulPreferenceCreate, int **p) {
  *p = calloc(1, sizeof **p);
  return *p ? 0 : 3;
}

CALL(cublasLtMatmulPreferenceDestroy, int *p) {
  free(p);
  return 0;
}

CALL(cublasLtMatmulPreferenceSetAttribute, int *p, int attribute, const void *value,
     size_t bytes) {
  (void)p;
  uint64_t workspace = 0;
  if (bytes == 8) memcpy(&workspace, value, 8);
  return attribute == 1 && workspace == 32 << 20 ? 0 : INVALID_VALUE;
}

/* Four: one that matmul refuses, one slow, one fast, one that needs too much. */
CALL(cublasLtMatmulAlgoGetHeuristic, int *h, const desc *d, const layout *a, const layout *b,
     const layout *c, const layout *out, int *pref, int want, cublas_lt_heuristic *results,
     int *found) {
  (void)h, (void)d, (void)a, (void)b, (void)c, (void)out, (void)pref;
  MAY_FAIL("cublasLtMatmulAlgoGetHeuristic");
  memset(results, 0, (size_t)want * sizeof *results);
  *found = getenv("FAKE_NO_LT") ? 0 : 4;
  for (int i = 0; i < *found; i++) results[i].algo.data[0] = (uint64_t)i;
  results[3].workspace_bytes = (size_t)64 << 20;
  return 0;
}

CALL(cublasLtMatmul, int *h, const desc *d, const void *alpha, const void *a, const layout *al,
     const void *b, const layout *bl, const void *beta, const void *c, const layout *cl,
     void *out, const layout *ol, const cublas_lt_algo *algo, void *workspace, size_t bytes,
     void *stream) {
  (void)h, (void)alpha, (void)beta;
  MAY_FAIL("cublasLtMatmul");
  if (algo->data[0] == 0) return NOT_SUPPORTED;
  if (d->transpose_a != CUBLAS_OP_T || d->transpose_b != CUBLAS_OP_N || c != out || cl != ol ||
      al->ld != al->rows || bl->rows != al->rows || ol->rows != al->columns ||
      ol->ld != ol->rows || ol->columns != bl->columns || !workspace || bytes != 32 << 20) {
    return INVALID_VALUE;
  }
  fake_gemm g = {a, b, out, al->columns, bl->columns, al->rows, dtype_of(al->type)};
  double us = algo->data[0] == 1 ? 9 : atof(getenv("FAKE_LT_US") ? getenv("FAKE_LT_US") : "3");
  return fake_enqueue_gemm(stream, &g, us, "gemm_lt") ? FAILED : 0;
}
#endif
