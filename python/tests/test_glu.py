"""Values of glu and mlp on the CPU: types, layouts, activations, biases, and every way in
which a tensor can lie in memory."""

import itertools

import pytest
import torch

import tileglu
from support import ACTIVATIONS, BITS, LAYOUTS, Problem, assert_close, merge, poisoned
from tileglu import _ops

DTYPES = tuple(BITS)


@pytest.fixture(autouse=True)
def nan_in_new_memory():
    with poisoned():
        yield


@pytest.fixture(params=["dlpack", "attributes"])
def each_reader(request):
    """Both ways in which C reads a tensor; torch before 2.10 or so has but one."""
    if request.param == "attributes":
        assert _ops._setup(exchange=None) is True
    elif not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("skipped: this torch has no table of DLPack functions")
    yield
    _ops._setup()


@pytest.mark.parametrize("dtype, layout, activation",
                         list(itertools.product(DTYPES, LAYOUTS, ACTIVATIONS)))
def test_values(dtype, layout, activation):
    for tokens, hidden, intermediate, bias in [(7, 96, 40, False), (1, 33, 17, True),
                                               (35, 64, 130, True)]:
        problem = Problem(tokens, hidden, intermediate, dtype, bias, seed=tokens)
        weights = problem.weights(layout)
        out = tileglu.glu(problem.x, activation=activation, **weights)
        assert_close(out, problem.glu(activation), hidden)
        down = {"down": problem.down, "down_bias": problem.down_bias}
        out = tileglu.mlp(problem.x, activation=activation, **weights, **down)
        assert_close(out, problem.mlp(activation), intermediate)
        out = tileglu.mlp(problem.x, residual=problem.residual, activation=activation,
                          **weights, **down)
        assert_close(out, problem.mlp(activation, residual=True), intermediate)


def test_swigluoai_numbers():
    problem = Problem(5, 64, 48)
    numbers = {"alpha": 1.5, "limit": 0.5, "offset": 0.25}
    out = tileglu.glu(problem.x, problem.gate, problem.up, activation="swigluoai", **numbers)
    assert_close(out, problem.glu("swigluoai", **numbers), 64)
    unlimited = {"alpha": 1.702, "limit": float("inf"), "offset": 0.0}
    out = tileglu.glu(problem.x, problem.gate, problem.up, activation="swigluoai", **unlimited)
    assert_close(out, problem.glu("swigluoai", **unlimited), 64)


@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 5), (2, 1, 3), (1, 1, 1, 4),
                                   (2,) * 13])
def test_leading_dimensions(shape):
    flat = Problem(max(1, torch.Size(shape).numel()), 24, 16, seed=3)
    x, residual = flat.x.view(*shape, 24), flat.residual.view(*shape, 24)
    out = tileglu.glu(x, flat.gate, flat.up)
    assert out.shape == (*shape, 16) and out.is_contiguous()
    assert torch.equal(out.view(-1, 16), tileglu.glu(flat.x, flat.gate, flat.up))
    out = tileglu.mlp(x, flat.gate, flat.up, flat.down, residual=residual)
    assert out.shape == x.shape and out.is_contiguous()
    assert torch.equal(out.view(-1, 24), tileglu.mlp(flat.x, flat.gate, flat.up, flat.down,
                                                     residual=flat.residual))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3), (2, 0, 3)])
def test_no_tokens(shape, each_reader):
    problem = Problem(1, 24, 16)
    x = torch.empty(*shape, 24)
    assert tileglu.glu(x, problem.gate, problem.up).shape == (*shape, 16)
    out = tileglu.mlp(x, problem.gate, problem.up, problem.down, residual=x)
    assert out.shape == x.shape


def test_no_intermediate():
    problem = Problem(3, 24, 0, bias=True)
    weights = problem.weights()
    assert tileglu.glu(problem.x, **weights).shape == (3, 0)
    scattered = torch.randn(24, 2, 3).permute(1, 2, 0)
    assert tileglu.glu(scattered, **weights).shape == (2, 3, 0)
    out = tileglu.mlp(problem.x, **weights, down=problem.down, down_bias=problem.down_bias,
                      residual=problem.residual)
    assert torch.equal(out, problem.residual + problem.down_bias)


def test_one_hidden_feature():
    problem = Problem(5, 1, 9)
    assert_close(tileglu.glu(problem.x, problem.gate, problem.up), problem.glu(), 1)
    wide = problem.x.expand(5, 4).contiguous()[:, ::4]  # one column, stride 4
    assert wide.stride() == (4, 4)
    assert torch.equal(tileglu.glu(wide, problem.gate, problem.up),
                       tileglu.glu(problem.x, problem.gate, problem.up))


def views_of(x):
    """Tensors equal to x [2, 5, K] that lie otherwise in memory."""
    wide = torch.full((2, 5, x.shape[-1] + 7), float("nan"), dtype=x.dtype)
    wide[..., 3:3 + x.shape[-1]] = x
    yield "rows apart", wide[..., 3:3 + x.shape[-1]]
    yield "batch apart", torch.stack([x, x * float("nan")], dim=1)[:, 0]
    yield "transposed", x.transpose(0, 1).contiguous().transpose(0, 1)
    yield "columns apart", torch.stack([x, x * float("nan")], dim=-1)[..., 0]
    yield "features first", x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    yield "offset by one element", torch.cat([x.new_ones(1), x.flatten()])[1:].view(x.shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_as_they_lie(dtype, each_reader):
    problem = Problem((2, 5), 64, 48, dtype)
    rest = (problem.gate, problem.up, problem.down)
    want = tileglu.mlp(problem.x, *rest, residual=problem.residual)
    count = 0
    for (name, x), (_, residual) in zip(views_of(problem.x), views_of(problem.residual)):
        assert torch.equal(x, problem.x)
        assert torch.equal(tileglu.mlp(x, *rest, residual=problem.residual), want), name
        assert torch.equal(tileglu.mlp(problem.x, *rest, residual=residual), want), name
        assert torch.equal(torch.ops.tileglu.mlp(x, *rest, residual=residual), want), name
        count += 1
    assert count == 6


def test_repeated_rows(each_reader):
    problem = Problem((2, 5), 64, 48)
    for x in (problem.x[:1].expand(3, 5, 64), problem.x[:, :1].expand(2, 4, 64),
              problem.x[0, :1].expand(6, 64)):
        assert torch.equal(tileglu.glu(x, problem.gate, problem.up),
                           tileglu.glu(x.contiguous(), problem.gate, problem.up))


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_as_they_lie(dtype, each_reader):
    problem = Problem(5, 64, 48, dtype)
    want = tileglu.mlp(problem.x, problem.gate, problem.up, problem.down)
    both = merge(problem.gate, problem.up, "stacked_gate_first")
    gate, up = both.chunk(2)
    assert torch.equal(tileglu.mlp(problem.x, gate, up, problem.down), want)
    wide = torch.full((96, 71), float("nan"), dtype=dtype)
    wide[:, 5:69] = both
    down = torch.full((64, 50), float("nan"), dtype=dtype)
    down[:, 1:49] = problem.down
    before = (wide.data_ptr(), down.data_ptr())
    out = tileglu.mlp(problem.x, gate_up=wide[:, 5:69], down=down[:, 1:49])
    assert torch.equal(out, want) and before == (wide.data_ptr(), down.data_ptr())


def test_weights_and_inputs_are_left_alone():
    problem = Problem((2, 3), 64, 48, bias=True)
    given = {**problem.weights(), "x": problem.x, "down": problem.down,
             "down_bias": problem.down_bias, "residual": problem.residual}
    kept = {name: tensor.clone() for name, tensor in given.items()}
    tileglu.mlp(**given)
    for name, tensor in given.items():
        assert torch.equal(tensor, kept[name]), name


@pytest.mark.parametrize("gate_bias, up_bias", [(True, False), (False, True)])
def test_each_bias_alone(gate_bias, up_bias):
    problem = Problem(4, 32, 24, bias=True)
    if not gate_bias:
        problem.gate_bias = None
    if not up_bias:
        problem.up_bias = None
    assert_close(tileglu.glu(problem.x, **problem.weights()), problem.glu(), 32)


def test_biases_reach_their_projection():
    """Zero weights: H is act(gate_bias) * up_bias, and the result adds down_bias once."""
    x, zero = torch.randn(2, 8), torch.zeros(3, 8)
    down = torch.randn(8, 3)
    out = tileglu.mlp(x, zero, zero, down, gate_bias=torch.full((3,), 2.0),
                      up_bias=torch.full((3,), -1.0), down_bias=torch.full((8,), 0.5))
    h = torch.full((2, 3), -1.7615942, dtype=torch.float64)
    assert_close(out, h @ down.double().T + 0.5, 8)
    for layout in LAYOUTS[1:]:
        bias = merge(torch.full((3,), 2.0), torch.full((3,), -1.0), layout)
        both = tileglu.mlp(x, gate_up=merge(zero, zero, layout), layout=layout, down=down,
                           gate_up_bias=bias, down_bias=torch.full((8,), 0.5))
        assert torch.equal(both, out), layout


def test_nan_and_infinity_pass():
    problem = Problem(3, 16, 8)
    problem.x[1, 4] = float("nan")
    out = tileglu.glu(problem.x, problem.gate, problem.up)
    assert out[1].isnan().all() and out[0].isfinite().all() and out[2].isfinite().all()
