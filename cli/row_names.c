#include "row_names.h"

#include <stdio.h>
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

/* The word that the first `length` characters of name are; NULL: none. */
static const char *find_word(const char *name, size_t length, const char *const *words) {
  for (; *words; words++) {
    if (strlen(*words) == length && strncmp(name, *words, length) == 0) return *words;
  }
  return NULL;
}

int row_names_unknown(const char *names, const char *const *words, const char *const *rows,
                      int count, const char **name) {
  for (;;) {
    size_t length = strcspn(names, ",");
    int known = find_word(names, length, words) != NULL;
    for (int i = 0; i < count && !known; i++) known = is_name(names, length, rows[i]);
    *name = names;
    if (!known) return length ? (int)length : -1;
    if (!names[length]) return 0;
    names += length + 1;
  }
}

/* The first word in the list; NULL: it has none. */
static const char *first_word(const char *names, const char *const *words) {
  for (;;) {
    size_t length = strcspn(names, ",");
    const char *word = find_word(names, length, words);
    if (word || !names[length]) return word;
    names += length + 1;
  }
}

int row_names_check(const char *names, const char *const *words, const char *const *rows,
                    int count, const char *op) {
  const char *unknown, *word = first_word(names, words);
  char all[128] = "";
  if (word && strcmp(word, names) == 0) return CLI_OK;
  for (size_t i = 0, at = 0; words[i] && at < sizeof all; i++) {
    at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", words[i]);
  }
  int length = row_names_unknown(names, words, rows, count, &unknown);
  if (length) {
    return cli_error(CLI_USAGE, "--rows: \"%.*s\" is no row of op %s that can be used here for "
                     "the types asked for (\"tileglu info\" lists them), and none of %s",
                     length < 0 ? 0 : length, unknown, op, all);
  }
  if (!word) return CLI_OK;
  return cli_error(CLI_USAGE, "--rows: \"%s\" stands alone, not in a list: one of %s, or names "
                   "of rows", word, all);
}
