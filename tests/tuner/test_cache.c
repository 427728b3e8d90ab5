/* What a cache holds, for whom it counts, and every file and place that is not as it should
 * be: nothing but tglu_tune_record ever fails for it. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static rows row;

static int find(void **state)
{
  (void)state;
  row = find_rows();
  return 0;
}

/* ---- what counts ---- */

static void a_winner_is_used(void **state)
{
  (void)state;
  if (strcmp(row.chosen, row.other) == 0) {
    print_message("SKIP: this CPU has one row only\n");
    skip();
  }
  tglu_tune_entry e = entry_for(row.other);
  e.runner_up = row.chosen;
  e.runner_up_us = 13.25;
  tglu_context *before = context_at(path);
  assert_ok(tglu_tune_record(before, &e));
  tglu_plan_info plan = plan_for(before, TGLU_DTYPE_F32, N, K, M);
  assert_string_equal(plan.row, row.chosen); /* contexts are immutable */
  assert_int_equal(plan.tuned, 0);
  tglu_context_destroy(before);

  tglu_context *after = context_at(path);
  plan = plan_for(after, TGLU_DTYPE_F32, N, K, M);
  assert_string_equal(plan.row, row.other);
  assert_int_equal(plan.tuned, 1);
  tglu_context_info info;
  tglu_context_info_init(&info);
  assert_ok(tglu_context_get_info(after, &info));
  assert_string_equal(info.tune_cache, path);
  assert_computes(after);
  tglu_context_destroy(after);
  assert_int_equal(warnings, 0);
}

static void explain_names_the_winner_and_the_second(void **state)
{
  (void)state;
  static const float w[N * K] = {1};
  tglu_tune_entry e = entry_for(row.other);
  e.runner_up = row.chosen;
  e.runner_up_us = 13.25;
  record(path, &e);
  tglu_context *context = context_at(path);
  tglu_mlp_desc d;
  tglu_mlp_desc_init(&d);
  d.glu.hidden = K;
  d.glu.intermediate = N;
  d.glu.dtype = TGLU_DTYPE_F32;
  d.glu.activation = TGLU_ACTIVATION_SILU;
  d.glu.layout = TGLU_LAYOUT_SEPARATE;
  d.glu.gate = d.glu.up = d.down = w;
  tglu_mlp *mlp = NULL;
  assert_ok(tglu_mlp_create(context, &d, &mlp));
  tglu_run_args a;
  tglu_run_args_init(&a);
  char text[4096];
  a.tokens = M;
  assert_ok(tglu_mlp_explain(mlp, &a, text, sizeof text));
  for (int i = 0; i < 4; i++) {
    const char *const said[] = {"tuned", "12.5 us measured", "runner-up", "13.2 us"};
    if (!strstr(text, said[i])) fail_msg("\"%s\" does not say \"%s\"", text, said[i]);
  }
  assert_non_null(strstr(text, row.other));
  assert_non_null(strstr(text, row.chosen));
  tglu_plan_info plan;
  tglu_plan_info_init(&plan);
  assert_ok(tglu_mlp_get_plan(mlp, M, &plan));
  assert_int_equal(plan.tuned, 1);
  assert_string_equal(plan.row, row.other);
  a.tokens = 5000;
  assert_ok(tglu_mlp_explain(mlp, &a, text, sizeof text));
  assert_null(strstr(text, "tuned"));
  tglu_mlp_destroy(mlp);
  tglu_context_destroy(context);
}

static void only_the_same_problem(void **state)
{
  (void)state;
  const tglu_tune_entry e = entry_for(row.other);
  record(path, &e);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, M), 1);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, 128), 1); /* the same bucket */
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, 64), 0);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, 129), 0);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, INT64_C(1) << 40), 0);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N - 1, K, M), 0);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K - 1, M), 0);
  assert_int_equal(tuned(TGLU_DTYPE_BF16, N, K, M), 0);
}

static void only_the_same_place(void **state)
{
  (void)state;
  const tglu_tune_entry e = entry_for(row.other);
  record(path, &e);
  tglu_context_options o = options_at(path);
  for (int i = 0; i < 5; i++) {
    tglu_context_options changed = o;
    if (i == 1) changed.threads = 2;
    if (i == 2) changed.batch_invariant = 1;
    if (i == 3) changed.row = row.chosen;
    if (i == 4) changed.cpu_isa = "portable";
    tglu_context *context = NULL;
    assert_ok(tglu_context_create(&changed, &context));
    tglu_context_info info;
    tglu_context_info_init(&info);
    assert_ok(tglu_context_get_info(context, &info));
    const int same = i == 0 || (i == 4 && strcmp(tglu_cpu_isa(), "portable") == 0);
    assert_int_equal(plan_for(context, TGLU_DTYPE_F32, N, K, M).tuned, same);
    tglu_context_destroy(context);
  }
  assert_int_equal(warnings, 0); /* others' lines are nobody's fault */
}

static void wrong_entries_are_refused(void **state)
{
  (void)state;
  tglu_context *context = context_at(path);
#define REFUSE(argument, field, value)                                             \
  do {                                                                             \
    tglu_tune_entry e = entry_for(row.chosen);                                     \
    e.runner_up = row.other;                                                       \
    e.runner_up_us = 20;                                                           \
    e.field = value;                                                               \
    assert_refused(tglu_tune_record(context, &e), TGLU_ERR_INVALID_ARGUMENT, argument); \
  } while (0)
  REFUSE("op", op, NULL);
  REFUSE("op", op, "nonsense");
  REFUSE("op", op, "mlp"); /* the CPU has no rows of it */
  REFUSE("dtype", dtype, (tglu_dtype)0);
  REFUSE("row", dtype, TGLU_DTYPE_BF16); /* serves another one */
  REFUSE("hidden", hidden, 0);
  REFUSE("hidden", hidden, INT64_MAX);
  REFUSE("intermediate", intermediate, -1);
  REFUSE("tokens", tokens, 0);
  REFUSE("tokens", tokens, (INT64_C(1) << 31) + 1);
  REFUSE("row", row, NULL);
  REFUSE("row", row, "");
  REFUSE("row", row, "nonsense");
  REFUSE("row", row, "glu_f32_portable_dot_1x2\t");
  REFUSE("us", us, 0);
  REFUSE("us", us, (double)NAN);
  REFUSE("us", us, (double)INFINITY);
  REFUSE("runner_up", runner_up, "nonsense");
  REFUSE("runner_up_us", runner_up_us, -1);
  REFUSE("entry", size, 8);
#undef REFUSE
  tglu_tune_entry e = entry_for(row.chosen);
  assert_refused(tglu_tune_record(NULL, &e), TGLU_ERR_INVALID_ARGUMENT, "context");
  assert_refused(tglu_tune_record(context, NULL), TGLU_ERR_INVALID_ARGUMENT, "entry");
  e.tokens = INT64_C(1) << 31;
  e.us = 1e12;
  assert_int_equal(count_files(), 0);
  assert_ok(tglu_tune_record(context, &e));
  e.us = 1e-9; /* not 0 */
  assert_ok(tglu_tune_record(context, &e));
  assert_int_equal(cache_lines(path), 1); /* one a key */
  tglu_context_destroy(context);
  assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, INT64_C(1) << 31), 1);
}

static void nothing_is_written_without_a_winner(void **state)
{
  (void)state;
  tglu_context *context = context_at(path);
  assert_computes(context);
  tglu_context_destroy(context);
  assert_int_equal(count_files(), 0);
  assert_int_equal(warnings, 0);
}

/* ---- files that are not as they should be (H24) ---- */

typedef struct damage {
  const char *name;
  int cut, added; /* bytes of a good file kept, "}" after it */
  size_t zeros;
  const char *text;
} damage;

static void damaged_files_are_empty(void **state)
{
  (void)state;
  const tglu_tune_entry e = entry_for(row.other);
  static const damage cases[] = {
    {"empty", 0, 0, 0, ""},           {"the first 100 bytes", 100, 0, 0, NULL},
    {"without its last byte", -1, 0, 0, NULL}, {"a brace behind", -2, 1, 0, NULL},
    {"1 MiB of zeros", 0, 0, 1 << 20, NULL},   {"NaN", 0, 0, 0, "{\"a\":NaN}"},
    {"no UTF-8", 0, 0, 0, "\xff\xfe"},         {"another shape", 0, 0, 0, "[]"},
    {"another format", 0, 0, 0, "tileglu-tune 2\nend 0 0\n"},
    {"a zero inside", 0, 0, 0, "tileglu-tune 1\n"},
  };
  static char file[4096];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const damage *d = &cases[i];
    unlink(path);
    record(path, &e);
    size_t count = read_file(path, file, sizeof file);
    if (d->text) write_file(path, d->text, strlen(d->text));
    else if (d->zeros) {
      char *zeros = calloc(d->zeros, 1);
      assert_non_null(zeros);
      write_file(path, zeros, d->zeros);
      free(zeros);
    } else {
      file[count] = '}';
      write_file(path, file, d->cut > 0 ? (size_t)d->cut
                             : d->cut == -1 ? count - 1 : count + 1);
    }
    warnings = 0;
    tglu_context *context = context_at(path);
    if (warnings != 1) fail_msg("%s: %d warnings", d->name, warnings);
    assert_non_null(strstr(warned, path));
    assert_non_null(strstr(warned, "TILEGLU_TUNE_CACHE"));
    assert_int_equal(plan_for(context, TGLU_DTYPE_F32, N, K, M).tuned, 0);
    assert_computes(context);
    assert_ok(tglu_tune_record(context, &e));
    tglu_context_destroy(context);
    assert_int_equal(warnings, 1);
    assert_int_equal(cache_lines(path), 1);
    assert_int_equal(tuned(TGLU_DTYPE_F32, N, K, M), 1);
  }
}

/* What cannot be a cache is left alone: one warning, compute right, "not saved". */
static void assert_left_alone(const char *place, int warns)
{
  const tglu_tune_entry e = entry_for(row.other);
  warnings = 0;
  tglu_context *context = context_at(place);
  assert_int_equal(warnings, warns);
  if (warns) assert_non_null(strstr(warned, place));
  assert_computes(context);
  assert_refused(tglu_tune_record(context, &e), TGLU_ERR_IO, "tune_cache");
  assert_says("not saved");
  assert_says("TILEGLU_TUNE_CACHE");
  assert_says(place);
  tglu_context_destroy(context);
}

static void what_is_no_file_is_left_alone(void **state)
{
  (void)state;
  assert_int_equal(mkdir(path, 0755), 0);
  assert_left_alone(path, 1);
  assert_int_equal(rmdir(path), 0); /* it is still empty */
  assert_int_equal(mkfifo(path, 0644), 0);
  assert_left_alone(path, 1);
  unlink(path);
  assert_int_equal(symlink("tune.txt", path), 0);
  assert_left_alone(path, 1);
  unlink(path);
  assert_left_alone("/dev/null", 1);
  assert_int_equal(access("/dev/null.lock", F_OK), -1);
  assert_int_equal(count_files(), 0);
}

/* Folders, full or empty, and links in the place of the files that are made beside it. */
static void what_lies_beside_is_named(void **state)
{
  (void)state;
  static const char *const suffixes[] = {".new", ".lock"};
  const tglu_tune_entry e = entry_for(row.other);
  char name[320], inside[330], lock[320];
  snprintf(lock, sizeof lock, "%s.lock", path);
  for (int i = 0; i < 2; i++) {
    snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
    snprintf(inside, sizeof inside, "%s/kept", name);
    assert_int_equal(mkdir(name, 0755), 0);
    for (int full = 0; full < 2; full++) {
      if (full) write_file(inside, "x", 1);
      assert_left_alone(path, 0);
      assert_says(name);
      assert_says("a folder has that name");
      assert_int_equal(cache_lines(path), -2);
    }
    assert_int_equal(unlink(inside), 0);
    assert_int_equal(rmdir(name), 0);
    record(path, &e);
    assert_int_equal(cache_lines(path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(lock), 0);
  }
  assert_int_equal(symlink("elsewhere", lock), 0);
  assert_left_alone(path, 0);
  assert_says(lock);
}

static void a_large_file_is_left_alone(void **state)
{
  (void)state;
  static const size_t sizes[] = {TGLU__CACHE_MOST_BYTES + 1, (size_t)40 << 30};
  for (int i = 0; i < 2; i++) {
    write_file(path, "tileglu-tune 1\n", 15);
    if (truncate(path, (off_t)sizes[i]) != 0) continue;
    assert_left_alone(path, 1);
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_true((size_t)facts.st_size == sizes[i]);
  }
}

static void a_link_to_nowhere_is_missing(void **state)
{
  (void)state;
  const tglu_tune_entry e = entry_for(row.other);
  assert_int_equal(symlink("nowhere/else", path), 0);
  record(path, &e);
  assert_int_equal(warnings, 0);
  assert_int_equal(cache_lines(path), 1);
}

/* A link stays one, and the file behind it gets the winners of both names. */
static void a_link_is_followed(void **state)
{
  (void)state;
  char file[330], lock[330];
  snprintf(file, sizeof file, "%s-file", path);
  snprintf(lock, sizeof lock, "%s.lock", path);
  tglu_tune_entry e = entry_for(row.other);
  record(file, &e);
  assert_int_equal(symlink(file, path), 0);
  e.tokens += 1000;
  record(path, &e);
  struct stat facts;
  assert_int_equal(lstat(path, &facts), 0);
  assert_true(S_ISLNK(facts.st_mode));
  assert_int_equal(cache_lines(file), 2);
  assert_int_equal(access(lock, F_OK), -1);
  assert_int_equal(warnings, 0);
}

static void the_oldest_give_way(void **state)
{
  (void)state;
  tglu_tune_entry e = entry_for(row.other);
  char *file = malloc(2 * TGLU__CACHE_ROOM), *body = malloc(2 * TGLU__CACHE_ROOM);
  assert_true(file && body);
  size_t length = 0, lines = 0;
  while (length < TGLU__CACHE_MOST_BYTES - 300)
    length += (size_t)sprintf(body + length,
                              "0.0.1\thash\tcuda\tsome other card\t132\t12000\tbf16\tglu\t"
                              "%zu\t4096\t64\tglu_of_old\t1234\t-\t0\n", ++lines);
  write_file(path, file, whole_file(body, file));
  assert_int_equal(cache_lines(path), lines);
  for (int i = 0; i < 20; i++) {
    e.hidden = 8 * (i + 1);
    record(path, &e);
  }
  struct stat facts;
  assert_int_equal(stat(path, &facts), 0);
  assert_true(facts.st_size <= TGLU__CACHE_MOST_BYTES);
  assert_true(cache_lines(path) > (int)lines - 60);
  for (int i = 0; i < 20; i++) assert_int_equal(tuned(TGLU_DTYPE_F32, N, 8 * (i + 1), M), 1);
  assert_int_equal(warnings, 0);
  free(file);
  free(body);
}

static void a_kept_mode(void **state)
{
  (void)state;
  const tglu_tune_entry e = entry_for(row.other);
  struct stat facts;
  record(path, &e);
  assert_int_equal(chmod(path, 0640), 0);
  record(path, &e);
  assert_int_equal(stat(path, &facts), 0);
  assert_int_equal(facts.st_mode & 0777, 0640);
}

/* ---- places that are not as they should be (H26) ---- */

/* Runs the body in a child without root's rights; its failures fail the test. */
static void as_nobody(void (*body)(void))
{
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);
    body();
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child: %x", status);
}

/* In a child cmocka's assertions end the process wrongly: plain ones. */
#define CHILD(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition,            \
              tglu_last_error());                                                   \
      _exit(2);                                                                     \
    }                                                                               \
  } while (0)

static void compute_but_not_save(const char *cache, int warns, const char *named)
{
  const tglu_tune_entry e = entry_for(row.other);
  const tglu_context_options o = options_at(cache);
  tglu_context *context = NULL;
  warnings = 0;
  CHILD(tglu_context_create(&o, &context) == TGLU_OK);
  CHILD(warnings == warns);
  assert_computes(context);
  CHILD(tglu_tune_record(context, &e) == TGLU_ERR_IO);
  CHILD(strstr(tglu_last_error(), "not saved") != NULL);
  CHILD(strstr(tglu_last_error(), "TILEGLU_TUNE_CACHE") != NULL);
  CHILD(strstr(tglu_last_error(), named) != NULL);
  tglu_context_destroy(context);
}

static void in_a_read_only_home(void)
{
  char cache[400];
  snprintf(cache, sizeof cache, "%s/.cache/tileglu/tune.txt", folder);
  setenv("HOME", folder, 1);
  unsetenv("XDG_CACHE_HOME");
  compute_but_not_save(NULL, 0, cache);
  compute_but_not_save(NULL, 0, "permission denied");
}

static void in_a_folder_closed_to_us(void)
{
  compute_but_not_save(path, 1, "permission denied");
}

static void without_rights(void **state)
{
  (void)state;
  assert_int_equal(chmod(folder, 0555), 0);
  as_nobody(in_a_read_only_home);
  assert_int_equal(count_files(), 0);
  assert_int_equal(chmod(folder, 0), 0);
  as_nobody(in_a_folder_closed_to_us);
  assert_int_equal(chmod(folder, 0755), 0);
  /* A file of another user, that may be read and not replaced. */
  const tglu_tune_entry e = entry_for(row.other);
  record(path, &e);
  assert_int_equal(chmod(folder, 0555), 0);
  tglu_context *context = context_at(path);
  assert_int_equal(plan_for(context, TGLU_DTYPE_F32, N, K, M).tuned, 1);
  tglu_context_destroy(context);
}

static void without_a_home(void **state)
{
  (void)state;
  static const char *const homes[] = {NULL, "", "/", "//", "relative"};
  const char *old_home = getenv("HOME"), *old_xdg = getenv("XDG_CACHE_HOME");
  for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
    if (homes[i]) setenv("HOME", homes[i], 1);
    else unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    compute_but_not_save(NULL, 0, "XDG_CACHE_HOME");
  }
  setenv("HOME", "/nonexistent", 1);
  compute_but_not_save(NULL, 0, "/nonexistent/.cache/tileglu/tune.txt");
  assert_int_equal(access("/nonexistent", F_OK), -1);
  assert_int_equal(access("/.cache", F_OK), -1);
  setenv("XDG_CACHE_HOME", "/nonexistent/a/b", 1);
  compute_but_not_save(NULL, 0, "/nonexistent/a/b/tileglu/tune.txt");
  setenv("XDG_CACHE_HOME", "/dev/null", 1);
  compute_but_not_save(NULL, 0, "no folder");
  if (old_home) setenv("HOME", old_home, 1);
  if (old_xdg) setenv("XDG_CACHE_HOME", old_xdg, 1);
  else unsetenv("XDG_CACHE_HOME");
}

static void two_folders_are_made(void **state)
{
  (void)state;
  const tglu_tune_entry e = entry_for(row.other);
  char deep[400];
  snprintf(deep, sizeof deep, "%s/a/b/c/tune.txt", folder);
  compute_but_not_save(deep, 0, deep);
  assert_int_equal(count_files(), 0);
  snprintf(deep, sizeof deep, "%s/a/b/tune.txt", folder);
  record(deep, &e);
  assert_int_equal(cache_lines(deep), 1);
  snprintf(deep, sizeof deep, "%s/a/c/tune.txt", folder);
  record(deep, &e);
  assert_int_equal(cache_lines(deep), 1);
  char home[300];
  snprintf(home, sizeof home, "%s/a", folder);
  setenv("XDG_CACHE_HOME", home, 1);
  record(NULL, &e);
  unsetenv("XDG_CACHE_HOME");
  snprintf(deep, sizeof deep, "%s/a/tileglu/tune.txt", folder);
  assert_int_equal(cache_lines(deep), 1);
}

static void on_a_full_disk(void **state)
{
  (void)state;
  const tglu_tune_entry e = entry_for(row.other);
  char *filler = malloc(70000), other[330];
  assert_non_null(filler);
  memset(filler, 'x', 70000);
  if (mount("tmpfs", folder, "tmpfs", 0, "size=64k") != 0) {
    free(filler);
    print_message("SKIP: no right to mount a small tmpfs\n");
    skip();
  }
  record(path, &e);
  snprintf(other, sizeof other, "%s/filler", folder);
  FILE *file = fopen(other, "wb");
  if (file) {
    setbuf(file, NULL);
    for (int i = 0; i < 70000; i++)
      if (fwrite(filler, 1, 1, file) != 1) break;
    fclose(file);
  }
  const int before = cache_lines(path);
  tglu_context *context = context_at(path);
  tglu_status status = tglu_tune_record(context, &e);
  char message[1024];
  snprintf(message, sizeof message, "%s", tglu_last_error());
  tglu_context_destroy(context);
  const int after = cache_lines(path), files = count_files();
  umount(folder);
  free(filler);
  assert_int_equal(before, 1);
  assert_int_equal(status, TGLU_ERR_IO);
  assert_non_null(strstr(message, "no space is left"));
  assert_int_equal(after, 1); /* the old one */
  assert_int_equal(files, 3); /* tune.txt, its lock, the filler */
}

static void a_path_that_is_too_long(void **state)
{
  (void)state;
  char longest[5000];
  memset(longest, 'a', sizeof longest);
  longest[0] = '/';
  for (size_t length = 4080; length < 4110; length += 3) {
    longest[length] = '\0';
    const tglu_tune_entry e = entry_for(row.other);
    tglu_context *context = context_at(longest);
    assert_refused(tglu_tune_record(context, &e), TGLU_ERR_IO, "tune_cache");
    assert_computes(context);
    tglu_context_destroy(context);
    longest[length] = 'a';
  }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
  const struct CMUnitTest tests[] = {
    TEST(a_winner_is_used),
    TEST(explain_names_the_winner_and_the_second),
    TEST(only_the_same_problem),
    TEST(only_the_same_place),
    TEST(wrong_entries_are_refused),
    TEST(nothing_is_written_without_a_winner),
    TEST(damaged_files_are_empty),
    TEST(what_is_no_file_is_left_alone),
    TEST(what_lies_beside_is_named),
    TEST(a_large_file_is_left_alone),
    TEST(a_link_is_followed),
    TEST(a_link_to_nowhere_is_missing),
    TEST(the_oldest_give_way),
    TEST(a_kept_mode),
    TEST(without_rights),
    TEST(without_a_home),
    TEST(two_folders_are_made),
    TEST(on_a_full_disk),
    TEST(a_path_that_is_too_long),
  };
  return cmocka_run_group_tests(tests, find, NULL);
}
