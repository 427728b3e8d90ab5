"""tileglu.patch on modules made by hand: what it finds, and that nothing else changes."""

import copy
import io
import math

import pytest
import torch
from patch_support import Gated, Merged, compiled_and_watched, counted, draw, error, fill
from torch import nn

import tileglu

ORDERS = ["stacked_gate_first", "stacked_up_first", "interleaved"]


def run(module, x):
    with torch.inference_mode():
        return module(x)


def patched(module, monkeypatch, x):
    """The module's output before patch and after it, which must be a fused one."""
    before = run(module, x)
    report = tileglu.patch(module)
    assert len(report.patched) == 1 and not report.left_alone, str(report)
    with counted(monkeypatch) as calls:
        after = run(module, x)
    assert len(calls) == 1
    return before, after, report.patched[0]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(3, 24), (2, 5, 24), (1, 1, 24), (0, 24)])
def test_separate(monkeypatch, bias, shape):
    x = draw(*shape)
    before, after, entry = patched(fill(Gated(bias=bias)), monkeypatch, x)
    assert after.shape == before.shape and after.dtype is before.dtype
    if x.numel():
        assert error(after, before) < 1e-6
    assert (entry.layout, entry.activation, entry.hidden, entry.intermediate) == \
        ("separate", "silu", 24, 40)
    assert entry.linears == "gate=gate_proj up=up_proj down=down_proj"
    assert set(entry.rows) == {1, 512} and all("glu_f32" in row for row in entry.rows.values())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_merged(monkeypatch, order, bias):
    x = draw(2, 3, 24)
    before, after, entry = patched(fill(Merged(order, bias=bias)), monkeypatch, x)
    assert entry.layout == order and error(after, before) < 1e-6


@pytest.mark.parametrize("names, wanted", [
    (("w2", "w1", "c_proj"), "gate=w2 up=w1 down=c_proj"),  # Qwen-1: w1 * silu(w2)
    (("w1", "w3", "w2"), "gate=w1 up=w3 down=w2"),  # Llama's own names, Mixtral, InternLM2
    (("up_proj", "gate_proj", "down_proj"), "gate=up_proj up=gate_proj down=down_proj"),
    (("c", "a", "b"), "gate=c up=a down=b"),
])
@pytest.mark.parametrize("intermediate", [40, 24])  # 24: all three are square
def test_names_decide_nothing(monkeypatch, names, wanted, intermediate):
    module = fill(Gated(24, intermediate, names=names))
    x = draw(4, 24)
    if intermediate == 24 and "gate_proj" not in names and "Gated" in type(module).__name__:
        # Square, and neither its class nor a name hints at an MLP: might be attention, but
        # its forward tells.
        module.__class__ = type("FeedForward", (Gated,), {})
    before, after, entry = patched(module, monkeypatch, x)
    assert entry.linears == wanted and error(after, before) < 1e-6


@pytest.mark.parametrize("hidden, intermediate", [(48, 24), (24, 24), (8, 4), (1, 1), (3, 7)])
@pytest.mark.parametrize("kind", ["separate", *ORDERS])
def test_sizes_that_coincide(monkeypatch, kind, hidden, intermediate):
    module = Gated(hidden, intermediate) if kind == "separate" else \
        Merged(kind, hidden, intermediate)
    before, after, entry = patched(fill(module), monkeypatch, draw(5, hidden))
    assert entry.layout == kind and error(after, before) < 1e-6


ACTIVATIONS = {
    "silu": (nn.SiLU(), "silu"),
    "relu": (nn.ReLU(), "relu"),
    "sigmoid": (nn.Sigmoid(), "sigmoid"),
    "erf": (nn.GELU(), "gelu_erf"),
    "tanh": (nn.GELU(approximate="tanh"), "gelu_tanh"),
    "tanh by hand": (lambda g: 0.5 * g * (1 + torch.tanh(
        math.sqrt(2 / math.pi) * (g + 0.044715 * g ** 3))), "gelu_tanh"),
    "in float32": (lambda g: nn.functional.silu(g.float()).to(g.dtype), "silu"),
    "quick": (lambda g: g * torch.sigmoid(1.702 * g),
              "swigluoai(alpha 1.702, no limit, offset 0)"),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 2e-6), (torch.bfloat16, 2 ** -7)])
def test_activations(monkeypatch, name, dtype, bound):
    act, wanted = ACTIVATIONS[name]
    module = fill(Gated(act=act)).to(dtype)
    before, after, entry = patched(module, monkeypatch, 2 * draw(6, 24, dtype=dtype))
    assert entry.activation == wanted and error(after, before) < bound


def test_swigluoai_with_a_limit(monkeypatch):
    class Clamped(Gated):
        alpha, limit = 1.702, 7.0

        def forward(self, x):
            gate = self.gate_proj(x).clamp(max=self.limit)
            up = self.up_proj(x).clamp(-self.limit, self.limit)
            return self.down_proj((up + 1) * gate * torch.sigmoid(gate * self.alpha))

    before, after, entry = patched(fill(Clamped()), monkeypatch, 9 * draw(6, 24))
    assert entry.activation == "swigluoai(alpha 1.702, limit 7, offset 1)"
    assert error(after, before) < 1e-6


@pytest.mark.parametrize("kind", ["separate", "stacked_gate_first", "stacked_up_first"])
def test_halves_are_not_swapped(kind):
    """H41: y = [-1.76159, -5.28478]; about [-0.538, -1.614] would be the swapped pair."""
    module = (Gated(2, 2) if kind == "separate" else Merged(kind, 2, 2)).eval()
    gate, up = torch.tensor([[2., 0], [0, 0]]), torch.tensor([[-1., 0], [0, 0]])
    with torch.no_grad():
        if kind == "separate":
            module.gate_proj.weight.copy_(gate)
            module.up_proj.weight.copy_(up)
        else:
            halves = [gate, up] if kind == "stacked_gate_first" else [up, gate]
            module.gate_up_proj.weight.copy_(torch.cat(halves))
        module.down_proj.weight.copy_(torch.tensor([[1., 0], [3, 0]]))
    assert len(tileglu.patch(module).patched) == 1
    y = run(module, torch.tensor([[1., 0]]))
    assert torch.allclose(y, torch.tensor([[-1.76159, -5.28478]]), atol=1e-5)
    y = run(module.to(torch.bfloat16), torch.tensor([[1., 0]], dtype=torch.bfloat16))
    assert y.tolist() == [[-1.7578125, -5.28125]]


@pytest.mark.parametrize("kind", ["separate", *ORDERS])
def test_each_bias_reaches_its_projection(kind):
    """H65: gate = up = 0 with biases 2, -1 and 0.5 gives down . silu(2) * -1 + 0.5."""
    module = (Gated(3, 4, bias=True) if kind == "separate" else Merged(kind, 3, 4, bias=True))
    fill(module)
    with torch.no_grad():
        module.down_proj.bias.fill_(0.5)
        if kind == "separate":
            module.gate_proj.bias.fill_(2)
            module.up_proj.bias.fill_(-1)
        else:
            order = {"stacked_gate_first": [2] * 4 + [-1] * 4,
                     "stacked_up_first": [-1] * 4 + [2] * 4, "interleaved": [2, -1] * 4}
            module.gate_up_proj.bias.copy_(torch.tensor(order[kind]))
    assert len(tileglu.patch(module).patched) == 1
    want = -1.7615942 * module.down_proj.weight.sum(1) + 0.5
    assert torch.allclose(run(module, torch.zeros(1, 3)), want, atol=1e-5)


# ---- Weights ---------------------------------------------------------------------


def stack(layers=12):
    return fill(nn.Sequential(*(Gated() for _ in range(layers))))


def test_no_weight_is_copied_or_moved():
    model = stack(3)
    before = {name: (id(p), p.data_ptr(), p._version) for name, p in model.named_parameters()}
    names = list(model.state_dict())
    tileglu.patch(model)
    run(model, draw(2, 24))
    after = {name: (id(p), p.data_ptr(), p._version) for name, p in model.named_parameters()}
    assert before == after and names == list(model.state_dict())


def test_every_layer_uses_its_own_weights():
    """H66: layers 1 and 11 are not one another."""
    model = stack()
    x = draw(3, 24)
    want = [run(layer, x) for layer in model]
    report = tileglu.patch(model)
    assert [entry.name for entry in report.patched] == [str(i) for i in range(12)]
    for layer, before in zip(model, want):
        assert error(run(layer, x), before) < 1e-6
    assert error(want[1], want[11]) > 0.1


def test_changed_weights_are_used():
    module = fill(Gated())
    twin = fill(Gated())
    tileglu.patch(module)
    x = draw(3, 24)
    old = run(module, x)
    with torch.no_grad():
        for m in (module, twin):
            m.up_proj.weight.mul_(-3)  # in place
            m.gate_proj.weight = nn.Parameter(m.gate_proj.weight.flip(0).contiguous())
    assert error(run(module, x), run(twin, x)) < 1e-6
    assert error(run(module, x), old) > 0.1
    fresh = {name: value + 1 for name, value in twin.state_dict().items()}
    for assign in (False, True):
        module.load_state_dict(fresh, assign=assign)
        twin.load_state_dict(fresh, assign=assign)
        assert error(run(module, x), run(twin, x)) < 1e-6


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 2 ** -7), (torch.float16, 2 ** -10)])
def test_after_to(monkeypatch, dtype, bound):
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    module.to(dtype)
    twin.to(dtype)
    x = draw(3, 24, dtype=dtype)
    with counted(monkeypatch) as calls:
        out = run(module, x)
    assert len(calls) == 1 and out.dtype is dtype and error(out, run(twin, x)) < bound
    module.to("meta")
    assert run(module, x.to("meta")).shape == (3, 24)
    report = tileglu.report(module)
    assert len(report.patched) == 1 and report.patched[0].rows == {}


def test_type_that_tileglu_lacks(monkeypatch):
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    module.double()
    with counted(monkeypatch) as calls:
        out = run(module, draw(3, 24).double())
    assert not calls and torch.equal(out, run(twin.double(), draw(3, 24).double()))
    assert "torch.float64" in tileglu.report(module).patched[0].reason


def test_model_on_meta_is_read():
    with torch.device("meta"):
        module = Gated()
    assert len(tileglu.patch(module).patched) == 1
    module.to_empty(device="cpu")
    fill(module)
    assert error(run(module, draw(2, 24)), run(fill(Gated()), draw(2, 24))) < 1e-6


# ---- Patch, unpatch, copies ------------------------------------------------------


def test_unpatch_restores():
    module = fill(Gated())
    kind, state = type(module), dict(module.__dict__)
    x = draw(3, 24)
    before = run(module, x)
    assert repr(tileglu.patch(module)) == "<tileglu.Report: 1 patched, 0 left alone>"
    assert isinstance(module, kind) and type(module).__name__ == kind.__name__
    assert len(tileglu.patch(module).patched) == 1  # again: nothing changes
    assert tileglu.unpatch(module) == [""]
    assert type(module) is kind and dict(module.__dict__) == state
    assert torch.equal(run(module, x), before)
    assert tileglu.unpatch(module) == []


def test_report_changes_nothing():
    module = fill(Gated())
    report = tileglu.report(module)
    assert type(module) is Gated and not report.patched
    assert "can be" in report.left_alone[0].reason and report.left_alone[0].layout == "separate"


def test_report_reads_well():
    text = str(tileglu.patch(nn.ModuleDict({"layers": stack(12), "last": nn.Linear(3, 4)})))
    assert text.splitlines()[0] == "patched: 12"
    assert "layers.{0-11}  Gated: separate, silu, 24 x 40 float32 on cpu" in text
    assert text.splitlines()[-1] == "left alone: 0"


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_are_patched_and_independent(monkeypatch, how):
    module = fill(Gated())
    tileglu.patch(module)
    if how == "deepcopy":
        other = copy.deepcopy(module)
    else:
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    x = draw(3, 24)
    with torch.no_grad():
        other.up_proj.weight.mul_(2)
    with counted(monkeypatch) as calls:
        first, second = run(module, x), run(other, x)
    assert len(calls) == 2 and error(second, 2 * first) < 1e-6
    tileglu.unpatch(other)
    assert type(other) is Gated and type(module) is not Gated


def test_a_wrapped_forward_survives_unpatch():
    module = fill(Gated())
    x = draw(3, 24)
    before = run(module, x)
    tileglu.patch(module)
    ours = module.forward
    module.forward = lambda x: 2 * ours(x)
    tileglu.unpatch(module)
    assert torch.equal(run(module, x), 2 * before)


def test_random_state_and_training_flags_are_left():
    class Dropping(Gated):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x):
            return self.dropout(super().forward(x))

    module = fill(Dropping()).train()
    state = torch.get_rng_state()
    tileglu.patch(module)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training and module.dropout.training


def test_wrong_argument():
    with pytest.raises(TypeError, match="torch.nn.Module is expected, not a dict"):
        tileglu.patch({})


# ---- Beside the rest of torch ----------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compile(monkeypatch, backend):
    """One graph, also for other numbers of tokens; the op is in it."""
    torch._dynamo.reset()
    model = stack(2)
    tileglu.patch(model)
    ops = []

    def look(graph, inputs):
        ops.extend(str(node.target) for node in graph.graph.nodes)
        if backend == "eager":
            return graph
        from torch._inductor.compile_fx import compile_fx
        return compile_fx(graph, inputs)

    compiled = torch.compile(model, backend=look, fullgraph=True)
    for tokens in (3, 5, 9):
        x = draw(tokens, 24, seed=tokens)
        assert error(run(compiled, x), run(model, x)) < 1e-6
    assert sum("tileglu.mlp" in op for op in ops) in (2, 4)  # once, then for any tokens
    assert not any("linear" in op for op in ops)


def test_patch_and_unpatch_after_compile():
    torch._dynamo.reset()
    model = stack(2)
    compiled, seen = compiled_and_watched(model)
    x = draw(3, 24)
    before = run(compiled, x)
    tileglu.patch(model)
    assert error(run(compiled, x), before) < 1e-6
    tileglu.unpatch(model)
    assert torch.equal(run(compiled, x), before)
    if torch.__version__ >= "2.5":  # before, compiled code stays as it was; still right
        assert seen[:2] == [False, True] and len(seen) <= 3


@pytest.mark.parametrize("x_type", [torch.float32, torch.bfloat16])
def test_autocast(monkeypatch, x_type):
    """H47: bf16 weights under a bf16 autocast are fused; other weights are not."""
    module, twin = fill(Gated()).bfloat16(), fill(Gated()).bfloat16()
    tileglu.patch(module)
    x = draw(3, 24, dtype=x_type)
    with torch.autocast("cpu", torch.bfloat16), counted(monkeypatch) as calls:
        out, want = run(module, x), run(twin, x)
        module.float()
        twin.float()
        same, unfused = run(module, x), run(twin, x)
    assert out.dtype is want.dtype is torch.bfloat16 and error(out, want) < 2 ** -7
    assert len(calls) == 1 and same.dtype is torch.bfloat16 and torch.equal(same, unfused)


def test_export_keeps_the_own_forward():
    module = fill(Gated()).requires_grad_(False)
    tileglu.patch(module)
    x = draw(3, 24)
    exported = torch.export.export(module, (x,), strict=False)
    assert error(exported.module()(x), run(fill(Gated()), x)) < 1e-6
