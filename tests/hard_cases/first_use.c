/* H21: first use from sixteen threads at once, in cold processes, each thread with
 * its own shape; then a hundred rounds on what the first round left behind. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "runner.h"

enum { THREADS = 16, ROUNDS = 100, PROCESSES = 8 };

static pthread_barrier_t barrier;

typedef struct worker {
  int index, rounds;
  bool same_shape;
  char why[TT_WHY_BYTES];
  bool good;
} worker;

static void shape_of(const worker *w, tt_case *c) {
  tt_case_init(c);
  const int i = w->same_shape ? 0 : w->index;
  c->op = (tt_op)(i % 3);
  c->dtype = (tglu_dtype)(1 + i % 3);
  c->layout = (tglu_layout)(1 + i % 4);
  c->m = 1 + 3 * i;
  c->n = 8 + 5 * i;
  c->k = 16 + 7 * i;
  c->activation = (tglu_activation)(1 + i % 6);
}

static void *worker_main(void *user) {
  worker *w = user;
  tt_case c;
  shape_of(w, &c);
  w->good = true;
  pthread_barrier_wait(&barrier);
  tglu_context *context = tt_cpu_context(NULL, 1 + w->index % 2, false);
  w->good = tt_check_case(context, &c, NULL, w->why, sizeof w->why);
  tt_operands o;
  tt_operands_create(&c, &o);
  for (int i = 1; i < w->rounds && w->good; i++) {
    if (i % 25 == 0) {
      tglu_context_destroy(context);
      context = tt_cpu_context(NULL, 1 + w->index % 2, false);
    }
    tt_reset_out(&c, &o);
    w->good = tt_run(context, &c, &o, w->why, sizeof w->why) &&
              tt_operands_intact(&c, &o, w->why, sizeof w->why);
  }
  tt_operands_destroy(&o);
  tglu_context_destroy(context);
  return NULL;
}

/* The cold process: nothing of the library ran before the barrier. */
static int cold_main(int rounds, bool same_shape) {
  static worker workers[THREADS];
  pthread_t threads[THREADS];
  int bad = 0;
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.index = i, .rounds = rounds, .same_shape = same_shape};
    if (pthread_create(&threads[i], NULL, worker_main, &workers[i]) != 0) return 3;
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    if (workers[i].good) continue;
    fprintf(stderr, "thread %d: %s\n", i, workers[i].why);
    bad = 1;
  }
  pthread_barrier_destroy(&barrier);
  return bad;
}

static int run_cold(const char *rounds, const char *shape) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "hard_first_use", rounds, shape, (char *)NULL);
    _exit(127);
  }
  int state = 0;
  waitpid(child, &state, 0);
  return state;
}

static void h21_each_thread_its_own_shape(void **state) {
  (void)state;
  for (int i = 0; i < PROCESSES; i++) assert_int_equal(run_cold("1", "own"), 0);
  char rounds[16];
  snprintf(rounds, sizeof rounds, "%d", ROUNDS);
  assert_int_equal(run_cold(rounds, "own"), 0);
}

static void h21_one_shape_for_all(void **state) {
  (void)state;
  for (int i = 0; i < PROCESSES; i++) assert_int_equal(run_cold("1", "same"), 0);
}

int main(int argc, char **argv) {
  if (argc == 3) return cold_main(atoi(argv[1]), strcmp(argv[2], "same") == 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h21_each_thread_its_own_shape),
      cmocka_unit_test(h21_one_shape_for_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
