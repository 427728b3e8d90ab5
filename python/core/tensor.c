/* torch as the module sees it: tensors, modes, the current stream.  Tensors are read
 * through DLPack's exchange table where torch has one (its C functions take a tenth of
 * the time of attributes), else through their attributes. */
#include "core.h"

#include <string.h>

/* ---- DLPack 1.x, by its published layout ---- */
typedef struct dl_tensor {
  void *data;
  int32_t device_type, device_id, dims;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct dl_managed *self);
  uint64_t flags;
  dl_tensor tensor;
} dl_managed;

typedef struct dl_exchange {
  struct { uint32_t major, minor; void *previous; } header;
  int (*allocate)(dl_tensor *like, dl_managed **out, void *context,
                  void (*error)(void *context, const char *kind, const char *text));
  void *managed_tensor_from_object, *managed_tensor_to_object;
  int (*tensor_from_object)(void *object, dl_tensor *out);
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

enum { DL_CPU = 1, DL_CUDA = 2, DL_FLOAT = 2, DL_BFLOAT = 4 };

/* ---- what core_setup was given ---- */
enum { MAX_WATCHES = 12 };
static PyObject *tensor_type, *parameter_type;
static PyObject *dtypes[4]; /* by tglu_dtype */
static PyObject *watches;   /* tuple of callables without arguments: true is watched */
static PyObject *forward_ad, *grad_enabled, *raw_stream, *num_threads;
static PyObject *empty_cpu, *empty_cuda, *cuda_device, *deterministic, *reserve; /* NULL: none */
static const dl_exchange *exchange;

/* Interned names. */
static PyObject *n_data_ptr, *n_shape, *n_stride, *n_dtype, *n_is_cpu, *n_is_cuda,
  *n_get_device, *n_requires_grad, *n_new_empty_strided, *n_current_level, *n_is_neg;

static bool intern_names(void)
{
  static const struct { PyObject **place; const char *text; } names[] = {
    {&n_data_ptr, "data_ptr"}, {&n_shape, "shape"}, {&n_stride, "stride"},
    {&n_dtype, "dtype"}, {&n_is_cpu, "is_cpu"}, {&n_is_cuda, "is_cuda"},
    {&n_get_device, "get_device"}, {&n_requires_grad, "requires_grad"},
    {&n_new_empty_strided, "new_empty_strided"}, {&n_current_level, "_current_level"},
    {&n_is_neg, "is_neg"}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (!*names[i].place && !(*names[i].place = PyUnicode_InternFromString(names[i].text)))
      return false;
  return true;
}

static void keep(PyObject **place, PyObject *value)
{
  PyObject *before = *place;
  Py_XINCREF(value);
  *place = value;
  Py_XDECREF(before);
}

static PyObject *or_null(PyObject *value) { return value == Py_None ? NULL : value; }

PyObject *core_setup(PyObject *self, PyObject *args, PyObject *keywords)
{
  (void)self;
  static char *names[] = {"tensor", "parameter", "bf16", "f16", "f32", "watches",
                          "forward_ad", "grad_enabled", "raw_stream", "num_threads",
                          "exchange", "empty_cpu", "empty_cuda", "cuda_device",
                          "deterministic", "reserve", NULL};
  PyObject *given[16];
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "$OOOOOO!OOOOOOOOOO", names, &given[0],
                                   &given[1], &given[2], &given[3], &given[4], &PyTuple_Type,
                                   &given[5], &given[6], &given[7], &given[8], &given[9],
                                   &given[10], &given[11], &given[12], &given[13], &given[14],
                                   &given[15]))
    return NULL;
  if (!intern_names()) return NULL;
  const dl_exchange *table = NULL;
  if (given[10] != Py_None) {
    table = PyCapsule_GetPointer(given[10], "dlpack_exchange_api");
    if (!table) return NULL;
    if (table->header.major != 1 || !table->tensor_from_object) table = NULL;
  }
  keep(&tensor_type, given[0]), keep(&parameter_type, given[1]);
  keep(&dtypes[TGLU_DTYPE_BF16], given[2]), keep(&dtypes[TGLU_DTYPE_F16], given[3]);
  keep(&dtypes[TGLU_DTYPE_F32], given[4]), keep(&watches, given[5]);
  keep(&forward_ad, given[6]), keep(&grad_enabled, given[7]);
  keep(&raw_stream, or_null(given[8])), keep(&num_threads, given[9]);
  keep(&empty_cpu, or_null(given[11])), keep(&empty_cuda, or_null(given[12]));
  keep(&cuda_device, or_null(given[13])), keep(&deterministic, or_null(given[14]));
  keep(&reserve, or_null(given[15]));
  exchange = table;
  Py_RETURN_NONE;
}

bool core_has_torch(void)
{
  if (!tensor_type) PyErr_SetString(PyExc_RuntimeError, "tileglu._core: no torch yet");
  return tensor_type != NULL;
}

/* ---- reading ---- */

static int32_t slot_of(int32_t type, int32_t index)
{
  if (type == DL_CPU) return 0;
  return type == DL_CUDA && index >= 0 && index + 1 < CORE_SLOTS ? index + 1 : -1;
}

static int32_t dtype_of(int code, int bits)
{
  if (code == DL_BFLOAT && bits == 16) return TGLU_DTYPE_BF16;
  if (code == DL_FLOAT && bits == 16) return TGLU_DTYPE_F16;
  return code == DL_FLOAT && bits == 32 ? TGLU_DTYPE_F32 : 0;
}

static int read_by_exchange(PyObject *tensor, core_tensor *out)
{
  dl_tensor dl;
  if (exchange->tensor_from_object(tensor, &dl) != 0) return PyErr_Clear(), 0;
  if (dl.dims > CORE_DIMS) return 0;
  out->data = (char *)dl.data + dl.byte_offset;
  out->dims = dl.dims;
  out->slot = slot_of(dl.device_type, dl.device_id);
  out->dtype = dl.dtype.lanes == 1 ? dtype_of(dl.dtype.code, dl.dtype.bits) : 0;
  for (int i = 0; i < dl.dims; i++)
    out->shape[i] = dl.shape[i], out->strides[i] = dl.strides[i];
  return 1;
}

static bool integers(PyObject *tuple, int64_t *out, int32_t *count)
{
  const Py_ssize_t size = tuple ? PyTuple_Size(tuple) : -1;
  bool done = size >= 0 && size <= CORE_DIMS;
  for (Py_ssize_t i = 0; done && i < size; i++) {
    out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    done = out[i] != -1 || !PyErr_Occurred();
  }
  *count = (int32_t)size;
  Py_XDECREF(tuple);
  return done;
}

static bool is_true(PyObject *object, PyObject *name)
{
  PyObject *value = PyObject_GetAttr(object, name);
  Py_XDECREF(value);
  return value == Py_True;
}

static bool read_integer(PyObject *value, int64_t *out)
{
  if (!value) return false;
  *out = (int64_t)PyLong_AsUnsignedLongLongMask(value);
  Py_DECREF(value);
  return !PyErr_Occurred();
}

static int read_by_attributes(PyObject *tensor, core_tensor *out)
{
  int64_t pointer = 0, device = -1;
  int32_t dims = 0;
  if (!integers(PyObject_GetAttr(tensor, n_shape), out->shape, &out->dims) ||
      !integers(PyObject_CallMethodObjArgs(tensor, n_stride, NULL), out->strides, &dims) ||
      dims != out->dims ||
      !read_integer(PyObject_CallMethodObjArgs(tensor, n_data_ptr, NULL), &pointer))
    return PyErr_Clear(), 0;
  out->data = (void *)(intptr_t)pointer;
  out->slot = -1;
  if (is_true(tensor, n_is_cuda)) {
    if (read_integer(PyObject_CallMethodObjArgs(tensor, n_get_device, NULL), &device))
      out->slot = slot_of(DL_CUDA, (int32_t)device);
  } else if (is_true(tensor, n_is_cpu)) {
    out->slot = 0;
  }
  PyErr_Clear();
  PyObject *dtype = PyObject_GetAttr(tensor, n_dtype);
  out->dtype = TGLU_DTYPE_F32;
  while (out->dtype > 0 && dtype != dtypes[out->dtype]) out->dtype--;
  Py_XDECREF(dtype);
  return dtype ? 1 : -1;
}

int core_read(PyObject *tensor, core_tensor *out)
{
  const int done = exchange ? read_by_exchange(tensor, out) : read_by_attributes(tensor, out);
  if (done != 1 || out->data) return done;
  for (int i = 0; i < out->dims; i++)
    if (out->shape[i] == 0) return 1;
  return 0; /* elements without memory: a zero tensor, a fake one */
}

int core_is_negative(PyObject *tensor)
{
  PyObject *answer = PyObject_CallMethodObjArgs(tensor, n_is_neg, NULL);
  if (!answer) return -1;
  Py_DECREF(answer);
  return answer == Py_True;
}

/* Whether a weak reference is to the object.  (PyWeakref_GetRef is Python 3.13's.) */
static bool refers_to(PyObject *reference, const PyObject *object)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return PyWeakref_GetObject(reference) == object;
#pragma GCC diagnostic pop
}

int core_is_negative_weight(PyObject *tensor)
{
  enum { PLACES = 4096 };
  static PyObject *known[PLACES]; /* weak references to tensors without the bit */
  const uint64_t hash = (uint64_t)(uintptr_t)tensor * 0x9E3779B97F4A7C15u;
  PyObject **place = &known[hash >> 52];
  if (*place && refers_to(*place, tensor)) return 0;
  const int answer = core_is_negative(tensor);
  if (answer) return answer;
  PyObject *reference = PyWeakref_NewRef(tensor, NULL);
  if (!reference) return -1;
  keep(place, reference);
  Py_DECREF(reference);
  return 0;
}

bool core_is_plain(PyObject *tensor)
{
  PyObject *type = (PyObject *)Py_TYPE(tensor);
  return type == tensor_type || type == parameter_type;
}

/* ---- modes ---- */

/* Truth of what a callable returns; -1 with an exception set. */
static int ask(PyObject *callable)
{
  PyObject *answer = PyObject_CallNoArgs(callable);
  if (!answer) return -1;
  const int truth = answer == Py_False || answer == Py_None ? 0 : PyObject_IsTrue(answer);
  Py_DECREF(answer);
  return truth;
}

int core_watched(void)
{
  const Py_ssize_t count = PyTuple_Size(watches);
  for (Py_ssize_t i = 0; i < count; i++) {
    const int answer = ask(PyTuple_GetItem(watches, i));
    if (answer != 0) return answer;
  }
  PyObject *level = PyObject_GetAttr(forward_ad, n_current_level);
  if (!level) return -1;
  const long value = PyLong_AsLong(level);
  Py_DECREF(level);
  return PyErr_Occurred() ? -1 : value >= 0;
}

int core_grad_enabled(void) { return ask(grad_enabled); }

int core_requires_grad(PyObject *tensor)
{
  PyObject *value = PyObject_GetAttr(tensor, n_requires_grad);
  if (!value) return -1;
  Py_DECREF(value);
  return value == Py_True;
}

/* ---- new tensors, streams ---- */

/* A contiguous tensor's sizes and strides as tuples; those of the last call are kept, since
 * most calls have the shape of the one before.  New references; false with an exception. */
static bool as_tuples(const int64_t *shape, int32_t dims, PyObject **sizes, PyObject **strides)
{
  static int64_t last_shape[CORE_DIMS];
  static PyObject *last_sizes, *last_strides;
  const size_t bytes = (size_t)dims * sizeof *shape;
  if (!last_sizes || PyTuple_Size(last_sizes) != dims || memcmp(last_shape, shape, bytes) != 0) {
    PyObject *new_sizes = PyTuple_New(dims), *new_strides = PyTuple_New(dims);
    int64_t stride = 1;
    bool done = new_sizes && new_strides;
    for (int32_t i = dims - 1; done && i >= 0; i--) {
      PyObject *size = PyLong_FromLongLong(shape[i]), *step = PyLong_FromLongLong(stride);
      done = size && step;
      if (size) PyTuple_SetItem(new_sizes, i, size);
      if (step) PyTuple_SetItem(new_strides, i, step);
      stride *= shape[i] > 1 ? shape[i] : 1;
    }
    if (done) {
      memcpy(last_shape, shape, bytes);
      keep(&last_sizes, new_sizes), keep(&last_strides, new_strides);
    }
    Py_XDECREF(new_sizes), Py_XDECREF(new_strides);
    if (!done) return false;
  }
  Py_INCREF(last_sizes), Py_INCREF(last_strides);
  *sizes = last_sizes, *strides = last_strides;
  return true;
}

PyObject *core_new_tensor(PyObject *like, const int64_t *shape, int32_t dims, void **data)
{
  PyObject *sizes, *strides;
  int64_t pointer = 0;
  if (!as_tuples(shape, dims, &sizes, &strides)) return NULL;
  PyObject *made = PyObject_CallMethodObjArgs(like, n_new_empty_strided, sizes, strides, NULL);
  Py_DECREF(sizes), Py_DECREF(strides);
  if (!made) return NULL;
  if (!read_integer(PyObject_CallMethodObjArgs(made, n_data_ptr, NULL), &pointer)) {
    Py_DECREF(made);
    return NULL;
  }
  *data = (void *)(intptr_t)pointer;
  return made;
}

/* The function that makes tensors for torch's own compiled code, past its dispatcher, on the
 * CPU or the current CUDA device, with the GIL held.  NULL where the slot is another device,
 * or torch is to fill new tensors, which this function does not. */
static PyObject *quick_empty(int slot)
{
  PyObject *quick = slot == 0 ? empty_cpu : empty_cuda;
  if (!exchange || !quick || !deterministic || ask(deterministic) != 0) return NULL;
  if (slot == 0) return quick;
  int64_t device = -1;
  const bool known = cuda_device && read_integer(PyObject_CallNoArgs(cuda_device), &device);
  return known && device == slot - 1 ? quick : NULL;
}

PyObject *core_new_plain(int slot, int32_t dtype, const int64_t *shape, int32_t dims,
                         void **data)
{
  PyObject *sizes, *strides, *made = NULL, *quick = quick_empty(slot);
  core_tensor read;
  if (quick && as_tuples(shape, dims, &sizes, &strides)) {
    made = PyObject_CallFunctionObjArgs(quick, sizes, strides, dtypes[dtype], NULL);
    Py_DECREF(sizes), Py_DECREF(strides);
  }
  if (made && read_by_exchange(made, &read) == 1 && read.slot == slot && read.dtype == dtype) {
    *data = read.data;
    return made;
  }
  Py_XDECREF(made);
  PyErr_Clear();
  return NULL;
}

/* The caller makes a tensor in its stead, and torch says then what is wrong. */
static void ignore_error(void *context, const char *kind, const char *text)
{
  (void)context, (void)kind, (void)text;
}

bool core_take_memory(int slot, int32_t dtype, int64_t elements, core_memory *memory)
{
  if (!exchange || !exchange->allocate) return false;
  dl_tensor like = {.device_type = slot == 0 ? DL_CPU : DL_CUDA,
                    .device_id = slot == 0 ? 0 : slot - 1, .dims = 1, .shape = &elements};
  like.dtype.code = dtype == TGLU_DTYPE_BF16 ? DL_BFLOAT : DL_FLOAT;
  like.dtype.bits = dtype == TGLU_DTYPE_F32 ? 32 : 16;
  like.dtype.lanes = 1;
  dl_managed *made = NULL;
  if (exchange->allocate(&like, &made, NULL, ignore_error) != 0 || !made) return false;
  memory->owner = made;
  memory->data = made->tensor.data;
  if (made->major == 1 && made->tensor.data && made->tensor.byte_offset == 0 &&
      made->tensor.device_type == like.device_type && made->tensor.device_id == like.device_id)
    return true;
  core_give_back(memory);
  return false;
}

void core_give_back(core_memory *memory)
{
  dl_managed *made = memory->owner;
  memory->owner = NULL;
  if (made && made->deleter) made->deleter(made);
}

int core_ask_reserve(int slot, size_t bytes)
{
  if (!reserve) return 0;
  PyObject *answer = PyObject_CallFunction(reserve, "in", slot - 1, (Py_ssize_t)bytes);
  Py_XDECREF(answer);
  return answer ? answer == Py_True : -1;
}

bool core_current_stream(int slot, void **stream)
{
  *stream = NULL;
  if (slot == 0) return true;
  if (exchange && exchange->current_work_stream)
    return exchange->current_work_stream(DL_CUDA, slot - 1, stream) == 0;
  if (!raw_stream) {
    PyErr_SetString(PyExc_RuntimeError, "tileglu: this torch was built without CUDA");
    return false;
  }
  PyObject *index = PyLong_FromLong(slot - 1);
  int64_t pointer = 0;
  const bool done =
    index && read_integer(PyObject_CallFunctionObjArgs(raw_stream, index, NULL), &pointer);
  Py_XDECREF(index);
  *stream = (void *)(intptr_t)pointer;
  return done;
}

int core_torch_threads(void)
{
  PyObject *value = num_threads ? PyObject_CallNoArgs(num_threads) : NULL;
  const long threads = value ? PyLong_AsLong(value) : 0;
  Py_XDECREF(value);
  PyErr_Clear();
  return threads > 0 && threads <= 1024 ? (int)threads : 0;
}
