/* Messages on standard error, in the name of the subcommand. */
#include <stdarg.h>
#include <stdio.h>
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
