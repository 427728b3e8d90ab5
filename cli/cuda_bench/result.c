#include "result.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../cli.h"
#include "../mem.h"

typedef enum kind { KIND_TEXT, KIND_INT, KIND_REAL } kind;

static const struct column {
  const char *name;
  kind kind;
  size_t offset, bytes;  /* bytes: of a text */
  const char *format;
} columns[] = {
#define TEXT(field, size) {#field, KIND_TEXT, offsetof(result, field), size, NULL},
#define INT(field) {#field, KIND_INT, offsetof(result, field), 0, NULL},
#define REAL(field, format) {#field, KIND_REAL, offsetof(result, field), 0, format},
  RESULT_COLUMNS(TEXT, INT, REAL)
#undef TEXT
#undef INT
#undef REAL
};

enum { COLUMNS = sizeof columns / sizeof columns[0], LINE = 2048 };

void result_clear(result *r) {
  memset(r, 0, sizeof *r);
  for (int c = 0; c < COLUMNS; c++) {
    double nan = NAN;
    if (columns[c].kind == KIND_REAL) memcpy((char *)r + columns[c].offset, &nan, sizeof nan);
  }
}

void result_push(result_list *list, const result *r) {
  if (list->count == list->capacity) {
    list->capacity = list->capacity ? 2 * list->capacity : 32;
    list->items = mem_resize(list->items, list->capacity * sizeof *list->items);
  }
  list->items[list->count++] = *r;
}

void result_free(result_list *list) {
  mem_free(list->items);
  memset(list, 0, sizeof *list);
}

void result_text(char *field, size_t bytes, const char *text) {
  snprintf(field, bytes, "%s", text ? text : "");
}

/* ---- writing ---- */

/* Commas and line ends have no place in these texts: they become spaces. */
static void put_text(char *line, size_t *at, const char *text) {
  for (; *text && *at < LINE - 2; text++) {
    line[(*at)++] = strchr(",\"\n\r", *text) ? ' ' : *text;
  }
}

static size_t format_line(const result *r, char *line) {
  size_t at = 0;
  for (int c = 0; c < COLUMNS; c++) {
    const char *field = (const char *)r + columns[c].offset;
    char number[64] = "";
    if (columns[c].kind == KIND_INT) {
      int64_t value;
      memcpy(&value, field, sizeof value);
      snprintf(number, sizeof number, "%lld", (long long)value);
    } else if (columns[c].kind == KIND_REAL) {
      double value;
      memcpy(&value, field, sizeof value);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      if (isfinite(value)) snprintf(number, sizeof number, columns[c].format, value);
#pragma GCC diagnostic pop
    }
    put_text(line, &at, columns[c].kind == KIND_TEXT ? field : number);
    line[at++] = c + 1 < COLUMNS ? ',' : '\n';
  }
  return at;
}

static size_t format_head(char *line) {
  size_t at = 0;
  for (int c = 0; c < COLUMNS; c++) {
    put_text(line, &at, columns[c].name);
    line[at++] = c + 1 < COLUMNS ? ',' : '\n';
  }
  return at;
}

static int write_all(int file, const char *path, const char *text, size_t bytes) {
  ssize_t written = write(file, text, bytes);
  if (written == (ssize_t)bytes) return CLI_OK;
  return cli_error(CLI_RUNTIME, "--out: %s: write failed: %s", path,
                   written < 0 ? strerror(errno) : "the disk is full");
}

int result_append(const char *path, const result *r) {
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  struct stat about;
  if (file < 0 || fstat(file, &about) != 0) {
    int code = cli_error(CLI_INPUT, "--out: %s: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return code;
  }
  char line[LINE];
  int code = CLI_OK;
  if (about.st_size == 0) code = write_all(file, path, line, format_head(line));
  if (code == CLI_OK) code = write_all(file, path, line, format_line(r, line));
  if (close(file) != 0 && code == CLI_OK) {
    code = cli_error(CLI_RUNTIME, "--out: %s: %s", path, strerror(errno));
  }
  return code;
}

/* ---- reading ---- */

/* Cuts the next field off *text. */
static char *next_field(char **text) {
  char *field = *text;
  if (!field) return NULL;
  char *end = strchr(field, ',');
  if (end) *end = 0;
  *text = end ? end + 1 : NULL;
  return field;
}

static int set_field(result *r, const struct column *c, const char *text) {
  char *field = (char *)r + c->offset;
  char *end = NULL;
  if (c->kind == KIND_TEXT) {
    result_text(field, c->bytes, text);
    return 1;
  }
  if (!*text) return c->kind == KIND_REAL; /* stays NaN */
  if (c->kind == KIND_INT) {
    int64_t value = strtoll(text, &end, 10);
    memcpy(field, &value, sizeof value);
  } else {
    double value = strtod(text, &end);
    memcpy(field, &value, sizeof value);
  }
  return end != text && !*end;
}

static int parse_head(const char *path, char *line, int *map, int *count) {
  unsigned seen = 0;
  char *text;
  for (*count = 0; (text = next_field(&line)); (*count)++) {
    if (*count == 128) return cli_error(CLI_INPUT, "%s: more than 128 columns", path);
    map[*count] = -1;
    for (int c = 0; c < COLUMNS; c++) {
      if (strcmp(columns[c].name, text) == 0) map[*count] = c;
    }
    if (map[*count] >= 0) seen++;
  }
  if (seen < 30) {
    return cli_error(CLI_INPUT, "%s: the first line names %u of the columns of a results "
                     "file, 30 at least are needed", path, seen);
  }
  return CLI_OK;
}

static int parse_line(const char *path, int number, char *line, const int *map, int count,
                      result *r) {
  result_clear(r);
  for (int i = 0; i < count; i++) {
    char *text = next_field(&line);
    if (!text) {
      return cli_error(CLI_INPUT, "%s: line %d has %d fields, not %d", path, number, i, count);
    }
    if (map[i] >= 0 && !set_field(r, &columns[map[i]], text)) {
      return cli_error(CLI_INPUT, "%s: line %d: %s: \"%s\" is not a number", path, number,
                       columns[map[i]].name, text);
    }
  }
  if (line) return cli_error(CLI_INPUT, "%s: line %d has too many fields", path, number);
  return CLI_OK;
}

int result_read(const char *path, int may_miss, result_list *list) {
  FILE *file = fopen(path, "r");
  if (!file) {
    if (may_miss && errno == ENOENT) return CLI_OK;
    return cli_error(CLI_INPUT, "%s: %s", path, strerror(errno));
  }
  char line[LINE];
  int map[128], count = 0, code = CLI_OK;
  for (int number = 1; code == CLI_OK && fgets(line, sizeof line, file); number++) {
    size_t length = strcspn(line, "\r\n");
    if (!line[length]) {
      code = cli_error(CLI_INPUT, "%s: line %d is cut short or too long", path, number);
      break;
    }
    line[length] = 0;
    result r;
    if (number == 1) {
      code = parse_head(path, line, map, &count);
    } else {
      code = parse_line(path, number, line, map, count, &r);
      if (code == CLI_OK) result_push(list, &r);
    }
  }
  if (code == CLI_OK && ferror(file)) code = cli_error(CLI_INPUT, "%s: read failed", path);
  fclose(file);
  return code;
}
