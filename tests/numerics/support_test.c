/* The helpers themselves: number formats, guards, and that a wrong result of any
 * kind is seen. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"
#include "number.h"
#include "oracle.h"
#include "report.h"
#include "rng.h"
#include "runner.h"

static void sixteen_bit_formats_round_trip(void **state) {
  (void)state;
  const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16};
  for (int d = 0; d < 2; d++) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
      const uint16_t pattern = (uint16_t)bits;
      const double value = tt_load(dtypes[d], &pattern, 0);
      if (isnan(value)) continue;
      assert_int_equal(tt_bits_of(dtypes[d], value), bits);
      assert_true(tt_round(dtypes[d], value) == value);
    }
  }
}

static void known_values(void **state) {
  (void)state;
  const struct { tglu_dtype dtype; double value; uint32_t bits; } known[] = {
      {TGLU_DTYPE_BF16, 1, 0x3f80},           {TGLU_DTYPE_BF16, 2.5, 0x4020},
      {TGLU_DTYPE_BF16, 0.73046875, 0x3f3b},  {TGLU_DTYPE_BF16, 0x1p-133, 0x0001},
      {TGLU_DTYPE_BF16, 3.4e38, 0x7f80},      {TGLU_DTYPE_BF16, 1.00390625, 0x3f80},
      {TGLU_DTYPE_BF16, 1.01171875, 0x3f82},  {TGLU_DTYPE_F16, 65504, 0x7bff},
      {TGLU_DTYPE_F16, 65520, 0x7c00},        {TGLU_DTYPE_F16, 65519, 0x7bff},
      {TGLU_DTYPE_F16, 0x1p-24, 0x0001},      {TGLU_DTYPE_F16, 0x1p-25, 0x0000},
      {TGLU_DTYPE_F16, -1.5, 0xbe00},         {TGLU_DTYPE_F32, 0x1p-149, 0x00000001},
      {TGLU_DTYPE_F32, -INFINITY, 0xff800000}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    assert_int_equal(tt_bits_of(known[i].dtype, known[i].value), known[i].bits);
  }
}

static void f32_agrees_with_the_processor(void **state) {
  (void)state;
  tt_rng rng;
  tt_rng_seed(&rng, 5);
  for (int i = 0; i < 200000; i++) {
    const double value =
        ldexp(tt_rng_normal(&rng), (int)tt_rng_between(&rng, -160, 130));
    const volatile float cast = (float)value;
    assert_true(tt_round(TGLU_DTYPE_F32, value) == (double)cast);
  }
}

static void ulp_distances(void **state) {
  (void)state;
  assert_int_equal(tt_ulp_distance(TGLU_DTYPE_BF16, 1, 1.0078125), 1);
  assert_int_equal(tt_ulp_distance(TGLU_DTYPE_F16, -0x1p-24, 0x1p-24), 2);
  assert_int_equal(tt_ulp_distance(TGLU_DTYPE_F32, 0.0, -0.0), 0);
  assert_true(tt_ulp_distance(TGLU_DTYPE_F32, NAN, 0) > 1000000);
}

static void guards_notice_a_byte(void **state) {
  (void)state;
  for (int place = 0; place < 3; place++) {
    tt_buffer buffer;
    int64_t offset = 0;
    tt_buffer_create(&buffer, 100, (tt_place)place, 0);
    memset(buffer.data, 0, 100);
    assert_true(tt_buffer_intact(&buffer, &offset));
    unsigned char *beside =
        place == TT_PLACE_END ? buffer.data - 1 : buffer.data + buffer.bytes;
    *beside = (unsigned char)(*beside ^ 1);
    assert_false(tt_buffer_intact(&buffer, &offset));
    assert_int_equal(offset, place == TT_PLACE_END ? -1 : 100);
    tt_buffer_destroy(&buffer);
  }
}

static int read_one_beyond(void *user) {
  const volatile unsigned char *end = user;
  return *end == 1 ? 3 : 4; /* not reached */
}

static void page_end_stops_a_read(void **state) {
  (void)state;
  if (tt_under_asan() || tt_under_tsan()) skip(); /* the sanitizer ends the child */
  tt_buffer buffer;
  char why[TT_WHY_BYTES];
  tt_buffer_create(&buffer, 100, TT_PLACE_END, 0);
  tt_announce(NULL);
  assert_false(tt_in_child(read_one_beyond, buffer.data + 100, 10, why, sizeof why));
  assert_non_null(strstr(why, "signal 11"));
  tt_buffer_destroy(&buffer);
}

/* A case with its operands, its reference, and the plain result as the output. */
typedef struct fixture {
  tt_case c;
  tt_operands operands;
  tt_reference reference;
} fixture;

static void fixture_create(fixture *f, tt_op op, tglu_dtype dtype) {
  tt_case_init(&f->c);
  f->c.op = op;
  f->c.dtype = dtype;
  f->c.m = 9;
  f->c.n = 21;
  f->c.k = 37;
  f->c.pad_out = 3;
  f->c.down_bias = true;
  tt_operands_create(&f->c, &f->operands);
  tt_reference_create(&f->c, &f->operands, &f->reference);
  for (int64_t t = 0; t < f->reference.rows; t++) {
    for (int64_t j = 0; j < f->reference.columns; j++) {
      tt_store(dtype, f->operands.out.data, t * tt_ld_out(&f->c) + j,
               f->reference.plain[t * f->reference.columns + j]);
    }
  }
}

static void fixture_destroy(fixture *f) {
  tt_reference_destroy(&f->reference);
  tt_operands_destroy(&f->operands);
}

static bool passes(const fixture *f, tt_report *report) {
  char why[TT_WHY_BYTES];
  tt_compare(f->c.dtype, f->operands.out.data, tt_ld_out(&f->c), &f->reference, report);
  return tt_report_passes(report, 0, why, sizeof why);
}

static void comparison_sees_one_element(void **state) {
  (void)state;
  const tglu_dtype dtypes[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16, TGLU_DTYPE_F32};
  for (int i = 0; i < 9; i++) {
    fixture f;
    tt_report report;
    fixture_create(&f, (tt_op)(i / 3), dtypes[i % 3]);
    assert_true(passes(&f, &report));
    const int64_t last = f.reference.rows * f.reference.columns - 1;
    const int64_t at = (f.reference.rows - 1) * tt_ld_out(&f.c) + f.reference.columns - 1;
    const double value = f.reference.value[last];
    const double wrong[] = {NAN, INFINITY, -value, 0, value * 1.05};
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
      tt_store(f.c.dtype, f.operands.out.data, at, wrong[w]);
      assert_false(passes(&f, &report));
      assert_int_equal(report.outside, 1);
      assert_int_equal(report.worst_row, f.reference.rows - 1);
      assert_int_equal(report.worst_column, f.reference.columns - 1);
    }
    fixture_destroy(&f);
  }
}

static void comparison_sees_a_second_rounding(void **state) {
  (void)state;
  fixture f;
  tt_report report;
  fixture_create(&f, TT_OP_GLU, TGLU_DTYPE_BF16);
  for (int64_t t = 0; t < f.reference.rows; t++) {
    for (int64_t j = 0; j < f.reference.columns; j++) {
      double g = 0, u = 0;
      for (int64_t i = 0; i < f.c.k; i++) {
        g += tt_x_at(&f.c, &f.operands, t, i) * tt_gate_at(&f.c, &f.operands, j, i);
        u += tt_x_at(&f.c, &f.operands, t, i) * tt_up_at(&f.c, &f.operands, j, i);
      }
      const double a =
          tt_activation(f.c.activation, f.c.alpha, f.c.limit, f.c.offset, g, 1);
      tt_store(f.c.dtype, f.operands.out.data, t * tt_ld_out(&f.c) + j,
               tt_round(f.c.dtype, a) * u);
    }
  }
  assert_false(passes(&f, &report));
  fixture_destroy(&f);
}

static void oracle_known_values(void **state) {
  (void)state;
  const float inf = INFINITY;
  const double g = -2.703125;
  const struct { tglu_activation activation; float limit, offset; double want; } known[] =
      {{TGLU_ACTIVATION_SILU, 7, 1, -0.1697271},
       {TGLU_ACTIVATION_GELU_ERF, 7, 1, -0.0092840},
       {TGLU_ACTIVATION_GELU_TANH, 7, 1, -0.0088108},
       {TGLU_ACTIVATION_SWIGLUOAI, inf, 0, -0.0268818}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const double got = tt_activation(known[i].activation, 1.702f, known[i].limit,
                                     known[i].offset, g, 1);
    assert_true(fabs(got - known[i].want) < 1e-7);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sixteen_bit_formats_round_trip),
      cmocka_unit_test(known_values),
      cmocka_unit_test(f32_agrees_with_the_processor),
      cmocka_unit_test(ulp_distances),
      cmocka_unit_test(guards_notice_a_byte),
      cmocka_unit_test(page_end_stops_a_read),
      cmocka_unit_test(comparison_sees_one_element),
      cmocka_unit_test(comparison_sees_a_second_rounding),
      cmocka_unit_test(oracle_known_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
