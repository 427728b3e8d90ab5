"""The first call of each kind, against torch in float64."""

import pytest
import torch

import tileglu


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-6), (torch.bfloat16, 2 ** -8),
                                          (torch.float16, 2 ** -11)])
def test_glu_and_mlp(dtype, bound):
    generator = torch.Generator().manual_seed(1)

    def draw(*size, scale=1.0):
        return (torch.randn(*size, generator=generator) * scale).to(dtype)

    x, gate, up = draw(3, 5, 64), draw(96, 64, scale=1 / 8), draw(96, 64, scale=1 / 8)
    down = draw(64, 96, scale=1 / 8)
    h = torch.nn.functional.silu(x.double() @ gate.double().T) * (x.double() @ up.double().T)
    for out, want in [(tileglu.glu(x, gate, up), h),
                      (tileglu.mlp(x, gate, up, down), h @ down.double().T),
                      (tileglu.mlp(x, gate, up, down, residual=x),
                       h @ down.double().T + x.double())]:
        assert out.shape == want.shape and out.dtype is dtype and out.is_contiguous()
        assert (out.double() - want).norm() <= 2 * bound * want.norm()
