#!/usr/bin/env python3
"""Builds the wheel as `pip install .` does, without nvcc, and looks at what came out: its tag,
what is inside, its size; then installs it by itself, without torch, and beside torch.

    .venv/bin/python tools/check_wheel.py       (a Python that has pip and torch)
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 2_000_000  # of the wheel, without GPU kernels
ALONE = """
import sys
sys.modules["torch"] = None
import tileglu
print(tileglu.__version__, tileglu.library_version(), tileglu.device_info("cpu")["backend"])
"""
BESIDE_TORCH = """
import torch, tileglu
x, w, d = torch.randn(3, 64), torch.randn(48, 64) / 8, torch.randn(64, 48) / 7
h = torch.nn.functional.silu(x @ w.T) * (x @ w.T)
torch.testing.assert_close(tileglu.mlp(x, w, w, d), h @ d.T, rtol=1e-4, atol=1e-5)
print(tileglu.__file__)
"""


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}"
                 f"{result.stderr[-6000:]}")
    return result.stdout.strip()


def check_contents(wheel):
    if "-cp310-abi3-linux_" not in wheel.name:
        sys.exit(f"{wheel.name}: the tag is not cp310-abi3-linux_*")
    names = {name.split("/")[-1] for name in zipfile.ZipFile(wheel).namelist()}
    wanted = {path.name for path in (ROOT / "python" / "tileglu").glob("*.py")}
    wanted |= {"_core.abi3.so", "libtileglu.so", "LICENSE"}
    if wanted - names:
        sys.exit(f"{wheel.name} lacks {', '.join(sorted(wanted - names))}")
    if wheel.stat().st_size > MAX_BYTES:
        sys.exit(f"{wheel.name} has {wheel.stat().st_size} bytes")
    print(f"{wheel.name}: {wheel.stat().st_size} bytes")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
        run(*pip, "wheel", "--no-deps", "--wheel-dir", folder, "-C",
            "cmake.define.TILEGLU_CUDA=OFF", "-C", f"build-dir={folder / 'build'}", ROOT)
        wheel, = folder.glob("*.whl")
        check_contents(wheel)
        run(*pip, "install", "--no-deps", "--no-index", "--target", folder / "site", wheel)
        environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
        version = run(sys.executable, "-c", ALONE, env=environment, cwd=folder)
        place = run(sys.executable, "-c", BESIDE_TORCH, env=environment, cwd=folder)
        if not place.startswith(str(folder / "site")):
            sys.exit(f"another copy was imported: {place}")
        print(f"imported without torch ({version}) and beside torch")


if __name__ == "__main__":
    main()
