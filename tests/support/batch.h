/* A batch of cases judged together: it goes on after a failure, prints the first
 * few, and an empty batch fails. */
#ifndef TGLU_TEST_BATCH_H
#define TGLU_TEST_BATCH_H

#include "runner.h"

typedef struct tt_batch {
  const char *name;
  tglu_context *context;
  int64_t cases, failures;
  double worst_rel_l2, worst_ratio; /* ratio to the plain computation's error */
  int64_t max_ulp;
} tt_batch;

void tt_batch_begin(tt_batch *batch, const char *name, tglu_context *context);
/* True if the case passed. */
bool tt_batch_check(tt_batch *batch, const tt_case *c);
/* Prints one line of figures.  True if cases ran and none failed. */
bool tt_batch_end(const tt_batch *batch);

#endif /* TGLU_TEST_BATCH_H */
