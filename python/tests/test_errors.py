"""What is refused: the same exception and the same words from the eager call, from
torch.ops and from the fake implementation; and what is not."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tileglu
from support import Problem, merge

P = Problem((2, 5), 6, 4, torch.float32, bias=True)
BOTH = merge(P.gate, P.up, "stacked_gate_first")


def at(**changes):
    """Arguments of a right mlp call with some changed; None leaves one out."""
    given = {"x": P.x, "gate": P.gate, "up": P.up, "down": P.down, **changes}
    return {name: value for name, value in given.items() if value is not None}


SHAPES = [
    # Weights stored input by output (H62), with both shapes in the message.
    (at(gate=P.gate.t().contiguous()), ValueError,
     r"gate: has shape \[6, 4\] and must be \[any, 6\].*input-by-output"),
    (at(up=P.up.t().contiguous()), ValueError, r"up: has shape \[6, 4\] and must be \[4, 6\]"),
    (at(down=P.down.t().contiguous()), ValueError,
     r"down: has shape \[4, 6\] and must be \[6, 4\].*input-by-output"),
    (at(gate=None, up=None, gate_up=BOTH.t().contiguous()), ValueError,
     r"gate_up: has shape \[6, 8\]"),
    (at(gate=P.gate.t().contiguous().t()), ValueError,
     r"gate: the elements of a row lie 4 apart .*strides \(1, 4\)"),
    (at(down=P.down.t().contiguous().t()), ValueError, r"down: the elements of a row lie"),
    (at(gate=P.gate[:1].expand(4, 6)), ValueError, r"gate: its rows lie 0 apart"),
    (at(up=torch.empty(4, 9)[:, :6]), ValueError, r"gate, up: their rows lie 6 and 9"),
    (at(gate=P.gate[None]), ValueError, r"gate: has shape \[1, 4, 6\]"),
    (at(gate=None, up=None, gate_up=BOTH[:7]), ValueError, "7 rows, which is odd"),
    (at(x=P.x[0, 0, 0]), ValueError, "x: has no dimension"),
    (at(x=P.x[..., :0], gate=P.gate[:, :0], up=P.up[:, :0]), ValueError, r"hidden, must be 1"),
    (at(x=torch.randn(2, 5)), ValueError,
     r"x: has shape \[2, 5\] and must be \[\.\.\., 6\], as long as the rows of gate \[4, 6\]"),
    (at(x=torch.randn(5), gate=None, up=None, gate_up=BOTH), ValueError,
     r"x: has shape \[5\] and must be \[\.\.\., 6\], as long as the rows of gate_up \[8, 6\]"),
    (at(residual=P.x[0]), ValueError, r"residual: has shape \[5, 6\] and must have x's"),
    (at(gate_bias=P.gate_bias[:3]), ValueError, r"gate_bias: has shape \[3\] and must be \[4\]"),
    (at(up_bias=P.up_bias[None]), ValueError, r"up_bias: has shape \[1, 4\]"),
    (at(down_bias=torch.ones(12)[::2]), ValueError, r"down_bias: its elements lie 2 apart"),
    (at(gate=None, up=None, gate_up=BOTH, gate_up_bias=P.gate_bias), ValueError,
     r"gate_up_bias: has shape \[4\] and must be \[8\]"),
]
TYPES = [
    (at(x=P.x.double()), TypeError, r"x: is torch.float64"),
    (at(x=P.x.int()), TypeError, r"x: is torch.int32"),
    # One type, named with the other (H47).
    (at(gate=P.gate.bfloat16()), TypeError, r"gate: is torch.bfloat16 and x is torch.float32"),
    (at(x=P.x.bfloat16()), TypeError, r"gate: is torch.float32 and x is torch.bfloat16"),
    (at(x=P.x.half(), gate=P.gate.bfloat16(), up=P.up.bfloat16(), down=P.down.bfloat16()),
     TypeError, r"gate: is torch.bfloat16 and x is torch.float16"),
    (at(down_bias=P.down_bias.half()), TypeError, r"down_bias: is torch.float16"),
    (at(residual=P.x.half()), TypeError, r"residual: is torch.float16"),
    (at(gate=P.gate.to("meta")), ValueError, r"gate: is on meta and x is on cpu"),
]
NAMES = [
    (at(activation="swish"), ValueError, r"activation: 'swish' is none of silu"),
    (at(activation="SiLU"), ValueError, r"activation: 'SiLU'"),
    (at(layout="stacked"), ValueError, r"layout: 'stacked' is none of separate"),
    (at(layout="interleaved"), TypeError, r"gate_up: is needed with layout 'interleaved'"),
    (at(up=None), TypeError, r"up: is needed with layout 'separate'"),
    (at(down=None), TypeError, r"down: is needed"),
    (at(gate_up=BOTH), TypeError, r"gate: must be left out with layout 'stacked_gate_first'"),
    (at(gate=None, up=None, gate_up=BOTH, up_bias=P.up_bias), TypeError,
     r"up_bias: must be left out"),
    (at(gate_up_bias=P.gate_bias), TypeError, r"gate_up_bias: must be left out"),
]


@pytest.mark.parametrize("arguments, kind, words", SHAPES + TYPES + NAMES)
def test_refused_alike(arguments, kind, words):
    with pytest.raises(kind, match=words) as eager:
        tileglu.mlp(**arguments)
    with pytest.raises(kind) as op:
        torch.ops.tileglu.mlp(**arguments)
    assert str(op.value) == str(eager.value)
    mode = FakeTensorMode()
    fakes = {name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
             for name, value in arguments.items()}
    with mode, pytest.raises(kind) as fake:
        tileglu.mlp(**fakes)
    assert str(fake.value) == str(eager.value)


@pytest.mark.parametrize("arguments, kind, words", [
    (at(alpha=3.0), ValueError, "alpha: is a parameter of swigluoai"),
    (at(activation="swigluoai", limit=-1.0), ValueError, "limit"),
    (at(x=None), TypeError, "x"),
])
def test_refused_by_the_library(arguments, kind, words):
    with pytest.raises(kind, match=words):
        tileglu.mlp(**arguments)
    with pytest.raises((kind, RuntimeError), match=words):
        torch.ops.tileglu.mlp(**arguments)


def test_not_tensors():
    with pytest.raises(TypeError, match="x: is a NoneType"):
        tileglu.glu(None, P.gate, P.up)
    with pytest.raises(TypeError):
        tileglu.glu(P.x, P.gate, P.up, alpha="a")
    with pytest.raises(TypeError, match="unknown arguments: gates"):
        tileglu.explain(P.x, P.gate, P.up, gates=P.gate)


@pytest.mark.filterwarnings("ignore:.*torch.quantize_per_tensor")
@pytest.mark.parametrize("function", [tileglu.mlp, tileglu.explain])
@pytest.mark.parametrize("name, value, words", [
    ("x", [1, 2], "x: is a list and must be a tensor"),
    ("gate", [1, 2], "gate: is a list and must be a tensor"),
    ("residual", 1.0, "residual: is a float and must be a tensor"),
    ("activation", None, "activation: is a NoneType and must be a str, one of silu"),
    ("activation", torch.relu, "activation: is a builtin"),
    ("layout", 1, "layout: is a int and must be a str"),
    ("limit", [1], "limit: is a list and must be a number"),
    ("x", lambda: P.x.to_sparse(), "x: is a torch.sparse_coo tensor and must be a dense one"),
    ("up", lambda: P.up.to_sparse_csr(), "up: is a torch.sparse_csr tensor"),
    ("x", lambda: torch.quantize_per_tensor(P.x, 0.1, 0, torch.qint8), "x: is quantized"),
])
def test_things_of_another_kind(function, name, value, words):
    value = value() if callable(value) and value is not torch.relu else value
    with pytest.raises(TypeError, match=words):
        function(**{**at(), name: value})


@pytest.mark.parametrize("tokens, kind, words", [
    (-1, ValueError, "tokens: -1 is not between"), (1.5, TypeError, "tokens: is a float"),
    (2 ** 70, ValueError, "tokens: 1180591620717411303424"), (None, TypeError, "tokens"),
    (2 ** 60, ValueError, "tokens: 1152921504606846976 tokens do not fit")])
def test_plan_of_no_number_of_tokens(tokens, kind, words):
    with pytest.raises(kind, match=words):
        tileglu.plan(tokens, P.gate, P.up)


def test_a_failed_call_leaves_the_next_one_right():
    want = tileglu.glu(P.x, P.gate, P.up)
    for _ in range(3):
        with pytest.raises(ValueError):
            tileglu.glu(P.x, P.gate.t(), P.up)
        with pytest.raises(ValueError):
            tileglu.glu(P.x, P.gate, P.up, limit=1.0)
        assert torch.equal(tileglu.glu(P.x, P.gate, P.up), want)


def test_device_without_a_backend():
    if torch.cuda.is_available():
        pytest.skip("skipped: this machine has a CUDA device")
    with pytest.raises(tileglu.Error, match="TGLU_ERR_NO_DRIVER|TGLU_ERR_NO_DEVICE"):
        tileglu.device_info("cuda")
    with pytest.raises(ValueError, match="xpu:0 is neither"):
        tileglu.device_info("xpu")
    with pytest.raises(ValueError, match="device"):
        tileglu.device_info("cuda:4000")
