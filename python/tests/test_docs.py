"""The programs in docs/python.md run as printed."""

import re
from pathlib import Path

import pytest

import tileglu

DOCS = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_programs():
    if not DOCS.exists():
        pytest.skip("skipped: docs/python.md is not here")
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    assert len(blocks) >= 3
    names = {}
    try:
        for block in blocks:
            exec(block.replace('"cuda:0"', '"cpu"'), names)  # pylint: disable=exec-used
    finally:
        tileglu.configure("cpu", threads=1)
    assert names["y"].shape == names["x"].shape and names["h"].shape[-1] == 1536
    assert names["y"].isfinite().all()
