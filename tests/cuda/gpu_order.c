/* When and where things run: repeats, graphs, streams, threads, contexts, SM limits,
 * programmatic launches, a neighbour on half the SMs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_parts.h"

enum { NON_BLOCKING = 1, KERNEL_NODE = 0 };

static gpu_case plain(int64_t m, int64_t n, int64_t k, int dtype, uint64_t seed) {
  return (gpu_case){.m = m, .n = n, .k = k, .dtype = dtype,
                    .activation = TGLU_ACTIVATION_SILU, .layout = TGLU_LAYOUT_SEPARATE,
                    .seed = seed};
}

/* Operands, object and arguments of a case; NULL (and counted) if that failed. */
static tglu_glu *prepare(tglu_context *context, const gpu_case *c, gpu_operands *o,
                         gpu_stream stream, tglu_run_args *a) {
  tglu_glu_desc d;
  tglu_glu *glu = NULL;
  if (!gpu_operands_create(c, o)) {
    gpu_skip("no room on the device");
    return NULL;
  }
  gpu_operands_desc(o, &d);
  gpu_operands_args(o, stream, a);
  tglu_status status = tglu_glu_create(context, &d, &glu);
  if (gpu_unserved(status)) return NULL;
  gpu_require(status == TGLU_OK, "create: %s", tglu_last_error());
  if (glu == NULL || gpu_serves(glu, a)) return glu;
  tglu_glu_destroy(glu);
  return NULL;
}

/* Whether a forced row serves the case; asked outside of a capture. */
static bool row_serves(const char *row, const gpu_operands *o) {
  if (strstr(row, "_stream") == NULL) return true; /* the others take any size */
  tglu_context *context = gpu_context(row, 0, 1, 0);
  tglu_glu_desc d;
  tglu_run_args a;
  tglu_glu *glu = NULL;
  gpu_operands_desc(o, &d);
  gpu_operands_args(o, NULL, &a);
  bool serves = context != NULL && !gpu_unserved(tglu_glu_create(context, &d, &glu)) &&
                glu != NULL && gpu_serves(glu, &a);
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  return serves;
}

static void judge(const gpu_operands *o, const char *what) {
  ref_result r = gpu_judge(o, 0);
  char text[256];
  gpu_describe(&o->c, text, sizeof text);
  gpu_expect(r.compared > 0 && r.wrong == 0 && r.overwritten == 0,
             "%s: %llu of %llu wrong, %llu overwritten: %s", what, r.wrong, r.compared,
             r.overwritten, text);
}

static void expect_run(const tglu_glu *glu, const tglu_run_args *a) {
  gpu_require(tglu_glu_run(glu, a) == TGLU_OK, "run: %s", tglu_last_error());
}

/* ---- the same bits every time ---- */

static void repeat_row(const gpu_options *options, const char *row, int dtype) {
  static const int64_t shapes[][3] = {{100, 200, 264}, {1000, 2000, 1024}, {513, 4864, 896}};
  tglu_context *context = gpu_context(row, 0, 1, 0);
  for (int i = 0; i < 3 && context != NULL; ++i) {
    gpu_case c = plain(shapes[i][0], shapes[i][1], shapes[i][2], dtype, options->seed);
    gpu_operands o;
    tglu_run_args a;
    tglu_glu *glu = prepare(context, &c, &o, NULL, &a);
    gpu_pointer first = gpu_take((size_t)(c.m * c.n) * 2);
    if (glu != NULL && first != 0) {
      gpu_differences_begin();
      void *out = a.out;
      a.out = (void *)(uintptr_t)first;
      expect_run(glu, &a);
      a.out = out;
      for (int j = 0; j < 50; ++j) {
        gpu_poison(&o, NULL);
        expect_run(glu, &a);
        gpu_differences_add(o.out, first, c.m * c.n, NULL);
      }
      unsigned long long different = gpu_differences_end();
      gpu_expect(different == 0, "%s: %llu elements changed in 50 repeats", row, different);
      judge(&o, row);
    }
    tglu_glu_destroy(glu);
    gpu_operands_destroy(&o);
  }
  tglu_context_destroy(context);
}

void part_repeat(const gpu_options *options) { gpu_each_row(options, repeat_row); }

/* ---- graphs ---- */

/* The context and the object are made inside the capture: the first call of all. */
static void capture_row(const gpu_options *options, const char *row, int dtype) {
  for (int i = 0; i < 3; ++i) {
    gpu_case c = plain(i == 0 ? 9 : 700, 520, i == 2 ? 1001 : 264, dtype, options->seed);
    c.ldx_extra = c.ldw_extra = i == 2 && !gpu_row_general(row) ? 7 : 0;
    if (gpu_row_general(row)) c.x_off = 1;
    gpu_stream stream;
    gpu_graph graph = NULL;
    gpu_exec exec;
    gpu_operands o;
    if (!gpu_operands_create(&c, &o)) continue;
    if (!row_serves(row, &o)) {
      gpu_operands_destroy(&o);
      continue;
    }
    GPU(stream_create(&stream, NON_BLOCKING));
    GPU(begin_capture(stream, 0)); /* global: the strictest */
    tglu_context *context = gpu_context(row, 0, i % 2, 0);
    tglu_glu *glu = NULL;
    tglu_glu_desc d;
    tglu_run_args a;
    gpu_operands_desc(&o, &d);
    gpu_operands_args(&o, stream, &a);
    bool ok = context != NULL &&
              gpu_require(tglu_glu_create(context, &d, &glu) == TGLU_OK &&
                          tglu_glu_run(glu, &a) == TGLU_OK, "within a capture: %s",
                          tglu_last_error());
    int ended = gpu.end_capture(stream, &graph);
    ok = ok && ended == 0 && graph != NULL;
    if (gpu_expect(ok, "%s: the capture ended with %d", row, ended)) {
      gpu_node nodes[8];
      size_t count = 8;
      int type = -1;
      GPU(graph_nodes(graph, nodes, &count));
      if (count == 1) GPU(node_type(nodes[0], &type));
      gpu_expect(count == 1 && type == KERNEL_NODE, "%s: %zu nodes, type %d, in the graph", row,
                 count, type);
      GPU(instantiate(&exec, graph, 0));
      for (int j = 0; j < 3; ++j) {
        gpu_fill(o.x, dtype, c.m, c.k, o.ldx, options->seed + 100 + (uint64_t)j, 1.0f, stream);
        gpu_poison(&o, stream);
        GPU(graph_launch(exec, stream));
        GPU(stream_synchronize(stream));
        judge(&o, row);
      }
      GPU(exec_destroy(exec));
      GPU(graph_destroy(graph));
    }
    tglu_glu_destroy(glu);
    tglu_context_destroy(context);
    GPU(stream_destroy(stream));
    gpu_operands_destroy(&o);
  }
}

void part_capture(const gpu_options *options) { gpu_each_row(options, capture_row); }

/* ---- two streams, and work queued before us ---- */

static void streams_of_row(const gpu_options *options, const char *row, int dtype) {
  enum { STREAMS = 2, ROUNDS = 4 };
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  gpu_stream streams[STREAMS];
  gpu_operands o[STREAMS];
  tglu_run_args a[STREAMS];
  tglu_glu *glu[STREAMS];
  size_t mark = gpu_arena_mark();
  bool ready = true;
  for (int i = 0; i < STREAMS; ++i) {
    gpu_case c = plain(300 + 500 * i, 1000, 520, dtype, options->seed + (uint64_t)i);
    GPU(stream_create(&streams[i], NON_BLOCKING));
    glu[i] = prepare(context, &c, &o[i], streams[i], &a[i]);
    ready = ready && glu[i] != NULL;
  }
  for (int round = 0; round < ROUNDS && ready; ++round) {
    for (int i = 0; i < STREAMS; ++i) {
      gpu_poison(&o[i], streams[i]);
      gpu_spin(5, 8, streams[i]);
      gpu_fill(o[i].x, dtype, o[i].c.m, o[i].c.k, o[i].ldx,
               options->seed + (uint64_t)(round * 10 + i), 1.0f, streams[i]);
      expect_run(glu[i], &a[i]);
    }
    GPU(synchronize());
    for (int i = 0; i < STREAMS; ++i) judge(&o[i], row);
  }
  for (int i = 0; i < STREAMS; ++i) {
    tglu_glu_destroy(glu[i]);
    GPU(stream_destroy(streams[i]));
  }
  gpu_arena_release(mark);
  tglu_context_destroy(context);
}

void part_streams(const gpu_options *options) { gpu_each_row(options, streams_of_row); }

/* ---- threads (H21, H16 b) ---- */

enum { THREADS = 16, THREAD_ROUNDS = 100 };
typedef struct worker {
  pthread_t thread;
  pthread_barrier_t *barrier;
  tglu_context *context; /* NULL: the thread makes its own */
  gpu_operands o;
  gpu_stream stream;
  int failures;
  char message[256];
} worker;

/* No driver call of this thread before ours. */
static void *work(void *argument) {
  worker *w = argument;
  tglu_glu_desc d;
  tglu_run_args a;
  gpu_operands_desc(&w->o, &d);
  gpu_operands_args(&w->o, w->stream, &a);
  pthread_barrier_wait(w->barrier);
  tglu_context *own = w->context == NULL ? gpu_context(NULL, 0, 1, 0) : NULL;
  tglu_context *context = own != NULL ? own : w->context;
  for (int i = 0; i < THREAD_ROUNDS && context != NULL; ++i) {
    tglu_glu *glu;
    if (tglu_glu_create(context, &d, &glu) != TGLU_OK || tglu_glu_run(glu, &a) != TGLU_OK) {
      ++w->failures;
      snprintf(w->message, sizeof w->message, "%s", tglu_last_error());
    }
    tglu_glu_destroy(glu);
  }
  if (context == NULL) ++w->failures;
  return own;
}

void part_threads(const gpu_options *options) {
  static worker workers[THREADS];
  for (int shared = 0; shared < 2; ++shared) {
    size_t mark = gpu_arena_mark();
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    tglu_context *context = shared ? gpu_context(options->row, 0, 1, 0) : NULL;
    for (int i = 0; i < THREADS; ++i) {
      workers[i] = (worker){.barrier = &barrier, .context = context};
      gpu_case c = plain(20 + 97 * i, 64 + 104 * i, 64 + 72 * i, DTYPE_BF16,
                         options->seed + (uint64_t)i);
      if (!gpu_operands_create(&c, &workers[i].o)) exit(2);
      GPU(stream_create(&workers[i].stream, NON_BLOCKING));
    }
    void *own[THREADS];
    for (int i = 0; i < THREADS; ++i)
      if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) exit(2);
    for (int i = 0; i < THREADS; ++i) pthread_join(workers[i].thread, &own[i]);
    GPU(synchronize());
    for (int i = 0; i < THREADS; ++i) {
      gpu_expect(workers[i].failures == 0, "thread %d: %d failures: %s", i,
                 workers[i].failures, workers[i].message);
      judge(&workers[i].o, shared ? "16 threads, one context" : "16 threads, 16 contexts");
      tglu_context_destroy(own[i]);
      GPU(stream_destroy(workers[i].stream));
    }
    tglu_context_destroy(context);
    pthread_barrier_destroy(&barrier);
    gpu_arena_release(mark);
  }
}

/* ---- contexts (H16) ---- */

void part_contexts(const gpu_options *options) {
  void *primary = NULL, *after = NULL;
  GPU(get_current(&primary));
  gpu_case c = plain(200, 264, 136, DTYPE_BF16, options->seed);
  for (int current = 0; current < 2; ++current) {
    tglu_context *first = gpu_context(options->row, 0, 1, 0);
    tglu_context *second = gpu_context(options->row, 0, 0, 1);
    if (first == NULL || second == NULL) return;
    gpu_operands o;
    tglu_run_args a;
    tglu_glu *glu = prepare(second, &c, &o, NULL, &a);
    tglu_context_destroy(first);
    tglu_context_destroy(second); /* stays alive by its object */
    void *before = current ? primary : NULL;
    GPU(set_current(before));
    if (glu != NULL) expect_run(glu, &a);
    GPU(get_current(&after));
    gpu_expect(after == before, "the current context changed from %p to %p", before, after);
    GPU(set_current(primary));
    GPU(synchronize());
    judge(&o, "two contexts");
    tglu_glu_destroy(glu);
    gpu_operands_destroy(&o);
  }
  size_t before = 0, now = 0, total;
  for (int i = 0; i < 60; ++i) {
    if (i == 10) GPU(memory_info(&before, &total));
    tglu_context *context = gpu_context(options->row, 0, 1, 0);
    gpu_run_case(context, &c);
    tglu_context_destroy(context);
  }
  GPU(memory_info(&now, &total));
  gpu_expect(now + (8u << 20) >= before, "50 contexts left %zu bytes behind", before - now);
  int devices = 0;
  GPU(device_count(&devices));
  if (devices < 2) {
    gpu_skip("operands on another device: this machine has one");
    return;
  }
  void *other;
  gpu_pointer far;
  GPU(retain(&other, gpu_device == 0));
  GPU(set_current(other));
  GPU(allocate(&far, 1 << 20));
  GPU(set_current(primary));
  tglu_context *context = gpu_context(options->row, 0, 1, 0);
  gpu_operands o;
  tglu_run_args a;
  tglu_glu *glu = prepare(context, &c, &o, NULL, &a);
  a.x = (const void *)(uintptr_t)far;
  GPU(set_current(other));
  gpu_expect(glu != NULL && tglu_glu_run(glu, &a) == TGLU_ERR_INVALID_ARGUMENT,
             "x on another device is not refused");
  gpu_operands_args(&o, NULL, &a);
  expect_run(glu, &a); /* the other device current, all operands on ours */
  GPU(get_current(&after));
  gpu_expect(after == other, "the current context changed");
  GPU(set_current(primary));
  GPU(synchronize());
  judge(&o, "another device current");
  tglu_glu_destroy(glu);
  gpu_operands_destroy(&o);
  tglu_context_destroy(context);
}

/* ---- SM limits (H30): the same bits for every count ---- */

static void expect_too_few_sms(const char *row, int limit) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CUDA;
  options.device = gpu_device;
  options.cuda_library = gpu_library;
  options.row = row;
  options.sm_limit = limit;
  tglu_context *context;
  gpu_expect(tglu_context_create(&options, &context) == TGLU_ERR_UNSUPPORTED,
             "%s: not refused with %d SMs", row, limit);
  tglu_context_destroy(context);
}

static void sms_of_row(const gpu_options *options, const char *row, int dtype) {
  static const int limits[] = {0, 1, 2, 3, 4, 77, 78, 114, 131};
  static const int64_t shapes[][3] = {{40, 64, 200}, {3000, 4864, 896}};
  int tile_m, tile_n, cluster = 1;
  gpu_row_tiles(row, &tile_m, &tile_n, &cluster);
  for (int i = 0; i < 2; ++i) {
    gpu_case c = plain(shapes[i][0], shapes[i][1], shapes[i][2], dtype, options->seed);
    c.row_step = c.m / 20;
    gpu_operands o;
    if (!gpu_operands_create(&c, &o)) continue;
    gpu_pointer first = row_serves(row, &o) ? gpu_take((size_t)(c.m * c.n) * 2) : 0;
    for (size_t j = 0; j < sizeof limits / sizeof limits[0] && first != 0; ++j) {
      if (limits[j] > 0 && limits[j] < cluster) {
        expect_too_few_sms(row, limits[j]);
        continue;
      }
      tglu_context *context = gpu_context(row, limits[j], 1, 0);
      if (context == NULL) continue;
      tglu_glu_desc d;
      tglu_run_args a;
      tglu_glu *glu = NULL;
      gpu_operands_desc(&o, &d);
      gpu_operands_args(&o, NULL, &a);
      gpu_poison(&o, NULL);
      if (j == 0) a.out = (void *)(uintptr_t)first;
      const int sms = limits[j] > 0 ? limits[j] : 132;
      bool created = gpu_require(tglu_glu_create(context, &d, &glu) == TGLU_OK, "create: %s",
                                 tglu_last_error());
      if (created && strstr(row, "_stream_") != NULL && (c.m + tile_m - 1) / tile_m > sms) {
        gpu_expect(tglu_glu_run(glu, &a) == TGLU_ERR_UNSUPPORTED,
                   "%s: more tiles of tokens than %d SMs, not refused", row, sms);
      } else if (created) {
        expect_run(glu, &a);
        if (j == 0) {
          a.out = (void *)(uintptr_t)o.out;
          expect_run(glu, &a);
        }
        GPU(synchronize());
        judge(&o, row);
        size_t mark = gpu_arena_mark();
        gpu_differences_begin();
        gpu_differences_add(o.out, first, c.m * c.n, NULL);
        unsigned long long different = gpu_differences_end();
        gpu_arena_release(mark);
        gpu_expect(different == 0, "%s: %llu elements differ with %d SMs", row, different,
                   limits[j]);
      }
      tglu_glu_destroy(glu);
      tglu_context_destroy(context);
    }
    gpu_operands_destroy(&o);
  }
}

void part_sms(const gpu_options *options) { gpu_each_row(options, sms_of_row); }

/* ---- programmatic launches: nothing is read before the kernel before us is done ---- */

static void pdl_of_row(const gpu_options *options, const char *row, int dtype) {
  enum { VERSIONS = 4, ROUNDS = 200 };
  for (int i = 0; i < 4; ++i) {
    const int stable = i % 2, tokens = i / 2 ? 64 : 384; /* one row of tiles, and several */
    tglu_context *context = gpu_context(row, 0, 1, stable);
    if (context == NULL) return;
    gpu_case c = plain(tokens, 512, 512, dtype, options->seed);
    gpu_operands o;
    tglu_run_args a, next;
    gpu_stream stream;
    size_t mark = gpu_arena_mark();
    GPU(stream_create(&stream, NON_BLOCKING));
    tglu_glu *glu = prepare(context, &c, &o, stream, &a);
    gpu_pointer want[VERSIONS], second = gpu_take((size_t)(c.m * c.n) * 2);
    next = a; /* the second call reads what the first wrote */
    next.x = a.out;
    next.out = (void *)(uintptr_t)second;
    next.ldx = next.ldo = c.n;
    for (int v = 0; v < VERSIONS; ++v) want[v] = gpu_take((size_t)(c.m * c.n) * 2);
    if (glu != NULL && want[VERSIONS - 1] != 0) {
      gpu_differences_begin();
      for (int round = 0; round < VERSIONS + ROUNDS; ++round) {
        int v = round % VERSIONS;
        gpu_poison(&o, stream);
        if (!stable)
          gpu_fill(o.gate, dtype, c.n, c.k, o.ldw, 1000 + (uint64_t)v, 0.06f, stream);
        gpu_fill(o.x, dtype, c.m, c.k, o.ldx, 2000 + (uint64_t)v, 1.0f, stream);
        bool reference = round < VERSIONS; /* one at a time, nothing to overlap with */
        if (reference) GPU(synchronize());
        expect_run(glu, &a);
        if (reference) GPU(synchronize());
        if (reference) next.out = (void *)(uintptr_t)want[v];
        expect_run(glu, &next);
        if (reference) GPU(synchronize());
        next.out = (void *)(uintptr_t)second;
        if (!reference) gpu_differences_add(second, want[v], c.m * c.n, stream);
      }
      unsigned long long different = gpu_differences_end();
      gpu_expect(different == 0, "%s: %llu elements of %d tokens differ behind a kernel%s", row,
                 different, tokens, stable ? ", stable weights" : "");
    }
    tglu_glu_destroy(glu);
    GPU(stream_destroy(stream));
    gpu_arena_release(mark);
    tglu_context_destroy(context);
  }
}

void part_pdl(const gpu_options *options) { gpu_each_row(options, pdl_of_row); }

/* ---- beside a kernel that holds half the SMs ---- */

static void beside_row(const gpu_options *options, const char *row, int dtype) {
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  tglu_context_info info;
  tglu_context_info_init(&info);
  tglu_context_get_info(context, &info);
  gpu_case c = plain(1000, 4864, 896, dtype, options->seed);
  c.row_step = 50;
  gpu_operands o;
  tglu_run_args a;
  gpu_stream stream, other;
  GPU(stream_create(&stream, NON_BLOCKING));
  GPU(stream_create(&other, NON_BLOCKING));
  tglu_glu *glu = prepare(context, &c, &o, stream, &a);
  for (int i = 0; i < 3 && glu != NULL; ++i) {
    gpu_poison(&o, stream);
    /* One block an SM; beside it there are not enough registers for one of ours. */
    gpu_spin(20, (unsigned)info.sm_count / 2, other);
    expect_run(glu, &a);
    GPU(synchronize());
    judge(&o, row);
  }
  tglu_glu_destroy(glu);
  gpu_operands_destroy(&o);
  GPU(stream_destroy(stream));
  GPU(stream_destroy(other));
  tglu_context_destroy(context);
}

void part_beside(const gpu_options *options) { gpu_each_row(options, beside_row); }

/* ---- host time ---- */

static int ascending(const void *a, const void *b) {
  double difference = *(const double *)a - *(const double *)b;
  return (difference > 0) - (difference < 0);
}

/* Median host time of a call in nanoseconds, over batches too short to fill the
 * stream's queue; empty or ours. */
static double host_ns(const tglu_glu *glu, const tglu_run_args *a, gpu_stream stream) {
  enum { BATCHES = 31, CALLS = 200 };
  double ns[BATCHES];
  for (int i = 0; i < BATCHES; ++i) {
    GPU(stream_synchronize(stream));
    double start = gpu_now();
    for (int j = 0; j < CALLS; ++j) {
      if (glu == NULL) {
        gpu_launch_empty(stream);
      } else if (tglu_glu_run(glu, a) != TGLU_OK) {
        return -1;
      }
    }
    ns[i] = (gpu_now() - start) / CALLS * 1e9;
  }
  GPU(stream_synchronize(stream));
  qsort(ns, BATCHES, sizeof ns[0], ascending);
  return ns[BATCHES / 2];
}

void part_host(const gpu_options *options) {
  gpu_case c = plain(64, 192, 64, DTYPE_BF16, options->seed);
  gpu_operands o;
  tglu_run_args a;
  gpu_stream stream;
  if (!gpu_operands_create(&c, &o)) return;
  gpu_operands_destroy(&o);
  GPU(stream_create(&stream, NON_BLOCKING));
  double start = gpu_now();
  tglu_context *context = gpu_context(options->row, 0, 1, 0);
  if (context == NULL) return;
  tglu_glu *glu = prepare(context, &c, &o, stream, &a);
  expect_run(glu, &a);
  GPU(stream_synchronize(stream));
  double first_ms = (gpu_now() - start) * 1e3;
  judge(&o, "first result");
  double empty = host_ns(NULL, NULL, stream), ours = host_ns(glu, &a, stream);
  double empty_again = host_ns(NULL, NULL, stream);
  printf("  context to first result %.1f ms; host time of run %.0f ns, of an empty launch "
         "%.0f and %.0f ns\n", first_ms, ours, empty, empty_again);
  gpu_expect(first_ms < 150, "context to first result takes %.1f ms, 150 are allowed",
             first_ms);
  gpu_expect(ours >= 0 && ours < (empty > empty_again ? empty : empty_again) + 1000,
             "run takes %.0f ns on the host, an empty launch %.0f: 1000 more are allowed", ours,
             empty);
  tglu_glu_destroy(glu);
  gpu_operands_destroy(&o);
  GPU(stream_destroy(stream));
  tglu_context_destroy(context);
}

/* Runs one planted bug, named by --row: nothing here fails, compute-sanitizer must. */
void part_planted(const gpu_options *options) {
  static const struct {
    const char *name;
    gpu_kernel kernel;
  } bugs[] = {{"memcheck", REF_PLANTED_WRITE}, {"initcheck", REF_PLANTED_READ},
              {"racecheck", REF_PLANTED_RACE}, {"synccheck", REF_PLANTED_SYNC}};
  enum { COUNT = 4096 };
  for (size_t i = 0; i < sizeof bugs / sizeof bugs[0]; ++i) {
    if (options->row == NULL || strcmp(options->row, bugs[i].name) != 0) continue;
    size_t mark = gpu_arena_mark();
    gpu_pointer data = gpu_take(COUNT * 2);
    if (!gpu_require(data != 0, "no room")) return;
    int64_t count = COUNT;
    void *parameters[] = {&data, &count};
    gpu_launch(bugs[i].kernel, 1, NULL, parameters);
    gpu.synchronize(); /* the tool may have ended the kernel */
    gpu_expect(true, "planted");
    gpu_arena_release(mark);
    return;
  }
  gpu_expect(false, "planted: --row memcheck, initcheck, racecheck or synccheck");
}
