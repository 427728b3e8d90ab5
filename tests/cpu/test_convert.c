/* Conversions: all 65,536 patterns of bf16 and fp16 to fp32 and back, every midpoint
 * between neighbours and the floats next to it; the scalar code and every ISA's
 * routines, at odd addresses and with every tail. */
#include "check.h"
#include "cpu/numeric.h"

static const tglu_dtype halves[] = {TGLU_DTYPE_BF16, TGLU_DTYPE_F16};

static void test_scalar_widening(void **state) {
  (void)state;
  for (int d = 0; d < 2; d++)
    for (uint32_t bits = 0; bits < 65536; bits++) {
      uint16_t half[2] = {(uint16_t)bits, 0};
      float value = tglu__load(halves[d], half, 0);
      assert_true(same((double)value, value_of_half(halves[d], half[0])));
      uint16_t back[2] = {0xabcd, 0xabcd};
      tglu__store(halves[d], back, 0, value);
      if (isnan(value))
        assert_true(isnan(value_of_half(halves[d], back[0])));
      else
        assert_int_equal(back[0], half[0]);
    }
}

/* Floats around every rounding decision of dtype: 7 a pattern of the half. */
enum { AROUND = 7, VALUES = 65536 * AROUND };

static void fill_values(tglu_dtype dtype, float *values) {
  for (uint32_t bits = 0; bits < 65536; bits++) {
    double low = value_of_half(dtype, (uint16_t)bits);
    uint16_t next_bits = (uint16_t)(bits + 1); /* next larger magnitude */
    double high = value_of_half(dtype, next_bits);
    /* beyond the largest finite value the next step would be as wide as the last */
    if (isinf(high)) high = 2 * low - value_of_half(dtype, (uint16_t)(bits - 1));
    float *v = values + (size_t)bits * AROUND;
    v[0] = (float)low;
    v[1] = nextafterf((float)low, INFINITY);
    v[2] = nextafterf((float)low, -INFINITY);
    v[3] = v[4] = v[5] = v[6] = (float)low;
    if (!isfinite(low) || isnan(high)) continue;
    v[3] = (float)(low / 2 + high / 2);
    v[4] = nextafterf(v[3], INFINITY);
    v[5] = nextafterf(v[3], -INFINITY);
    v[6] = (float)(low + (high - low) * 0.3);
  }
}

static void test_scalar_rounding(void **state) {
  (void)state;
  float *values = malloc(VALUES * sizeof *values);
  for (int d = 0; d < 2; d++) {
    fill_values(halves[d], values);
    for (int i = 0; i < VALUES; i++) {
      uint16_t half[2] = {0xabcd, 0xabcd};
      tglu__store(halves[d], half, 0, values[i]);
      double expected = rounded(halves[d], (double)values[i]);
      if (!same(value_of_half(halves[d], half[0]), expected))
        fail_msg("%s: %a became %a, not %a", tglu_dtype_name(halves[d]), (double)values[i],
                 value_of_half(halves[d], half[0]), expected);
    }
  }
  free(values);
}

/* The store routine with neither bias nor residual is a conversion. */
static void check_store(const tglu__cpu_row *row, const float *values, int64_t count) {
  size_t bytes = bytes_of(row->dtype);
  float c[16] __attribute__((aligned(64)));
  unsigned char out[1 + 8 * 4 + 4];
  int64_t step;
  for (int64_t i = 0; i < count; i += step) {
    step = 1 + i / 8 % 8;
    if (step > count - i) step = count - i;
    memset(c, 0xff, sizeof c);
    memset(out, 0x5a, sizeof out);
    memcpy(c, values + i, (size_t)step * sizeof *c);
    tglu__store_args args = {.c0 = c, .out = out + 1, .count = step};
    row->store(&args);
    for (int64_t j = 0; j < step; j++) {
      double got = element_at(row->dtype, out + 1, j);
      double expected = rounded(row->dtype, (double)values[i + j]);
      if (!same(got, expected))
        fail_msg("%s: %a became %a, not %a", row->name, (double)values[i + j], got, expected);
    }
    assert_int_equal(out[0], 0x5a);
    for (size_t at = 1 + (size_t)step * bytes; at < sizeof out; at++)
      assert_int_equal(out[at], 0x5a);
  }
}

static void test_rows_store(void **state) {
  (void)state;
  int64_t ran = 0, skipped = 0;
  float *values = malloc(VALUES * sizeof *values);
  for (int32_t i = 0; i < tglu__cpu_row_count; i++) {
    const tglu__cpu_row *row = &tglu__cpu_rows[i];
    if (row->op != TGLU__OP_DOWN || row->schedule == TGLU__SCHEDULE_STREAM) continue;
    if (row->isa > machine_isa()) {
      skipped++;
      continue;
    }
    fill_values(row->dtype == TGLU_DTYPE_F32 ? TGLU_DTYPE_BF16 : row->dtype, values);
    check_store(row, values, VALUES);
    ran++;
  }
  free(values);
  print_message("%d rows ran, %d skipped for want of an ISA\n", (int)ran, (int)skipped);
  assert_true(ran > 0);
}

/* Place of element j after load_x: bf16's kernels along K take even places first. */
static int64_t place_of(const tglu__cpu_row *row, int64_t j) {
  bool split = row->isa == TGLU__ISA_AVX2 && row->dtype == TGLU_DTYPE_BF16 &&
               row->schedule != TGLU__SCHEDULE_PANEL;
  return split ? j / 16 * 16 + (j % 2) * 8 + j % 16 / 2 : j;
}

static void check_load_x(const tglu__cpu_row *row, int64_t count, uint32_t first) {
  size_t bytes = bytes_of(row->dtype);
  unsigned char *x = malloc((size_t)count * bytes + 1); /* ends where it ends: ASan sees */
  float *out = aligned(128 * sizeof *out);
  for (int64_t j = 0; j < count; j++) {
    uint16_t half = (uint16_t)(first + (uint32_t)j);
    float value = tglu__f32_from_bf16(half);
    if (row->dtype == TGLU_DTYPE_F32)
      memcpy(x + 1 + (size_t)j * bytes, &value, sizeof value);
    else
      memcpy(x + 1 + (size_t)j * bytes, &half, sizeof half);
  }
  row->load_x(x + 1, count, out);
  int64_t padded = (count + TGLU__K_ALIGN - 1) / TGLU__K_ALIGN * TGLU__K_ALIGN;
  for (int64_t j = 0; j < padded; j++) {
    double expected = j < count ? element_at(row->dtype, x + 1, j) : 0.0;
    assert_true(same((double)out[place_of(row, j)], expected));
  }
  uint32_t beyond;
  memcpy(&beyond, out + padded, sizeof beyond);
  assert_int_equal(beyond, 0xffffffffu);
  free(out);
  free(x);
}

static void test_rows_load(void **state) {
  (void)state;
  int64_t ran = 0;
  for (int32_t i = 0; i < tglu__cpu_row_count; i++) {
    const tglu__cpu_row *row = &tglu__cpu_rows[i];
    if (row->isa > machine_isa()) continue;
    for (uint32_t first = 0; first < 65536; first += 64) check_load_x(row, 64, first);
    for (int64_t count = 1; count < 70; count++) check_load_x(row, count, 0x3c00);
    ran++;
  }
  assert_true(ran > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_scalar_widening),
    cmocka_unit_test(test_scalar_rounding),
    cmocka_unit_test(test_rows_store),
    cmocka_unit_test(test_rows_load),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
