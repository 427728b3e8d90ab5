#include "summary.h"

#include <math.h>
#include <string.h>

#include "../mem.h"
#include "../row_names.h"
#include "../stats.h"
#include "../table.h"

static int same_point(const result *a, const result *b) {
  return a->m == b->m && a->n == b->n && a->k == b->k && a->pdl == b->pdl &&
         strcmp(a->model, b->model) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
         strcmp(a->activation, b->activation) == 0 && strcmp(a->layout, b->layout) == 0 &&
         strcmp(a->mode, b->mode) == 0 && strcmp(a->op, b->op) == 0;
}

/* The rows of a line, as point.chosen has them. */
static void join_rows(const result *r, char joined[200]) {
  snprintf(joined, 200, "%s%s%s", r->row, r->down_row[0] ? "+" : "", r->down_row);
}

static int is_of_rows(const result *r, const char *rows) {
  char joined[200];
  join_rows(r, joined);
  return strcmp(joined, rows) == 0;
}

/* Median of the real at this offset over the lines of one point and rows; the finite ones.
 * NaN if there is none. */
static double median_of(const result_list *lines, const result *of, const char *rows,
                        size_t offset, int *count) {
  double *values = mem_zeroed(lines->count, sizeof *values);
  size_t found = 0;
  for (size_t i = 0; i < lines->count; i++) {
    const result *r = &lines->items[i];
    if (!same_point(r, of) || !is_of_rows(r, rows)) continue;
    memcpy(&values[found], (const char *)r + offset, sizeof *values);
    if (isfinite(values[found])) found++;
  }
  double median = stats_median(values, found);
  if (count) *count = (int)found;
  mem_free(values);
  return median;
}

#define MEDIAN(lines, of, rows, field) \
  median_of(lines, of, rows, offsetof(result, field), NULL)

static point point_of(const result_list *lines, const result *first) {
  point p = {.first = first, .chosen_ratio = NAN, .best_ratio = NAN};
  double least_us = NAN;
  for (size_t i = 0; i < lines->count; i++) {
    const result *r = &lines->items[i];
    if (!same_point(r, first)) continue;
    char rows[200];
    join_rows(r, rows);
    if (r->chosen) memcpy(p.chosen, rows, sizeof p.chosen);
    double ratio = MEDIAN(lines, first, rows, ratio_bare);
    double us = MEDIAN(lines, first, rows, us);
    int better = isfinite(ratio) ? !(p.best_ratio <= ratio)
                                 : isnan(p.best_ratio) && us < INFINITY && !(least_us <= us);
    if (!better) continue;
    p.best_ratio = ratio;
    least_us = us;
    memcpy(p.best, rows, sizeof p.best);
  }
  p.bare_us = MEDIAN(lines, first, p.chosen, bare_us);
  p.chosen_us = median_of(lines, first, p.chosen, offsetof(result, us), &p.runs);
  p.tflops = MEDIAN(lines, first, p.chosen, tflops);
  p.mhz = MEDIAN(lines, first, p.chosen, sm_clock_mhz);
  p.chosen_ratio = MEDIAN(lines, first, p.chosen, ratio_bare);
  p.ratio_unfused = MEDIAN(lines, first, p.chosen, ratio_unfused);
  p.ratio_eager = MEDIAN(lines, first, p.chosen, ratio_eager);
  p.share_of_read = MEDIAN(lines, first, p.chosen, share_of_read);
  p.regret = (isfinite(p.chosen_ratio) ? p.chosen_ratio / p.best_ratio
                                       : p.chosen_us / least_us) - 1;
  return p;
}

point_list summary_points(const result_list *lines) {
  point_list list = {mem_zeroed(lines->count + 1, sizeof(point)), 0};
  for (size_t i = 0; i < lines->count; i++) {
    int known = 0;
    for (size_t j = 0; j < list.count; j++) {
      known |= same_point(list.items[j].first, &lines->items[i]);
    }
    if (!known) list.items[list.count++] = point_of(lines, &lines->items[i]);
  }
  return list;
}

void summary_free(point_list *points) {
  mem_free(points->items);
  points->items = NULL;
  points->count = 0;
}

double point_chosen_ratio(const point *p) { return p->chosen_ratio; }
double point_best_ratio(const point *p) { return p->best_ratio; }
double point_regret_ratio(const point *p) { return 1 + p->regret; }
double point_ratio_unfused(const point *p) { return p->ratio_unfused; }
double point_ratio_eager(const point *p) { return p->ratio_eager; }

static int in_group(const point *p, op_kind op, const char *mode, int64_t pdl,
                    int64_t least, int64_t most) {
  return strcmp(p->first->op, op_name(op)) == 0 && strcmp(p->first->mode, mode) == 0 &&
         p->first->pdl == pdl && p->first->m >= least && p->first->m <= most;
}

double summary_geomean(const point_list *points, op_kind op, const char *mode, int64_t pdl,
                       int64_t least, int64_t most, point_figure figure, int *count) {
  double logs = 0;
  *count = 0;
  for (size_t i = 0; i < points->count; i++) {
    if (!in_group(&points->items[i], op, mode, pdl, least, most)) continue;
    logs += log(figure(&points->items[i]));
    ++*count;
  }
  return *count ? exp(logs / *count) : NAN;
}

/* ---- printing ---- */

static void real_cell(table *t, const char *format, double value) {
  char text[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  snprintf(text, sizeof text, format, value);
#pragma GCC diagnostic pop
  table_cell(t, "%s", isfinite(value) ? text : "-");
}

static void brief_rows(table *t, const char *rows) {
  char text[200];
  snprintf(text, sizeof text, "%s", row_short_name(rows));
  char *second = strchr(text, '+');
  if (second) *second++ = 0;
  table_cell(t, "%s%s%s", text, second ? " + " : "", second ? row_short_name(second) : "");
}

static void print_points(const point_list *points, op_kind op, const char *mode, int64_t pdl,
                         FILE *to) {
  static const char *const heads[] = {"<model", "m", "<type", "bare us", "<chosen", "us", "R",
                                      "<best", "R best", "regret %", "/unfused", "/eager",
                                      "of read", "TFLOP/s", "MHz", "runs", NULL};
  table *t = table_new(heads);
  size_t lines = 0;
  for (size_t i = 0; i < points->count; i++) {
    const point *p = &points->items[i];
    if (!in_group(p, op, mode, pdl, 0, INT64_MAX)) continue;
    lines++;
    table_cell(t, "%s", p->first->model);
    table_cell(t, "%lld", (long long)p->first->m);
    table_cell(t, "%s", p->first->dtype);
    real_cell(t, "%.1f", p->bare_us);
    brief_rows(t, p->chosen);
    real_cell(t, "%.1f", p->chosen_us);
    real_cell(t, "%.3f", p->chosen_ratio);
    brief_rows(t, p->best);
    real_cell(t, "%.3f", p->best_ratio);
    real_cell(t, "%.1f", 100 * p->regret);
    real_cell(t, "%.3f", p->ratio_unfused);
    real_cell(t, "%.3f", p->ratio_eager);
    real_cell(t, "%.3f", p->share_of_read);
    real_cell(t, "%.0f", p->tflops);
    real_cell(t, "%.0f", p->mhz);
    table_cell(t, "%d", p->runs);
  }
  if (lines) {
    fprintf(to, "\n%s%s%s, pdl %lld (R: time over %s)\n", op == OP_GLU ? "" : op_name(op),
            op == OP_GLU ? "" : ", ", mode, (long long)pdl,
            op == OP_MLP ? "the two bare GEMMs'" : "the bare GEMM's");
    table_print(t, to);
  }
  table_free(t);
}

static void print_geomeans(const point_list *points, op_kind op, const char *mode, int64_t pdl,
                           FILE *to) {
  static const struct {
    const char *name;
    int64_t least, most;
  } groups[] = {{"m <= 64", 1, 64}, {"m 65 to 512", 65, 512}, {"m 513 to 8192", 513, 8192},
                {"all", 0, INT64_MAX}};
  static const char *const heads[] = {"<geometric mean", "points", "R", "R best", "regret %",
                                      "/unfused", "/eager", NULL};
  table *t = table_new(heads);
  int lines = 0;
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    int count = 0;
    int64_t least = groups[i].least, most = groups[i].most;
    double r = summary_geomean(points, op, mode, pdl, least, most, point_chosen_ratio, &count);
    if (!count) continue;
    lines++;
    table_cell(t, "%s", groups[i].name);
    table_cell(t, "%d", count);
    real_cell(t, "%.3f", r);
    real_cell(t, "%.3f",
              summary_geomean(points, op, mode, pdl, least, most, point_best_ratio, &count));
    real_cell(t, "%.2f", 100 * (summary_geomean(points, op, mode, pdl, least, most,
                                                point_regret_ratio, &count) - 1));
    real_cell(t, "%.3f",
              summary_geomean(points, op, mode, pdl, least, most, point_ratio_unfused, &count));
    real_cell(t, "%.3f",
              summary_geomean(points, op, mode, pdl, least, most, point_ratio_eager, &count));
  }
  if (lines) table_print(t, to);
  table_free(t);
}

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

static void print_accuracy(const result_list *lines, FILE *to) {
  double rel_l2 = 0, share = 0, reference = NAN, large = 0, excluded = 0;
  int over = 0, untimed = 0;
  for (size_t i = 0; i < lines->count; i++) {
    const result *r = &lines->items[i];
    double standard = r->reference_share_over_1pct;
    rel_l2 = larger(rel_l2, r->rel_l2);
    share = larger(share, r->share_over_1pct);
    if (isfinite(standard) && !(reference >= standard)) reference = standard;
    large = larger(large, r->share_over_1pct_large);
    excluded = larger(excluded, r->excluded_share);
    over += r->share_over_1pct > standard;
    untimed += isnan(r->us);
  }
  fprintf(to, "\naccuracy, the worst of %zu lines (64 token rows each): relative L2 %.2e (at "
          "most %.2e), off by > 1 %%: %.2e of all", lines->count, rel_l2, 0x1p-8, share);
  if (isfinite(reference)) {
    fprintf(to, " (cuBLAS + activation: %.2e; in %d lines ours is larger)", reference, over);
  }
  fprintf(to, ", %.2e of those with |ref| >= rms/256 (excluded: %.2e)\n", large, excluded);
  if (untimed) fprintf(to, "%d lines have a WRONG RESULT and no time\n", untimed);
}

void summary_print(const result_list *lines, FILE *to) {
  if (lines->count == 0) {
    fprintf(to, "no results\n");
    return;
  }
  static const char *const modes[] = {"sustained", "burst"};
  point_list points = summary_points(lines);
  for (int i = 0; i < 3 * 2 * 2; i++) {
    op_kind op = (op_kind)(i / 4);
    const char *mode = modes[i / 2 % 2];
    int64_t pdl = i % 2;
    print_points(&points, op, mode, pdl, to);
    print_geomeans(&points, op, mode, pdl, to);
  }
  print_accuracy(lines, to);
  summary_free(&points);
}
