#!/usr/bin/env python3
"""tileglu bench --device cuda with PyTorch's eager GLU or MLP among the contenders.

Loads the bench as a shared library into this process, so that torch and the bench share
one primary context, and runs it with the command line given.  PyTorch's
silu(linear) * linear, with --op mlp the linear after it too, is captured in a CUDA graph over the bench's own inputs and takes
its turn in the same rounds; with --controls so does one linear over both weights, which
shows whether "bare" is what torch itself would reach.

    python3 bench/cuda/with_torch.py [--library FILE] [options of tileglu bench --device cuda]

Needs torch with CUDA and nothing else.  cuBLAS is torch's own unless --cublas names one.
"""
import ctypes
import gc
import sys
import sysconfig
import traceback
from pathlib import Path

import torch
import torch.nn.functional as F

EAGER, LINEAR = 0, 1
DTYPES = {1: torch.bfloat16, 2: torch.float16}  # as tglu_dtype
WRITE_X = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


class Shape(ctypes.Structure):
    """bench_torch_shape of cli/cuda_bench/torch_hook.h."""
    _fields_ = [("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
                ("dtype", ctypes.c_int32), ("sets", ctypes.c_int32), ("calls", ctypes.c_int32),
                ("pdl", ctypes.c_int32), ("control", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("stream", ctypes.c_void_p),
                ("x", ctypes.POINTER(ctypes.c_uint64)), ("w", ctypes.POINTER(ctypes.c_uint64)),
                ("down", ctypes.POINTER(ctypes.c_uint64)),
                ("write_x", WRITE_X), ("bench", ctypes.c_void_p)]


PREPARE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Shape))
REPLAY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
FINISH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class Hook(ctypes.Structure):
    """bench_torch of cli/cuda_bench/torch_hook.h."""
    _fields_ = [("user", ctypes.c_void_p), ("prepare", PREPARE), ("replay", REPLAY),
                ("finish", FINISH)]


class DeviceMemory:
    """Memory of the bench as torch can take it up, without a copy."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<i2", "version": 3,
                                         "data": (address, False), "strides": None}


def tensor(address, shape, dtype):
    view = torch.as_tensor(DeviceMemory(address, shape), device="cuda").view(dtype)
    if view.data_ptr() != address:
        raise RuntimeError("torch copied the bench's memory instead of sharing it")
    return view


def capture(call, calls, sets, before):
    """A graph of `calls` calls, of sets in turn; the last outputs of every set stay
    alive, so that they do not share memory."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(min(sets, 2)):
            call(i)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    outputs = [None] * sets
    with torch.cuda.graph(graph, stream=stream):
        for i in range(calls):
            before(i % sets, torch.cuda.current_stream().cuda_stream)
            outputs[i % sets] = call(i % sets)
    return graph, outputs


class Contenders:
    """The hook's three calls."""

    def __init__(self):
        self.graphs = {}

    def prepare(self, shape):
        dtype, n = DTYPES[shape.dtype], shape.n
        x = [tensor(shape.x[i], (shape.m, shape.k), dtype) for i in range(shape.sets)]
        w = [tensor(shape.w[i], (2 * n, shape.k), dtype) for i in range(shape.sets)]
        down = ([tensor(shape.down[i], (shape.k, n), dtype) for i in range(shape.sets)]
                if shape.down else None)

        def before(index, stream):
            if shape.pdl and shape.write_x(shape.bench, index, stream) != 0:
                raise RuntimeError("the kernel that writes X could not be launched")

        def eager(i):
            h = F.silu(F.linear(x[i], w[i][:n])) * F.linear(x[i], w[i][n:])
            return F.linear(h, down[i]) if down else h

        def linear(i):
            return F.linear(x[i], w[i])

        torch.cuda.set_stream(torch.cuda.ExternalStream(shape.stream))
        self.graphs[EAGER] = capture(eager, shape.calls, shape.sets, before)
        if shape.control:
            self.graphs[LINEAR] = capture(linear, shape.calls, shape.sets, before)

    def replay(self, what):
        self.graphs[what][0].replay()

    def finish(self):
        if not self.graphs:
            return
        torch.cuda.synchronize()
        torch.cuda.set_stream(torch.cuda.default_stream())
        self.graphs.clear()
        gc.collect()
        torch.cuda.empty_cache()


def guarded(kind, call):
    """A C callback that reports instead of raising: 0, or 1 and a traceback."""
    def run(_user, *arguments):
        try:
            with torch.no_grad():
                call(*arguments)
        except Exception:  # whatever it is, C must learn of it
            traceback.print_exc()
            return 1
        return 0
    return kind(run)


def find_cublas():
    """torch's libcublas: in the nvidia packages beside it."""
    for folder in (sysconfig.get_paths()["purelib"], *sys.path):
        for pattern in ("nvidia/*/lib/libcublas.so.1?", "nvidia/lib/libcublas.so.1?"):
            found = sorted(Path(folder or ".").glob(pattern))
            if found:
                return str(found[-1])
    return None


def find_library(arguments):
    if "--library" in arguments:
        at = arguments.index("--library")
        path = arguments[at + 1:at + 2]
        del arguments[at:at + 2]
        if not path:
            sys.exit("with_torch.py: --library needs a file")
        return Path(path[0])
    root = Path(__file__).resolve().parent.parent.parent
    found = sorted(root.glob("build*/**/libtileglu_bench_cuda.so"))
    if not found:
        sys.exit("with_torch.py: no libtileglu_bench_cuda.so under build*/: build the target "
                 "bench_cuda_folder, or name it with --library")
    return found[0]


def main():
    arguments = sys.argv[1:]
    library = ctypes.CDLL(str(find_library(arguments).resolve()))
    if not torch.cuda.is_available():
        sys.exit("with_torch.py: torch sees no GPU")
    torch.zeros(1, device="cuda")
    if not any(a == "--cublas" or a.startswith("--cublas=") for a in arguments):
        cublas = find_cublas()
        arguments += ["--cublas", cublas] if cublas else []
    print(f"with_torch.py: torch {torch.__version__}", file=sys.stderr, flush=True)
    contenders = Contenders()
    hook = Hook(None, guarded(PREPARE, lambda shape: contenders.prepare(shape.contents)),
                guarded(REPLAY, contenders.replay), guarded(FINISH, contenders.finish))
    words = [b"tileglu bench", b"--device", b"cuda"] + [a.encode() for a in arguments]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    call = library.tileglu_bench_cuda
    call.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(Hook)]
    call.restype = ctypes.c_int
    sys.exit(call(len(words), argv, ctypes.byref(hook)))


if __name__ == "__main__":
    main()
