#include "batch.h"

#include <stdio.h>
#include <string.h>

enum { PRINTED_FAILURES = 5 };

void tt_batch_begin(tt_batch *batch, const char *name, tglu_context *context) {
  memset(batch, 0, sizeof *batch);
  batch->name = name;
  batch->context = context;
}

bool tt_batch_check(tt_batch *batch, const tt_case *c) {
  char why[TT_WHY_BYTES], text[TT_WHY_BYTES];
  tt_report report;
  memset(&report, 0, sizeof report);
  batch->cases++;
  const bool good = tt_check_case(batch->context, c, &report, why, sizeof why);
  if (!good && batch->failures++ < PRINTED_FAILURES) {
    tt_case_text(c, text, sizeof text);
    fprintf(stderr, "FAILED %s: %s\n  %s\n", batch->name, text, why);
  }
  if (report.rel_l2 > batch->worst_rel_l2) batch->worst_rel_l2 = report.rel_l2;
  if (report.max_ulp > batch->max_ulp) batch->max_ulp = report.max_ulp;
  if (report.elements >= 64 && report.plain_rel_l2 > 0) {
    const double ratio = report.rel_l2 / report.plain_rel_l2;
    if (ratio > batch->worst_ratio) batch->worst_ratio = ratio;
  }
  return good;
}

bool tt_batch_end(const tt_batch *batch) {
  printf("%s: %lld cases, %lld failed; worst rel_l2 %.3g, %.3g x plain, max ulp %lld\n",
         batch->name, (long long)batch->cases, (long long)batch->failures,
         batch->worst_rel_l2, batch->worst_ratio, (long long)batch->max_ulp);
  fflush(stdout);
  return batch->cases > 0 && batch->failures == 0;
}
