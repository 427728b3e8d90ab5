"""What tileglu.patch asks of the rest of the package."""

import functools

import torch

from . import Error, _ops, device_info


def _weights(recipe, operands):
    """The keyword arguments of mlp.  operands: weight and bias of each of recipe.linears."""
    if recipe.layout == "separate":
        gate, gate_bias, up, up_bias, down, down_bias = operands
        weights = {"gate": gate, "up": up, "gate_bias": gate_bias, "up_bias": up_bias}
    else:
        both, both_bias, down, down_bias = operands
        weights = {"gate_up": both, "gate_up_bias": both_bias, "layout": recipe.layout}
    weights["down"], weights["down_bias"] = down, down_bias
    weights["activation"] = recipe.activation
    if recipe.activation == "swigluoai":
        weights["alpha"], weights["limit"] = recipe.alpha, recipe.limit
        weights["offset"] = recipe.offset
    return weights


def eager(recipe, x, w):
    """The fused MLP straight from C, or NotImplemented; w as `operands` below.  Not under a
    compiler."""
    if _ops._EAGER_MLP is None:
        return NotImplemented
    numbers = (None, None, None)
    if recipe.activation == "swigluoai":
        numbers = (recipe.alpha, recipe.limit, recipe.offset)
    if recipe.layout == "separate":
        return _ops._call(_ops._EAGER_MLP, x, w[0], w[2], None, w[4], w[1], w[3], None, w[5], None,
                          recipe.activation, None, *numbers)
    return _ops._call(_ops._EAGER_MLP, x, None, None, w[0], w[2], None, None, w[1], w[3], None,
                      recipe.activation, recipe.layout, *numbers)


def mlp(recipe, x, operands):
    """What the patched module's forward returns for x."""
    return _ops.mlp(x, **_weights(recipe, operands))


@functools.cache
def refusal(device, dtype):
    """Why tileglu cannot compute with this type on this device; None if it can."""
    if device.type not in ("cpu", "cuda"):
        return f"tileglu has no backend for {device.type} devices"
    if device.type == "cuda" and dtype is torch.float32:
        return "float32 is computed on the CPU only"
    try:
        device_info(device)
    except Error as error:
        return f"tileglu cannot use {device}: {error}"
    return None


@torch.compiler.assume_constant_result
def serves(device, dtype):
    return refusal(device, dtype) is None


def rows(recipe, module, tokens):
    """{number of tokens: kernel rows}, {} where there is nothing to plan with."""
    operands = []
    for name in recipe.linears:
        parameters = module._modules[name]._parameters
        operands += (parameters["weight"], parameters["bias"])
    weight = operands[0]
    if weight.is_meta or refusal(weight.device, weight.dtype):
        return {}
    found = {}
    for count in tokens:
        plan = _ops.plan(count, **_weights(recipe, operands))
        found[count] = " + ".join(name for name in (plan["row"], plan["down_row"]) if name)
    return found
