"""CUDA's stand-ins, for tests of what the package does about memory and streams on machines
without a GPU: a library whose CUDA contexts are the CPU's, a driver that says what it is told
about captures, and torch's table of DLPack functions with CPU tensors passed off as CUDA's.

`build` makes the libraries; the rest is for the processes that use them (test_workspace.py),
and changes torch and tileglu there for good."""

import ctypes
import os
import re
import threading

import torch

from test_package import PACKAGE, compile_library, copy_of, tool

# In the real library's place; what it lacks is found in that one, which it needs.
CPU_FOR_CUDA = """
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
static void find(void *function, const char *name)
{
  void *symbol = dlsym(RTLD_NEXT, name);
  memcpy(function, &symbol, sizeof symbol);
}
int tglu_context_create(void *options, void **context)
{
  struct { size_t size; int32_t backend, device; } head;
  memcpy(&head, options, sizeof head);
  head.backend = 1, head.device = 0;
  memcpy(options, &head, sizeof head);
  int (*create)(void *, void **);
  find(&create, "tglu_context_create");
  return create(options, context);
}
void (*before_run)(void); /* called without the GIL */
int tglu_mlp_run(void *mlp, const void *args)
{
  int (*run)(void *, const void *);
  find(&run, "tglu_mlp_run");
  if (before_run) before_run();
  void *words[11]; /* tglu_run_args */
  memcpy(words, args, sizeof words);
  words[10] = 0; /* the stream, which the CPU refuses */
  return run(mlp, words);
}"""
DRIVER = """
int answer, status;
int cuStreamIsCapturing(void *stream, int *capturing)
{
  (void)stream;
  *capturing = status;
  return answer;
}"""


def build(folder):
    """A package in `folder`, and libcuda.so.1 beside it."""
    package = copy_of(PACKAGE, folder)
    library = package / "libtileglu.so"
    soname = re.search(r"SONAME.*\[(.*)\]", tool("readelf", "-d", str(library))).group(1)
    real = library.rename(package / soname)
    compile_library(package, "libtileglu.so", CPU_FOR_CUDA, "-Wl,--no-as-needed", str(real),
                    f"-Wl,-rpath,{package}", "-ldl")
    compile_library(folder, "libcuda.so.1", DRIVER, "-Wl,-soname,libcuda.so.1")
    return folder


# ---- DLPack 1.x ----

class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("dims", ctypes.c_int32),
                ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


class DlManaged(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DlTensor)]


DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(DlTensor),
                            ctypes.POINTER(ctypes.POINTER(DlManaged)), ctypes.c_void_p,
                            ctypes.c_void_p)
READ = (ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(DlTensor))
STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32,
                          ctypes.POINTER(ctypes.c_void_p))
ALLOCATE_AT, READ_AT, STREAM_AT = 2, 5, 6  # among the table's pointers, behind the header


class Table:
    """A copy of torch's table whose allocator counts, and fails or lies as it is told."""

    def __init__(self, fails=False, **lies):
        python = ctypes.pythonapi
        python.PyCapsule_GetPointer.restype = ctypes.c_void_p
        python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        python.PyCapsule_New.restype = ctypes.py_object
        python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.name, table = b"dlpack_exchange_api", torch.Tensor.__dlpack_c_exchange_api__
        self.table = (ctypes.c_void_p * 7).from_buffer_copy(
            (ctypes.c_void_p * 7).from_address(python.PyCapsule_GetPointer(table, self.name)))
        real, self.asked, self.live, self.deleters = ALLOCATE(self.table[ALLOCATE_AT]), [], 0, {}
        self.fails = fails

        def allocate(like, out, context, error):
            self.asked.append(like.contents.shape[0])
            if self.fails:
                return -1
            device, like.contents.device_type = like.contents.device_type, 1
            status = real(like, out, context, error)
            made = out[0].contents
            address = ctypes.addressof(made)
            self.deleters[address] = made.deleter
            made.deleter = ctypes.cast(self.delete, ctypes.c_void_p).value
            made.tensor.device_type = like.contents.device_type = device
            self.live += 1
            self.allocated()
            for name, value in lies.items():
                setattr(made if hasattr(made, name) else made.tensor, name, value)
            return status

        def delete(address):
            self.live -= 1
            DELETE(self.deleters.pop(address))(address)
        self.delete, self.allocate = DELETE(delete), ALLOCATE(allocate)
        self.table[ALLOCATE_AT] = ctypes.cast(self.allocate, ctypes.c_void_p).value
        self.capsule = python.PyCapsule_New(self.table, self.name, None)

    def allocated(self):
        pass


class Cuda(Table):
    """torch's table and functions with every tensor on cuda:0."""

    def __init__(self, driver=None):
        super().__init__()
        self.here, self.threads, self.driver = threading.local(), [], None
        if driver:
            self.driver = ctypes.CDLL(os.fspath(driver), ctypes.RTLD_GLOBAL)
        real = ctypes.PYFUNCTYPE(*READ)(self.table[READ_AT])

        def read(tensor, out):
            status = real(tensor, out)
            out.contents.device_type, out.contents.device_id = 2, 0
            return status

        def current(_type, _index, stream):
            stream[0] = self.stream
            return 0
        self.read, self.current = ctypes.CFUNCTYPE(*READ)(read), STREAM(current)
        self.table[READ_AT] = ctypes.cast(self.read, ctypes.c_void_p).value
        self.table[STREAM_AT] = ctypes.cast(self.current, ctypes.c_void_p).value
        torch._C._cuda_getCurrentStream = lambda index: (self.stream, index, 1)
        torch._C._cuda_setStream = self.set_stream

    @property
    def stream(self):
        """The thread's current stream: a number."""
        return getattr(self.here, "stream", 0)

    def set_stream(self, stream_id, device_index=0, device_type=1):
        assert (device_index, device_type) == (0, 1)
        self.here.stream = stream_id

    def capturing(self, status, answer=0):
        """What the driver says from now on."""
        ctypes.c_int.in_dll(self.driver, "status").value = status
        ctypes.c_int.in_dll(self.driver, "answer").value = answer

    def allocated(self):
        self.threads.append((threading.get_ident(), self.stream))

    def setup(self, **instead):
        """Hands all this to C."""
        from tileglu import _ops  # pylint: disable=import-outside-toplevel
        _ops._setup(**{"exchange": self.capsule, "reserve": _ops._reserve,
                       "empty_cuda": torch._C._dynamo.guards._empty_strided_cpu,
                       "cuda_device": lambda: 0, **instead})
