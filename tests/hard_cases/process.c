/* H23, the part without a GPU: fork after CPU use.  A child goes on with what it
 * inherited, whatever the parent's threads were doing at that moment. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "runner.h"

static const char *isa;

typedef struct inherited {
  tglu_context *context;
  tt_case c;
  tt_operands operands;
  tt_object object;
  uint64_t expected;
} inherited;

static bool run_and_compare(inherited *t) {
  char why[TT_WHY_BYTES];
  tt_pointers p;
  tglu_run_args args;
  tt_pointers_of(&t->operands, &p);
  tt_fill_args(&t->c, &p, &args);
  tt_reset_out(&t->c, &t->operands);
  if (!tt_object_run(&t->object, &args, why, sizeof why)) {
    fprintf(stderr, "%s\n", why);
    return false;
  }
  return tt_hash(t->operands.out.data, t->operands.out.bytes) == t->expected;
}

static void inherited_create(inherited *t, int32_t threads) {
  tt_pointers p;
  memset(t, 0, sizeof *t);
  t->context = tt_cpu_context(isa, threads, false);
  tt_case_init(&t->c);
  t->c.op = TT_OP_MLP;
  t->c.m = 17;
  t->c.n = 65;
  t->c.k = 90;
  tt_operands_create(&t->c, &t->operands);
  tt_pointers_of(&t->operands, &p);
  assert_int_equal(tt_object_create(t->context, &t->c, &p, &t->object), TGLU_OK);
  run_and_compare(t);
  t->expected = tt_hash(t->operands.out.data, t->operands.out.bytes);
  assert_true(run_and_compare(t));
}

static void inherited_destroy(inherited *t) {
  tt_object_destroy(&t->object);
  tt_operands_destroy(&t->operands);
  tglu_context_destroy(t->context);
}

/* The parent's object, then one of its own on the inherited context, then a context
 * of its own; and everything can be freed. */
static int use_in_child(void *user) {
  inherited *t = user;
  char why[TT_WHY_BYTES];
  for (int i = 0; i < 3; i++) {
    if (!run_and_compare(t)) return 2;
  }
  if (!tt_check_case(t->context, &t->c, NULL, why, sizeof why)) return 3;
  tglu_context *own = tt_cpu_context(isa, tt_under_tsan() ? 1 : 2, false);
  if (!tt_check_case(own, &t->c, NULL, why, sizeof why)) return 4;
  tglu_context_destroy(own);
  inherited_destroy(t);
  return 0;
}

static int use_in_grandchild(void *user) {
  char why[TT_WHY_BYTES];
  inherited *t = user;
  if (!run_and_compare(t)) return 2;
  return tt_in_child(use_in_child, t, 60, why, sizeof why) ? 0 : 5;
}

static void h23_child_uses_what_it_inherited(void **state) {
  (void)state;
  for (int32_t threads = 1; threads <= 3; threads++) {
    inherited t;
    char why[TT_WHY_BYTES];
    inherited_create(&t, threads);
    if (!tt_in_child(use_in_child, &t, 60, why, sizeof why)) fail_msg("%s", why);
    if (!tt_in_child(use_in_grandchild, &t, 120, why, sizeof why)) fail_msg("%s", why);
    assert_true(run_and_compare(&t)); /* and the parent's pool still works */
    inherited_destroy(&t);
  }
}

/* ---- fork while other threads are inside a run ---- */

static atomic_bool stop;

static void *keep_running(void *user) {
  inherited *t = user;
  bool good = true;
  while (!atomic_load(&stop)) good = run_and_compare(t) && good;
  return good ? user : NULL;
}

typedef struct pair { inherited busy, idle; } pair;

/* busy's output belongs to the parent's thread and may be half-written in the copy;
 * its context, whose pool may have been locked at the fork, must work. */
static int use_busy_context(void *user) {
  pair *both = user;
  char why[TT_WHY_BYTES];
  if (!run_and_compare(&both->idle)) return 2;
  if (!tt_check_case(both->busy.context, &both->idle.c, NULL, why, sizeof why)) return 3;
  return 0;
}

static void h23_fork_while_others_run(void **state) {
  (void)state;
  static pair both;
  char why[TT_WHY_BYTES];
  if (tt_under_tsan()) {
    printf("SKIP: ThreadSanitizer cannot follow a child of a threaded process\n");
    skip();
  }
  inherited_create(&both.busy, 2);
  inherited_create(&both.idle, 2);
  pthread_t thread;
  atomic_store(&stop, false);
  assert_int_equal(pthread_create(&thread, NULL, keep_running, &both.busy), 0);
  bool good = true;
  for (int i = 0; i < 25 && good; i++) {
    usleep((useconds_t)(137 * i % 1000));
    good = tt_in_child(use_busy_context, &both, 60, why, sizeof why);
  }
  atomic_store(&stop, true);
  void *result;
  pthread_join(thread, &result);
  if (!good) fail_msg("%s", why);
  assert_non_null(result);
  inherited_destroy(&both.busy);
  inherited_destroy(&both.idle);
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h23_child_uses_what_it_inherited),
      cmocka_unit_test(h23_fork_while_others_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
