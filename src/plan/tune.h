/* The context's part of the tuning cache: what of it counts here. */
#ifndef TGLU_PLAN_TUNE_H
#define TGLU_PLAN_TUNE_H

#include "plan/cache.h"

/* A winner that this context may use. */
typedef struct tglu__tuned {
  tglu__tune_op op;
  tglu_dtype dtype;
  int64_t n, k, tokens;    /* tokens: the largest count of the bucket     */
  int32_t row, runner_up;  /* indices of the backend's rows; -1: none     */
  double us, runner_up_us;
} tglu__tuned;

/* Reads the cache, once the backend is open.  Never fails: it warns. */
void tglu__tune_load(tglu_context *context);
void tglu__tune_free(tglu_context *context);

/* The winner for this many tokens, NULL if there is none, or more than 2^31.  It is
 * usable on the device, but whether it is valid for a problem remains to be asked. */
const tglu__tuned *tglu__tune_find(const tglu_context *context, tglu__tune_op op,
                                   tglu_dtype dtype, int64_t n, int64_t k, int64_t tokens);

#endif /* TGLU_PLAN_TUNE_H */
