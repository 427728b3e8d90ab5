"""What glu and mlp ask of their arguments, in words.

The one judge of shapes, types and devices: the C side answers NotImplemented for what it
cannot take, and the fake implementations see no data, so both come here.
"""

import operator

import torch

LAYOUTS = ("separate", "stacked_gate_first", "stacked_up_first", "interleaved")
ACTIVATIONS = ("silu", "gelu_tanh", "gelu_erf", "relu", "sigmoid", "swigluoai")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def _shape(tensor):
    return "[" + ", ".join(str(size) for size in tensor.shape) + "]"


def _one_of(name, value, values):
    if value not in values:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(values)}")


_TENSORS = ("x", "gate", "up", "gate_up", "down", "gate_bias", "up_bias", "gate_up_bias",
            "down_bias", "residual")


def tensors(values):
    """Refuses what is no tensor of elements in memory; values as _TENSORS, None: left out."""
    for name, value in zip(_TENSORS, values):
        if value is None and name != "x" or hasattr(value, "__torch_function__") and \
                not isinstance(value, torch.Tensor):  # something that stands for one
            continue
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name}: is a {type(value).__name__} and must be a tensor")
        if value.layout is not torch.strided:
            raise TypeError(f"{name}: is a {value.layout} tensor and must be a dense one")
        if value.is_quantized:
            raise TypeError(f"{name}: is quantized ({value.dtype}); tileglu computes in bfloat16, "
                            "float16 and (on the CPU) float32")
        if name not in ("x", "residual") and value.is_neg():
            raise ValueError(f"{name}: has torch's negative bit; weights are read where they lie: "
                             "give its resolve_neg()")


def names(activation, layout, alpha, limit, offset):
    """Refuses what is no name and no number."""
    if not isinstance(activation, str):
        raise TypeError(f"activation: is a {type(activation).__name__} and must be a str, one of "
                        + ", ".join(ACTIVATIONS))
    if not isinstance(layout, (str, type(None))):
        raise TypeError(f"layout: is a {type(layout).__name__} and must be a str, one of "
                        + ", ".join(LAYOUTS))
    for name, value in (("alpha", alpha), ("limit", limit), ("offset", offset)):
        if value is not None and not hasattr(value, "__float__") and \
                not hasattr(value, "__index__"):
            raise TypeError(f"{name}: is a {type(value).__name__} and must be a number")


def token_count(tokens):
    """plan's number of tokens."""
    try:
        count = operator.index(tokens)
    except TypeError:
        raise TypeError(f"tokens: is a {type(tokens).__name__} and must be an int") from None
    if not 0 <= count < 2 ** 63:
        raise ValueError(f"tokens: {count} is not between 0 and 2**63 - 1")
    return count


def layout_of(layout, gate_up):
    """The layout in use where None was given."""
    if layout is not None:
        return layout
    return "separate" if gate_up is None else "stacked_gate_first"


def _given(layout, gate, up, gate_up, gate_bias, up_bias, gate_up_bias):
    """Refuses weights that the layout lacks or does not know."""
    if layout == "separate":
        needed, refused = {"gate": gate, "up": up}, {"gate_up": gate_up, "gate_up_bias": gate_up_bias}
    else:
        needed = {"gate_up": gate_up}
        refused = {"gate": gate, "up": up, "gate_bias": gate_bias, "up_bias": up_bias}
    for name, value in needed.items():
        if value is None:
            raise TypeError(f"{name}: is needed with layout {layout!r}")
    for name, value in refused.items():
        if value is not None:
            raise TypeError(f"{name}: must be left out with layout {layout!r}")


def _matrix(name, tensor, rows, columns, meaning):
    """One weight: its shape, and rows that are contiguous."""
    if tensor.dim() != 2 or tensor.shape[1] != columns or (
            rows is not None and tensor.shape[0] != rows):
        wanted = f"[{'any' if rows is None else rows}, {columns}]"
        hint = ""
        if tensor.dim() == 2 and tensor.shape[0] == columns and rows in (None, tensor.shape[1]):
            hint = "; it looks stored input-by-output: give its transpose, made contiguous"
        raise ValueError(f"{name}: has shape {_shape(tensor)} and must be {wanted}, "
                         f"which is {meaning}{hint}")
    if tensor.shape[1] > 1 and tensor.stride(1) != 1:
        raise ValueError(f"{name}: the elements of a row lie {tensor.stride(1)} apart (shape "
                         f"{_shape(tensor)}, strides {tuple(tensor.stride())}); weights are "
                         "read where they lie, never copied: store it with contiguous rows")
    if tensor.shape[0] > 1 and tensor.stride(0) < tensor.shape[1]:
        raise ValueError(f"{name}: its rows lie {tensor.stride(0)} apart and overlap (shape "
                         f"{_shape(tensor)})")


def _width(x, name, weight):
    """Whether x is as wide as the weight's rows are long: if not, x is told, unless it is the
    weight that looks wrong (_matrix says how)."""
    if weight.dim() == 2 and weight.shape[1] != x.shape[-1] and weight.shape[0] != x.shape[-1]:
        raise ValueError(f"x: has shape {_shape(x)} and must be [..., {weight.shape[1]}], as long "
                         f"as the rows of {name} {_shape(weight)}")


def _bias(name, tensor, size):
    if tensor is None:
        return
    if tensor.dim() != 1 or tensor.shape[0] != size:
        raise ValueError(f"{name}: has shape {_shape(tensor)} and must be [{size}]")
    if size > 1 and tensor.stride(0) != 1:
        raise ValueError(f"{name}: its elements lie {tensor.stride(0)} apart; it must be "
                         "contiguous")


def _same_kind(x, tensors):
    """One type and one device for all."""
    if x.dtype not in DTYPES:
        raise TypeError(f"x: is {x.dtype}; tileglu computes in bfloat16, float16 and (on the "
                        "CPU) float32")
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.dtype != x.dtype:
            raise TypeError(f"{name}: is {tensor.dtype} and x is {x.dtype}; outside of "
                            "torch.autocast all must have one type")
        if tensor.device != x.device:
            raise ValueError(f"{name}: is on {tensor.device} and x is on {x.device}")


def check(x, gate, up, gate_up, layout, gate_bias, up_bias, gate_up_bias, activation,
          down=None, down_bias=None, residual=None):
    """Raises for what breaks a rule.  The number of intermediate features else."""
    layout = layout_of(layout, gate_up)
    _one_of("layout", layout, LAYOUTS)
    _one_of("activation", activation, ACTIVATIONS)
    _given(layout, gate, up, gate_up, gate_bias, up_bias, gate_up_bias)
    _same_kind(x, {"gate": gate, "up": up, "gate_up": gate_up, "down": down,
                   "gate_bias": gate_bias, "up_bias": up_bias, "gate_up_bias": gate_up_bias,
                   "down_bias": down_bias, "residual": residual})
    if x.dim() < 1:
        raise ValueError("x: has no dimension; its last one must be the hidden features")
    hidden = x.shape[-1]
    if hidden == 0:
        raise ValueError(f"x: has shape {_shape(x)}; its last dimension, hidden, must be 1 or more")
    if layout == "separate":
        _width(x, "gate", gate)
        _matrix("gate", gate, None, hidden, "[intermediate, hidden] for x " + _shape(x))
        size = gate.shape[0]
        _matrix("up", up, size, hidden, "[intermediate, hidden] as gate")
        if size > 1 and gate.stride(0) != up.stride(0):
            raise ValueError(f"gate, up: their rows lie {gate.stride(0)} and {up.stride(0)} "
                             "elements apart; both must have one row stride")
        _bias("gate_bias", gate_bias, size)
        _bias("up_bias", up_bias, size)
    else:
        _width(x, "gate_up", gate_up)
        _matrix("gate_up", gate_up, None, hidden, "[2 * intermediate, hidden] for x " + _shape(x))
        if gate_up.shape[0] % 2 != 0:
            raise ValueError(f"gate_up: has {gate_up.shape[0]} rows, which is odd")
        size = gate_up.shape[0] // 2
        _bias("gate_up_bias", gate_up_bias, gate_up.shape[0])
    if down is not None:
        _matrix("down", down, hidden, size, "[hidden, intermediate]")
        _bias("down_bias", down_bias, hidden)
    if residual is not None and residual.shape != x.shape:
        raise ValueError(f"residual: has shape {_shape(residual)} and must have x's, "
                         f"{_shape(x)}")
    return size
