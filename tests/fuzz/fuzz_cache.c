/* Fuzz target: the input is a tuning cache, and once more the body of one whose last line is
 * right, which no change of bytes would hit upon. */
#include "plan/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static const char place[] = "0.1.0\t0123456789abcdef\tcuda\tNVIDIA H200\t132\t13000\t";

static void use_body(const char *body, size_t length, char *work)
{
  char key[TGLU__CACHE_LINE_BYTES], line[2 * TGLU__CACHE_LINE_BYTES];
  const char *cursor = body, *end = body + length;
  tglu__cache_line item;
  size_t lines = 0;
  for (int kind; (kind = tglu__cache_next(&cursor, end, place, &item)) != -2; lines++) {
    REQUIRE(cursor <= end && kind >= -1 && kind <= 1);
    if (kind != 1) continue;
    REQUIRE(item.n > 0 && item.k > 0 && item.tokens > 0 && item.ns > 0);
    REQUIRE(tglu_dtype_name(item.dtype) && item.row_length > 0);
    REQUIRE(item.row > body && item.row + item.row_length < end);
    REQUIRE(!item.second || (item.second > item.row && item.second_ns > 0));
  }
  tglu__cache_key(place, TGLU_DTYPE_F16, TGLU__TUNE_DOWN, 7, 9, 64, key, sizeof key);
  snprintf(line, sizeof line, "%srow\t5\t-\t0\n", key);
  const size_t bytes = tglu__cache_merge(body, length, key, line, work);
  const char *merged;
  size_t merged_length;
  REQUIRE(bytes <= TGLU__CACHE_MOST_BYTES);
  REQUIRE(tglu__cache_open(work, bytes, &merged, &merged_length) == NULL);
  REQUIRE(merged_length >= strlen(line));
  REQUIRE(memcmp(merged + merged_length - strlen(line), line, strlen(line)) == 0);
  REQUIRE(merged_length <= length + strlen(line));
}

/* Puts first and last line around the input. */
static size_t wrap(const uint8_t *data, size_t size, char *out)
{
  size_t length = (size_t)sprintf(out, "tileglu-tune 1\n"), lines = 0;
  memcpy(out + length, data, size);
  length += size;
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)out[i]) * UINT64_C(0x100000001b3);
  for (size_t i = 0; i < size; i++) lines += data[i] == '\n';
  return length + (size_t)sprintf(out + length, "end %zu %016llx\n", lines,
                                  (unsigned long long)hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static char work[TGLU__CACHE_ROOM];
  const char *body;
  size_t length;
  char *copy = malloc(size + 128); /* its end is the sanitizer's */
  REQUIRE(copy);
  const size_t wrapped = wrap(data, size, copy);
  char *bytes = malloc(wrapped);
  REQUIRE(bytes);
  memcpy(bytes, copy, wrapped);
  if (tglu__cache_open(bytes, wrapped, &body, &length) == NULL) use_body(body, length, work);
  free(bytes);
  free(copy);
  bytes = malloc(size ? size : 1);
  REQUIRE(bytes);
  if (size) memcpy(bytes, data, size);
  if (tglu__cache_open(bytes, size, &body, &length) == NULL) use_body(body, length, work);
  free(bytes);
  return 0;
}
