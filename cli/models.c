#include "models.h"

#include <strings.h>

const model_shape model_shapes[] = {
#define MODEL(name, hidden, intermediate, activation, layout) \
  {name, hidden, intermediate, TGLU_ACTIVATION_##activation, TGLU_LAYOUT_##layout},
#include "models.def"
#undef MODEL
};

const size_t model_shape_count = sizeof model_shapes / sizeof model_shapes[0];

const model_shape *model_shape_find(const char *name) {
  for (size_t i = 0; i < model_shape_count; i++) {
    if (strcasecmp(model_shapes[i].name, name) == 0) return &model_shapes[i];
  }
  return NULL;
}
