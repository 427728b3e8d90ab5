"""The vLLM plugin of examples/vllm on vLLM's own MLP classes, where vLLM is installed
(docs/vllm.md says with which version it last was)."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from patch_support import draw, error

import tileglu

pytest.importorskip("vllm", reason="skipped: vLLM is not installed (docs/vllm.md)")
PLUGIN = Path(__file__).resolve().parents[2] / "examples/vllm"
sys.path.insert(0, str(PLUGIN))

import tileglu_vllm  # noqa: E402


@pytest.fixture(scope="module")
def world():
    """vLLM's process groups of one process, and its default configuration."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"tcp://127.0.0.1:{port}", 0, "gloo")
        initialize_model_parallel(1)
        yield


def prepared(module):
    """Random weights, kept as they lie: on the CPU vLLM would repack them after loading."""
    generator = torch.Generator().manual_seed(2)
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 8)
    for child in module.modules():
        if hasattr(child, "quant_method"):
            child.cpu_linear = torch.nn.functional.linear
    return module.eval()


def build(kind, dtype=torch.bfloat16, **options):
    from vllm.model_executor.models import gemma2, llama, qwen2

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        made = {"llama": lambda: llama.LlamaMLP(64, 96, "silu", **options),
                "qwen2": lambda: qwen2.Qwen2MLP(64, 96, "silu"),
                "gemma2": lambda: gemma2.Gemma2MLP(64, 96, "gelu_pytorch_tanh")}[kind]()
    finally:
        torch.set_default_dtype(before)
    return prepared(made)


@pytest.mark.parametrize("kind, options", [
    ("llama", {}), ("llama", {"bias": True}), ("qwen2", {}), ("gemma2", {})])
@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 2 ** -7), (torch.float16, 2 ** -10)])
def test_fused(world, kind, options, dtype, bound):
    module = build(kind, dtype, **options)
    own = type(module)
    x = draw(5, 64, dtype=dtype)
    with torch.inference_mode():
        want = module(x)
        assert tileglu_vllm.patch(module) == {"": None}
        assert isinstance(module, own) and type(module) is not own
        got = module(x)
        assert got.dtype is dtype and error(got, want) < bound
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        assert error(compiled(x), got) < 1e-6
        # The half with vLLM's own down projection, as on several GPUs.
        module.down_proj.tp_size = 2
        module.down_proj.reduce_results = False
        assert error(module(x), want) < bound


def test_left_alone(world):
    from vllm.model_executor.models.llama import LlamaMLP

    class Scaled(LlamaMLP):
        def forward(self, x):
            gate_up, _ = self.gate_up_proj(x)
            return self.down_proj(self.act_fn(gate_up * self.scale))[0]

    class Doubled(LlamaMLP):
        def forward(self, x):
            gate_up, _ = self.gate_up_proj(x + x)
            return self.down_proj(self.act_fn(gate_up))[0]

    def reason_of(module):
        return tileglu_vllm.patch(module)[""]

    module = build("llama")
    module.__class__ = Scaled
    module.scale = 1.0
    assert "uses ['scale'] besides" in reason_of(module)
    module.__class__ = Doubled
    assert "fused and own forward differ" in reason_of(module)
    assert "torch.float32" in reason_of(build("llama", torch.float32))
    module = build("llama")
    module.gate_up_proj.weight.data = torch.empty(0, dtype=torch.bfloat16)
    assert "repacked to [0]" in reason_of(module)
    module = build("llama")
    module.gate_up_proj.quant_method = object()
    assert "quantised or adapted" in reason_of(module)


def test_an_adapter_put_on_later(world):
    module = build("llama")
    x = draw(5, 64, dtype=torch.bfloat16)
    tileglu_vllm.patch(module)
    linear = module.gate_up_proj

    class WithLoRA(torch.nn.Module):
        def forward(self, x):
            out, bias = linear(x)
            return 2 * out, bias

    module.gate_up_proj = WithLoRA()
    with torch.inference_mode():
        gate, up = (2 * linear(x)[0]).chunk(2, -1)
        want = module.down_proj(torch.nn.functional.silu(gate) * up)[0]
        assert error(module(x), want) < 2 ** -7


def test_registration(tmp_path):
    """In a process of its own, as vLLM finds an installed plugin: by its entry point."""
    shutil.copy(PLUGIN / "tileglu_vllm.py", tmp_path)
    info = tmp_path / "tileglu_vllm-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tileglu-vllm\nVersion: 0.1.0\n")
    project = (PLUGIN / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.general_plugins"]\ntileglu = "tileglu_vllm:register"' \
        in project
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ntileglu = tileglu_vllm:register\n")
    code = """
import vllm.plugins
vllm.plugins.load_general_plugins()
import tileglu_vllm
tileglu_vllm.register()
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
load = BaseModelLoader.load_model
print("registered", hasattr(load, "_tileglu"), hasattr(load.__wrapped__, "_tileglu"))
"""
    path = os.pathsep.join([str(tmp_path), str(Path(tileglu.__file__).parents[1])])
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "PYTHONPATH": path}, check=False)
    assert out.returncode == 0, out.stderr
    assert "registered True False" in out.stdout, out.stdout + out.stderr
