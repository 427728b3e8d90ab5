#include "table.h"

#include <stdarg.h>
#include <string.h>

#include "mem.h"

struct table {
  size_t columns;
  size_t cells, capacity;
  char **text;         /* the heads first */
};

static void push(table *t, char *text) {
  if (t->cells == t->capacity) {
    t->capacity = t->capacity ? 2 * t->capacity : 64;
    t->text = mem_resize(t->text, t->capacity * sizeof *t->text);
  }
  t->text[t->cells++] = text;
}

table *table_new(const char *const *heads) {
  table *t = mem_zeroed(1, sizeof *t);
  for (; heads[t->columns]; t->columns++) push(t, mem_text("%s", heads[t->columns]));
  return t;
}

void table_cell(table *t, const char *format, ...) {
  va_list list;
  va_start(list, format);
  char buffer[512];
  vsnprintf(buffer, sizeof buffer, format, list);
  va_end(list);
  push(t, mem_text("%s", buffer));
}

static int is_left(const table *t, size_t column) { return t->text[column][0] == '<'; }

static const char *shown(const table *t, size_t cell) {
  const char *text = t->text[cell];
  return cell < t->columns && text[0] == '<' ? text + 1 : text;
}

static size_t width_of(const table *t, size_t column) {
  size_t width = 0;
  for (size_t i = column; i < t->cells; i += t->columns) {
    size_t length = strlen(shown(t, i));
    if (length > width) width = length;
  }
  return width;
}

void table_print(const table *t, FILE *stream) {
  for (size_t i = 0; i < t->cells; i++) {
    size_t column = i % t->columns;
    int last = column + 1 == t->columns;
    int width = (int)width_of(t, column);
    if (!is_left(t, column)) {
      fprintf(stream, "%*s", width, shown(t, i));
    } else {
      fprintf(stream, "%-*s", last ? 0 : width, shown(t, i));
    }
    fputs(last ? "\n" : "  ", stream);
  }
}

void table_free(table *t) {
  if (!t) return;
  for (size_t i = 0; i < t->cells; i++) mem_free(t->text[i]);
  mem_free(t->text);
  mem_free(t);
}
