#!/usr/bin/env python3
"""tileglu.MLP in a block of one's own, compiled whole; on a GPU also in a CUDA graph.

    python3 examples/compiled_block.py
"""

import torch
from torch import nn

import tileglu


class Block(nn.Module):
    """RMS norm, gated MLP, and the residual, which the MLP adds before its one rounding."""

    def __init__(self, hidden, intermediate, dtype):
        super().__init__()
        self.norm = nn.RMSNorm(hidden, dtype=dtype)
        self.mlp = tileglu.MLP(hidden, intermediate, activation="gelu_tanh", dtype=dtype)

    def forward(self, x):
        return self.mlp(self.norm(x), residual=x)


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
block = Block(640, 2048, torch.bfloat16).to(device).eval().requires_grad_(False)
x = torch.randn(4, 640).to(device, torch.bfloat16)
want = block(x)

compiled = torch.compile(block, fullgraph=True)  # no graph break
print("compiled, 4 tokens: largest difference", (compiled(x) - want).abs().max().item())
print("compiled, 9 tokens:", list(compiled(x.new_ones(9, 640)).shape))

if device == "cuda":
    block(x)  # a first call outside the capture is not needed, but warms torch's allocator
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = block(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    print("graph: largest difference", (y - block(x)).abs().max().item())
