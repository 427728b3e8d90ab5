"""Whether a patched module is still the one that was tried when it was patched.

What a module computes may change without its linears: another activation, a hook on it, an
attribute that its forward reads.  A Guard remembers all of these and compares them at every
call, which takes about a microsecond."""

import types

import torch
from torch import nn

from . import _core

_same = _core.same
_PLAIN = (bool, int, float, str, type(None))
_WATCHED = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
# Set by torch around a module's forward.
_IGNORED = {"training", "_compiled_call_impl", "_is_full_backward_hook",
            "_backward_hooks", "_backward_pre_hooks"}
_MISSING = object()


def mutable_reason(module, linears):
    """What of this module, beside its linears, no Guard could watch; None if nothing."""
    for name, value in vars(module).items():
        if isinstance(value, torch.Tensor):
            return f"it has more than linears: {name}"
    for name, child in module._modules.items():
        if child is None or name in linears:
            continue
        for part in child.modules():
            if part._forward_hooks or part._forward_pre_hooks:
                return f"{name} has forward hooks, which a fused call would skip"
    return None


def _inside(state):
    """What a module's own attributes hold and may change in place."""
    for name, value in state.items():
        if isinstance(value, (list, dict, set)) and not name.startswith("_"):
            yield value
        elif callable(value) and not isinstance(value, (types.FunctionType, type, nn.Module)) \
                and isinstance(getattr(value, "__dict__", None), dict):
            yield value.__dict__


def _constants(state):
    return tuple((name, value) for name, value in state.items()
                 if name not in _IGNORED and isinstance(value, _PLAIN) and
                 not name.startswith("_tileglu"))


class _State:
    """The attributes of one module at a time when nothing had changed."""

    def __init__(self, module, left_out=()):
        self.kind = type(module)
        self._left_out = {"training", *left_out}
        self._take(vars(module))

    def _take(self, state):
        self._kept = {name: value for name, value in state.items()
                      if name not in self._left_out}
        self._others = len(state) - len(self._kept)

    def is_of(self, module):
        state = module.__dict__
        if _same(state, self._kept, self._others):
            return True
        if _differ(state, self._kept, self.kind, self._left_out):
            return False
        self._take(state)  # what differs does not matter
        return True


class Guard:
    """What a module was when it was patched; of its linears, only that they are there.  Holds
    nothing that leads back to the module, so that models are freed when they are let go."""

    def __init__(self, module, linears, eval_only):
        """eval_only: what the children compute depends on their training mode."""
        self._eval_only = eval_only
        others = {name: child for name, child in module._modules.items() if name not in linears}
        self._forward = type(module)._tileglu_base.forward
        self._count = len(module._modules)
        self._others = tuple(others.items())
        self._own = _State(module, ("forward", "_modules", "_tileglu", "_tileglu_guard"))
        self._parts = []
        live = [*_inside(vars(module)), module._parameters, module._buffers]
        for child in others.values():
            for part in child.modules() if child is not None else ():
                self._parts.append((part, _State(part)))
                live += [*_inside(vars(part)), *(getattr(part, name) for name in _WATCHED)]
        self._live, self._kept = live, [inside.copy() for inside in live]
        # The same for a compiler, which is to see the attributes themselves.
        self._constants = _constants(vars(module))
        self._functions = tuple((name, value) for name, value in vars(module).items()
                                if isinstance(value, types.FunctionType) and name != "forward")
        self._children = tuple((name, type(child), _constants(vars(child)))
                               for name, child in others.items() if child is not None)

    def holds(self, module):
        """True if nothing changed."""
        state = module.__dict__
        modules, training = state["_modules"], state["training"]
        try:
            if len(modules) != self._count or \
                    type(module)._tileglu_base.forward is not self._forward or \
                    not self._own.is_of(module):
                return False
            for name, child in self._others:
                if modules.get(name, _MISSING) is not child:
                    return False
            for part, before in self._parts:
                if type(part) is not before.kind or not before.is_of(part) or \
                        self._eval_only and part.__dict__["training"] is not training:
                    return False
            return self._live == self._kept
        except Exception:  # from a comparison with what was put in the place of something
            return False

    def holds_traced(self, module):
        """holds for a compiler that traces it: by values, and without what lies deeper."""
        if len(module._modules) != self._count:
            return False
        for name, value in self._constants:
            if getattr(module, name, _MISSING) != value:
                return False
        for name, value in self._functions:
            if getattr(module, name, None) is not value:
                return False
        for name, kind, constants in self._children:
            child = module._modules[name]
            if type(child) is not kind or child._forward_hooks or child._forward_pre_hooks or \
                    "forward" in child.__dict__:
                return False
            for key, value in constants:
                if getattr(child, key, None) != value:
                    return False
        return True


def _differ(live, kept, kind, left_out):
    for name in (live.keys() | kept.keys()) - _IGNORED - left_out:
        if name not in kept and name.startswith("_") and not hasattr(kind, name):
            continue  # a note of some tool's
        value, before = live.get(name, _MISSING), kept.get(name, _MISSING)
        if value is not before and (name in _WATCHED or not value == before):
            return True
    return False
