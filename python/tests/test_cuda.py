"""glu and mlp on a Hopper GPU: streams, graphs, compilers, devices, and values.

Skipped where torch has no CUDA or tileglu no kernel for the device.  To run it elsewhere
than it was built: docs/python.md, "On another machine"."""

import itertools
import os
import shutil
import subprocess
import sys

import pytest
import torch

import tileglu
from support import (ACTIVATIONS, LAYOUTS, Problem, assert_close, merge, poisoned,
                     run_threads, skip_without_gpu)
from tileglu import _core

DTYPES = (torch.bfloat16, torch.float16)

skip_without_gpu()


@pytest.fixture(autouse=True)
def nan_in_new_memory(request):
    # Filling is not part of a graph's first call, and not of the quick way to a result, where
    # alone workspace is kept.
    if any(word in request.node.name for word in ("capture", "quick", "kept")):
        tileglu.clear_workspaces()
        yield
        torch.cuda.synchronize()
        return
    with poisoned():
        yield
    torch.cuda.synchronize()


def make(tokens, hidden, intermediate, dtype=torch.bfloat16, **options):
    return Problem(tokens, hidden, intermediate, dtype, device="cuda", **options)


# ---- values ----

@pytest.mark.parametrize("dtype, layout, activation",
                         list(itertools.product(DTYPES, LAYOUTS, ACTIVATIONS)))
def test_values(dtype, layout, activation):
    for tokens, hidden, intermediate, bias in [(1, 256, 384, False), (3, 512, 1000, True),
                                               (17, 136, 200, True), (150, 576, 1536, True)]:
        problem = make(tokens, hidden, intermediate, dtype, bias=bias, seed=tokens)
        weights = problem.weights(layout)
        out = tileglu.glu(problem.x, activation=activation, **weights)
        assert_close(out, problem.glu(activation), hidden)
        down = {"down": problem.down, "down_bias": problem.down_bias}
        out = tileglu.mlp(problem.x, activation=activation, **weights, **down)
        assert_close(out, problem.mlp(activation), intermediate)
        out = tileglu.mlp(problem.x, residual=problem.residual, activation=activation,
                          **weights, **down)
        assert_close(out, problem.mlp(activation, residual=True), intermediate)


@pytest.mark.parametrize("tokens, hidden, intermediate",
                         [(1, 1, 1), (5, 33, 17), (2, 7, 130), (129, 65, 127)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_shapes(tokens, hidden, intermediate, layout):
    problem = make(tokens, hidden, intermediate, bias=True)
    out = tileglu.glu(problem.x, **problem.weights(layout))
    assert_close(out, problem.glu(), hidden)
    out = tileglu.mlp(problem.x, **problem.weights(layout), down=problem.down,
                      down_bias=problem.down_bias, residual=problem.residual)
    assert_close(out, problem.mlp(residual=True), intermediate)


@pytest.mark.parametrize("shape", [(), (4,), (2, 5), (0,), (2, 0, 3), (1, 3, 1, 2)])
def test_leading_dimensions(shape):
    flat = make(max(1, torch.Size(shape).numel()), 64, 48)
    x = flat.x.view(*shape, 64) if 0 not in shape else flat.x.new_empty(*shape, 64)
    h = tileglu.glu(x, flat.gate, flat.up)
    out = tileglu.mlp(x, flat.gate, flat.up, flat.down, residual=x)
    assert h.shape == (*shape, 48) and out.shape == x.shape and h.device == x.device
    if x.numel():
        assert torch.equal(h.view(-1, 48), tileglu.glu(flat.x, flat.gate, flat.up))


def test_activations_as_they_lie():
    problem = make((2, 5), 64, 48)
    want = tileglu.glu(problem.x, problem.gate, problem.up)
    wide = torch.full((2, 5, 80), float("nan"), dtype=problem.dtype, device="cuda")
    for first in (8, 1):  # aligned, and not
        wide.fill_(float("nan"))[..., first:first + 64] = problem.x
        out = tileglu.glu(wide[..., first:first + 64], problem.gate, problem.up)
        torch.testing.assert_close(out, want, rtol=2 ** -7, atol=1e-3)
    turned = problem.x.transpose(0, 1)
    out = tileglu.glu(turned, problem.gate, problem.up)
    assert out.shape == (5, 2, 48) and out.is_contiguous()
    torch.testing.assert_close(out.transpose(0, 1), want, rtol=2 ** -7, atol=1e-3)
    scattered = problem.x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert scattered.stride(-1) == 10 and torch.equal(scattered, problem.x)
    assert torch.equal(tileglu.glu(scattered, problem.gate, problem.up), want)


def test_float32_is_refused_by_name():
    problem = make(4, 64, 48, torch.float32)
    with pytest.raises(tileglu.Error, match="f32 is served by the cpu backend only"):
        tileglu.glu(problem.x, problem.gate, problem.up)


def test_mixed_devices_are_refused_by_name():
    problem = make(4, 64, 48)
    with pytest.raises(ValueError, match="gate: is on cpu and x is on cuda:0"):
        tileglu.glu(problem.x, problem.gate.cpu(), problem.up)
    with pytest.raises(ValueError, match="gate: is on cuda:0 and x is on cpu"):
        tileglu.glu(problem.x.cpu().pin_memory(), problem.gate, problem.up)


# ---- memory ----

def test_nothing_is_copied():
    problem = make(64, 1024, 2816)
    problem.x = problem.x.view(4, 16, 1024)
    gate_up = torch.cat([problem.gate, problem.up])
    tileglu.mlp(problem.x, gate_up=gate_up, down=problem.down)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = tileglu.mlp(problem.x, gate_up=gate_up, down=problem.down)
    grown = torch.cuda.max_memory_allocated() - before
    activations = out.nbytes + 64 * 2816 * 2
    assert grown < gate_up.nbytes // 2, f"{grown} bytes, {activations} for the activations"


@pytest.mark.parametrize("inference", [False, True])
def test_quick_memory_and_that_workspace_is_given_back(inference):
    problem = make(16, 1024, 2816)
    want = problem.mlp().cpu()
    with torch.inference_mode(inference):
        like = torch.empty_like(problem.x)
        before = torch.cuda.memory_allocated()
        grown = like.clone()
        of_a_result = torch.cuda.memory_allocated() - before
        del grown
        for _ in range(20):
            out = tileglu.mlp(problem.x, problem.gate, problem.up, problem.down)
            sizes = [size for *_, size in _core.workspaces()]
            assert len(sizes) <= 1 and sum(sizes) <= 4 << 20
            assert torch.cuda.memory_allocated() - before == of_a_result + sum(sizes)
            assert out.stride() == like.stride() and out.is_inference() == inference
        assert_close(out.cpu(), want, 2816)
        del out
        tileglu.clear_workspaces()
        assert torch.cuda.memory_allocated() == before


def test_weights_changed_in_place_and_memory_used_again():
    seen, reused = set(), 0
    for seed in range(20):
        problem = make(16, 512, 1024, seed=seed)
        reused += problem.gate.data_ptr() in seen
        seen.add(problem.gate.data_ptr())
        for _ in range(2):
            problem.gate.mul_(-1.5)
            problem.up.add_(0.125)
            assert_close(tileglu.glu(problem.x, problem.gate, problem.up), problem.glu(), 512)
        del problem
    assert reused > 0, "no address came back: nothing was tested"


# ---- workspace kept between eager calls (test_workspace.py has the rules) ----

KEEPS = hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and hasattr(
    torch._C, "_cuda_beginAllocateCurrentThreadToPool")
needs_kept = pytest.mark.skipif(not KEEPS, reason="skipped: nothing is kept with this torch")


def kept():
    """{stream: bytes} of cuda:0."""
    return {stream: size for device, stream, size in _core.workspaces() if device == 0}


def mlp(problem, rows=None):
    return tileglu.mlp(problem.x[:rows], problem.gate, problem.up, problem.down)


def requested():
    """Bytes that live tensors and workspaces asked for, without the allocator's rounding."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


@needs_kept
def test_kept_grows_and_is_let_go():
    problem = make(64, 512, 14336)
    wants = {rows: problem.mlp()[:rows] for rows in (1, 4, 16, 64)}
    before, sizes = (torch.cuda.memory_allocated(), requested()), []
    for rows in (1, 4, 64, 16, 1, 64):
        assert_close(mlp(problem, rows), wants[rows], 14336)
        sizes.append(kept()[0])
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1] <= 4 << 20
    assert sizes[-1] >= 64 * 14336 * 2 and len(kept()) == 1
    assert requested() - before[1] == sizes[-1]
    tileglu.clear_workspaces()
    assert (torch.cuda.memory_allocated(), requested()) == before and not kept()


@needs_kept
def test_kept_up_to_a_size():
    problem = make(300, 256, 14336)  # 8.6 MB
    want, before = problem.mlp(), requested()
    assert_close(mlp(problem), want, 14336)
    assert not kept() and requested() == before
    assert_close(mlp(problem, 1), want[:1], 14336)
    assert kept() and requested() - before == kept()[0]


@needs_kept
def test_kept_by_two_streams_at_once():
    problems = [make(16, 512, 4096, seed=seed) for seed in range(2)]
    streams = [torch.cuda.Stream() for _ in problems]
    wants = [mlp(problem) for problem in problems]
    torch.cuda.synchronize()
    outs = ([], [])
    for _ in range(200):
        for problem, stream, out in zip(problems, streams, outs):
            with torch.cuda.stream(stream):
                out.append(mlp(problem))
    torch.cuda.synchronize()
    assert set(kept()) >= {stream.cuda_stream for stream in streams}
    for out, want in zip(outs, wants):
        assert all(torch.equal(one, want) for one in out)


@needs_kept
def test_kept_memory_is_the_streams():
    """What is let go while the device still works on it goes to the stream's own next."""
    problem, stream = make(16, 512, 4096), torch.cuda.Stream()
    want = mlp(problem)
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(stream):
            busy(2_000_000)
            out = mlp(problem)
            size = kept()[stream.cuda_stream]
        tileglu.clear_workspaces()  # the default stream is current
        others = [torch.full((size // 2,), float("nan"), device="cuda", dtype=torch.bfloat16)
                  for _ in range(8)]
        torch.cuda.synchronize()
        assert torch.equal(out, want)
        del others


@needs_kept
def test_kept_and_threads_on_one_stream():
    problems = [make(16, 512, 4096, seed=seed) for seed in range(4)]
    wants = [mlp(problem) for problem in problems]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    def work(index):
        with torch.cuda.stream(stream):
            outs = [mlp(problems[index]) for _ in range(300)]
            stream.synchronize()
        assert all(torch.equal(out, wants[index]) for out in outs), "another result"

    run_threads(work)
    assert set(kept()) == {0, stream.cuda_stream}


@needs_kept
def test_kept_is_not_what_a_capture_takes():
    """A graph replayed on another stream while eager calls run shares nothing with them."""
    first, second = make(16, 512, 4096), make(16, 512, 4096, seed=1)
    side, want, other = torch.cuda.Stream(), mlp(first), mlp(second)
    with torch.cuda.stream(side):
        mlp(first)
    torch.cuda.synchronize()
    before = kept()
    assert set(before) == {0, side.cuda_stream}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):  # has one kept of its own
        captured = mlp(first)
    assert kept() == before
    for stream in (torch.cuda.Stream(), torch.cuda.current_stream()):
        for _ in range(100):
            captured.zero_()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                graph.replay()
            with torch.cuda.stream(side):
                outs = [mlp(second) for _ in range(3)]
            outs += [mlp(second) for _ in range(3)]
            torch.cuda.synchronize()
            assert torch.equal(captured, want)
            assert all(torch.equal(out, other) for out in outs)
    tileglu.clear_workspaces()
    torch.cuda.empty_cache()
    captured.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, want)


@needs_kept
def test_kept_outside_pools():
    """A pool that this thread's memory is routed into gets nothing that stays."""
    problem, pool = make(16, 512, 4096), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        out = mlp(problem)
        assert kept()
    used = sum(block["size"] for segment in torch.cuda.memory_snapshot()
               if tuple(segment["segment_pool_id"]) == tuple(pool.id)
               for block in segment["blocks"] if block["state"] == "active_allocated")
    assert out.nbytes <= used < kept()[0], f"{used} bytes of the pool are in use"
    assert_close(out, problem.mlp(), 4096)
    del out


@needs_kept
def test_kept_and_compiled_code_in_graphs():
    """The warm-up of compiled code's graphs runs eagerly, with a pool that must not grow."""
    pytest.importorskip("triton", reason="skipped: no triton for the inductor")
    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("skipped: no C compiler for triton")
    torch._dynamo.reset()
    problem = make(16, 512, 4096)
    with torch.library._scoped_library("tileglu_test", "DEF") as library, torch.no_grad():
        library.define("inside(Tensor x) -> Tensor")
        library.impl("inside", lambda x: tileglu.mlp(x, problem.gate, problem.up, problem.down),
                     "CUDA")
        torch.library.register_fake("tileglu_test::inside", torch.empty_like, lib=library)
        compiled = torch.compile(lambda x: torch.ops.tileglu_test.inside(x * 2) + 1,
                                 fullgraph=True, mode="reduce-overhead")
        want = tileglu.mlp(problem.x * 2, problem.gate, problem.up, problem.down) + 1
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(compiled(problem.x), want, rtol=2 ** -6, atol=2 ** -6)
            assert torch.equal(tileglu.mlp(problem.x * 2, problem.gate, problem.up,
                                           problem.down) + 1, want)
    torch._dynamo.reset()


# ---- streams ----

def busy(cycles=20_000_000):
    """Some ten milliseconds of nothing on the current stream."""
    torch.cuda._sleep(cycles)


def test_the_current_stream_orders_the_work():
    problem = make(32, 512, 1024)
    want = tileglu.mlp(problem.x, problem.gate, problem.up, problem.down)
    late = torch.zeros_like(problem.x)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        busy()
        late.copy_(problem.x)
        out = tileglu.mlp(late, problem.gate, problem.up, problem.down)
        assert not stream.query(), "the call waited for the device"
        done = out.clone()
    stream.synchronize()
    assert torch.equal(done, want)


def test_two_streams_and_threads_at_once():
    problems = [make(8 + 3 * i, 512, 768, seed=i) for i in range(4)]
    wants = [tileglu.mlp(p.x, p.gate, p.up, p.down) for p in problems]
    torch.cuda.synchronize()

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(50):
                p, want = problems[(index + i) % 4], wants[(index + i) % 4]
                assert torch.equal(tileglu.mlp(p.x, p.gate, p.up, p.down), want), f"round {i}"

    tileglu.cache_limit(2)
    try:
        run_threads(work)
    finally:
        tileglu.cache_limit(4096)


# ---- CUDA graphs ----

def test_capture_of_the_very_first_call():
    problem = make(16, 768, 1280)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    tileglu.cache_clear()
    with torch.cuda.graph(graph):
        h = tileglu.glu(problem.x, problem.gate, problem.up)
        out = tileglu.mlp(problem.x, problem.gate, problem.up, problem.down, residual=problem.x)
    tileglu.cache_clear()  # the graph keeps what it needs
    for seed in range(3):
        problem.x.copy_(make(16, 768, 1280, seed=seed + 5).x)
        problem.gate.mul_(-1.25)
        problem.residual.copy_(problem.x)
        graph.replay()
        assert_close(h, problem.glu(), 768)
        assert_close(out, problem.mlp(residual=True), 1280)


def test_capture_of_a_compiled_module():
    pytest.importorskip("triton", reason="skipped: no triton for the inductor")
    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("skipped: no C compiler for triton")
    torch._dynamo.reset()
    module = tileglu.MLP(512, 1024, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    compiled = torch.compile(lambda x: module(x * 2, x) + 1, fullgraph=True,
                             mode="reduce-overhead")
    for tokens in (4, 4, 4, 9, 9, 9):
        x = torch.randn(tokens, 512, device="cuda", dtype=torch.bfloat16)
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(x), module(x * 2, x) + 1, rtol=2 ** -6, atol=2 ** -6)


# ---- the dispatcher ----

def test_compile_with_any_token_count():
    torch._dynamo.reset()
    problem = make(1, 256, 384)
    compiled = torch.compile(
        lambda x: tileglu.mlp(x * 2, problem.gate, problem.up, problem.down, residual=x),
        fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (3, 8, 130):
        x = torch.randn(tokens, 256, device="cuda", dtype=torch.bfloat16)
        assert torch.equal(compiled(x), tileglu.mlp(x * 2, problem.gate, problem.up,
                                                    problem.down, residual=x))


def test_opcheck():
    problem = make((2, 5), 64, 2880, bias=True)
    torch.library.opcheck(torch.ops.tileglu.glu.default, (problem.x, problem.gate, problem.up))
    torch.library.opcheck(torch.ops.tileglu.mlp.default, (problem.x,),
                          {**problem.weights("interleaved"), "down": problem.down,
                           "down_bias": problem.down_bias, "residual": problem.residual})


def test_eager_way_and_operator_agree():
    problem = make(5, 256, 384)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(tileglu.mlp(problem.x, problem.gate, problem.up, problem.down),
                               torch.ops.tileglu.mlp(problem.x, problem.gate, problem.up,
                                                     problem.down))
    with pytest.raises(RuntimeError, match="no backward pass"):
        tileglu.glu(problem.x.clone().requires_grad_(), problem.gate, problem.up)


@pytest.mark.parametrize("x_type, weight_type", [
    (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32),
    (torch.float16, torch.bfloat16), (torch.float32, torch.float32)])
def test_autocast(x_type, weight_type):
    problem = make(6, 128, 192)
    x, gate, up = (problem.x.to(x_type), problem.gate.to(weight_type),
                   problem.up.to(weight_type))
    for region in DTYPES:
        with torch.autocast("cuda", region):
            out = tileglu.glu(x, gate, up)
        want = tileglu.glu(x.to(region), gate.to(region), up.to(region))
        assert out.dtype is region and torch.equal(out, want)
    if x_type is not weight_type:
        with pytest.raises(TypeError, match=f"gate: is {weight_type} and x is {x_type}"):
            tileglu.glu(x, gate, up)


# ---- devices, processes, options ----

def test_another_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("skipped: one CUDA device")
    problem = make(16, 256, 384)
    want = tileglu.mlp(problem.x, problem.gate, problem.up, problem.down)
    moved = [tensor.to("cuda:1") for tensor in (problem.x, problem.gate, problem.up,
                                                problem.down)]
    assert torch.cuda.current_device() == 0
    out = tileglu.mlp(*moved)
    assert out.device.index == 1 and torch.equal(out.cpu(), want.cpu())
    with torch.cuda.device(1), torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(tileglu.mlp(*moved).cpu(), want.cpu())
        assert torch.equal(tileglu.mlp(problem.x, problem.gate, problem.up,
                                       problem.down).cpu(), want.cpu())
    assert torch.cuda.current_device() == 0


def child(code):
    folder = os.path.dirname(os.path.dirname(tileglu.__file__))
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            timeout=300, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout.strip()


def test_import_leaves_the_driver_alone_and_a_forked_child_can_use_it():
    assert child("""
import ctypes, os, sys, tileglu, torch
tileglu.device_info("cpu")
x, w = torch.randn(3, 8), torch.randn(4, 8)
tileglu.glu(x, w, w)
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 3, "the driver was started"
pid = os.fork()
if pid == 0:
    x, w = torch.randn(3, 64).cuda().bfloat16(), torch.randn(48, 64).cuda().bfloat16()
    os._exit(0 if tileglu.glu(x, w, w).isfinite().all() else 1)
print(os.waitpid(pid, 0)[1])
""") == "0"


def test_a_child_forked_after_use_gets_an_error():
    assert child("""
import os, torch, tileglu
x, w = torch.randn(3, 64).cuda().bfloat16(), torch.randn(48, 64).cuda().bfloat16()
tileglu.glu(x, w, w)
torch.cuda.synchronize()
pid = os.fork()
if pid == 0:
    try:
        tileglu.glu(x, w, w)
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error).lower() else 3)
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""") == "0"


def test_batch_invariant():
    problem = make(200, 512, 768)
    try:
        tileglu.configure("cuda:0", batch_invariant=True)
        whole = tileglu.mlp(problem.x, problem.gate, problem.up, problem.down)
        for tokens in (1, 2, 16, 65, 130):
            part = tileglu.mlp(problem.x[:tokens], problem.gate, problem.up, problem.down)
            assert torch.equal(part, whole[:tokens]), tokens
    finally:
        tileglu.configure("cuda:0")
    assert_close(tileglu.glu(problem.x, problem.gate, problem.up), problem.glu(), 512)


def test_stacked_views_and_explain():
    problem = make(8, 512, 768)
    gate_up = merge(problem.gate, problem.up, "stacked_gate_first")
    gate, up = gate_up.chunk(2)
    assert torch.equal(tileglu.glu(problem.x, gate, up), tileglu.glu(problem.x, gate_up=gate_up))
    assert "sm90" in tileglu.explain(problem.x, gate, up)
    assert "sm90" in tileglu.plan(8, gate, up)["row"]
    assert tileglu.device_info("cuda")["compute_capability"] == 90
