/* The module's table.  Private to the package: its Python files are the interface. */
#include "core.h"

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)

static PyObject *open_library(PyObject *self, PyObject *path)
{
  (void)self;
  PyObject *bytes = NULL;
  if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
  const bool done = core_open(PyBytes_AsString(bytes));
  Py_DECREF(bytes);
  return done ? PyUnicode_FromString(core_lib.version_string()) : NULL;
}

/* same(live, kept, others): whether live has kept's very objects, and `others` more. */
static PyObject *same(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
  (void)self;
  if (count != 3 || !PyDict_Check(args[0]) || !PyDict_Check(args[1]))
    return PyErr_Format(PyExc_TypeError, "tileglu._core: two dicts and a number are needed");
  const Py_ssize_t others = PyLong_AsSsize_t(args[2]);
  if (others == -1 && PyErr_Occurred()) return NULL;
  if (PyDict_Size(args[0]) != PyDict_Size(args[1]) + others) Py_RETURN_FALSE;
  PyObject *name, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(args[1], &place, &name, &value)) {
    if (PyDict_GetItemWithError(args[0], name) == value) continue;
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
  {"open", open_library, METH_O, "Opens libtileglu.so at a path; its version."},
  {"setup", (PyCFunction)(void (*)(void))core_setup, METH_VARARGS | METH_KEYWORDS,
   "Takes torch's types and functions."},
  {"call", (PyCFunction)(void (*)(void))core_call, METH_FASTCALL,
   "Runs a glu or an mlp; NotImplemented where something is not as it must be."},
  {"explain", (PyCFunction)(void (*)(void))core_explain, METH_FASTCALL,
   "The library's explanation of a call; NotImplemented like call."},
  {"plan", (PyCFunction)(void (*)(void))core_plan, METH_FASTCALL,
   "The library's plan for a call; NotImplemented like call."},
  {"time", (PyCFunction)(void (*)(void))core_time, METH_FASTCALL,
   "Seconds that the library's call alone takes, over some rounds."},
  {"configure", (PyCFunction)(void (*)(void))core_configure, METH_VARARGS | METH_KEYWORDS,
   "Options of a device's context."},
  {"device_info", core_device_info, METH_VARARGS, "What a device's context is."},
  {"same", (PyCFunction)(void (*)(void))same, METH_FASTCALL,
   "Whether a dict has another's very values, and a number of others."},
  {"reserve", core_reserve, METH_VARARGS, "Keeps workspace for the current stream."},
  {"workspaces", core_workspaces, METH_NOARGS, "The workspaces kept."},
  {"clear_workspaces", core_clear_workspaces, METH_NOARGS, "Keeps no workspace any more."},
  {"cache_info", core_cache_info, METH_NOARGS, "Counts of the object cache."},
  {"cache_limit", core_cache_limit, METH_O, "Sets the object cache's size."},
  {"cache_clear", core_cache_clear, METH_NOARGS, "Empties the object cache."},
  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tileglu._core", NULL, -1,
                                        methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
  if (!core_error)
    core_error = PyErr_NewExceptionWithDoc(
      "tileglu.Error", "A call of the library that failed; the text begins with its status.",
      PyExc_RuntimeError, NULL);
  if (!core_error || PyModule_AddObjectRef(module, "Error", core_error) != 0 ||
      PyModule_AddStringConstant(module, "version",
                                 TEXT(TGLU_VERSION_MAJOR) "." TEXT(
                                   TGLU_VERSION_MINOR) "." TEXT(TGLU_VERSION_PATCH)) != 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
