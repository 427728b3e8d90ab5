/* Many writers at once, writers that die, system calls that fail, bytes that change: the
 * file is always a whole one, old or new, and no winner is lost. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

enum { PROCESSES = 8, WINNERS = 50, THREADS = 4, KILLS = 60 };

static rows row;

static int find(void **state)
{
  (void)state;
  row = find_rows();
  return 0;
}

static int64_t hidden_of(int writer, int winner) { return 1 + writer * 1000 + winner; }

/* Records winners of this writer; returns how many failed. */
static int write_winners(tglu_context *context, int writer, int count)
{
  int failed = 0;
  for (int i = 0; i < count; i++) {
    tglu_tune_entry e = entry_for(row.other);
    e.hidden = hidden_of(writer, i);
    e.us = 1 + writer;
    failed += tglu_tune_record(context, &e) != TGLU_OK;
  }
  return failed;
}

static int winners_there(int writers, int count)
{
  tglu_context *context = context_at(path);
  int there = 0;
  for (int w = 0; w < writers; w++)
    for (int i = 0; i < count; i++)
      there += plan_for(context, TGLU_DTYPE_F32, N, hidden_of(w, i), M).tuned;
  tglu_context_destroy(context);
  return there;
}

/* ---- at once ---- */

static pid_t start_writer(int writer)
{
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child > 0) return child;
  tglu_context *context = context_at(path);
  const int failed = write_winners(context, writer, WINNERS);
  tglu_context_destroy(context);
  _exit(failed ? 1 : 0);
}

static void many_processes_lose_no_winner(void **state)
{
  (void)state;
  pid_t children[PROCESSES];
  int running = PROCESSES, bad = 0, reads = 0, lines = 0;
  for (int i = 0; i < PROCESSES; i++) children[i] = start_writer(i);
  while (running > 0) {
    const int now = cache_lines(path); /* a reader among them */
    if (now == -1 || (now >= 0 && now < lines)) bad++;
    if (now >= 0) lines = now;
    reads++;
    for (int i = 0, status; i < PROCESSES; i++) {
      if (children[i] <= 0 || waitpid(children[i], &status, WNOHANG) != children[i]) continue;
      children[i] = 0;
      running--;
      bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    nanosleep(&(struct timespec){0, 200000}, NULL);
  }
  assert_int_equal(bad, 0);
  assert_true(reads > 10);
  assert_int_equal(cache_lines(path), PROCESSES * WINNERS);
  assert_int_equal(winners_there(PROCESSES, WINNERS), PROCESSES * WINNERS);
  assert_int_equal(count_files(), 2); /* the file and its lock */
  assert_int_equal(warnings, 0);
}

static tglu_context *shared;

static void *thread_writes(void *argument)
{
  return (void *)(uintptr_t)write_winners(shared, *(int *)argument, 20);
}

static void threads_of_one_context(void **state)
{
  (void)state;
  pthread_t threads[THREADS];
  int writers[THREADS], failed = 0;
  shared = context_at(path);
  for (int i = 0; i < THREADS; i++) {
    writers[i] = i;
    assert_int_equal(pthread_create(&threads[i], NULL, thread_writes, &writers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void *result;
    pthread_join(threads[i], &result);
    failed += (int)(uintptr_t)result;
  }
  assert_int_equal(failed, 0);
  tglu_context_destroy(shared);
  assert_int_equal(winners_there(THREADS, 20), THREADS * 20);
}

/* Children of a process that is just recording do not hold its lock. */
static void forks_in_the_middle(void **state)
{
  (void)state;
  pthread_t thread;
  int writer = 0;
  pid_t children[20];
  shared = context_at(path);
  assert_int_equal(pthread_create(&thread, NULL, thread_writes, &writer), 0);
  for (int i = 0; i < 20; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) { /* stays for long */
      pause();
      _exit(0);
    }
  }
  void *result;
  pthread_join(thread, &result);
  assert_int_equal((int)(uintptr_t)result, 0);
  assert_int_equal(write_winners(shared, 1, 3), 0);
  for (int i = 0; i < 20; i++) {
    kill(children[i], SIGKILL);
    waitpid(children[i], NULL, 0);
  }
  assert_int_equal(winners_there(1, 20), 20);
  tglu_context_destroy(shared);
}

static void a_child_may_record(void **state)
{
  (void)state;
  tglu_context *context = context_at(path);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(write_winners(context, 0, 5));
  assert_int_equal(write_winners(context, 1, 5), 0);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  tglu_context_destroy(context);
  assert_int_equal(winners_there(2, 5), 10);
}

/* ---- dead writers ---- */

static void killed_writers_leave_a_whole_file(void **state)
{
  (void)state;
  uint64_t seed = (uint64_t)time(NULL);
  print_message("seed %llu\n", (unsigned long long)seed);
  int lines = 0, killed = 0, i = 0;
  for (; i < KILLS || (lines == 0 && i < 20 * KILLS); i++) { /* a busy machine is slow */
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      tglu_context *context = context_at(path);
      for (int n = 0;; n++) write_winners(context, i, 1 + n);
    }
    nanosleep(&(struct timespec){0, (long)(next_random(&seed) % 12000000)}, NULL);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    killed += WIFSIGNALED(status);
    const int now = cache_lines(path);
    if (now == -1) fail_msg("kill %d left a torn file", i);
    if (now >= 0 && now < lines) fail_msg("kill %d lost winners: %d of %d", i, now, lines);
    if (now >= 0) lines = now;
    assert_true(count_files() <= 3); /* one temporary file at most */
  }
  assert_int_equal(killed, i);
  assert_true(lines > 0);
  /* What they left is in nobody's way. */
  tglu_context *context = context_at(path);
  assert_int_equal(write_winners(context, 500, 2), 0);
  tglu_context_destroy(context);
  assert_int_equal(count_files(), 2);
  assert_int_equal(warnings, 0);
}

static void a_stray_temporary_file_is_not_read(void **state)
{
  (void)state;
  char name[320];
  tglu_context *context = context_at(path);
  assert_int_equal(write_winners(context, 0, 1), 0);
  tglu_context_destroy(context);
  snprintf(name, sizeof name, "%s.new", path);
  assert_int_equal(rename(path, name), 0);
  assert_int_equal(winners_there(1, 1), 0);
  context = context_at(path);
  assert_int_equal(write_winners(context, 1, 1), 0);
  tglu_context_destroy(context);
  assert_int_equal(cache_lines(path), 1);
}

/* ---- system calls that fail ---- */

/* The linker's --wrap sends the library's calls here: the planned-th one fails. */
static int planned = -1, seen, planned_errno, half_write;

static int fails_now(void)
{
  if (planned < 0 || seen++ != planned) return 0;
  errno = planned_errno;
  return 1;
}

#define WRAP(result, name, parameters, arguments)                                   \
  result __real_##name parameters;                                                  \
  result __wrap_##name parameters;                                                  \
  result __wrap_##name parameters                                                   \
  {                                                                                 \
    return fails_now() && !half_write ? -1 : __real_##name arguments;               \
  }

WRAP(int, fsync, (int file), (file))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, flock, (int file, int how), (file, how))
WRAP(int, fchmod, (int file, mode_t mode), (file, mode))

ssize_t __real_write(int file, const void *bytes, size_t count);
ssize_t __wrap_write(int file, const void *bytes, size_t count);
ssize_t __wrap_write(int file, const void *bytes, size_t count)
{
  if (!fails_now()) return __real_write(file, bytes, count);
  return half_write && count > 1 ? __real_write(file, bytes, count / 2) : -1;
}

ssize_t __real_read(int file, void *bytes, size_t count);
ssize_t __wrap_read(int file, void *bytes, size_t count);
ssize_t __wrap_read(int file, void *bytes, size_t count)
{
  if (!fails_now()) return __real_read(file, bytes, count);
  return half_write && count > 1 ? __real_read(file, bytes, 7) : -1;
}

static void every_failing_call(void **state)
{
  (void)state;
  static const int errors[] = {ENOSPC, EIO, EDQUOT, EINTR, 0};
  tglu_context *context = context_at(path);
  assert_int_equal(write_winners(context, 0, 3), 0);
  int failures = 0, fates = 0;
  for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
    for (int at = 0; at < 40; at++) {
      tglu_tune_entry entry = entry_for(row.other);
      entry.hidden = hidden_of(1 + (int)e, at);
      const int before = cache_lines(path);
      seen = 0;
      planned_errno = errors[e];
      half_write = errors[e] == 0; /* it does a part */
      planned = at;
      const tglu_status status = tglu_tune_record(context, &entry);
      planned = -1;
      const int after = cache_lines(path), reached = seen > at;
      if (after < before) fail_msg("call %d, error %d: %d lines of %d", at, errors[e], after,
                                   before);
      if (status) assert_int_equal(status, TGLU_ERR_IO);
      assert_int_equal(after, before + (status == TGLU_OK));
      assert_int_equal(count_files(), 2);
      failures += status != TGLU_OK;
      fates++;
      if (!reached) break;
    }
  }
  assert_true(failures > 12 && fates > 20);
  print_message("%d planned failures, %d of them seen by the caller\n", fates, failures);
  tglu_context_destroy(context);
  assert_int_equal(warnings, 0);
}

/* A lock that another process never lets go: given up, and said so. */
static void a_lock_without_support(void **state)
{
  (void)state;
  tglu_context *context = context_at(path);
  for (int at = 0; at < 40; at++) {
    seen = 0;
    planned_errno = ENOLCK;
    half_write = 0;
    planned = at;
    const int failed = write_winners(context, 0, 1);
    planned = -1;
    if (failed && strstr(tglu_last_error(), "no locks")) {
      tglu_context_destroy(context);
      return;
    }
  }
  fail_msg("flock was never reached");
}

/* ---- bytes that change ---- */

static void any_change_of_bytes_is_seen(void **state)
{
  (void)state;
  static char good[16384], bad[16384 + 64];
  tglu_context *context = context_at(path);
  assert_int_equal(write_winners(context, 0, 12), 0);
  tglu_context_destroy(context);
  const size_t count = read_file(path, good, sizeof good);
  assert_true(count > 500 && count < sizeof good);
  uint64_t seed = (uint64_t)time(NULL);
  print_message("seed %llu\n", (unsigned long long)seed);
  const char *body;
  size_t length, same = 0;
  for (int i = 0; i < 60000; i++) {
    size_t bytes = count;
    memcpy(bad, good, count);
    for (uint32_t n = 1 + next_random(&seed) % 3; n > 0; n--) {
      const size_t at = next_random(&seed) % bytes, other = next_random(&seed) % bytes;
      switch (next_random(&seed) % 6) {
        case 0: bad[at] = (char)(bad[at] ^ 1 << next_random(&seed) % 8); break;
        case 1: bad[at] = (char)next_random(&seed); break;
        case 2: bytes = at + 1; break;
        case 3: memmove(bad + at, bad + other, bytes - (at > other ? at : other)); break;
        case 4: memmove(bad + at + 1, bad + at, bytes - at), bytes += bytes < count + 40; break;
        default: bad[at] = bad[other]; break;
      }
    }
    const int is_same = bytes == count && memcmp(bad, good, count) == 0;
    const char *why = tglu__cache_open(bad, bytes, &body, &length);
    if ((why == NULL) != is_same) fail_msg("change %d: %s", i, why ? why : "not seen");
    same += (size_t)is_same;
  }
  assert_true(same < 30000);
}

/* The same through the whole path: one warning, right results. */
static void changed_files_are_harmless(void **state)
{
  (void)state;
  static char good[16384];
  tglu_context *context = context_at(path);
  assert_int_equal(write_winners(context, 0, 12), 0);
  tglu_context_destroy(context);
  const size_t count = read_file(path, good, sizeof good);
  uint64_t seed = 11;
  for (int i = 0; i < 300; i++) {
    const size_t at = next_random(&seed) % count;
    const char kept = good[at];
    good[at] = (char)(kept + 1 + (int)(next_random(&seed) % 255));
    write_file(path, good, i % 3 ? count : at);
    good[at] = kept;
    warnings = 0;
    context = context_at(path);
    assert_int_equal(warnings, 1);
    if (i % 50 == 0) assert_computes(context);
    tglu_context_destroy(context);
  }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
  const struct CMUnitTest tests[] = {
    TEST(many_processes_lose_no_winner),
    TEST(threads_of_one_context),
    TEST(forks_in_the_middle),
    TEST(a_child_may_record),
    TEST(killed_writers_leave_a_whole_file),
    TEST(a_stray_temporary_file_is_not_read),
    TEST(every_failing_call),
    TEST(a_lock_without_support),
    TEST(any_change_of_bytes_is_seen),
    TEST(changed_files_are_harmless),
  };
  return cmocka_run_group_tests(tests, find, NULL);
}
