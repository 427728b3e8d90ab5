"""Which modules of a model are gated MLPs: found by shape, tried with a probe.

A module is a candidate if its linears have the shapes of a gated MLP.  What it then
computes is not read off names: its own forward is run, in float64 and at tiny sizes, on
a twin with random weights, and compared with every reading that the shapes allow (which
linear is the gate, how a merged one is cut, which activation).  Only a module that one
reading alone explains, at small and at large values, gets a recipe.  So a checkpoint in
which w2 is the gate, a norm between the halves, a factor on the gate or a clipped
activation is either read right or left alone.  A probe proves nothing about what it did not
try: a forward that does something else from some number of tokens on, or for some values, is
not seen, save where it plainly compares sizes.

Nothing here reads or changes the model's own weights: a model on the meta device is
examined as well as any other.
"""

import copy
import dis
import inspect
import itertools
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

# Scales of the probe's inputs: the large ones make a clip or a limit show.
_SCALES = (1.0, 8.0, 64.0, 1024.0)
# Ranks of the probe's inputs: [batch, tokens, hidden] and [tokens, hidden].
_RANKS = (3, 2)
# Leading sizes of the probe's inputs, cut to the rank: the first with every scale, the others
# (one token, and many) with the first scale.
_SIZES = ((2, 3), (1, 1), (2, 40))
# Share of the sum of magnitudes that a result may be off.  The probe runs in float64, but
# an activation may compute in float32 (6e-8); the two GELUs differ by 2e-4.
_TOLERANCE = 1e-5
_INPUTS = (*((scale, _SIZES[0]) for scale in _SCALES), *((_SCALES[0], size) for size in _SIZES[1:]))
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Recipe:
    """How a module's linears make up a gated MLP."""

    gate: str  # names of children; where gate and up are one linear, both name it
    up: str
    down: str
    layout: str  # layout and activation are named as in the C API
    activation: str
    alpha: float
    limit: float
    offset: float
    eval_only: bool  # in training mode the module computes something else
    ranks: tuple  # of the inputs that its forward was seen to take
    linears: tuple  # gate, up and down, each once


class NotGated(Exception):
    """The module is left alone; the message says why."""


# ---- Linears ---------------------------------------------------------------------


def stands_for_linear(child):
    """True for a linear and for what is put in its place: adapted, quantised, sharded."""
    if isinstance(child, nn.Linear) or type(child).__name__ == "Conv1D":
        return True
    return hasattr(child, "in_features") and hasattr(child, "out_features")


def linear_reason(linear):
    """Why calling this child is more, or other, than its weight and bias; None if not."""
    if type(linear).__name__ == "Conv1D":
        rows, columns = linear.weight.shape
        return (f"is a Conv1D, whose weight lies input-by-output as [{rows}, {columns}] "
                f"where [{columns}, {rows}] is needed")
    if type(linear) is not nn.Linear:
        kind = f"{type(linear).__module__.split('.')[0]} {type(linear).__qualname__}"
        return f"is a {kind} and no plain torch.nn.Linear: quantised, adapted or sharded"
    if "forward" in linear.__dict__:
        return "has a forward of its own: offloaded, quantised or wrapped"
    if linear._forward_hooks or linear._forward_pre_hooks:
        return "has forward hooks, which a fused call would skip"
    weight, bias = linear._parameters.get("weight"), linear._parameters.get("bias")
    if type(weight) is not nn.Parameter:
        kind = "no parameter" if weight is None else f"a {type(weight).__name__}"
        return f"holds {kind} as its weight: quantised, sharded or computed"
    if weight.dtype not in DTYPES:
        return f"has a weight of {weight.dtype}, which is none of bfloat16, float16, float32"
    if tuple(weight.shape) != (linear.out_features, linear.in_features):
        return (f"has a weight of shape {list(weight.shape)} "
                f"where [{linear.out_features}, {linear.in_features}] is expected")
    if weight.is_neg() or bias is not None and bias.is_neg():
        return "has a weight or a bias with torch's negative bit"
    if not weight.is_contiguous():
        return (f"has a weight whose rows do not lie one after the other: strides "
                f"{list(weight.stride())} for {list(weight.shape)}")
    if bias is not None and (type(bias) is not nn.Parameter or bias.dtype != weight.dtype or
                             not bias.is_contiguous()):
        return "has a bias of another kind than its weight"
    return None


def _shape(linear):
    return linear.out_features, linear.in_features


def _roles(linears):
    """Every (gate, up, down, layout) that the shapes of {name: linear} allow."""
    shapes = {name: _shape(linear) for name, linear in linears.items()}
    if len(linears) == 3:
        return [(gate, up, down, "separate")
                for gate, up, down in itertools.permutations(linears)
                if shapes[gate] == shapes[up] == shapes[down][::-1]]
    if len(linears) == 2:
        return [(merged, merged, down, layout)
                for merged, down in itertools.permutations(linears)
                if shapes[merged] == (2 * shapes[down][1], shapes[down][0])
                for layout in ("stacked_gate_first", "stacked_up_first", "interleaved")]
    return []


# ---- Activations -----------------------------------------------------------------

_PLAIN = {
    "silu": functional.silu,
    "gelu_tanh": lambda g: functional.gelu(g, approximate="tanh"),
    "gelu_erf": functional.gelu,
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
}


def _gated(activation, numbers, g, u):
    """act(g) * u as the library computes it."""
    if activation != "swigluoai":
        return _PLAIN[activation](g) * u
    alpha, limit, offset = numbers
    g, u = g.clamp(max=limit), u.clamp(-limit, limit)
    return g * torch.sigmoid(alpha * g) * (u + offset)


def _activations(module):
    """Every (name, (alpha, limit, offset)) worth trying on this module."""
    tried = [(name, (1.0, math.inf, 0.0)) for name in _PLAIN]
    tried.append(("swigluoai", (1.702, math.inf, 0.0)))  # quick_gelu
    limit, alpha = getattr(module, "limit", None), getattr(module, "alpha", 1.702)
    if isinstance(limit, (int, float)) and isinstance(alpha, (int, float)) and limit > 0:
        tried += [("swigluoai", (float(alpha), float(limit), offset)) for offset in (1.0, 0.0)]
    return tried


def _activation_text(module):
    """What the module says its activation is, for a message."""
    for name in ("act_fn", "activation_fn", "act", "activation"):
        function = getattr(module, name, None)
        if function is not None:
            kind = getattr(function, "__name__", type(function).__name__)
            return f" ({name} is {kind})"
    return ""


# ---- The probe -------------------------------------------------------------------


def _random(shape, scale, generator):
    values = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    return values * scale


def _twin(module, linears, down, training):
    """The module with tiny random float64 linears; its other children are copied."""
    hidden, intermediate = _shape(linears[down])
    tiny = {intermediate: 10, 2 * intermediate: 20}
    tiny.setdefault(hidden, 6)
    generator = torch.Generator("cpu").manual_seed(20)
    twin = copy.copy(module)
    twin._modules = {}
    for name, child in module._modules.items():
        if name in linears:
            rows, columns = (tiny[size] for size in _shape(child))
            small = nn.Linear(columns, rows, bias=child.bias is not None,
                              device="meta", dtype=torch.float64)
            small.weight = nn.Parameter(_random((rows, columns), columns ** -0.5, generator))
            if child.bias is not None:
                small.bias = nn.Parameter(_random((rows,), 0.5, generator))
            twin._modules[name] = small
        else:
            twin._modules[name] = copy.deepcopy(child)
    twin.training = training
    for child in twin.children():
        child.train(training)
    return twin


def _observe(twin, hidden, ranks):
    """{rank: [(x, what the twin's own forward makes of x), ...]} of the ranks it takes."""
    seen, failed = {}, None
    for rank in ranks:
        generator = torch.Generator("cpu").manual_seed(rank)
        pairs = []
        try:
            for scale, size in _INPUTS:
                x = _random((*size, hidden)[-rank:], scale, generator)
                given = x.clone()
                pairs.append((x, type(twin).forward(twin, given)))
                if not torch.equal(given, x):
                    raise NotGated("its forward changes its input in place")
        except NotGated:
            raise
        except Exception as error:  # it may be any forward, and what it raises is its reason
            failed = error
            continue
        if not all(isinstance(out, torch.Tensor) for _, out in pairs):
            raise NotGated("its forward returns something else than one tensor")
        if any(out.shape != x.shape for x, out in pairs):
            raise NotGated("the shape that its forward returns is not that of its input")
        seen[rank] = pairs
    if not seen:
        first_line = (str(failed).splitlines() or [""])[0]
        raise NotGated("its forward does not take one small input by itself "
                       f"({type(failed).__name__}: {first_line})")
    return seen


def _explains(seen, twin, role, activation, numbers):
    """True if this reading of the twin's linears gives all that was seen."""
    gate, up, down, layout = role
    child = twin._modules
    down_bias = child[down].bias
    for x, out in itertools.chain(*seen.values()):
        g = child[gate](x)
        if layout == "separate":
            u = child[up](x)
        elif layout == "interleaved":
            g, u = g[..., 0::2], g[..., 1::2]
        elif layout == "stacked_gate_first":
            g, u = g.chunk(2, -1)
        else:
            u, g = g.chunk(2, -1)
        h = _gated(activation, numbers, g, u)
        magnitude = functional.linear(h.abs(), child[down].weight.abs(),
                                      None if down_bias is None else down_bias.abs())
        # A NaN on either side fails.
        if not bool(((child[down](h) - out).abs() <= _TOLERANCE * magnitude).all()):
            return False
    return True


def _compares_sizes(forward):
    """True if a forward reads sizes of something and compares something: what it does may
    depend on the number of tokens, which a probe cannot tell."""
    code = getattr(inspect.unwrap(forward), "__code__", None)
    return code is not None and bool({"shape", "size", "numel", "len"} & {*code.co_names}) and any(
        step.opname in ("COMPARE_OP", "CONTAINS_OP") for step in dis.get_instructions(code))


def _drops(module):
    return any(type(child).__name__.endswith("Dropout") and getattr(child, "p", 1) > 0
               for child in module.modules())


def _probe(module, linears, roles):
    """The recipe that alone explains what the module's forward does."""
    down = roles[0][2]
    twin = _twin(module, linears, down, training=False)
    hidden = twin._modules[down].out_features
    seen = _observe(twin, hidden, _RANKS)
    found = [(role, activation, numbers) for activation, numbers in _activations(module)
             for role in roles if _explains(seen, twin, role, activation, numbers)]
    if not found:
        raise NotGated("its forward is not down(act(gate) * up) with an activation of tileglu"
                       + _activation_text(module))
    if len(found) > 1:
        raise NotGated(f"{len(found)} readings of its linears fit what its forward does")
    role, activation, numbers = found[0]
    try:
        trained = _twin(module, linears, down, training=True)
        same = not _drops(module) and _explains(_observe(trained, hidden, tuple(seen)), trained,
                                                role, activation, numbers)
    except NotGated:
        same = False
    gate, up, down, layout = role
    return Recipe(gate, up, down, layout, activation, *numbers, eval_only=not same,
                  ranks=tuple(seen), linears=tuple(dict.fromkeys((gate, up, down))))


# ---- Modules ---------------------------------------------------------------------

# Words in a class's name that make a module worth a line in the report though its shapes
# do not fit.  They decide nothing else.
_HINTS = ("mlp", "feedforward", "ffn", "glu", "experts")


def recipe_of(module, is_shared):
    """The module's Recipe; None if it is nothing like a gated MLP; else raises NotGated.

    is_shared(child's name, its weight) -> what else uses that memory, or None."""
    linears = {name: child for name, child in module._modules.items()
               if child is not None and stands_for_linear(child)}
    hinted = any(word in type(module).__name__.lower() for word in _HINTS)
    plain = {name: child for name, child in linears.items() if hasattr(child, "in_features")}
    roles = _roles(plain) if len(plain) == len(linears) else []
    if not roles:
        if hinted:
            _raise_unfit(module, linears)
        return None
    if type(module).__module__ == "tileglu._modules":
        raise NotGated("it is one of tileglu's own")
    for name, child in linears.items():
        reason = linear_reason(child)
        if reason:
            raise NotGated(f"{name} {reason}")
    if len({child.weight.dtype for child in linears.values()}) > 1:
        raise NotGated("its linears are of different types")
    if len({child.weight.device for child in linears.values()}) > 1:
        raise NotGated("its linears are on different devices")
    own = {id(p) for child in linears.values() for p in child._parameters.values()}
    others = [name for name, tensor in itertools.chain(module.named_parameters(),
                                                       module.named_buffers())
              if id(tensor) not in own]
    if others:
        raise NotGated(f"it has more than linears: {others[0]}")
    for name, child in linears.items():
        other = is_shared(name, child.weight)
        if other:
            raise NotGated(f"{name}.weight is tied to {other}")
    if "forward" in module.__dict__:
        raise NotGated("its forward is already replaced by something else")
    if _compares_sizes(type(module).forward):
        raise NotGated("its forward compares sizes: it may depend on the number of tokens")
    try:
        # fork_rng: a dropout in training mode must not move the user's generator.
        with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.device("cpu"), \
                torch.random.fork_rng(devices=[]):
            return _probe(module, linears, roles)
    except NotGated:
        # Square attention projections have a gated MLP's shapes, too.
        if hinted or "gate" in " ".join(linears):
            raise
        return None


def _raise_unfit(module, linears):
    for name, child in linears.items():
        reason = linear_reason(child)
        if reason:
            raise NotGated(f"{name} {reason}")
    wide = [name for name, p in module.named_parameters(recurse=False) if p.dim() == 3]
    if wide:
        raise NotGated(f"{wide[0]} holds the weights of several experts (mixture of experts)")
    if linears:
        shapes = ", ".join(f"{name} {list(_shape(child))}" for name, child in linears.items())
        raise NotGated(f"its linears have other shapes than a gated MLP's: {shapes}")
