#include "row_names.h"

#include <string.h>

#include "cli.h"

const char *row_short_name(const char *row) {
  const char *isa = strstr(row, "_sm90_");
  return isa ? isa + 6 : row;
}

/* Whether the first `length` characters of name are the row's name, whole or short. */
static int is_name(const char *name, size_t length, const char *row) {
  const char *brief = row_short_name(row);
  return (strlen(row) == length && strncmp(name, row, length) == 0) ||
         (strlen(brief) == length && strncmp(name, brief, length) == 0);
}

int row_names_hold(const char *names, const char *row) {
  while (*names) {
    size_t length = strcspn(names, ",");
    if (is_name(names, length, row)) return 1;
    names += length + (names[length] == ',');
  }
  return 0;
}

int row_names_unknown(const char *names, const char *const *rows, int count, const char **name) {
  for (;;) {
    size_t length = strcspn(names, ",");
    int known = 0;
    for (int i = 0; i < count && !known; i++) known = is_name(names, length, rows[i]);
    *name = names;
    if (!known) return length ? (int)length : -1;
    if (!names[length]) return 0;
    names += length + 1;
  }
}

int row_names_check(const char *names, const char *const *rows, int count, const char *op,
                    const char *words) {
  const char *unknown;
  int length = row_names_unknown(names, rows, count, &unknown);
  if (length == 0) return CLI_OK;
  return cli_error(CLI_USAGE, "--rows: \"%.*s\" is no row of op %s that can be used here for the "
                   "types asked for (\"tileglu info\" lists them), and none of %s",
                   length < 0 ? 0 : length, unknown, op, words);
}
