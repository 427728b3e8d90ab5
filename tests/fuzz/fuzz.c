#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile uint8_t sink;

void fuzz_broken(const char *rule, const char *file, int line)
{
  fprintf(stderr, "%s:%d: broken: %s; last error: %s\n", file, line, rule, tglu_last_error());
  abort();
}

void fuzz_check_status(tglu_status status)
{
  if (status == TGLU_OK) return;
  REQUIRE(status != TGLU_ERR_OUT_OF_MEMORY && status != TGLU_ERR_INTERNAL);
  const char *message = tglu_last_error();
  REQUIRE(strlen(message) > 10 && strlen(message) < 1000);
  for (const char *c = message; *c; c++) REQUIRE((unsigned char)*c >= 0x20);
}

tglu_model *fuzz_model(tglu__table *table, const uint8_t *map, uint64_t bytes,
                       uint64_t data_at)
{
  tglu_model *model = calloc(1, sizeof *model);
  REQUIRE(model);
  model->files = calloc(1, sizeof *model->files);
  REQUIRE(model->files);
  *model->files = (tglu__file){.path = strdup("fuzz"), .fd = -1, .map = map,
                               .bytes = bytes, .data_at = data_at};
  model->file_count = 1;
  model->table = *table;
  *table = (tglu__table){0};
  fuzz_check_status(tglu__model_finish(model, "silu"));
  return model;
}

/* count elements at data lie inside the file; their ends are read. */
static void check_inside(const tglu_model *model, const void *data, uint64_t bytes)
{
  const tglu__file *file = &model->files[0];
  const uint8_t *at = data;
  REQUIRE(at >= file->map + file->data_at);
  REQUIRE(bytes <= file->bytes - (uint64_t)(at - file->map));
  if (bytes) sink = at[0] ^ at[bytes - 1];
}

static void check_weight(const tglu_model *model, const tglu_glu_desc *glu, const void *data,
                         int64_t rows, int64_t columns)
{
  if (!data) return;
  REQUIRE(rows > 0 && columns > 0);
  check_inside(model, data, (uint64_t)rows * (uint64_t)columns
                            * tglu_dtype_bytes(glu->dtype));
}

static void check_layer(const tglu_model *model, int32_t layer)
{
  tglu_model_mlp mlp;
  tglu_model_mlp_init(&mlp);
  tglu_status status = tglu_model_layer_mlp(model, layer, &mlp);
  fuzz_check_status(status);
  if (status != TGLU_OK) return;
  const tglu_glu_desc *glu = &mlp.desc.glu;
  int64_t n = glu->intermediate, k = glu->hidden;
  REQUIRE(mlp.layer == layer && mlp.family && mlp.prefix && mlp.activation_source);
  REQUIRE(mlp.desc.down && (glu->gate_up ? !glu->gate && !glu->up : glu->gate && glu->up));
  check_weight(model, glu, glu->gate, n, k);
  check_weight(model, glu, glu->up, n, k);
  check_weight(model, glu, glu->gate_up, 2 * n, k);
  check_weight(model, glu, mlp.desc.down, k, n);
  check_weight(model, glu, glu->gate_bias, 1, n);
  check_weight(model, glu, glu->up_bias, 1, n);
  check_weight(model, glu, glu->gate_up_bias, 1, 2 * n);
  check_weight(model, glu, mlp.desc.down_bias, 1, k);
}

void fuzz_use_model(const tglu_model *model)
{
  int64_t count = tglu_model_tensor_count(model);
  for (int64_t i = 0; i < count; i++) {
    tglu_tensor t, again;
    tglu_tensor_init(&t);
    tglu_tensor_init(&again);
    REQUIRE(tglu_model_tensor_at(model, i, &t) == TGLU_OK);
    REQUIRE(t.rank >= 0 && t.rank <= TGLU_MODEL_MAX_RANK);
    check_inside(model, t.data, t.bytes);
    REQUIRE(tglu_model_find_tensor(model, t.name, &again) == TGLU_OK);
    REQUIRE(again.data == t.data && strcmp(again.name, t.name) == 0);
  }
  tglu_tensor none;
  tglu_tensor_init(&none);
  fuzz_check_status(tglu_model_find_tensor(model, "model.layers.0.mlp.up", &none));
  int32_t layers = tglu_model_layer_count(model), last = -1;
  for (int32_t i = 0; i < layers && i < 8; i++) {
    int32_t layer = -1;
    REQUIRE(tglu_model_layer_at(model, i, &layer) == TGLU_OK);
    REQUIRE(layer > last);
    last = layer;
    check_layer(model, layer);
  }
  check_layer(model, 3);
}
