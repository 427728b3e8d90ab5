#!/usr/bin/env python3
"""Whole models and their MLPs, patched by tileglu against unpatched: random weights in the
shapes of real models, transformers' own code, one card.

    PYTHONPATH=build/python-gpu python3 python/bench/models.py --out results/h200/torch_models.csv

phase    decode: one new token behind --context others, in a static cache;
         prefill: --prompt tokens at once, without a cache
what     mlp: the MLPs of all layers one after the other, time of one; model: all of it
mode     eager: Python calls, one after the other without waiting for the device;
         compiled: every decoder layer by torch.compile (MLPs: every MLP), one compilation for
         all layers;
         graph: the eager call in a CUDA graph; compiled_graph: the compiled one in a graph
variant  unpatched, patched

What is quick and tells most comes first: the MLPs of all models, the whole models, and then
both again compiled.  A model stays on the card, once, as long as its process: both variants
have the same weights (33 GB for all).

Both variants of a point take turns for --rounds rounds; a line of the CSV has the median
of a round's mean in microseconds, and its ratio to unpatched.  A point that fails, or takes
more than --timeout seconds, is a line with the reason, and the next one has a new process
(apart.py), as has each whole model that is compiled.  --limit S stops at the first result
after S seconds; the same command again with --resume goes on with the points that its CSV
lacks.
"""

import argparse
import contextlib
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
from torch import nn

import apart
import tileglu

SHAPES = {
    "Qwen2.5-0.5B": ("qwen2", 896, 4864, 24, 14, 2, 151936, True),
    "Qwen2.5-7B": ("qwen2", 3584, 18944, 28, 28, 4, 152064, False),
    "Llama-3.1-8B": ("llama", 4096, 14336, 32, 32, 8, 128256, False),
    "tiny": ("llama", 64, 160, 12, 4, 2, 256, False),
}
MODES = (("eager", "graph"), ("compiled", "compiled_graph"))  # that share a preparation
COLUMNS = ("date", "commit", "device", "driver", "torch", "transformers", "python", "model", "what",
           "phase", "tokens", "mode", "variant", "us", "ratio", "note")


def without_mask(model):
    """Leaves the mask out of a call without cache and padding, as transformers does when no
    stream is captured: attention is causal by itself.

    To find out, transformers waits for the device; in a capture it cannot, and makes a mask.
    The graph would then do other work than what was warmed up, and layers compiled without a
    mask would be compiled anew, which ends the capture."""
    modeling = sys.modules[type(model).__module__]
    make = modeling.create_causal_mask
    if model.config._attn_implementation != "sdpa":
        return

    def mask(**given):
        cache = given.get("cache", given.get("past_key_values"))
        return None if cache is None and given["attention_mask"] is None else make(**given)
    modeling.create_causal_mask = mask


def make_model(name, device, dtype):
    kind, hidden, intermediate, layers, heads, kv_heads, vocabulary, tied = SHAPES[name]
    config = transformers.AutoConfig.for_model(
        kind, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=vocabulary,
        tie_word_embeddings=tied, max_position_embeddings=8192)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(before)
    without_mask(model)
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
        self.keyword = "cache" if "cache" in named else "past_key_values"
        model(ids[:, :options.context], logits_to_keep=1, **{self.keyword: self.cache})
        # The layers' lengths as views of one tensor, which one launch sets back; 16 bytes
        # apart, as compiled code wants its tensors.
        self.lengths = torch.full((len(self.layers), 2), options.context, device=device)
        for layer, length in zip(self.cache.layers, self.lengths[:, 0]):
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
                          **{self.keyword: self.cache}).logits


class Placed(nn.Module):
    """A decoder layer with its own place in the cache as the only one.

    With its number in the model each layer would be compiled for itself."""

    def __init__(self, layer, place, cache, keyword):
        super().__init__()
        self.layer, self.keyword, self.cache = layer, keyword, copy.copy(cache)
        mine = copy.copy(cache.layers[place])
        mine.keys, mine.values = mine.keys.detach(), mine.values.detach()  # not bound to addresses
        self.cache.layers = [mine]

    def forward(self, x, **keywords):
        return self.layer(x, **{**keywords, self.keyword: self.cache})


@contextlib.contextmanager
def compiled(work):
    """The work's layers, or their MLPs, by torch.compile."""
    decoder, layers = work.model.model, work.layers
    parts = [layer.mlp if work.what == "mlp" else layer for layer in layers]
    for part in parts:
        part.compile(fullgraph=True, dynamic=False)
    if work.call == work.decode:
        decoder.layers = nn.ModuleList(Placed(layer, place, work.cache, work.keyword)
                                       for place, layer in enumerate(layers))
        for layer in layers:
            layer.self_attn.layer_idx = 0
    try:
        yield
    finally:
        decoder.layers = layers
        for place, layer in enumerate(layers):
            layer.self_attn.layer_idx = place
        for part in parts:
            part._compiled_call_impl = None


def nothing_compiled_anew():
    """A context in which compiled code that does not fit the call is an error: in a capture,
    compiling would break more than the capture."""
    if hasattr(torch.compiler, "set_stance"):
        return torch.compiler.set_stance("fail_on_recompile")
    return contextlib.nullcontext()


WARM_UPS = 3


def in_graph(call):
    """Replay of the call, captured once: on the stream that it was warmed up on."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with nothing_compiled_anew(), torch.cuda.graph(graph, stream=stream):
        out = call()

    def replay():
        graph.replay()
        return out
    return replay


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


def time_of(calls, works, options):
    """{variant: microseconds} of calls that take turns."""
    times, outputs = {variant: [] for variant in calls}, {}
    for _ in range(options.rounds):
        for variant, call in calls.items():
            outputs[variant] = call()
            times[variant].append(seconds_of(call, outputs[variant].device, options.seconds))
    want = outputs["unpatched"].float()
    error = (outputs["patched"].float() - want).norm() / want.norm()
    if not error < 0.1:
        raise ArithmeticError(f"patched and unpatched differ by {error:.3g} (relative L2)")
    return {variant: statistics.median(values) * 1e6 / works[variant].per
            for variant, values in times.items()}


def measure(works, modes, options):
    """{variant: microseconds} of one mode of a tuple of MODES after the other."""
    with contextlib.ExitStack() as stack:
        if modes[0].startswith("compiled"):
            torch._dynamo.reset()
            for work in works.values():
                stack.enter_context(compiled(work))
        for work in works.values():
            for _ in range(WARM_UPS):
                work.call()
        for mode in modes:
            calls = {variant: in_graph(work.call) if mode.endswith("graph") else work.call
                     for variant, work in works.items()}
            yield time_of(calls, works, options)


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


def groups_of(options):
    """The points to measure, in lists that share a process."""
    done = measured(options.out) if options.resume else set()
    names = (options.what, options.models, options.phases)
    groups = {}
    for modes, *case in itertools.product(MODES, *(text.split(",") for text in names)):
        what, model, phase = case
        tokens = str(options.prompt if phase == "prefill" else 1)
        alone = modes[0] == "compiled" and what == "model"
        group = groups.setdefault((modes, what, *case[1:]) if alone else modes, [])
        points = ((model, what, phase, tokens, mode) for mode in modes
                  if mode in options.modes.split(","))
        group += (point for point in points if point not in done)
    return list(groups.values())


def work(points, options):
    """Lines of the CSV for each of the points, in a process of its own (apart.py)."""
    # No limit, should some torch compile each layer for itself after all.
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit",
                 "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 1024)
    device, made = torch.device(options.device), {}
    kind = tileglu.device_info(device)["device_name"]
    with torch.no_grad():
        for (name, what, phase, _), case in itertools.groupby(points, lambda point: point[:4]):
            modes = [point[4] for point in case]
            if name not in made:
                made[name] = variants_of(make_model(name, device, getattr(torch, options.dtype)))
            works = {variant: Work(model, what, phase, options)
                     for variant, model in made[name].items()}
            for times in measure(works, modes, options):
                yield [{"device": kind, "variant": variant, "us": f"{us:.2f}",
                        "ratio": f"{us / times['unpatched']:.4f}"}
                       for variant, us in times.items()]


def rows_of(options):
    """Lines of the CSV, as they come."""
    started, groups = time.monotonic(), groups_of(options)
    common = {
        "date": datetime.date.today().isoformat(), "commit": options.commit or commit(),
        "device": "", "driver": driver(), "torch": torch.__version__,
        "transformers": transformers.__version__, "python": platform.python_version()}
    left = sum(len(group) for group in groups)
    for point, result in apart.results(work, groups, (options,), options.timeout):
        row = {**common, **dict(zip(POINT, point))}
        if isinstance(result, Exception):
            result = [{"note": " ".join(str(result)[:240].split())}]
        for line in result:
            yield {**row, **line}
            common["device"] = common["device"] or line.get("device", "")
        left -= 1
        print(f"{time.monotonic() - started:.1f} s", flush=True)
        if options.limit and time.monotonic() - started > options.limit:
            print(f"{left} points left at the limit of {options.limit:g} s")
            break


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--models", default="Qwen2.5-0.5B,Qwen2.5-7B,Llama-3.1-8B")
    parser.add_argument("--what", default="mlp,model")
    parser.add_argument("--phases", default="decode,prefill")
    parser.add_argument("--modes", default=",".join(itertools.chain(*MODES)))
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.06, help="of a round, at least")
    parser.add_argument("--limit", type=float, default=0, help="seconds; 0: none")
    parser.add_argument("--timeout", type=float, default=180, help="seconds of a point, at most")
    parser.add_argument("--resume", action="store_true", help="only points that --out lacks")
    parser.add_argument("--commit", default="", help="where the folder has no git")
    parser.add_argument("--out", help="CSV file; lines are appended as they are measured")
    options = parser.parse_args()
    file = open(options.out, "a", newline="", encoding="utf-8") if options.out else None
    writer = csv.DictWriter(file, COLUMNS) if file else None
    if file and file.tell() == 0:
        writer.writeheader()
    for row in rows_of(options):
        print(" ".join(str(row.get(column, "")) for column in COLUMNS[7:]), flush=True)
        if file:
            writer.writerow(row)
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
