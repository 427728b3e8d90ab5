"""What mlp's eager calls on CUDA keep of workspace, here without a GPU: each case is a process
with CUDA's stand-ins (stand_in.py).  test_cuda.py has the same on streams and graphs."""

import os
from pathlib import Path

import pytest
import torch

import stand_in
from test_package import python

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="skipped: this torch has no table of DLPack functions, and nothing is kept")

BEGIN = """
import ctypes, os, threading, torch, tileglu, stand_in
from tileglu import _core, _ops
torch.set_num_threads(1)
torch.set_grad_enabled(False)
KIB = 1024
cuda = stand_in.Cuda(os.environ["DRIVER"])
cuda.setup()
library = ctypes.CDLL(str(tileglu.library_path()))
wide = torch.randn(2048, 8), torch.randn(2048, 8), torch.randn(8, 2048)

def call(tokens=1, weights=wide, function=tileglu.mlp):
    "Checks the result; returns how often memory was asked for, as powers of two in KiB."
    x, before = torch.randn(tokens, 8), len(cuda.asked)
    gate, up, down = weights
    out = function(x, *weights)
    want = (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
    assert torch.allclose(out, want, rtol=1e-3, atol=1e-2), (out - want).abs().max()
    return [4 * elements // KIB for elements in cuda.asked[before:]]

def kept():
    return [(stream, size // KIB) for device, stream, size in _core.workspaces() if device == 0]
"""


@pytest.fixture(name="run", scope="module")
def processes(tmp_path_factory):
    folder = stand_in.build(tmp_path_factory.mktemp("workspace"))
    path = os.pathsep.join([str(folder), str(Path(__file__).parent),
                            os.environ.get("PYTHONPATH", "")])
    return lambda code, driver="libcuda.so.1": python(
        BEGIN + code, folder, PYTHONPATH=path, DRIVER=driver and str(folder / driver))


def test_one_is_kept_and_grows(run):
    run("""
assert call() == [64] and kept() == [(0, 64)], (cuda.asked, kept())
assert [call() for _ in range(5)] == [[]] * 5
thread, stream = cuda.threads[0]
assert thread != threading.get_ident() and stream == 0, "allocated by the calling thread"
assert call(64) == [1024] and kept() == [(0, 1024)]      # 64 x 2048 floats and slack
assert [call(64), call(1), call(33)] == [[], [], []] and cuda.live == 1
huge = torch.randn(20000, 8), torch.randn(20000, 8), torch.randn(8, 20000) / 50
for _ in range(2):                                       # above 4 MiB: as ever
    sizes = call(64, huge)
    assert len(sizes) == 1 and sizes[0] > 4096 and cuda.live == 1 and kept() == [(0, 1024)]
tileglu.clear_workspaces()
assert cuda.live == 0 and kept() == []
assert len(call(64, huge)) == 1 and kept() == []         # not even asked for
assert call(64) == [1024] and call(64) == []
assert tileglu.mlp(torch.randn(0, 8), *wide).shape == (0, 8)
for arguments in [(-1, 1), (64, 1), (0, 0), (0, (4 << 20) + 1)]:
    try:
        _core.reserve(*arguments)
    except ValueError:
        continue
    raise SystemError(arguments)
assert _core.reserve(0, 4 << 20) and kept() == [(0, 4096)]
assert not _core.reserve(0, 1) and cuda.live == 1
""")


def test_streams_have_their_own(run):
    run("""
cuda.set_stream(7)
assert call() == [64] and call() == [] and kept() == [(7, 64)]
assert cuda.threads[-1][1] == 7, "memory of another stream"
cuda.set_stream(0)
assert call() == [64] and cuda.live == 2 and sorted(kept()) == [(0, 64), (7, 64)]
for stream in (7, 0, 7):
    cuda.set_stream(stream)
    assert call() == []
for stream in range(1, 40):  # more than there are places: the first ones keep theirs
    cuda.set_stream(1000 + stream)
    assert len(call()) == 1
assert len(kept()) == 16 and cuda.live == 16
cuda.set_stream(7)
assert call() == []
cuda.set_stream(2000)
for i in range(1100):  # until others are long out of use
    if not call(): break
assert 900 < i < 1100 and len(kept()) == 16 and cuda.live == 16 and (2000, 64) in kept()
assert (0, 64) not in kept() and (7, 64) in kept(), "the least recently used goes"
""")


def test_two_threads_on_one_stream(run):
    run("""
inside, go, seen = threading.Event(), threading.Event(), []
def before():
    if threading.current_thread() is first:
        inside.set()
        assert go.wait(60)
hook = ctypes.CFUNCTYPE(None)(before)
first = threading.Thread(target=lambda: seen.append(call()))
assert call() == [64]
ctypes.c_void_p.in_dll(library, "before_run").value = ctypes.cast(hook, ctypes.c_void_p).value
first.start()
assert inside.wait(60)
sizes = call()  # the one kept is in use
assert len(sizes) == 1 and cuda.live == 1
go.set()
first.join()
assert len(seen) == 1 and call() == [] and kept() == [(0, 64)]

go.clear(), inside.clear()  # let go while a call uses it
first = threading.Thread(target=lambda: seen.append(call()))
first.start()
assert inside.wait(60)
tileglu.clear_workspaces()
assert cuda.live == 1, "given back under a running call"
go.set()
first.join()
assert len(seen) == 2 and cuda.live == 0 and kept() == []
assert call() == [64]
""")


def test_many_threads(run):
    run("""
failures = []
def work(seed):
    try:
        cuda.set_stream(seed % 3)
        for tokens in range(1, 40):
            call(1 + tokens * (seed + 1) % 60)
            if tokens % 13 == 0: tileglu.clear_workspaces()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures[0]
assert cuda.live == len(kept()) <= 3
call()
assert call() == []
tileglu.clear_workspaces()
assert cuda.live == 0
""")


def test_never_in_a_capture(run):
    run("""
cuda.capturing(1)
assert len(call()) == 1 and kept() == [] and cuda.live == 0
cuda.capturing(0)
assert call() == [64] and call() == []
for status, answer in [(1, 0), (2, 0), (0, 900)]:  # active, broken, and the driver cannot say
    cuda.capturing(status, answer)
    assert len(call()) == 1 and kept() == [(0, 64)] and cuda.live == 1
cuda.capturing(0)
assert call() == []
""")


def test_as_ever_where_torch_is_not_as_usual(run):
    run("""
def usual():
    torch.use_deterministic_algorithms(False)
    cuda.setup()

for unusual in [lambda: torch.use_deterministic_algorithms(True),  # new memory is filled
                lambda: cuda.setup(deterministic=None), lambda: cuda.setup(empty_cuda=None),
                lambda: cuda.setup(cuda_device=lambda: 1)]:  # another one is current
    unusual()
    assert len(call()) == 1 and cuda.live == 0 and kept() == []
    usual()
    assert call() == [64] and call() == []
    unusual()
    assert len(call()) == 1 and cuda.live == 1
    usual()
    tileglu.clear_workspaces()
cuda.setup(reserve=None)
assert len(call()) == 1 and cuda.live == 0 and kept() == []
""")


def test_only_the_eager_way_and_only_cuda(run):
    run("""
operator = lambda x, gate, up, down: _core.call(
    1, x, gate, up, None, down, *(None,) * 5, "silu", None, None, None, None)
assert len(call(function=operator)) == 1 and kept() == [] and cuda.live == 0
cuda.setup(exchange=torch.Tensor.__dlpack_c_exchange_api__,  # tensors are the CPU's now
           reserve=lambda *_: 1 / 0)
x = torch.randn(3, 8)
tileglu.mlp(x, *wide), tileglu.mlp(x, *wide)
assert _core.workspaces() == []
""")


def test_where_no_driver_is_loaded(run):
    run("""
assert len(call()) == 1 and kept() == [] and cuda.live == 0
assert "libcuda.so" not in open("/proc/self/maps").read()
""", driver="")


def test_refused_memory_is_not_asked_for_at_every_call(run):
    run("""
started = []
start = threading.Thread.start
threading.Thread.start = lambda thread: started.append(thread) or start(thread)
cuda.fails = True
for _ in range(3):  # torch makes a tensor then
    call()
assert len(started) == 1 and kept() == []
cuda.fails = False
assert len(call()) == 1 and kept() == [] and len(started) == 1
tileglu.clear_workspaces()
assert call() == [64] and len(started) == 2

def no_more(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = no_more
assert len(call(64)) == 1 and cuda.live == 1
tileglu.clear_workspaces()
assert len(call()) == 1 and kept() == []
threading.Thread.start = start
tileglu.clear_workspaces()
def broken(**_):
    raise RuntimeError("no such stream")
torch._C._cuda_setStream = broken
assert len(call()) == 1 and kept() == []

def interrupted(index, size):
    raise KeyboardInterrupt
tileglu.clear_workspaces()
cuda.setup(reserve=interrupted)
try:
    call()
    raise SystemError
except KeyboardInterrupt:
    pass
cuda.setup()
torch._C._cuda_setStream = cuda.set_stream
assert call() == [64]
""")


def test_forks_and_exits(run):
    run("""
call()
pid = os.fork()
if pid == 0:
    try:
        call()
    except tileglu.Error:
        tileglu.clear_workspaces()
        os._exit(0 if cuda.live == 1 and kept() == [] else 1)  # nothing of CUDA's was touched
    os._exit(2)
assert os.waitpid(pid, 0)[1] == 0
assert call() == [] and kept() == [(0, 64)]
import atexit
atexit.register(call)
atexit.register(call, 64)  # no thread can be started by then; what is kept goes with the process
""")
