/* One tileglu context a device, made at its first use with the options that
 * tileglu.configure gave. */
#include "core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot_options {
  int32_t threads, sm_limit, batch_invariant, stable_weights, pdl, sleep_threads;
  char *row, *cpu_isa, *tune_cache; /* owned in options_of; NULL: default */
} slot_options;

static tglu_context *contexts[CORE_SLOTS];
static slot_options options_of[CORE_SLOTS];
static bool configured[CORE_SLOTS];

/* ---- forks ----
 * The library refuses what a forked child asks of CUDA, but a call has by then asked torch
 * for the memory of its result, which fails with the driver's words. */
static bool forks_watched, cuda_lost;

static void lose_cuda(void) { cuda_lost = true; }

bool core_cuda_is_lost(void) { return cuda_lost; }

/* With the first CUDA context: the children of a process that has none may use CUDA. */
static bool watch_forks(void)
{
  if (!forks_watched) forks_watched = pthread_atfork(NULL, NULL, lose_cuda) == 0;
  if (!forks_watched) PyErr_NoMemory();
  return forks_watched;
}

bool core_may_use(int slot)
{
  if (slot == 0 || !cuda_lost) return true;
  PyErr_Format(core_error,
               "%s: tileglu used CUDA in the process that this one was forked from, and CUDA "
               "does not survive a fork: start processes by spawn "
               "(multiprocessing.set_start_method(\"spawn\")) or fork before CUDA is used",
               core_lib.status_name(TGLU_ERR_FORKED));
  return false;
}

/* ---- contexts ---- */

static void options_for(int slot, const slot_options *given, tglu_context_options *options)
{
  core_lib.context_options_init(options);
  options->backend = slot == 0 ? TGLU_BACKEND_CPU : TGLU_BACKEND_CUDA;
  options->device = slot - 1;
  options->sleep_threads = 1; /* torch's threads want the CPUs between our calls */
  if (given) {
    options->threads = given->threads, options->sm_limit = given->sm_limit;
    options->batch_invariant = given->batch_invariant;
    options->stable_weights = given->stable_weights, options->pdl = given->pdl;
    options->sleep_threads = given->sleep_threads;
    options->row = given->row, options->cpu_isa = given->cpu_isa;
    options->tune_cache = given->tune_cache;
  }
  /* As many threads as torch uses, unless someone said otherwise. */
  if (slot == 0 && options->threads == 0 && !getenv("TILEGLU_THREADS"))
    options->threads = core_torch_threads();
}

static tglu_status create(int slot, tglu_context **context)
{
  tglu_context_options options;
  options_for(slot, configured[slot] ? &options_of[slot] : NULL, &options);
  return core_lib.context_create(&options, context);
}

/* The GIL is held: a context is made once a device, and may only wait for the driver. */
tglu_context *core_context(int slot)
{
  if (!core_may_use(slot)) return NULL;
  if (contexts[slot]) return contexts[slot];
  tglu_context *context = NULL;
  const tglu_status status = create(slot, &context);
  if (status) return core_raise(status), NULL;
  if (slot > 0 && !watch_forks()) return core_lib.context_destroy(context), NULL;
  contexts[slot] = context;
  return context;
}

static int slot_of(const char *type, int index)
{
  const int slot = strcmp(type, "cpu") == 0 ? 0 : 1 + index;
  if (slot >= 0 && slot < CORE_SLOTS && (slot == 0 || strcmp(type, "cuda") == 0)) return slot;
  PyErr_Format(PyExc_ValueError, "device: %s:%d is neither the cpu nor one of cuda:0 to %d",
               type, index, CORE_SLOTS - 2);
  return -1;
}

static bool replace(char **text, const char *with)
{
  char *copy = NULL;
  if (with) {
    copy = malloc(strlen(with) + 1);
    if (!copy) return PyErr_NoMemory(), false;
    strcpy(copy, with);
  }
  free(*text);
  *text = copy;
  return true;
}

/* ---- options that cannot work are refused when they are given ---- */

/* Whether the context's backend has the row; false with ValueError set. */
static bool has_row(const tglu_context *context, const char *row)
{
  const int32_t count = core_lib.row_count(context);
  for (int32_t i = 0; i < count; i++) {
    tglu_row_info info;
    core_lib.row_info_init(&info);
    if (!core_lib.row_get(context, i, &info) && strcmp(info.name, row) == 0) return true;
  }
  PyErr_Format(PyExc_ValueError, "row: the backend has no \"%s\"", row);
  return false;
}

/* By a context made for the purpose.  For a CUDA device it is one of the CPU, so that its
 * driver is not started: all but the row's name is checked alike, and that by the device's
 * own context if there is one. */
static bool check(int slot, const slot_options *given)
{
  tglu_context_options options;
  tglu_context *context = NULL;
  options_for(slot, given, &options);
  options.tune_cache = ""; /* read when it is used, and never a reason to fail */
  if (slot > 0) {
    options.backend = TGLU_BACKEND_CPU, options.device = -1;
    if (contexts[slot] && options.row && *options.row && !has_row(contexts[slot], options.row))
      return false;
    if (options.row && *options.row) options.row = NULL;
    if (options.threads == 0) options.threads = 1;
  }
  const tglu_status status = core_lib.context_create(&options, &context);
  core_lib.context_destroy(context);
  const bool lacks = status == TGLU_ERR_NOT_FOUND || status == TGLU_ERR_UNSUPPORTED;
  if (status == TGLU_OK || (lacks && slot > 0)) return true; /* TILEGLU_ROW may be CUDA's */
  if (lacks)
    PyErr_SetString(PyExc_ValueError, core_lib.last_error());
  else
    core_raise(status);
  return false;
}

PyObject *core_configure(PyObject *self, PyObject *args, PyObject *keywords)
{
  (void)self;
  static char *names[] = {"type", "index", "threads", "sm_limit", "batch_invariant",
                          "stable_weights", "pdl", "sleep_threads", "row", "cpu_isa",
                          "tune_cache", NULL};
  if (!core_is_open()) return NULL;
  tglu_context_options defaults;
  core_lib.context_options_init(&defaults);
  slot_options given = {
    .threads = defaults.threads, .pdl = defaults.pdl, .sleep_threads = 1};
  const char *type, *row = NULL, *cpu_isa = NULL, *tune_cache = NULL;
  int index;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "si|$iiiiiizzz", names, &type, &index,
                                   &given.threads, &given.sm_limit, &given.batch_invariant,
                                   &given.stable_weights, &given.pdl,
                                   &given.sleep_threads, &row, &cpu_isa, &tune_cache))
    return NULL;
  const int slot = slot_of(type, index);
  if (slot < 0) return NULL;
  given.row = (char *)row, given.cpu_isa = (char *)cpu_isa;
  given.tune_cache = (char *)tune_cache;
  if (!check(slot, &given)) return NULL;
  slot_options *kept = &options_of[slot];
  given.row = kept->row, given.cpu_isa = kept->cpu_isa, given.tune_cache = kept->tune_cache;
  *kept = given;
  configured[slot] = true;
  if (!replace(&kept->row, row) || !replace(&kept->cpu_isa, cpu_isa) ||
      !replace(&kept->tune_cache, tune_cache))
    return NULL;
  if (contexts[slot]) {
    core_forget(contexts[slot]);
    /* A captured CUDA graph may still hold kernels of the one before: it stays. */
    if (slot == 0) core_lib.context_destroy(contexts[slot]);
    contexts[slot] = NULL;
  }
  Py_RETURN_NONE;
}

PyObject *core_device_info(PyObject *self, PyObject *args)
{
  (void)self;
  const char *type;
  int index;
  if (!core_is_open() || !PyArg_ParseTuple(args, "si", &type, &index)) return NULL;
  const int slot = slot_of(type, index);
  tglu_context *context = slot < 0 ? NULL : core_context(slot);
  if (!context) return NULL;
  tglu_context_info info;
  core_lib.context_info_init(&info);
  const tglu_status status = core_lib.context_get_info(context, &info);
  if (status) return core_raise(status);
  return Py_BuildValue("{s:s,s:s,s:s,s:i,s:i,s:i,s:z,s:z,s:z}", "backend",
                       core_lib.backend_name(info.backend), "device_name", info.device_name,
                       "reason", info.reason, "threads", (int)info.threads, "sm_count",
                       (int)info.sm_count, "compute_capability",
                       (int)info.compute_capability, "cpu_isa", info.cpu_isa, "tune_cache",
                       info.tune_cache, "library", core_lib.version_string());
}
