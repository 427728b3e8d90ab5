/* Lines of a whole file that are not as they should be: left out, counted, and the field and
 * its rule said in one warning. */
#include "support.h"

enum { FIELDS = 15, ROOM = 2048 };

static rows row;

static int find(void **state)
{
  (void)state;
  row = find_rows();
  return 0;
}

/* The line of a good winner and its runner-up for M tokens, newline included. */
static void good_line(char *line)
{
  tglu_tune_entry e = entry_for(row.other);
  char file[ROOM];
  e.runner_up = row.chosen;
  e.runner_up_us = 13.25;
  record(path, &e);
  const size_t count = read_file(path, file, sizeof file - 1);
  assert_true(count < sizeof file);
  file[count] = '\0';
  char *end = strstr(file, "end ");
  assert_non_null(end);
  *end = '\0';
  strcpy(line, file + strlen("tileglu-tune 1\n"));
}

/* Appends the line with this text in the place of a field. */
static void add_changed(char *body, const char *line, int field, const char *text)
{
  const char *at = line;
  for (int i = 0; i < field; i++) at = strchr(at, '\t') + 1;
  sprintf(body + strlen(body), "%.*s%s%s", (int)(at - line), line, text,
          at + strcspn(at, "\t\n"));
}

static void write_body(const char *body)
{
  static char file[32 * ROOM];
  write_file(path, file, whole_file(body, file));
  warnings = 0;
  warned[0] = '\0';
}

static void assert_warned(const char *said)
{
  if (!strstr(warned, said)) fail_msg("\"%s\" does not say \"%s\"", warned, said);
}

typedef struct change {
  int field;
  const char *text;
  const char *said; /* NULL: the line counts, or is of another problem */
} change;

static const char no_time[] = "1 of its lines ignored: 1 (the winner's time is no number of ns "
                              "from 1 to 10^15)";
static const char no_second[] = "1 of its lines ignored: 1 (the second's time is no number of "
                                "ns from 1 to 10^15, or 0 without a second)";
static const char no_row[] = "1 of its lines ignored: 1 (the row is none that this context can "
                             "use for it)";
static const char no_tokens[] = "1 of its lines ignored: 1 (winners are not kept for that count "
                                "of tokens)";

static const change changes[] = {
  {6, "fp8", "1 (the type is none of bf16, f16, f32)"},
  {7, "up", "1 (the operation is none of glu, down, mlp)"},
  {8, "0", "1 (N is no number from 1 to 2^56)"},
  {8, "72057594037927937", "1 (N is no number from 1 to 2^56)"},
  {8, "72057594037927936", NULL},
  {9, "-40", "1 (K is no number from 1 to 2^56)"},
  {10, "", no_tokens}, {10, "127", no_tokens}, {10, "4294967296", no_tokens},
  {10, "2147483648", NULL},
  {11, "gone", no_row}, {11, "", no_row},
  {12, "-12500", no_time}, {12, "nan", no_time}, {12, "inf", no_time}, {12, "", no_time},
  {12, "0", no_time}, {12, "1.5", no_time}, {12, "0x10", no_time}, {12, " 1", no_time},
  {12, "1000000000000001", no_time}, {12, "99999999999999999999", no_time},
  {12, "1000000000000000", NULL}, {12, "1", NULL},
  {13, "-", no_second}, /* with a time all the same */
  {14, "-1", no_second}, {14, "nan", no_second}, {14, "0", no_second}, {14, "", no_second},
  {14, "1000000000000001", no_second}, {14, "1000000000000000", NULL},
};

static void the_field_and_its_rule_are_said(void **state)
{
  (void)state;
  char line[ROOM], body[2 * ROOM];
  good_line(line);
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    const change *c = &changes[i];
    body[0] = '\0';
    add_changed(body, line, c->field, c->text);
    write_body(body);
    assert_int_equal(cache_lines(path), 1);
    const int used = tuned(TGLU_DTYPE_F32, N, K, M);
    if (used != (!c->said && c->field >= 12) || warnings != (c->said != NULL)) {
      fail_msg("field %d, \"%s\": tuned %d, %d warnings: %s", c->field, c->text, used,
               warnings, warned);
    }
    if (c->said) assert_warned(c->said);
  }
}

/* One warning for all of them; those in order count. */
static void every_fault_is_counted(void **state)
{
  (void)state;
  static char line[ROOM], body[16 * ROOM];
  good_line(line);
  body[0] = '\0';
  for (int i = 0; i < 3; i++) add_changed(body, line, 12, i == 1 ? "nan" : "-7");
  for (int i = 0; i < 2; i++) add_changed(body, line, 11, "gone");
  strcat(body, line);
  add_changed(body, line, 14, "x");
  add_changed(body, line, 1, "another build"); /* nobody's fault */
  write_body(body);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, M), 1);
  assert_int_equal(warnings, 1);
  assert_warned("tune_cache: ");
  assert_warned(": 6 of its lines ignored: 2 (the row is none that this context can use for "
                "it), 3 (the winner's time is no number of ns from 1 to 10^15), 1 (the "
                "second's time is");
  assert_warned("TILEGLU_TUNE_CACHE names another file");
  /* All kinds at once are not cut off. */
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
    if (changes[i].said) add_changed(body, line, changes[i].field, changes[i].text);
  write_body(body);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, M), 1);
  assert_int_equal(warnings, 1);
  assert_warned("1 (the type is none");
  assert_warned("TILEGLU_TUNE_CACHE names another file");
}

/* Field by field: of the key, of another place; of the rest, unusable. */
static void changed_keys_and_rows_are_ignored(void **state)
{
  (void)state;
  char line[ROOM], body[2 * ROOM], text[ROOM];
  good_line(line);
  for (int field = 0; field < FIELDS; field++) {
    const char *at = line;
    for (int i = 0; i < field; i++) at = strchr(at, '\t') + 1;
    const int is_number = (field >= 8 && field <= 10) || field == 12 || field == 14;
    snprintf(text, sizeof text, "%s%.*s", is_number ? "7" : "x",
             (int)strcspn(at, "\t\n"), at);
    body[0] = '\0';
    add_changed(body, line, field, text);
    write_body(body);
    assert_int_equal(cache_lines(path), 1);
    /* Only a time, and a second that this context has not. */
    assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, M), field >= 12);
    const int silent = field < 6 || field == 8 || field == 9 || field >= 12;
    assert_int_equal(warnings, silent ? 0 : 1);
    if (!silent) assert_warned("ignored");
  }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
  const struct CMUnitTest tests[] = {
    TEST(the_field_and_its_rule_are_said),
    TEST(every_fault_is_counted),
    TEST(changed_keys_and_rows_are_ignored),
  };
  return cmocka_run_group_tests(tests, find, NULL);
}
