/* What the rooms of src/ share: the failing call's message, the checked problem
 * and call, the backend's function table, the context.  Private. */
#ifndef TGLU_INTERNAL_H
#define TGLU_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

/* ---- status.c ---- */
/* Sets this thread's message and returns status, so that a check reads
 *     if (ld < k) return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "ld %lld ...", ...);
 * The format names the argument first, then the rule. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
tglu_status tglu__fail(tglu_status status, const char *format, ...);

/* ---- the weights triple and the checked problem (problem.c) ---- */
/* Every layout reduces to this (design: "weights are read where they lie"):
 * gate row i at gate + i * ld elements, up row i at up + i * ld elements;
 * gate_bias[i * bias_stride], up_bias[i * bias_stride], each NULL if absent. */
typedef struct tglu__problem {
  tglu_dtype dtype;
  int64_t n, k;              /* intermediate, hidden                           */
  tglu_activation activation;
  float alpha, limit, offset;/* swigluoai; defaults otherwise                  */
  tglu_layout layout;        /* as the caller named it; for explain only       */
  const void *gate, *up;
  int64_t ld;
  const void *gate_bias, *up_bias;
  int64_t bias_stride;
  bool has_down;             /* an MLP                                         */
  const void *down;          /* [k, n]                                         */
  int64_t ld_down;
  const void *down_bias;     /* [k] or NULL                                    */
} tglu__problem;

/* One checked call: strides resolved (never 0), tokens >= 1, n >= 1, overlaps
 * refused, workspace large enough.  Backends trust it. */
typedef struct tglu__call {
  const void *x;        int64_t ldx;
  int64_t tokens;
  void *out;            int64_t ldo;
  const void *residual; int64_t ldr;   /* NULL if none                         */
  void *workspace;      size_t workspace_bytes;
  void *stream;
} tglu__call;

tglu_status tglu__problem_from_glu(const tglu_glu_desc *desc, tglu__problem *out);
tglu_status tglu__problem_from_mlp(const tglu_mlp_desc *desc, tglu__problem *out);

/* ---- backends ---- */
struct tglu_context;

/* One per backend; all entries are required.  `state` is the backend's part of a
 * context, `plan` its part of an object. */
typedef struct tglu__backend_ops {
  tglu_backend id;
  tglu_status (*open)(tglu_context *context, void **state);  /* fills context->info */
  void (*close)(tglu_context *context, void *state);
  int32_t (*row_count)(const tglu_context *context);
  void (*row_get)(const tglu_context *context, int32_t index, tglu_row_info *info);
  tglu_status (*plan_create)(tglu_context *context, const tglu__problem *problem,
                             void **plan);
  void (*plan_destroy)(tglu_context *context, void *plan);
  /* Bytes without which run cannot work, alignment slack included. */
  size_t (*workspace_bytes)(const tglu_context *context, const void *plan, int64_t tokens);
  tglu_status (*run)(const tglu_context *context, const void *plan, const tglu__call *call);
  /* Writes at most bytes characters (NUL included), returns the length that the
   * whole text has, like snprintf. */
  size_t (*explain)(const tglu_context *context, const void *plan, const tglu__call *call,
                    char *buffer, size_t bytes);
  void (*plan_info)(const tglu_context *context, const void *plan, int64_t tokens,
                    tglu_plan_info *info);
  size_t (*copied_bytes)(const tglu_context *context, const void *plan);
  /* CPU: stream must be NULL and x, out, ... any address.  CUDA: pointers at
   * multiples of the element size. */
  bool needs_element_alignment;
  bool has_streams;
} tglu__backend_ops;

extern const tglu__backend_ops tglu__cpu_backend;   /* src/cpu/backend.c  */
extern const tglu__backend_ops tglu__cuda_backend;  /* src/cuda/backend.c */

/* ---- context (context.c) ---- */
struct tglu_context {
  const tglu__backend_ops *ops;
  void *state;
  tglu_context_options options;  /* resolved: environment merged in, strings owned */
  tglu_context_info info;        /* strings owned by the backend's state or static */
  char *reason;                  /* owned; info.reason points to it               */
  int32_t references;            /* atomic: 1 + live objects                      */
};

/* Memory through the context's allocator; 64-byte aligned or stricter. */
void *tglu__alloc(const tglu_context *context, size_t bytes, size_t alignment);
void tglu__free(const tglu_context *context, void *pointer, size_t bytes);

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void tglu__log(const tglu_context *context, tglu_log_level level, const char *format, ...);

/* Objects: both kinds are one struct; tglu_mlp has problem.has_down. */
typedef struct tglu__object {
  tglu_context *context;
  tglu__problem problem;
  void *plan;
} tglu__object;
struct tglu_glu { tglu__object object; };
struct tglu_mlp { tglu__object object; };

#endif /* TGLU_INTERNAL_H */
