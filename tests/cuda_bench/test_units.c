/* The bench's arithmetic, choices and files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "accuracy.h"
#include "cli.h"
#include "numbers.h"
#include "pick.h"
#include "result.h"
#include "row_names.h"
#include "summary.h"

static void assert_near(double a, double b, double relative) {
  if (!(fabs(a - b) <= relative * fabs(b))) fail_msg("%.9g is not %.9g", a, b);
}

/* ---- accuracy ---- */

enum { ROWS = 2, N = 512 };

static void make(double *reference, uint16_t *out) {
  for (int i = 0; i < ROWS * N; i++) {
    reference[i] = (i % 2 ? -1.0 : 1.0) * (1 + i % 7);
    num_store(out, TGLU_DTYPE_BF16, i, reference[i]);
  }
}

static void accuracy_counts(void **state) {
  (void)state;
  double reference[ROWS * N];
  uint16_t out[ROWS * N];
  make(reference, out);
  accuracy a = accuracy_of(out, TGLU_DTYPE_BF16, reference, ROWS, N);
  assert_true(a.rel_l2 == 0 && a.share_over_1pct == 0 && a.not_finite == 0);
  assert_true(accuracy_passes(&a));

  reference[5] = 1e-9; /* far below the row's rms, and off by much */
  num_store(out, TGLU_DTYPE_BF16, 5, 1e-4);
  num_store(out, TGLU_DTYPE_BF16, 8, reference[8] * 1.04);
  a = accuracy_of(out, TGLU_DTYPE_BF16, reference, ROWS, N);
  assert_near(a.share_over_1pct, 2.0 / (ROWS * N), 1e-12);
  assert_near(a.share_over_1pct_large, 1.0 / (ROWS * N - 1), 1e-12);
  assert_near(a.excluded_share, 1.0 / (ROWS * N), 1e-9);
  assert_true(a.rel_l2 > 0 && accuracy_passes(&a));

  num_store(out, TGLU_DTYPE_BF16, 8, 200);
  a = accuracy_of(out, TGLU_DTYPE_BF16, reference, ROWS, N);
  assert_true(a.rel_l2 > 0x1p-8 && !accuracy_passes(&a));
}

static void accuracy_refuses_nan(void **state) {
  (void)state;
  double reference[ROWS * N];
  uint16_t out[ROWS * N];
  const uint16_t bad[] = {0x7fc1, 0xffff, 0x7f80, 0xff80};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    make(reference, out);
    out[N] = bad[i];
    accuracy a = accuracy_of(out, TGLU_DTYPE_BF16, reference, ROWS, N);
    assert_int_equal(a.not_finite, 1);
    assert_true(isinf(a.rel_l2) && !accuracy_passes(&a));
    assert_near(a.share_over_1pct, 1.0 / (ROWS * N), 1e-12);
  }
}

static void rows_of_the_sample(void **state) {
  (void)state;
  int64_t rows[64];
  assert_int_equal(accuracy_rows(5, 64, 1, rows), 5);
  for (int i = 0; i < 5; i++) assert_int_equal(rows[i], i);
  const int64_t sizes[] = {64, 65, 100, 8192};
  for (size_t s = 0; s < 4; s++) {
    assert_int_equal(accuracy_rows(sizes[s], 64, s, rows), 64);
    assert_int_equal(rows[0], 0);
    assert_int_equal(rows[63], sizes[s] - 1);
    for (int i = 1; i < 64; i++) assert_true(rows[i - 1] < rows[i]);
  }
}

/* ---- lines ---- */

static result line_of(const char *model, int64_t m, const char *row, int chosen, int pdl,
                      double us, double bare) {
  result r;
  result_clear(&r);
  result_text(r.date, sizeof r.date, "2026-01-02T03:04:05Z");
  result_text(r.commit, sizeof r.commit, "abc-dirty");
  result_text(r.card, sizeof r.card, "NVIDIA H200");
  result_text(r.model, sizeof r.model, model);
  result_text(r.row, sizeof r.row, row);
  result_text(r.dtype, sizeof r.dtype, "bf16");
  result_text(r.activation, sizeof r.activation, "silu");
  result_text(r.layout, sizeof r.layout, "separate");
  result_text(r.mode, sizeof r.mode, "sustained");
  result_text(r.op, sizeof r.op, "glu");
  r.m = m;
  r.n = 4864;
  r.k = 896;
  r.chosen = chosen;
  r.pdl = pdl;
  r.us = us;
  r.bare_us = bare;
  r.ratio_bare = us / bare;
  r.rel_l2 = 0.002;
  r.share_over_1pct = 0.001;
  r.reference_share_over_1pct = 0.003;
  r.share_over_1pct_large = r.excluded_share = 0;
  return r;
}

#define ROW_A "glu_bf16_sm90_paired_coop_128x72_s6_c1"
#define ROW_B "glu_bf16_sm90_paired_pingpong_128x96_s5_c2"
#define ROW_C "glu_bf16_sm90_gate_first_128x96_s6_c1"

static const char required[] =
  "date,commit,row_hash,card,driver,model,m,n,k,dtype,activation,layout,row,chosen,mode,pdl,"
  "sm_clock_mhz,us,bare_us,unfused_us,eager_us,ratio_bare,ratio_unfused,ratio_eager,tflops,"
  "share_of_989,tbs,rel_l2,share_over_1pct,reference_share_over_1pct,";

static void make_path(char *path) {
  strcpy(path, "/tmp/tileglu-bench-XXXXXX");
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
}

static void file_round_trip(void **state) {
  (void)state;
  char path[64], head[4096];
  make_path(path);
  result a = line_of("Qwen2.5-0.5B", 1024, ROW_A, 1, 0, 12.5, 12.75);
  result b = line_of("Qwen2.5-0.5B", 1024, ROW_B, 0, 1, NAN, 12.75);
  result_text(b.card, sizeof b.card, "a,\"b\"\nc");
  assert_int_equal(result_append(path, RESULT_GLU, &a), CLI_OK);
  assert_int_equal(result_append(path, RESULT_GLU, &b), CLI_OK);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_non_null(fgets(head, sizeof head, file));
  fclose(file);
  assert_int_equal(strncmp(head, required, sizeof required - 1), 0);
  result_list list = {0};
  assert_int_equal(result_read(path, 0, &list), CLI_OK);
  assert_int_equal(list.count, 2);
  const result *r = list.items;
  assert_string_equal(r[0].row, ROW_A);
  assert_string_equal(r[0].model, "Qwen2.5-0.5B");
  assert_int_equal(r[0].m, 1024);
  assert_int_equal(r[0].chosen, 1);
  assert_true(r[0].us == 12.5);
  assert_near(r[0].ratio_bare, 12.5 / 12.75, 1e-4);
  assert_true(isnan(r[0].eager_us) && isnan(r[1].us) && isnan(r[1].ratio_bare));
  assert_string_equal(r[1].card, "a  b  c");
  assert_int_equal(r[1].pdl, 1);
  result_free(&list);
  unlink(path);
}

static void bad_files(void **state) {
  (void)state;
  char path[64];
  make_path(path);
  unlink(path);
  result_list list = {0};
  assert_int_equal(result_read(path, 1, &list), CLI_OK);
  assert_int_equal(list.count, 0);
  assert_int_equal(result_read(path, 0, &list), CLI_INPUT);
  assert_int_equal(result_append("/nonexistent/folder/x.csv", RESULT_GLU, &(result){0}), CLI_INPUT);
  static const char *const texts[] = {
    "a,b,c\n1,2,3\n",          /* no results file  */
    "%s\n2026\n",               /* too few fields   */
    "%s\n%s,more,fields,%s\n",  /* too many         */
    "%s\nd,c,h,c,d,m,many\n",   /* too few, no number either */
    "%s"                         /* cut in the head  */
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    char text[8192], head[1024];
    snprintf(head, sizeof head, "%.*s", (int)sizeof required - 2, required);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, texts[i], head, head, head);
#pragma GCC diagnostic pop
    fputs(text, file);
    fclose(file);
    if (result_read(path, 0, &list) != CLI_INPUT) fail_msg("case %zu was accepted", i);
  }
  result_free(&list);
  unlink(path);
}

/* ---- choices ---- */

static result_list three_rows(void) {
  result_list list = {0};
  const result lines[] = {line_of("Qwen2.5-0.5B", 1024, ROW_A, 1, 0, 12, 12),
                          line_of("Qwen2.5-0.5B", 1024, ROW_B, 0, 0, 11, 12),
                          line_of("Qwen2.5-0.5B", 1024, ROW_C, 0, 0, NAN, 12),
                          line_of("Qwen2.5-0.5B", 2048, ROW_C, 1, 0, 1, 12)};
  for (size_t i = 0; i < 4; i++) result_push(&list, &lines[i]);
  return list;
}

static void best_of_a_former_run(void **state) {
  (void)state;
  result_list list = three_rows();
  spec s = {.tokens = 1024, .hidden = 896, .intermediate = 4864, .dtype = TGLU_DTYPE_BF16,
            .activation = TGLU_ACTIVATION_SILU, .layout = TGLU_LAYOUT_SEPARATE};
  int best[8];
  assert_int_equal(pick_best(&list, &s, 0, 8, best), 2); /* not the one without a time */
  assert_string_equal(list.items[best[0]].row, ROW_B);
  assert_string_equal(list.items[best[1]].row, ROW_A);
  assert_int_equal(pick_best(&list, &s, 0, 1, best), 1);
  assert_int_equal(pick_best(&list, &s, 1, 8, best), 2); /* none with pdl 1: the others */
  s.dtype = TGLU_DTYPE_F16;
  assert_int_equal(pick_best(&list, &s, 0, 8, best), 0);
  result_free(&list);
}

static void rows_by_name(void **state) {
  (void)state;
  assert_string_equal(row_short_name(ROW_A), "paired_coop_128x72_s6_c1");
  assert_string_equal(row_short_name("dot"), "dot");
  assert_true(row_names_hold(ROW_A, ROW_A));
  assert_true(row_names_hold("x,paired_coop_128x72_s6_c1", ROW_A));
  assert_false(row_names_hold("paired_coop_128x72_s6_c", ROW_A));
  assert_false(row_names_hold("paired_coop_128x72_s6_c1x,,y", ROW_A));
  assert_false(row_names_hold("", ROW_A));
  const char *const rows[] = {"glu_bf16_sm90_stream_8x16_s4_c1", ROW_A}, *name;
  const char *const words[] = {"chosen", "all", NULL};
  assert_int_equal(row_names_unknown(ROW_A ",stream_8x16_s4_c1", words, rows, 2, &name), 0);
  assert_int_equal(row_names_unknown(ROW_A ",stream_8x16_s4,x", words, rows, 2, &name), 14);
  assert_string_equal(name, "stream_8x16_s4,x");
  assert_int_equal(row_names_unknown("all," ROW_A ",chosen", words, rows, 2, &name), 0);
  assert_int_equal(row_names_unknown("all,al", words, rows, 2, &name), 2);
  assert_string_equal(name, "al");
  assert_int_equal(row_names_unknown("all,", words, rows, 2, &name), -1);
  assert_int_equal(row_names_unknown(ROW_A ",", words, rows, 2, &name), -1);
  assert_int_equal(row_names_unknown("", words, rows, 2, &name), -1);
}

/* ---- tables ---- */

static void points_and_means(void **state) {
  (void)state;
  result_list list = three_rows();
  result again = line_of("Qwen2.5-0.5B", 1024, ROW_B, 0, 0, 10, 12);
  result_push(&list, &again);
  point_list points = summary_points(&list);
  assert_int_equal(points.count, 2);
  const point *p = &points.items[0];
  assert_string_equal(p->chosen, ROW_A);
  assert_string_equal(p->best, ROW_B);
  assert_near(p->chosen_ratio, 1, 1e-12);
  assert_near(p->best_ratio, 10.5 / 12, 1e-12); /* the median of two runs */
  assert_near(p->regret, 12 / 10.5 - 1, 1e-12);
  int count = 0;
  double mean =
    summary_geomean(&points, OP_GLU, "sustained", 0, 1, 8192, point_chosen_ratio, &count);
  assert_int_equal(count, 2);
  assert_near(mean, sqrt(1.0 / 12), 1e-12);
  mean = summary_geomean(&points, OP_GLU, "sustained", 0, 2048, 8192, point_best_ratio, &count);
  assert_int_equal(count, 1);
  assert_near(mean, 1.0 / 12, 1e-12);
  assert_true(isnan(
    summary_geomean(&points, OP_GLU, "sustained", 1, 0, 9, point_best_ratio, &count)));
  assert_int_equal(count, 0);
  assert_true(isnan(summary_geomean(&points, OP_GLU, "sustained", 0, 1, 8192, point_ratio_eager,
                                    &count)));
  summary_free(&points);
  result_free(&list);
}

static char *printed(const result_list *list) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  assert_non_null(stream);
  summary_print(list, stream);
  fclose(stream);
  return text;
}

static void tables_say_it(void **state) {
  (void)state;
  result_list none = {0};
  char *text = printed(&none);
  assert_non_null(strstr(text, "no results"));
  free(text);
  result_list list = three_rows();
  text = printed(&list);
  assert_non_null(strstr(text, "paired_coop_128x72_s6_c1"));
  assert_non_null(strstr(text, "WRONG RESULT"));
  assert_null(strstr(text, "nan"));
  free(text);
  result_free(&list);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(accuracy_counts),      cmocka_unit_test(accuracy_refuses_nan),
    cmocka_unit_test(rows_of_the_sample),   cmocka_unit_test(file_round_trip),
    cmocka_unit_test(bad_files),            cmocka_unit_test(best_of_a_former_run),
    cmocka_unit_test(rows_by_name),         cmocka_unit_test(points_and_means),
    cmocka_unit_test(tables_say_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
