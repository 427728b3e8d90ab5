/* Fuzz target: the input is a config.json, put beside a small model. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {
  "hidden_act", "hidden_size", "intermediate_size", "model_type", "mlp_bias", "",
};

static void add(tglu__table *table, const char *name, int64_t rows, int64_t columns)
{
  tglu__entry entry = {.name = strdup(name), .rank = 2, .shape = {rows, columns},
                       .end = (uint64_t)(2 * rows * columns)};
  REQUIRE(entry.name && tglu__table_add(table, &entry));
}

static void use_config(const tglu_model *model)
{
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    int64_t number = 0;
    const char *text = NULL;
    tglu_status status = tglu_model_config_int(model, keys[i], &number);
    fuzz_check_status(status);
    tglu_status other = tglu_model_config_string(model, keys[i], &text);
    fuzz_check_status(other);
    REQUIRE(status != TGLU_OK || other != TGLU_OK);
    REQUIRE((status == TGLU_ERR_NOT_FOUND) == (other == TGLU_ERR_NOT_FOUND));
  }
  tglu_model_mlp mlp;
  tglu_model_mlp_init(&mlp);
  tglu_status status = tglu_model_layer_mlp(model, 0, &mlp);
  fuzz_check_status(status);
  if (status != TGLU_OK) return;
  REQUIRE(tglu_activation_name(mlp.desc.glu.activation));
  REQUIRE(mlp.activation_source && mlp.activation_source[0]);
  REQUIRE(mlp.desc.glu.limit > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const uint8_t map[64];
  tglu__table table = {0};
  add(&table, "model.layers.0.mlp.gate_proj.weight", 3, 2);
  add(&table, "model.layers.0.mlp.up_proj.weight", 3, 2);
  add(&table, "model.layers.0.mlp.down_proj.weight", 2, 3);
  tglu__table_sort(&table);
  tglu_model *model = fuzz_model(&table, map, sizeof map, 0);
  model->option_activation[0] = '\0';

  tglu__span text = {(const char *)data, size};
  tglu_status status = tglu__config_parse("fuzz", text, &model->config);
  fuzz_check_status(status);
  if (status == TGLU_OK) {
    fuzz_check_status(tglu__model_finish(model, NULL));
    use_config(model);
  }
  tglu__model_free(model);
  return 0;
}
