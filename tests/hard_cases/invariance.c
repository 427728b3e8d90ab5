/* H32: a token's bits in batch-invariant mode do not depend on the tokens around it,
 * at the report's size; and a call repeated a hundred times gives the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "number.h"
#include "runner.h"

static const char *isa;

/* One token, first, in the middle and last among `counts`, on several pools. */
static void check_one_token(tt_op op, tglu_dtype dtype, int64_t size) {
  static const int64_t counts[] = {1, 2, 17, 33, 128, 257, 1024};
  enum { COUNTS = sizeof counts / sizeof *counts };
  const int last = size > 1000 ? COUNTS : COUNTS - 1;
  const size_t element = tt_bytes_of(dtype);
  tt_case c;
  tt_operands o;
  tt_pointers p;
  char why[TT_WHY_BYTES];
  tt_case_init(&c);
  c.op = op;
  c.dtype = dtype;
  c.m = counts[last - 1];
  c.n = c.k = size;
  tt_operands_create(&c, &o);
  tt_pointers_of(&o, &p);
  const size_t row = (size_t)size * element;
  unsigned char *token = malloc(row), *expected = malloc(row);
  memcpy(token, o.x.data, row);
  for (int32_t threads = 1; threads <= 2; threads++) {
    tglu_context *context = tt_cpu_context(isa, threads, true);
    tt_object object;
    assert_int_equal(tt_object_create(context, &c, &p, &object), TGLU_OK);
    for (int i = 0; i < last; i++) {
      const int64_t places[] = {0, counts[i] / 2, counts[i] - 1};
      for (int at = 0; at < (counts[i] > 1 ? 3 : 1); at++) {
        unsigned char *x = o.x.data + (size_t)places[at] * row;
        unsigned char *kept = malloc(row);
        tglu_run_args args;
        memcpy(kept, x, row);
        memcpy(x, token, row);
        tt_fill_args(&c, &p, &args);
        args.tokens = counts[i];
        if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
        memcpy(x, kept, row);
        free(kept);
        const unsigned char *result = o.out.data + (size_t)places[at] * row;
        if (threads == 1 && i == 0) memcpy(expected, result, row);
        if (memcmp(expected, result, row) != 0) {
          fail_msg("%s at %s: token %lld of %lld, %d threads: other bits than alone",
                   tglu_dtype_name(dtype), isa, (long long)places[at],
                   (long long)counts[i], (int)threads);
        }
      }
    }
    tt_object_destroy(&object);
    tglu_context_destroy(context);
  }
  free(token);
  free(expected);
  tt_operands_destroy(&o);
}

static void h32_a_token_keeps_its_bits(void **state) {
  (void)state;
  for (int op = 0; op < 3; op++) {
    check_one_token((tt_op)op, TGLU_DTYPE_BF16, 256);
    check_one_token((tt_op)op, TGLU_DTYPE_F16, 256);
    check_one_token((tt_op)op, TGLU_DTYPE_F32, 256);
  }
}

static void h32_at_2048(void **state) {
  (void)state;
  if (strcmp(isa, "portable") == 0 || tt_under_asan() || tt_under_tsan()) {
    printf("SKIP: 2048 x 2048 needs vector kernels and no sanitizer\n");
    skip();
  }
  check_one_token(TT_OP_GLU, TGLU_DTYPE_BF16, 2048);
}

static void h32_hundred_repeats(void **state) {
  (void)state;
  for (int invariant = 0; invariant < 2; invariant++) {
    tglu_context *context = tt_cpu_context(isa, 2, invariant);
    tt_case c;
    tt_operands o;
    char why[TT_WHY_BYTES];
    tt_case_init(&c);
    c.m = 33;
    c.n = c.k = 256;
    tt_operands_create(&c, &o);
    uint64_t first = 0;
    for (int i = 0; i < 100; i++) {
      tt_reset_out(&c, &o);
      if (!tt_run(context, &c, &o, why, sizeof why)) fail_msg("%s", why);
      const uint64_t hash = tt_hash(o.out.data, o.out.bytes);
      if (i == 0) first = hash;
      assert_true(hash == first);
    }
    tt_operands_destroy(&o);
    tglu_context_destroy(context);
  }
}

int main(int argc, char **argv) {
  isa = tt_isa_from_arguments(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h32_a_token_keeps_its_bits),
      cmocka_unit_test(h32_at_2048),
      cmocka_unit_test(h32_hundred_repeats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
