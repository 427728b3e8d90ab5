#include "gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/rows.h"

gpu_driver gpu;
gpu_totals gpu_total;
const char *gpu_library;
int gpu_device;

extern const unsigned char gpu_reference_cubin[]; /* generated from reference.cu */

static void *kernels[REF_KERNELS];
static int sm_count, clock_khz;
static gpu_pointer arena;
static size_t arena_bytes, arena_used;
static gpu_pointer result_buffer;

/* ---- driver ---- */

void gpu_check(int result, const char *what) {
  if (result == 0) return;
  const char *name = "?";
  gpu.error_name(result, &name);
  printf("%s: %s (%d)\n%lld passed, %lld failed, %lld skipped (ended by a lost device)\n",
         what, name, result, gpu_total.passed, gpu_total.failed + 1, gpu_total.skipped);
  fflush(stdout);
  _Exit(1);
}

static bool load_driver(const char *file) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("skipped: %s\n", dlerror());
    return false;
  }
  static const char *const names[] = {
#define NAME(field, name, arguments) name,
    GPU_MAP(NAME)
#undef NAME
  };
  void **fields = (void **)(void *)&gpu;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    fields[i] = dlsym(library, names[i]);
    if (fields[i] == NULL) {
      printf("skipped: %s has no %s\n", file, names[i]);
      return false;
    }
  }
  return true;
}

bool gpu_open(const char *library, int device) {
  static const char *const names[REF_KERNELS] = {"ref_pattern", "ref_fill", "ref_sentinels",
                                                 "ref_differences", "ref_spin", "ref_judge",
                                                 "ref_judge_linear", "ref_empty", "planted_write",
                                                 "planted_read", "planted_race",
                                                 "planted_sync"};
  gpu_library = library;
  gpu_device = device;
  if (!load_driver(library != NULL ? library : "libcuda.so.1")) return false;
  int count = 0, major = 0;
  if (gpu.init(0) != 0 || gpu.device_count(&count) != 0 || count <= device) {
    printf("skipped: no CUDA device %d\n", device);
    return false;
  }
  GPU(device_attribute(&major, 75, device));
  if (major != 9) {
    printf("skipped: device %d is no Hopper GPU\n", device);
    return false;
  }
  GPU(device_attribute(&sm_count, 16, device));
  GPU(device_attribute(&clock_khz, 13, device));
  void *context, *module;
  GPU(retain(&context, device));
  GPU(set_current(context));
  GPU(module_load(&module, gpu_reference_cubin));
  for (int i = 0; i < REF_KERNELS; ++i) GPU(module_function(&kernels[i], module, names[i]));
  GPU(allocate(&result_buffer, sizeof(ref_result)));
  return true;
}

void gpu_launch(gpu_kernel kernel, unsigned blocks, gpu_stream stream, void **parameters) {
  GPU(launch(kernels[kernel], blocks, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
}

void gpu_launch_empty(gpu_stream stream) {
  static ref_parameters record;
  tglu__CUlaunchAttribute attributes[2] = {
    {.id = TGLU__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION},
    {.id = TGLU__CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION}};
  attributes[0].value.clusterDim.x = 2;
  attributes[0].value.clusterDim.y = attributes[0].value.clusterDim.z = 1;
  attributes[1].value.programmaticStreamSerializationAllowed = 1;
  tglu__CUlaunchConfig config = {.gridDimX = 2, .gridDimY = 1, .gridDimZ = 1,
                                 .blockDimX = 384, .blockDimY = 1, .blockDimZ = 1,
                                 .hStream = (tglu__CUstream)(void *)stream,
                                 .attrs = attributes, .numAttrs = 2};
  void *parameters[] = {&record};
  GPU(launch_ex(&config, kernels[REF_EMPTY], parameters, NULL));
}

unsigned gpu_blocks(int64_t items) {
  int64_t blocks = (items + 255) / 256, most = (int64_t)sm_count * 16;
  return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

void gpu_pattern(gpu_pointer data, int64_t count, gpu_stream stream) {
  void *parameters[] = {&data, &count};
  gpu_launch(REF_PATTERN, gpu_blocks(count), stream, parameters);
}

void gpu_fill(gpu_pointer data, int dtype, int64_t rows, int64_t columns, int64_t ld,
              uint64_t seed, float scale, gpu_stream stream) {
  void *parameters[] = {&data, &dtype, &rows, &columns, &ld, &seed, &scale};
  gpu_launch(REF_FILL, gpu_blocks(rows * columns), stream, parameters);
}

void gpu_spin(double milliseconds, unsigned blocks, gpu_stream stream) {
  int64_t cycles = (int64_t)(milliseconds * clock_khz);
  void *parameters[] = {&cycles};
  gpu_launch(REF_SPIN, blocks, stream, parameters);
}

/* ---- memory ---- */

enum { MOST_PIECES = 256 };
bool gpu_separate;
static gpu_pointer pieces[MOST_PIECES]; /* separate: the mark is their number */
static size_t piece_count;

bool gpu_arena_create(size_t most_bytes) {
  size_t available = 0, total = 0;
  GPU(memory_info(&available, &total));
  arena_bytes = available - available / 8;
  if (arena_bytes > most_bytes) arena_bytes = most_bytes;
  return gpu_separate || gpu.allocate(&arena, arena_bytes) == 0;
}

size_t gpu_arena_free(void) { return arena_bytes - arena_used; }
size_t gpu_arena_mark(void) { return gpu_separate ? piece_count : arena_used; }

void gpu_arena_release(size_t mark) {
  if (!gpu_separate) {
    arena_used = mark;
    return;
  }
  while (piece_count > mark) GPU(release(pieces[--piece_count]));
}

gpu_pointer gpu_take(size_t bytes) {
  if (gpu_separate) {
    if (piece_count == MOST_PIECES || gpu.allocate(&pieces[piece_count], bytes) != 0) return 0;
    return pieces[piece_count++];
  }
  bytes = (bytes + 255) / 256 * 256;
  if (bytes > arena_bytes - arena_used) return 0;
  gpu_pointer pointer = arena + arena_used;
  arena_used += bytes;
  return pointer;
}

/* ---- operands ---- */

/* Elements of pattern before and after a buffer; none where memcheck stands guard. */
static int64_t guard(void) { return gpu_separate ? 0 : 2048; }

gpu_pointer gpu_matrix(int dtype, int64_t rows, int64_t columns, int64_t ld, int64_t offset,
                       uint64_t seed, float scale, gpu_pointer *buffer, int64_t *elements) {
  int64_t count = guard() + offset + rows * ld + guard();
  gpu_pointer base = gpu_take((size_t)count * 2);
  if (base == 0) return 0;
  gpu_pointer data = base + 2 * (uint64_t)(guard() + offset);
  gpu_pattern(base, count, NULL);
  if (scale > 0) gpu_fill(data, dtype, rows, columns, ld, seed, scale, NULL);
  if (buffer != NULL) *buffer = base;
  if (elements != NULL) *elements = count;
  return data;
}

/* One of a GLU's weights or biases; number counts them, for the seed. */
static gpu_pointer weight(const gpu_case *c, int64_t rows, int64_t columns, int64_t ld,
                          int number, float scale) {
  return gpu_matrix(c->dtype, rows, columns, ld, c->w_off, c->seed + (uint64_t)number, scale,
                    NULL, NULL);
}

bool gpu_operands_create(const gpu_case *c, gpu_operands *o) {
  *o = (gpu_operands){.c = *c, .mark = gpu_arena_mark()};
  o->ldx = c->k + c->ldx_extra;
  o->ldw = c->k + c->ldw_extra;
  o->ldo = c->n + c->ldo_extra;
  float scale = 1.5f / sqrtf((float)c->k);
  int merged = c->layout != TGLU_LAYOUT_SEPARATE;
  o->x = gpu_matrix(c->dtype, c->m, c->k, o->ldx, c->x_off, c->seed, 1.0f, NULL, NULL);
  if (merged) {
    o->gate_up = weight(c, 2 * c->n, c->k, o->ldw, 1, scale);
  } else {
    o->gate = weight(c, c->n, c->k, o->ldw, 1, scale);
    o->up = weight(c, c->n, c->k, o->ldw, 2, scale);
  }
  bool room = o->x != 0 && (merged ? o->gate_up != 0 : o->gate != 0 && o->up != 0);
  if (c->bias && merged) {
    o->gate_up_bias = weight(c, 1, 2 * c->n, 2 * c->n, 3, 0.5f);
    room = room && o->gate_up_bias != 0;
  } else if (c->bias) {
    o->gate_bias = weight(c, 1, c->n, c->n, 3, 0.5f);
    o->up_bias = weight(c, 1, c->n, c->n, 4, 0.5f);
    room = room && o->gate_bias != 0 && o->up_bias != 0;
  }
  o->out = gpu_matrix(c->dtype, c->m, c->n, o->ldo, c->out_off, 0, 0, &o->out_buffer,
                      &o->out_elements);
  if (room && o->out != 0) {
    GPU(synchronize());
    return true;
  }
  gpu_operands_destroy(o);
  return false;
}

void gpu_operands_destroy(gpu_operands *o) { gpu_arena_release(o->mark); }

static const void *pointer_of(gpu_pointer p) { return (const void *)(uintptr_t)p; }

void gpu_operands_desc(const gpu_operands *o, tglu_glu_desc *d) {
  const gpu_case *c = &o->c;
  tglu_glu_desc_init(d);
  d->hidden = c->k;
  d->intermediate = c->n;
  d->dtype = (tglu_dtype)c->dtype;
  d->activation = (tglu_activation)c->activation;
  if (c->activation == TGLU_ACTIVATION_SWIGLUOAI) {
    d->alpha = c->alpha;
    d->limit = c->limit;
    d->offset = c->offset;
  }
  d->layout = (tglu_layout)c->layout;
  d->gate = pointer_of(o->gate);
  d->up = pointer_of(o->up);
  d->gate_up = pointer_of(o->gate_up);
  d->ld = o->ldw;
  d->gate_bias = pointer_of(o->gate_bias);
  d->up_bias = pointer_of(o->up_bias);
  d->gate_up_bias = pointer_of(o->gate_up_bias);
}

void gpu_operands_args(const gpu_operands *o, gpu_stream stream, tglu_run_args *a) {
  tglu_run_args_init(a);
  a->x = pointer_of(o->x);
  a->ldx = o->ldx;
  a->tokens = o->c.m;
  a->out = (void *)(uintptr_t)o->out;
  a->ldo = o->ldo;
  a->stream = stream;
}

void gpu_poison(const gpu_operands *o, gpu_stream stream) {
  gpu_pattern(o->out_buffer, o->out_elements, stream);
}

ref_problem gpu_reference_problem(const gpu_operands *o) {
  const gpu_case *c = &o->c;
  ref_problem p = {.m = c->m, .n = c->n, .k = c->k, .ldx = o->ldx, .ldw = o->ldw,
                   .ldo = o->ldo, .bias_stride = 1, .x = pointer_of(o->x),
                   .out = pointer_of(o->out), .dtype = c->dtype,
                   .activation = c->activation, .alpha = c->alpha, .limit = c->limit,
                   .offset = c->offset};
  gpu_pointer first = o->gate_up, first_bias = o->gate_up_bias;
  gpu_pointer half = 2 * (uint64_t)(c->n * o->ldw), half_bias = 2 * (uint64_t)c->n;
  gpu_pointer gate = o->gate, up = o->up, gate_bias = o->gate_bias, up_bias = o->up_bias;
  if (c->layout == TGLU_LAYOUT_STACKED_GATE_FIRST) {
    gate = first, up = first + half, gate_bias = first_bias, up_bias = first_bias + half_bias;
  } else if (c->layout == TGLU_LAYOUT_STACKED_UP_FIRST) {
    up = first, gate = first + half, up_bias = first_bias, gate_bias = first_bias + half_bias;
  } else if (c->layout == TGLU_LAYOUT_INTERLEAVED) {
    gate = first, up = first + 2 * (uint64_t)o->ldw;
    gate_bias = first_bias, up_bias = first_bias + 2;
    p.ldw = 2 * o->ldw;
    p.bias_stride = 2;
  }
  p.gate = pointer_of(gate);
  p.up = pointer_of(up);
  p.gate_bias = c->bias ? pointer_of(gate_bias) : NULL;
  p.up_bias = c->bias ? pointer_of(up_bias) : NULL;
  return p;
}

ref_result gpu_judge(const gpu_operands *o, gpu_pointer values) {
  ref_problem p = gpu_reference_problem(o);
  int64_t first_row = 0, row_step = o->c.row_step > 0 ? o->c.row_step : 1;
  if (row_step > 1) first_row = (p.m - 1) % row_step; /* so that the last row is in */
  gpu_pointer result = gpu_result_begin();
  void *judge[] = {&p, &first_row, &row_step, &result, &values};
  gpu_launch(REF_JUDGE, gpu_blocks((p.m / row_step + 1) * p.n), NULL, judge);
  gpu_check_around(o->out_buffer, o->out_elements, o->out, p.m, p.n, p.ldo);
  return gpu_result_end();
}

gpu_pointer gpu_result_begin(void) {
  GPU(clear(result_buffer, 0, sizeof(ref_result)));
  return result_buffer;
}

void gpu_check_around(gpu_pointer buffer, int64_t elements, gpu_pointer data, int64_t rows,
                      int64_t columns, int64_t ld) {
  int64_t first = (int64_t)(data - buffer) / 2;
  void *around[] = {&buffer, &elements, &first, &rows, &columns, &ld, &result_buffer};
  gpu_launch(REF_SENTINELS, gpu_blocks(elements), NULL, around);
}

ref_result gpu_result_end(void) {
  ref_result host;
  GPU(to_host(&host, result_buffer, sizeof host));
  return host;
}

/* ---- one case ---- */

void gpu_describe(const gpu_case *c, char *text, size_t bytes) {
  snprintf(text, bytes,
           "%s m=%lld n=%lld k=%lld %s %s bias=%d ldx+%lld ld+%lld ldo+%lld x@%lld w@%lld "
           "out@%lld seed=%llu",
           tglu_dtype_name((tglu_dtype)c->dtype), (long long)c->m, (long long)c->n,
           (long long)c->k, tglu_activation_name((tglu_activation)c->activation),
           tglu_layout_name((tglu_layout)c->layout), c->bias, (long long)c->ldx_extra,
           (long long)c->ldw_extra, (long long)c->ldo_extra, (long long)c->x_off,
           (long long)c->w_off, (long long)c->out_off, (unsigned long long)c->seed);
}

bool gpu_report(const char *row, const char *text, const ref_result *r) {
  gpu_total.compared += (long long)r->compared;
  gpu_total.off_by_1pct += (long long)r->off_by_1pct;
  double rel_l2 = r->reference_squares > 0 ? sqrt(r->error_squares / r->reference_squares) : 0;
  if (rel_l2 > gpu_total.worst_rel_l2) gpu_total.worst_rel_l2 = rel_l2;
  if (!gpu_require(r->compared > 0, "%s: nothing compared: %s", row, text)) return false;
  if (r->overwritten > 0)
    return gpu_require(false, "%s: %llu elements around out overwritten, one at %lld: %s", row,
                      r->overwritten, (long long)r->overwritten_at, text);
  return gpu_expect(r->wrong == 0,
                    "%s: %llu of %llu wrong, one at (%lld, %lld): %.9g, not %.9g +- %.3g: %s",
                    row, r->wrong, r->compared, (long long)r->wrong_row,
                    (long long)r->wrong_column, r->wrong_value, r->wrong_reference,
                    r->wrong_allowed, text);
}

bool gpu_unserved(tglu_status status) {
  if (status != TGLU_ERR_UNSUPPORTED || strncmp(tglu_last_error(), "row: ", 5) != 0) return false;
  ++gpu_total.unserved;
  return true;
}

bool gpu_run_case(tglu_context *context, const gpu_case *c) {
  char text[256];
  gpu_describe(c, text, sizeof text);
  gpu_operands o;
  if (!gpu_operands_create(c, &o)) {
    gpu_skip("no room on the device: %s", text);
    return true;
  }
  tglu_glu_desc d;
  tglu_run_args a;
  tglu_glu *glu = NULL;
  tglu_plan_info plan;
  tglu_plan_info_init(&plan);
  gpu_operands_desc(&o, &d);
  gpu_operands_args(&o, NULL, &a);
  tglu_status status = tglu_glu_create(context, &d, &glu);
  if (status == TGLU_OK) {
    tglu_glu_get_plan(glu, c->m, &plan);
    status = tglu_glu_run(glu, &a);
  }
  bool ok = gpu_unserved(status) ||
            gpu_require(status == TGLU_OK, "run: %s: %s", tglu_last_error(), text);
  if (status == TGLU_OK) {
    GPU(synchronize());
    ref_result r = gpu_judge(&o, 0);
    ok = gpu_report(plan.row != NULL ? plan.row : "general row", text, &r);
  }
  tglu_glu_destroy(glu);
  gpu_operands_destroy(&o);
  return ok;
}

/* ---- counting and small things ---- */

static void print_failure(const char *format, va_list arguments) {
  if (++gpu_total.failed > 40) return;
  printf("FAILED ");
  vprintf(format, arguments);
  printf("\n");
  fflush(stdout);
}

bool gpu_expect(bool ok, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (ok) {
    ++gpu_total.passed;
  } else {
    print_failure(format, arguments);
  }
  va_end(arguments);
  return ok;
}

bool gpu_require(bool ok, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (!ok) print_failure(format, arguments);
  va_end(arguments);
  return ok;
}

void gpu_skip(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("skipped: ");
  vprintf(format, arguments);
  printf("\n");
  va_end(arguments);
  ++gpu_total.skipped;
}

tglu_context *gpu_context(const char *row, int sm_limit, int pdl, int stable) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CUDA;
  options.device = gpu_device;
  options.cuda_library = gpu_library;
  options.row = row;
  options.sm_limit = sm_limit;
  options.pdl = pdl;
  options.stable_weights = stable;
  tglu_context *context = NULL;
  tglu_status status = tglu_context_create(&options, &context);
  gpu_require(status == TGLU_OK, "context (row %s, sm_limit %d): %s",
              row != NULL ? row : "any", sm_limit, tglu_last_error());
  return context;
}

uint64_t gpu_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t gpu_between(uint64_t *state, int64_t low, int64_t high) {
  return low + (int64_t)(gpu_random(state) % (uint64_t)(high - low + 1));
}

bool gpu_row_tiles(const char *name, int *tile_m, int *tile_n, int *cluster) {
  /* ..._{tile_m}x{tile_n}_s{stages}_c{cluster} */
  const char *x = strrchr(name, 'x');
  if (x == NULL) return false;
  const char *begin = x;
  while (begin > name && begin[-1] >= '0' && begin[-1] <= '9') --begin;
  int stages;
  return sscanf(begin, "%dx%d_s%d_c%d", tile_m, tile_n, &stages, cluster) == 4;
}

bool gpu_row_general(const char *name) {
  int32_t row = tglu__row_find(name);
  return row >= 0 && tglu__rows[row].loader == tglu__loader_general;
}

bool gpu_serves(const tglu_glu *glu, const tglu_run_args *a) {
  char text[4096] = "";
  tglu_glu_explain(glu, a, text, sizeof text);
  bool serves = strstr(text, "no kernel row serves") == NULL;
  gpu_total.unserved += !serves;
  return serves;
}

static gpu_pointer counter;

void gpu_differences_begin(void) {
  counter = gpu_take(sizeof(ref_result));
  GPU(clear(counter, 0, sizeof(ref_result)));
}

void gpu_differences_add(gpu_pointer a, gpu_pointer b, int64_t count, gpu_stream stream) {
  void *parameters[] = {&a, &b, &count, &counter};
  gpu_launch(REF_DIFFERENCES, 256, stream, parameters);
}

unsigned long long gpu_differences_end(void) {
  ref_result r;
  GPU(synchronize());
  GPU(to_host(&r, counter, sizeof r));
  return r.different;
}
