/* Two backends that compute nothing and record what they were asked: the library's
 * own part is compiled against them, so that its rules can be tested without a
 * device and failures can be planted. */
#ifndef TGLU_TEST_FAKE_H
#define TGLU_TEST_FAKE_H

#include "internal.h"

typedef struct fake_state {
  tglu_status cuda_open;      /* what opening the cuda backend answers            */
  tglu_status plan_status;    /* what plan_create answers                         */
  tglu_status run_status;
  size_t workspace;           /* bytes needed, whatever the tokens                */
  const char *isa_refused;    /* the cpu backend refuses this cpu_isa             */
  int opens, closes, plans, destroyed, runs;
  tglu__problem problem;      /* of the last plan_create                          */
  tglu__call call;            /* of the last run                                  */
  tglu_context_options options; /* at the last open                               */
} fake_state;

extern fake_state fake;

/* Everything back to success and zero; also clears this library's variables from
 * the environment. */
void fake_reset(void);

#endif /* TGLU_TEST_FAKE_H */
