/* Fuzz target: the input is a whole safetensors file. */
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  uint8_t head[16] = {0};
  uint64_t header_bytes = 0;
  if (size) memcpy(head, data, size < 16 ? size : 16);
  tglu_status status = tglu__safetensors_check_head("fuzz", head, size, &header_bytes);
  fuzz_check_status(status);
  if (status != TGLU_OK) return 0;
  REQUIRE(header_bytes <= size - 8);

  tglu__span header = {(const char *)data + 8, (size_t)header_bytes};
  tglu__table table;
  status = tglu__safetensors_parse("fuzz", header, size - 8 - header_bytes, &table);
  fuzz_check_status(status);
  if (status != TGLU_OK) {
    REQUIRE(!table.entries && !table.metadata && table.count == 0);
    return 0;
  }
  tglu_model *model = fuzz_model(&table, data, size, 8 + header_bytes);
  fuzz_use_model(model);
  tglu__model_free(model);
  return 0;
}
