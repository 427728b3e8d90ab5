"""Modules that are changed after tileglu.patch: they compute what an unpatched one would."""

import copy
import functools
import gc
import pickle
import weakref

import pytest
import torch
from patch_support import Gated, compiled_and_watched, counted, draw, error, fill
from torch import nn
from torch.nn import functional

import tileglu


class Plain(Gated):
    """Reads attributes; its activation is a function."""
    late = 1.0  # of the class until an object has its own

    def __init__(self, act=functional.silu):
        super().__init__()
        del self.act_fn
        self.act_fn, self.scale, self.factors, self.notes = act, 1.0, [1.0], None

    def forward(self, x):
        h = self.act_fn(self.gate_proj(x)) * self.up_proj(x) * self.scale * self.factors[0]
        out = self.down_proj(h) * self.late
        return out if getattr(self, "extra", None) is None else out + self.extra


class Act(nn.Module):
    """An activation with a part, as ClippedGELUActivation."""

    def __init__(self):
        super().__init__()
        self.inner, self.top = nn.GELU(), float("inf")

    def forward(self, g):
        return self.inner(g).clamp(max=self.top)


class Callable:
    """An activation that is no module."""
    slope = 1.0

    def __init__(self):
        self.slope = 1.0

    def __call__(self, g):
        return functional.silu(g) * self.slope


def set_to(name, value):
    return lambda module: setattr(module, name, value)


def in_child(name, value):
    return lambda module: setattr(module.act_fn, name, value)


def double(module, inputs, out):
    return 2 * out


CHANGES = {
    "module for module": (Gated, set_to("act_fn", nn.GELU())),
    "module of one kind": (lambda: Gated(act=nn.GELU()), set_to("act_fn", nn.GELU("tanh"))),
    "by the dictionary": (Gated, lambda m: m._modules.update(act_fn=nn.ReLU())),
    "function for module": (Gated, lambda m: (delattr(m, "act_fn"),
                                              setattr(m, "act_fn", functional.relu))),
    "function for function": (Plain, set_to("act_fn", functional.relu)),
    "module for function": (Plain, set_to("act_fn", nn.GELU())),
    "option of the activation": (lambda: Gated(act=nn.GELU()), in_child("approximate", "tanh")),
    "hook": (Gated, lambda m: m.act_fn.register_forward_hook(double)),
    "pre-hook": (Gated, lambda m: m.act_fn.register_forward_pre_hook(lambda m, x: (2 * x[0],))),
    "hook inside": (lambda: Gated(act=Act()), lambda m: m.act_fn.inner.register_forward_hook(double)),
    "option of a part": (lambda: Gated(act=Act()), lambda m: setattr(m.act_fn.inner, "approximate",
                                                                     "tanh")),
    "part": (lambda: Gated(act=Act()), in_child("inner", nn.SiLU())),
    "bound": (lambda: Gated(act=Act()), in_child("top", 0.25)),
    "its forward": (Gated, lambda m: setattr(m.act_fn, "forward", functional.relu)),
    "its class": (Gated, in_child("__class__", nn.Mish)),
    "its state": (lambda: Plain(Callable()), in_child("slope", 2.0)),
    "attribute": (Plain, set_to("scale", 2.0)),
    "attribute by the dictionary": (Plain, lambda m: vars(m).update(scale=2.0)),
    "attribute, a tensor": (Plain, set_to("scale", torch.arange(40.0))),
    "attribute over the class'": (Plain, set_to("late", 2.0)),
    "new attribute": (Plain, set_to("extra", 1.0)),
    "new parameter": (Plain, lambda m: m.register_parameter("extra", nn.Parameter(draw(24)))),
    "new buffer": (Plain, lambda m: m.register_buffer("extra", draw(24))),
    "inside a list": (Plain, lambda m: m.factors.__setitem__(0, 3.0)),
}


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_after_patch(monkeypatch, name, copied):
    make, change = CHANGES[name]
    module, twin = fill(make()), fill(make())
    assert len(tileglu.patch(module).patched) == 1
    x = draw(3, 24)
    with torch.no_grad():
        before = module(x)
        if copied:  # a copy is watched from its first moment on
            module = copy.deepcopy(module)
        change(module), change(twin)
        with counted(monkeypatch) as calls:
            for m in (module, copy.deepcopy(module)):
                assert torch.equal(m(x), twin(x)) and error(m(x), before) > 1e-5
    assert not calls
    entry = tileglu.report(module).patched[0]
    assert "is not what it was" in entry.reason and not entry.rows


@pytest.mark.parametrize("name, activation", [
    ("module for module", "gelu_erf"), ("function for function", "relu"),
    ("option of the activation", "gelu_tanh"), ("attribute", None), ("hook", None)])
def test_patch_again_reads_anew(monkeypatch, name, activation):
    make, change = CHANGES[name]
    module, twin = fill(make()), fill(make())
    tileglu.patch(module)
    change(module), change(twin)
    report = tileglu.patch(module)
    with torch.no_grad(), counted(monkeypatch) as calls:
        assert error(module(draw(3, 24)), twin(draw(3, 24))) < 1e-6
    assert [entry.activation for entry in report.patched] == ([activation] if activation else [])
    assert len(calls) == len(report.patched)
    tileglu.unpatch(module)
    assert type(module) is type(twin) and not any("tileglu" in key for key in vars(module))


def test_changed_back(monkeypatch):
    module = fill(Plain())
    tileglu.patch(module)
    with torch.no_grad(), counted(monkeypatch) as calls:
        module.scale = 2.0
        module(draw(3, 24))
        module.scale = 1.0
        module(draw(3, 24))
        handle = module.register_forward_hook(lambda m, i, o: None)  # around its forward
        module(draw(3, 24))
        handle.remove()
    assert len(calls) == 2


def test_forward_of_the_class(monkeypatch):
    class Other(Gated):
        pass

    module = fill(Other())
    tileglu.patch(module)
    Other.forward = lambda self, x: 3 * Gated.forward(self, x)
    with torch.no_grad(), counted(monkeypatch) as calls:
        assert torch.equal(module(draw(3, 24)), 3 * fill(Gated())(draw(3, 24)))
    assert not calls


def test_what_does_not_matter(monkeypatch):
    """Training mode, notes of tools, a compiled or wrapped forward, another plain linear."""
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    with torch.no_grad(), counted(monkeypatch) as calls:
        module.train()
        module(draw(3, 24))
        module.eval()
        module._is_hf_initialized = True
        module(draw(3, 24))
        ours = module.forward
        module.forward = functools.partial(lambda x: 2 * ours(x))
        assert error(module(draw(3, 24)), 2 * twin(draw(3, 24))) < 1e-6
        del module.forward
        for m in (module, twin):
            m.up_proj = fill(nn.Linear(24, 40, bias=False), 5)
        assert error(module(draw(3, 24)), twin(draw(3, 24))) < 1e-6
        other = pickle.loads(pickle.dumps(module))
        assert error(other(draw(3, 24)), twin(draw(3, 24))) < 1e-6
    assert len(calls) == 5


def test_dropout_in_another_mode(monkeypatch):
    class Dropping(Gated):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x):
            return self.dropout(super().forward(x))

    module, twin = fill(Dropping()), fill(Dropping())
    tileglu.patch(module)
    module.dropout.train(), twin.dropout.train()
    with torch.no_grad(), counted(monkeypatch) as calls:
        torch.manual_seed(1)
        out = module(draw(3, 24))
        torch.manual_seed(1)
        assert torch.equal(out, twin(draw(3, 24)))
    assert not calls


def test_hooks_and_tensors_at_patch():
    module = fill(Gated())
    module.act_fn.register_forward_hook(lambda m, i, o: None)
    assert "act_fn has forward hooks" in tileglu.patch(module).left_alone[0].reason
    module = fill(Plain())
    module.scale = torch.ones(())
    assert "more than linears: scale" in tileglu.patch(module).left_alone[0].reason


def test_a_patched_model_is_freed_when_it_is_let_go():
    module = fill(Gated())
    tileglu.patch(module)
    with torch.no_grad():
        module(draw(3, 24))
    weight = weakref.ref(module.gate_proj.weight)
    gc.disable()
    try:
        del module
        assert weight() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["module for module", "module of one kind", "attribute",
                                  "function for function", "option of the activation"])
def test_changed_after_compile(name):
    """(Hooks are none of them: torch.compile does not watch them.)"""
    torch._dynamo.reset()
    make, change = CHANGES[name]
    module, twin = fill(make()), fill(make())
    tileglu.patch(module)
    compiled, fused = compiled_and_watched(module)
    x = draw(3, 24)
    with torch.inference_mode():
        assert error(compiled(x), twin(x)) < 1e-6
        change(module), change(twin)
        assert error(compiled(x), twin(x)) < 1e-6
    assert fused == [True, False]


def test_negative_bit(monkeypatch):
    module, twin = fill(Gated()), fill(Gated())
    tileglu.patch(module)
    x = torch._neg_view(draw(3, 24))
    with torch.no_grad(), counted(monkeypatch) as calls:
        assert error(module(x), twin(x)) < 1e-6 and len(calls) == 1
        for m in (module, twin):
            m.up_proj.weight = nn.Parameter(torch._neg_view(m.up_proj.weight.detach()))
        assert torch.equal(module(x), twin(x)) and len(calls) == 1
    assert "negative bit" in tileglu.report(module).patched[0].reason
    with torch.no_grad():
        tileglu.unpatch(module)
    assert "negative bit" in tileglu.patch(module).left_alone[0].reason
