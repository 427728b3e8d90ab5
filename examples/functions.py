#!/usr/bin/env python3
"""glu and mlp on plain tensors: against torch, with merged weights, and which kernel ran.

    python3 examples/functions.py
"""

import torch
from torch.nn import functional

import tileglu

device = "cuda" if torch.cuda.is_available() else "cpu"
hidden, intermediate, tokens = 896, 4864, 16  # Qwen2.5-0.5B
torch.manual_seed(0)


def weight(rows, columns):
    return (torch.randn(rows, columns) / columns ** 0.5).to(device, torch.bfloat16)


x = torch.randn(tokens, hidden).to(device, torch.bfloat16)
gate, up = weight(intermediate, hidden), weight(intermediate, hidden)
down = weight(hidden, intermediate)

y = tileglu.mlp(x, gate, up, down)

# The same in float64, and as torch computes it in bfloat16.
h = functional.silu(x.double() @ gate.double().T) * (x.double() @ up.double().T)
exact = h @ down.double().T
theirs = functional.linear(functional.silu(functional.linear(x, gate)) *
                           functional.linear(x, up), down)
for name, out in (("tileglu", y), ("torch", theirs)):
    off = (out.double() - exact).norm() / exact.norm()
    print(f"{name:8} relative error {off:.5f}")

# Gate and up in one matrix, as Phi-3 has them, read where they lie; another activation.
merged = torch.cat([gate, up])
z = tileglu.mlp(x, gate_up=merged, layout="stacked_gate_first", down=down,
                activation="gelu_tanh", residual=x)
print("merged, tanh GELU, residual:", list(z.shape), z.dtype)

print(tileglu.device_info(device)["reason"])
print(tileglu.explain(x, gate, up, down))
