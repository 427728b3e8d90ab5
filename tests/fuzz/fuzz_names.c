/* Fuzz target: the input is a list of tensors, one a line, over one buffer of data:
 *   one byte: row of the type table; one byte: rank; a byte per dimension; the name
 * A line that begins with '=' is a member of __metadata__: =key=value */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { TYPES = 22, DATA_BYTES = 16 * 16 * 16 * 16 * 8 };

static uint8_t data_section[DATA_BYTES];

static void add_metadata(tglu__table *table, const char *line)
{
  char *key = strdup(line);
  REQUIRE(key);
  char *value = strchr(key, '=');
  if (value) {
    *value++ = '\0';
    if (!tglu__table_find_metadata(table, key)) {
      REQUIRE(tglu__pairs_add(&table->metadata, &table->metadata_count,
                              &table->metadata_capacity, key, value));
      tglu__table_sort(table);
    }
  }
  free(key);
}

static void add_tensor(tglu__table *table, const uint8_t *line, size_t length)
{
  static const uint64_t bits[TYPES] = {16, 16, 32, 64, 64, 8, 8, 8, 16, 16, 32, 32, 64, 64,
                                       8, 8, 8, 8, 8, 8, 8, 8};
  if (length < 2) return;
  tglu__entry entry = {.dtype = line[0] % TYPES, .rank = line[1] % 5};
  size_t at = 2;
  uint64_t elements = 1;
  for (int32_t i = 0; i < entry.rank; i++, at++) {
    if (at == length) return;
    entry.shape[i] = line[at] % 16;
    elements *= (uint64_t)entry.shape[i];
  }
  entry.end = elements * bits[entry.dtype] / 8;
  entry.name = strndup((const char *)line + at, length - at);
  REQUIRE(entry.name);
  if (tglu__table_find(table, entry.name)) {
    free(entry.name);
    return;
  }
  REQUIRE(tglu__table_add(table, &entry));
  tglu__table_sort(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tglu__table table = {0};
  if (size > 4096) return 0;
  while (size) {
    const uint8_t *end = memchr(data, '\n', size);
    size_t length = end ? (size_t)(end - data) : size;
    if (length && data[0] == '=') {
      char *line = strndup((const char *)data + 1, length - 1);
      REQUIRE(line);
      add_metadata(&table, line);
      free(line);
    } else {
      add_tensor(&table, data, length);
    }
    data += length + (end != NULL);
    size -= length + (end != NULL);
  }
  tglu_model *model = fuzz_model(&table, data_section, DATA_BYTES, 0);
  fuzz_use_model(model);
  tglu__model_free(model);
  return 0;
}
