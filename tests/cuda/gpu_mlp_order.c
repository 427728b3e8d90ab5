/* When and where down projections and MLPs run: repeats, SM limits, a neighbour on half the
 * SMs, graphs, streams, one workspace, programmatic launches, a token among others. */
#include <stdio.h>
#include <string.h>

#include "gpu_mlp.h"
#include "gpu_parts.h"

enum { NON_BLOCKING = 1, KERNEL_NODE = 0 };

static void *address(gpu_pointer p) { return (void *)(uintptr_t)p; }

static void expect_run(const gpu_object *object, const tglu_run_args *a) {
  gpu_require(gpu_object_run(object, a) == TGLU_OK, "run: %s", tglu_last_error());
}

/* Elements of out, its stride included: what two runs are compared in. */
static int64_t out_elements(const gpu_mlp_operands *o) {
  return (o->c.glu.m - 1) * o->ldo + o->c.glu.k;
}

/* Runs it and keeps the bits in a new buffer of the arena; 0: no room. */
static gpu_pointer first_result(const gpu_object *object, const gpu_mlp_operands *o) {
  tglu_run_args a;
  gpu_mlp_args(o, NULL, &a);
  gpu_pointer first = gpu_take((size_t)out_elements(o) * 2);
  if (first == 0) return 0;
  gpu_mlp_poison(o, NULL);
  if (o->c.residual == 2) { /* in place there, too */
    gpu_fill(first, o->c.glu.dtype, o->c.glu.m, o->c.glu.k, o->ldo, o->c.glu.seed + 12, 1.0f,
             NULL);
    a.residual = address(first);
  }
  a.out = address(first);
  expect_run(object, &a);
  GPU(synchronize());
  return first;
}

/* `times` runs with the same bits as `first`, then right values. */
static void expect_repeats(const gpu_object *object, const gpu_mlp_operands *o,
                           gpu_pointer first, int times, const char *row) {
  tglu_run_args a;
  gpu_mlp_args(o, NULL, &a);
  size_t mark = gpu_arena_mark();
  gpu_differences_begin();
  for (int i = 0; i < times; ++i) {
    gpu_mlp_poison(o, NULL);
    expect_run(object, &a);
    gpu_differences_add(o->out, first, out_elements(o), NULL);
  }
  unsigned long long different = gpu_differences_end();
  gpu_expect(different == 0, "%s: %llu elements changed in %d repeats", row, different, times);
  gpu_mlp_judge(o, row);
  gpu_arena_release(mark);
}

/* ---- each down row ---- */

/* 50 repeats, and the same bits for any number of SMs: linears or MLPs of three shapes, with no
 * residual, one of its own and `out` itself. */
static void repeats_and_limits(const gpu_options *options, const char *row, int dtype,
                               bool linear, const int64_t shapes[3][3]) {
  static const int limits[] = {0, 1, 2, 3, 8, 77, 131};
  int tile_m, tile_n, cluster = 1;
  gpu_row_tiles(row, &tile_m, &tile_n, &cluster);
  for (int i = 0; i < 3; ++i) {
    gpu_mlp_case c =
      gpu_mlp_plain(linear, shapes[i][0], shapes[i][1], shapes[i][2], dtype, options->seed);
    c.residual = i;
    gpu_mlp_operands o;
    if (!gpu_mlp_operands_create(&c, &o)) continue;
    gpu_pointer first = 0;
    for (size_t j = 0; j < sizeof limits / sizeof limits[0]; ++j) {
      if (limits[j] > 0 && limits[j] < cluster) continue;
      tglu_context *context = gpu_context(row, limits[j], 1, 0);
      gpu_object object;
      if (context != NULL && gpu_object_prepare(context, &o, &object)) {
        if (first == 0) first = first_result(&object, &o);
        if (first != 0) expect_repeats(&object, &o, first, j == 0 ? 50 : 1, row);
        gpu_object_destroy(&object);
      }
      tglu_context_destroy(context);
    }
    gpu_mlp_operands_destroy(&o);
  }
}

/* One block an SM on half of them; beside it there are not enough registers for ours. */
static void beside_row(const gpu_options *options, const char *row, int dtype, bool linear,
                       int64_t tokens) {
  const char *name = row != NULL ? row : "the planner's row";
  tglu_context *context = gpu_context(row, 0, 1, 0);
  if (context == NULL) return;
  tglu_context_info info;
  tglu_context_info_init(&info);
  tglu_context_get_info(context, &info);
  gpu_mlp_case c = gpu_mlp_plain(linear, tokens, 4864, 896, dtype, options->seed);
  gpu_mlp_operands o;
  gpu_object object;
  gpu_stream stream, other;
  tglu_run_args a;
  GPU(stream_create(&stream, NON_BLOCKING));
  GPU(stream_create(&other, NON_BLOCKING));
  if (gpu_mlp_operands_create(&c, &o)) {
    if (gpu_object_prepare(context, &o, &object)) {
      gpu_mlp_args(&o, stream, &a);
      for (int i = 0; i < 3; ++i) {
        gpu_mlp_poison(&o, stream);
        GPU(stream_synchronize(stream));
        gpu_spin(10, (unsigned)info.sm_count / 2, other);
        expect_run(&object, &a);
        GPU(synchronize());
        gpu_mlp_judge(&o, name);
      }
      gpu_object_destroy(&object);
    }
    gpu_mlp_operands_destroy(&o);
  }
  GPU(stream_destroy(stream));
  GPU(stream_destroy(other));
  tglu_context_destroy(context);
}

/* MLPs in a chain, x and weights written by kernels right before; the second reads what the
 * first wrote, and both use one workspace. */
static void pdl_row(const gpu_options *options, const char *row, int dtype, int64_t tokens) {
  enum { VERSIONS = 4, ROUNDS = 100 };
  for (int stable = 0; stable < 2; ++stable) {
    tglu_context *context = gpu_context(row, 0, 1, stable);
    if (context == NULL) return;
    gpu_mlp_case c = gpu_mlp_plain(false, tokens, 1024, 512, dtype, options->seed);
    gpu_mlp_operands o;
    gpu_object object;
    gpu_stream stream;
    tglu_run_args a, next;
    GPU(stream_create(&stream, NON_BLOCKING));
    if (gpu_mlp_operands_create(&c, &o)) {
      gpu_pointer want[VERSIONS], second = gpu_take((size_t)(c.glu.m * c.glu.k) * 2);
      for (int v = 0; v < VERSIONS; ++v) want[v] = gpu_take((size_t)(c.glu.m * c.glu.k) * 2);
      if (gpu_object_prepare(context, &o, &object)) {
        gpu_mlp_args(&o, stream, &a);
        next = a;
        next.x = a.out;
        next.ldx = a.ldo;
        gpu_differences_begin();
        for (int i = 0; i < VERSIONS + ROUNDS && want[VERSIONS - 1] != 0; ++i) {
          int v = i % VERSIONS;
          bool reference = i < VERSIONS; /* one at a time, nothing to overlap with */
          gpu_mlp_poison(&o, stream);
          if (!stable) {
            gpu_fill(o.glu.up, dtype, c.glu.n, c.glu.k, o.glu.ldw, 3000 + (uint64_t)v, 0.06f,
                     stream);
            gpu_fill(o.down, dtype, c.glu.k, c.glu.n, o.ldd, 1000 + (uint64_t)v, 0.06f, stream);
          }
          gpu_fill(o.glu.x, dtype, c.glu.m, c.glu.k, o.glu.ldx, 2000 + (uint64_t)v, 1.0f,
                   stream);
          if (reference) GPU(synchronize());
          expect_run(&object, &a);
          if (reference) GPU(synchronize());
          next.out = address(reference ? want[v] : second);
          expect_run(&object, &next);
          if (reference) GPU(synchronize());
          if (!reference) gpu_differences_add(second, want[v], c.glu.m * c.glu.k, stream);
        }
        unsigned long long different = gpu_differences_end();
        gpu_expect(different == 0, "%s: %llu elements differ behind a kernel%s",
                   row != NULL ? row : "the planner's rows", different,
                   stable ? ", stable weights" : "");
        gpu_object_destroy(&object);
      }
      gpu_mlp_operands_destroy(&o);
    }
    GPU(stream_destroy(stream));
    tglu_context_destroy(context);
  }
}

static void order_of_down_row(const gpu_options *options, const char *row, int dtype) {
  static const int64_t shapes[3][3] = {{17, 1000, 264}, {300, 2000, 1024}, {64, 4864, 896}};
  repeats_and_limits(options, row, dtype, true, shapes);
  beside_row(options, row, dtype, true, 40);
  pdl_row(options, row, dtype, 40);
}

void part_down_order(const gpu_options *options) {
  gpu_each_down_row(options, order_of_down_row);
}

/* ---- whole MLPs ---- */

/* Which: a row and its type, or NULL and 0 for the planner's and both; and the most tokens. */
typedef struct subject {
  const char *row;
  int dtype;
  int64_t most;
} subject;

static int dtype_of(const subject *s, int i) { return s->dtype != 0 ? s->dtype : 1 + i % 2; }

static int64_t at_most(const subject *s, int64_t tokens) {
  return tokens < s->most ? tokens : s->most;
}

static void mlp_repeats(const gpu_options *options, const subject *s) {
  static const int64_t tokens[] = {1, 5, 33, 300};
  tglu_context *context = gpu_context(s->row, 0, 1, 0);
  for (int i = 0; i < 4 && context != NULL; ++i) {
    gpu_mlp_case c = gpu_mlp_plain(false, at_most(s, tokens[i]), i % 2 ? 4864 : 1000, 896,
                                   dtype_of(s, i), options->seed + (uint64_t)i);
    c.residual = i % 3;
    gpu_mlp_operands o;
    gpu_object object;
    if (!gpu_mlp_operands_create(&c, &o)) continue;
    if (gpu_object_prepare(context, &o, &object)) {
      gpu_pointer first = first_result(&object, &o);
      if (first != 0) expect_repeats(&object, &o, first, 50, "mlp");
      gpu_object_destroy(&object);
    }
    gpu_mlp_operands_destroy(&o);
  }
  tglu_context_destroy(context);
}

/* Kernels that a call launches. */
static size_t launches_of(const gpu_object *object, int64_t tokens) {
  tglu_plan_info info;
  tglu_plan_info_init(&info);
  gpu_require(tglu_mlp_get_plan(object->mlp, tokens, &info) == TGLU_OK, "plan: %s",
              tglu_last_error());
  return info.down_row != NULL ? 2 : 1;
}

/* Context, object and first call inside a capture; its nodes are the kernels. */
static void mlp_capture(const gpu_options *options, const subject *s) {
  for (int i = 0; i < 4; ++i) {
    gpu_mlp_case c = gpu_mlp_plain(false, at_most(s, i < 2 ? 4 : 300), 520, 264,
                                   dtype_of(s, i), options->seed);
    gpu_mlp_operands o;
    gpu_object object = {NULL, NULL};
    gpu_stream stream;
    gpu_graph graph = NULL;
    gpu_exec exec;
    tglu_run_args a;
    if (!gpu_mlp_operands_create(&c, &o)) continue;
    GPU(stream_create(&stream, NON_BLOCKING));
    gpu_mlp_args(&o, stream, &a);
    GPU(begin_capture(stream, 0));
    tglu_context *context = gpu_context(s->row, 0, i % 2, 0);
    bool ok = context != NULL &&
              gpu_require(gpu_object_create(context, &o, &object) == TGLU_OK &&
                          gpu_object_run(&object, &a) == TGLU_OK, "within a capture: %s",
                          tglu_last_error());
    int ended = gpu.end_capture(stream, &graph);
    if (gpu_expect(ok && ended == 0 && graph != NULL, "mlp: the capture ended with %d", ended)) {
      gpu_node nodes[8];
      size_t count = 8;
      bool kernels = true;
      GPU(graph_nodes(graph, nodes, &count));
      for (size_t j = 0; j < count; ++j) {
        int type = -1;
        GPU(node_type(nodes[j], &type));
        kernels = kernels && type == KERNEL_NODE;
      }
      const size_t wanted = launches_of(&object, c.glu.m);
      gpu_expect(count == wanted && kernels, "mlp: %zu nodes in the graph, not %zu kernels",
                 count, wanted);
      GPU(instantiate(&exec, graph, 0));
      for (int j = 0; j < 3; ++j) {
        gpu_fill(o.glu.x, c.glu.dtype, c.glu.m, c.glu.k, o.glu.ldx,
                 options->seed + 100 + (uint64_t)j, 1.0f, stream);
        gpu_mlp_poison(&o, stream);
        GPU(graph_launch(exec, stream));
        GPU(stream_synchronize(stream));
        gpu_mlp_judge(&o, "a replayed mlp");
      }
      GPU(exec_destroy(exec));
      GPU(graph_destroy(graph));
    }
    gpu_object_destroy(&object);
    tglu_context_destroy(context);
    GPU(stream_destroy(stream));
    gpu_mlp_operands_destroy(&o);
  }
}

typedef struct shared_run {
  gpu_mlp_operands o;
  gpu_object object;
  gpu_pointer first;
  gpu_exec exec;
  gpu_graph graph;
} shared_run;

static bool begin_shared(tglu_context *context, const subject *s, shared_run *r, int i,
                         uint64_t seed, gpu_stream stream, const gpu_mlp_operands *owner) {
  gpu_mlp_case c = gpu_mlp_plain(false, at_most(s, i == 0 ? 4 : 23), i == 0 ? 1024 : 520, 264,
                                 dtype_of(s, 0), seed + (uint64_t)i);
  tglu_run_args a;
  if (!gpu_mlp_operands_create(&c, &r->o)) return false;
  if (!gpu_object_prepare(context, &r->o, &r->object)) return false;
  r->first = first_result(&r->object, &r->o);
  gpu_mlp_args(&r->o, stream, &a);
  a.workspace = address(owner->workspace);
  a.workspace_bytes = owner->workspace_bytes;
  GPU(begin_capture(stream, 0));
  expect_run(&r->object, &a);
  GPU(end_capture(stream, &r->graph));
  GPU(instantiate(&r->exec, r->graph, 0));
  return r->first != 0;
}

/* Graphs of two objects over one workspace, replayed one after the other without a wait. */
static void mlp_one_workspace(const gpu_options *options, const subject *s) {
  enum { ROUNDS = 200 };
  tglu_context *context = gpu_context(s->row, 0, 1, 0);
  if (context == NULL) return;
  size_t mark = gpu_arena_mark();
  gpu_stream stream;
  shared_run runs[2] = {{.exec = NULL}, {.exec = NULL}};
  gpu_mlp_operands owner;
  gpu_mlp_case large = gpu_mlp_plain(false, 64, 1024, 64, DTYPE_BF16, options->seed);
  GPU(stream_create(&stream, NON_BLOCKING));
  bool ready = gpu_mlp_operands_create(&large, &owner);
  for (int i = 0; i < 2 && ready; ++i)
    ready = begin_shared(context, s, &runs[i], i, options->seed + 40, stream, &owner);
  if (gpu_require(ready, "one workspace: nothing ran")) {
    gpu_differences_begin();
    for (int i = 0; i < ROUNDS; ++i) {
      for (int j = 0; j < 2; ++j) gpu_mlp_poison(&runs[j].o, stream);
      for (int j = 0; j < 2; ++j) GPU(graph_launch(runs[(i + j) % 2].exec, stream));
      for (int j = 0; j < 2; ++j)
        gpu_differences_add(runs[j].o.out, runs[j].first, out_elements(&runs[j].o), stream);
    }
    unsigned long long different = gpu_differences_end();
    gpu_expect(different == 0, "one workspace: %llu elements mixed up", different);
  }
  for (int i = 0; i < 2; ++i) {
    if (runs[i].exec != NULL) {
      GPU(exec_destroy(runs[i].exec));
      GPU(graph_destroy(runs[i].graph));
    }
    gpu_object_destroy(&runs[i].object);
  }
  GPU(stream_destroy(stream));
  gpu_arena_release(mark);
  tglu_context_destroy(context);
}

/* Two streams at once behind delayed work, a workspace each. */
static void mlp_streams(const gpu_options *options, const subject *s) {
  enum { STREAMS = 2, ROUNDS = 4 };
  tglu_context *context = gpu_context(s->row, 0, 1, 0);
  if (context == NULL) return;
  size_t mark = gpu_arena_mark();
  gpu_stream streams[STREAMS];
  gpu_mlp_operands o[STREAMS];
  gpu_object objects[STREAMS] = {{NULL, NULL}, {NULL, NULL}};
  tglu_run_args a[STREAMS];
  bool ready = true;
  for (int i = 0; i < STREAMS; ++i) {
    gpu_mlp_case c = gpu_mlp_plain(false, at_most(s, 3 + 60 * i), 2000, 520, dtype_of(s, 0),
                                   options->seed + (uint64_t)i);
    GPU(stream_create(&streams[i], NON_BLOCKING));
    ready = ready && gpu_mlp_operands_create(&c, &o[i]) &&
            gpu_object_prepare(context, &o[i], &objects[i]);
    if (ready) gpu_mlp_args(&o[i], streams[i], &a[i]);
  }
  for (int round = 0; round < ROUNDS && ready; ++round) {
    for (int i = 0; i < STREAMS; ++i) {
      const gpu_case *g = &o[i].c.glu;
      gpu_mlp_poison(&o[i], streams[i]);
      gpu_spin(5, 8, streams[i]);
      gpu_fill(o[i].glu.x, g->dtype, g->m, g->k, o[i].glu.ldx,
               options->seed + (uint64_t)(round * 10 + i), 1.0f, streams[i]);
      expect_run(&objects[i], &a[i]);
    }
    GPU(synchronize());
    for (int i = 0; i < STREAMS; ++i) gpu_mlp_judge(&o[i], "two streams");
  }
  for (int i = 0; i < STREAMS; ++i) {
    gpu_object_destroy(&objects[i]);
    GPU(stream_destroy(streams[i]));
  }
  gpu_arena_release(mark);
  tglu_context_destroy(context);
}

static void order_of_mlp(const gpu_options *options, const subject *s) {
  mlp_repeats(options, s);
  mlp_capture(options, s);
  mlp_one_workspace(options, s);
  mlp_streams(options, s);
}

void part_mlp_order(const gpu_options *options) {
  const bool one_launch = options->row != NULL && strncmp(options->row, "mlp_", 4) == 0;
  const subject s = {.row = options->row, .most = one_launch ? 8 : 300};
  order_of_mlp(options, &s);
  if (options->row != NULL) return;
  for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; ++dtype) {
    pdl_row(options, NULL, dtype, 4);
    pdl_row(options, NULL, dtype, 40);
  }
  beside_row(options, NULL, DTYPE_BF16, true, 40);
  beside_row(options, NULL, DTYPE_BF16, false, 4);
}

/* ---- each row of op mlp ---- */

static void order_of_one_launch(const gpu_options *options, const char *row, int dtype) {
  const subject s = {.row = row, .dtype = dtype, .most = 8};
  static const int64_t shapes[3][3] = {{8, 1000, 264}, {3, 264, 1000}, {1, 4864, 896}};
  repeats_and_limits(options, row, dtype, false, shapes);
  order_of_mlp(options, &s);
  beside_row(options, row, dtype, false, 4);
  pdl_row(options, row, dtype, 1);
  pdl_row(options, row, dtype, 8);
}

void part_one_order(const gpu_options *options) {
  gpu_each_mlp_row(options, order_of_one_launch);
}

/* ---- batch_invariant (H32) ---- */

enum { MOST_HIDDEN = 3584 };

/* One token, always the same, as row `place` of m random ones; its result must be `want`, bit
 * for bit, or is kept there. */
static void expect_token(const gpu_object *object, const gpu_mlp_operands *o, int64_t m,
                         int64_t place, gpu_pointer want, bool keep) {
  const int dtype = o->c.glu.dtype;
  const int64_t k = o->c.glu.k;
  tglu_run_args a;
  gpu_mlp_args(o, NULL, &a);
  a.tokens = m;
  gpu_mlp_poison(o, NULL);
  gpu_fill(o->glu.x, dtype, m, k, o->glu.ldx, 500 + (uint64_t)(m * 7 + place), 1.0f, NULL);
  gpu_fill(o->glu.x + 2 * (uint64_t)(place * o->glu.ldx), dtype, 1, k, k, 77, 1.0f, NULL);
  expect_run(object, &a);
  gpu_pointer result = o->out + 2 * (uint64_t)(place * o->ldo);
  if (keep) {
    static uint16_t bits[MOST_HIDDEN];
    GPU(synchronize());
    GPU(to_host(bits, result, (size_t)k * 2));
    GPU(to_device(want, bits, (size_t)k * 2));
  } else {
    gpu_differences_add(result, want, k, NULL);
  }
}

static tglu_context *invariant_context(void) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CUDA;
  options.device = gpu_device;
  options.cuda_library = gpu_library;
  options.batch_invariant = 1;
  tglu_context *context = NULL;
  gpu_require(tglu_context_create(&options, &context) == TGLU_OK, "context: %s",
              tglu_last_error());
  return context;
}

/* One token among any others, first, in the middle, last; and 100 times the same. */
static void token_among_others(tglu_context *context, const gpu_mlp_case *c) {
  static const int64_t tokens[] = {1, 2, 17, 33, 128, 257, 1024};
  gpu_mlp_operands o;
  gpu_object object;
  if (!gpu_mlp_operands_create(c, &o)) {
    gpu_skip("no room on the device");
    return;
  }
  gpu_pointer want = gpu_take((size_t)c->glu.k * 2);
  if (gpu_require(want != 0, "no room for the bits of a token") &&
      gpu_object_prepare(context, &o, &object)) {
    gpu_differences_begin();
    expect_token(&object, &o, 1, 0, want, true);
    for (int i = 0; i < 7; ++i) {
      const int64_t places[] = {0, tokens[i] / 2, tokens[i] - 1};
      for (int j = 0; j < 3; ++j)
        expect_token(&object, &o, tokens[i], places[j], want, false);
    }
    for (int i = 0; i < 100; ++i) expect_token(&object, &o, 17, 5, want, false);
    unsigned long long different = gpu_differences_end();
    gpu_expect(different == 0, "%s, %lld x %lld: a token's bits changed in %llu elements",
               tglu_dtype_name((tglu_dtype)c->glu.dtype), (long long)c->glu.n,
               (long long)c->glu.k, different);
    gpu_object_destroy(&object);
  }
  gpu_mlp_operands_destroy(&o);
}

/* The second shape's down projection has its K split over a cluster. */
void part_invariant(const gpu_options *options) {
  static const int64_t shapes[][2] = {{2048, 2048}, {18944, MOST_HIDDEN}};
  tglu_context *context = invariant_context();
  for (int i = 0; i < 4 && context != NULL; ++i) {
    const int64_t *shape = shapes[i / 2];
    const gpu_mlp_case c = gpu_mlp_plain(false, 1024, shape[0], shape[1],
                                         i % 2 ? DTYPE_F16 : DTYPE_BF16, options->seed);
    token_among_others(context, &c);
  }
  tglu_context_destroy(context);
}
