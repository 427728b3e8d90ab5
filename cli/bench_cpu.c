/* The bench on the CPU: contenders, rotating weights, rounds in random order. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "baseline.h"
#include "bench.h"
#include "cache.h"
#include "check.h"
#include "cli.h"
#include "mem.h"
#include "oracle.h"
#include "progress.h"
#include "row_names.h"
#include "stats.h"
#include "workload.h"

enum { CONTENDERS = 64, CHECKED_TOKENS = 4 };

typedef struct contender {
  enum { ROW, UNFUSED, READ } kind;
  char name[96];
  int chosen;
  tglu_context *context;  /* a row's own, where it is forced */
  op *ops;                /* ROW: one a copy      */
  baseline *unfused;      /* UNFUSED: one a copy  */
  double *seconds;        /* one a round, per call */
  int64_t next_copy, calls;
  double rel_l2;
} contender;

typedef struct point {
  const bench_args *args;
  const tools *tools;
  tglu_context *planner;  /* with no row forced   */
  spec spec;
  int64_t copies;
  weights *weights;
  operands data;
  guard scratch;          /* the unfused way's    */
  contender list[CONTENDERS];
  int count;
  _Atomic uint64_t read;  /* keeps the read loop  */
} point;

/* ---- one call ---- */
typedef struct read_job {
  point *p;
  const guard *part;
} read_job;

enum { READ_PIECE = 1 << 18 };

static void read_piece(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  read_job *job = context;
  size_t from = (size_t)begin * READ_PIECE, to = (size_t)end * READ_PIECE;
  if (to > job->part->bytes) to = job->part->bytes;
  atomic_fetch_xor(&job->p->read, job->p->tools->hot->read(job->part->data + from, to - from));
}

static void read_weights(point *p, int64_t copy) {
  for (size_t i = 0; i < 6; i++) {
    read_job job = {p, &p->weights[copy].part[i]};
    int64_t pieces = (int64_t)((job.part->bytes + READ_PIECE - 1) / READ_PIECE);
    pool_for(p->tools->threads, pieces, 1, read_piece, &job);
  }
}

static tglu_status call(point *p, contender *c) {
  int64_t copy = c->next_copy;
  c->next_copy = (copy + 1) % p->copies;
  switch (c->kind) {
  case ROW: return op_run(&c->ops[copy], &p->data.args);
  case UNFUSED:
    return baseline_run(&c->unfused[copy], &p->data.args, p->scratch.data, p->scratch.bytes,
                        NULL);
  default: read_weights(p, copy); return TGLU_OK;
  }
}

/* ---- contenders ---- */
static contender *add_contender(point *p, int kind) {
  contender *c = &p->list[p->count++];
  memset(c, 0, sizeof *c);
  c->kind = kind;
  c->rel_l2 = NAN;
  c->seconds = mem_zeroed((size_t)p->args->rounds, sizeof *c->seconds);
  return c;
}

static int add_row(point *p, const char *forced) {
  tglu_context *context = p->tools->context, *own = NULL;
  if (forced) {
    tglu_context_options options = p->args->place.options;
    options.backend = TGLU_BACKEND_CPU;
    options.row = forced;
    tglu_status status = tglu_context_create(&options, &own);
    if (status != TGLU_OK) return cli_library_error(place_exit_code(status), "--rows");
    context = own;
  }
  contender *c = add_contender(p, ROW);
  c->context = own;
  c->chosen = !forced && !p->args->place.options.row;
  c->ops = mem_zeroed((size_t)p->copies, sizeof *c->ops);
  for (int64_t i = 0; i < p->copies; i++) {
    tglu_status status = op_create(&c->ops[i], p->spec.op, context, &p->weights[i].desc);
    if (status != TGLU_OK) {
      return cli_library_error(place_exit_code(status), "%s", op_name(p->spec.op));
    }
  }
  tglu_plan_info plan;
  if (op_plan(&c->ops[0], p->spec.tokens, &plan) != TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "plan");
  }
  snprintf(c->name, sizeof c->name, "%s%s%s", plan.row ? plan.row : "?",
           plan.down_row ? " + " : "", plan.down_row ? plan.down_row : "");
  return CLI_OK;
}

static int row_serves(const tglu_row_info *row, tglu_dtype dtype) {
  return strcmp(row->op, "glu") == 0 && row->usable && (row->dtypes & 1 << dtype);
}

/* The rows beside the chosen one. */
static int add_forced_rows(point *p) {
  const char *rows = p->args->rows;
  const int all = strcmp(rows, "all") == 0;
  if (strcmp(rows, "chosen") == 0) return CLI_OK;
  for (int32_t i = 0; i < tglu_row_count(p->tools->context); i++) {
    tglu_row_info row;
    tglu_row_info_init(&row);
    if (tglu_row_get(p->tools->context, i, &row) != TGLU_OK) continue;
    if (!all && !row_names_hold(rows, row.name)) continue;
    tglu_plan_info plan;
    if (!row_serves(&row, p->spec.dtype)) continue;
    if (op_plan(&p->list[0].ops[0], p->spec.tokens, &plan) == TGLU_OK && plan.row &&
        strcmp(plan.row, row.name) == 0) {
      continue; /* it is the chosen one */
    }
    if (p->count + 2 >= CONTENDERS) break;
    int code = add_row(p, row.name);
    if (code != CLI_OK) return code;
  }
  return CLI_OK;
}

/* Bytes of memory; not above 0 where the system does not say. */
static double free_bytes(void) {
  return (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static int memory_has(double bytes) { return !(free_bytes() > 0) || bytes <= free_bytes(); }

static int add_unfused(point *p) {
  contender *c = add_contender(p, UNFUSED);
  snprintf(c->name, sizeof c->name, "unfused");
  c->unfused = mem_zeroed((size_t)p->copies, sizeof *c->unfused);
  for (int64_t i = 0; i < p->copies; i++) {
    tglu_status status = baseline_new(&c->unfused[i], p->spec.op, p->planner,
                                      &p->weights[i].desc, p->tools->hot, p->tools->threads);
    if (status != TGLU_OK) return cli_library_error(CLI_RUNTIME, "the unfused way");
  }
  size_t bytes = 0;
  if (baseline_scratch_bytes(&c->unfused[0], p->spec.tokens, &bytes) != TGLU_OK) {
    return cli_library_error(CLI_RUNTIME, "the unfused way");
  }
  if (!memory_has((double)bytes) || guard_new(&p->scratch, bytes, 0) != 0) {
    return cli_error(CLI_RUNTIME, "--tokens %lld: out of memory for the unfused way's "
                     "intermediates, %.1f GiB", (long long)p->spec.tokens,
                     (double)bytes / 0x1p30);
  }
  return CLI_OK;
}

static void free_contender(const point *p, contender *c) {
  for (int64_t i = 0; c->ops && i < p->copies; i++) op_destroy(&c->ops[i]);
  for (int64_t i = 0; c->unfused && i < p->copies; i++) baseline_free(&c->unfused[i]);
  mem_free(c->ops);
  mem_free(c->unfused);
  mem_free(c->seconds);
  tglu_context_destroy(c->context);
}

/* ---- one point ---- */
static double cache_bytes(const bench_args *args) {
  if (!isnan(args->cache_mib)) return args->cache_mib * 0x1p20;
  double l3 = cache_level_bytes(3), l2 = cache_level_bytes(2);
  return l3 > 0 ? l3 : l2 > 0 ? l2 : 32 * 0x1p20;
}

static int make_weights(point *p, const tglu_glu_desc *shape) {
  double bytes = op_weight_bytes(p->spec.op, shape);
  double copies = floor(3 * cache_bytes(p->args) / bytes) + 1;
  if (!memory_has(copies * bytes)) {
    return cli_error(CLI_RUNTIME, "%.1f GiB of weights are needed, %.1f GiB are free",
                     copies * bytes / 0x1p30, free_bytes() / 0x1p30);
  }
  rng random;
  rng_seed(&random, p->args->place.seed);
  p->copies = (int64_t)copies;
  p->weights = mem_zeroed((size_t)p->copies, sizeof *p->weights);
  for (int64_t i = 0; i < p->copies; i++) {
    if (weights_new(&p->weights[i], &p->spec, &random) != 0) {
      return cli_error(CLI_RUNTIME, "out of memory for the weights");
    }
  }
  return CLI_OK;
}

static int make_operands(point *p) {
  size_t most = 0;
  for (int i = 0; i < p->count; i++) {
    size_t bytes = 0;
    if (p->list[i].kind != ROW) continue;
    if (op_workspace_bytes(&p->list[i].ops[0], p->spec.tokens, &bytes) != TGLU_OK) {
      return cli_library_error(CLI_RUNTIME, "workspace");
    }
    if (bytes > most) most = bytes;
  }
  rng random;
  rng_seed(&random, p->args->place.seed + 1);
  if (operands_new(&p->data, &p->spec, most, &random) != 0) {
    return cli_error(CLI_RUNTIME, "out of memory for the operands");
  }
  return CLI_OK;
}

/* Every contender's first tokens against the oracle: a wrong result is not timed. */
static int check_contenders(point *p) {
  const tglu_mlp_desc *desc = &p->weights[0].desc;
  const int64_t columns = op_columns(p->spec.op, &desc->glu);
  const int64_t tokens = p->spec.tokens < CHECKED_TOKENS ? p->spec.tokens : CHECKED_TOKENS;
  double *reference = mem_zeroed((size_t)(tokens * columns), sizeof *reference);
  double *allowed = mem_zeroed((size_t)(tokens * columns), sizeof *allowed);
  const oracle_call expected = {.kind = p->spec.op, .desc = desc, .tokens = tokens,
                                .x = p->data.args.x, .ldx = p->data.args.ldx,
                                .residual = p->data.args.residual, .ldr = p->data.args.ldr};
  oracle_run(&expected, p->tools->hot, p->tools->threads, reference, allowed);
  int code = CLI_OK;
  for (int i = 0; i < p->count && code == CLI_OK; i++) {
    contender *c = &p->list[i];
    char why[256];
    comparison sum;
    if (c->kind == READ) continue;
    operands_poison(&p->data);
    if (call(p, c) != TGLU_OK) {
      code = cli_library_error(CLI_RUNTIME, "%s", c->name);
      break;
    }
    c->next_copy = 0;
    compare_begin(&sum, p->spec.op, p->spec.dtype);
    compare_add(&sum, p->data.out.data, p->data.args.ldo, reference, allowed, tokens,
                columns);
    c->rel_l2 = compare_rel_l2(&sum);
    if (c->kind == ROW && !compare_passes(&sum, why, sizeof why)) {
      code = cli_error(CLI_MISMATCH, "%s: %s", c->name, why);
    } else if (!(c->rel_l2 <= 4 * compare_unit(p->spec.dtype))) {
      code = cli_error(CLI_MISMATCH, "%s: relative L2 error %.3g", c->name, c->rel_l2);
    }
  }
  mem_free(reference);
  mem_free(allowed);
  return code;
}

/* Warms up by time and finds how many calls fill a slice. */
static int warm_up(point *p) {
  for (int i = 0; i < p->count; i++) {
    contender *c = &p->list[i];
    double start = clock_now(), spent;
    int64_t calls = 0;
    do {
      if (call(p, c) != TGLU_OK) return cli_library_error(CLI_RUNTIME, "%s", c->name);
      calls++;
      spent = clock_now() - start;
    } while (spent < p->args->warm_up);
    double wanted = p->args->slice * (double)calls / spent;
    c->calls = wanted > 1 ? (int64_t)ceil(wanted) : 1;
  }
  return CLI_OK;
}

static int time_rounds(point *p, rng *random, progress *bar, int64_t done) {
  int order[CONTENDERS];
  for (int i = 0; i < p->count; i++) order[i] = i;
  for (int64_t r = 0; r < p->args->rounds; r++) {
    for (int i = p->count - 1; i > 0; i--) {
      int j = (int)rng_below(random, (uint64_t)i + 1), swap = order[i];
      order[i] = order[j];
      order[j] = swap;
    }
    for (int i = 0; i < p->count; i++) {
      contender *c = &p->list[order[i]];
      double start = clock_now();
      for (int64_t n = 0; n < c->calls; n++) {
        if (call(p, c) != TGLU_OK) return cli_library_error(CLI_RUNTIME, "%s", c->name);
      }
      c->seconds[r] = (clock_now() - start) / (double)c->calls;
    }
    progress_at(bar, done * p->args->rounds + r + 1);
  }
  return CLI_OK;
}

/* Median over the rounds of a's time over b's. */
static double round_ratio(const point *p, const contender *a, const contender *b) {
  double *ratios = mem_zeroed((size_t)p->args->rounds, sizeof *ratios);
  for (int64_t r = 0; r < p->args->rounds; r++) ratios[r] = a->seconds[r] / b->seconds[r];
  double median = stats_median(ratios, (size_t)p->args->rounds);
  mem_free(ratios);
  return median;
}

static int report(point *p, bench_sink *sink) {
  const tglu_glu_desc *d = &p->weights[0].desc.glu;
  const contender *unfused = &p->list[p->count - 2], *read = &p->list[p->count - 1];
  bench_line lines[CONTENDERS];
  for (int i = 0; i < p->count; i++) { /* before stats sort the times */
    const contender *c = &p->list[i];
    lines[i] = (bench_line){.spec = p->spec, .chosen = c->chosen, .rel_l2 = c->rel_l2,
                            .rounds = p->args->rounds, .copies = p->copies};
    snprintf(lines[i].contender, sizeof lines[i].contender, "%s", c->name);
    lines[i].ratio_unfused = c->kind == READ ? NAN : round_ratio(p, c, unfused);
    lines[i].share_of_read = round_ratio(p, read, c);
  }
  for (int i = 0; i < p->count; i++) {
    contender *c = &p->list[i];
    size_t rounds = (size_t)p->args->rounds;
    double median = stats_median(c->seconds, rounds);
    lines[i].us = 1e6 * median;
    lines[i].spread = stats_spread(c->seconds, rounds);
    lines[i].gflops =
      c->kind == READ ? NAN : 1e-9 * op_flops(p->spec.op, d, p->spec.tokens) / median;
    lines[i].weight_gbs = 1e-9 * op_weight_bytes(p->spec.op, d) / median;
    int code = sink_add(sink, &lines[i]);
    if (code != CLI_OK) return code;
  }
  return CLI_OK;
}

static int measure(point *p, bench_sink *sink, rng *random, progress *bar, int64_t done) {
  const tglu_glu_desc shape = {.hidden = p->spec.hidden, .dtype = p->spec.dtype,
                               .intermediate = p->spec.intermediate};
  int code = make_weights(p, &shape);
  if (code == CLI_OK) code = add_row(p, NULL);
  if (code == CLI_OK) code = add_forced_rows(p);
  if (code == CLI_OK) code = add_unfused(p);
  if (code == CLI_OK) snprintf(add_contender(p, READ)->name, 96, "read");
  if (code == CLI_OK) code = make_operands(p);
  if (code == CLI_OK) code = check_contenders(p);
  if (code == CLI_OK) code = warm_up(p);
  if (code == CLI_OK) code = time_rounds(p, random, bar, done);
  if (code == CLI_OK) code = report(p, sink);
  for (int i = 0; i < p->count; i++) free_contender(p, &p->list[i]);
  for (int64_t i = 0; p->weights && i < p->copies; i++) weights_free(&p->weights[i]);
  mem_free(p->weights);
  operands_free(&p->data);
  guard_free(&p->scratch);
  return code;
}

/* Refuses names of which no problem has a row. */
static int check_rows(const bench_args *args, tglu_context *context) {
  static const char *const words[] = {"chosen", "all", NULL};
  const int32_t rows = tglu_row_count(context);
  const char **known = mem_zeroed((size_t)rows + 1, sizeof *known);
  int count = 0;
  for (int32_t i = 0; i < rows; i++) {
    tglu_row_info row;
    int serves = 0;
    tglu_row_info_init(&row);
    if (tglu_row_get(context, i, &row) != TGLU_OK) continue;
    for (size_t j = 0; j < args->shape.dtype_count; j++) {
      serves |= row_serves(&row, args->shape.dtypes[j]);
    }
    if (serves) known[count++] = row.name;
  }
  int code = row_names_check(args->rows, words, known, count, "glu");
  mem_free(known);
  return code;
}

/* The unfused way's context where --row forces a row, which it has no use for. */
static int open_planner(const bench_args *args, tglu_context **own) {
  tglu_context_options options = args->place.options;
  options.row = NULL;
  if (!args->place.options.row) return CLI_OK;
  tglu_status status = tglu_context_create(&options, own);
  return status == TGLU_OK ? CLI_OK : cli_library_error(place_exit_code(status), "context");
}

int bench_cpu(const bench_args *args, bench_sink *sink) {
  tools t;
  tglu_context *own = NULL;
  if (getenv("TILEGLU_ROW")) {
    return cli_error(CLI_USAGE, "the environment sets TILEGLU_ROW, which the unfused way cannot "
                     "use: unset it; --row forces a row for the other contenders alone");
  }
  int code = tools_open(&t, &args->place);
  if (code != CLI_OK) return code;
  code = shape_check_row(&args->shape, &args->place, t.context, 1);
  if (code == CLI_OK) code = check_rows(args, t.context);
  if (code == CLI_OK) code = open_planner(args, &own);
  snprintf(sink->device, sizeof sink->device, "%s",
           t.info.device_name ? t.info.device_name : "unnamed");
  snprintf(sink->isa, sizeof sink->isa, "%s", t.info.cpu_isa ? t.info.cpu_isa : "?");
  sink->threads = t.info.threads;
  const size_t count = shape_count(&args->shape);
  rng random;
  progress bar;
  rng_seed(&random, args->place.seed);
  progress_begin(&bar, "bench", (int64_t)count * args->rounds);
  for (size_t i = 0; i < count && code == CLI_OK; i++) {
    point *p = mem_zeroed(1, sizeof *p);
    p->args = args;
    p->tools = &t;
    p->planner = own ? own : t.context;
    p->spec = shape_at(&args->shape, i);
    code = measure(p, sink, &random, &bar, (int64_t)i);
    mem_free(p);
  }
  progress_end(&bar);
  tglu_context_destroy(own);
  tools_close(&t);
  return code;
}
