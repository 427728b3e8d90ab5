/* H09: element and byte offsets beyond 2^31.  Rows far apart in sparse mappings in
 * every run; the dense problems of the report (4 GiB of output or input) too, unless
 * memory is short or a sanitizer watches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "cmocka_all.h"
#include "number.h"
#include "runner.h"

static tglu_context *context;

static unsigned char *map_sparse(size_t bytes) {
  unsigned char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(at != MAP_FAILED);
  return at;
}

/* Moves the rows of a tight matrix to rows `ld` apart. */
static void spread(unsigned char *to, int64_t ld, const unsigned char *from,
                   int64_t rows, int64_t columns, size_t element) {
  for (int64_t r = 0; r < rows; r++) {
    memcpy(to + (size_t)(r * ld) * element, from + (size_t)(r * columns) * element,
           (size_t)columns * element);
  }
}

typedef enum far_operand { FAR_X, FAR_WEIGHTS, FAR_DOWN, FAR_OUT, FAR_RESIDUAL } far_operand;

/* The case with one operand's rows so far apart that the last lies beyond 2^32
 * elements; the result must have the same bits. */
static void check_far(tt_op op, tglu_dtype dtype, far_operand far) {
  const size_t element = tt_bytes_of(dtype);
  tt_case c;
  tt_operands o;
  tt_pointers p;
  tt_object object;
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  tt_case_init(&c);
  c.op = op;
  c.dtype = dtype;
  c.layout = TGLU_LAYOUT_STACKED_GATE_FIRST;
  c.m = 5;
  c.n = op == TT_OP_MLP ? 5 : 7;
  c.k = op == TT_OP_MLP ? 7 : 33;
  if (op != TT_OP_GLU) c.residual = TT_RESIDUAL_APART;
  tt_operands_create(&c, &o);
  if (!tt_run(context, &c, &o, why, sizeof why)) fail_msg("%s", why);
  tt_pointers_of(&o, &p);
  const int64_t ld = (INT64_C(1) << 30) + 3;
  const int64_t rows = far == FAR_WEIGHTS ? 2 * c.n : far == FAR_DOWN ? tt_out_columns(&c)
                                                                      : c.m;
  const int64_t columns = far == FAR_X || far == FAR_WEIGHTS ? c.k
                          : far == FAR_DOWN ? tt_down_columns(&c) : tt_out_columns(&c);
  const size_t bytes = (size_t)((rows - 1) * ld + columns) * element;
  unsigned char *wide = map_sparse(bytes);
  tglu_mlp_desc desc;
  tglu_linear_desc linear;
  tt_fill_desc(&c, &p, &desc);
  tt_fill_linear_desc(&c, &p, &linear);
  tt_fill_args(&c, &p, &args);
  switch (far) {
    case FAR_X:
      spread(wide, ld, o.x.data, rows, columns, element);
      args.x = wide;
      args.ldx = ld;
      break;
    case FAR_WEIGHTS:
      spread(wide, ld, o.gate_up.data, rows, columns, element);
      desc.glu.gate_up = wide;
      desc.glu.ld = ld;
      break;
    case FAR_DOWN:
      spread(wide, ld, o.down.data, rows, columns, element);
      desc.down = linear.weight = wide;
      desc.ld_down = linear.ld = ld;
      break;
    case FAR_OUT:
      args.out = wide;
      args.ldo = ld;
      break;
    case FAR_RESIDUAL:
      spread(wide, ld, o.residual.data, rows, columns, element);
      args.residual = wide;
      args.ldr = ld;
      break;
  }
  memset(&object, 0, sizeof object);
  const tglu_status status =
      op == TT_OP_GLU   ? tglu_glu_create(context, &desc.glu, &object.glu)
      : op == TT_OP_MLP ? tglu_mlp_create(context, &desc, &object.mlp)
                        : tglu_linear_create(context, &linear, &object.linear);
  if (status != TGLU_OK) fail_msg("create: %s", tglu_last_error());
  unsigned char *expected = malloc(o.out.bytes);
  memcpy(expected, o.out.data, o.out.bytes);
  tt_reset_out(&c, &o);
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  const size_t row_bytes = (size_t)tt_out_columns(&c) * element;
  for (int64_t r = 0; r < c.m; r++) {
    const unsigned char *row = far == FAR_OUT ? wide + (size_t)(r * ld) * element
                                              : o.out.data + (size_t)r * row_bytes;
    if (memcmp(row, expected + (size_t)r * row_bytes, row_bytes) != 0) {
      fail_msg("op %d, %s, operand %d: row %lld differs", (int)op,
               tglu_dtype_name(dtype), (int)far, (long long)r);
    }
  }
  free(expected);
  munmap(wide, bytes);
  tt_object_destroy(&object);
  tt_operands_destroy(&o);
}

static void h09_rows_far_apart(void **state) {
  (void)state;
  if (tt_under_tsan()) skip(); /* shadow memory for tens of GiB of addresses */
  static const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};
  for (int d = 0; d < 3; d++) {
    check_far(TT_OP_GLU, dtypes[d], FAR_X);
    check_far(TT_OP_GLU, dtypes[d], FAR_WEIGHTS);
    check_far(TT_OP_GLU, dtypes[d], FAR_OUT);
    check_far(TT_OP_MLP, dtypes[d], FAR_X);
    check_far(TT_OP_MLP, dtypes[d], FAR_WEIGHTS);
    check_far(TT_OP_MLP, dtypes[d], FAR_DOWN);
    check_far(TT_OP_MLP, dtypes[d], FAR_OUT);
    check_far(TT_OP_MLP, dtypes[d], FAR_RESIDUAL);
    check_far(TT_OP_LINEAR, dtypes[d], FAR_DOWN);
  }
}

/* A dense GLU; only the last two rows of x differ from zero.  The last row must have
 * the bits of the same row run alone (batch-invariant context). */
static void check_dense(int64_t m, int64_t n, int64_t k) {
  const size_t x_bytes = (size_t)(m * k) * 2, out_bytes = (size_t)(m * n) * 2;
  const uint64_t need = x_bytes + out_bytes + ((uint64_t)1 << 30);
  struct sysinfo machine;
  sysinfo(&machine);
  const uint64_t free_bytes = (machine.freeram + machine.bufferram) * machine.mem_unit;
  if (tt_under_asan() || tt_under_tsan() || free_bytes < need ||
      strcmp(tglu_cpu_isa(), "portable") == 0) {
    printf("SKIP: dense %lld x %lld x %lld needs %llu MiB, vector kernels and no "
           "sanitizer\n", (long long)m, (long long)n, (long long)k,
           (unsigned long long)(need >> 20));
    skip();
  }
  tt_case c;
  tt_operands o;
  tt_pointers p;
  tt_object object;
  tglu_run_args args;
  char why[TT_WHY_BYTES];
  tt_case_init(&c);
  c.m = 2;
  c.n = n;
  c.k = k;
  tt_operands_create(&c, &o);
  tt_pointers_of(&o, &p);
  unsigned char *x = map_sparse(x_bytes), *out = map_sparse(out_bytes);
  unsigned char *alone = malloc((size_t)n * 2);
  memcpy(x + x_bytes - (size_t)(2 * k) * 2, o.x.data, (size_t)(2 * k) * 2);
  assert_int_equal(tt_object_create(context, &c, &p, &object), TGLU_OK);
  tt_fill_args(&c, &p, &args);
  args.x = x;
  args.out = out;
  args.tokens = m;
  if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
  for (int64_t back = 1; back <= 2; back++) {
    args.x = x + x_bytes - (size_t)(back * k) * 2;
    args.out = alone;
    args.tokens = 1;
    memset(alone, 0xff, (size_t)n * 2);
    if (!tt_object_run(&object, &args, why, sizeof why)) fail_msg("%s", why);
    assert_memory_equal(alone, out + out_bytes - (size_t)(back * n) * 2, (size_t)n * 2);
  }
  const unsigned char *zero_row = out + out_bytes - (size_t)(3 * n) * 2;
  for (size_t i = 0; i < (size_t)n; i++) assert_true(tt_load(c.dtype, zero_row, (int64_t)i) == 0);
  free(alone);
  munmap(x, x_bytes);
  munmap(out, out_bytes);
  tt_object_destroy(&object);
  tt_operands_destroy(&o);
}

static void h09_output_beyond_2_31_elements(void **state) {
  (void)state;
  check_dense(65537, 32768, 16);
}

static void h09_output_beyond_2_31_bytes(void **state) {
  (void)state;
  check_dense(32769, 32768, 16);
}

static void h09_input_beyond_2_31_elements(void **state) {
  (void)state;
  check_dense(131073, 8, 16384);
}

int main(void) {
  context = tt_cpu_context(NULL, 0, true);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h09_rows_far_apart),
      cmocka_unit_test(h09_output_beyond_2_31_elements),
      cmocka_unit_test(h09_output_beyond_2_31_bytes),
      cmocka_unit_test(h09_input_beyond_2_31_elements),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  tglu_context_destroy(context);
  return failed;
}
