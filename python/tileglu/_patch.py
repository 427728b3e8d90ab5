"""tileglu.patch: the gated MLPs of a Hugging Face model, computed by tileglu.

    report = tileglu.patch(model)     # in place; no weight is copied
    print(report)                     # what was patched, and what was left alone and why
    tileglu.unpatch(model)            # as before

A patched module keeps its linears and its weights.  Only its forward is replaced, by way
of a subclass made for the purpose, with one that reads the linears at every call: weights
changed in place, moved, cast or loaded anew are the ones used.  Wherever the fused call
would not be the same computation (gradients, dropout at work, hooks, a linear replaced by
an adapter or a quantised one, another activation or attribute than there was, a device or
type that tileglu does not serve) that forward runs the module's own instead.
"""

import functools
import warnings

import torch
from torch import nn
from torch.nn.modules import module as _torch_module

from . import Error
from . import _patch_call as _call
from ._patch_find import DTYPES, NotGated, linear_reason, recipe_of
from ._patch_guard import Guard, mutable_reason
from ._patch_report import Entry, Report

_TENSORS = (torch.Tensor, nn.Parameter)
_GLOBAL_HOOKS = (_torch_module._global_forward_hooks, _torch_module._global_forward_pre_hooks)


# ---- Patched classes -------------------------------------------------------------


def _forward(self, *args, **kwargs):
    recipe = self.__dict__.get("_tileglu")
    if recipe is not None and len(args) == 1 and not kwargs:
        x = args[0]
        if not torch.compiler.is_compiling():
            out = _eager(self, recipe, x)
            if out is not NotImplemented:
                return out
        operands = _operands(self, recipe, x)
        if operands is not None:
            return _call.mlp(recipe, x, operands)
    kind = type(self)
    # Without a base of ours: kept by someone who wrapped it, and called after unpatch.
    return getattr(kind, "_tileglu_base", kind).forward(self, *args, **kwargs)


@functools.cache
def _patched_class(base):
    """The subclass of a module class that a patched module gets.  A subclass, and not a
    forward on the instance: copies, pickles and replicas of the module stay patched, each
    with its own weights."""

    def reduce(self, protocol):
        state, *rest = object.__reduce_ex__(self, protocol)[2:]
        if isinstance(state, dict) and "_tileglu" in state:
            state = {**state, "_tileglu_guard": _is_unchanged(self)}
        return (_new_patched, (base,), state, *rest)

    def set_state(self, state):
        base.__setstate__(self, state)
        if self.__dict__.get("_tileglu_guard") is True:
            _watch(self, self.__dict__["_tileglu"])

    return type(base.__name__, (base,), {
        "forward": _forward, "_tileglu_base": base, "__reduce_ex__": reduce,
        "__setstate__": set_state,
        "__module__": base.__module__, "__qualname__": base.__qualname__,
        "__doc__": base.__doc__})


def _new_patched(base):
    kind = _patched_class(base)
    return kind.__new__(kind)


def _watch(module, recipe):
    """From now on, a change of what the module computes is seen."""
    module.__dict__["_tileglu_guard"] = Guard(module, recipe.linears, recipe.eval_only)


def _is_unchanged(module):
    """Whether the module is what it was when it was patched; False for a copy of one that was
    not."""
    guard = module.__dict__.get("_tileglu_guard")
    return isinstance(guard, Guard) and guard.holds(module)


def _eager(module, recipe, x):
    """The usual call, quickly: what C judges itself (types, strides, gradients, modes) is not
    asked here.  NotImplemented where anything is out of the ordinary."""
    if type(x) is not torch.Tensor or x.dim() not in recipe.ranks or _GLOBAL_HOOKS[0] or \
            _GLOBAL_HOOKS[1] or recipe.eval_only and module.training:
        return NotImplemented
    guard = module.__dict__.get("_tileglu_guard")
    if not guard or not guard.holds(module):
        return NotImplemented
    operands = []
    for name in recipe.linears:
        linear = module._modules[name]
        state = linear.__dict__
        if type(linear) is not nn.Linear or state["_forward_hooks"] or \
                state["_forward_pre_hooks"] or "forward" in state:
            return NotImplemented
        parameters = state["_parameters"]
        operands += (parameters.get("weight"), parameters.get("bias"))
    if not _call.serves(x.device, x.dtype):
        return NotImplemented
    return _call.eager(recipe, x, operands)


def _operands(module, recipe, x):
    """Weight and bias of each of recipe.linears, flat; None where the module's own forward
    must run."""
    if type(x) not in _TENSORS or x.dim() not in recipe.ranks:
        return None
    if recipe.eval_only and module.training or _GLOBAL_HOOKS[0] or _GLOBAL_HOOKS[1]:
        return None
    guard = module.__dict__.get("_tileglu_guard")
    if not guard:
        return None
    if not (guard.holds_traced if torch.compiler.is_compiling() else guard.holds)(module):
        return None
    dtype, device, differentiable = x.dtype, x.device, x.requires_grad
    if device.type not in ("cpu", "cuda"):
        return None
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)  # x is cast, as it is for a linear
    operands = []
    for name in recipe.linears:
        linear = module._modules[name]
        # linear_reason in short: a linear may change after patch.
        if type(linear) is not nn.Linear or linear._forward_hooks or \
                linear._forward_pre_hooks or "forward" in linear.__dict__:
            return None
        weight, bias = linear._parameters.get("weight"), linear._parameters.get("bias")
        if type(weight) is not nn.Parameter or weight.dtype is not dtype or \
                weight.device != device or not weight.is_contiguous():
            return None
        if bias is not None and (bias.dtype is not dtype or not bias.is_contiguous()):
            return None
        if not torch.compiler.is_compiling() and (
                weight.is_neg() or bias is not None and bias.is_neg()):
            return None
        differentiable = differentiable or weight.requires_grad
        operands += (weight, bias)
    if not _call.serves(device, dtype) or x.dtype not in DTYPES:
        return None
    if differentiable and torch.is_grad_enabled():
        _warn_of_gradients()
        return None
    return None if not torch.compiler.is_compiling() and _is_transformed() else operands


def _is_transformed():
    """True under torch.func's transforms and in forward-mode differentiation."""
    return torch._C._are_functorch_transforms_active() or \
        torch.autograd.forward_ad._current_level >= 0


_warned = False


def _warn_of_gradients():
    """Once a process: the usual cause is a forgotten no_grad, and the only sign is speed."""
    global _warned
    if not _warned and not torch.compiler.is_compiling():
        _warned = True
        warnings.warn("tileglu: gradients are being recorded, so patched modules run their own "
                      "forward; use torch.inference_mode() or torch.no_grad() for the fused one",
                      stacklevel=4)


# ---- Patching --------------------------------------------------------------------


def patch(model):
    """Replaces the forward of every gated MLP in the model; returns a Report.

    Modules that were patched before stay so, and are read anew where they changed since.
    Nothing else of the model changes."""
    return _examine(model, install=True)


def report(model):
    """The Report of the model as it is now; changes nothing."""
    return _examine(model, install=False)


def unpatch(model):
    """Gives every patched module its own forward back; returns their names."""
    names = []
    for name, module in model.named_modules():
        if "_tileglu" in module.__dict__:
            _restore(module)
            names.append(name)
    return names


def _restore(module):
    del module.__dict__["_tileglu"]
    module.__dict__.pop("_tileglu_guard", None)
    module.__class__ = type(module)._tileglu_base


def _examine(model, install):
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: a torch.nn.Module is expected, not a {type(model).__name__}")
    is_shared = _sharing(model)
    entries = []
    for name, module in model.named_modules():
        entry = Entry(name, type(module).__name__)
        try:
            if install and "_tileglu" in module.__dict__ and not _is_unchanged(module):
                _restore(module)
            recipe = present = module.__dict__.get("_tileglu")
            if present is None:
                recipe = recipe_of(module, functools.partial(is_shared, name))
                if recipe is None:
                    continue
                refusal = mutable_reason(module, recipe.linears) or _refusal(recipe, module)
                if refusal:
                    raise NotGated(refusal)
            entry.reason = _present_reason(recipe, module)
            entry.describe(recipe, module)
            if present is None and install:
                module.__dict__["_tileglu"] = recipe
                module.__class__ = _patched_class(type(module))
                _watch(module, recipe)
            elif present is None:
                raise NotGated("not patched, but can be")
            entry.patched = True
        except NotGated as reason:
            entry.reason = str(reason)
        except Error as error:  # from the plan: a call would meet it, too
            entry.reason, entry.patched = f"tileglu refuses it: {error}", present is not None
        entries.append(entry)
    return Report(entries)


def _present_reason(recipe, module):
    """Why a patched module would run its own forward now; None if it would not."""
    for name in recipe.linears:
        reason = linear_reason(module._modules[name])
        if reason:
            return f"runs its own forward: {name} {reason}"
    if recipe.eval_only and module.training:
        return "runs its own forward in training mode: dropout is at work"
    if "_tileglu" in module.__dict__ and not _is_unchanged(module):
        return ("runs its own forward: an activation, a hook or an attribute is not what it was; "
                "tileglu.patch reads it anew")
    refusal = _refusal(recipe, module)
    return f"runs its own forward: {refusal}" if refusal else None


def _refusal(recipe, module):
    """Why the weights' device or type is none of tileglu's; None if it is, or is meta."""
    weight = module._modules[recipe.down].weight
    return None if weight.is_meta else _call.refusal(weight.device, weight.dtype)


def _sharing(model):
    """is_shared(module's name, child's name, weight) -> what else uses its memory, or None.

    Two parameters share memory if they are one object, or if their bytes overlap."""
    names, spans = {}, []
    for name, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is None:
                continue
            full = f"{name}.{key}" if name else key
            names.setdefault(id(parameter), []).append(full)
            span = _span(parameter)
            if span:
                spans.append((*span, id(parameter), full))
    spans.sort(key=lambda item: item[:3])
    overlaps = {}
    reach = None  # the span seen so far that reaches farthest
    for span in spans:
        if reach and reach[0] == span[0] and span[1] < reach[2] and reach[3] != span[3]:
            overlaps[span[3]], overlaps[reach[3]] = reach[4], span[4]
        if reach is None or reach[0] != span[0] or span[2] > reach[2]:
            reach = span

    def is_shared(name, child, weight):
        own = f"{name}.{child}.weight" if name else f"{child}.weight"
        others = [other for other in names[id(weight)] if other != own]
        return others[0] if others else overlaps.get(id(weight))

    return is_shared


def _span(parameter):
    """(device, first byte, past the last byte), or None without memory of its own."""
    if type(parameter) is not nn.Parameter or parameter.is_meta or parameter.numel() == 0:
        return None
    try:
        first = parameter.data_ptr()
    except RuntimeError:
        return None
    last = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride()))
    return str(parameter.device), first, first + (last + 1) * parameter.element_size()
