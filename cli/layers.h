/* The layers of a model file that the command line names, and the hidden states that
 * go through them. */
#ifndef CLI_LAYERS_H
#define CLI_LAYERS_H

#include <stdint.h>

#include <tileglu/model.h>

#include "hot.h"

/* Whether a config.json may name this activation; if not, the library's last error is
 * "activation: why not". */
int layers_activation_known(const char *name);

/* Opens a file or folder.  Returns an exit code, having said what is wrong. */
int layers_open(const char *path, const char *config, const char *activation,
                tglu_model **model);

/* choice: "all", "3", "0-5", or such parts joined by commas.  *numbers is to be freed
 * with mem_free. */
int layers_choose(const tglu_model *model, const char *path, const char *choice,
                  int32_t **numbers, int *count);

/* One layer, its weights in the file's type or converted to another. */
typedef struct layer {
  tglu_model_mlp mlp;
  void *converted[6];
} layer;

/* dtype 0: keep the file's. */
int layer_load(layer *l, const tglu_model *model, const char *path, int32_t number,
               tglu_dtype dtype, const hot_loops *hot);
void layer_free(layer *l);

/* Hidden states: from a file, or seeded normal numbers. */
typedef struct hidden_states {
  int64_t tokens, hidden;
  double *value;         /* [tokens, hidden]; NULL: random */
  char *source;          /* for the report */
} hidden_states;

/* input: FILE.safetensors or FILE.safetensors:TENSOR; NULL: random.  tokens -1: as
 * many as the file has (random: 16). */
int hidden_load(hidden_states *states, const char *input, int64_t tokens, uint64_t seed);
/* A tight [tokens, hidden] matrix of the type; NULL, with a message, where hidden does
 * not fit.  To be freed with mem_free. */
void *hidden_matrix(const hidden_states *states, int64_t hidden, tglu_dtype dtype,
                    uint64_t seed);
void hidden_free(hidden_states *states);

#endif /* CLI_LAYERS_H */
