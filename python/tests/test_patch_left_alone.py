"""What tileglu.patch leaves alone, with its reason, and when a patched module runs its own
forward.  In every case the output is what it was without patch."""

import copy

import pytest
import torch
from patch_support import Gated, Merged, counted, draw, error, fill
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune

import tileglu


def left_alone(module, reason, x=None):
    """The module must not be patched, for this reason, and compute what it did."""
    kind = type(module)
    x = draw(2, 3, 24) if x is None else x
    with torch.no_grad():
        before = module(x)
        report = tileglu.patch(module)
        after = module(x)
    assert type(module) is kind and not report.patched
    assert len(report.left_alone) == 1, str(report)
    assert reason in report.left_alone[0].reason, report.left_alone[0].reason
    assert torch.equal(after, before)
    return report.left_alone[0].reason


# ---- Forwards that only look alike -----------------------------------------------


class Normed(Gated):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(40)

    def forward(self, x):
        return self.down_proj(self.norm(self.act_fn(self.gate_proj(x)) * self.up_proj(x)))


class Factor(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(1.5 * self.gate_proj(x)) * self.up_proj(x))


class Outside(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x) * self.up_proj(x)))


class Residual(Gated):
    def forward(self, x):
        return x + super().forward(x)


class LateClamp(Gated):
    def forward(self, x):
        h = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(h.clamp(-65504, 65504))


class Sparse(Gated):
    def forward(self, x):
        gate = self.gate_proj(x)
        gate = functional.relu(gate - gate.mean(-1, keepdim=True))
        return self.down_proj(self.act_fn(gate) * self.up_proj(x))


class Shifted(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * (self.up_proj(x) + 1))


class GateTwice(Gated):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.gate_proj(x))


class Slices(Gated):
    """Slices its weights as old Llama code does for a tensor-parallel checkpoint."""

    def forward(self, x):
        gate = torch.cat([functional.linear(x, w) for w in self.gate_proj.weight.split(20)], -1)
        up = torch.cat([functional.linear(x, w) for w in self.up_proj.weight.split(20)], -1)
        return self.down_proj((self.act_fn(gate) * up).view(*x.shape[:-1], 40))


class Threshold(Gated):
    """Something else for many tokens: no probe can find the number."""

    def forward(self, x):
        return super().forward(x) * (1 if x.numel() < 10 ** 6 else 2)


class OneToken(Gated):
    def forward(self, x):
        return super().forward(x) * min(2, x.shape[-2])


class ManyTokens(Gated):
    def forward(self, x):
        return super().forward(x) * max(8, x.shape[-2]) / 8


@pytest.mark.parametrize("kind, reason", [
    (Threshold, "its forward compares sizes"),
    (OneToken, "not down(act(gate) * up)"),
    (ManyTokens, "not down(act(gate) * up)"),
    (Normed, "more than linears: norm.weight"),
    (Factor, "not down(act(gate) * up)"),
    (Outside, "not down(act(gate) * up)"),
    (Residual, "not down(act(gate) * up)"),
    (LateClamp, "not down(act(gate) * up)"),
    (Sparse, "not down(act(gate) * up)"),
    (Shifted, "not down(act(gate) * up)"),
    (GateTwice, "not down(act(gate) * up)"),
    (Slices, "does not take one small input by itself (RuntimeError: "),
])
def test_other_computations(kind, reason):
    left_alone(fill(kind()), reason)


@pytest.mark.parametrize("act", [
    nn.Tanh(), nn.Mish(), nn.ReLU6(), nn.Hardswish(), nn.Identity(),
    lambda g: functional.gelu(g).clamp(-10, 10), lambda g: functional.relu(g) ** 2,
    lambda g: functional.silu(1.01 * g)])
def test_activations_that_tileglu_lacks(act):
    reason = left_alone(fill(Gated(act=act)), "with an activation of tileglu")
    assert "(act_fn is " in reason


def test_forward_of_another_shape():
    class Pair(Gated):
        def forward(self, x):
            return super().forward(x), None

    class Mean(Gated):
        def forward(self, x):
            return super().forward(x).mean(0)

    class Two(Gated):
        def forward(self, x, scale):
            return super().forward(x) * scale

    class InPlace(Gated):
        def forward(self, x):
            out = super().forward(x)
            x.zero_()
            return out

    for kind, reason in [(Pair, "something else than one tensor"), (Mean, "not that of its input"),
                         (Two, "does not take one small input by itself (TypeError: "),
                         (InPlace, "changes its input in place")]:
        report = tileglu.patch(fill(kind()))
        assert reason in report.left_alone[0].reason


def test_shapes_that_do_not_fit():
    class PlainMLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(24, 40), nn.Linear(40, 24)

        def forward(self, x):
            return self.fc2(functional.gelu(self.fc1(x)))

    left_alone(fill(PlainMLP()), "other shapes than a gated MLP's: fc1 [40, 24], fc2 [24, 40]")


def test_square_attention_is_no_line_in_the_report():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))

        def forward(self, x):
            return functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))

    report = tileglu.patch(fill(Attention()))
    assert not report.patched and not report.left_alone


def test_weights_stored_input_by_output():
    """H62: both shapes are shown."""
    class Conv1D(nn.Module):
        def __init__(self, outputs, inputs):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(inputs, outputs))

        def forward(self, x):
            return x @ self.weight

    module = Gated()
    module.gate_proj, module.up_proj, module.down_proj = \
        Conv1D(40, 24), Conv1D(40, 24), Conv1D(24, 40)
    module.__class__ = type("FooMLP", (Gated,), {})
    left_alone(fill(module), "lies input-by-output as [24, 40] where [40, 24] is needed")


# ---- Linears that are more than weight and bias ----------------------------------


class Adapter(nn.Module):
    """A low-rank adapter as PEFT wraps a linear."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base
        self.in_features, self.out_features = base.in_features, base.out_features
        self.a, self.b = nn.Linear(base.in_features, 2), nn.Linear(2, base.out_features)

    @property
    def weight(self):
        return self.base_layer.weight

    def forward(self, x):
        return self.base_layer(x) + self.b(self.a(x))


class Lazy(torch.Tensor):
    """A weight of a tensor subclass, as quantisers and sharded tensors use."""


def adapt(module):
    module.up_proj = Adapter(module.up_proj)


def quantise(module):
    linear = module.down_proj
    linear.qconfig = torch.ao.quantization.default_dynamic_qconfig
    module.down_proj = torch.ao.nn.quantized.dynamic.Linear.from_float(linear)


def own_forward(module):
    linear = module.gate_proj
    genuine = linear.forward
    linear.forward = lambda x: 2 * genuine(x)


def subclass_weight(module):
    weight = module.gate_proj.weight.detach()
    module.gate_proj.weight = nn.Parameter(weight.as_subclass(Lazy))


SPOILERS = {
    "adapter": (adapt, f"up_proj is a {__name__} Adapter and no plain torch.nn.Linear"),
    "quantised": (quantise, "down_proj is a torch Linear and no plain torch.nn.Linear"),
    "hook": (lambda m: m.up_proj.register_forward_hook(lambda m, i, o: 2 * o),
             "up_proj has forward hooks"),
    "pre-hook": (lambda m: m.down_proj.register_forward_pre_hook(lambda m, i: (i[0] * 2,)),
                 "down_proj has forward hooks"),
    "own forward": (own_forward, "gate_proj has a forward of its own"),
    "parametrised": (lambda m: parametrizations.weight_norm(m.gate_proj),
                     "gate_proj is a torch ParametrizedLinear"),
    "pruned": (lambda m: prune.l1_unstructured(m.up_proj, "weight", 0.5),
               "up_proj has forward hooks"),
    "subclass": (subclass_weight, "gate_proj holds a Lazy as its weight"),
}


QUANTISING = pytest.mark.filterwarnings("ignore:.*torch.quantize_per_tensor")


@QUANTISING
@pytest.mark.parametrize("name", SPOILERS)
def test_linears_that_are_more(name):
    spoil, reason = SPOILERS[name]
    module = fill(Gated())
    spoil(module)
    left_alone(module.eval(), reason)


@QUANTISING
@pytest.mark.parametrize("name", SPOILERS)
def test_linears_that_become_more_after_patch(monkeypatch, name):
    """Adapters, hooks and quantisers put on a patched model work as on any other."""
    spoil, reason = SPOILERS[name]
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    for m in (module, twin):
        spoil(m)
        if name == "adapter":
            fill(m.up_proj.a, 3), fill(m.up_proj.b, 4)
    x = draw(3, 24)
    with torch.no_grad(), counted(monkeypatch) as calls:
        assert torch.equal(module(x), twin(x))
    assert not calls
    entry = tileglu.report(module).patched[0]
    assert entry.reason.startswith("runs its own forward: ") and not entry.rows


def test_a_parametrisation_that_is_removed(monkeypatch):
    module = fill(Gated())
    tileglu.patch(module)
    parametrizations.weight_norm(module.gate_proj)
    parametrize.remove_parametrizations(module.gate_proj, "weight")
    with torch.no_grad(), counted(monkeypatch) as calls:
        assert error(module(draw(3, 24)), fill(Gated())(draw(3, 24))) < 1e-6
    assert len(calls) == 1


def test_global_hooks(monkeypatch):
    module = fill(Gated())
    x = draw(3, 24)
    tileglu.patch(module)
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, out: seen.append(type(module).__name__))
    try:
        with torch.no_grad(), counted(monkeypatch) as calls:
            module(x)
    finally:
        handle.remove()
    assert seen.count("Linear") == 3 and not calls


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.float64])
def test_types_that_tileglu_lacks(dtype):
    module = fill(Gated())
    for name in module.names:
        weight = getattr(module, name).weight.detach().to(dtype)
        getattr(module, name).weight = nn.Parameter(weight, requires_grad=False)
    report = tileglu.patch(module)
    assert f"has a weight of {dtype}" in report.left_alone[0].reason


def test_types_that_differ():
    module = fill(Gated())
    module.down_proj.to(torch.bfloat16)
    assert "of different types" in tileglu.patch(module).left_alone[0].reason
    module = fill(Gated())
    module.down_proj.to("meta")
    assert "on different devices" in tileglu.patch(module).left_alone[0].reason


def transpose(module):
    for m in (module.gate_proj, module.down_proj):
        m.weight = nn.Parameter(m.weight.detach().t().contiguous().t())


def test_weights_that_lie_otherwise(monkeypatch):
    """Column-major and padded rows: read right or not at all."""
    module = fill(Gated())
    transpose(module)
    left_alone(module, "strides [1, 40] for [40, 24]")
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    transpose(module)
    padded = torch.zeros(40, 30)
    padded[:, :24] = module.up_proj.weight.detach()
    module.up_proj.weight = nn.Parameter(padded[:, :24])
    with torch.no_grad(), counted(monkeypatch) as calls:
        assert error(module(draw(3, 24)), twin(draw(3, 24))) < 1e-6
    assert not calls


def test_modules_of_tileglu():
    module = tileglu.MLP(24, 40)
    assert "one of tileglu's own" in tileglu.patch(module).left_alone[0].reason


def test_a_row_that_cannot_serve():
    """What planning refuses is left alone: nothing is half patched."""
    weight = draw(40, 24, dtype=torch.bfloat16)
    tileglu.configure("cpu", row=tileglu.plan(4, weight, weight)["row"])
    try:
        model = nn.Sequential(fill(Gated()), fill(Gated()))
        report = tileglu.patch(model)
    finally:
        tileglu.configure("cpu")
    if report.patched:  # the row's name is this build's matter; then there is nothing to see
        pytest.skip("skipped: the forced row serves float32, too")
    assert all("tileglu refuses it" in entry.reason for entry in report.left_alone)
    assert all(type(module) is Gated for module in model)


def test_forward_that_is_replaced():
    module = fill(Gated())
    genuine = module.forward
    module.forward = lambda x: genuine(x) + 1
    left_alone(module, "its forward is already replaced")


# ---- Tied weights ----------------------------------------------------------------


def test_tied_weights():
    module = fill(Gated())
    module.up_proj.weight = module.gate_proj.weight
    left_alone(module, "gate_proj.weight is tied to up_proj.weight")

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.mlp = nn.Linear(24, 40, bias=False), Gated()

        def forward(self, x):
            return self.mlp(x)

    model = fill(Two())
    model.head.weight = model.mlp.gate_proj.weight
    left_alone(model, "gate_proj.weight is tied to head.weight")
    model = fill(Two())  # other parameters on the same memory
    model.mlp.up_proj.weight = nn.Parameter(model.head.weight.detach())
    left_alone(model, "up_proj.weight is tied to head.weight")


def test_views_of_one_buffer_are_not_tied(monkeypatch):
    """A file that is mapped whole gives parameters that share a storage and no byte."""
    module, twin = fill(Gated()), fill(Gated())
    flat = torch.cat([p.detach().flatten() for p in module.parameters()])
    start = 0
    for name in module.names:
        linear = getattr(module, name)
        size = linear.weight.numel()
        linear.weight = nn.Parameter(flat[start:start + size].view_as(linear.weight))
        start += size
    assert len(tileglu.patch(module).patched) == 1
    with torch.no_grad():
        assert error(module(draw(3, 24)), twin(draw(3, 24))) < 1e-6


def test_one_module_at_two_places(monkeypatch):
    mlp = fill(Gated())
    model = nn.Sequential(mlp, mlp)
    with torch.no_grad():
        before = model(draw(3, 24))
        report = tileglu.patch(model)
        with counted(monkeypatch) as calls:
            after = model(draw(3, 24))
    assert len(report.patched) == 1 and len(calls) == 2 and error(after, before) < 1e-6


# ---- Gradients and training ------------------------------------------------------


def test_gradients_are_right(monkeypatch):
    module, twin = fill(Gated(bias=True)), fill(Gated(bias=True))
    tileglu.patch(module)
    monkeypatch.setattr(tileglu._patch, "_warned", False)
    inputs = [draw(3, 24).requires_grad_() for _ in range(2)]
    with counted(monkeypatch) as calls, pytest.warns(UserWarning, match="gradients"):
        for m, x in zip((module, twin), inputs):
            (m(x) ** 2).sum().backward()
    assert not calls and torch.equal(inputs[0].grad, inputs[1].grad)
    for (name, ours), theirs in zip(module.named_parameters(), twin.parameters()):
        assert torch.equal(ours.grad, theirs.grad), name
    module.requires_grad_(False)
    with counted(monkeypatch) as calls:
        assert not module(draw(3, 24)).requires_grad  # nothing asks for one: fused
        assert module(draw(3, 24).requires_grad_()).requires_grad
    assert len(calls) == 1


def test_dropout(monkeypatch):
    class Dropping(Gated):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.001)  # rarely seen in one small probe

        def forward(self, x):
            h = self.dropout(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
            return self.down_proj(h)

    class Functional(Gated):
        def forward(self, x):
            return functional.dropout(super().forward(x), 0.5, self.training)

    for kind in (Dropping, Functional):
        module, twin = fill(kind()), fill(kind())
        assert len(tileglu.patch(module).patched) == 1
        x = draw(3, 24)
        with torch.no_grad(), counted(monkeypatch) as calls:
            assert error(module(x), twin(x)) < 1e-6
            module.train(), twin.train()
            torch.manual_seed(1)
            ours = module(x)
            torch.manual_seed(1)
            assert torch.equal(ours, twin(x))
        assert len(calls) == 1
        assert "in training mode" in tileglu.report(module).patched[0].reason


def test_training_mode_alone_does_not_matter(monkeypatch):
    module = fill(Gated()).train()
    tileglu.patch(module)
    with torch.no_grad(), counted(monkeypatch) as calls:
        module(draw(3, 24))
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore:tileglu. gradients")
def test_transforms():
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    x = draw(4, 3, 24)
    assert torch.equal(torch.func.grad(lambda x: module(x).sum())(x),
                       torch.func.grad(lambda x: twin(x).sum())(x))
    with torch.no_grad():
        assert torch.equal(torch.func.vmap(module)(x), torch.func.vmap(twin)(x))
        for ours, theirs in zip(torch.func.jvp(module, (x,), (x,)),
                                torch.func.jvp(twin, (x,), (x,))):
            assert torch.equal(ours, theirs)
    weights = {name: p.detach() * 2 for name, p in twin.named_parameters()}
    with torch.no_grad():
        assert error(torch.func.functional_call(module, weights, (x,)),
                     torch.func.functional_call(twin, weights, (x,))) < 1e-6


def test_keyword_and_extra_arguments(monkeypatch):
    class Named(Gated):
        def forward(self, hidden_states, scale=1):
            return super().forward(hidden_states) * scale

    module = fill(Named())
    twin = copy.deepcopy(module)
    tileglu.patch(module)
    x = draw(3, 24)
    with torch.no_grad(), counted(monkeypatch) as calls:
        assert torch.equal(module(hidden_states=x), twin(x))
        assert torch.equal(module(x, 3), twin(x, 3)) and torch.equal(module(x, scale=2),
                                                                      twin(x, scale=2))
        assert not calls
        assert error(module(x), twin(x)) < 1e-6
    assert len(calls) == 1


@pytest.mark.parametrize("x", [draw(3, 25), draw(3, 24).double(), draw(3, 24).bfloat16(),
                               torch.zeros(3, 24, dtype=torch.int64), "text", None])
def test_wrong_inputs_fail_somehow(x):
    """Never a result from bytes read as another type or shape."""
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    for m in (twin, module):
        with torch.no_grad(), pytest.raises((RuntimeError, TypeError, ValueError)):
            m(x)


def test_merged_with_an_odd_number_of_rows():
    module = fill(Merged("stacked_gate_first"))
    module.gate_up_proj = nn.Linear(24, 81)
    assert not tileglu.patch(module).patched
