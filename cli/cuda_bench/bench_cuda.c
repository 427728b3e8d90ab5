/* tileglu bench --device cuda, from the command line to the tables. */
#include "bench_cuda.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cli.h"
#include "../json_out.h"
#include "../progress.h"
#include "host_time.h"
#include "pick.h"
#include "summary.h"

/* Variables that would change what the library does behind the bench's back. */
static int check_environment(void) {
  static const char *const names[] = {"TILEGLU_ROW", "TILEGLU_SM_LIMIT"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (getenv(names[i])) {
      return cli_error(CLI_USAGE, "the environment sets %s, which the bench decides itself: "
                       "unset it", names[i]);
    }
  }
  return CLI_OK;
}

static int open_all(bench *b) {
  const cuda_args *a = &b->args;
  time_t now = time(NULL);
  struct tm utc;
  strftime(b->date, sizeof b->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  rng_seed(&b->order, a->seed);
  int code = check_environment();
  const struct { const char *name; result_kind kind; } files[] = {
    {a->out, a->shape.op == OP_MLP ? RESULT_MLP : RESULT_GLU}, {a->read_out, RESULT_READ},
    {a->invariant_out, RESULT_INVARIANT}, {a->energy_out, RESULT_ENERGY},
  };
  for (int i = 0; i < 4 && code == CLI_OK; i++) {
    if (files[i].name) code = result_writable(files[i].name, files[i].kind);
  }
  if (code == CLI_OK && a->from) code = result_read(a->from, 0, &b->former);
  if (code == CLI_OK) code = gpu_open(&b->gpu, a->driver, (int)a->gpu);
  if (code != CLI_OK) return code;
  b->gpu.wait_limit = a->wait_limit;
  nvml_open(&b->nvml, a->nvml, b->gpu.pci);
  if (a->host_time) return CLI_OK;
  code = a->alone ? CLI_OK : cublas_open(&b->cublas, &b->gpu, a->cublas, a->cublaslt);
  if (code == CLI_OK) code = rows_open(&b->rows, a);
  return code == CLI_OK ? rows_check(&b->rows) : code;
}

static void close_all(bench *b) {
  if (b->rows.items) rows_close(&b->rows);
  if (b->cublas.library) cublas_close(&b->cublas, &b->gpu);
  nvml_close(&b->nvml);
  if (b->gpu.library) gpu_close(&b->gpu);
  result_free(&b->results);
  result_free(&b->former);
}

/* Whether --out has the chosen row's line of everything that would be measured. */
static int is_done(const bench *b, const result_list *done, const spec *s) {
  for (int pdl = 0; pdl < 2; pdl++) {
    for (int burst = 0; burst <= b->args.burst; burst++) {
      int found = !b->args.with_pdl[pdl];
      for (size_t i = 0; i < done->count && !found; i++) {
        const result *r = &done->items[i];
        found = r->chosen && r->pdl == pdl && pick_same_shape(r, s) &&
                strcmp(r->mode, burst ? "burst" : "sustained") == 0 &&
                strcmp(r->commit, b->args.commit) == 0;
      }
      if (!found) return 0;
    }
  }
  return 1;
}

/* The shapes of this part that are not done yet: their indices. */
static size_t list_shapes(const bench *b, const result_list *done, size_t *indices) {
  const cuda_args *a = &b->args;
  size_t count = 0;
  for (size_t i = 0; i < shape_count(&a->shape); i++) {
    if (i % (size_t)a->parts != (size_t)(a->part - 1)) continue;
    spec s = shape_at(&a->shape, i);
    if (a->resume && is_done(b, done, &s)) continue;
    indices[count++] = i;
  }
  return count;
}

/* Six control points, spread over the shapes of the run. */
static int is_control(size_t index, size_t count) {
  enum { POINTS = 6 };
  if (count <= POINTS) return 1;
  for (size_t i = 0; i < POINTS; i++) {
    if (index == i * (count - 1) / (POINTS - 1)) return 1;
  }
  return 0;
}

static int run_shapes(bench *b) {
  const cuda_args *a = &b->args;
  result_list done = {0};
  int code = a->resume ? result_read(a->out, 1, &done) : CLI_OK;
  size_t *indices = calloc(shape_count(&a->shape) + 1, sizeof *indices);
  if (!indices) code = cli_error(CLI_RUNTIME, "out of memory");
  size_t count = code == CLI_OK ? list_shapes(b, &done, indices) : 0;
  double begin = clock_now(), longest = 0;
  for (size_t i = 0; i < count && code == CLI_OK; i++) {
    double now = clock_now();
    if (a->time_limit > 0 && now - begin + longest > a->time_limit) {
      code = cli_error(TIME_LIMIT_REACHED, "time limit: %zu of %zu shapes are left out "
                       "(--resume goes on)", count - i, count);
      break;
    }
    spec s = shape_at(&a->shape, indices[i]);
    code = bench_shape(b, &s, a->controls && b->torch && is_control(i, count));
    longest = fmax(longest, clock_now() - now);
  }
  free(indices);
  result_free(&done);
  return code;
}

/* ---- output ---- */

static void print_controls(const bench *b) {
  for (int i = 0; i < b->control_count; i++) {
    const control *c = &b->controls[i];
    if (i == 0) printf("\ntorch.nn.functional.linear over bare (within 3 %% is meant)\n");
    printf("  %s m %lld: %.3f (%.2f us, bare %.2f us)\n", c->model, (long long)c->m,
           c->linear_us / c->bare_us, c->linear_us, c->bare_us);
  }
}

static json_t *json_line(const result *r) {
  json_t *o = json_object();
#define TEXT(field, bytes) jo_text(o, #field, r->field);
#define INT(field) jo_int(o, #field, r->field);
#define REAL(field, format) jo_real(o, #field, r->field);
  RESULT_FIELDS(TEXT, INT, REAL)
#undef TEXT
#undef INT
#undef REAL
  return o;
}

static int print_json(const bench *b, const result_list *lines) {
  json_t *document = jo_document("bench"), *list = json_array(), *controls = json_array();
  for (size_t i = 0; i < lines->count; i++) {
    json_array_append_new(list, json_line(&lines->items[i]));
  }
  for (int i = 0; i < b->control_count; i++) {
    const control *c = &b->controls[i];
    json_t *o = json_object();
    jo_text(o, "model", c->model);
    jo_int(o, "m", c->m);
    jo_real(o, "linear_us", c->linear_us);
    jo_real(o, "bare_us", c->bare_us);
    json_array_append_new(controls, o);
  }
  jo_text(document, "device", b->gpu.name);
  jo_int(document, "cublas", b->cublas.version);
  jo_int(document, "seed", (int64_t)b->args.seed);
  json_object_set_new(document, "lines", list);
  json_object_set_new(document, "controls", controls);
  return jo_print(document);
}

static int print_results(const bench *b, const result_list *lines) {
  if (b->args.json) return print_json(b, lines);
  summary_print(lines, stdout);
  print_controls(b);
  return CLI_OK;
}

static int print_tables(bench *b) {
  int code = result_read(b->args.tables, 0, &b->former);
  if (code == CLI_OK) code = print_results(b, &b->former);
  result_free(&b->former);
  return code;
}

static int run_host_time(bench *b) {
  spec s = shape_at(&b->args.shape, 0);
  host_time t = {0};
  int code = host_time_measure(b, &s, &t);
  if (code != CLI_OK) return code;
  if (b->args.json) {
    json_t *document = jo_document("bench");
    jo_text(document, "device", b->gpu.name);
    jo_real(document, "run_ns_pdl0", t.run_ns[0]);
    jo_real(document, "run_ns_pdl1", t.run_ns[1]);
    jo_real(document, "empty_ns", t.empty_ns);
    jo_real(document, "first_result_ms", t.first_result_ms);
    return jo_print(document);
  }
  printf("host time of run: %.0f ns with pdl 0, %.0f ns with pdl 1; an empty kernel with %d "
         "parameter bytes by cuLaunchKernelEx: %.0f ns; above it: %.0f and %.0f ns\n",
         t.run_ns[0], t.run_ns[1], (int)BENCH_EMPTY_BYTES, t.empty_ns,
         t.run_ns[0] - t.empty_ns, t.run_ns[1] - t.empty_ns);
  printf("context creation to first result, driver and primary context already up: %.1f ms\n",
         t.first_result_ms);
  return CLI_OK;
}

static int measure_and_print(bench *b) {
  if (b->args.host_time) return run_host_time(b);
  fprintf(stderr, "%s, driver %s, CUDA %d.%d, cuBLAS %d, L2 %.0f MiB, commit %s, seed %llu\n",
          b->gpu.name, b->nvml.driver[0] ? b->nvml.driver : "unknown", b->gpu.version / 1000,
          b->gpu.version % 1000 / 10, b->cublas.version, (double)b->gpu.l2_bytes / 1048576,
          b->args.commit, (unsigned long long)b->args.seed);
  int code = run_shapes(b);
  int printed = print_results(b, &b->results);
  if (b->wrong) return CLI_MISMATCH;
  return code != CLI_OK ? code : printed;
}

int bench_cuda_main(int argc, char **argv, const bench_torch *torch) {
  bench *b = calloc(1, sizeof *b);
  if (!b) return cli_error(CLI_RUNTIME, "out of memory");
  cuda_args_parse(&b->args, argc, argv);
  b->torch = torch;
  int code;
  if (b->args.tables) {
    code = print_tables(b);
  } else {
    code = open_all(b);
    if (code == CLI_OK) code = measure_and_print(b);
    close_all(b);
  }
  free(b);
  return code;
}
