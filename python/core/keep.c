/* Workspace that stays between eager calls on CUDA, one a stream, since taking it from torch
 * for each costs more than all else of a call but its result.  It is torch's memory of that
 * stream, so it may be used again right behind a launch, and given back to torch at any time.
 *
 * It is allocated on a thread of its own (tileglu/_ops.py, _reserve): torch lets a thread
 * route its memory into a pool (torch.cuda.MemPool, the pool of compiled code's CUDA graphs),
 * and there nothing may stay that the pool's owner does not know of. */
#include "core.h"

#include <dlfcn.h>
#include <string.h>

enum { PLACES = 16, PATIENCE = 1000 };             /* streams; calls before one is too old */
enum { LEAST_BYTES = 1 << 16, MOST_BYTES = 4 << 20 }; /* of one */

struct core_kept {
  core_memory memory; /* owner NULL: the place is free */
  void *stream;
  size_t bytes;
  uint64_t used; /* its last call's number */
  int slot;
  bool taken, dropped; /* dropped: to be given back with the end of its call */
};

static core_kept places[PLACES];
static uint64_t calls;
static bool refused; /* none was to be had: not asked for again until all are cleared */

/* ---- captures ---- */
typedef int (*capture_query)(void *stream, int *status);

/* The driver is asked, which needs no current device and takes a fraction of what torch's own
 * function does.  Only where torch uses CUDA already: nothing is loaded or started here. */
static bool may_be_captured(void *stream)
{
  static capture_query query;
  static bool sought;
  if (!sought) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = driver ? dlsym(driver, "cuStreamIsCapturing") : NULL;
    memcpy(&query, &symbol, sizeof query);
    sought = true;
  }
  int status = 0;
  return !query || query(stream, &status) != 0 || status != 0;
}

/* ---- places ---- */

static core_kept *find(int slot, const void *stream)
{
  for (core_kept *kept = places; kept < places + PLACES; kept++)
    if (kept->stream == stream && kept->slot == slot && kept->memory.owner) return kept;
  return NULL;
}

/* Puts `by` in the place, and gives back what was there: last, since other threads may run
 * then.  In a forked child torch's memory on CUDA is nobody's: nothing is done about it. */
static void replace(core_kept *kept, core_kept by)
{
  core_memory before = kept->memory;
  *kept = by;
  if (!core_cuda_is_lost()) core_give_back(&before);
}

static void drop(core_kept *kept) { replace(kept, (core_kept){.slot = 0}); }

/* A free place, or that of a stream long out of use: many streams in turn shall not drop each
 * other's at every call.  NULL if there is none. */
static core_kept *place_for_another(void)
{
  core_kept *oldest = NULL;
  for (core_kept *kept = places; kept < places + PLACES; kept++) {
    if (!kept->memory.owner) return kept;
    if (!kept->taken && (!oldest || kept->used < oldest->used)) oldest = kept;
  }
  return oldest && calls - oldest->used >= PATIENCE ? oldest : NULL;
}

/* What is kept for the stream from now on; given back where it is not wanted any more. */
static bool insert(int slot, void *stream, core_memory *memory, size_t bytes)
{
  core_kept *kept = find(slot, stream);
  if (kept && (kept->taken || kept->bytes >= bytes)) kept = NULL; /* another thread's */
  else if (!kept) kept = place_for_another();
  if (!kept) return core_give_back(memory), false;
  replace(kept, (core_kept){
    .memory = *memory, .stream = stream, .bytes = bytes, .used = calls, .slot = slot});
  return true;
}

static size_t rounded_up(size_t bytes)
{
  size_t size = LEAST_BYTES;
  while (size < bytes) size *= 2;
  return size;
}

PyObject *core_reserve(PyObject *self, PyObject *args)
{
  (void)self;
  int device;
  Py_ssize_t bytes;
  void *stream;
  if (!core_has_torch() || !PyArg_ParseTuple(args, "in", &device, &bytes)) return NULL;
  const int slot = device + 1;
  if (slot < 1 || slot >= CORE_SLOTS || bytes < 1 || bytes > MOST_BYTES)
    return PyErr_Format(PyExc_ValueError, "tileglu._core: %zd bytes on device %d", bytes, device);
  if (!core_current_stream(slot, &stream)) return NULL;
  const size_t size = rounded_up((size_t)bytes);
  core_memory memory = {NULL, NULL};
  bool done;
  Py_BEGIN_ALLOW_THREADS
  done = core_take_memory(slot, TGLU_DTYPE_F32, (int64_t)(size / 4), &memory);
  Py_END_ALLOW_THREADS
  if (done) done = insert(slot, stream, &memory, size);
  else refused = true;
  return PyBool_FromLong(done);
}

/* ---- calls ---- */

/* The stream's, made or made larger.  The GIL is let go meanwhile.  NULL where there is none
 * to be had; false with an exception set. */
static bool grow(int slot, void *stream, size_t bytes, core_kept **kept)
{
  *kept = NULL;
  if (refused || (!find(slot, stream) && !place_for_another())) return true;
  const int done = core_ask_reserve(slot, bytes);
  if (done < 0) return false;
  core_kept *found = find(slot, stream);
  if (found && !found->taken && found->bytes >= bytes) *kept = found;
  if (done == 0 && !find(slot, stream) && place_for_another()) refused = true;
  return true;
}

bool core_take_kept(int slot, void *stream, size_t bytes, core_kept **kept)
{
  *kept = NULL;
  if (slot == 0 || bytes == 0 || bytes > MOST_BYTES || may_be_captured(stream)) return true;
  calls++;
  core_kept *found = find(slot, stream);
  if (found && found->taken) return true;
  if ((!found || found->bytes < bytes) && !grow(slot, stream, bytes, &found)) return false;
  if (found) found->taken = true, found->used = calls;
  *kept = found;
  return true;
}

void *core_kept_data(const core_kept *kept) { return kept->memory.data; }

void core_put_back(core_kept *kept)
{
  if (!kept) return;
  kept->taken = false;
  if (kept->dropped) drop(kept);
}

/* ---- asking, letting go ---- */

PyObject *core_workspaces(PyObject *self, PyObject *ignored)
{
  (void)self, (void)ignored;
  PyObject *list = PyList_New(0);
  for (core_kept *kept = places; list && kept < places + PLACES; kept++) {
    if (!kept->memory.owner) continue;
    PyObject *one = Py_BuildValue("inn", kept->slot - 1, (Py_ssize_t)(intptr_t)kept->stream,
                                  (Py_ssize_t)kept->bytes);
    if (!one || PyList_Append(list, one) != 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

PyObject *core_clear_workspaces(PyObject *self, PyObject *ignored)
{
  (void)self, (void)ignored;
  refused = false;
  for (core_kept *kept = places; kept < places + PLACES; kept++) {
    if (kept->taken) kept->dropped = true;
    else drop(kept);
  }
  Py_RETURN_NONE;
}
