#!/usr/bin/env python3
"""Whole models and their MLPs, patched by tileglu against unpatched: random weights in the
shapes of real models, transformers' own code, one card.

    PYTHONPATH=build/python-gpu python3 python/bench/models.py --out results/h200/torch_models.csv

phase    decode: one new token behind --context others, in a static cache;
         prefill: --prompt tokens at once, without a cache
what     mlp: the MLPs of all layers one after the other, time of one; model: all of it
mode     eager: Python calls, one after the other without waiting for the device;
         compiled: every decoder layer by torch.compile (MLPs: every MLP);
         graph: the eager call in a CUDA graph; compiled_graph: the compiled one in a graph
variant  unpatched, patched

The MLPs of all models come before the first whole model.  Every model stays on the card,
once: both variants have the same weights (33 GB for all).

Both variants of a point take turns for --rounds rounds; a line of the CSV has the median
of a round's mean in microseconds, and its ratio to unpatched.  A point that fails is a line
with the reason.  --limit S starts no point after S seconds; the same command again with
--resume goes on with the points that its CSV lacks.
"""

import argparse
import copy
import csv
import datetime
import inspect
import itertools
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import transformers

import tileglu

SHAPES = {
    "Qwen2.5-0.5B": ("qwen2", 896, 4864, 24, 14, 2, 151936, True),
    "Qwen2.5-7B": ("qwen2", 3584, 18944, 28, 28, 4, 152064, False),
    "Llama-3.1-8B": ("llama", 4096, 14336, 32, 32, 8, 128256, False),
    "tiny": ("llama", 64, 160, 12, 4, 2, 256, False),
}
MODES = ("eager", "graph", "compiled", "compiled_graph")
COLUMNS = ("date", "commit", "device", "driver", "torch", "transformers", "python", "model", "what",
           "phase", "tokens", "mode", "variant", "us", "ratio", "note")


def make_model(name, device, dtype):
    kind, hidden, intermediate, layers, heads, kv_heads, vocabulary, tied = SHAPES[name]
    config = transformers.AutoConfig.for_model(
        kind, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=vocabulary,
        tie_word_embeddings=tied, max_position_embeddings=8192)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval().requires_grad_(False)


def variants_of(model):
    """{variant: model}: two models of the same tensors, since patching anew for each round
    would take longer than the round."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    patched = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    report = tileglu.patch(patched)
    if len(report.patched) != model.config.num_hidden_layers:
        raise RuntimeError(f"not every MLP was patched:\n{report}")
    return {"unpatched": model, "patched": patched}


class Work:
    """What is timed: call() does it once on the current stream, `per` is what to divide by."""

    def __init__(self, model, what, phase, options):
        self.model, self.what, self.per = model, what, 1
        self.tokens = options.prompt if phase == "prefill" else 1
        self.layers = model.model.layers
        parameter = next(model.parameters())
        device = parameter.device
        torch.manual_seed(1)  # the same input for both variants
        if what == "mlp":
            self.x = torch.randn(1, self.tokens, model.config.hidden_size, device=device).to(
                parameter.dtype)
            self.call, self.per = self.mlps, len(self.layers)
            return
        ids = torch.randint(model.config.vocab_size, (1, max(options.context, options.prompt)),
                            device=device)
        if phase == "prefill":
            self.ids = ids[:, :options.prompt].contiguous()
            self.call = self.prefill
            return
        self.context = options.context
        self.cache = transformers.StaticCache(config=model.config,
                                              max_cache_len=options.context + 8)
        # The argument's name is "cache" from transformers 5.2x on.
        named = inspect.signature(model.forward).parameters
        self.keyword = {"cache" if "cache" in named else "past_key_values": self.cache}
        model(ids[:, :options.context], logits_to_keep=1, **self.keyword)
        # The layers' lengths as views of one tensor, which one launch sets back.
        self.lengths = torch.full((len(self.layers),), options.context, device=device)
        for layer, length in zip(self.cache.layers, self.lengths):
            layer.cumulative_length = length
        self.ids = ids[:, :1].contiguous()
        self.position = torch.full((1, 1), options.context, device=device)
        self.call = self.decode

    def mlps(self):
        for layer in self.layers:
            out = layer.mlp(self.x)
        return out

    def prefill(self):
        return self.model(self.ids, use_cache=False, logits_to_keep=1).logits

    def decode(self):
        """Always at the same position, so that each call is the same work."""
        self.lengths.fill_(self.context)
        return self.model(self.ids, position_ids=self.position, logits_to_keep=1,
                          **self.keyword).logits


def parts_of(work):
    """The modules that are compiled one by one."""
    return [layer.mlp if work.what == "mlp" else layer for layer in work.layers]


def compile_parts(work):
    for part in parts_of(work):
        part.compile(fullgraph=True, dynamic=False)


def uncompile_parts(work):
    for part in parts_of(work):
        part._compiled_call_impl = None


def in_graph(call):
    """Replay of the call, captured once."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()

    def replay():
        graph.replay()
        return out
    return replay


def prepare(work, mode):
    """The call in a mode, warm."""
    if mode.startswith("compiled"):
        compile_parts(work)
    for _ in range(2):
        work.call()
    return in_graph(work.call) if mode.endswith("graph") else work.call


def seconds_of(call, device, at_least):
    """Mean seconds of a call over a time of at least so many seconds."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start, count, batch = time.perf_counter(), 0, 1
    while True:
        for _ in range(batch):
            call()
        wait()
        count += batch
        spent = time.perf_counter() - start
        if spent >= at_least:
            return spent / count
        batch = max(1, min(1000, int(count * (at_least - spent) / spent) + 1))


def point(variants, what, phase, mode, options):
    """{variant: microseconds} of one point."""
    times = {variant: [] for variant in variants}
    if mode.startswith("compiled"):
        torch._dynamo.reset()
    works = {variant: Work(model, what, phase, options) for variant, model in variants.items()}
    try:
        calls = {variant: prepare(work, mode) for variant, work in works.items()}
        outputs = {}
        for _ in range(options.rounds):
            for variant, call in calls.items():
                outputs[variant] = call()
                times[variant].append(seconds_of(call, outputs[variant].device, options.seconds))
    finally:
        for work in works.values():
            uncompile_parts(work)
    want = outputs["unpatched"].float()
    error = (outputs["patched"].float() - want).norm() / want.norm()
    if not error < 0.1:
        raise ArithmeticError(f"patched and unpatched differ by {error:.3g} (relative L2)")
    return {variant: statistics.median(values) * 1e6 / works[variant].per
            for variant, values in times.items()}


def commit():
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True, check=False, cwd=Path(__file__).parent)
    return result.stdout.strip()


def driver():
    """Version of the NVIDIA driver, "" where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else ""


POINT = ("model", "what", "phase", "tokens", "mode")


def measured(path):
    """The points that a CSV has a time of."""
    if not path or not Path(path).exists():
        return set()
    with open(path, newline="", encoding="utf-8") as file:
        return {tuple(row[key] for key in POINT) for row in csv.DictReader(file) if row["us"]}


def points(options, device):
    """Lines of the CSV, as they come."""
    started = time.monotonic()
    common = {
        "date": datetime.date.today().isoformat(), "commit": options.commit or commit(),
        "device": tileglu.device_info(device)["device_name"], "driver": driver(),
        "torch": torch.__version__, "transformers": transformers.__version__,
        "python": platform.python_version()}
    done = measured(options.out) if options.resume else set()
    rows = []
    for what, name, phase, mode in itertools.product(*(
            names.split(",") for names in
            (options.what, options.models, options.phases, options.modes))):
        row = {**common, "model": name, "what": what, "phase": phase, "mode": mode,
               "tokens": options.prompt if phase == "prefill" else 1}
        if tuple(str(row[key]) for key in POINT) not in done:
            rows.append(row)
    made = {}
    for left, row in zip(range(len(rows), 0, -1), rows):
        if options.limit and time.monotonic() - started > options.limit:
            print(f"{left} points left at the limit of {options.limit:g} s")
            break
        name = row["model"]
        try:
            if name not in made:
                made[name] = variants_of(make_model(name, device, getattr(torch, options.dtype)))
            with torch.no_grad():
                times = point(made[name], row["what"], row["phase"], row["mode"], options)
        except Exception as error:  # pylint: disable=broad-except
            yield {**row, "note": f"{type(error).__name__}: {str(error)[:200]}"}
            continue
        for variant, us in times.items():
            yield {**row, "variant": variant, "us": f"{us:.2f}",
                   "ratio": f"{us / times['unpatched']:.4f}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--models", default="Qwen2.5-0.5B,Qwen2.5-7B,Llama-3.1-8B")
    parser.add_argument("--what", default="mlp,model")
    parser.add_argument("--phases", default="decode,prefill")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round, at least")
    parser.add_argument("--limit", type=float, default=0, help="seconds; 0: none")
    parser.add_argument("--resume", action="store_true", help="only points that --out lacks")
    parser.add_argument("--commit", default="", help="where the folder has no git")
    parser.add_argument("--out", help="CSV file; lines are appended as they are measured")
    options = parser.parse_args()
    # A decoder layer is compiled anew for each place in the cache.
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit",
                 "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 1024)
    device = torch.device(options.device)
    file = open(options.out, "a", newline="", encoding="utf-8") if options.out else None
    writer = csv.DictWriter(file, COLUMNS) if file else None
    if file and file.tell() == 0:
        writer.writeheader()
    for row in points(options, device):
        print(" ".join(str(row.get(column, "")) for column in COLUMNS[7:]), flush=True)
        if file:
            writer.writerow(row)
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
