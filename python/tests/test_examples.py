"""The scripts of examples/ run, and say what they are there to show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tileglu

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name, said", [
    ("functions", "glu: row glu_bf16"),
    ("patch_model", "tokens/s unpatched"),
    ("compiled_block", "compiled, 9 tokens: [9, 640]"),
])
def test_example(name, said):
    if name == "patch_model":
        pytest.importorskip("transformers")
    path = [str(Path(tileglu.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    out = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True,
        timeout=300, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)})
    assert out.returncode == 0, out.stderr
    assert said in out.stdout
