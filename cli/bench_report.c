#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "cli.h"
#include "json_out.h"

static const char csv_head[] =
  "date,commit,cpu,isa,threads,model,op,m,n,k,dtype,activation,layout,row,chosen,us,"
  "spread,ratio_unfused,gflops,weight_gbs,share_of_read,rel_l2,rounds,copies,seed\n";

static const char *const heads[] = {"<model", "m", "n", "k", "<type", "<what", "<chosen",
                                    "us", "spread", "/unfused", "GFLOP/s", "GB/s",
                                    "of read", "rel L2", NULL};

/* What is written so far is in the file: an exit code, with a message if it is not. */
static int csv_written(const bench_sink *sink) {
  if (fflush(sink->csv) == 0 && !ferror(sink->csv)) return CLI_OK;
  return cli_error(CLI_RUNTIME, "--csv: %s: write failed", sink->args->csv);
}

int sink_open(bench_sink *sink, const bench_args *args) {
  memset(sink, 0, sizeof *sink);
  sink->args = args;
  time_t now = time(NULL);
  struct tm utc;
  strftime(sink->date, sizeof sink->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  if (args->csv) {
    sink->csv = strcmp(args->csv, "-") == 0 ? stdout : fopen(args->csv, "w");
    if (!sink->csv) {
      return cli_error(CLI_INPUT, "--csv: %s cannot be written: %s", args->csv, strerror(errno));
    }
    fputs(csv_head, sink->csv);
    if (csv_written(sink) != CLI_OK) {
      if (sink->csv != stdout) fclose(sink->csv);
      return CLI_RUNTIME;
    }
  }
  sink->lines = json_array();
  sink->table = table_new(heads);
  return CLI_OK;
}

/* A field of text and the comma after it, quoted where RFC 4180 asks for it. */
static void csv_text(FILE *csv, const char *text) {
  const int quoted = strpbrk(text, ",\"\r\n") != NULL;
  if (quoted) fputc('"', csv);
  for (; *text; text++) {
    if (*text == '"') fputc('"', csv);
    fputc(*text, csv);
  }
  fputs(quoted ? "\"," : ",", csv);
}

static void csv_real(FILE *csv, const char *format, double value) {
  if (isfinite(value)) fprintf(csv, format, value);
  fputc(',', csv);
}

static void add_csv(bench_sink *sink, const bench_line *l) {
  FILE *csv = sink->csv;
  const spec *s = &l->spec;
  csv_text(csv, sink->date);
  csv_text(csv, sink->args->commit);
  csv_text(csv, sink->device);
  fprintf(csv, "%s,%d,%s,%s,%lld,%lld,%lld,%s,%s,%s,", sink->isa, sink->threads,
          s->model ? s->model : "", op_name(s->op), (long long)s->tokens,
          (long long)s->intermediate, (long long)s->hidden, tglu_dtype_name(s->dtype),
          tglu_activation_name(s->activation), tglu_layout_name(s->layout));
  fprintf(csv, "%s,%d,", l->contender, l->chosen);
  csv_real(csv, "%.3f", l->us);
  csv_real(csv, "%.4f", l->spread);
  csv_real(csv, "%.4f", l->ratio_unfused);
  csv_real(csv, "%.2f", l->gflops);
  csv_real(csv, "%.3f", l->weight_gbs);
  csv_real(csv, "%.4f", l->share_of_read);
  csv_real(csv, "%.4e", l->rel_l2);
  fprintf(csv, "%lld,%lld,%llu\n", (long long)l->rounds, (long long)l->copies,
          (unsigned long long)sink->args->place.seed);
}

static void add_json(bench_sink *sink, const bench_line *l) {
  const spec *s = &l->spec;
  json_t *o = json_object();
  jo_text(o, "model", s->model);
  jo_text(o, "op", op_name(s->op));
  jo_int(o, "m", s->tokens);
  jo_int(o, "n", s->intermediate);
  jo_int(o, "k", s->hidden);
  jo_text(o, "dtype", tglu_dtype_name(s->dtype));
  jo_text(o, "activation", tglu_activation_name(s->activation));
  jo_text(o, "layout", tglu_layout_name(s->layout));
  jo_text(o, "row", l->contender);
  jo_bool(o, "chosen", l->chosen);
  jo_real(o, "us", l->us);
  jo_real(o, "spread", l->spread);
  jo_real(o, "ratio_unfused", l->ratio_unfused);
  jo_real(o, "gflops", l->gflops);
  jo_real(o, "weight_gbs", l->weight_gbs);
  jo_real(o, "share_of_read", l->share_of_read);
  jo_real(o, "rel_l2", l->rel_l2);
  jo_int(o, "rounds", l->rounds);
  jo_int(o, "copies", l->copies);
  json_array_append_new(sink->lines, o);
}

static void real_cell(table *t, const char *format, double value) {
  char text[64];
  snprintf(text, sizeof text, format, value);
  table_cell(t, "%s", isfinite(value) ? text : "-");
}

static void add_row(bench_sink *sink, const bench_line *l) {
  const spec *s = &l->spec;
  table *t = sink->table;
  table_cell(t, "%s", s->model ? s->model : "-");
  table_cell(t, "%lld", (long long)s->tokens);
  table_cell(t, "%lld", (long long)s->intermediate);
  table_cell(t, "%lld", (long long)s->hidden);
  table_cell(t, "%s", tglu_dtype_name(s->dtype));
  table_cell(t, "%s", l->contender);
  table_cell(t, "%s", l->chosen ? "chosen" : "");
  real_cell(t, "%.1f", l->us);
  real_cell(t, "%.3f", l->spread);
  real_cell(t, "%.3f", l->ratio_unfused);
  real_cell(t, "%.1f", l->gflops);
  real_cell(t, "%.2f", l->weight_gbs);
  real_cell(t, "%.3f", l->share_of_read);
  real_cell(t, "%.1e", l->rel_l2);
}

int sink_add(bench_sink *sink, const bench_line *line) {
  if (sink->csv) add_csv(sink, line);
  add_json(sink, line);
  add_row(sink, line);
  return sink->csv ? csv_written(sink) : CLI_OK;
}

static int print_json(bench_sink *sink) {
  json_t *document = jo_document("bench");
  jo_text(document, "date", sink->date);
  jo_text(document, "commit", sink->args->commit);
  jo_text(document, "device", sink->device);
  jo_text(document, "isa", sink->isa);
  jo_int(document, "threads", sink->threads);
  jo_int(document, "seed", (int64_t)sink->args->place.seed);
  json_object_set(document, "lines", sink->lines);
  return jo_print(document);
}

static void print_text(bench_sink *sink) {
  printf("%s, %s, %d threads, commit %s, %s\n", sink->device, sink->isa, sink->threads,
         sink->args->commit, sink->date);
  table_print(sink->table, stdout);
  printf("us: median over the rounds; spread: distance of the quartiles over the median; "
         "seed %llu\n", (unsigned long long)sink->args->place.seed);
}

int sink_close(bench_sink *sink, int code) {
  int to_stdout = sink->csv == stdout;
  if (sink->csv && !to_stdout && fclose(sink->csv) != 0 && code == CLI_OK) {
    code = cli_error(CLI_RUNTIME, "--csv: %s: write failed", sink->args->csv);
  }
  if (code == CLI_OK && sink->args->place.json) {
    code = print_json(sink);
  } else if (code == CLI_OK && !to_stdout) {
    print_text(sink);
  }
  json_decref(sink->lines);
  table_free(sink->table);
  return code;
}
