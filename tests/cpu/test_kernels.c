/* Unit routines of every row, over all remainders of tokens and K: sums against double,
 * nothing outside c written, nothing behind the weights read, and bits that do not
 * depend on the other tokens. */
#include <sys/mman.h>

#include "check.h"

enum { HALF_MAX = TGLU__UNIT_ROWS_MAX / 2, LDC = 32, TOKENS_MAX = 20 };
static const float sentinel = -12345.75f;

typedef struct fixture {
  const tglu__cpu_row *row;
  int64_t kc, tokens, ldx, ldw;
  char *map;
  size_t map_bytes;
  char *x, *w;   /* raw elements; the last weight ends at an unreadable page */
  float *packed, *c, *scratch;
  tglu__unit_args args;
} fixture;

static void make(fixture *f, const tglu__cpu_row *row, int64_t tokens, int64_t kc,
                 uint64_t *random) {
  size_t bytes = bytes_of(row->dtype), page = 4096;
  *f = (fixture){.row = row, .kc = kc, .tokens = tokens};
  f->ldw = kc + random_below(random, 5);
  f->ldx = (kc + TGLU__K_ALIGN - 1) / TGLU__K_ALIGN * TGLU__K_ALIGN + TGLU__K_ALIGN;
  size_t w_bytes = (size_t)((row->unit_rows - 1) * f->ldw + kc) * bytes;
  f->map_bytes = (w_bytes + page) / page * page + page;
  f->map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(f->map != MAP_FAILED);
  memset(f->map, 0xff, f->map_bytes);
  assert_int_equal(mprotect(f->map + f->map_bytes - page, page, PROT_NONE), 0);
  f->w = f->map + f->map_bytes - page - w_bytes - (size_t)random_below(random, 2);
  f->x = malloc((size_t)(tokens * kc) * bytes + 1);
  f->packed = aligned((size_t)(tokens * f->ldx) * sizeof(float));
  f->c = aligned(TOKENS_MAX * LDC * sizeof(float));
  f->scratch = aligned(TGLU__UNIT_SCRATCH_FLOATS * sizeof(float));
  for (int64_t r = 0; r < row->unit_rows; r++)
    for (int64_t k = 0; k < kc; k++)
      put_random(row->dtype, f->w, r * f->ldw + k, random);
  for (int64_t i = 0; i < tokens * kc; i++) put_random(row->dtype, f->x + 1, i, random);
  for (int64_t t = 0; t < tokens; t++)
    row->load_x(f->x + 1 + (size_t)(t * kc) * bytes, kc, f->packed + t * f->ldx);
  f->args = (tglu__unit_args){.x = f->packed, .ldx = f->ldx, .tokens = tokens, .kc = kc,
                              .first = true, .c0 = f->c, .c1 = f->c + HALF_MAX, .ldc = LDC,
                              .scratch = f->scratch};
  for (int64_t r = 0; r < row->unit_rows; r++)
    f->args.rows[r] = f->args.next[r] = f->w + (size_t)(r * f->ldw) * bytes;
  for (int i = 0; i < TOKENS_MAX * LDC; i++) f->c[i] = sentinel;
}

static void destroy(fixture *f) {
  munmap(f->map, f->map_bytes);
  free(f->x);
  free(f->packed);
  free(f->c);
  free(f->scratch);
}

/* The place of unit row r in a token's line of c, or -1. */
static int64_t unit_row_at(const tglu__cpu_row *row, int64_t place) {
  int64_t half = row->unit_rows / 2;
  if (place < half) return place;
  if (place >= HALF_MAX && place < HALF_MAX + half) return half + place - HALF_MAX;
  return -1;
}

/* c = times * (x w) within the bound of fp32 accumulation; the rest untouched. */
static void check_sums(const fixture *f, double times) {
  for (int64_t t = 0; t < TOKENS_MAX; t++)
    for (int64_t place = 0; place < LDC; place++) {
      double got = (double)f->c[t * LDC + place];
      int64_t r = t < f->tokens ? unit_row_at(f->row, place) : -1;
      if (r < 0) {
        assert_true(got == (double)sentinel);
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t k = 0; k < f->kc; k++) {
        double product = element_at(f->row->dtype, f->x + 1, t * f->kc + k) *
                         element_at(f->row->dtype, f->w, r * f->ldw + k);
        sum += product;
        size += fabs(product);
      }
      double bound = (double)(f->kc + 4) * 0x1p-24 * size * times;
      if (!(fabs(got - times * sum) <= bound))
        fail_msg("%s, %d tokens, K %d: token %d, row %d is %g, not %g", f->row->name,
                 (int)f->tokens, (int)f->kc, (int)t, (int)r, got, times * sum);
    }
}

/* A token by itself gives the bits that it has among others. */
static void check_alone(const fixture *f) {
  float *alone = aligned(LDC * sizeof *alone);
  for (int64_t t = 0; t < f->tokens; t++) {
    tglu__unit_args args = f->args;
    args.x += t * f->ldx;
    args.tokens = 1;
    args.c0 = alone;
    args.c1 = alone + HALF_MAX;
    f->row->unit(&args);
    for (int64_t place = 0; place < LDC; place++)
      if (unit_row_at(f->row, place) >= 0)
        assert_memory_equal(alone + place, f->c + t * LDC + place, sizeof *alone);
  }
  free(alone);
}

static void check_case(const tglu__cpu_row *row, int64_t tokens, int64_t kc,
                       uint64_t *random) {
  fixture f;
  make(&f, row, tokens, kc, random);
  row->unit(&f.args);
  check_sums(&f, 1.0);
  if (row->schedule != TGLU__SCHEDULE_STREAM) check_alone(&f);
  f.args.first = false;
  row->unit(&f.args);
  check_sums(&f, 2.0);
  destroy(&f);
}

static void test_units(void **state) {
  (void)state;
  uint64_t random = 42;
  int64_t cases = 0, skipped = 0;
  for (int32_t i = 0; i < tglu__cpu_row_count; i++) {
    const tglu__cpu_row *row = &tglu__cpu_rows[i];
    if (row->op != TGLU__OP_GLU) continue; /* down rows have the same routines */
    if (row->isa > machine_isa()) {
      skipped++;
      continue;
    }
    for (int64_t kc = 1; kc <= 35; kc++, cases++)
      check_case(row, 1 + kc % 7, kc, &random);
    for (int64_t tokens = 1; tokens < TOKENS_MAX; tokens++, cases++)
      check_case(row, tokens, 1 + random_below(&random, 80), &random);
    const int64_t ks[] = {63, 64, 65, 97, 128, row->kc - 1, row->kc};
    for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++, cases++)
      check_case(row, 1 + (int64_t)j, ks[j], &random);
  }
  print_message("%d cases; %d rows skipped for want of an ISA\n", (int)cases, (int)skipped);
  assert_true(cases > 100);
}

/* A GLU row and its down row share routine and K block, so that this suffices. */
static void test_down_rows(void **state) {
  (void)state;
  int pairs = 0;
  for (int32_t i = 0; i < tglu__cpu_row_count; i++)
    for (int32_t j = 0; j < tglu__cpu_row_count; j++) {
      const tglu__cpu_row *glu = &tglu__cpu_rows[i], *down = &tglu__cpu_rows[j];
      if (glu->op != TGLU__OP_GLU || down->op != TGLU__OP_DOWN || glu->unit != down->unit)
        continue;
      assert_int_equal(glu->dtype, down->dtype);
      assert_int_equal(glu->kc, down->kc);
      assert_int_equal(glu->unit_rows, down->unit_rows);
      assert_true(glu->load_x == down->load_x);
      pairs++;
    }
  assert_int_equal(pairs * 2, tglu__cpu_row_count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_units),
    cmocka_unit_test(test_down_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
