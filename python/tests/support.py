"""Random problems, their results by torch in float64, and how far off is too far; and what
skips the tests on a GPU."""

import contextlib
import math
import threading

import pytest
import torch

import tileglu

BITS = {torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}
LAYOUTS = ("separate", "stacked_gate_first", "stacked_up_first", "interleaved")
ACTIVATIONS = ("silu", "gelu_tanh", "gelu_erf", "relu", "sigmoid", "swigluoai")
functional = torch.nn.functional


def skip_without_gpu():
    """Skips the module that calls it while it is imported."""
    reason = None
    if not torch.cuda.is_available():
        reason = "torch finds no CUDA device"
    else:
        try:
            tileglu.device_info("cuda:0")
        except tileglu.Error as error:
            reason = f"tileglu cannot use cuda:0: {error}"
    if reason:
        pytest.skip(f"skipped: {reason}", allow_module_level=True)


@contextlib.contextmanager
def poisoned():
    """torch.empty gives NaN inside, so that what is not written fails."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def run_threads(work, count=4, meanwhile=None):
    """work(0), work(1) and so on in a thread each, and meanwhile(), if given, in this one.  Fails
    where one of them raises or does not end."""
    failures = []

    def call(index):
        try:
            work(index)
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(f"thread {index}: {error!r}")

    threads = [threading.Thread(target=call, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    try:
        if meanwhile:
            meanwhile()
    finally:
        for thread in threads:
            thread.join(timeout=120)
    assert not failures, failures[:3]
    assert not any(thread.is_alive() for thread in threads), "a thread does not end"


def activate(name, gate, up, alpha=1.702, limit=7.0, offset=1.0):
    if name == "swigluoai":
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + offset)
    return {
        "silu": functional.silu, "relu": functional.relu, "sigmoid": torch.sigmoid,
        "gelu_tanh": lambda g: functional.gelu(g, approximate="tanh"),
        "gelu_erf": functional.gelu}[name](gate) * up


def merge(gate, up, layout):
    """gate_up (a weight or a bias) of two, None of two Nones."""
    if gate is None:
        return None
    if layout == "interleaved":
        return torch.stack([gate, up], dim=1).reshape(-1, *gate.shape[1:])
    return torch.cat((gate, up) if layout == "stacked_gate_first" else (up, gate))


class Problem:
    """Operands of one size, random and never zero."""

    def __init__(self, tokens, hidden, intermediate, dtype=torch.float32, bias=False, seed=0,
                 device="cpu"):
        generator = torch.Generator().manual_seed(seed)

        def draw(*size, scale=1.0):
            values = torch.randn(*size, generator=generator, dtype=torch.float64) * scale
            return values.to(dtype).to(device)

        tokens = (tokens,) if isinstance(tokens, int) else tuple(tokens)
        n, k = intermediate, hidden
        self.dtype, self.size = dtype, (tokens, k, n)
        self.x = draw(*tokens, k)
        self.gate, self.up = draw(n, k, scale=k ** -0.5), draw(n, k, scale=k ** -0.5)
        self.down = draw(k, n, scale=max(n, 1) ** -0.5)
        self.residual = draw(*tokens, k)
        self.gate_bias, self.up_bias = (draw(n), draw(n)) if bias else (None, None)
        self.down_bias = draw(k) if bias else None

    def weights(self, layout="separate"):
        """Keyword arguments of tileglu.glu."""
        if layout == "separate":
            return {"gate": self.gate, "up": self.up, "gate_bias": self.gate_bias,
                    "up_bias": self.up_bias}
        return {"gate_up": merge(self.gate, self.up, layout), "layout": layout,
                "gate_up_bias": merge(self.gate_bias, self.up_bias, layout)}

    def glu(self, activation="silu", **numbers):
        """H in float64."""
        def linear(weight, bias):
            return functional.linear(self.x.double(), weight.double(),
                                     None if bias is None else bias.double())
        return activate(activation, linear(self.gate, self.gate_bias),
                        linear(self.up, self.up_bias), **numbers)

    def mlp(self, activation="silu", residual=False):
        """O in float64."""
        out = functional.linear(self.glu(activation), self.down.double(),
                                None if self.down_bias is None else self.down_bias.double())
        return out + self.residual.double() if residual else out


def assert_close(out, want, terms=1):
    """Relative L2 within what one rounding to the type and fp32 sums of `terms` products
    allow; twice that for an MLP's second rounding and sums that cancel.  NaN fails."""
    assert out.shape == want.shape
    bound = 2 * 2.0 ** -BITS[out.dtype] + 4 * 2.0 ** -24 * math.sqrt(terms)
    assert bound < 0.02
    error = (out.double() - want).norm() / want.norm()
    assert error <= bound, f"relative L2 error {error:.3g} above {bound:.3g}"
