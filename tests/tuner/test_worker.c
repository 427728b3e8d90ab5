/* The worker of tileglu tune over a backend whose times are made up: which rows it measures
 * in full, and what it says of them. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd_tune.h"
#include "support.h"

enum { ROWS = 12, ROUNDS = 5 };

/* What a sample of a row takes: its script's next entry where there is one, which is not 0,
 * else its usual time. */
static double usual[ROWS], script[ROWS][ROUNDS + 1];
static int samples[ROWS], checks[ROWS], row_count;
static int nearest;    /* --near */
static int turns_wrong; /* a row that is right at its first check only; -1: none */

static int open_scripted(const tune_args *args, void **state)
{
  (void)args;
  *state = NULL;
  return 0;
}

static int begin_scripted(void *state, const spec *s, char *untuned, size_t bytes)
{
  (void)state;
  (void)s;
  snprintf(untuned, bytes, "r0");
  return 0;
}

/* As usual, but for the last row, of which nothing is predicted. */
static int predict_scripted(void *state, const char *name, double *us)
{
  (void)state;
  const int row = atoi(name + 1);
  *us = row < ROWS - 1 ? usual[row] : INFINITY;
  return 0;
}

static int prepare_scripted(void *state, int i, const char *name, int *supported)
{
  (void)state;
  (void)name;
  samples[i] = checks[i] = 0;
  *supported = 1;
  return 0;
}

static int check_scripted(void *state, int i, char *why, size_t bytes)
{
  (void)state;
  if (checks[i]++ > 0 && i == turns_wrong) snprintf(why, bytes, "scripted");
  return 0;
}

static int sample_scripted(void *state, int i, double share, double *us)
{
  (void)state;
  (void)share;
  const int at = samples[i]++;
  *us = at <= ROUNDS && script[i][at] > 0 ? script[i][at] : usual[i];
  return 0;
}

static void end_scripted(void *state) { (void)state; }

const tune_backend tune_cpu = {open_scripted,  begin_scripted,  predict_scripted,
                               prepare_scripted, check_scripted, sample_scripted,
                               end_scripted,   end_scripted};
const tune_backend tune_cuda = {0};

/* ---- what it says ---- */

/* Its last words about a row. */
static struct said {
  char word[16];
  double us;
} said[ROWS];

static void read_words(const char *name)
{
  char line[512], word[16];
  int done = 0, row;
  double us;
  FILE *file = fopen(name, "r");
  assert_non_null(file);
  memset(said, 0, sizeof said);
  while (fgets(line, sizeof line, file)) {
    done += strncmp(line, "done\t", 5) == 0;
    us = NAN;
    if (sscanf(line, "%15[a-z]\tr%d\t%lf", word, &row, &us) < 2 || row >= row_count) continue;
    snprintf(said[row].word, sizeof said[row].word, "%s", word);
    said[row].us = us;
  }
  fclose(file);
  assert_int_equal(done, 1);
}

/* One problem with the first `count` rows. */
static void work(int count)
{
  char order[300] = "0:glu:", contract[64], words[320];
  row_count = count;
  for (int i = 0; i < count; i++)
    snprintf(order + strlen(order), sizeof order - strlen(order), "r%d,", i);
  strcat(order, "\n");
  snprintf(contract, sizeof contract, "%ld:cpu:-1", (long)getppid());
  snprintf(words, sizeof words, "%s/words", folder);
  write_file(path, order, strlen(order));
  assert_non_null(freopen(path, "r", stdin));
  const int file = open(words, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  assert_int_equal(dup2(file, TUNE_PIPE), TUNE_PIPE);
  tune_args args = {.rounds = ROUNDS, .within = 1.25, .near = nearest,
                    .worker = contract};
  shape_init(&args.shape, OP_GLU, 1);
  args.shape.hidden = 8;
  args.shape.intermediate = 8;
  assert_int_equal(tune_work(&args), 0);
  if (file != TUNE_PIPE) close(file);
  close(TUNE_PIPE);
  read_words(words);
}

static int is_timed(int i) { return strcmp(said[i].word, "time") == 0; }
static int is_far(int i) { return strcmp(said[i].word, "far") == 0; }
static int is_slow(int i) { return strcmp(said[i].word, "slow") == 0; }

/* Two rows were measured in full, and none that was not has a time below theirs. */
static void assert_ranked(void)
{
  double first = INFINITY, second = INFINITY;
  for (int i = 0; i < row_count; i++) {
    if (!is_timed(i)) continue;
    second = fmin(second, fmax(first, said[i].us));
    first = fmin(first, said[i].us);
  }
  assert_true(isfinite(second));
  for (int i = 0; i < row_count; i++)
    if (is_slow(i) && !(said[i].us >= second))
      fail_msg("row %d was left out at %g, the second has %g", i, said[i].us, second);
}

/* Usual times of 100, 110, 120, ... */
static int reset(void **state)
{
  memset(script, 0, sizeof script);
  for (int i = 0; i < ROWS; i++) usual[i] = 100 + 10 * i;
  turns_wrong = -1;
  nearest = 0;
  memset(samples, 0, sizeof samples);
  return make_folder(state);
}

static void one_lucky_sample_leaves_nobody_out(void **state)
{
  (void)state;
  script[5][1] = 20; /* that of the second round */
  work(6);
  assert_true(is_timed(0) && is_timed(1) && is_timed(5));
  assert_float_equal(said[0].us, 100, 1e-6);
  assert_float_equal(said[1].us, 110, 1e-6);
  assert_float_equal(said[5].us, 150, 1e-6);
  assert_true(is_slow(2)); /* not more than is of use */
  assert_int_equal(samples[0], 2 + ROUNDS);
  assert_ranked();
}

static void nor_does_a_lucky_short_look(void **state)
{
  (void)state;
  script[11][0] = 5;
  work(12);
  assert_true(is_timed(0) && is_timed(1));
  assert_float_equal(said[0].us, 100, 1e-6);
  assert_float_equal(said[11].us, 210, 1e-6);
  assert_ranked();
}

static void unlucky_samples_leave_nobody_out(void **state)
{
  (void)state;
  script[0][0] = 130;
  script[0][1] = 126;
  for (int i = 1; i < 6; i++) usual[i] = 140;
  script[4][0] = 100; /* so the first looks slow, and is faster than all */
  work(6);
  assert_true(is_timed(0));
  assert_float_equal(said[0].us, 100, 1e-6);
  assert_ranked();
}

static void the_second_is_measured_in_full(void **state)
{
  (void)state;
  for (int i = 1; i < 6; i++) usual[i] = 290 + 10 * i;
  work(6);
  assert_true(is_timed(0) && is_timed(1) && is_slow(2) && is_slow(5));
  assert_int_equal(samples[1], 2 + ROUNDS);
  assert_ranked();
}

/* The winner turns out wrong: those that it had left out are measured. */
static void a_wrong_winner_leaves_nobody_out(void **state)
{
  (void)state;
  usual[0] = 10;
  turns_wrong = 0;
  work(6);
  assert_string_equal(said[0].word, "wrong");
  assert_true(is_timed(1) && is_timed(2) && is_slow(3));
  assert_ranked();
}

/* A row left out that is measured after all is checked again, too. */
static void one_measured_after_all_is_checked(void **state)
{
  (void)state;
  script[5][1] = 20;
  turns_wrong = 0;
  work(6);
  assert_string_equal(said[0].word, "wrong");
  assert_true(is_timed(1) && is_timed(2));
  assert_ranked();
}

static void without_noise_nothing_is_measured_twice(void **state)
{
  (void)state;
  work(12);
  for (int i = 0; i < 12; i++) {
    assert_int_equal(is_timed(i), usual[i] <= 125);
    assert_int_equal(samples[i], usual[i] <= 125 ? 1 + ROUNDS : usual[i] <= 200 ? 3 : 1);
  }
  assert_ranked();
}

static void those_predicted_far_off_are_not_measured(void **state)
{
  (void)state;
  nearest = 3;
  usual[0] = 190; /* chosen untuned: measured, though six are predicted to be faster */
  work(12);
  for (int i = 0; i < 12; i++) {
    assert_int_equal(is_far(i), i > 3);
    assert_int_equal(samples[i] > 0, i <= 3);
  }
  assert_true(is_timed(1) && is_timed(2) && is_timed(3) && is_slow(0));
  assert_ranked();
}

static void ties_are_measured(void **state)
{
  (void)state;
  nearest = 1;
  for (int i = 0; i < ROWS; i++) usual[i] = 100;
  work(12);
  for (int i = 0; i < 12; i++) assert_int_equal(is_far(i), i == 11);
}

static void a_row_alone(void **state)
{
  (void)state;
  work(1);
  assert_true(is_timed(0));
  assert_int_equal(samples[0], ROUNDS);
}

static void under_any_noise(void **state)
{
  (void)state;
  uint64_t seed = 20260;
  int after_all = 0;
  for (int round = 0; round < 300; round++) {
    for (int i = 0; i < ROWS; i++)
      for (int s = 0; s <= ROUNDS; s++)
        script[i][s] = usual[i] * (0.3 + 1e-3 * (double)(next_random(&seed) % 1700));
    work(2 + round % (ROWS - 1));
    assert_ranked();
    for (int i = 0; i < row_count; i++) after_all += samples[i] > 1 + ROUNDS;
  }
  assert_true(after_all > 30);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, remove_folder)
  const struct CMUnitTest tests[] = {
    TEST(one_lucky_sample_leaves_nobody_out),
    TEST(nor_does_a_lucky_short_look),
    TEST(unlucky_samples_leave_nobody_out),
    TEST(the_second_is_measured_in_full),
    TEST(a_wrong_winner_leaves_nobody_out),
    TEST(one_measured_after_all_is_checked),
    TEST(without_noise_nothing_is_measured_twice),
    TEST(those_predicted_far_off_are_not_measured),
    TEST(ties_are_measured),
    TEST(a_row_alone),
    TEST(under_any_noise),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
