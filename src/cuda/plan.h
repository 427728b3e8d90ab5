/* An object planned for the CUDA backend: for each of its operations a row for every
 * bucket of token counts, with all that a launch needs and that does not change between
 * calls.  A GLU has one operation, so has a linear; an MLP has both, and where few tokens are
 * faster in one launch op mlp in their place. */
#ifndef TGLU_CUDA_PLAN_H
#define TGLU_CUDA_PLAN_H

#include "../kernels/sm90/down_diag_launch.h"
#include "../kernels/sm90/down_launch.h"
#include "../kernels/sm90/stream_mlp_launch.h"
#include "../kernels/sm90/tail_launch.h"
#include "cuda/device.h"
#include "plan/tune.h"

/* The parameter of a kernel; which one the row's schedule says. */
typedef union tglu__cuda_record {
  tglu_glu_launch glu;
  tglu_glu_tail_launch tail; /* begins with that of a GLU                      */
  tglu_stream_launch stream;
  tglu_stream_mlp_launch mlp;
  tglu_down_launch down;
  tglu_down_diag_launch diag;
} tglu__cuda_record;

/* A row that this object may launch. */
typedef struct tglu__cuda_entry {
  tglu__cuda_record record;  /* the weights' maps and all constants filled in   */
  tglu_glu_general_launch *general; /* of a row with the schedule paired_general, in
                                       place of the record, behind the entries   */
  tglu__CUfunction function;
  int32_t row;
  int32_t clusters;          /* most that can be resident, after the SM limit   */
} tglu__cuda_entry;

/* Entries by bucket, -1: no row serves such a call. */
typedef struct tglu__cuda_table {
  int16_t aligned[TGLU__BUCKETS]; /* when the operation's x is aligned          */
  int16_t general[TGLU__BUCKETS]; /* whatever x is                              */
} tglu__cuda_table;

typedef struct tglu__cuda_plan {
  tglu__problem problem;
  size_t bytes;                   /* of the allocation                          */
  tglu__cuda_table tables[TGLU__OPS]; /* by tglu__op                            */
  tglu__cuda_entry entries[];
} tglu__cuda_plan;

/* ---- plan.c ---- */
tglu_status tglu__cuda_plan_create(tglu_context *context, const tglu__problem *problem,
                                   void **plan);
void tglu__cuda_plan_destroy(tglu_context *context, void *plan);

/* Token count at which a bucket is planned; under batch_invariant one that every row chosen or
 * forced must serve, whatever the bucket. */
int64_t tglu__cuda_planned_tokens(const tglu_context *context, int32_t bucket);
/* The winner of the tuning cache, whether valid or not; NULL: there is none. */
const tglu__tuned *tglu__cuda_tuned(const tglu_context *context, tglu__op op,
                                    const tglu__problem *problem, int64_t tokens);
/* THE choice of a row for planned tokens: forced, or tuned, or by the cost model; -1: none is
 * valid.  Of op mlp also -1 where the other two operations' rows are to serve such a call.  Under
 * batch_invariant that of all buckets: forced, or by tglu__plan_choose_invariant. */
int32_t tglu__cuda_choose_row(const tglu_context *context, tglu__op op,
                              const tglu__problem *problem, const tglu__call_facts *facts);
/* The entry of a call, NULL if none serves it. */
const tglu__cuda_entry *tglu__cuda_select(const tglu__cuda_plan *plan, tglu__op op,
                                          const tglu__call_facts *facts);
/* Whether the call, whose facts for op mlp these are, is for op mlp alone: it has an entry, or
 * such a row is forced.  Else it is for the other operations that the problem has. */
bool tglu__cuda_in_one_launch(const tglu__cuda *cuda, const tglu__cuda_plan *plan,
                              const tglu__call_facts *facts);
/* Sets the message for a call or problem whose operation no row serves. */
tglu_status tglu__cuda_refuse(const tglu__cuda *cuda, tglu__op op,
                              const tglu__problem *problem, const tglu__call_facts *facts);

/* ---- launch.c ---- */
/* The call of one operation within that of the object: an MLP's GLU writes H into the
 * workspace, its down projection reads it there; op mlp has the object's own.  workspace may be
 * NULL for explain. */
tglu__call tglu__cuda_operation_call(const tglu__problem *problem, tglu__op op,
                                     const tglu__call *call);
/* What an operation's call needs of a row.  Under batch_invariant the stride of x counts
 * for one token as well, so that it takes the row that more of them would. */
tglu__call_facts tglu__cuda_call_facts(const tglu_context *context,
                                       const tglu__problem *problem, tglu__op op,
                                       const tglu__call *call);
/* The launch of an entry for so many tokens. */
void tglu__cuda_launch_choice(const tglu__cuda *cuda, const tglu__problem *problem,
                              const tglu__cuda_entry *entry, int64_t tokens,
                              tglu__choice *choice);
/* Why the output of an operation's call must be stored without TMA, as a clause; NULL if
 * it need not. */
const char *tglu__cuda_direct_store(const tglu__problem *problem, tglu__op op,
                                    const tglu__call *call);
size_t tglu__cuda_workspace_bytes(const tglu_context *context, const void *plan,
                                  int64_t tokens);
tglu_status tglu__cuda_run(const tglu_context *context, const void *plan,
                           const tglu__call *call);

/* ---- explain.c ---- */
size_t tglu__cuda_explain(const tglu_context *context, const void *plan,
                          const tglu__call *call, char *buffer, size_t bytes);
void tglu__cuda_plan_info(const tglu_context *context, const void *plan, int64_t tokens,
                          tglu_plan_info *info);

#endif /* TGLU_CUDA_PLAN_H */
