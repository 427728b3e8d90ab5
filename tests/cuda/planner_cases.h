/* What the planner's tests ask about: devices, calls and models. */
#ifndef TGLU_TEST_CUDA_PLANNER_CASES_H
#define TGLU_TEST_CUDA_PLANNER_CASES_H

#include "plan/choose.h"

/* An H200 but for its SMs, of which clusters use all. */
static inline tglu__device_facts device(int32_t sms) {
  tglu__device_facts facts = {.sm_count = sms, .smem_bytes = 232448, .cooperative = 1};
  for (int size = 1; size <= TGLU__MAX_CLUSTER; ++size) facts.clusters[size] = sms / size;
  return facts;
}

/* A card like the one that was measured. */
static inline tglu__device_facts h200(void) {
  tglu__device_facts facts = device(132);
  facts.clusters[4] = 30;
  facts.clusters[8] = 15;
  return facts;
}

/* With an aligned x. */
static inline tglu__call_facts call(int64_t tokens) {
  return (tglu__call_facts){.tokens = tokens, .x_aligned = true, .x_reachable = true};
}

/* Hidden and intermediate size of Qwen-2.5, 0.5B to 72B. */
static const int64_t models[][2] = {{896, 4864}, {1536, 8960}, {2048, 11008}, {3584, 18944},
                                    {5120, 13824}, {5120, 27648}, {8192, 29568}};
enum { MODELS = 7 };

#endif /* TGLU_TEST_CUDA_PLANNER_CASES_H */
