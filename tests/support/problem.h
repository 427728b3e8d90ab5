/* One test case: everything that defines a call, its operands in memory, and the
 * library's descriptors for them.  A GPU test copies the operands to the device
 * and passes its own pointers to tt_fill_desc and tt_fill_args. */
#ifndef TGLU_TEST_PROBLEM_H
#define TGLU_TEST_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

#include "buffer.h"

/* A linear uses x [m, k], down as its weight [n, k], down_bias, residual and out
 * [m, n]; gate and up do not exist. */
typedef enum tt_op { TT_OP_GLU = 0, TT_OP_MLP = 1, TT_OP_LINEAR = 2 } tt_op;

typedef enum tt_residual {
  TT_RESIDUAL_NONE = 0, TT_RESIDUAL_APART = 1, TT_RESIDUAL_IN_PLACE = 2
} tt_residual;

typedef struct tt_case {
  tt_op op;
  tglu_dtype dtype;
  tglu_layout layout;
  tglu_activation activation;
  float alpha, limit, offset;  /* swigluoai; the defaults otherwise             */
  int64_t m, n, k;
  bool gate_bias, up_bias;     /* equal unless the layout is separate           */
  bool down_bias;
  tt_residual residual;
  int64_t pad_x, pad_w, pad_down, pad_out, pad_residual; /* stride - columns     */
  bool ld_zero;                /* pass 0 for the strides without padding        */
  tt_place place;              /* of every buffer                               */
  int misalign_x, misalign_w, misalign_out; /* bytes, for TT_PLACE_INSIDE        */
  uint64_t seed;               /* of the data                                   */
} tt_case;

/* Defaults: swigluoai's parameters, bf16 GLU, silu, separate, all sizes 0. */
void tt_case_init(tt_case *c);

typedef struct tt_operands {
  tt_buffer x, gate, up, gate_up;           /* those that the layout has         */
  tt_buffer gate_bias, up_bias, gate_up_bias;
  tt_buffer down, down_bias, residual, out;
  uint64_t hash;                            /* over the inputs, at creation      */
} tt_operands;

/* Addresses to use in place of the operands'; NULL where there is none. */
typedef struct tt_pointers {
  const void *x, *gate, *up, *gate_up, *gate_bias, *up_bias, *gate_up_bias;
  const void *down, *down_bias, *residual;
  void *out;
} tt_pointers;

/* Random operands: x and weights normal, scaled so that gate and up have a
 * standard deviation of 2 and the down projection of about 1; gaps between rows
 * hold NaN in inputs and the pattern in the output; the output is NaN. */
void tt_operands_create(const tt_case *c, tt_operands *o);
void tt_operands_destroy(tt_operands *o);
void tt_pointers_of(const tt_operands *o, tt_pointers *p);

/* Strides in elements. */
int64_t tt_ld_x(const tt_case *c);
int64_t tt_ld_w(const tt_case *c);
int64_t tt_ld_down(const tt_case *c);
int64_t tt_ld_out(const tt_case *c);
int64_t tt_ld_residual(const tt_case *c);
int64_t tt_out_columns(const tt_case *c);  /* k of an MLP, else n            */
int64_t tt_down_columns(const tt_case *c); /* of down [tt_out_columns, this] */

/* Values of the operands, whatever the layout. */
double tt_x_at(const tt_case *c, const tt_operands *o, int64_t token, int64_t i);
double tt_gate_at(const tt_case *c, const tt_operands *o, int64_t row, int64_t i);
double tt_up_at(const tt_case *c, const tt_operands *o, int64_t row, int64_t i);
double tt_gate_bias_at(const tt_case *c, const tt_operands *o, int64_t row);
double tt_up_bias_at(const tt_case *c, const tt_operands *o, int64_t row);
double tt_down_at(const tt_case *c, const tt_operands *o, int64_t row, int64_t i);
double tt_down_bias_at(const tt_case *c, const tt_operands *o, int64_t row);
double tt_residual_at(const tt_case *c, const tt_operands *o, int64_t token, int64_t i);

/* The library's structs for the case.  A GLU uses desc->glu alone.  Workspace and
 * stream stay as the init functions set them. */
void tt_fill_desc(const tt_case *c, const tt_pointers *p, tglu_mlp_desc *desc);
void tt_fill_linear_desc(const tt_case *c, const tt_pointers *p, tglu_linear_desc *desc);
void tt_fill_args(const tt_case *c, const tt_pointers *p, tglu_run_args *args);

/* Writes the output's poison (or, for a residual in place, the residual) again. */
void tt_reset_out(const tt_case *c, tt_operands *o);

/* Inputs unchanged, every sentinel whole, the gaps of the output untouched.  On
 * false, `why` says which buffer and where. */
bool tt_operands_intact(const tt_case *c, const tt_operands *o, char *why,
                        size_t why_bytes);

/* "mlp bf16 interleaved silu m3 n5 k7 ..." */
void tt_case_text(const tt_case *c, char *text, size_t bytes);

#endif /* TGLU_TEST_PROBLEM_H */
