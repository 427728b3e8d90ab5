"""tileglu: the gated MLP of large language models with the activation fused into the
matrix multiply.

    H = act(x gateᵀ + gate_bias) * (x upᵀ + up_bias)          tileglu.glu
    O = H downᵀ + down_bias (+ residual)                      tileglu.mlp

`import tileglu` loads the C library and nothing else: no torch, no CUDA driver.  The
names that work on tensors import torch when they are first used.  docs/python.md is the
manual.
"""

import importlib
import sys
from pathlib import Path

from . import _core

__version__ = _core.version
_LIBRARY = Path(__file__).resolve().parent / "libtileglu.so"
_library_version = _core.open(_LIBRARY)

Error = _core.Error

# Where the names that need torch live.
_LAZY = {
    "glu": "_ops", "mlp": "_ops", "explain": "_ops", "plan": "_ops",
    "GLU": "_modules", "MLP": "_modules", "patch": "_patch", "unpatch": "_patch",
    "report": "_patch",
}

__all__ = ["Error", "GLU", "MLP", "cache_clear", "cache_info", "cache_limit",
           "clear_workspaces", "configure", "device_info", "explain", "glu", "library_path",
           "library_version", "mlp", "patch", "plan", "report", "unpatch"]


def library_path():
    """Path of the C library of this package, for ctypes and for linkers."""
    return _LIBRARY


def library_version():
    """Version of that library, as in "0.1.0"."""
    return _library_version


def _device(device):
    """("cpu" or "cuda", index) of a device's name or a torch.device."""
    kind, _, index = str(device).partition(":")
    if index == "" and kind == "cuda" and "torch" in sys.modules:
        torch = sys.modules["torch"]
        return kind, torch.cuda.current_device() if torch.cuda.is_available() else 0
    return kind, int(index or 0)


_NUMBERS = ("threads", "sm_limit", "batch_invariant", "stable_weights", "pdl", "sleep_threads")
_TEXTS = ("row", "cpu_isa", "tune_cache")


def configure(device, **options):
    """Options of a device's context ("cpu", "cuda", "cuda:1"), as tileglu.h describes them:
    threads, sm_limit, batch_invariant, stable_weights, pdl, sleep_threads (here 1 unless
    given: torch has threads of its own), row, cpu_isa, tune_cache.
    What is not named is set to its default.  Calls from then on use them; no call on the
    device may be running.  ValueError at once for what cannot work, and then nothing changes;
    only the name of a CUDA row may wait for the first call."""
    for name, value in options.items():
        if name in _NUMBERS:
            if not isinstance(value, int):
                raise TypeError(f"{name}: is a {type(value).__name__} and must be an int")
            if not -2 ** 31 <= value < 2 ** 31:
                raise ValueError(f"{name}: {value} is out of range")
        elif name not in _TEXTS:
            raise TypeError(f"unknown options: {name} is none of {', '.join(_NUMBERS + _TEXTS)}")
        elif not isinstance(value, (str, type(None))):
            raise TypeError(f"{name}: is a {type(value).__name__} and must be a str or None")
    _core.configure(*_device(device), **options)


def device_info(device="cpu"):
    """What serves a device, and why: backend, device_name, reason, threads, sm_count, ...
    tileglu.Error where nothing does.  Opens the CUDA driver only for a CUDA device."""
    return _core.device_info(*_device(device))


def cache_info():
    """Counts of the cache of bound weights: entries, limit, hits, misses."""
    return _core.cache_info()


def cache_limit(entries):
    """Most bound weights to remember (default 4096); one is a GLU or an MLP of a model."""
    _core.cache_limit(entries)


def cache_clear():
    """Forgets every binding.  Never needed for correct results."""
    _core.cache_clear()


def clear_workspaces():
    """Gives back to torch the memory that mlp's eager calls on CUDA keep between them (for each
    of at most 16 streams no more than 4 MiB); the next call takes it again.  That of a call
    that is running in another thread goes when it returns."""
    _core.clear_workspaces()


def _need_torch():
    import torch
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 4):
        raise ImportError(f"tileglu {__version__} needs torch 2.4 or newer and found "
                          f"{torch.__version__}")


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module 'tileglu' has no attribute {name!r}")
    _need_torch()
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_LAZY})


if "torch" in sys.modules and hasattr(sys.modules["torch"], "library"):
    _need_torch()
    from ._ops import explain, glu, mlp, plan  # noqa: F401  torch.ops.tileglu, too
