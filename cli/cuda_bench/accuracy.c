#include "accuracy.h"

#include <math.h>
#include <stdlib.h>

#include "../numbers.h"
#include "../rng.h"

accuracy accuracy_of(const uint16_t *out, tglu_dtype dtype, const double *reference,
                     int64_t rows, int64_t n) {
  double error_squares = 0, squares = 0;
  int64_t over = 0, over_large = 0, large = 0, not_finite = 0;
  for (int64_t row = 0; row < rows; row++) {
    const double *r = reference + row * n;
    double row_squares = 0;
    for (int64_t j = 0; j < n; j++) row_squares += r[j] * r[j];
    double least = ldexp(sqrt(row_squares / (double)n), -8);
    squares += row_squares;
    for (int64_t j = 0; j < n; j++) {
      double value = num_load(out, dtype, row * n + j), error = fabs(value - r[j]);
      int off = !(error <= 0.01 * fabs(r[j])), is_large = fabs(r[j]) >= least;
      not_finite += !isfinite(value);
      error_squares += error * error;
      over += off;
      large += is_large;
      over_large += off && is_large;
    }
  }
  double all = (double)(rows * n);
  return (accuracy){
    .rel_l2 = not_finite || !isfinite(squares) ? INFINITY : sqrt(error_squares / squares),
    .share_over_1pct = (double)over / all,
    .share_over_1pct_large = large ? (double)over_large / (double)large : 0,
    .excluded_share = 1 - (double)large / all,
    .not_finite = not_finite};
}

int accuracy_passes(const accuracy *a) {
  return a->not_finite == 0 && a->rel_l2 <= 0x1p-8;
}

static int rising(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int holds(const int64_t *rows, int count, int64_t row) {
  for (int i = 0; i < count; i++) {
    if (rows[i] == row) return 1;
  }
  return 0;
}

int accuracy_rows(int64_t m, int most, uint64_t seed, int64_t *rows) {
  if (m <= most) {
    for (int64_t i = 0; i < m; i++) rows[i] = i;
    return (int)m;
  }
  rng r;
  rng_seed(&r, seed);
  int count = 0;
  rows[count++] = 0;
  if (most > 1) rows[count++] = m - 1;
  while (count < most) {
    int64_t row = (int64_t)rng_below(&r, (uint64_t)m);
    if (!holds(rows, count, row)) rows[count++] = row;
  }
  qsort(rows, (size_t)count, sizeof *rows, rising);
  return count;
}
