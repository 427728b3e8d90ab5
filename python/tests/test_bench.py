"""The benchmarks' processes: a point that raises, crashes or hangs is a line, and the next one
is measured."""

import csv
import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import tileglu

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import apart  # noqa: E402  pylint: disable=wrong-import-position,import-error
from bench_work import work  # noqa: E402  pylint: disable=wrong-import-position


def test_a_point_cannot_harm_the_next():
    groups = [[1, 2, "raise", 3, "crash", "crash"], [4, "hang", 5, "leave"], [], [6]]
    found = list(apart.results(work, groups, (10,), timeout=8))
    assert [point for point, _ in found] == [1, 2, "raise", 3, "crash", "crash", 4, "hang", 5,
                                             "leave", 6]
    results = [result for _, result in found]
    values = [result[1] for result in results if isinstance(result, tuple)]
    assert values == [10, 20, 30, 40, 50, 60]
    assert [str(result) for result in results if isinstance(result, RuntimeError)] == [
        "ValueError: it broke", "RuntimeError: its process ended with -6",
        "RuntimeError: its process ended with -6", "TimeoutError: nothing within 8 s",
        "RuntimeError: its process ended with 0"]
    processes = [result[0] for result in results if isinstance(result, tuple)]
    assert processes[0] == processes[1] and len(set(processes)) == 5
    assert os.getpid() not in processes


def test_who_stops_listening_leaves_no_process():
    running = apart.results(work, [[1, "hang"]], (10,), timeout=60)
    _, (process, _) = next(running)
    os.kill(process, 0)
    running.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_models_goes_on_after_what_fails(tmp_path):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("skipped: no transformers")
    path = tmp_path / "models.csv"
    result = subprocess.run(
        [sys.executable, str(BENCH / "models.py"), "--device", "cpu", "--models", "tiny",
         "--dtype", "float32", "--what", "mlp,model", "--phases", "prefill", "--modes",
         "graph,eager", "--prompt", "8", "--context", "4", "--rounds", "1", "--seconds", "0.001",
         "--out", str(path)], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(tileglu.__file__).parent.parent)})
    assert result.returncode == 0, result.stderr[-3000:]
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["what"], row["mode"], row["variant"]) for row in rows] == [
        (what, *line) for what in ("mlp", "model")
        for line in (("eager", "unpatched"), ("eager", "patched"), ("graph", ""))]
    for row in rows:  # graphs need a GPU
        assert bool(row["us"]) != bool(row["note"])
        assert float(row["us"]) > 0 if row["mode"] == "eager" else "CUDA" in row["note"]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_capture_finds_everything_compiled(phase, monkeypatch):
    """transformers takes other ways while a stream is captured; what was warmed up must be
    what is captured, since nothing can be compiled then."""
    transformers = pytest.importorskip("transformers")
    capturing = "is_cuda_stream_capturing"
    if not hasattr(transformers.utils.import_utils, capturing):
        pytest.skip("skipped: this transformers does not ask whether a stream is captured")
    if not hasattr(torch.compiler, "set_stance"):
        pytest.skip("skipped: this torch cannot refuse to compile")
    import models  # pylint: disable=import-error,import-outside-toplevel
    compile_with = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: compile_with(
        self, backend="eager", **options))
    options = types.SimpleNamespace(prompt=8, context=4)
    with torch.no_grad():
        model = models.make_model("tiny", torch.device("cpu"), torch.float32)
        ids = torch.arange(8)[None]
        assert not torch.equal(model(ids).logits[:, 2], model(ids.flip(1)).logits[:, 2])
        longer = torch.cat([ids, ids], 1)
        torch.testing.assert_close(model(longer, use_cache=False).logits[:, :8],
                                   model(ids, use_cache=False).logits)  # still causal
        for variant in models.variants_of(model).values():
            work_of = models.Work(variant, "model", phase, options)
            with models.compiled(work_of):
                want = work_of.call().clone()
                with monkeypatch.context() as patch, models.nothing_compiled_anew():
                    patch.setattr(transformers.utils.import_utils, capturing, lambda: True)
                    torch.testing.assert_close(work_of.call(), want)
    torch._dynamo.reset()
