/* What the rooms of src/ share: the failing call's message, the checked problem
 * and call, the backend's function table, the context.  Private. */
#ifndef TGLU_INTERNAL_H
#define TGLU_INTERNAL_H

#include <stdatomic.h>
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

/* Structs that the caller sizes.  Every public struct begins with `size`; first is
 * the size that it had when it was first published, known the size it has here.
 * struct_in copies what the caller gave over *copy, which holds the defaults;
 * struct_out copies *filled to the caller, whose size field stays.  Both refuse
 * sizes that no init function sets and a non-zero tail; name is the argument's. */
tglu_status tglu__struct_in(const char *name, const void *given, size_t first,
                            size_t known, void *copy);
tglu_status tglu__struct_out(const char *name, void *given, size_t first, size_t known,
                             const void *filled);

/* ---- the weights triple and the checked problem (problem.c) ---- */
/* Every layout reduces to this (design: "weights are read where they lie"):
 * gate row i at gate + i * ld elements, up row i at up + i * ld elements;
 * gate_bias[i * bias_stride], up_bias[i * bias_stride], each NULL if absent. */
typedef struct tglu__problem {
  tglu_dtype dtype;
  int64_t n, k;              /* intermediate, hidden; a backend sees n >= 1, only
                                cuda's also an mlp of 0, whose gate may be NULL */
  tglu_activation activation;
  float alpha, limit, offset;/* swigluoai; defaults otherwise                  */
  tglu_layout layout;        /* as the caller named it; for explain only       */
  const void *gate, *up;
  int64_t ld;
  const void *gate_bias, *up_bias;
  int64_t bias_stride;
  bool has_down;             /* an MLP, or a linear: then gate is NULL, there is
                                no GLU, x is H [tokens, n], out [tokens, k]    */
  const void *down;          /* [k, n]                                         */
  int64_t ld_down;
  const void *down_bias;     /* [k] or NULL                                    */
} tglu__problem;

/* One checked call: strides resolved (never 0), tokens >= 1, overlaps
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
tglu_status tglu__problem_from_linear(const tglu_linear_desc *desc, tglu__problem *out);

/* A linear, and the columns of x and of the result. */
static inline bool tglu__is_linear(const tglu__problem *p)
{
  return p->has_down && p->n > 0 && !p->gate;
}
static inline int64_t tglu__x_columns(const tglu__problem *p)
{
  return tglu__is_linear(p) ? p->n : p->k;
}
static inline int64_t tglu__out_columns(const tglu__problem *p)
{
  return p->has_down ? p->k : p->n;
}

/* The caller's names of the weights and biases, for messages. */
typedef struct tglu__operand_names {
  const char *gate, *up, *gate_bias, *up_bias, *down, *down_bias;
} tglu__operand_names;
tglu__operand_names tglu__names_of(const tglu__problem *problem);

/* Refuses a weight or bias whose address is no multiple of the element size. */
tglu_status tglu__problem_check_alignment(const tglu__problem *problem);

/* Refuses, naming the argument, a [rows, columns] matrix which is too large to
 * address or reaches past the end of the address space from base. */
tglu_status tglu__check_extent(const char *name, const void *base, int64_t rows,
                               int64_t columns, int64_t ld, size_t element_bytes);

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
  /* The largest token count that is planned like this one, 1 <= tokens <= 2^31. */
  int64_t (*bucket_tokens)(int64_t tokens);
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
  tglu_context_options options;  /* resolved: environment merged in, strings owned;
                                    tune_cache is never NULL, "" is none          */
  tglu_context_info info;        /* strings owned by the backend's state or static */
  char *reason;                  /* owned; info.reason points to it               */
  struct tglu__tuning *tuning;   /* winners read from the cache; NULL: none        */
  _Atomic int32_t references;    /* 1 + live objects                              */
};

/* Memory through the context's allocator; 64-byte aligned or stricter. */
void *tglu__alloc(const tglu_context *context, size_t bytes, size_t alignment);
void tglu__free(const tglu_context *context, void *pointer, size_t bytes);

/* One more, one less reference; the last one closes and frees the context. */
void tglu__context_retain(tglu_context *context);
void tglu__context_release(tglu_context *context);

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void tglu__log(const tglu_context *context, tglu_log_level level, const char *format, ...);

/* Objects: both kinds are one struct; tglu_mlp has problem.has_down. */
typedef struct tglu__object {
  tglu_context *context;
  tglu__problem problem;
  void *plan;                    /* NULL where problem.n is 0 and there is nothing to
                                    plan                                           */
} tglu__object;
struct tglu_glu { tglu__object object; };
struct tglu_mlp { tglu__object object; };
struct tglu_linear { tglu__object object; }; /* has_down and gate NULL         */

/* ---- one call, checked (call.c) ---- */
typedef enum tglu__check {
  TGLU__CHECK_RUN,     /* everything: pointers, overlaps, workspace                */
  TGLU__CHECK_EXPLAIN  /* numbers only: pointers may be NULL, no workspace needed  */
} tglu__check;

/* call->tokens is 0 where the call has nothing to do; nothing else is set then. */
tglu_status tglu__call_check(const tglu__object *object, const tglu_run_args *args,
                             tglu__check check, tglu__call *call);
/* Refuses negative counts and those whose x or result no memory could hold. */
tglu_status tglu__check_tokens(const tglu__problem *problem, int64_t tokens);

/* ---- an MLP whose intermediate is 0 on the CPU: out = down_bias + residual (empty.c) ---- */
void tglu__empty_mlp_run(const tglu__problem *problem, const tglu__call *call);

/* ---- overlap.c ---- */
/* A strided matrix in memory; rows and row_bytes at least 1.  stride is in bytes
 * and does not count where rows is 1. */
typedef struct tglu__region {
  uintptr_t begin;
  uint64_t rows, row_bytes, stride;
} tglu__region;

/* Whether two matrices share a byte: exact for equal strides (so column blocks of
 * one wider buffer are apart), else whether their ranges meet. */
bool tglu__regions_overlap(const tglu__region *a, const tglu__region *b);

#endif /* TGLU_INTERNAL_H */
