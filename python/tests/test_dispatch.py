"""torch's machinery around the operators: the eager way and when it is left, autograd,
autocast, compilers, fakes, transforms."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tileglu
from support import Problem, merge
from tileglu import _ops

# N = 2880, which some libraries pad; x of three dimensions, none of a stray stride (H45).
WIDE = Problem((2, 5), 64, 2880, bias=True)
SMALL = Problem((2, 5), 24, 16)
GLU, MLP = torch.ops.tileglu.glu.default, torch.ops.tileglu.mlp.default


def call(x=SMALL.x, gate=SMALL.gate, **options):
    return tileglu.glu(x, gate, SMALL.up, **options)


WANT = call()


@pytest.fixture
def ops_called(monkeypatch):
    """Names of the operators that the public functions have called: empty after a call
    that took the eager way."""
    called = []
    for name in ("_glu_op", "_mlp_op"):
        def record(*args, _op=getattr(_ops, name), _name=name):
            called.append(_name)
            return _op(*args)
        monkeypatch.setattr(_ops, name, record)
    return called


# ---- the eager way ----

@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_eager_way(ops_called, mode):
    with mode():
        out = call()
        both = tileglu.mlp(SMALL.x, SMALL.gate, SMALL.up, SMALL.down, residual=SMALL.residual)
    assert torch.equal(out, WANT) and not ops_called
    assert torch.equal(both, MLP(SMALL.x, SMALL.gate, SMALL.up, SMALL.down, None, None, None,
                                 None, None, None, SMALL.residual))
    assert out.is_inference() == (mode is torch.inference_mode) and not out.requires_grad


def test_eager_way_with_parameters(ops_called):
    parameter = torch.nn.Parameter(SMALL.gate.clone())
    with torch.no_grad():
        out = call(gate=parameter)
    assert torch.equal(out, WANT) and type(out) is torch.Tensor and not ops_called


class SeesFunctions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


class SeesDispatch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [SeesFunctions, SeesDispatch])
def test_modes_see_the_operator(mode):
    with mode() as seeing:
        out = call()
    assert torch.equal(out, WANT) and GLU in seeing.seen


def test_subclasses_see_the_operator(ops_called):
    class Named(torch.Tensor):
        pass
    out = call(x=SMALL.x.as_subclass(Named))
    assert type(out) is Named and torch.equal(out.as_subclass(torch.Tensor), WANT)
    assert ops_called == ["_glu_op"]


def test_profiler_sees_the_operator():
    with torch.profiler.profile() as profile:
        call()
    assert "tileglu::glu" in [event.key for event in profile.key_averages()]


def test_tracers_see_the_operator():
    from torch.fx.experimental.proxy_tensor import make_fx
    traced = make_fx(lambda x: call(x))(SMALL.x)
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [GLU]
    assert torch.equal(traced(SMALL.x), WANT)
    symbolic = torch.fx.symbolic_trace(lambda x: call(x))
    assert torch.equal(symbolic(SMALL.x), WANT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(lambda x: call(x), (SMALL.x,))
        assert "tileglu::glu" in str(scripted.graph)
        assert torch.equal(scripted(SMALL.x), WANT)


def test_default_device_is_a_mode():
    with torch.device("cpu"):
        assert torch.equal(call(), WANT)


# ---- autograd ----

@pytest.mark.parametrize("name", ["x", "gate", "up", "down", "gate_bias", "up_bias",
                                  "down_bias", "residual"])
def test_a_gradient_is_refused(name):
    given = {"x": WIDE.x, **WIDE.weights(), "down": WIDE.down, "down_bias": WIDE.down_bias,
             "residual": WIDE.residual}
    given[name] = given[name].clone().requires_grad_()
    for function in (tileglu.mlp, torch.ops.tileglu.mlp):
        with pytest.raises(RuntimeError, match=r"tileglu.mlp has no backward pass.*no_grad"):
            function(**given)
        with torch.no_grad():
            want = function(**given)
        with torch.inference_mode():
            assert torch.equal(function(**given), want)


def test_function_transforms():
    with pytest.raises(RuntimeError, match="tileglu.glu has no backward pass"):
        torch.func.grad(lambda x: call(x).sum())(SMALL.x)
    with pytest.raises(RuntimeError, match="tileglu.glu has no forward derivative"):
        torch.func.jvp(call, (SMALL.x,), (SMALL.x,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no batching rule: torch loops, and says so
        torch.testing.assert_close(torch.func.vmap(call)(SMALL.x), WANT)


def test_forward_derivatives():
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="no forward derivative"):
            call(forward_ad.make_dual(SMALL.x, SMALL.x))
        assert torch.equal(call(), WANT)
        assert torch.equal(torch.ops.tileglu.glu(SMALL.x, SMALL.gate, SMALL.up), WANT)


# ---- autocast (H47) ----

@pytest.mark.parametrize("x_type, weight_type", [
    (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32),
    (torch.float16, torch.bfloat16), (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16)])
@pytest.mark.parametrize("region", [torch.bfloat16, torch.float16])
def test_autocast(x_type, weight_type, region):
    x, residual = WIDE.x.to(x_type), WIDE.residual.to(x_type)
    weights = {name: tensor.to(weight_type) for name, tensor in WIDE.weights().items()}
    down = WIDE.down.to(weight_type)
    with torch.autocast("cpu", region):
        out = tileglu.mlp(x, **weights, down=down, residual=residual)
        as_op = torch.ops.tileglu.mlp(x, **weights, down=down, residual=residual)
    by_hand = tileglu.mlp(x.to(region), **{name: tensor.to(region)
                                           for name, tensor in weights.items()},
                          down=down.to(region), residual=residual.to(region))
    assert out.dtype is region and torch.equal(out, by_hand) and torch.equal(as_op, by_hand)
    if x_type is not weight_type:
        with pytest.raises(TypeError, match=f"gate: is {weight_type} and x is {x_type}"):
            tileglu.mlp(x, **weights, down=down)


def test_autocast_switched_off_inside():
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert torch.equal(call(), WANT)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="backward"):
        call(gate=SMALL.gate.clone().requires_grad_())


# ---- fakes and compilers (H45) ----

CALLS = [
    (GLU, (WIDE.x, WIDE.gate, WIDE.up), {}),
    (GLU, (WIDE.x,), WIDE.weights("interleaved")),
    (GLU, (WIDE.x.transpose(0, 1), WIDE.gate, WIDE.up), {"activation": "gelu_erf"}),
    (GLU, (WIDE.x[:, :0], WIDE.gate, WIDE.up), {}),
    (MLP, (WIDE.x, WIDE.gate, WIDE.up, WIDE.down), {}),
    (MLP, (WIDE.x[0],), {**WIDE.weights(), "down": WIDE.down, "down_bias": WIDE.down_bias,
                         "residual": WIDE.residual[0], "layout": "separate",
                         "activation": "swigluoai", "alpha": 1.5, "limit": 3.0, "offset": 0.5}),
]


@pytest.mark.parametrize("op, args, options", CALLS)
def test_opcheck(op, args, options):
    torch.library.opcheck(op, args, options)


@pytest.mark.parametrize("op, args, options", CALLS)
def test_fake_is_as_real(op, args, options):
    real = op(*args, **options)
    columns = 2880 if op is GLU else 64
    assert real.shape == (*args[0].shape[:-1], columns) and real.is_contiguous()

    def convert(value, to):
        return to(value) if isinstance(value, torch.Tensor) else value
    mode = FakeTensorMode()
    for to in (mode.from_tensor, lambda tensor: tensor.to("meta")):
        fake = op(*(convert(value, to) for value in args),
                  **{name: convert(value, to) for name, value in options.items()})
        assert fake.shape == real.shape and fake.stride() == real.stride()
        assert fake.dtype is real.dtype and fake.device == to(args[0]).device


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_compile_whole_with_any_token_count(backend):
    torch._dynamo.reset()
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    def block(x, residual):
        h = tileglu.glu(x * 2, gate_up=merge_both, layout="interleaved") + 1
        return h.sum() + tileglu.mlp(x.sin(), SMALL.gate, SMALL.up, SMALL.down,
                                     residual=residual)
    merge_both = merge(SMALL.gate, SMALL.up, "interleaved")
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=counting)
    for tokens in (3, 8, 17, 64):
        x = torch.randn(tokens, 24)
        torch.testing.assert_close(compiled(x, x), block(x, x))
    assert len(graphs) == 1, "compiled once for all token counts"
    text = str(graphs[0].graph)
    assert "tileglu.glu" in text and "tileglu.mlp" in text


def test_compile_with_a_token_count_that_only_the_data_know():
    torch._dynamo.reset()

    def routed(x, chosen):
        mine = x[chosen]
        return tileglu.mlp(mine, SMALL.gate, SMALL.up, SMALL.down, residual=mine + 1)
    compiled = torch.compile(routed, fullgraph=True, backend="aot_eager")
    x = torch.randn(10, 24)
    for count in (3, 0, 1, 10):
        chosen = torch.arange(10) < count
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            out = compiled(x, chosen)
        assert torch.equal(out, routed(x, chosen))


def test_compile_keeps_gradients_refused():
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="has no backward pass"):
        compiled(SMALL.x.clone().requires_grad_())


def test_compile_under_autocast():
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        out = compiled(SMALL.x)
        assert out.dtype is torch.bfloat16 and torch.equal(out, call())


def test_compile_of_what_is_refused():
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"gate: is torch.bfloat16 and x is torch.float32"):
        compiled(SMALL.x, SMALL.gate.bfloat16())


def test_export():
    program = torch.export.export(tileglu.MLP(24, 16).requires_grad_(False), (SMALL.x[0],),
                                  dynamic_shapes=({0: torch.export.Dim("tokens")},))
    assert MLP in [node.target for node in program.graph.nodes]
    assert program.module()(SMALL.x.view(10, 24)).shape == (10, 24)


def negative(tensor):
    """The tensor, as the negative bit over memory that holds its negation."""
    view = torch._neg_view(tensor.neg())
    assert view.is_neg() and torch.equal(view, tensor)
    return view


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", ["x", "residual"])
def test_negative_bit_of_activations(name, inference):
    p = Problem((2, 5), 64, 48)
    given = {"x": p.x, "residual": p.residual}
    changed = {**given, name: negative(given[name])}
    weights = {"gate": p.gate, "up": p.up, "down": p.down}
    with torch.inference_mode(inference):
        for function in (tileglu.mlp, torch.ops.tileglu.mlp):
            assert torch.equal(function(**changed, **weights), function(**given, **weights))
        assert tileglu.explain(**changed, **weights) == tileglu.explain(**given, **weights)
        module = tileglu.MLP(64, 48).requires_grad_(False)
        assert torch.equal(module(**changed), module(**given))
    imaginary = torch.complex(p.x, p.residual).conj().imag  # the bit, and elements 2 apart
    assert imaginary.is_neg()
    assert torch.equal(tileglu.mlp(imaginary, **weights), tileglu.mlp(-p.residual, **weights))


@pytest.mark.parametrize("name", ["gate", "up", "down", "gate_bias", "down_bias"])
def test_negative_bit_of_weights(name):
    p = Problem((2, 5), 64, 48, bias=True)
    weights = {"gate": p.gate, "up": p.up, "down": p.down, "gate_bias": p.gate_bias,
               "down_bias": p.down_bias}
    want = tileglu.mlp(p.x, **weights)
    for _ in range(3):  # also where the same memory is known without the bit
        changed = {**weights, name: torch._neg_view(weights[name])}
        for function in (tileglu.mlp, torch.ops.tileglu.mlp, tileglu.explain):
            with pytest.raises(ValueError, match=f"{name}: has torch's negative bit"):
                function(p.x, **changed)
        assert torch.equal(tileglu.mlp(p.x, **weights), want)
