/* One checked call: object, operands between sentinels, run, oracle, comparison. */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H

#include <tileglu/tileglu.h>

#include "compare.h"
#include "cuda_bench/gpu.h"
#include "hot.h"
#include "options.h"
#include "pool.h"
#include "rng.h"

/* What every command that computes needs. */
typedef struct tools {
  tglu_context *context;
  tglu_context_info info;
  gpu *gpu;              /* where the operands go; NULL: the host's memory */
  const hot_loops *hot;
  pool *threads;         /* of the host */
} tools;

int tools_open(tools *t, const place_args *args); /* an exit code */
void tools_close(tools *t);
/* "cpu", its name, ISA level and threads, for reports. */
void tools_json(const tools *t, json_t *document);
void tools_print(const tools *t, FILE *stream);

/* A planted fault, so that tests see a check fail: VALUE is written over element INDEX
 * (or all) of the result, of the oracle's values, or of x before the run; or a byte
 * after the result. */
typedef struct injection {
  enum { INJECT_OUT, INJECT_REFERENCE, INJECT_X, INJECT_GUARD } target;
  double value;
  int64_t index; /* -1: all */
} injection;

enum { INJECTIONS = 8 };
typedef struct injections {
  size_t count;
  injection list[INJECTIONS];
} injections;

/* [out:|ref:|x:|guard:]VALUE@INDEX or ...@all; returns 1 if text is that. */
int injection_parse(injections *all, const char *text);

typedef struct check_result {
  comparison comparison;
  char row[96], down_row[96];
  tglu_status refused;   /* TGLU_ERR_UNSUPPORTED: the library cannot do this, and says
                            why in tglu_last_error; nothing was compared            */
} check_result;

/* desc's weights on random x, or on the tight matrix x.  residual and the strides come
 * from s.  Returns CLI_OK where the comparison was made, whatever it says, or where
 * the object was refused as unsupported. */
int check_call(const tools *t, const spec *s, const tglu_mlp_desc *desc, const void *x,
               rng *random, const injections *faults, check_result *result);
/* The same on random weights. */
int check_spec(const tools *t, const spec *s, uint64_t seed, const injections *faults,
               check_result *result);

#endif /* CLI_CHECK_H */
