/* A GLU planned for the CUDA backend: a row for every bucket of token counts, with
 * all that a launch needs and that does not change between calls. */
#ifndef TGLU_CUDA_GLU_PLAN_H
#define TGLU_CUDA_GLU_PLAN_H

#include "../kernels/sm90/launch.h"
#include "cuda/device.h"

/* A row that this object may launch. */
typedef struct tglu__cuda_entry {
  tglu_glu_launch record;    /* the weights' maps and all constants filled in   */
  tglu_glu_general_launch *general; /* the same for a row with the general loader,
                                       which lies behind the entries; else NULL */
  tglu__CUfunction function; /* NULL: not used by this object                   */
  int32_t clusters;
} tglu__cuda_entry;

typedef struct tglu__cuda_plan {
  tglu__problem problem;
  int16_t aligned[TGLU__BUCKETS]; /* row when x is aligned, -1: none            */
  int16_t general[TGLU__BUCKETS]; /* row for any x, -1: none                    */
  tglu__cuda_entry entries[];     /* by row                                     */
} tglu__cuda_plan;

tglu_status tglu__cuda_plan_create(tglu_context *context, const tglu__problem *problem,
                                   void **plan);
void tglu__cuda_plan_destroy(tglu_context *context, void *plan);

/* What a call needs of a row. */
/* Under batch_invariant the stride of x counts for one token as well, so that it takes the
 * row that more of them would. */
tglu__call_facts tglu__cuda_call_facts(const tglu_context *context, const tglu__call *call);
/* Row of a call, -1 if none serves it. */
int32_t tglu__cuda_select(const tglu__cuda_plan *plan, const tglu__call_facts *facts);
/* Sets the message for a call or problem that no row serves. */
tglu_status tglu__cuda_refuse(const tglu__cuda *cuda, const tglu__problem *problem,
                              const tglu__call_facts *facts);
/* Why the output must be stored without TMA, as a clause; NULL if it need not. */
const char *tglu__cuda_direct_store(const tglu__problem *problem, const tglu__call *call);
/* Token count at which a bucket is planned. */
int64_t tglu__cuda_planned_tokens(const tglu_context *context, int32_t bucket);

tglu_status tglu__cuda_run(const tglu_context *context, const void *plan,
                           const tglu__call *call);
size_t tglu__cuda_explain(const tglu_context *context, const void *plan,
                          const tglu__call *call, char *buffer, size_t bytes);
void tglu__cuda_plan_info(const tglu_context *context, const void *plan, int64_t tokens,
                          tglu_plan_info *info);

#endif /* TGLU_CUDA_GLU_PLAN_H */
