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
