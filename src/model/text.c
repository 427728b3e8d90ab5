/* Names, paths and shapes made safe for messages. */
#include "model_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 95 };

static bool is_continuation(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

static void copy_printable(char *to, const char *from, size_t length)
{
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)from[i];
    to[i] = c < 0x20 || c == 0x7f ? '?' : from[i];
  }
  to[length] = '\0';
}

tglu__shown tglu__show(const char *name)
{
  tglu__shown shown;
  size_t length = strnlen(name, SHOWN_MAX + 1);
  if (length <= SHOWN_MAX) {
    copy_printable(shown.text, name, length);
    return shown;
  }
  length = SHOWN_MAX - 3;
  while (length > 0 && is_continuation(name[length])) length--;
  copy_printable(shown.text, name, length);
  memcpy(shown.text + length, "...", 4);
  return shown;
}

tglu__shown tglu__show_path(const char *path)
{
  size_t length = strlen(path);
  if (length <= SHOWN_MAX) return tglu__show(path);
  tglu__shown shown;
  size_t skip = length - (SHOWN_MAX - 3);
  while (is_continuation(path[skip])) skip++;
  memcpy(shown.text, "...", 3);
  copy_printable(shown.text + 3, path + skip, length - skip);
  return shown;
}

tglu__shown tglu__show_shape(const int64_t *shape, int32_t rank)
{
  tglu__shown shown;
  size_t at = 0, room = sizeof(shown.text);
  shown.text[at++] = '[';
  for (int32_t i = 0; i < rank && at < room - 26; i++) {
    at += (size_t)snprintf(shown.text + at, room - at, i ? ", %" PRId64 : "%" PRId64,
                           shape[i]);
  }
  shown.text[at++] = ']';
  shown.text[at] = '\0';
  return shown;
}

tglu_status tglu__no_memory(const char *file)
{
  return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "%s: no memory for its tables",
                    tglu__show_path(file).text);
}
