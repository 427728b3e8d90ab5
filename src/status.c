/* Statuses, this thread's message, and the size field that begins every struct. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[1024];

/* Formats aside first: an argument may be the message that is being replaced. */
tglu_status tglu__fail(tglu_status status, const char *format, ...)
{
  char text[sizeof last_error];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(last_error, text, strlen(text) + 1);
  return status;
}

const char *tglu_last_error(void) { return last_error; }

const char *tglu_status_name(tglu_status status)
{
  switch (status) {
#define STATUS_NAME(name, value, text) case TGLU_##name: return "TGLU_" #name;
    TGLU_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default: return "TGLU_UNKNOWN";
  }
}

const char *tglu_status_text(tglu_status status)
{
  switch (status) {
#define STATUS_TEXT(name, value, text) case TGLU_##name: return text;
    TGLU_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default: return "unknown status";
  }
}

uint32_t tglu_version(void)
{
  return TGLU_VERSION_MAJOR * 10000 + TGLU_VERSION_MINOR * 100 + TGLU_VERSION_PATCH;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *tglu_version_string(void)
{
  return TEXT(TGLU_VERSION_MAJOR) "." TEXT(TGLU_VERSION_MINOR) "." TEXT(TGLU_VERSION_PATCH);
}

/* A size beyond this was never set by an init function; its tail is not read. */
#define LARGEST_STRUCT 4096

static tglu_status check_size(const char *name, const void *given, size_t first,
                              size_t known, size_t *size)
{
  if (!given)
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "%s: must not be NULL", name);
  memcpy(size, given, sizeof *size);
  if (*size < first || *size > LARGEST_STRUCT)
    return tglu__fail(TGLU_ERR_INVALID_ARGUMENT,
                      "%s: its size field is %zu, which no init function sets (this "
                      "library's struct has %zu bytes)", name, *size, known);
  const unsigned char *bytes = given;
  for (size_t i = known; i < *size; i++)
    if (bytes[i] != 0)
      return tglu__fail(TGLU_ERR_INVALID_ARGUMENT,
                        "%s: %zu bytes long, with a field set beyond the %zu bytes that "
                        "this library (%s) knows", name, *size, known,
                        tglu_version_string());
  return TGLU_OK;
}

tglu_status tglu__struct_in(const char *name, const void *given, size_t first,
                            size_t known, void *copy)
{
  size_t size = 0;
  tglu_status status = check_size(name, given, first, known, &size);
  if (status == TGLU_OK) memcpy(copy, given, size < known ? size : known);
  return status;
}

tglu_status tglu__struct_out(const char *name, void *given, size_t first, size_t known,
                             const void *filled)
{
  size_t size = 0;
  tglu_status status = check_size(name, given, first, known, &size);
  if (status != TGLU_OK) return status;
  memcpy(given, filled, size < known ? size : known);
  memcpy(given, &size, sizeof size);
  return TGLU_OK;
}
