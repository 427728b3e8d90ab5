/* The part of cuBLAS and cuBLASLt that the bench calls, declared by hand from their
 * public documentation (12.x and 13.x), opened at run time. */
#ifndef BENCH_CUBLAS_H
#define BENCH_CUBLAS_H

#include <stddef.h>
#include <stdint.h>

#include "gpu.h"

enum { /* cudaDataType, cublasComputeType_t, cublasOperation_t, cublasGemmAlgo_t */
  CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_OP_N = 0, CUBLAS_OP_T = 1,
  CUBLAS_GEMM_DEFAULT = -1
};
enum { /* cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t */
  CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1
};

typedef struct cublas_lt_algo {
  uint64_t data[8];
} cublas_lt_algo;

typedef struct cublas_lt_heuristic { /* cublasLtMatmulHeuristicResult_t */
  cublas_lt_algo algo;
  size_t workspace_bytes;
  int32_t state;         /* cublasStatus_t */
  float waves;
  int32_t reserved[4];
} cublas_lt_heuristic;

#define CUBLAS_CALLS(XX)                                                                  \
  XX(create, "cublasCreate_v2", (void **handle))                                          \
  XX(destroy, "cublasDestroy_v2", (void *handle))                                         \
  XX(get_version, "cublasGetVersion_v2", (void *handle, int *version))                    \
  XX(set_stream, "cublasSetStream_v2", (void *handle, gpu_stream stream))                 \
  XX(set_workspace, "cublasSetWorkspace_v2", (void *handle, void *workspace, size_t bytes))\
  XX(gemm_ex, "cublasGemmEx",                                                             \
     (void *handle, int transa, int transb, int m, int n, int k, const void *alpha,       \
      const void *a, int a_type, int lda, const void *b, int b_type, int ldb,             \
      const void *beta, void *c, int c_type, int ldc, int compute, int algo))

#define CUBLASLT_CALLS(XX)                                                                \
  XX(lt_create, "cublasLtCreate", (void **handle))                                        \
  XX(lt_destroy, "cublasLtDestroy", (void *handle))                                       \
  XX(desc_create, "cublasLtMatmulDescCreate", (void **desc, int compute, int scale_type)) \
  XX(desc_destroy, "cublasLtMatmulDescDestroy", (void *desc))                             \
  XX(desc_set, "cublasLtMatmulDescSetAttribute",                                          \
     (void *desc, int attribute, const void *value, size_t bytes))                        \
  XX(layout_create, "cublasLtMatrixLayoutCreate",                                         \
     (void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld))              \
  XX(layout_destroy, "cublasLtMatrixLayoutDestroy", (void *layout))                       \
  XX(pref_create, "cublasLtMatmulPreferenceCreate", (void **pref))                        \
  XX(pref_destroy, "cublasLtMatmulPreferenceDestroy", (void *pref))                       \
  XX(pref_set, "cublasLtMatmulPreferenceSetAttribute",                                    \
     (void *pref, int attribute, const void *value, size_t bytes))                        \
  XX(heuristic, "cublasLtMatmulAlgoGetHeuristic",                                         \
     (void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int want, \
      cublas_lt_heuristic *results, int *found))                                          \
  XX(matmul, "cublasLtMatmul",                                                            \
     (void *handle, void *desc, const void *alpha, const void *a, void *a_layout,         \
      const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,     \
      void *d, void *d_layout, const cublas_lt_algo *algo, void *workspace,               \
      size_t workspace_bytes, gpu_stream stream))

enum { CUBLAS_WORKSPACE = 32 << 20, CUBLAS_HEURISTICS = 8 };

typedef struct cublas {
#define CUBLAS_FIELD_(field, name, arguments) int (*field) arguments;
  CUBLAS_CALLS(CUBLAS_FIELD_)
  CUBLASLT_CALLS(CUBLAS_FIELD_)
#undef CUBLAS_FIELD_
  void *library, *lt_library, *handle, *lt_handle;
  gpu_pointer workspace;       /* CUBLAS_WORKSPACE bytes, of cublasGemmEx  */
  gpu_pointer lt_workspace;    /* as many, of cublasLtMatmul               */
  int version;                 /* 130000 is 13.0 */
} cublas;

/* path NULL: libcublas.so.13, then .12, as the loader finds them; lt_path NULL: beside
 * that.  Needs the device's context current.  An exit code. */
int cublas_open(cublas *b, const gpu *g, const char *path, const char *lt_path);
void cublas_close(cublas *b, const gpu *g);
int cublas_check(int status, const char *what); /* 0, or CLI_RUNTIME and said */

#endif /* BENCH_CUBLAS_H */
