/* The table of model shapes, models.def. */
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include <stddef.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

typedef struct model_shape {
  const char *name;
  int64_t hidden, intermediate;
  tglu_activation activation;
  tglu_layout layout;
} model_shape;

extern const model_shape model_shapes[];
extern const size_t model_shape_count;

/* By name, in any case; NULL if there is none. */
const model_shape *model_shape_find(const char *name);

#endif /* CLI_MODELS_H */
