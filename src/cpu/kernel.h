/* The contract between the driver's loops (driver.c) and the kernels (kernels/).
 * Private.
 *
 * The driver cuts a product into blocks of tokens, groups of columns and blocks of K,
 * and a group into units: a fixed number of weight rows, which a kernel multiplies
 * with all tokens of the block.  For a GLU the first half of a unit's rows are gate
 * rows and the second half the up rows of the same columns; for a plain product all
 * are consecutive rows.  So one kernel serves both.  Sums stay in fp32 in the slot's
 * scratch until all of K is done; then a store routine applies bias, activation or
 * residual, rounds once and writes.
 *
 * Every (token, column) sum is formed in an order that depends only on the row's
 * schedule, its kc and K: not on the other tokens, the thread, or the block sizes.  The
 * one exception is `stream`, where it also depends on the number of tokens; it has no
 * place under batch_invariant. */
#ifndef TGLU_CPU_KERNEL_H
#define TGLU_CPU_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

#include "cpu/activation.h"
#include "cpu/cpuid.h"

#define TGLU__UNIT_ROWS_MAX 16
/* x blocks in scratch are padded with zeros to a multiple of this in K. */
#define TGLU__K_ALIGN 32
/* Floats of scratch that a unit routine may use for converted or packed weights. */
#define TGLU__UNIT_SCRATCH_FLOATS (16 * 512)

typedef struct tglu__unit_args {
  const float *x;      /* [tokens, kc] as the row's load_x left it, 64-byte aligned  */
  int64_t ldx;         /* floats; a multiple of TGLU__K_ALIGN                        */
  int64_t tokens;      /* >= 1                                                       */
  const void *rows[TGLU__UNIT_ROWS_MAX]; /* each at the first k of the block, any
                          address; past the matrix's edge a valid row is repeated    */
  const void *next[TGLU__UNIT_ROWS_MAX]; /* the rows of the call that follows, to be
                          fetched into the cache meanwhile; only hints               */
  int64_t kc;          /* elements of K in this block, 1 to the row's kc; a multiple
                          of TGLU__K_ALIGN but in the last block                    */
  bool first;          /* set c (true) or add to it                                  */
  float *c0, *c1;      /* [tokens, unit_rows / 2] each: first and second half        */
  int64_t ldc;         /* floats                                                     */
  float *scratch;      /* TGLU__UNIT_SCRATCH_FLOATS, 64-byte aligned                 */
} tglu__unit_args;

typedef struct tglu__store_args {
  const float *c0;       /* [count] gate sums, or plain sums; 32-byte aligned        */
  const float *c1;       /* [count] up sums; unused for a plain product              */
  const float *bias0;    /* [count] in fp32, or NULL                                 */
  const float *bias1;    /* [count] in fp32, or NULL                                 */
  const void *residual;  /* [count] of the dtype, any address, or NULL; may be out   */
  void *out;             /* [count] of the dtype, any address                        */
  int64_t count;
  tglu__act act;
} tglu__store_args;

typedef enum tglu__op { TGLU__OP_GLU = 0, TGLU__OP_DOWN = 1 } tglu__op;

/* How a row's kernel goes over its operands; decides the driver's block sizes. */
typedef enum tglu__schedule {
  TGLU__SCHEDULE_STREAM = 0, /* vectors along K, one row after the other             */
  TGLU__SCHEDULE_DOT = 1,    /* vectors along K, tiles of tokens x rows              */
  TGLU__SCHEDULE_PANEL = 2   /* vectors along columns; weights transposed in scratch */
} tglu__schedule;

typedef struct tglu__cpu_row {
  const char *name;        /* glu_bf16_avx2_dot_3x2: op, dtype, isa, schedule, tile as
                              tokens x columns                                       */
  tglu__op op;
  tglu_dtype dtype;
  tglu__isa isa;
  tglu__schedule schedule;
  int32_t tile_tokens;
  int32_t unit_rows;       /* weight rows a unit: twice the columns for a GLU        */
  int64_t kc;              /* most elements of K in a block, a multiple of
                              TGLU__K_ALIGN                                          */
  /* count elements of x to floats, in the order that unit expects, then zeros up to a
   * multiple of TGLU__K_ALIGN. */
  void (*load_x)(const void *x, int64_t count, float *out);
  void (*unit)(const tglu__unit_args *args);
  /* One token's columns.  op GLU: act(c0 + bias0) * (c1 + bias1).  op DOWN: c0 + bias0
   * + residual. */
  void (*store)(const tglu__store_args *args);
} tglu__cpu_row;

/* rows.c: the table made from rows.def, portable rows first. */
extern const tglu__cpu_row tglu__cpu_rows[];
extern const int32_t tglu__cpu_row_count;

/* Columns of the result that one unit gives. */
static inline int64_t tglu__row_columns(const tglu__cpu_row *row) {
  return row->op == TGLU__OP_GLU ? row->unit_rows / 2 : row->unit_rows;
}

#endif /* TGLU_CPU_KERNEL_H */
