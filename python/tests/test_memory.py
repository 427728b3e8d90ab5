"""Where results and workspace come from: torch's quick ways, and what happens where they are
missing, refuse or give something else."""

import pytest
import torch
import torch.utils._python_dispatch

import tileglu
from stand_in import Table
from support import Problem, assert_close, poisoned
from tileglu import _ops

TABLE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
needs_table = pytest.mark.skipif(TABLE is None,
                                 reason="skipped: this torch has no table of DLPack functions")
SIZES = [(3, 24, 40), (0, 24, 40), ((2, 1, 3), 16, 32), ((), 16, 32), (1, 1, 1)]


@pytest.fixture(autouse=True)
def as_before():
    yield
    _ops._setup()


class Quick:
    """torch's function for compiled code, counted; or what is given instead."""

    def __init__(self, instead=None):
        self.calls, self.instead = 0, instead

    def __call__(self, sizes, strides, dtype):
        self.calls += 1
        if self.instead:
            return self.instead(sizes, strides, dtype)
        return torch._C._dynamo.guards._empty_strided_cpu(sizes, strides, dtype)


def check(problem):
    """Both functions, and that their results are what torch's own functions give."""
    for name, want, arguments in [
            ("glu", problem.glu(), {}), ("mlp", problem.mlp(), {"down": problem.down})]:
        out = getattr(tileglu, name)(problem.x, problem.gate, problem.up, **arguments)
        assert out.shape == want.shape
        if out.numel() > 0:
            assert_close(out, want, 64)
        like = problem.x.new_empty(want.shape)
        assert type(out) is torch.Tensor and out.dtype == like.dtype
        assert out.stride() == like.stride() and out.storage_offset() == 0
        assert out.untyped_storage().nbytes() == like.untyped_storage().nbytes()
        assert out.is_inference() == torch.is_inference_mode_enabled()
        assert out.is_leaf and not out.requires_grad and out._base is None
        assert out.is_inference() or out._version == 0


@needs_table
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_results_of_the_quick_way(size, inference):
    quick = Quick()
    _ops._setup(empty_cpu=quick)
    problem = Problem(*size, dtype=torch.bfloat16)
    with torch.inference_mode(inference):
        check(problem)
        assert quick.calls == 2
        check(problem)  # sizes kept from the call before
    assert quick.calls == 4


class Watcher(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_quick_only_where_nothing_could_tell():
    quick, problem = Quick(), Problem(3, 24, 40)
    _ops._setup(empty_cpu=quick)
    with torch.inference_mode():  # else autograd's kernel tries the eager way
        torch.ops.tileglu.glu(problem.x, problem.gate, problem.up)
    with poisoned():  # torch fills new tensors
        check(problem)
    with Watcher():
        tileglu.glu(problem.x, problem.gate, problem.up)
    _ops._setup(empty_cpu=quick, deterministic=None)
    check(problem)
    _ops._setup(empty_cpu=quick, exchange=None)
    check(problem)
    _ops._setup(empty_cpu=None)
    check(problem)
    assert quick.calls == 0


def fail(*_):
    raise ValueError("no")


@needs_table
@pytest.mark.parametrize("instead", [
    fail, lambda *_: None,
    lambda sizes, strides, dtype: torch.empty(sizes, dtype=torch.float64),
    lambda sizes, strides, dtype: torch.empty(sizes, dtype=dtype, device="meta")])
def test_a_quick_way_that_gives_something_else(instead):
    quick = Quick(instead)
    _ops._setup(empty_cpu=quick)
    check(Problem(3, 24, 40))
    assert quick.calls == 2


# ---- workspace from DLPack's table ----

@needs_table
def test_workspace_is_given_back():
    table = Table()
    _ops._setup(exchange=table.capsule)
    check(Problem(3, 24, 40))
    assert len(table.asked) == 1 and table.asked[0] >= 3 * 40, "the mlp's, and H fits into it"
    assert table.live == 0
    check(Problem(0, 24, 40))
    assert len(table.asked) == 1, "no tokens, no workspace"
    problem = Problem(3, 24, 40, torch.bfloat16)
    torch.ops.tileglu.mlp(problem.x, problem.gate, problem.up, problem.down)
    assert len(table.asked) == 2 and table.live == 0


@needs_table
@pytest.mark.parametrize("lie", [{"fails": True}, {"device_type": 2}, {"device_id": 1},
                                 {"data": None}, {"major": 2}, {"byte_offset": 64}], ids=str)
def test_workspace_that_is_refused_or_something_else(lie):
    table = Table(**lie)
    _ops._setup(exchange=table.capsule)
    check(Problem(3, 24, 40))
    assert len(table.asked) == 1 and table.live == 0
