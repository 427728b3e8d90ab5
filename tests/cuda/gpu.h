/* The GPU test's own access to the driver (dlopen, nothing linked), its device memory,
 * its reference kernels, and one case from creation to verdict. */
#ifndef TGLU_TEST_GPU_H
#define TGLU_TEST_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

#include "cuda/cuda_abi.h"
#include "reference.h"

typedef uint64_t gpu_pointer;
typedef struct gpu_stream_st *gpu_stream;
typedef struct gpu_graph_st *gpu_graph;
typedef struct gpu_exec_st *gpu_exec;
typedef struct gpu_node_st *gpu_node;

#define GPU_MAP(XX)                                                                       \
  XX(init, "cuInit", (unsigned flags))                                                    \
  XX(device_count, "cuDeviceGetCount", (int *count))                                      \
  XX(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))   \
  XX(retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                    \
  XX(get_current, "cuCtxGetCurrent", (void **context))                                    \
  XX(set_current, "cuCtxSetCurrent", (void *context))                                     \
  XX(synchronize, "cuCtxSynchronize", (void))                                             \
  XX(memory_info, "cuMemGetInfo_v2", (size_t * available, size_t *total))                 \
  XX(allocate, "cuMemAlloc_v2", (gpu_pointer * pointer, size_t bytes))                    \
  XX(release, "cuMemFree_v2", (gpu_pointer pointer))                                      \
  XX(to_device, "cuMemcpyHtoD_v2", (gpu_pointer to, const void *from, size_t bytes))      \
  XX(to_host, "cuMemcpyDtoH_v2", (void *to, gpu_pointer from, size_t bytes))              \
  XX(clear, "cuMemsetD8_v2", (gpu_pointer to, unsigned char value, size_t bytes))         \
  XX(module_load, "cuModuleLoadData", (void **module, const void *image))                 \
  XX(module_function, "cuModuleGetFunction", (void **function, void *module, const char *name)) \
  XX(launch, "cuLaunchKernel",                                                            \
     (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
      unsigned bz, unsigned shared, gpu_stream stream, void **parameters, void **extra))  \
  XX(launch_ex, "cuLaunchKernelEx",                                                       \
     (const tglu__CUlaunchConfig *config, void *function, void **parameters, void **extra))\
  XX(stream_create, "cuStreamCreate", (gpu_stream * stream, unsigned flags))              \
  XX(stream_destroy, "cuStreamDestroy_v2", (gpu_stream stream))                           \
  XX(stream_synchronize, "cuStreamSynchronize", (gpu_stream stream))                      \
  XX(begin_capture, "cuStreamBeginCapture_v2", (gpu_stream stream, int mode))             \
  XX(end_capture, "cuStreamEndCapture", (gpu_stream stream, gpu_graph *graph))            \
  XX(graph_nodes, "cuGraphGetNodes", (gpu_graph graph, gpu_node *nodes, size_t *count))   \
  XX(node_type, "cuGraphNodeGetType", (gpu_node node, int *type))                         \
  XX(instantiate, "cuGraphInstantiateWithFlags",                                          \
     (gpu_exec * exec, gpu_graph graph, unsigned long long flags))                        \
  XX(graph_launch, "cuGraphLaunch", (gpu_exec exec, gpu_stream stream))                   \
  XX(exec_destroy, "cuGraphExecDestroy", (gpu_exec exec))                                 \
  XX(graph_destroy, "cuGraphDestroy", (gpu_graph graph))                                  \
  XX(error_name, "cuGetErrorName", (int error, const char **text))

typedef struct gpu_driver {
#define GPU_FIELD_(field, name, arguments) int(*field) arguments;
  GPU_MAP(GPU_FIELD_)
#undef GPU_FIELD_
} gpu_driver;
extern gpu_driver gpu;

/* False, with why printed, if this machine has no usable driver or device. */
bool gpu_open(const char *library, int device);
/* Ends the program on a failed driver call: the context is lost then. */
void gpu_check(int result, const char *what);
#define GPU(call) gpu_check(gpu.call, #call)

/* ---- reference kernels ---- */
typedef enum gpu_kernel {
  REF_PATTERN, REF_FILL, REF_SENTINELS, REF_DIFFERENCES, REF_SPIN, REF_JUDGE,
  REF_JUDGE_LINEAR, REF_EMPTY,
  REF_PLANTED_WRITE, REF_PLANTED_READ, REF_PLANTED_RACE, REF_PLANTED_SYNC, REF_KERNELS
} gpu_kernel;
unsigned gpu_blocks(int64_t items); /* for a kernel that strides over so many */
void gpu_launch(gpu_kernel kernel, unsigned blocks, gpu_stream stream, void **parameters);
/* The empty kernel, launched as a row of clusters of two with pdl is. */
void gpu_launch_empty(gpu_stream stream);
void gpu_pattern(gpu_pointer data, int64_t count, gpu_stream stream);
void gpu_fill(gpu_pointer data, int dtype, int64_t rows, int64_t columns, int64_t ld,
              uint64_t seed, float scale, gpu_stream stream);
void gpu_spin(double milliseconds, unsigned blocks, gpu_stream stream);

/* ---- memory: one arena, handed out and taken back in order.  With `separate` every
 * piece is an allocation of its own of exactly its size, so that memcheck sees overruns
 * and initcheck what nobody wrote. ---- */
extern bool gpu_separate;
bool gpu_arena_create(size_t most_bytes); /* as much as there is, up to most_bytes */
size_t gpu_arena_free(void);
size_t gpu_arena_mark(void);
void gpu_arena_release(size_t mark);
gpu_pointer gpu_take(size_t bytes);       /* 256-byte aligned; 0 if there is no room */

/* A rows x columns matrix in a buffer of pattern; offset elements off 256 bytes; scale 0:
 * not filled.  buffer and elements may be NULL.  0: no room. */
gpu_pointer gpu_matrix(int dtype, int64_t rows, int64_t columns, int64_t ld, int64_t offset,
                       uint64_t seed, float scale, gpu_pointer *buffer, int64_t *elements);

/* ---- a verdict, added up on the device by the kernels launched in between ---- */
gpu_pointer gpu_result_begin(void);
/* Counts what lost its pattern in a buffer around the matrix at data. */
void gpu_check_around(gpu_pointer buffer, int64_t elements, gpu_pointer data, int64_t rows,
                      int64_t columns, int64_t ld);
ref_result gpu_result_end(void);
/* Counts and prints it. */
bool gpu_report(const char *row, const char *text, const ref_result *r);

/* ---- one case ---- */
typedef struct gpu_case {
  int64_t m, n, k;
  int dtype, activation, layout, bias;
  float alpha, limit, offset;               /* swigluoai                          */
  int64_t ldx_extra, ldw_extra, ldo_extra;  /* elements beyond tight              */
  int64_t x_off, w_off, out_off;            /* elements beyond 256 bytes          */
  int64_t row_step;                         /* judge every row_step-th row; 0: 1  */
  uint64_t seed;
} gpu_case;

/* Operands of a case on the device, filled; the output poisoned. */
typedef struct gpu_operands {
  gpu_case c;
  int64_t ldx, ldw, ldo;                    /* of the tensors as the caller names them */
  gpu_pointer x, gate, up, gate_up;         /* gate, up: separate; gate_up: merged     */
  gpu_pointer gate_bias, up_bias, gate_up_bias;
  gpu_pointer out, out_buffer;              /* out lies in out_buffer, guarded         */
  int64_t out_elements;                     /* of out_buffer                           */
  size_t mark;
} gpu_operands;

bool gpu_operands_create(const gpu_case *c, gpu_operands *o); /* false: no room */
void gpu_operands_destroy(gpu_operands *o);
void gpu_operands_desc(const gpu_operands *o, tglu_glu_desc *d);
void gpu_operands_args(const gpu_operands *o, gpu_stream stream, tglu_run_args *a);
void gpu_poison(const gpu_operands *o, gpu_stream stream);
/* The problem as the reference sees it: gate, up, stride worked out from the layout. */
ref_problem gpu_reference_problem(const gpu_operands *o);
/* Judges the output and its surroundings; values may be 0 or room for m x n doubles. */
ref_result gpu_judge(const gpu_operands *o, gpu_pointer values);

/* The whole way on `context`: create, run, judge, destroy.  Counts and prints. */
bool gpu_run_case(tglu_context *context, const gpu_case *c);
void gpu_describe(const gpu_case *c, char *text, size_t bytes);

/* ---- counting ---- */
typedef struct gpu_totals {
  long long passed, failed, skipped;
  long long unserved; /* cases that the forced row says it cannot serve */
  long long compared, off_by_1pct;
  double worst_rel_l2;
} gpu_totals;
extern gpu_totals gpu_total;
/* expect counts a pass or a failure, require only a failure; both return ok. */
bool gpu_require(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool gpu_expect(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* True, and counted, if a forced row refused the case: "row: ... needs ...". */
bool gpu_unserved(tglu_status status);
void gpu_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

tglu_context *gpu_context(const char *row, int sm_limit, int pdl, int stable);
extern const char *gpu_library;
extern int gpu_device;

uint64_t gpu_random(uint64_t *state);
int64_t gpu_between(uint64_t *state, int64_t low, int64_t high);

/* Tiles of a row, read off its name; false if the name is none. */
bool gpu_row_tiles(const char *name, int *tile_m, int *tile_n, int *cluster);
/* Whether the row has the general loader: it is then given what the others refuse. */
bool gpu_row_general(const char *name);
/* Whether the object's row serves this call; counted if not. */
bool gpu_serves(const tglu_glu *glu, const tglu_run_args *a);

/* Elements in which two buffers differ, added up on the device until the end. */
void gpu_differences_begin(void); /* takes some of the arena */
void gpu_differences_add(gpu_pointer a, gpu_pointer b, int64_t count, gpu_stream stream);
unsigned long long gpu_differences_end(void);

#endif /* TGLU_TEST_GPU_H */
