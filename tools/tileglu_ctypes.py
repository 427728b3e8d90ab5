"""The C API through ctypes, for the tests and benchmarks that run beside torch.

Not the Python package: only what those need, on raw addresses.  Each struct's size
is compared with the one that its init function reports, so a header that moved on
fails loudly here instead of shifting fields.
"""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

DTYPES = {"bf16": 1, "f16": 2, "f32": 3}
ACTIVATIONS = {"silu": 1, "gelu_tanh": 2, "gelu_erf": 3, "relu": 4, "sigmoid": 5,
               "swigluoai": 6}
LAYOUTS = {"separate": 1, "stacked_gate_first": 2, "stacked_up_first": 3, "interleaved": 4}
BACKENDS = {"auto": 0, "cpu": 1, "cuda": 2}


class Error(RuntimeError):
    """A call that failed: its status name and the library's message."""


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("backend", c_int32), ("device", c_int32),
                ("threads", c_int32), ("sm_limit", c_int32), ("batch_invariant", c_int32),
                ("stable_weights", c_int32), ("pdl", c_int32),
                ("sleep_threads", c_int32), ("row", c_char_p), ("cpu_isa", c_char_p),
                ("tune_cache", c_char_p), ("cuda_library", c_char_p), ("log", c_void_p),
                ("log_user", c_void_p), ("alloc", c_void_p), ("free", c_void_p),
                ("alloc_user", c_void_p)]


class GluDesc(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("hidden", c_int64), ("intermediate", c_int64),
                ("dtype", c_int32), ("activation", c_int32), ("alpha", c_float),
                ("limit", c_float), ("offset", c_float), ("layout", c_int32),
                ("gate", c_void_p), ("up", c_void_p), ("gate_up", c_void_p), ("ld", c_int64),
                ("gate_bias", c_void_p), ("up_bias", c_void_p), ("gate_up_bias", c_void_p)]


class MlpDesc(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("glu", GluDesc), ("down", c_void_p),
                ("ld_down", c_int64), ("down_bias", c_void_p)]


class RunArgs(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("x", c_void_p), ("ldx", c_int64), ("tokens", c_int64),
                ("out", c_void_p), ("ldo", c_int64), ("residual", c_void_p),
                ("ldr", c_int64), ("workspace", c_void_p), ("workspace_bytes", c_size_t),
                ("stream", c_void_p)]


class ObjectInfo(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("hidden", c_int64), ("intermediate", c_int64),
                ("dtype", c_int32), ("activation", c_int32), ("weight_bytes", c_size_t),
                ("copied_bytes", c_size_t)]


class PlanInfo(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("row", c_char_p), ("down_row", c_char_p),
                ("tuned", c_int32), ("predicted_us", ctypes.c_double)]


class Library:
    """libtileglu.so of a build folder (or at the path itself)."""

    def __init__(self, place):
        place = Path(place)
        if place.is_dir():
            found = sorted(place.rglob("libtileglu.so"))
            if not found:
                raise Error(f"no libtileglu.so under {place}")
            place = found[0]
        self.path = place
        self.c = ctypes.CDLL(os.fspath(place.resolve()))
        for name in ("tglu_status_name", "tglu_last_error", "tglu_version_string",
                     "tglu_cpu_isa"):
            getattr(self.c, name).restype = c_char_p
        for kind in ("context", "glu", "mlp"):
            getattr(self.c, f"tglu_{kind}_destroy").argtypes = [c_void_p]
            getattr(self.c, f"tglu_{kind}_destroy").restype = None
        for kind in ("glu", "mlp"):
            run = getattr(self.c, f"tglu_{kind}_run")
            run.argtypes = [c_void_p, POINTER(RunArgs)]
            getattr(self.c, f"tglu_{kind}_workspace_bytes").argtypes = [
                c_void_p, c_int64, POINTER(c_size_t)]
            getattr(self.c, f"tglu_{kind}_get_info").argtypes = [c_void_p, POINTER(ObjectInfo)]
            getattr(self.c, f"tglu_{kind}_get_plan").argtypes = [
                c_void_p, c_int64, POINTER(PlanInfo)]

    def init(self, struct, name):
        """A struct filled by its init function."""
        value = struct()
        getattr(self.c, f"tglu_{name}_init")(byref(value))
        if value.size != ctypes.sizeof(struct):
            raise Error(f"tglu_{name} has {value.size} bytes in the library and "
                        f"{ctypes.sizeof(struct)} here: update tools/tileglu_ctypes.py")
        return value

    def check(self, status):
        if status != 0:
            name = self.c.tglu_status_name(status).decode()
            raise Error(f"{name}: {self.c.tglu_last_error().decode()}")

    def version(self):
        return self.c.tglu_version_string().decode()


class Context:
    """tglu_context; options by name, as in tglu_context_options."""

    def __init__(self, library, backend="cpu", **options):
        self.library = library
        values = library.init(ContextOptions, "context_options")
        values.backend = BACKENDS[backend]
        for name, value in options.items():
            setattr(values, name, value.encode() if isinstance(value, str) else value)
        self.handle = c_void_p()
        library.check(library.c.tglu_context_create(byref(values), byref(self.handle)))

    def close(self):
        self.library.c.tglu_context_destroy(self.handle)
        self.handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Object:
    """tglu_glu, or tglu_mlp if `down` is given.  Weights are addresses; the caller
    keeps them alive."""

    def __init__(self, context, hidden, intermediate, dtype, activation, layout="separate",
                 gate=None, up=None, gate_up=None, gate_bias=None, up_bias=None,
                 gate_up_bias=None, down=None, down_bias=None, ld=0, **parameters):
        self.library = context.library
        self.kind = "mlp" if down is not None else "glu"
        if self.kind == "mlp":
            desc = self.library.init(MlpDesc, "mlp_desc")
            glu = desc.glu
            desc.down, desc.down_bias = down, down_bias
        else:
            desc = glu = self.library.init(GluDesc, "glu_desc")
        glu.hidden, glu.intermediate, glu.ld = hidden, intermediate, ld
        glu.dtype, glu.activation = DTYPES[dtype], ACTIVATIONS[activation]
        glu.layout = LAYOUTS[layout]
        glu.gate, glu.up, glu.gate_up = gate, up, gate_up
        glu.gate_bias, glu.up_bias, glu.gate_up_bias = gate_bias, up_bias, gate_up_bias
        for name, value in parameters.items():
            setattr(glu, name, value)
        self.handle = c_void_p()
        create = getattr(self.library.c, f"tglu_{self.kind}_create")
        self.library.check(create(context.handle, byref(desc), byref(self.handle)))
        self._run = getattr(self.library.c, f"tglu_{self.kind}_run")

    def workspace_bytes(self, tokens):
        size = c_size_t()
        call = getattr(self.library.c, f"tglu_{self.kind}_workspace_bytes")
        self.library.check(call(self.handle, tokens, byref(size)))
        return size.value

    def info(self):
        value = self.library.init(ObjectInfo, "object_info")
        call = getattr(self.library.c, f"tglu_{self.kind}_get_info")
        self.library.check(call(self.handle, byref(value)))
        return value

    def plan(self, tokens):
        value = self.library.init(PlanInfo, "plan_info")
        call = getattr(self.library.c, f"tglu_{self.kind}_get_plan")
        self.library.check(call(self.handle, tokens, byref(value)))
        return value

    def args(self, x, tokens, out, residual=None):
        """Run arguments for tight matrices, with a workspace of their own."""
        value = self.library.init(RunArgs, "run_args")
        value.x, value.tokens, value.out, value.residual = x, tokens, out, residual
        size = self.workspace_bytes(tokens)
        if size:
            value.keep_alive = ctypes.create_string_buffer(size)
            value.workspace = ctypes.addressof(value.keep_alive)
            value.workspace_bytes = size
        return value

    def run(self, args):
        status = self._run(self.handle, byref(args))
        if status:
            self.library.check(status)

    def close(self):
        getattr(self.library.c, f"tglu_{self.kind}_destroy")(self.handle)
        self.handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
