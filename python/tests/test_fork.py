"""A child forked after CUDA was used is refused before it asks for memory.  Here without a
GPU: the library makes CPU contexts where CUDA's are asked for, and stand-ins for CUDA tensors
hold CPU tensors.  test_cuda.py has the case itself."""

import pytest

import stand_in
from test_package import python

BEGIN = """
import os, torch, tileglu
from tileglu import _core, _ops
torch._C._cuda_getCurrentRawStream = lambda index: 0
_ops._setup(exchange=None)  # tensors are read by their attributes
made = []

class OnCuda:
    is_cpu, is_cuda = False, True
    def __init__(self, tensor):
        self.tensor = tensor
    def __getattr__(self, name):
        return getattr(self.tensor, name)
    def get_device(self):
        return 0
    def new_empty_strided(self, size, stride):
        made.append(size)
        return self.tensor.new_empty_strided(size, stride)

x, w = torch.randn(3, 8), torch.randn(4, 8)
want = torch.nn.functional.silu(x @ w.T) * (x @ w.T)

def call(x=x, w=w):
    return _core.call(0, x, w, w, *(None,) * 7, "silu", None, None, None, None)

def on_cuda(x=x):
    return call(OnCuda(x), OnCuda(w))

def to_be_copied():
    return on_cuda(x.t().contiguous().t())

def right(out):
    return torch.allclose(out, want, atol=1e-5)

def refused():
    made.clear()
    for function in (on_cuda, to_be_copied, lambda: tileglu.device_info("cuda:0")):
        try:
            function()
            return False
        except tileglu.Error as error:
            text = str(error)
            if not (text.startswith("TGLU_ERR_FORKED: ") and "fork" in text and "spawn" in text):
                return False
    return not made and right(call())

def in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@pytest.fixture(name="folder", scope="module")
def a_folder(tmp_path_factory):
    return stand_in.build(tmp_path_factory.mktemp("cpu_for_cuda"))


def test_a_child_forked_after_use_is_refused(folder):
    python(BEGIN + """
assert right(on_cuda()) and made, "the stand-ins do not stand in"
assert to_be_copied() is NotImplemented
assert in_child(refused)
assert in_child(lambda: in_child(refused)), "a child of the child"
tileglu.configure("cuda:0")  # has no context now, but had one
assert in_child(refused)
made.clear()
assert right(on_cuda()) and made, "the parent goes on"
""", folder)


def test_a_child_forked_before_use_is_not(folder):
    python(BEGIN + """
assert right(call()) and in_child(lambda: right(on_cuda()) and made)
tileglu.configure("cuda:0")
assert in_child(lambda: in_child(lambda: right(on_cuda())))
""", folder)
