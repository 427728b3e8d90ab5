#include "sweep.h"

#include "rng.h"

enum {
  DTYPES = 3, ACTIVATIONS = 6, LAYOUTS = 4, OPS = 2,
  COMBINATIONS = DTYPES * ACTIVATIONS * LAYOUTS * OPS,
  FULL_ROUNDS = 8
};

/* Edges of tiles and vectors, and one to either side. */
static const int64_t token_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 24,
                                      25, 31, 33, 48, 63, 65, 97, 129};
static const int64_t matrix_sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32,
                                       33, 47, 49, 63, 64, 65, 96, 100, 127, 129, 200, 255,
                                       257, 320};
static const int64_t large_sizes[] = {511, 513, 576, 768, 1000, 1001, 1023, 1025, 1536};
static const int64_t pads[] = {0, 0, 0, 1, 3, 7, 8, 64};
static const int64_t misalignments[] = {0, 0, 0, 1, 2, 4, 8, 30};

#define PICK(list) (list)[rng_below(&random, sizeof(list) / sizeof(list)[0])]

size_t sweep_count(int full) { return full ? FULL_ROUNDS * COMBINATIONS : COMBINATIONS; }

spec sweep_at(size_t index, int full, uint64_t seed) {
  rng random;
  rng_seed(&random, seed * UINT64_C(1000003) + index);
  tglu_glu_desc defaults;
  tglu_glu_desc_init(&defaults);
  size_t combination = index % COMBINATIONS;
  spec s = {.alpha = defaults.alpha, .limit = defaults.limit, .offset = defaults.offset};
  s.op = combination % OPS ? OP_MLP : OP_GLU;
  combination /= OPS;
  s.dtype = (tglu_dtype)(1 + combination % DTYPES);
  combination /= DTYPES;
  s.activation = (tglu_activation)(1 + combination % ACTIVATIONS);
  s.layout = (tglu_layout)(1 + combination / ACTIVATIONS);
  s.tokens = PICK(token_sizes);
  s.hidden = PICK(matrix_sizes);
  s.intermediate = PICK(matrix_sizes);
  if (full && rng_below(&random, 4) == 0) s.hidden = PICK(large_sizes);
  if (full && rng_below(&random, 4) == 0) s.intermediate = PICK(large_sizes);
  s.bias = (int)rng_below(&random, 2);
  s.residual = s.op == OP_MLP && rng_below(&random, 2);
  s.pad = PICK(pads);
  s.misalign = PICK(misalignments);
  if (s.activation == TGLU_ACTIVATION_SWIGLUOAI && rng_below(&random, 2)) {
    s.alpha = 1.5f;
    s.limit = 0.75f;
    s.offset = -0.25f;
  }
  return s;
}
