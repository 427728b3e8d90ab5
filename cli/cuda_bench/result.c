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

typedef enum type { TYPE_TEXT, TYPE_INT, TYPE_REAL } type;

/* Fields of the struct by number. */
enum {
#define TEXT(field, size) FIELD_##field,
#define INT(field) FIELD_##field,
#define REAL(field, format) FIELD_##field,
  RESULT_FIELDS(TEXT, INT, REAL)
#undef TEXT
#undef INT
#undef REAL
  FIELDS
};

static const struct field {
  const char *name;
  type type;
  size_t offset, bytes;  /* bytes: of a text */
  const char *format;
} fields[] = {
#define TEXT(field, size) {#field, TYPE_TEXT, offsetof(result, field), size, NULL},
#define INT(field) {#field, TYPE_INT, offsetof(result, field), 0, NULL},
#define REAL(field, format) {#field, TYPE_REAL, offsetof(result, field), 0, format},
  RESULT_FIELDS(TEXT, INT, REAL)
#undef TEXT
#undef INT
#undef REAL
};

enum { LINE = 2048 };

/* A column is a field, or a field under a name of its own. */
typedef struct column {
  int field;
  const char *name;      /* NULL: the field's */
} column;

#define C(field) {FIELD_##field, NULL}
#define NAMED(name, field) {FIELD_##field, #name}
#define BEGINNING C(card), C(driver), C(model), C(m), C(n), C(k), C(dtype), C(activation), \
  C(layout)
#define ACCURACY C(tflops), C(share_of_989), C(tbs), C(rel_l2), C(share_over_1pct),       \
  C(reference_share_over_1pct), C(share_over_1pct_large), C(excluded_share), C(us_min),   \
  C(us_max)

static const column glu_columns[] = {
  C(date), C(commit), C(row_hash), BEGINNING, C(row), C(chosen),
  C(mode), C(pdl), C(sm_clock_mhz), C(us), C(bare_us), C(unfused_us), C(eager_us),
  C(ratio_bare), C(ratio_unfused), C(ratio_eager), ACCURACY, C(bare), C(seed)
};
static const column mlp_columns[] = {
  C(date), C(commit), NAMED(glu_row_hash, row_hash), C(down_row_hash),
  BEGINNING, NAMED(glu_row, row), C(down_row), C(chosen), C(mode), C(pdl),
  C(sm_clock_mhz), C(us), NAMED(gemm3_us, bare_us), C(unfused_us), C(eager_us),
  NAMED(floor_us, read_us), NAMED(ratio_gemm3, ratio_bare), C(ratio_unfused),
  C(ratio_eager), NAMED(floor_over_us, share_of_read), ACCURACY, NAMED(gemm3, bare),
  C(seed)
};
static const column read_columns[] = {
  C(date), C(commit), C(row_hash), C(down_row_hash), BEGINNING, C(op), C(row), C(down_row),
  C(chosen), C(mode), C(pdl), C(sm_clock_mhz), C(us), C(read_us), C(share_of_read), C(weight_tbs),
  C(read_tbs), C(read_kernel), C(seed)
};
static const column invariant_columns[] = {
  C(date), C(commit), C(row_hash), C(down_row_hash),
  C(invariant_row_hash), C(invariant_down_row_hash), BEGINNING, C(op), C(mode), C(pdl),
  C(row), C(down_row), C(us), C(invariant_row), C(invariant_down_row), C(invariant_us),
  C(invariant_cost), C(sm_clock_mhz), C(seed)
};
static const column energy_columns[] = {
  C(date), C(commit), C(row_hash), C(down_row_hash), BEGINNING,
  C(op), C(pdl), C(row), C(down_row), C(variant), C(us), C(watts), C(millijoules),
  C(sm_clock_mhz), C(seconds), C(seed)
};
#undef C
#undef NAMED
#undef BEGINNING
#undef ACCURACY

#define KIND(columns) {columns, sizeof columns / sizeof columns[0]}
static const struct file_kind {
  const column *columns;
  size_t count;
} kinds[] = {
  [RESULT_GLU] = KIND(glu_columns),   [RESULT_MLP] = KIND(mlp_columns),
  [RESULT_READ] = KIND(read_columns), [RESULT_INVARIANT] = KIND(invariant_columns),
  [RESULT_ENERGY] = KIND(energy_columns),
};
#undef KIND

static const char *column_name(const column *c) {
  return c->name ? c->name : fields[c->field].name;
}

void result_clear(result *r) {
  memset(r, 0, sizeof *r);
  for (int i = 0; i < FIELDS; i++) {
    double nan = NAN;
    if (fields[i].type == TYPE_REAL) memcpy((char *)r + fields[i].offset, &nan, sizeof nan);
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

/* The field as text; number is room for one. */
static const char *format_field(const result *r, const struct field *f, char number[64]) {
  const char *from = (const char *)r + f->offset;
  number[0] = 0;
  if (f->type == TYPE_TEXT) return from;
  if (f->type == TYPE_INT) {
    int64_t value;
    memcpy(&value, from, sizeof value);
    snprintf(number, 64, "%lld", (long long)value);
  } else {
    double value;
    memcpy(&value, from, sizeof value);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (isfinite(value)) snprintf(number, 64, f->format, value);
#pragma GCC diagnostic pop
  }
  return number;
}

/* A line, or with r NULL the head. */
static size_t format_line(const struct file_kind *kind, const result *r, char *line) {
  size_t at = 0;
  for (size_t i = 0; i < kind->count; i++) {
    const column *c = &kind->columns[i];
    char number[64];
    put_text(line, &at, r ? format_field(r, &fields[c->field], number) : column_name(c));
    line[at++] = i + 1 < kind->count ? ',' : '\n';
  }
  return at;
}

static int write_all(int file, const char *path, const char *text, size_t bytes) {
  ssize_t written = write(file, text, bytes);
  if (written == (ssize_t)bytes) return CLI_OK;
  return cli_error(CLI_RUNTIME, "%s: write failed: %s", path,
                   written < 0 ? strerror(errno) : "the disk is full");
}

static int check_head(int file, const char *path, const char *head, size_t bytes) {
  char found[LINE];
  ssize_t got = pread(file, found, bytes, 0);
  if (got == (ssize_t)bytes && memcmp(found, head, bytes) == 0) return CLI_OK;
  return cli_error(CLI_INPUT, "%s: its first line names other columns than would be "
                   "written: name another file", path);
}

int result_writable(const char *path, result_kind kind) {
  char folder[4096], head[LINE];
  struct stat about;
  int file = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
  if (file >= 0) {
    int code = CLI_OK;
    if (fstat(file, &about) == 0 && about.st_size > 0) {
      code = check_head(file, path, head, format_line(&kinds[kind], NULL, head));
    }
    close(file);
    return code;
  }
  if (errno != ENOENT) return cli_error(CLI_INPUT, "%s: %s", path, strerror(errno));
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash) slash[slash == folder] = 0; /* "/x" is in "/" */
  if (access(slash ? folder : ".", W_OK) == 0) return CLI_OK;
  return cli_error(CLI_INPUT, "%s: %s", path, strerror(errno));
}

int result_append(const char *path, result_kind kind, const result *r) {
  int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  struct stat about;
  if (file < 0 || fstat(file, &about) != 0) {
    int code = cli_error(CLI_INPUT, "%s: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return code;
  }
  char line[LINE];
  size_t bytes = format_line(&kinds[kind], NULL, line);
  int code = about.st_size == 0 ? write_all(file, path, line, bytes)
                                : check_head(file, path, line, bytes);
  bytes = format_line(&kinds[kind], r, line);
  if (code == CLI_OK) code = write_all(file, path, line, bytes);
  if (close(file) != 0 && code == CLI_OK) {
    code = cli_error(CLI_RUNTIME, "%s: %s", path, strerror(errno));
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

static int set_field(result *r, const struct field *f, const char *text) {
  char *to = (char *)r + f->offset;
  char *end = NULL;
  if (f->type == TYPE_TEXT) {
    result_text(to, f->bytes, text);
    return 1;
  }
  if (!*text) return f->type == TYPE_REAL; /* stays NaN */
  if (f->type == TYPE_INT) {
    int64_t value = strtoll(text, &end, 10);
    memcpy(to, &value, sizeof value);
  } else {
    double value = strtod(text, &end);
    memcpy(to, &value, sizeof value);
  }
  return end != text && !*end;
}

/* The field of a column of either kind; -1 if there is none of this name. */
static int find_field(const char *name) {
  for (int kind = RESULT_GLU; kind <= RESULT_MLP; kind++) {
    for (size_t i = 0; i < kinds[kind].count; i++) {
      const column *c = &kinds[kind].columns[i];
      if (strcmp(column_name(c), name) == 0) return c->field;
    }
  }
  return -1;
}

static int parse_head(const char *path, char *line, int *map, int *count) {
  unsigned seen = 0;
  char *text;
  for (*count = 0; (text = next_field(&line)); (*count)++) {
    if (*count == 128) return cli_error(CLI_INPUT, "%s: more than 128 columns", path);
    map[*count] = find_field(text);
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
    if (map[i] >= 0 && !set_field(r, &fields[map[i]], text)) {
      return cli_error(CLI_INPUT, "%s: line %d: %s: \"%s\" is not a number", path, number,
                       fields[map[i]].name, text);
    }
  }
  if (line) return cli_error(CLI_INPUT, "%s: line %d has too many fields", path, number);
  int mlp = r->down_row[0] || strncmp(r->row, "mlp_", 4) == 0;
  op_kind op = mlp ? OP_MLP : strncmp(r->row, "down_", 5) == 0 ? OP_DOWN : OP_GLU;
  result_text(r->op, sizeof r->op, op_name(op));
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
