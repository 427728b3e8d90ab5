#!/usr/bin/env python3
"""The library against torch on the CPU: python tests/torch/run.py BUILD_FOLDER [SEED]

Each case runs one GLU or MLP of the library and the same chain of torch operations,
both judged against float64 (torch's own float64 kernels on the same rounded inputs).
The library passes if its relative L2 error is at most twice that of torch's chain in
the same type and below a bound derived from the type and K.  Biases, layouts, strides
of the residual and every kernel level of this CPU take part.  The last line is
"N passed, N failed, N skipped".
"""

import itertools
import math
import random
import sys
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import tileglu_ctypes as tileglu  # noqa: E402

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# Unit roundoff of each type.
ROUNDOFF = {"f32": 2.0 ** -24, "bf16": 2.0 ** -9, "f16": 2.0 ** -12}
# Half the distance of its subnormal numbers: what rounding costs below the normal ones.
HALF_TINY = {"f32": 2.0 ** -150, "bf16": 2.0 ** -134, "f16": 2.0 ** -25}
ACTIVATION_ERROR = 2.0 ** -16  # relative, what the library promises in fp32
ACTIVATIONS = {
    "silu": functional.silu,
    "gelu_tanh": lambda g: functional.gelu(g, approximate="tanh"),
    "gelu_erf": functional.gelu,
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
}
SHAPES = [  # tokens, hidden, intermediate
    (1, 1, 1), (1, 576, 1536), (3, 7, 5), (5, 64, 33), (17, 129, 65), (33, 200, 96),
    (2, 1001, 24), (64, 256, 257),
]
ISAS = ("portable", "avx2", "avx512", "amx")
SENTINEL = 64  # elements around every output


def swigluoai(gate, up, alpha=1.702, limit=7.0, offset=1.0):
    gate = torch.clamp(gate, max=limit)
    up = torch.clamp(up, -limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + offset)


def glu_of(activation, gate, up):
    if activation == "swigluoai":
        return swigluoai(gate, up)
    return ACTIVATIONS[activation](gate) * up


class Case:
    """Random operands of one shape, rounded to the type, and what torch makes of them."""

    def __init__(self, shape, dtype, activation, mlp, bias, generator):
        self.tokens, self.hidden, self.intermediate = shape
        self.dtype, self.activation, self.mlp, self.bias = dtype, activation, mlp, bias

        def rand(*size, scale=1.0):
            values = torch.randn(*size, generator=generator, dtype=torch.float64) * scale
            return values.to(TYPES[dtype])

        n, k = self.intermediate, self.hidden
        self.x = rand(self.tokens, k)
        self.gate, self.up = rand(n, k, scale=k ** -0.5), rand(n, k, scale=k ** -0.5)
        self.gate_bias = rand(n, scale=0.5) if bias else None
        self.up_bias = rand(n, scale=0.5) if bias else None
        self.down = rand(k, n, scale=n ** -0.5) if mlp else None
        self.down_bias = rand(k, scale=0.5) if mlp and bias else None
        self.residual = rand(self.tokens, k) if mlp and bias else None

    def chain(self, to):
        """The chain of torch operations in type `to`."""
        def cast(tensor):
            return None if tensor is None else tensor.to(to)
        gate = functional.linear(cast(self.x), cast(self.gate), cast(self.gate_bias))
        up = functional.linear(cast(self.x), cast(self.up), cast(self.up_bias))
        h = glu_of(self.activation, gate, up)
        if not self.mlp:
            return h
        out = functional.linear(h, cast(self.down), cast(self.down_bias))
        return out if self.residual is None else out + cast(self.residual)

    def size(self):
        """Norm that errors are measured by: of the result, and for an MLP of the sum of its
        terms' absolute values, since the rounding of H does not shrink where they cancel."""
        if not self.mlp:
            return self.chain(torch.float64).norm().item()
        gate = functional.linear(self.x.double(), self.gate.double(), double(self.gate_bias))
        up = functional.linear(self.x.double(), self.up.double(), double(self.up_bias))
        terms = glu_of(self.activation, gate, up).abs() @ self.down.double().abs().T
        for added in (self.down_bias, self.residual):
            if added is not None:
                terms = terms + added.double().abs()
        return terms.norm().item()

    def weights(self, layout):
        """Descriptor fields for a layout, and the tensors that must stay alive."""
        if layout == "separate":
            fields = {"gate": self.gate, "up": self.up, "gate_bias": self.gate_bias,
                      "up_bias": self.up_bias}
        else:
            def merge(gate, up):
                if gate is None:
                    return None
                if layout == "interleaved":
                    return torch.stack([gate, up], dim=1).reshape(-1, *gate.shape[1:])
                pair = (gate, up) if layout == "stacked_gate_first" else (up, gate)
                return torch.cat(pair)
            fields = {"gate_up": merge(self.gate, self.up),
                      "gate_up_bias": merge(self.gate_bias, self.up_bias)}
        fields.update(down=self.down, down_bias=self.down_bias)
        kept = {name: tensor.contiguous() for name, tensor in fields.items()
                if tensor is not None}
        return {name: tensor.data_ptr() for name, tensor in kept.items()}, kept

    def run(self, context, layout):
        """The library's result; raises AssertionError if it wrote outside of it."""
        addresses, kept = self.weights(layout)
        columns = self.hidden if self.mlp else self.intermediate
        size = self.tokens * columns
        whole = torch.full((size + 2 * SENTINEL,), math.nan, dtype=TYPES[self.dtype])
        before = whole.view(torch.uint8).clone()
        out = whole[SENTINEL:SENTINEL + size]
        with tileglu.Object(context, self.hidden, self.intermediate, self.dtype,
                            self.activation, layout, **addresses) as glu:
            residual = None if self.residual is None else self.residual.data_ptr()
            glu.run(glu.args(self.x.data_ptr(), self.tokens, out.data_ptr(), residual))
        del kept
        after, edge = whole.view(torch.uint8), SENTINEL * whole.element_size()
        assert torch.equal(after[:edge], before[:edge]), "wrote before the output"
        assert torch.equal(after[-edge:], before[-edge:]), "wrote behind the output"
        return out.view(self.tokens, columns)


def double(tensor):
    return None if tensor is None else tensor.double()


def relative_l2(value, reference, size):
    """Infinite where the size is zero (relu of one element) and value is not right."""
    error = (value.double() - reference).norm().item()
    return error / size if size else (0.0 if error == 0 else math.inf)


def bound(case, elements, size):
    """Rounding of the result (and of H in an MLP), twice for the luck of one draw, and to
    subnormal numbers where the result is that small; the activation's contract; and a sum
    of K (and N) products in fp32, one after another.  Relative to size."""
    roundings = ROUNDOFF[case.dtype] * (2 if case.mlp else 1)
    terms = case.hidden + (case.intermediate if case.mlp else 0)
    subnormal = HALF_TINY[case.dtype] * elements ** 0.5 / size if size else 0
    return 2 * roundings + subnormal + ACTIVATION_ERROR + 2.0 ** -24 * (8 + terms / 2)


def judge(case, context, layout):
    """None if right, else what is wrong."""
    reference = case.chain(torch.float64)
    size = case.size()
    ours = relative_l2(case.run(context, layout), reference, size)
    torchs = relative_l2(case.chain(TYPES[case.dtype]), reference, size)
    limit = bound(case, reference.numel(), size)
    # Twice torch's error, where that is an error of rounding to the type and the
    # elements are enough for a sample; in fp32 the order of the sums decides instead.
    allowed = limit
    if case.dtype != "f32" and reference.numel() >= 1000:
        allowed = min(limit, 2 * torchs + ACTIVATION_ERROR)
    if not allowed < 0.5:
        return f"the tolerance {allowed:.1e} is not smaller than the signal"
    if not ours <= allowed:  # NaN fails
        return f"relative L2 {ours:.3e} > {allowed:.3e} (torch {torchs:.3e}, bound {limit:.3e})"
    return None


def cases(seed):
    """Every type, activation and kind on a few shapes, plus random shapes."""
    generator = torch.Generator().manual_seed(seed)
    layouts = itertools.cycle(tileglu.LAYOUTS)
    names = list(ACTIVATIONS) + ["swigluoai"]
    for dtype, activation, mlp, bias in itertools.product(
            TYPES, names, (False, True), (False, True)):
        for shape in SHAPES:
            yield Case(shape, dtype, activation, mlp, bias, generator), next(layouts)
    pick = random.Random(seed)
    for _ in range(150):
        shape = (pick.randint(1, 70), pick.randint(1, 300), pick.randint(1, 300))
        yield Case(shape, pick.choice(list(TYPES)), pick.choice(names), pick.random() < 0.5,
                   pick.random() < 0.5, generator), pick.choice(list(tileglu.LAYOUTS))


def main():
    library = tileglu.Library(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2 ** 32)
    torch.set_num_threads(2)
    print(f"tileglu {library.version()} against torch {torch.__version__}, seed {seed}",
          flush=True)
    passed = failed = skipped = 0
    for isa in ISAS:
        try:
            context = tileglu.Context(library, threads=2, cpu_isa=isa, tune_cache="")
        except tileglu.Error as error:
            print(f"skip: level {isa}: {error}")
            skipped += 1
            continue
        with context, torch.inference_mode():
            for case, layout in cases(seed):
                try:
                    wrong = judge(case, context, layout)
                except (tileglu.Error, AssertionError) as error:
                    wrong = str(error)
                passed, failed = passed + (wrong is None), failed + (wrong is not None)
                if wrong and failed <= 20:
                    kind = "mlp" if case.mlp else "glu"
                    print(f"FAILED {isa} {kind} {case.dtype} {case.activation} {layout} "
                          f"bias={case.bias} {case.tokens}x{case.hidden}x{case.intermediate}: "
                          f"{wrong}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
