/* Fuzz target: the input is a model.safetensors.index.json. */
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tglu__index index;
  tglu__span text = {(const char *)data, size};
  tglu_status status = tglu__index_parse("fuzz", text, &index);
  fuzz_check_status(status);
  if (status != TGLU_OK) {
    REQUIRE(!index.map && index.count == 0);
    return 0;
  }
  REQUIRE(index.count > 0);
  for (size_t i = 0; i < index.count; i++) {
    const char *shard = index.map[i].value;
    REQUIRE(shard[0] && !strchr(shard, '/') && strcmp(shard, "..") != 0);
    REQUIRE(i == 0 || strcmp(index.map[i - 1].key, index.map[i].key) < 0);
  }
  tglu__index_free(&index);
  return 0;
}
