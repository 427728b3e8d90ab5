"""The stub's torch.nn.functional."""
from torch import ELEMENTWISE_US, GEMM_US, Tensor, work


def linear(x, w):
    assert x.shape[1] == w.shape[1]
    work(GEMM_US)
    return Tensor(0, (x.shape[0], w.shape[0]))


def silu(x):
    work(ELEMENTWISE_US)
    return Tensor(0, x.shape)
