/* The GPU test: every kernel row on a real device, through the public API, against a
 * float64 reference on the device.  A plain program that can be copied to another
 * machine with the libraries beside it.  gpu_glu --help says how to select parts.
 * Exit status: 0 all passed, 1 failures, 77 no usable GPU. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu_parts.h"

static const struct {
  const char *name;
  void (*run)(const gpu_options *options);
  const char *what;
} parts[] = {
  {"selfcheck", part_selfcheck, "the reference against the host; planted errors are found"},
  {"values", part_values, "extreme and hand-made values, the last element of K"},
  {"matrix", part_matrix, "layout x activation x bias, each row"},
  {"small", part_small, "a few small shapes, each row, on two SMs (for sanitizers)"},
  {"edges", part_edges, "tile edges in M, N and K, each row"},
  {"capture", part_capture, "graphs, made and first called inside a capture"},
  {"streams", part_streams, "two streams at once, behind delayed work"},
  {"pdl", part_pdl, "programmatic launches wait for what they read"},
  {"threads", part_threads, "16 threads, one context and 16"},
  {"contexts", part_contexts, "several contexts, the caller's current one kept"},
  {"sms", part_sms, "SM limits, the same bits for each"},
  {"beside", part_beside, "next to a kernel that holds half the SMs"},
  {"host", part_host, "host time of run, time to the first result"},
  {"repeat", part_repeat, "50 repeats, the same bits"},
  {"models", part_models, "Qwen2.5 shapes, the planner's choices"},
  {"offsets", part_offsets, "beyond 2^31 elements and bytes"},
  {"linear", part_linear, "edges, alignments, biases and residuals, each down row"},
  {"mlp", part_mlp, "types x activations x layouts x biases x residuals; real shapes"},
  {"down_small", part_down_small, "small shapes, each down row, few SMs (for sanitizers)"},
  {"down_around", part_down_around, "several rounds of the ring, each down row (likewise)"},
  {"down_order", part_down_order, "repeats, SM limits, half the SMs, each down row"},
  {"mlp_order", part_mlp_order, "repeats, captures, streams, one workspace, programmatic launches"},
  {"one_launch", part_one_launch, "sizes, layouts, activations, each row of op mlp"},
  {"one_small", part_one_small, "small shapes, each row of op mlp, few SMs (for sanitizers)"},
  {"one_order", part_one_order, "what down_order and mlp_order do, each row of op mlp"},
  {"invariant", part_invariant, "batch_invariant: a token's bits among any others"},
  {"sweep", part_sweep, "random shapes, strides, offsets"},
  {"planted", part_planted, "a bug for a sanitizer tool to find: --row TOOL (only by name)"},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

double gpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool gpu_out_of_time(const gpu_options *options) { return gpu_now() > options->part_end; }

static void each_row(const gpu_options *options, const char *op,
                     void (*visit)(const gpu_options *, const char *row, int dtype)) {
  tglu_context *context = gpu_context(NULL, 0, 1, 0);
  if (context == NULL) return;
  int visited = 0, other = 0, count = 0;
  for (int pass = 0; pass < 2; ++pass) {
    gpu_options share = *options; /* of the time: an equal one for each row */
    for (int32_t i = 0; i < tglu_row_count(context); ++i) {
      tglu_row_info info;
      tglu_row_info_init(&info);
      if (tglu_row_get(context, i, &info) != TGLU_OK) continue;
      if (options->row != NULL && strcmp(options->row, info.name) != 0) continue;
      bool ours = strcmp(info.op, op) == 0;
      if (pass == 0) {
        count += ours;
        other += !ours;
        continue;
      }
      if (!ours) continue;
      share.part_end = gpu_now() + (options->part_end - gpu_now()) / (count - visited);
      ++visited;
      if (!info.usable) {
        gpu_skip("row %s cannot run here", info.name);
        continue;
      }
      gpu_totals before = gpu_total;
      visit(&share, info.name, info.dtypes >> TGLU_DTYPE_F16 & 1 ? DTYPE_F16 : DTYPE_BF16);
      if (gpu_total.unserved > before.unserved)
        printf("  %s: %lld cases which it cannot serve\n", info.name,
               gpu_total.unserved - before.unserved);
    }
  }
  if (options->row != NULL && other > 0) {
    gpu_skip("row %s has not the operation %s", options->row, op);
  } else {
    gpu_require(visited > 0, "no row of the operation %s was tested", op);
  }
  tglu_context_destroy(context);
}

void gpu_each_row(const gpu_options *options,
                  void (*visit)(const gpu_options *, const char *row, int dtype)) {
  each_row(options, "glu", visit);
}

void gpu_each_down_row(const gpu_options *options,
                       void (*visit)(const gpu_options *, const char *row, int dtype)) {
  each_row(options, "down", visit);
}

void gpu_each_mlp_row(const gpu_options *options,
                      void (*visit)(const gpu_options *, const char *row, int dtype)) {
  each_row(options, "mlp", visit);
}

/* A kernel that never ends must end the program: nothing passes for too long. */
static void *watch(void *limit) {
  long long seen = -1;
  for (;;) {
    sleep(*(const unsigned *)limit);
    long long now = gpu_total.passed + gpu_total.failed;
    if (now == seen) {
      printf("FAILED nothing moved for %u s: a kernel hangs\n", *(const unsigned *)limit);
      printf("%lld passed, %lld failed, %lld skipped\n", gpu_total.passed,
             gpu_total.failed + 1, gpu_total.skipped);
      fflush(stdout);
      _Exit(1);
    }
    seen = now;
  }
  return NULL;
}

static void usage(void) {
  printf("usage: gpu_glu [options] [part ...]\n"
         "  --row NAME        only this kernel row\n"
         "  --seed N          of all random numbers (default 1)\n"
         "  --sweep N         cases of the sweep (default 2000)\n"
         "  --seconds S       time limit of a part (default 60)\n"
         "  --hang S          end if nothing moves for S seconds (default 60)\n"
         "  --memory GIB      most device memory to take (default 16)\n"
         "  --separate        every buffer an allocation of its own (for sanitizers)\n"
         "  --device N        --library FILE\n"
         "parts (default: all):\n");
  for (int i = 0; i < PARTS; ++i) printf("  %-10s %s\n", parts[i].name, parts[i].what);
}

static bool selected(int part, int argc, char **argv, int first) {
  if (first == argc) return parts[part].run != part_planted;
  for (int i = first; i < argc; ++i)
    if (strcmp(argv[i], parts[part].name) == 0) return true;
  return false;
}

static bool known_parts(int argc, char **argv, int first) {
  for (int i = first; i < argc; ++i) {
    bool known = false;
    for (int p = 0; p < PARTS; ++p) known = known || strcmp(argv[i], parts[p].name) == 0;
    if (!known) {
      fprintf(stderr, "gpu_glu: there is no part %s\n", argv[i]);
      return false;
    }
  }
  return true;
}

int main(int argc, char **argv) {
  static const struct option names[] = {
    {"row", 1, NULL, 'r'},    {"seed", 1, NULL, 's'},   {"sweep", 1, NULL, 'n'},
    {"seconds", 1, NULL, 't'}, {"hang", 1, NULL, 'g'},  {"memory", 1, NULL, 'm'},
    {"device", 1, NULL, 'd'}, {"library", 1, NULL, 'l'}, {"help", 0, NULL, 'h'},
    {"separate", 0, NULL, 'p'},
    {NULL, 0, NULL, 0}};
  gpu_options options = {.seed = 1, .seconds = 60, .sweep = 2000};
  static unsigned hang = 60;
  const char *library = NULL;
  int device = 0, memory_gib = 16, option;
  while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
    switch (option) {
      case 'r': options.row = optarg; break;
      case 's': options.seed = strtoull(optarg, NULL, 0); break;
      case 'n': options.sweep = strtoll(optarg, NULL, 0); break;
      case 't': options.seconds = strtod(optarg, NULL); break;
      case 'g': hang = (unsigned)strtoul(optarg, NULL, 0); break;
      case 'm': memory_gib = atoi(optarg); break;
      case 'd': device = atoi(optarg); break;
      case 'l': library = optarg; break;
      case 'p': gpu_separate = true; break;
      case 'h': usage(); return 0;
      default: usage(); return 2;
    }
  }
  if (!known_parts(argc, argv, optind)) return 2;
  if (!gpu_open(library, device)) return 77;
  if (!gpu_arena_create((size_t)memory_gib << 30)) {
    printf("skipped: no device memory\n");
    return 77;
  }
  pthread_t watcher;
  if (pthread_create(&watcher, NULL, watch, &hang) != 0) return 2;
  printf("seed %llu\n", (unsigned long long)options.seed);
  for (int i = 0; i < PARTS; ++i) {
    if (!selected(i, argc, argv, optind)) continue;
    gpu_totals before = gpu_total;
    double start = gpu_now();
    options.part_end = start + options.seconds;
    parts[i].run(&options);
    printf("%-10s %lld passed, %lld failed, %lld skipped, %.1f s\n", parts[i].name,
           gpu_total.passed - before.passed, gpu_total.failed - before.failed,
           gpu_total.skipped - before.skipped, gpu_now() - start);
    fflush(stdout);
  }
  if (gpu_total.passed == 0 && gpu_total.failed == 0) ++gpu_total.failed;
  if (gpu_total.unserved > 0)
    printf("%lld cases which a forced row said it cannot serve\n", gpu_total.unserved);
  printf("%lld outputs compared, %lld off by more than 1 %%, worst relative L2 error of a "
         "case %.3g\n", gpu_total.compared, gpu_total.off_by_1pct, gpu_total.worst_rel_l2);
  printf("%lld passed, %lld failed, %lld skipped\n", gpu_total.passed, gpu_total.failed,
         gpu_total.skipped);
  return gpu_total.failed != 0;
}
