#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "json_out.h"
#include "numbers.h"

void compare_begin(comparison *c, op_kind kind, tglu_dtype dtype) {
  memset(c, 0, sizeof *c);
  c->kind = kind;
  c->dtype = dtype;
  c->worst_row = c->worst_column = -1;
  c->worst_ratio = -1;
}

typedef struct element {
  double value, reference, allowed;
  int64_t row, column;
} element;

static void note_worst(comparison *c, const element *e, double ratio) {
  if (!(ratio > c->worst_ratio)) return;
  c->worst_ratio = ratio;
  c->worst_row = e->row;
  c->worst_column = e->column;
  c->worst_value = e->value;
  c->worst_reference = e->reference;
  c->worst_allowed = e->allowed;
}

/* Returns 1 if the pair is settled here: NaN or infinity on some side.  A reference
 * beyond the type's range stands for the infinity that it rounds to; within the
 * allowed error of that border both outcomes are right. */
static int add_special(comparison *c, const element *e) {
  if (isnan(e->value) || isnan(e->reference)) {
    if (isnan(e->value) && isnan(e->reference)) {
      c->nan_both++;
    } else {
      c->nan_wrong++;
      note_worst(c, e, INFINITY);
    }
    return 1;
  }
  double rounded = num_round(e->reference, c->dtype);
  if (!isinf(e->value) && !isinf(rounded)) return 0;
  if (e->value == rounded) {
    c->inf_both++;
    return 1;
  }
  double border = num_largest(c->dtype);
  double value = isinf(e->value) ? copysign(border, e->value) : e->value;
  if (isfinite(e->reference) && fabs(value - e->reference) <= e->allowed) {
    c->inf_both++;
    return 1;
  }
  c->inf_wrong++;
  note_worst(c, e, INFINITY);
  return 1;
}

static void add_finite(comparison *c, const element *e, double threshold) {
  double error = fabs(e->value - e->reference), size = fabs(e->reference);
  c->finite++;
  c->error_squares += error * error;
  c->reference_squares += size * size;
  c->allowed_squares += e->allowed * e->allowed;
  int off = error > 0.01 * size;
  c->over_1pct += off;
  if (size >= threshold && size > 0) {
    c->significant++;
    c->significant_over_1pct += off;
    int64_t ulp = num_ulp_distance(e->value, num_round(e->reference, c->dtype), c->dtype);
    if (ulp > c->max_ulp) c->max_ulp = ulp;
  }
  c->over_allowed += !(error <= e->allowed);
  note_worst(c, e, error / e->allowed);
}

static double row_threshold(const double *reference, int64_t columns) {
  double squares = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < columns; i++) {
    if (!isfinite(reference[i])) continue;
    squares += reference[i] * reference[i];
    count++;
  }
  return count ? 0x1p-8 * sqrt(squares / (double)count) : 0;
}

void compare_add(comparison *c, const void *out, int64_t ldo, const double *reference,
                 const double *allowed, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r++) {
    double threshold = row_threshold(reference + r * columns, columns);
    for (int64_t i = 0; i < columns; i++) {
      int64_t at = r * columns + i;
      element e = {num_load(out, c->dtype, r * ldo + i), reference[at], allowed[at], r, i};
      c->elements++;
      if (!add_special(c, &e)) add_finite(c, &e, threshold);
    }
  }
}

void compare_merge(comparison *c, const comparison *other) {
  c->elements += other->elements;
  c->finite += other->finite;
  c->error_squares += other->error_squares;
  c->reference_squares += other->reference_squares;
  c->allowed_squares += other->allowed_squares;
  c->over_1pct += other->over_1pct;
  c->significant += other->significant;
  c->significant_over_1pct += other->significant_over_1pct;
  if (other->max_ulp > c->max_ulp) c->max_ulp = other->max_ulp;
  c->over_allowed += other->over_allowed;
  c->nan_both += other->nan_both;
  c->inf_both += other->inf_both;
  c->nan_wrong += other->nan_wrong;
  c->inf_wrong += other->inf_wrong;
  c->guard_damage += other->guard_damage;
  const element worst = {other->worst_value, other->worst_reference, other->worst_allowed,
                         other->worst_row, other->worst_column};
  note_worst(c, &worst, other->worst_ratio);
}

double compare_rel_l2(const comparison *c) {
  if (c->finite == 0) return NAN;
  if (c->reference_squares == 0) return c->error_squares == 0 ? 0 : INFINITY;
  return sqrt(c->error_squares / c->reference_squares);
}

double compare_share(int64_t part, int64_t whole) {
  return whole ? (double)part / (double)whole : 0;
}

double compare_unit(tglu_dtype dtype) {
  double unit = num_unit_roundoff(dtype);
  return unit > 0x1p-15 ? unit : 0x1p-15;
}

double compare_rel_l2_limit(const comparison *c) {
  double unit = compare_unit(c->dtype);
  if (c->reference_squares == 0) return unit;
  double derived = sqrt(c->allowed_squares / c->reference_squares) / 4;
  return derived > unit ? derived : unit;
}

int compare_passes(const comparison *c, char *why, size_t why_bytes) {
  double limit = compare_rel_l2_limit(c), rel_l2 = compare_rel_l2(c);
  if (c->elements == 0) {
    snprintf(why, why_bytes, "nothing compared: the result has no elements");
  } else if (c->nan_wrong || c->inf_wrong) {
    snprintf(why, why_bytes, "%" PRId64 " NaN and %" PRId64 " infinities on one side only "
             "or of the wrong sign", c->nan_wrong, c->inf_wrong);
  } else if (c->guard_damage) {
    snprintf(why, why_bytes, "%" PRId64 " bytes outside the result were written",
             c->guard_damage);
  } else if (c->over_allowed) {
    snprintf(why, why_bytes, "%" PRId64 " elements are further off than the rounding "
             "contract allows", c->over_allowed);
  } else if (c->finite == 0) {
    snprintf(why, why_bytes, "nothing compared: of %" PRId64 " elements none is finite",
             c->elements);
  } else if (!(rel_l2 <= limit)) {
    snprintf(why, why_bytes, "relative L2 error %.3g is above %.3g", rel_l2, limit);
  } else {
    if (why_bytes) why[0] = 0;
    return 1;
  }
  return 0;
}

void compare_print(const comparison *c, FILE *stream) {
  int64_t excluded = c->finite - c->significant;
  fprintf(stream, "  elements compared      %" PRId64 "\n", c->elements);
  if (c->elements == 0) return;
  fprintf(stream, "  relative L2 error      %.3e  (limit %.3e)\n", compare_rel_l2(c),
          compare_rel_l2_limit(c));
  fprintf(stream, "  off by more than 1 %%   %.4f %%  of all elements\n",
          100 * compare_share(c->over_1pct, c->elements));
  fprintf(stream, "                         %.4f %%  of those with |reference| >= 2^-8 rms "
          "of their row (%.2f %% excluded)\n",
          100 * compare_share(c->significant_over_1pct, c->significant),
          100 * compare_share(excluded, c->finite));
  fprintf(stream, "  largest ULP distance   %" PRId64 "  (over the same)\n", c->max_ulp);
  fprintf(stream, "  beyond allowed error   %" PRId64 "\n", c->over_allowed);
  fprintf(stream, "  NaN                    %" PRId64 " on both sides, %" PRId64 " wrong\n",
          c->nan_both, c->nan_wrong);
  fprintf(stream, "  infinity               %" PRId64 " on both sides, %" PRId64 " wrong\n",
          c->inf_both, c->inf_wrong);
  fprintf(stream, "  bytes written outside  %" PRId64 "\n", c->guard_damage);
  if (c->worst_row < 0) return;
  fprintf(stream, "  worst element          [%" PRId64 ", %" PRId64 "]: %.9g, reference "
          "%.9g, allowed error %.3g (%.2f of it used)\n", c->worst_row, c->worst_column,
          c->worst_value, c->worst_reference, c->worst_allowed, c->worst_ratio);
}

static json_t *worst_json(const comparison *c) {
  if (c->worst_row < 0) return json_null();
  json_t *worst = json_object();
  jo_int(worst, "token", c->worst_row);
  jo_int(worst, "column", c->worst_column);
  jo_real(worst, "value", c->worst_value);
  jo_text(worst, "value_text", isnan(c->worst_value) ? "nan"
          : isinf(c->worst_value) ? (c->worst_value > 0 ? "inf" : "-inf") : NULL);
  jo_real(worst, "reference", c->worst_reference);
  jo_real(worst, "allowed", c->worst_allowed);
  jo_real(worst, "ratio", c->worst_ratio);
  return worst;
}

json_t *compare_json(const comparison *c) {
  char why[256];
  json_t *o = json_object();
  jo_bool(o, "pass", compare_passes(c, why, sizeof why));
  jo_text(o, "why", why[0] ? why : NULL);
  jo_int(o, "elements", c->elements);
  jo_int(o, "finite", c->finite);
  jo_real(o, "rel_l2", compare_rel_l2(c));
  jo_real(o, "rel_l2_limit", compare_rel_l2_limit(c));
  jo_real(o, "share_over_1pct", compare_share(c->over_1pct, c->elements));
  jo_real(o, "share_over_1pct_significant",
          compare_share(c->significant_over_1pct, c->significant));
  jo_real(o, "share_excluded", compare_share(c->finite - c->significant, c->finite));
  jo_int(o, "max_ulp", c->max_ulp);
  jo_int(o, "over_allowed", c->over_allowed);
  jo_int(o, "nan_both", c->nan_both);
  jo_int(o, "nan_wrong", c->nan_wrong);
  jo_int(o, "inf_both", c->inf_both);
  jo_int(o, "inf_wrong", c->inf_wrong);
  jo_int(o, "guard_damage", c->guard_damage);
  json_object_set_new(o, "worst", worst_json(c));
  return o;
}
