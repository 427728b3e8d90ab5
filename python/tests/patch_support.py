"""What the tests of tileglu.patch share."""

import contextlib

import torch
from torch import nn

from tileglu import _patch_call


class Gated(nn.Module):
    """A gated MLP as Hugging Face models have it; the names of its linears are given."""

    def __init__(self, hidden=24, intermediate=40, act=None, names=("gate_proj", "up_proj",
                 "down_proj"), bias=False):
        super().__init__()
        self.names = names
        for name in names[:2]:
            setattr(self, name, nn.Linear(hidden, intermediate, bias=bias))
        setattr(self, names[2], nn.Linear(intermediate, hidden, bias=bias))
        self.act_fn = act or nn.SiLU()

    def linear(self, place):
        return getattr(self, self.names[place])

    def forward(self, x):
        return self.linear(2)(self.act_fn(self.linear(0)(x)) * self.linear(1)(x))


class Merged(nn.Module):
    """One linear for gate and up; `order` says how its output is cut."""

    def __init__(self, order, hidden=24, intermediate=40, act=None, bias=False):
        super().__init__()
        self.order = order
        self.gate_up_proj = nn.Linear(hidden, 2 * intermediate, bias=bias)
        self.down_proj = nn.Linear(intermediate, hidden, bias=bias)
        self.act_fn = act or nn.SiLU()

    def forward(self, x):
        both = self.gate_up_proj(x)
        if self.order == "interleaved":
            gate, up = both[..., 0::2], both[..., 1::2]
        else:
            gate, up = both.chunk(2, dim=-1)
        if self.order == "stacked_up_first":
            gate, up = up, gate
        return self.down_proj(self.act_fn(gate) * up)


def fill(model, seed=0):
    """Random weights of a size at which each part of the model moves its output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(1 + 0.25 * noise)
            else:
                scale = parameter.shape[-1] ** -0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


def draw(*shape, dtype=torch.float32, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def error(out, want):
    """Relative L2 error; NaN anywhere gives infinity."""
    out, want = out.detach().double(), want.detach().double()
    value = ((out - want).norm() / want.norm()).item()
    return value if value == value else float("inf")


@contextlib.contextmanager
def counted(monkeypatch):
    """Counts the fused calls of patched modules: `with counted(monkeypatch) as calls`."""
    calls = []

    def counting(genuine):
        def count(recipe, x, operands):
            out = genuine(recipe, x, operands)
            if out is not NotImplemented:
                calls.append(recipe)
            return out
        return count

    with monkeypatch.context() as patcher:
        for name in ("mlp", "eager"):
            patcher.setattr(_patch_call, name, counting(getattr(_patch_call, name)))
        yield calls


def compiled_and_watched(module):
    """(The module compiled without a break, a list that says of each graph made for it whether
    tileglu.mlp is in it.)"""
    fused = []

    def look(graph, inputs):
        fused.append(any("tileglu.mlp" in str(node.target) for node in graph.graph.nodes))
        return graph

    return torch.compile(module, backend=look, fullgraph=True), fused
