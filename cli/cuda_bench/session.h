/* One shape under one pdl: its contenders, which take turns in the rounds. */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include "bench_cuda.h"
#include "gemm.h"
#include "read.h"

/* Contenders with a place of their own; rows follow, the planner's choice first. */
enum { WRITER, GEMM_EX, GEMM_LT, GEMM_MIXED, UNFUSED, EAGER, LINEAR, READ, INVARIANT,
       FIRST_ROW };

/* A row, or a pair of them, on the shape. */
typedef struct way {
  row_plan plan;
  row_calls calls;
} way;

typedef struct session {
  bench *b;
  data *d;
  gemm_chain *gemm;            /* without a product: cuBLAS stays out */
  int pdl, calls, control;
  variant *variants;           /* [count]; calls 0: not there */
  int count;
  way *ways;                   /* [count]; of INVARIANT and rows */
  accuracy *accuracy;          /* [count] */
  double reference_share;      /* of cuBLAS and the activation kernel */
  reader reader;
} session;

/* b, d, gemm, pdl, calls and control are set.  An exit code; in any case session_end. */
int session_prepare(session *s);
void session_end(session *s);

static inline int session_has(const session *s, int which) {
  return s->variants[which].calls > 0;
}

/* Whether it computes the op: its results are checked. */
static inline int session_is_row(int which) { return which >= INVARIANT; }

/* Name of a half of a way; "" where the op has no such half, or its first row computes both. */
const char *session_row_name(const session *s, int which);
const char *session_row_hash(const session *s, int which);
const char *session_down_name(const session *s, int which);
const char *session_down_hash(const session *s, int which);

#endif /* BENCH_SESSION_H */
