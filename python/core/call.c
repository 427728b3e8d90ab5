/* One call: torch's tensors in, the library's arguments out.  What is not as the library
 * wants it is not judged here: the answer is then NotImplemented, and the Python side
 * says what is wrong (_rules.py) or makes it right. */
#include "core.h"

#include <string.h>
#include <time.h>

/* The arguments, by position. */
enum {
  A_MODE, A_X, A_GATE, A_UP, A_GATE_UP, A_DOWN, A_GATE_BIAS, A_UP_BIAS, A_GATE_UP_BIAS,
  A_DOWN_BIAS, A_RESIDUAL, A_ACTIVATION, A_LAYOUT, A_ALPHA, A_LIMIT, A_OFFSET, A_COUNT
};
/* Bits of the mode (tileglu/_ops.py names them, too). */
enum { MODE_MLP = 1, MODE_EAGER = 2 };

typedef struct bound_call {
  core_key key;
  tglu_run_args args; /* all but out, workspace and stream */
  int32_t slot, dims; /* of x */
  bool eager;         /* past torch's dispatcher */
  int64_t shape[CORE_DIMS]; /* of the result */
} bound_call;

/* ---- names to numbers: by identity, since most callers pass the same string ---- */
typedef struct name_list {
  int32_t count;
  const char *text[6];
  PyObject *interned[6];
} name_list;

static name_list activations = {
  6, {"silu", "gelu_tanh", "gelu_erf", "relu", "sigmoid", "swigluoai"}, {NULL}};
static name_list layouts = {
  4, {"separate", "stacked_gate_first", "stacked_up_first", "interleaved"}, {NULL}};

/* The number (from 1 on) of a name, 0 if it is none. */
static int32_t number_of(name_list *list, PyObject *name)
{
  for (int32_t i = 0; i < list->count; i++)
    if (list->interned[i] == name) return i + 1;
  if (!PyUnicode_Check(name)) return 0;
  for (int32_t i = 0; i < list->count; i++) {
    if (PyUnicode_CompareWithASCIIString(name, list->text[i]) != 0) continue;
    if (!list->interned[i]) list->interned[i] = PyUnicode_InternFromString(list->text[i]);
    return i + 1;
  }
  return 0;
}

/* ---- tensors to pointers and strides.  1: done, 0: not ours, -1: exception ---- */

/* core_read for what must not have torch's negative bit; 0 where it has. */
static int read_activation(PyObject *object, core_tensor *out)
{
  const int done = core_read(object, out);
  const int negative = done == 1 ? core_is_negative(object) : 0;
  return negative ? -(negative < 0) : done;
}

static int read_weight(PyObject *object, core_tensor *out)
{
  const int done = core_read(object, out);
  const int negative = done == 1 ? core_is_negative_weight(object) : 0;
  return negative ? -(negative < 0) : done;
}

static bool of_call(const core_tensor *tensor, const bound_call *call)
{
  return tensor->dtype == call->key.dtype && tensor->slot == call->slot;
}

/* *rows: wanted, or -1 for any and then set. */
static int read_matrix(PyObject *object, const bound_call *call, int64_t *rows,
                       int64_t columns, const void **data, int64_t *ld)
{
  core_tensor t;
  const int done = read_weight(object, &t);
  if (done != 1) return done;
  if (!of_call(&t, call) || t.dims != 2 || t.shape[1] != columns) return 0;
  if (*rows >= 0 && t.shape[0] != *rows) return 0;
  if (t.strides[1] != 1 && columns > 1) return 0;
  *rows = t.shape[0];
  *data = t.data;
  *ld = *rows > 1 ? t.strides[0] : columns;
  return *ld >= columns;
}

static int read_bias(PyObject *object, const bound_call *call, int64_t size,
                     const void **data)
{
  if (object == Py_None) return 1;
  core_tensor t;
  const int done = read_weight(object, &t);
  if (done != 1) return done;
  *data = t.data;
  return of_call(&t, call) && t.dims == 1 && t.shape[0] == size &&
         (size <= 1 || t.strides[0] == 1);
}

/* Leading dimensions as one: their product, and the stride that they share. */
static int collapse(const core_tensor *t, int64_t *rows, int64_t *ld)
{
  const int32_t last = t->dims - 1;
  const int64_t columns = t->shape[last];
  if (t->strides[last] != 1 && columns > 1) return 0;
  int64_t count = 1, stride = columns;
  bool regular = true;
  for (int32_t i = last - 1; i >= 0; i--) {
    if (t->shape[i] != 1) {
      if (count == 1) stride = t->strides[i];
      else if (t->strides[i] != stride * count) regular = false;
    }
    count *= t->shape[i];
  }
  *rows = count;
  *ld = count > 1 ? stride : columns;
  return count == 0 || (regular && *ld >= columns);
}

static int read_activations(PyObject *const *args, bound_call *call)
{
  core_tensor x, residual;
  int done = read_activation(args[A_X], &x);
  if (done != 1) return done;
  if (x.dims < 1 || x.dtype == 0 || x.slot < 0) return 0;
  if (!core_may_use(x.slot)) return -1; /* before anything here asks torch for memory */
  call->slot = x.slot, call->dims = x.dims, call->key.dtype = x.dtype;
  call->key.hidden = x.shape[x.dims - 1];
  memcpy(call->shape, x.shape, sizeof x.shape);
  call->args.x = x.data;
  if (!collapse(&x, &call->args.tokens, &call->args.ldx)) return 0;
  if (args[A_RESIDUAL] == Py_None) return 1;

  int64_t tokens;
  done = read_activation(args[A_RESIDUAL], &residual);
  if (done != 1) return done;
  if (!of_call(&residual, call) || residual.dims != x.dims ||
      memcmp(residual.shape, x.shape, (size_t)x.dims * sizeof x.shape[0]) != 0)
    return 0;
  call->args.residual = residual.data;
  return collapse(&residual, &tokens, &call->args.ldr);
}

static int read_separate(PyObject *const *args, bound_call *call)
{
  core_key *key = &call->key;
  int64_t *n = &key->intermediate, ld_up = 0;
  *n = -1;
  int done = read_matrix(args[A_GATE], call, n, key->hidden, &key->gate, &key->ld);
  if (done == 1) done = read_matrix(args[A_UP], call, n, key->hidden, &key->up, &ld_up);
  if (done == 1 && ld_up != key->ld) done = 0;
  if (done == 1) done = read_bias(args[A_GATE_BIAS], call, *n, &key->gate_bias);
  if (done == 1) done = read_bias(args[A_UP_BIAS], call, *n, &key->up_bias);
  return done;
}

static int read_merged(PyObject *const *args, bound_call *call)
{
  core_key *key = &call->key;
  int64_t rows = -1;
  int done = read_matrix(args[A_GATE_UP], call, &rows, key->hidden, &key->gate, &key->ld);
  if (done == 1 && rows % 2 != 0) done = 0;
  key->intermediate = rows / 2;
  return done == 1 ? read_bias(args[A_GATE_UP_BIAS], call, rows, &key->gate_bias) : done;
}

/* Whether the weights that the layout does not use were left out. */
static bool only_the_layouts(PyObject *const *args, bool separate)
{
  if (separate) return args[A_GATE_UP] == Py_None && args[A_GATE_UP_BIAS] == Py_None;
  return args[A_GATE] == Py_None && args[A_UP] == Py_None &&
         args[A_GATE_BIAS] == Py_None && args[A_UP_BIAS] == Py_None;
}

static int read_weights(PyObject *const *args, bool mlp, bound_call *call)
{
  core_key *key = &call->key;
  const bool separate = key->layout == TGLU_LAYOUT_SEPARATE;
  if (!only_the_layouts(args, separate)) return 0;
  int done = separate ? read_separate(args, call) : read_merged(args, call);
  if (done != 1 || !mlp) return done;
  done = read_matrix(args[A_DOWN], call, &key->hidden, key->intermediate, &key->down,
                     &key->ld_down);
  return done == 1 ? read_bias(args[A_DOWN_BIAS], call, key->hidden, &key->down_bias) : done;
}

static int32_t layout_of(PyObject *name, PyObject *gate_up)
{
  if (name != Py_None) return number_of(&layouts, name);
  return gate_up == Py_None ? TGLU_LAYOUT_SEPARATE : TGLU_LAYOUT_STACKED_GATE_FIRST;
}

/* None leaves the default. */
static bool read_number(PyObject *object, float *out)
{
  if (object == Py_None) return true;
  const double value = PyFloat_AsDouble(object);
  *out = (float)value;
  return value != -1.0 || !PyErr_Occurred();
}

static bool read_numbers(PyObject *const *args, core_key *key)
{
  static tglu_glu_desc defaults;
  if (defaults.size == 0) core_lib.glu_desc_init(&defaults);
  key->alpha = defaults.alpha, key->limit = defaults.limit, key->offset = defaults.offset;
  return read_number(args[A_ALPHA], &key->alpha) && read_number(args[A_LIMIT], &key->limit) &&
         read_number(args[A_OFFSET], &key->offset);
}

static int bind(PyObject *const *args, bound_call *call)
{
  const long mode = PyLong_AsLong(args[A_MODE]);
  const bool mlp = (mode & MODE_MLP) != 0;
  memset(&call->key, 0, sizeof call->key);
  core_lib.run_args_init(&call->args);
  core_key *key = &call->key;
  key->is_mlp = mlp;
  call->eager = (mode & MODE_EAGER) != 0;
  key->activation = number_of(&activations, args[A_ACTIVATION]);
  key->layout = layout_of(args[A_LAYOUT], args[A_GATE_UP]);
  if (key->activation == 0 || key->layout == 0) return 0;
  if (!read_numbers(args, key)) return PyErr_Clear(), 0;
  int done = read_activations(args, call);
  if (done == 1) done = read_weights(args, mlp, call);
  if (done != 1) return done;
  if (!mlp) call->shape[call->dims - 1] = key->intermediate;
  key->context = core_context(call->slot);
  return key->context ? 1 : -1;
}

/* Whether torch's dispatcher may be passed by: plain tensors, nothing that watches, and
 * no gradient asked for.  1: yes, 0: no, -1: exception. */
static int may_bypass(PyObject *const *args)
{
  const int watched = core_watched();
  if (watched) return watched < 0 ? -1 : 0;
  const int grad = core_grad_enabled();
  if (grad < 0) return -1;
  for (int i = A_X; i <= A_RESIDUAL; i++) {
    if (args[i] == Py_None) continue;
    if (!core_is_plain(args[i])) return 0;
    const int needed = grad ? core_requires_grad(args[i]) : 0;
    if (needed) return needed < 0 ? -1 : 0;
  }
  return 1;
}

static tglu_status workspace_bytes(const core_entry *entry, int64_t tokens, size_t *bytes)
{
  return entry->key.is_mlp ? core_lib.mlp_workspace_bytes(entry->object, tokens, bytes)
                           : core_lib.glu_workspace_bytes(entry->object, tokens, bytes);
}

/* The rest of the arguments: the current stream, the size of the workspace, itself if one is
 * kept, and the result, which is returned; NULL with an exception set.  Nothing is kept where
 * the result could not be made past torch's dispatcher: something there is out of the
 * ordinary. */
static PyObject *prepare(const core_entry *entry, PyObject *x, bound_call *call,
                         core_kept **kept)
{
  tglu_run_args *args = &call->args;
  const tglu_status status = workspace_bytes(entry, args->tokens, &args->workspace_bytes);
  if (status) return core_raise(status);
  if (!core_current_stream(call->slot, &args->stream)) return NULL;
  PyObject *out = call->eager ? core_new_plain(call->slot, call->key.dtype, call->shape,
                                               call->dims, &args->out)
                              : NULL;
  if (!out) return core_new_tensor(x, call->shape, call->dims, &args->out);
  if (core_take_kept(call->slot, args->stream, args->workspace_bytes, kept)) return out;
  Py_DECREF(out);
  return NULL;
}

static int64_t workspace_elements(const bound_call *call)
{
  const int64_t element = (int64_t)core_lib.dtype_bytes((tglu_dtype)call->key.dtype);
  return ((int64_t)call->args.workspace_bytes + element - 1) / element;
}

/* Runs of one call, and the seconds that they took together if `timed`. */
typedef struct call_runs {
  long count;
  bool timed;
  tglu_status status;
  double seconds;
} call_runs;

static double seconds_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run_object(const core_entry *entry, const tglu_run_args *args, call_runs *runs)
{
  const double start = runs->timed ? seconds_now() : 0;
  runs->status = TGLU_OK;
  for (long i = 0; !runs->status && i < runs->count; i++)
    runs->status = entry->key.is_mlp ? core_lib.mlp_run(entry->object, args)
                                     : core_lib.glu_run(entry->object, args);
  runs->seconds = runs->timed ? seconds_now() - start : 0;
}

/* The two that follow take workspace from torch on the current stream, where it may be
 * given away again as soon as the launch is behind it. */

/* Without the GIL, and in what is kept if that is not NULL.  False, and nothing was run: torch
 * gives no memory that way. */
static bool run_in_memory(const core_entry *entry, bound_call *call, const core_kept *kept,
                          call_runs *runs)
{
  core_memory memory = {NULL, NULL};
  if (kept)
    memory.data = core_kept_data(kept);
  else if (call->args.workspace_bytes > 0 &&
           !core_take_memory(call->slot, call->key.dtype, workspace_elements(call), &memory))
    return false;
  call->args.workspace = memory.data;
  run_object(entry, &call->args, runs);
  core_give_back(&memory);
  return true;
}

/* False, and nothing was run: an exception is set. */
static bool run_in_tensor(const core_entry *entry, PyObject *x, bound_call *call,
                          call_runs *runs)
{
  const int64_t elements = workspace_elements(call);
  PyObject *space = core_new_tensor(x, &elements, 1, &call->args.workspace);
  if (!space) return false;
  Py_BEGIN_ALLOW_THREADS
  run_object(entry, &call->args, runs);
  Py_END_ALLOW_THREADS
  Py_DECREF(space);
  return true;
}

static PyObject *run(const core_entry *entry, PyObject *x, bound_call *call, call_runs *runs)
{
  core_kept *kept = NULL;
  PyObject *out = prepare(entry, x, call, &kept);
  if (!out) return NULL;
  bool done;
  Py_BEGIN_ALLOW_THREADS
  done = run_in_memory(entry, call, kept, runs);
  Py_END_ALLOW_THREADS
  core_put_back(kept);
  if (!done) done = run_in_tensor(entry, x, call, runs);
  if (done && !runs->status) return out;
  Py_DECREF(out);
  return done ? core_raise(runs->status) : NULL;
}

/* The entry for the arguments, pinned.  NULL: then *answer is what to return, either
 * NotImplemented or NULL with an exception set. */
static core_entry *enter(PyObject *const *args, Py_ssize_t count, bound_call *call,
                         PyObject **answer)
{
  *answer = NULL;
  if (!core_is_open() || !core_has_torch()) return NULL;
  if (count != A_COUNT) {
    PyErr_Format(PyExc_TypeError, "tileglu._core: %d arguments, not %zd", (int)A_COUNT, count);
    return NULL;
  }
  int done = PyLong_AsLong(args[A_MODE]) & MODE_EAGER ? may_bypass(args) : 1;
  if (done == 1) done = bind(args, call);
  if (done == 0) {
    Py_INCREF(Py_NotImplemented);
    *answer = Py_NotImplemented;
  }
  return done == 1 ? core_acquire(&call->key) : NULL;
}

PyObject *core_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
  (void)self;
  bound_call call;
  PyObject *answer;
  core_entry *entry = enter(args, count, &call, &answer);
  if (!entry) return answer;
  call_runs once = {.count = 1};
  answer = run(entry, args[A_X], &call, &once);
  core_release(entry);
  return answer;
}

PyObject *core_explain(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
  (void)self;
  bound_call call;
  PyObject *answer;
  core_entry *entry = enter(args, count, &call, &answer);
  if (!entry) return answer;
  char text[4096];
  const tglu_status status =
    call.key.is_mlp ? core_lib.mlp_explain(entry->object, &call.args, text, sizeof text)
                    : core_lib.glu_explain(entry->object, &call.args, text, sizeof text);
  core_release(entry);
  return status ? core_raise(status) : PyUnicode_FromString(text);
}

PyObject *core_plan(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
  (void)self;
  bound_call call;
  PyObject *answer;
  core_entry *entry = enter(args, count, &call, &answer);
  if (!entry) return answer;
  tglu_plan_info info;
  core_lib.plan_info_init(&info);
  const tglu_status status =
    call.key.is_mlp ? core_lib.mlp_get_plan(entry->object, call.args.tokens, &info)
                    : core_lib.glu_get_plan(entry->object, call.args.tokens, &info);
  core_release(entry);
  if (status) return core_raise(status);
  return Py_BuildValue("{s:z,s:z,s:O,s:d}", "row", info.row, "down_row", info.down_row,
                       "tuned", info.tuned ? Py_True : Py_False, "predicted_us",
                       info.predicted_us);
}

PyObject *core_time(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
  (void)self;
  const long rounds = count == A_COUNT + 1 ? PyLong_AsLong(args[A_COUNT]) : 0;
  if (rounds < 1 && !PyErr_Occurred())
    return PyErr_Format(PyExc_ValueError, "rounds: must be 1 or more");
  bound_call call;
  PyObject *answer;
  core_entry *entry = enter(args, count - 1, &call, &answer);
  if (!entry) return answer;
  call_runs runs = {.count = rounds, .timed = true};
  PyObject *out = run(entry, args[A_X], &call, &runs);
  core_release(entry);
  if (!out) return NULL;
  Py_DECREF(out);
  return PyFloat_FromDouble(runs.seconds / (double)rounds);
}
