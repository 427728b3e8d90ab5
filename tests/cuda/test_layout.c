/* The headers that host and kernels share: tile order, shared-memory map, swizzle. */
#include <stdlib.h>
#include <string.h>

#include "../kernels/sm90/smem_layout.h"
#include "../kernels/sm90/tail_launch.h"
#include "../kernels/sm90/tile_order.h"
#include "../support/cmocka_all.h"
#include "plan/rows.h"

/* Every tile once, whatever the grid and the group. */
static void order_is_a_bijection(void **unused) {
  (void)unused;
  static const int32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 64, 101};
  static const int32_t groups[] = {1, 2, 3, 4, 5, 8, 16, 1000};
  const int ns = sizeof sizes / sizeof sizes[0], ng = sizeof groups / sizeof groups[0];
  static unsigned char seen[101 * 101];
  for (int r = 0; r < ns; ++r) {
    for (int c = 0; c < ns; ++c) {
      for (int g = 0; g < ng; ++g) {
        int32_t rows = sizes[r], columns = sizes[c];
        memset(seen, 0, sizeof seen);
        for (int32_t i = 0; i < rows * columns; ++i) {
          tglu_tile t = tglu_tile_at(i, rows, columns, groups[g]);
          assert_in_range(t.row, 0, rows - 1);
          assert_in_range(t.column, 0, columns - 1);
          assert_false(seen[t.row * columns + t.column]++);
        }
      }
    }
  }
}

/* Inside a group the row runs fastest and the group is compact. */
static void order_is_grouped(void **unused) {
  (void)unused;
  for (int32_t i = 0; i < 4 * 50; ++i) {
    tglu_tile t = tglu_tile_at(i, 10, 50, 4);
    assert_true(t.row < 4);
    assert_int_equal(t.row, i % 4);
    assert_int_equal(t.column, i / 4);
  }
  tglu_tile last = tglu_tile_at(10 * 50 - 1, 10, 50, 4);
  assert_int_equal(last.row, 9);
  assert_int_equal(last.column, 49);
}

/* Near the largest tile count nothing overflows (UBSan sees it). */
static void order_at_the_limit(void **unused) {
  (void)unused;
  const int32_t rows = 46340, columns = 46340;
  tglu_tile t = tglu_tile_at(rows * columns - 1, rows, columns, 8);
  assert_int_equal(t.row, rows - 1);
  assert_int_equal(t.column, columns - 1);
  t = tglu_tile_at(2147483646, 1, 2147483647, 1);
  assert_int_equal(t.row, 0);
  assert_int_equal(t.column, 2147483646);
}

static void rows_fit(void **unused) {
  (void)unused;
  assert_true(tglu__row_total > 0);
  for (int32_t i = 0; i < tglu__row_total; ++i) {
    const tglu__row *row = &tglu__rows[i];
    assert_in_range(tglu__row_smem_bytes(row, 1, 1), 1, 232448);
    if (tglu__row_is_stream(row) || tglu__row_is_diag(row)) continue;
    int32_t b_rows = tglu__row_b_rows(row);
    assert_int_equal(tglu_stage_bytes(row->tile_m, b_rows) % 1024, 0);
    assert_true((2 * row->stages + 2) * 8 <= TGLU_SMEM_BARRIER_BYTES);
    assert_true(row->stages >= 2);
    /* A box is at most 256 high; a share of the weights' tile is whole swizzle atoms. */
    assert_true(row->tile_m <= 256 && tglu__row_weight_box_rows(row) <= 256);
    assert_int_equal(tglu__row_weight_box_rows(row) % 8, 0);
    assert_int_equal(row->tile_n % (tglu__row_has_tail(row) ? TGLU_TAIL_COLUMNS : 8), 0);
    assert_int_equal(row->tile_m % 64, 0);
    assert_int_equal(tglu_staging_bytes(tglu__row_main_columns(row)) % 1024, 0);
  }
}

/* Main parts and tails of all tiles hold every column once, within the tile; main parts begin on
 * 16 bytes of 16-bit elements. */
static void tails_fill_the_gaps(void **unused) {
  (void)unused;
  enum { TILES = 40, WIDEST = 124 };
  int with_tail = 0;
  for (int32_t tile_n = 8; tile_n <= WIDEST; tile_n += 4) {
    static unsigned char seen[TILES * WIDEST];
    const int32_t tail = tglu_tail_columns(tile_n), main = tglu_main_columns(tile_n);
    memset(seen, 0, sizeof seen);
    assert_int_equal(main + tail, tile_n);
    assert_int_equal(main % 8, 0);
    for (int32_t i = 0; i < TILES; ++i) {
      const int32_t first = i * tile_n, from = tglu_main_first(first);
      assert_int_equal(from % 8, 0);
      assert_in_range(from, first, first + tail);
      for (int32_t c = 0; c < main; ++c) assert_int_equal(seen[from + c]++, 0);
      const int32_t odd = tglu_tail_first(first, tile_n);
      for (int32_t c = 0; c < tail; ++c) assert_int_equal(seen[odd + c]++, 0);
    }
    for (int32_t c = 0; c < TILES * tile_n; ++c) assert_int_equal(seen[c], 1);
    with_tail += tail != 0;
  }
  assert_true(with_tail > 10);
}

/* The last tile's ends at the largest N, where nothing may pass INT32_MAX. */
static void tails_at_the_limit(void **unused) {
  (void)unused;
  const int64_t n = INT32_MAX - 255;
  for (int32_t tile_n = 8; tile_n <= 256; tile_n += 4) {
    const int64_t first = (n - 1) / tile_n * tile_n;
    const int64_t main = tglu_main_first((int32_t)first);
    const int64_t tail = tglu_tail_first((int32_t)first, tile_n);
    assert_int_equal(main, (first + 7) / 8 * 8);
    assert_int_equal(tail, first % 8 == 0 ? first + tile_n / 8 * 8 : first);
    assert_true(main + tglu_main_columns(tile_n) <= INT32_MAX);
    assert_true(tail + tglu_tail_columns(tile_n) <= INT32_MAX);
  }
}

/* A box's chunks go to different places, all of them inside the box. */
static void box_is_a_bijection(void **unused) {
  (void)unused;
  for (int32_t tile_n = 8; tile_n <= 256; tile_n += 8) {
    static unsigned char seen[64 * 32];
    int32_t columns = tglu_out_box_columns(tile_n), swizzle = tglu_out_box_swizzle(tile_n);
    memset(seen, 0, sizeof seen);
    for (int32_t row = 0; row < 64; ++row) {
      for (int32_t chunk = 0; chunk < columns / 8; ++chunk) {
        int32_t offset = tglu_out_box_offset(columns, swizzle, row, chunk);
        assert_int_equal(offset % 16, 0);
        assert_in_range(offset, 0, 64 * columns * 2 - 16);
        assert_false(seen[offset / 16]++);
      }
    }
  }
}

/* The driver's swizzles, written down the long way: the 16-byte chunk's index within its
 * row of the swizzle's width is xored with the index of the 128-byte line. */
static void box_is_the_hardware_swizzle(void **unused) {
  (void)unused;
  for (int32_t tile_n = 8; tile_n <= 256; tile_n += 8) {
    int32_t columns = tglu_out_box_columns(tile_n), swizzle = tglu_out_box_swizzle(tile_n);
    int32_t width = columns * 2;
    assert_true(swizzle == 0 || swizzle == width); /* a box may not be wider */
    assert_true(columns <= 256);
    for (int32_t row = 0; row < 64; ++row) {
      for (int32_t chunk = 0; chunk < width / 16; ++chunk) {
        int32_t line = (row * width + chunk * 16) / 128;
        int32_t moved = swizzle == 0 ? chunk : chunk ^ (line % (swizzle / 16));
        assert_int_equal(tglu_out_box_offset(columns, swizzle, row, chunk),
                         row * width + moved * 16);
      }
    }
  }
}

/* stmatrix stores 8 rows of 16 bytes at once: into 8 different groups of four banks, or
 * 4 where the tile is an odd multiple of 16 wide. */
static void staging_bank_conflicts(void **unused) {
  (void)unused;
  for (int32_t tile_n = 8; tile_n <= 256; tile_n += 8) {
    int32_t columns = tglu_out_box_columns(tile_n), swizzle = tglu_out_box_swizzle(tile_n);
    int expected = tile_n % 32 == 16 ? 4 : 8;
    for (int32_t first = 0; first < 64; first += 8) {
      for (int32_t chunk = 0; chunk < columns / 8; ++chunk) {
        unsigned groups = 0;
        for (int32_t row = first; row < first + 8; ++row)
          groups |= 1u << tglu_out_box_offset(columns, swizzle, row, chunk) / 16 % 8;
        assert_int_equal(__builtin_popcount(groups), expected);
      }
    }
  }
}

static void box_divides_the_tile(void **unused) {
  (void)unused;
  for (int32_t tile_n = 8; tile_n <= 256; tile_n += 8)
    assert_int_equal(tile_n % tglu_out_box_columns(tile_n), 0);
}

/* What the general loader writes is what a 128-byte swizzled TMA box would be. */
static void stage_offset_is_the_hardware_swizzle(void **unused) {
  (void)unused;
  for (int32_t row = 0; row < 256; ++row)
    for (int32_t byte = 0; byte < 128; ++byte)
      assert_int_equal(tglu_stage_offset(row, byte),
                       row * 128 + ((byte / 16) ^ (row % 8)) * 16 + byte % 16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(order_is_a_bijection),
    cmocka_unit_test(order_is_grouped),
    cmocka_unit_test(order_at_the_limit),
    cmocka_unit_test(rows_fit),
    cmocka_unit_test(tails_fill_the_gaps),
    cmocka_unit_test(tails_at_the_limit),
    cmocka_unit_test(box_is_a_bijection),
    cmocka_unit_test(box_is_the_hardware_swizzle),
    cmocka_unit_test(staging_bank_conflicts),
    cmocka_unit_test(stage_offset_is_the_hardware_swizzle),
    cmocka_unit_test(box_divides_the_tile),
  };
  return cmocka_run_group_tests_name("cuda_layout", tests, NULL, NULL);
}
