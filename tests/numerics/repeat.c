/* The same call gives the same bits: repeated, in any number of threads at once, on
 * objects that share a context, and in batch-invariant mode whatever stands around
 * a token and however many threads work.  At one ISA level. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "number.h"
#include "runner.h"

static const char *isa;
static const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};

static void medium_case(tt_case *c, tt_op op, tglu_dtype dtype) {
  tt_case_init(c);
  c->op = op;
  c->dtype = dtype;
  c->layout = TGLU_LAYOUT_INTERLEAVED;
  c->m = 17; /* enough products for the pool to be used */
  c->n = 61;
  c->k = 150;
  c->gate_bias = c->up_bias = c->down_bias = true;
  if (op != TT_OP_GLU) c->residual = TT_RESIDUAL_APART;
}

/* Runs and copies the output's bytes (gaps included). */
static void run_bytes(tglu_context *context, const tt_case *c, tt_operands *o,
                      unsigned char *bytes) {
  char why[TT_WHY_BYTES];
  tt_reset_out(c, o);
  if (!tt_run(context, c, o, why, sizeof why)) fail_msg("%s", why);
  memcpy(bytes, o->out.data, o->out.bytes);
}

static void fifty_runs(void **state) {
  (void)state;
  for (int threads = 1; threads <= 2; threads++) {
    tglu_context *context = tt_cpu_context(isa, threads, false);
    for (int i = 0; i < 9; i++) {
      tt_case c;
      tt_operands o;
      medium_case(&c, (tt_op)(i / 3), dtypes[i % 3]);
      tt_operands_create(&c, &o);
      unsigned char *first = malloc(o.out.bytes), *again = malloc(o.out.bytes);
      run_bytes(context, &c, &o, first);
      for (int run = 1; run < 50; run++) {
        run_bytes(context, &c, &o, again);
        assert_memory_equal(first, again, o.out.bytes);
      }
      free(first);
      free(again);
      tt_operands_destroy(&o);
    }
    tglu_context_destroy(context);
  }
}

/* ---- batch-invariant mode ---- */

/* Row `from` of out in a call of `tokens` rows beginning at row `first`. */
static void run_rows(tglu_context *context, const tt_case *c, tt_operands *o,
                     int64_t first, int64_t tokens) {
  char why[TT_WHY_BYTES];
  tt_pointers p;
  tt_object object;
  tglu_run_args args;
  tt_pointers_of(o, &p);
  const size_t element = tt_bytes_of(c->dtype);
  p.x = o->x.data + (size_t)(first * tt_ld_x(c)) * element;
  p.out = o->out.data + (size_t)(first * tt_ld_out(c)) * element;
  if (p.residual != NULL) {
    p.residual = o->residual.data + (size_t)(first * tt_ld_residual(c)) * element;
  }
  assert_int_equal(tt_object_create(context, c, &p, &object), TGLU_OK);
  tt_fill_args(c, &p, &args);
  args.tokens = tokens;
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  tt_object_destroy(&object);
}

static void check_invariance(tt_op op, tglu_dtype dtype, int64_t n, int64_t k) {
  static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 17, 33, 65};
  tt_case c;
  tt_operands o;
  medium_case(&c, op, dtype);
  c.m = 65;
  c.n = n;
  c.k = k;
  tt_operands_create(&c, &o);
  unsigned char *expected = malloc(o.out.bytes);
  tglu_context *context = tt_cpu_context(isa, 1, true);
  run_bytes(context, &c, &o, expected);
  tglu_context_destroy(context);
  for (int threads = 1; threads <= 3; threads += 2) {
    context = tt_cpu_context(isa, threads, true);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      tt_reset_out(&c, &o);
      for (int64_t first = 0; first < c.m; first += counts[i]) {
        const int64_t rest = c.m - first;
        run_rows(context, &c, &o, first, counts[i] < rest ? counts[i] : rest);
      }
      if (memcmp(o.out.data, expected, o.out.bytes) != 0) {
        fail_msg("%s %s at %s: bits depend on the tokens: groups of %lld, %d threads",
                 op == TT_OP_GLU ? "glu" : op == TT_OP_MLP ? "mlp" : "linear",
                 tglu_dtype_name(dtype), isa, (long long)counts[i], threads);
      }
    }
    tglu_context_destroy(context);
  }
  free(expected);
  tt_operands_destroy(&o);
}

static void batch_invariant_tokens(void **state) {
  (void)state;
  for (int i = 0; i < 9; i++) {
    check_invariance((tt_op)(i / 3), dtypes[i % 3], 45, 150);
    check_invariance((tt_op)(i / 3), dtypes[i % 3], 19, 1100);
  }
}

/* ---- many threads ---- */

enum { CALLERS = 5, ROUNDS = 16 };

typedef struct caller {
  tglu_context *context;    /* to make an object of its own, or ...            */
  const tt_object *object;  /* ... the shared one                              */
  tt_case c;
  tt_operands operands;
  unsigned char *expected;
  char why[TT_WHY_BYTES];
  bool good;
} caller;

static bool one_round(caller *self) {
  tt_pointers p;
  tglu_run_args args;
  tt_object own = {0};
  tt_pointers_of(&self->operands, &p);
  if (self->object == NULL &&
      tt_object_create(self->context, &self->c, &p, &own) != TGLU_OK) {
    snprintf(self->why, sizeof self->why, "create: %s", tglu_last_error());
    return false;
  }
  const tt_object *object = self->object == NULL ? &own : self->object;
  tt_reset_out(&self->c, &self->operands);
  tt_fill_args(&self->c, &p, &args);
  bool good = tt_object_run(object, &args, self->why, sizeof self->why);
  tt_object_destroy(&own);
  if (good && memcmp(self->operands.out.data, self->expected,
                     self->operands.out.bytes) != 0) {
    snprintf(self->why, sizeof self->why, "result differs from the one run alone");
    good = false;
  }
  return good;
}

static void *caller_main(void *user) {
  caller *self = user;
  self->good = true;
  for (int i = 0; i < ROUNDS && self->good; i++) self->good = one_round(self);
  return NULL;
}

/* All callers have the data of case c; with `shared` they use one object, which
 * binds the weights of callers[0]. */
static void run_callers(tt_op op, tglu_dtype dtype, bool shared, bool apart) {
  static caller callers[CALLERS];
  tglu_context *context = tt_cpu_context(isa, 2, false);
  tt_object object = {0};
  for (int i = 0; i < CALLERS; i++) {
    caller *self = &callers[i];
    medium_case(&self->c, op, dtype);
    if (!shared) self->c.m = 1 + 5 * i; /* each its own shape */
    if (!shared) self->c.n = 21 + 7 * i;
    tt_operands_create(&self->c, &self->operands);
    self->expected = malloc(self->operands.out.bytes);
    run_bytes(context, &self->c, &self->operands, self->expected);
    self->context = apart ? tt_cpu_context(isa, 2, false) : context;
    self->object = NULL;
  }
  if (shared) {
    tt_pointers p;
    tt_pointers_of(&callers[0].operands, &p);
    assert_int_equal(tt_object_create(context, &callers[0].c, &p, &object), TGLU_OK);
    for (int i = 0; i < CALLERS; i++) callers[i].object = &object;
  }
  pthread_t threads[CALLERS];
  for (int i = 0; i < CALLERS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, caller_main, &callers[i]), 0);
  }
  bool good = true;
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(threads[i], NULL);
    if (!callers[i].good) fprintf(stderr, "caller %d: %s\n", i, callers[i].why);
    good = good && callers[i].good;
  }
  tt_object_destroy(&object);
  for (int i = 0; i < CALLERS; i++) {
    free(callers[i].expected);
    tt_operands_destroy(&callers[i].operands);
    if (apart) tglu_context_destroy(callers[i].context);
  }
  tglu_context_destroy(context);
  assert_true(good);
}

static void threads_on_one_object(void **state) {
  (void)state;
  for (int i = 0; i < 9; i++) run_callers((tt_op)(i / 3), dtypes[i % 3], true, false);
}

static void threads_on_objects_of_one_context(void **state) {
  (void)state;
  for (int i = 0; i < 9; i++) run_callers((tt_op)(i / 3), dtypes[i % 3], false, false);
}

static void threads_on_contexts_of_their_own(void **state) {
  (void)state;
  run_callers(TT_OP_GLU, TGLU_DTYPE_BF16, false, true);
  run_callers(TT_OP_MLP, TGLU_DTYPE_F32, false, true);
}

/* Bound weights may change between runs: the next run uses the new contents. */
static void weights_changed_in_place(void **state) {
  (void)state;
  for (int i = 0; i < 9; i++) {
    tt_case c;
    tt_operands o, fresh;
    tt_pointers p;
    tt_object object;
    tglu_run_args args;
    char why[TT_WHY_BYTES];
    tglu_context *context = tt_cpu_context(isa, 2, false);
    medium_case(&c, (tt_op)(i / 3), dtypes[i % 3]);
    tt_operands_create(&c, &o);
    tt_pointers_of(&o, &p);
    assert_int_equal(tt_object_create(context, &c, &p, &object), TGLU_OK);
    tt_fill_args(&c, &p, &args);
    if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
    c.seed = 77;
    tt_operands_create(&c, &fresh);
    if (o.gate_up.bytes > 0) memcpy(o.gate_up.data, fresh.gate_up.data, o.gate_up.bytes);
    if (o.gate_up_bias.bytes > 0) {
      memcpy(o.gate_up_bias.data, fresh.gate_up_bias.data, o.gate_up_bias.bytes);
    }
    if (o.down.bytes > 0) memcpy(o.down.data, fresh.down.data, o.down.bytes);
    if (o.down_bias.bytes > 0) {
      memcpy(o.down_bias.data, fresh.down_bias.data, o.down_bias.bytes);
    }
    if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
    /* The old x and residual with the new weights. */
    memcpy(fresh.x.data, o.x.data, o.x.bytes);
    if (o.residual.bytes > 0) memcpy(fresh.residual.data, o.residual.data, o.residual.bytes);
    if (!tt_run(context, &c, &fresh, why, sizeof why)) fail_msg("%s", why);
    assert_memory_equal(o.out.data, fresh.out.data, o.out.bytes);
    tt_object_destroy(&object);
    tt_operands_destroy(&o);
    tt_operands_destroy(&fresh);
    tglu_context_destroy(context);
  }
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fifty_runs),
      cmocka_unit_test(batch_invariant_tokens),
      cmocka_unit_test(threads_on_one_object),
      cmocka_unit_test(threads_on_objects_of_one_context),
      cmocka_unit_test(threads_on_contexts_of_their_own),
      cmocka_unit_test(weights_changed_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
