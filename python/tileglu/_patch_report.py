"""What tileglu.patch did, module by module."""

import math
import re
from dataclasses import dataclass, field

import torch

from . import _patch_call as _call

# Token counts whose kernel rows a report tells: one token of a decode, and a prefill.
ROW_TOKENS = (1, 512)


@dataclass
class Entry:
    """One module of the model."""

    name: str  # as in model.named_modules()
    kind: str  # its class
    patched: bool = False
    reason: str = None  # why it was left alone, or why it runs its own forward at present
    layout: str = None  # these are None where the module was left alone
    activation: str = None
    hidden: int = None
    intermediate: int = None
    dtype: str = None
    device: str = None
    linears: str = None  # which child is what: "gate=w2 up=w1 down=c_proj"
    rows: dict = field(default_factory=dict)  # {tokens: name of the kernel row}

    def describe(self, recipe, module):
        """Fills in what the recipe and the module's weights say; call it with `reason` set."""
        weight = getattr(module._modules[recipe.down], "weight", None)
        self.layout, self.activation = recipe.layout, recipe.activation
        if recipe.activation == "swigluoai":
            limit = "no limit" if math.isinf(recipe.limit) else f"limit {recipe.limit:g}"
            self.activation += f"(alpha {recipe.alpha:g}, {limit}, offset {recipe.offset:g})"
        if recipe.gate == recipe.up:
            self.linears = f"gate_up={recipe.gate} down={recipe.down}"
        else:
            self.linears = f"gate={recipe.gate} up={recipe.up} down={recipe.down}"
        if isinstance(weight, torch.Tensor) and weight.dim() == 2:
            self.hidden, self.intermediate = weight.shape
            self.dtype = str(weight.dtype).removeprefix("torch.")
            self.device = str(weight.device)
        if self.reason is None:
            self.rows = _call.rows(recipe, module, ROW_TOKENS)

    def _line(self):
        if self.layout is None:
            return f"{self.kind}: {self.reason}"
        text = (f"{self.kind}: {self.layout}, {self.activation}, {self.hidden} x "
                f"{self.intermediate} {self.dtype} on {self.device} ({self.linears})")
        if self.rows:
            text += "; rows " + ", ".join(f"{row} ({tokens} tokens)"
                                          for tokens, row in self.rows.items())
        return f"{text}; {self.reason}" if self.reason else text


class Report:
    """`patched` and `left_alone` list an Entry for each module; print it for a summary."""

    def __init__(self, entries):
        self.entries = entries

    @property
    def patched(self):
        return [entry for entry in self.entries if entry.patched]

    @property
    def left_alone(self):
        return [entry for entry in self.entries if not entry.patched]

    def __str__(self):
        lines = []
        for title, entries in (("patched", self.patched), ("left alone", self.left_alone)):
            lines.append(f"{title}: {len(entries)}")
            groups = {}
            for entry in entries:
                key = re.sub(r"\b\d+\b", "*", entry.name), entry._line()
                groups.setdefault(key, []).append(entry.name)
            lines += [f"  {_together(names)}  {line}" for (_, line), names in groups.items()]
        return "\n".join(lines)

    def __repr__(self):
        return f"<tileglu.Report: {len(self.patched)} patched, {len(self.left_alone)} left alone>"


def _together(names):
    """"model.layers.{0-29}.mlp" for names that differ in one number only."""
    if len(names) == 1:
        return names[0] or "(the model itself)"
    parts = [re.split(r"\b(\d+)\b", name) for name in names]
    differing = [i for i, texts in enumerate(zip(*parts)) if len(set(texts)) > 1]
    if len(differing) != 1:
        return f"{names[0]} and {len(names) - 1} like it"
    numbers = sorted(int(part[differing[0]]) for part in parts)
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
    first = parts[0]
    return "".join(first[:differing[0]]) + "{" + text + "}" + "".join(first[differing[0] + 1:])
