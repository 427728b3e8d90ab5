/* Options that several subcommands share, as children of their argp parsers. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

#include "models.h"
#include "op.h"

/* Keys of the shared options; subcommands number theirs from OPTION_OWN. */
enum {
  OPTION_BACKEND = 0x100, OPTION_THREADS, OPTION_ROW, OPTION_CPU_ISA, OPTION_JSON,
  OPTION_SEED, OPTION_INVARIANT,
  OPTION_MODEL, OPTION_HIDDEN_SIZE, OPTION_INTERMEDIATE, OPTION_TOKENS, OPTION_OP,
  OPTION_DTYPE, OPTION_ACTIVATION, OPTION_ALPHA, OPTION_LIMIT, OPTION_OFFSET,
  OPTION_LAYOUT, OPTION_BIAS, OPTION_RESIDUAL, OPTION_PAD, OPTION_MISALIGN,
  OPTION_OWN = 0x200
};

/* ---- where to run: --backend --threads --row --cpu-isa --json --seed ---- */
typedef struct place_args {
  tglu_context_options options;
  int json;
  uint64_t seed;
} place_args;

extern const struct argp place_argp;       /* its input is a place_args            */
void place_init(place_args *args);
/* The log of a context (tglu_context_options.log) that prints its warnings. */
void log_warnings(void *user, tglu_log_level level, const char *message);

/* --device NAME, the same as --backend NAME, for subcommands that have no --device of
 * their own; its input is a place_args. */
extern const struct argp device_argp;

/* A shared parser as one subcommand offers it: what it refuses in any case is parsed all the
 * same, so that it can say why, but is not in its help.  refused: keys, a 0 behind them. */
typedef struct offered_argp {
  struct argp argp;
  struct argp_option options[32];
} offered_argp;

void offer_argp(offered_argp *offered, const struct argp *shared, const int *refused);

/* Opens a context.  Returns an exit code; info->... lives with the context. */
int place_open(const place_args *args, tglu_context **context, tglu_context_info *info);
/* The exit code for a failed tglu_context_create. */
int place_exit_code(tglu_status status);
/* Whether the row that --row or TILEGLU_ROW forces serves this op and type; or none is. */
int place_row_serves(const place_args *args, const tglu_context *context, op_kind op,
                     tglu_dtype type);
/* An exit code: says what such a row serves instead.  what: whose the type is. */
int place_check_row(const place_args *args, const tglu_context *context, op_kind op,
                    tglu_dtype type, const char *what);

/* ---- what to run: --model --hidden --intermediate --tokens --dtype ... ---- */
enum { SHAPE_LIST = 64 };

/* The lists hold no item twice, in the order of the command line. */
typedef struct shape_args {
  const model_shape *models[SHAPE_LIST];
  size_t model_count;
  int64_t tokens[SHAPE_LIST];
  size_t token_count;
  tglu_dtype dtypes[3];
  size_t dtype_count;
  int64_t hidden, intermediate;            /* -1: not given                        */
  tglu_activation activation;              /* 0: not given                         */
  tglu_layout layout;                      /* 0: not given                         */
  double alpha, limit, offset;             /* NaN: not given                       */
  op_kind op;
  int op_down;                             /* 1: --op down is allowed              */
  int bias, residual;
  int64_t pad;
  int64_t misalign;
  unsigned given;                          /* SHAPE_BIT of every option given      */
} shape_args;

#define SHAPE_BIT(option) (1u << ((option) - OPTION_MODEL))

extern const struct argp shape_argp;       /* its input is a shape_args            */
/* Offers shape_argp without what is refused and, where op_down is set, with --op down. */
void offer_shape(offered_argp *offered, const shape_args *args, const int *refused);
/* Defaults that a subcommand may change before it parses. */
void shape_init(shape_args *args, op_kind op, int64_t tokens);

/* One problem, resolved from the options (and the models table). */
typedef struct spec {
  const char *model;        /* NULL: by numbers                                    */
  op_kind op;
  int64_t tokens, hidden, intermediate;
  tglu_dtype dtype;
  tglu_activation activation;
  float alpha, limit, offset;
  tglu_layout layout;
  int bias, residual;
  int64_t pad;              /* elements between the rows of every matrix           */
  int64_t misalign;         /* bytes by which every matrix is off 64               */
} spec;

/* Number of problems that the options name, and the index-th of them: model by
 * model, type by type, tokens last. */
size_t shape_count(const shape_args *args);
spec shape_at(const shape_args *args, size_t index);
/* Whether the options name a shape at all; a usage error says what is missing. */
int shape_given(const shape_args *args);

/* An exit code: place_check_row for every type asked for, or for one of them. */
int shape_check_row(const shape_args *args, const place_args *place,
                    const tglu_context *context, int every);

/* The long name of an option given which is not among the allowed bits; NULL if there
 * is none. */
const char *shape_stranger(const shape_args *args, unsigned allowed);

/* Text such as "m 16 k 576 n 1536 bf16 silu separate". */
void spec_text(const spec *s, char *buffer, size_t bytes);

/* ---- strict numbers ---- */
/* Return 1 if all of text is a number in the range. */
int parse_int(const char *text, int64_t least, int64_t most, int64_t *value);
/* The number given to option --name; an error of argp's for any other text. */
int64_t option_integer(const char *name, const char *text, int64_t least, int64_t most,
                       struct argp_state *state);
int parse_real(const char *text, double *value);
/* The file given to option --name; an error of argp's for an empty text. */
const char *option_file(const char *name, const char *text, struct argp_state *state);

#endif /* CLI_OPTIONS_H */
