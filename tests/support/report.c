#include "report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "number.h"

typedef struct sums { double error, plain_error, value, tolerance; } sums;

static void add_element(tglu_dtype dtype, double result, const tt_reference *r,
                        int64_t at, tt_report *report, sums *s, double *worst) {
  const double value = r->value[at];
  const double error = result - value;
  const double plain_error = r->plain[at] - value;
  const double width = (r->high[at] - r->low[at]) / 2 + tt_ulp(dtype, value) / 2;
  s->error += error * error;
  s->plain_error += plain_error * plain_error;
  s->value += value * value;
  s->tolerance += width * width;
  if (!isfinite(result)) report->non_finite++;
  if (!(fabs(error) <= 0.01 * fabs(value))) report->share_over_1pct += 1;
  const int64_t ulp = tt_ulp_distance(dtype, result, tt_round(dtype, value));
  if (ulp > report->max_ulp) report->max_ulp = ulp;
  const bool inside = result >= r->low[at] && result <= r->high[at];
  if (!inside) report->outside++;
  /* NaN is worst of all, then anything outside, then the largest error. */
  double badness = isnan(error) ? INFINITY : fabs(error) / width;
  if (!inside) badness += 1e6;
  if (badness > *worst) {
    *worst = badness;
    report->worst_row = at / r->columns;
    report->worst_column = at % r->columns;
    report->worst_result = result;
    report->worst_value = value;
    report->worst_low = r->low[at];
    report->worst_high = r->high[at];
  }
}

void tt_compare(tglu_dtype dtype, const void *out, int64_t ldo, const tt_reference *r,
                tt_report *report) {
  memset(report, 0, sizeof *report);
  sums s = {0, 0, 0, 0};
  double worst = -1;
  report->elements = r->rows * r->columns;
  for (int64_t t = 0; t < r->rows; t++) {
    for (int64_t j = 0; j < r->columns; j++) {
      add_element(dtype, tt_load(dtype, out, t * ldo + j), r, t * r->columns + j, report,
                  &s, &worst);
    }
  }
  const double signal = s.value > 0 ? s.value : 1;
  report->rel_l2 = sqrt(s.error / signal);
  report->plain_rel_l2 = sqrt(s.plain_error / signal);
  report->tolerance_share = sqrt(s.tolerance / signal);
  if (report->elements > 0) report->share_over_1pct /= (double)report->elements;
}

bool tt_report_passes(const tt_report *report, double activation_slack, char *why,
                      size_t why_bytes) {
  const char *rule = NULL;
  const double l2_limit = 2 * report->plain_rel_l2 + activation_slack;
  if (report->outside > 0) {
    rule = "elements outside the interval that the contract allows";
  } else if (report->elements >= 64 && !(report->rel_l2 <= l2_limit)) {
    rule = "relative L2 error above twice a plain computation's";
  } else if (report->elements >= 64 && !(report->tolerance_share < 0.25)) {
    rule = "tolerance not smaller than the signal: the test could not fail";
  } else {
    return true;
  }
  snprintf(why, why_bytes,
           "%s: %lld of %lld outside, %lld not finite, rel_l2 %.3g (plain %.3g), "
           "over 1%% %.3g, max ulp %lld, tolerance/signal %.3g; worst at [%lld, %lld]: "
           "got %.9g, want %.9g in [%.9g, %.9g]",
           rule, (long long)report->outside, (long long)report->elements,
           (long long)report->non_finite, report->rel_l2, report->plain_rel_l2,
           report->share_over_1pct, (long long)report->max_ulp, report->tolerance_share,
           (long long)report->worst_row, (long long)report->worst_column,
           report->worst_result, report->worst_value, report->worst_low,
           report->worst_high);
  return false;
}
