/* The extension module tileglu._core: what its files share.  Plain C against the
 * limited API of Python 3.10; libtileglu.so is opened at run time from the package's
 * folder, so that another copy in the process is never taken for it; torch is met only
 * through Python objects and, where it has it, DLPack's table of C functions. */
#ifndef TILEGLU_PYTHON_CORE_H
#define TILEGLU_PYTHON_CORE_H

#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

/* ---- library.c ---- */
/* The calls of libtileglu.so that the module makes, as core_lib.NAME after core_open. */
#define CORE_CALLS(XX)                                                                    \
  XX(version) XX(version_string) XX(status_name) XX(last_error)                           \
  XX(dtype_bytes) XX(backend_name) XX(context_options_init) XX(context_create)             \
  XX(context_destroy) XX(context_info_init) XX(context_get_info) XX(run_args_init)        \
  XX(plan_info_init) XX(glu_desc_init) XX(glu_create) XX(glu_destroy) XX(glu_run)         \
  XX(glu_workspace_bytes) XX(glu_explain) XX(glu_get_plan) XX(mlp_desc_init)              \
  XX(mlp_create) XX(mlp_destroy) XX(mlp_run) XX(mlp_workspace_bytes) XX(mlp_explain)      \
  XX(mlp_get_plan) XX(row_count) XX(row_get) XX(row_info_init)

typedef struct core_library {
#define CORE_FIELD(name) __typeof__(&tglu_##name) name;
  CORE_CALLS(CORE_FIELD)
#undef CORE_FIELD
} core_library;

extern core_library core_lib;

/* Opens the library at path; false with ImportError set, naming both versions where it
 * is not of this module's. */
bool core_open(const char *path);
bool core_is_open(void); /* false with ImportError set */

/* tileglu.Error, a RuntimeError whose text begins with the status' name. */
extern PyObject *core_error;
/* Sets the exception for a failed call on this thread: ValueError for an argument that
 * breaks a rule, else core_error.  Returns NULL. */
PyObject *core_raise(tglu_status status);

/* ---- context.c ---- */
/* A device's place in tables: 0 is the CPU, 1 + i the CUDA device i. */
enum { CORE_SLOTS = 65 };

/* False with core_error set where the slot is CUDA's and this process was forked from one
 * that had a CUDA context. */
bool core_may_use(int slot);
bool core_cuda_is_lost(void); /* the same of all CUDA devices, without an exception */
/* The slot's context, made at its first use; NULL with an exception set. */
tglu_context *core_context(int slot);
PyObject *core_configure(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *core_device_info(PyObject *self, PyObject *args);

/* ---- cache.c ---- */
/* Everything that an object binds: two calls with equal keys may share one object,
 * whatever tensors they came from.  Zeroed before it is filled. */
typedef struct core_key {
  tglu_context *context;
  const void *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
  int64_t hidden, intermediate, ld, ld_down;
  int32_t is_mlp, dtype, activation, layout;
  float alpha, limit, offset;
  int32_t zero;
} core_key;

/* An object in the cache.  Pinned while a call uses it without the GIL. */
typedef struct core_entry core_entry;
struct core_entry {
  core_key key;
  uint64_t hash;
  void *object; /* tglu_glu or tglu_mlp */
  int32_t pins;
  bool forgotten; /* out of the cache: destroyed with its last pin */
  core_entry *chain, *older, *newer;
};

/* The key's object, pinned; made at its first use (the GIL is let go meanwhile).  NULL
 * with an exception set. */
core_entry *core_acquire(const core_key *key);
void core_release(core_entry *entry);
/* Forgets the objects of one context, or all if NULL. */
void core_forget(const tglu_context *context);
PyObject *core_cache_info(PyObject *self, PyObject *ignored);
PyObject *core_cache_limit(PyObject *self, PyObject *limit);
PyObject *core_cache_clear(PyObject *self, PyObject *ignored);

/* ---- tensor.c ---- */
enum { CORE_DIMS = 12 };

/* What a strided tensor in memory is.  slot -1: on a device that is not ours; dtype 0:
 * of a type that is not ours. */
typedef struct core_tensor {
  void *data;
  int32_t dims, slot, dtype;
  int64_t shape[CORE_DIMS], strides[CORE_DIMS];
} core_tensor;

/* torch's side of the module, given once by core_setup. */
PyObject *core_setup(PyObject *self, PyObject *args, PyObject *keywords);
bool core_has_torch(void); /* false with RuntimeError set */

/* Reads a tensor.  1: done; 0: it is none that can be read (too many dimensions, no
 * memory of its own, ...); -1: an exception is set. */
int core_read(PyObject *tensor, core_tensor *out);
/* Whether torch's negative bit is set: the elements are the memory's with their signs turned
 * (torch._neg_view, the imaginary part of a conjugate).  -1 with an exception set. */
int core_is_negative(PyObject *tensor);
/* The same for a tensor that is likely to come again: remembered while the object lives. */
int core_is_negative_weight(PyObject *tensor);
/* Whether the type is exactly torch.Tensor or torch.nn.Parameter. */
bool core_is_plain(PyObject *tensor);
/* Whether something watches or changes torch's calls here: a mode, autocast, tracing, a
 * functorch transform, forward AD, a profiler.  -1 with an exception set. */
int core_watched(void);
int core_grad_enabled(void);
int core_requires_grad(PyObject *tensor);
/* A new contiguous tensor of like's type on its device, and its address. */
PyObject *core_new_tensor(PyObject *like, const int64_t *shape, int32_t dims, void **data);
/* The same for a call past torch's dispatcher, sooner; on CUDA only for the current device.
 * NULL without an exception where torch has no such way, or it failed: core_new_tensor says
 * why. */
PyObject *core_new_plain(int slot, int32_t dtype, const int64_t *shape, int32_t dims,
                         void **data);

/* Memory as torch.empty's, of the current stream, without a Python object. */
typedef struct core_memory {
  void *data, *owner;
} core_memory;

/* These two need no GIL and may wait for the driver.  False where torch cannot give it so:
 * take a tensor's then. */
bool core_take_memory(int slot, int32_t dtype, int64_t elements, core_memory *memory);
void core_give_back(core_memory *memory);
/* torch's current stream of a slot into *stream; false with an exception set. */
bool core_current_stream(int slot, void **stream);
/* torch.get_num_threads(), or 0 before core_setup. */
int core_torch_threads(void);
/* Has `bytes` kept for the current stream of a CUDA slot, by core_reserve on another thread.
 * 1: done, 0: there are none to be had, -1: exception. */
int core_ask_reserve(int slot, size_t bytes);

/* ---- keep.c ---- */
/* Workspace that stays between calls, one a stream.  The GIL guards it. */
typedef struct core_kept core_kept;

/* What is kept for the stream into *kept, of `bytes` or more, the caller's until it is put
 * back; kept anew where there is none yet.  NULL where the call must take memory of its own:
 * on the CPU, for many bytes, while the stream is captured (what a graph holds may be used
 * by no other), or while another thread has it.  False with an exception set. */
bool core_take_kept(int slot, void *stream, size_t bytes, core_kept **kept);
void *core_kept_data(const core_kept *kept);
/* Right after the launch, since the stream orders who uses it next.  NULL is ignored. */
void core_put_back(core_kept *kept);
PyObject *core_reserve(PyObject *self, PyObject *args);
PyObject *core_workspaces(PyObject *self, PyObject *ignored);
PyObject *core_clear_workspaces(PyObject *self, PyObject *ignored);

/* ---- call.c ---- */
PyObject *core_call(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_explain(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_plan(PyObject *self, PyObject *const *args, Py_ssize_t count);
/* call's arguments and a number of rounds: seconds a round of the library's call alone. */
PyObject *core_time(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif /* TILEGLU_PYTHON_CORE_H */
