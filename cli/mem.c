#include "mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

static void out_of_memory(void) {
  exit(cli_error(CLI_RUNTIME, "out of memory"));
}

void *mem_zeroed(size_t count, size_t bytes) {
  void *pointer = calloc(count ? count : 1, bytes ? bytes : 1);
  if (!pointer) out_of_memory();
  return pointer;
}

void *mem_resize(void *pointer, size_t bytes) {
  void *moved = realloc(pointer, bytes ? bytes : 1);
  if (!moved) out_of_memory();
  return moved;
}

char *mem_text(const char *format, ...) {
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  int length = vsnprintf(NULL, 0, format, list);
  va_end(list);
  char *text = length < 0 ? NULL : malloc((size_t)length + 1);
  if (!text) out_of_memory();
  vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

void mem_free(void *pointer) { free(pointer); }
