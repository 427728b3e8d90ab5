"""The cache of bound weights: a hit is right whatever happened to the tensors, and it
does not grow."""

import os

import pytest
import torch

import tileglu
from support import Problem, run_threads


@pytest.fixture(autouse=True)
def fresh_cache():
    tileglu.cache_clear()
    yield
    tileglu.cache_limit(4096)


def test_hits_and_bound():
    start = tileglu.cache_info()
    assert start["entries"] == 0 and start["limit"] == 4096
    p = Problem(3, 24, 16)
    for _ in range(5):
        tileglu.glu(p.x, p.gate, p.up)
        tileglu.mlp(p.x, p.gate, p.up, p.down)
    info = tileglu.cache_info()
    assert info["entries"] == 2
    assert info["misses"] - start["misses"] == 2 and info["hits"] - start["hits"] == 8
    tileglu.cache_limit(3)
    problems = [Problem(3, 24, 16, seed=seed) for seed in range(10)]
    for p in problems + problems[::-1]:
        tileglu.glu(p.x, p.gate, p.up)
        assert tileglu.cache_info()["entries"] <= 3
    with pytest.raises(ValueError, match="limit: 0 is below 1"):
        tileglu.cache_limit(0)


def test_least_recently_used_goes_first():
    tileglu.cache_limit(2)
    a, b, c = (Problem(3, 24, 16, seed=seed) for seed in range(3))
    for p in (a, b, a, c, a):  # b goes when c comes
        tileglu.glu(p.x, p.gate, p.up)
    before = tileglu.cache_info()["misses"]
    tileglu.glu(a.x, a.gate, a.up)
    assert tileglu.cache_info()["misses"] == before
    tileglu.glu(b.x, b.gate, b.up)
    assert tileglu.cache_info()["misses"] == before + 1


def test_a_weight_changed_in_place_counts():
    p = Problem(3, 24, 16)
    tileglu.glu(p.x, p.gate, p.up)
    p.gate.copy_(torch.randn(16, 24))
    p.up.mul_(3)
    assert torch.equal(tileglu.glu(p.x, p.gate, p.up),
                       tileglu.glu(p.x, p.gate.clone(), p.up.clone()))


def test_a_pointer_used_again():
    """The same memory as tensors of other shapes, strides, types and roles."""
    memory = torch.randn(6 * 16 * 24)
    other = torch.randn(6 * 16 * 24)
    seen = set()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for n, k, ld in [(16, 24, 24), (24, 16, 16), (16, 24, 32), (12, 8, 24)]:
            gate, up = (m.to(dtype).clone() if dtype is not torch.float32 else m
                        for m in (memory, other))
            gate, up = (m.as_strided((n, k), (ld, 1)) for m in (gate, up))
            seen.add(gate.data_ptr())
            x = torch.randn(5, k).to(dtype)
            for activation in ("silu", "relu"):
                out = tileglu.glu(x, gate, up, activation=activation)
                want = tileglu.glu(x, gate.contiguous().clone(), up.contiguous().clone(),
                                   activation=activation)
                assert torch.equal(out, want)
                assert torch.equal(tileglu.glu(x, up, gate, activation=activation),
                                   tileglu.glu(x, up.clone(), gate.clone(),
                                               activation=activation))
    assert memory.data_ptr() in seen


def test_a_freed_pointer_used_again():
    reused, addresses = 0, set()
    for seed in range(40):
        p = Problem(3, 64, 48, seed=seed)
        reused += p.gate.data_ptr() in addresses
        addresses.add(p.gate.data_ptr())
        out = tileglu.glu(p.x, p.gate, p.up)
        assert (out.double() - p.glu()).norm() < 1e-5 * p.glu().norm()
        del p, out
    assert reused > 0, "no address came back: nothing was tested"


def test_data_replaced_under_a_parameter():
    parameter = torch.nn.Parameter(torch.randn(16, 24), requires_grad=False)
    x, up = torch.randn(3, 24), torch.randn(16, 24)
    tileglu.glu(x, parameter, up)
    parameter.data = torch.randn(16, 24)
    assert torch.equal(tileglu.glu(x, parameter, up), tileglu.glu(x, parameter.clone(), up))


def test_threads_at_once_with_a_small_cache():
    """Objects are dropped and made again while other threads run them."""
    tileglu.cache_limit(2)
    problems = [Problem(4, 64, 48, seed=seed) for seed in range(6)]
    wants = [tileglu.mlp(p.x, p.gate, p.up, p.down) for p in problems]

    def work(first):
        for i in range(60):
            p, want = problems[(first + i) % 6], wants[(first + i) % 6]
            assert torch.equal(tileglu.mlp(p.x, p.gate, p.up, p.down), want), f"round {i}"

    def clear():
        for _ in range(50):
            tileglu.cache_clear()

    run_threads(work, meanwhile=clear)
    assert tileglu.cache_info()["entries"] <= 2


REFUSED = [
    ({"threads": -1}, ValueError, "threads: -1 is not between"),
    ({"threads": 2 ** 40}, ValueError, "threads: 1099511627776"),
    ({"threads": 1.5}, TypeError, "threads: is a float"),
    ({"batch_invariant": 3}, ValueError, "batch_invariant: 3 is neither 0 nor 1"),
    ({"stable_weights": -1}, ValueError, "stable_weights: -1"),
    ({"row": 5}, TypeError, "row: is a int"),
    ({"thread": 1}, TypeError, "thread is none of threads"),
    ({"row": "nope"}, ValueError, 'row: the cpu backend has no "nope"'),
    ({"row": ""}, ValueError, "row: must not be empty"),
    ({"cpu_isa": "sse"}, ValueError, 'cpu_isa: "sse" is none of'),
]


def test_configure_applies_to_the_next_call():
    p = Problem(40, 64, 48)
    want = tileglu.glu(p.x, p.gate, p.up)
    try:
        tileglu.configure("cpu", threads=2)
        assert tileglu.device_info("cpu")["threads"] == 2
        assert torch.equal(tileglu.glu(p.x, p.gate, p.up), want)
        tileglu.configure("cpu", threads=1, cpu_isa="portable")
        assert tileglu.device_info("cpu")["cpu_isa"] == "portable"
        assert "portable" in tileglu.explain(p.x, p.gate, p.up)
        assert "portable" in tileglu.plan(4, p.gate, p.up)["row"]
        torch.testing.assert_close(tileglu.glu(p.x, p.gate, p.up), want)
        for options, kind, words in REFUSED:
            with pytest.raises(kind, match=words):
                tileglu.configure("cpu", **options)
        assert tileglu.device_info("cpu")["cpu_isa"] == "portable"  # nothing changed
        for options, kind, words in REFUSED[:7]:  # nor is a CUDA driver needed to see it
            with pytest.raises(kind, match=words):
                tileglu.configure("cuda:0", **options)
    finally:
        tileglu.configure("cpu", threads=1)
    assert torch.equal(tileglu.glu(p.x, p.gate, p.up), want)


def test_explain_and_plan():
    p = Problem((2, 5), 64, 48)
    text = tileglu.explain(p.x, p.gate, p.up, p.down, residual=p.residual)
    assert "glu_f32_" in text and "down_f32_" in text and "10 tokens" in text
    plan = tileglu.plan(10, p.gate, p.up, p.down)
    assert plan["row"].startswith("glu_f32_") and plan["down_row"].startswith("down_f32_")
    assert tileglu.plan(10, gate_up=torch.cat([p.gate, p.up]))["down_row"] is None
    assert tileglu.plan(0, p.gate, p.up)["row"] is None
    with pytest.raises(TypeError, match="gate, gate_up: one of them"):
        tileglu.plan(4)
    with pytest.raises(ValueError, match="up: has shape"):
        tileglu.explain(p.x, p.gate, p.down)


def test_a_forked_child_goes_on():
    p = Problem(3, 64, 48)
    want = tileglu.glu(p.x, p.gate, p.up)
    child = os.fork()
    if child == 0:
        same = torch.equal(tileglu.glu(p.x, p.gate, p.up), want)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
