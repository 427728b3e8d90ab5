/* Messages on standard error, in the name of the subcommand. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static char message_name[64] = "tileglu";

void cli_set_name(const char *name) {
  snprintf(message_name, sizeof message_name, "%s", name);
}

const char *cli_name(void) { return message_name; }

static void message(const char *kind, const char *format, va_list list) {
  fflush(stdout);
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr); /* over a progress bar */
  fprintf(stderr, "%s: %s", message_name, kind);
  vfprintf(stderr, format, list);
}

int cli_error(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  message("", format, list);
  va_end(list);
  fputc('\n', stderr);
  return code;
}

void cli_warn(const char *format, ...) {
  va_list list;
  va_start(list, format);
  message("warning: ", format, list);
  va_end(list);
  fputc('\n', stderr);
}

int cli_library_error(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  message("", format, list);
  va_end(list);
  fprintf(stderr, ": %s\n", tglu_last_error());
  return code;
}

/* Whether text begins with path itself, or with a file in that folder. */
static int begins_with_path(const char *text, const char *path) {
  size_t length = strlen(path);
  if (strncmp(text, path, length) != 0) return 0;
  return length == 0 || text[length] == ':' || text[length] == '/' || path[length - 1] == '/';
}

int cli_file_error(int code, const char *what, const char *path) {
  const char *text = tglu_last_error();
  int named = begins_with_path(text, path);
  return cli_error(code, "%s%s%s%s", what, named ? "" : path, named ? "" : ": ", text);
}
