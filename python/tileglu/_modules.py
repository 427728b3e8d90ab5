"""GLU and MLP as modules, with the parameters of ordinary linear layers inside."""

import torch

from . import _ops, _rules


def _operands(module, name):
    """Weight and bias of a projection.  By way of the dictionaries: torch's attributes of
    modules cost more than the rest of a call."""
    linear = module._modules[name]
    if type(linear) is not torch.nn.Linear:
        raise TypeError(f"{name}: is a {type(linear).__name__}; only plain torch.nn.Linear "
                        "layers can be computed together")
    return linear._parameters["weight"], linear._parameters["bias"]


class _Gated(torch.nn.Module):
    """What both modules have: the projections, named as in Hugging Face models."""

    def __init__(self, hidden, intermediate, activation="silu", *, bias=False,
                 layout="separate", alpha=None, limit=None, offset=None, device=None, dtype=None):
        super().__init__()
        _rules._one_of("layout", layout, _rules.LAYOUTS)
        _rules._one_of("activation", activation, _rules.ACTIVATIONS)
        self.hidden, self.intermediate = hidden, intermediate
        self.activation, self.layout = activation, layout
        self.alpha, self.limit, self.offset = alpha, limit, offset
        kind = {"bias": bias, "device": device, "dtype": dtype}
        if layout == "separate":
            self.gate_proj = torch.nn.Linear(hidden, intermediate, **kind)
            self.up_proj = torch.nn.Linear(hidden, intermediate, **kind)
        else:
            self.gate_up_proj = torch.nn.Linear(hidden, 2 * intermediate, **kind)

    def extra_repr(self):
        return (f"hidden={self.hidden}, intermediate={self.intermediate}, "
                f"activation={self.activation!r}, layout={self.layout!r}")


class GLU(_Gated):
    """x [..., hidden] to act(gate_proj(x)) * up_proj(x) [..., intermediate]; with a stacked
    or interleaved layout one gate_up_proj holds both.  Inference only."""

    def forward(self, x):
        if self.layout == "separate":
            gate, gate_bias = _operands(self, "gate_proj")
            up, up_bias = _operands(self, "up_proj")
            return _ops.glu(x, gate, up, gate_bias=gate_bias, up_bias=up_bias,
                            activation=self.activation, alpha=self.alpha, limit=self.limit,
                            offset=self.offset)
        both, bias = _operands(self, "gate_up_proj")
        return _ops.glu(x, gate_up=both, gate_up_bias=bias, layout=self.layout,
                        activation=self.activation, alpha=self.alpha, limit=self.limit,
                        offset=self.offset)


class MLP(_Gated):
    """x [..., hidden] to down_proj(act(gate_proj(x)) * up_proj(x)) + residual, the whole
    gated MLP of a Llama-like model under its parameter names.  Inference only."""

    def __init__(self, hidden, intermediate, activation="silu", *, bias=False, device=None,
                 dtype=None, **options):
        super().__init__(hidden, intermediate, activation, bias=bias, device=device,
                         dtype=dtype, **options)
        self.down_proj = torch.nn.Linear(intermediate, hidden, bias=bias, device=device,
                                         dtype=dtype)

    def forward(self, x, residual=None):
        down, down_bias = _operands(self, "down_proj")
        if self.layout == "separate":
            gate, gate_bias = _operands(self, "gate_proj")
            up, up_bias = _operands(self, "up_proj")
            return _ops.mlp(x, gate, up, down, gate_bias=gate_bias, up_bias=up_bias,
                            down_bias=down_bias, residual=residual, activation=self.activation,
                            alpha=self.alpha, limit=self.limit, offset=self.offset)
        both, bias = _operands(self, "gate_up_proj")
        return _ops.mlp(x, gate_up=both, gate_up_bias=bias, down=down, down_bias=down_bias,
                        residual=residual, layout=self.layout, activation=self.activation,
                        alpha=self.alpha, limit=self.limit, offset=self.offset)
