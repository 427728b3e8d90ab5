"""glu and mlp on torch tensors, and their registration with torch.library.

A call takes one of two ways.  Eagerly, with plain tensors and nothing of torch's that
watches or changes calls, the public function goes straight to C.  Else it goes through
torch.ops.tileglu: autocast casts, autograd refuses, compilers see the fake
implementation, and the CPU or CUDA implementation ends in the same C call.
"""

import threading

import torch

from . import __file__ as _package_file
from . import __version__, _core, _rules

_MLP, _EAGER = 1, 2  # bits of the mode, as in core/call.c


def _reserve(index, size):
    """Has workspace kept for the current stream of CUDA device `index`, where C cannot: on a
    thread of its own.  torch may be routing this thread's memory into a pool (a MemPool, that
    of compiled code's CUDA graphs), and there nothing may stay.  Returns whether it is kept."""
    stream, kept = torch._C._cuda_getCurrentStream(index), []

    def work():
        try:
            torch._C._cuda_setStream(stream_id=stream[0], device_index=stream[1],
                                     device_type=stream[2])
            kept.append(_core.reserve(index, size))
        except Exception:  # pylint: disable=broad-except
            pass  # the call takes memory of its own, and torch says then what is wrong

    thread = threading.Thread(target=work, name="tileglu workspace", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread to be had, or the interpreter ends
        return False
    thread.join()
    return kept == [True]


def _setup(**instead):
    """Hands torch's types and functions to C (others instead, in tests): what watches calls,
    DLPack's table for reading tensors and for workspace, and the functions that make tensors
    for torch's own compiled code, where this torch has them.  Returns whether the eager way is
    open: not where it lacks one of the functions that say what is watching."""
    c = torch._C
    names = ("_len_torch_function_stack", "_len_torch_dispatch_stack",
             "_is_any_autocast_enabled", "_are_functorch_transforms_active",
             "_get_tracing_state")
    watches = [getattr(c, name, None) for name in names]
    watches.append(getattr(c._autograd, "_profiler_enabled", None))
    compiled = getattr(getattr(c, "_dynamo", None), "guards", None)
    given = {
        "tensor": torch.Tensor, "parameter": torch.nn.Parameter, "bf16": torch.bfloat16,
        "f16": torch.float16, "f32": torch.float32,
        "watches": tuple(watch for watch in watches if watch is not None),
        "forward_ad": torch.autograd.forward_ad, "grad_enabled": torch.is_grad_enabled,
        "raw_stream": getattr(c, "_cuda_getCurrentRawStream", None),
        "num_threads": torch.get_num_threads,
        "exchange": getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
        "empty_cpu": getattr(compiled, "_empty_strided_cpu", None),
        "empty_cuda": getattr(compiled, "_empty_strided_cuda", None),
        "cuda_device": getattr(c, "_cuda_getDevice", None),
        "deterministic": getattr(c, "_get_deterministic_algorithms", None),
        # Only where torch routes memory into pools by thread.
        "reserve": _reserve if hasattr(c, "_cuda_beginAllocateCurrentThreadToPool") else None}
    _core.setup(**{**given, **instead})
    return None not in watches and hasattr(torch.autograd.forward_ad, "_current_level")


if not _setup():
    _EAGER = None
_EAGER_GLU, _EAGER_MLP = _EAGER, None if _EAGER is None else _EAGER | _MLP
_call = _core.call
# Other tracers than dynamo are seen in C; this is the cheapest function that it takes for true.
_traced = torch.compiler.is_dynamo_compiling


def glu(x, gate=None, up=None, *, gate_up=None, layout=None, gate_bias=None, up_bias=None,
        gate_up_bias=None, activation="silu", alpha=None, limit=None, offset=None):
    """act(x gateᵀ + gate_bias) * (x upᵀ + up_bias), rounded once.

    x [..., hidden]; gate and up [intermediate, hidden], or gate_up [2 * intermediate,
    hidden] with layout "stacked_gate_first" (the default then), "stacked_up_first" or
    "interleaved" (rows gate 0, up 0, gate 1, ...), its bias in the same order.  activation
    is silu, gelu_tanh, gelu_erf, relu, sigmoid or swigluoai; alpha, limit and offset are
    swigluoai's (1.702, 7 and 1 where left out).  bfloat16, float16 or (on the CPU) float32.
    Returns [..., intermediate], contiguous.  Weights are read where they lie; no gradient."""
    if _EAGER is not None and not _traced():
        out = _call(_EAGER_GLU, x, gate, up, gate_up, None, gate_bias, up_bias, gate_up_bias,
                    None, None, activation, layout, alpha, limit, offset)
        if out is not NotImplemented:
            return out
        _rules.tensors((x, gate, up, gate_up, None, gate_bias, up_bias, gate_up_bias))
        _rules.names(activation, layout, alpha, limit, offset)
    return _glu_op(x, gate, up, gate_up, layout, gate_bias, up_bias, gate_up_bias, activation,
                   alpha, limit, offset)


def mlp(x, gate=None, up=None, down=None, *, gate_up=None, layout=None, gate_bias=None,
        up_bias=None, gate_up_bias=None, down_bias=None, residual=None, activation="silu",
        alpha=None, limit=None, offset=None):
    """glu(x, ...) downᵀ + down_bias + residual.

    Arguments as glu's; down [hidden, intermediate]; residual has x's shape and is added
    before the one rounding of the result.  Returns [..., hidden], contiguous."""
    if _EAGER is not None and not _traced():
        out = _call(_EAGER_MLP, x, gate, up, gate_up, down, gate_bias, up_bias, gate_up_bias,
                    down_bias, residual, activation, layout, alpha, limit, offset)
        if out is not NotImplemented:
            return out
        _rules.tensors((x, gate, up, gate_up, down, gate_bias, up_bias, gate_up_bias, down_bias,
                        residual))
        _rules.names(activation, layout, alpha, limit, offset)
    return _mlp_op(x, gate, up, down, gate_up, layout, gate_bias, up_bias, gate_up_bias,
                   down_bias, residual, activation, alpha, limit, offset)


# ---- what torch.library is told ----

_GLU_SCHEMA = (
    "glu(Tensor x, Tensor? gate=None, Tensor? up=None, Tensor? gate_up=None, str? layout=None, "
    "Tensor? gate_bias=None, Tensor? up_bias=None, Tensor? gate_up_bias=None, "
    "str activation='silu', float? alpha=None, float? limit=None, float? offset=None) -> Tensor")
_MLP_SCHEMA = (
    "mlp(Tensor x, Tensor? gate=None, Tensor? up=None, Tensor? down=None, "
    "Tensor? gate_up=None, str? layout=None, Tensor? gate_bias=None, Tensor? up_bias=None, "
    "Tensor? gate_up_bias=None, Tensor? down_bias=None, Tensor? residual=None, "
    "str activation='silu', float? alpha=None, float? limit=None, float? offset=None) -> Tensor")
_GLU_DEFAULTS = (None, None, None, None, None, None, None, "silu", None, None, None)
_MLP_DEFAULTS = (None,) * 10 + ("silu", None, None, None)


def _glu_arguments(mode, args):
    """The C call's arguments from a kernel's: torch leaves trailing defaults out."""
    (x, gate, up, gate_up, layout, gate_bias, up_bias, gate_up_bias, activation, alpha, limit,
     offset) = args + _GLU_DEFAULTS[len(args) - 1:]
    return (mode, x, gate, up, gate_up, None, gate_bias, up_bias, gate_up_bias, None, None,
            activation, layout, alpha, limit, offset)


def _mlp_arguments(mode, args):
    (x, gate, up, down, gate_up, layout, gate_bias, up_bias, gate_up_bias, down_bias, residual,
     activation, alpha, limit, offset) = args + _MLP_DEFAULTS[len(args) - 1:]
    return (mode | _MLP, x, gate, up, gate_up, down, gate_bias, up_bias, gate_up_bias,
            down_bias, residual, activation, layout, alpha, limit, offset)


_RESIDUAL = 10  # its place among the C call's arguments, as the last tensor


def _check(arguments):
    """_rules.check for the C call's arguments."""
    (mode, x, gate, up, gate_up, down, gate_bias, up_bias, gate_up_bias, down_bias, residual,
     activation, layout, alpha, limit, offset) = arguments
    _rules.tensors(arguments[1:_RESIDUAL + 1])
    _rules.names(activation, layout, alpha, limit, offset)
    if mode & _MLP and down is None:
        raise TypeError("down: is needed")
    return _rules.check(x, gate, up, gate_up, layout, gate_bias, up_bias, gate_up_bias,
                        activation, down, down_bias, residual)


def _ask(function, arguments):
    """A C function, with x and residual copied where C cannot read them as they lie.  Raises
    what the rules say where it is something else."""
    out = function(*arguments)
    if out is not NotImplemented:
        return out
    _check(arguments)
    x, residual = arguments[1], arguments[_RESIDUAL]
    flat = list(arguments)
    flat[1] = x.resolve_neg().contiguous().view(-1, x.shape[-1])
    if residual is not None:
        flat[_RESIDUAL] = residual.resolve_neg().contiguous().view(flat[1].shape)
    out = function(*flat)
    if out is NotImplemented:
        raise TypeError(f"tileglu cannot read these tensors (x is a {type(x).__name__} on "
                        f"{x.device}, {x.layout})")
    return out.view(*x.shape[:-1], out.shape[-1]) if isinstance(out, torch.Tensor) else out


def explain(x, gate=None, up=None, down=None, **options):
    """Which kernel row would run for this call, and why, in words; an MLP's if down is
    given.  The options are glu's or mlp's."""
    return _ask(_core.explain, _arguments_of(x, gate, up, down, options))


def plan(tokens, gate=None, up=None, down=None, **options):
    """The choice for a number of tokens: {"row", "down_row", "tuned", "predicted_us"}."""
    tokens = _rules.token_count(tokens)
    weight = gate if gate is not None else options.get("gate_up")
    if weight is None:
        raise TypeError("gate, gate_up: one of them is needed")
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
        raise TypeError(f"{'gate_up' if gate is None else 'gate'}: must be a matrix")
    try:
        x = weight.detach().new_empty((tokens, weight.shape[1]))
    except (MemoryError, RuntimeError) as error:
        raise ValueError(f"tokens: {tokens} tokens do not fit in memory") from error
    return _ask(_core.plan, _arguments_of(x, gate, up, down, options))


def _arguments_of(x, gate, up, down, options):
    names = {"gate_up", "layout", "gate_bias", "up_bias", "gate_up_bias", "down_bias",
             "residual", "activation", "alpha", "limit", "offset"}
    unknown = set(options) - names
    if unknown:
        raise TypeError(f"unknown arguments: {', '.join(sorted(unknown))}")
    get = options.get
    return (0 if down is None else _MLP, x, gate, up, get("gate_up"), down, get("gate_bias"),
            get("up_bias"), get("gate_up_bias"), get("down_bias"), get("residual"),
            get("activation", "silu"), get("layout"), get("alpha"), get("limit"), get("offset"))


def _refuse_gradient(name, args):
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise RuntimeError(
            f"tileglu.{name} has no backward pass, and a tensor given to it requires a "
            "gradient: call it under torch.no_grad() or torch.inference_mode(), or use "
            "requires_grad_(False)")
    forward_ad = torch.autograd.forward_ad
    if getattr(forward_ad, "_current_level", -1) >= 0 and any(
            forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise RuntimeError(f"tileglu.{name} has no forward derivative, and a tensor given to "
                           "it carries a tangent")


def _register(library, name, schema, arguments_of):
    library.define(schema, tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag))
    op = getattr(torch.ops.tileglu, name).default
    eager = _EAGER

    def compute(*args):
        return _ask(_call, arguments_of(0, args))

    def autograd(*args):
        if eager is not None:
            out = _call(*arguments_of(eager, args))
            if out is not NotImplemented:
                return out
        _refuse_gradient(name, args)
        _rules.tensors(arguments_of(0, args)[1:_RESIDUAL + 1])
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    def fake(*args):
        arguments = arguments_of(0, args)
        size, x = _check(arguments), args[0]
        return x.new_empty((*x.shape[:-1], x.shape[-1] if arguments[0] & _MLP else size))

    def autocast(device, keys):
        def cast_and_call(*args):
            dtype = torch.get_autocast_dtype(device)
            cast = tuple(arg.to(dtype) if isinstance(arg, torch.Tensor) and
                         arg.is_floating_point() and arg.dtype != torch.float64 else arg
                         for arg in args)
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return op(*cast)
        return cast_and_call

    key, key_set = torch._C.DispatchKey, torch._C.DispatchKeySet
    keys = key_set(key.AutocastCPU) | key_set(key.AutocastCUDA)
    library.impl(name, compute, "CPU")
    library.impl(name, compute, "CUDA")
    library.impl(name, autograd, "Autograd")
    library.impl(name, autocast("cpu", keys), "AutocastCPU")
    library.impl(name, autocast("cuda", keys), "AutocastCUDA")
    torch.library.register_fake(f"tileglu::{name}", fake, lib=library)
    return op


def _registered():
    """torch.ops.tileglu's two operators: registered here, or by another copy of this
    version of the package that was imported first."""
    owner = getattr(torch, "_tileglu_owner", None)
    if owner is not None:
        if owner[0] != __version__:
            raise ImportError(
                f"torch.ops.tileglu was registered by tileglu {owner[0]} at {owner[1]}; this is "
                f"tileglu {__version__} at {_package_file}: one process can hold one version")
        return torch.ops.tileglu.glu.default, torch.ops.tileglu.mlp.default
    global _library
    _library = torch.library.Library("tileglu", "DEF")
    ops = (_register(_library, "glu", _GLU_SCHEMA, _glu_arguments),
           _register(_library, "mlp", _MLP_SCHEMA, _mlp_arguments))
    torch._tileglu_owner = (__version__, _package_file)
    return ops


_glu_op, _mlp_op = _registered()
