"""As much of torch as bench/cuda/with_torch.py calls, on the tests' fake GPU: it keeps
books of streams and captures, and its graphs make the fake clock go forward."""
import ctypes
import os
from types import SimpleNamespace

fake = ctypes.CDLL(os.environ["BENCH_FAKE"], mode=ctypes.RTLD_GLOBAL)
fake.fake_advance.argtypes = [ctypes.c_double]

__version__ = "0.0-stub"
bfloat16, float16 = "bfloat16", "float16"
GEMM_US, ELEMENTWISE_US = 2.5, 2.0


class Tensor:
    def __init__(self, address, shape):
        self.address, self.shape = address, shape

    def view(self, dtype):
        assert dtype in (bfloat16, float16)
        return self

    def data_ptr(self):
        return self.address + (8 if os.environ.get("STUB_COPIES") else 0)

    def __getitem__(self, rows):
        first, last, _ = rows.indices(self.shape[0])
        return Tensor(self.address + 2 * first * self.shape[1], (last - first, self.shape[1]))

    def __mul__(self, other):
        assert self.shape == other.shape
        work(ELEMENTWISE_US)
        return Tensor(0, self.shape)


class no_grad:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def work(us):
    if state.capturing is not None:
        state.capturing.us += us
    else:
        fake.fake_advance(us)


def as_tensor(memory, device):
    assert device == "cuda"
    interface = memory.__cuda_array_interface__
    assert interface["typestr"] == "<i2" and interface["version"] == 3
    return Tensor(interface["data"][0], interface["shape"])


def zeros(count, device):
    return Tensor(0, (count,))


state = SimpleNamespace(capturing=None, current=None)


class Stream:
    cuda_stream = 0x5000

    def synchronize(self):
        assert state.capturing is None


class ExternalStream(Stream):
    def __init__(self, pointer):
        assert pointer
        self.cuda_stream = pointer


class stream:
    def __init__(self, which):
        self.which = which

    def __enter__(self):
        self.before, state.current = state.current, self.which

    def __exit__(self, *_):
        state.current = self.before


class CUDAGraph:
    def __init__(self):
        self.us, self.whole = 0.0, False

    def replay(self):
        assert self.whole and isinstance(state.current, ExternalStream)
        if os.environ.get("STUB_REPLAY_FAILS"):
            raise RuntimeError("a planted failure")
        fake.fake_advance(self.us)


class graph(stream):
    """While it captures, the stub's stream is NULL: the fake driver runs at once what the
    bench launches there, and the clock that it advances is taken as the graph's."""

    def __init__(self, captured, stream):
        super().__init__(stream)
        self.captured = captured

    def __enter__(self):
        super().__enter__()
        assert state.capturing is None
        state.capturing = self.captured
        self.which.cuda_stream = None

    def __exit__(self, *_):
        state.capturing = None
        self.captured.whole = True
        super().__exit__()


def set_stream(which):
    state.current = which


cuda = SimpleNamespace(
    is_available=lambda: not os.environ.get("STUB_NO_GPU"), Stream=Stream,
    ExternalStream=ExternalStream, stream=stream, CUDAGraph=CUDAGraph, graph=graph,
    set_stream=set_stream, default_stream=Stream, current_stream=lambda: state.current,
    synchronize=lambda: None, empty_cache=lambda: None)
