"""GLU and MLP as modules, with the parameters of ordinary linear layers inside."""

import torch

from . import _ops, _rules


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
            gate, up = self.gate_proj, self.up_proj
            return _ops.glu(x, gate.weight, up.weight, gate_bias=gate.bias, up_bias=up.bias,
                            activation=self.activation, alpha=self.alpha, limit=self.limit,
                            offset=self.offset)
        both = self.gate_up_proj
        return _ops.glu(x, gate_up=both.weight, gate_up_bias=both.bias, layout=self.layout,
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
        down = self.down_proj
        if self.layout == "separate":
            gate, up = self.gate_proj, self.up_proj
            return _ops.mlp(x, gate.weight, up.weight, down.weight, gate_bias=gate.bias,
                            up_bias=up.bias, down_bias=down.bias, residual=residual,
                            activation=self.activation, alpha=self.alpha, limit=self.limit,
                            offset=self.offset)
        both = self.gate_up_proj
        return _ops.mlp(x, gate_up=both.weight, gate_up_bias=both.bias, down=down.weight,
                        down_bias=down.bias, residual=residual, layout=self.layout,
                        activation=self.activation, alpha=self.alpha, limit=self.limit,
                        offset=self.offset)
