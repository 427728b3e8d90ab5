#!/usr/bin/env python3
"""Host time of a call: the library's C function with the same arguments, tileglu's public
function (the eager way past torch's dispatcher), torch.ops.tileglu, and for scale torch's own
linear, activation and product.

    PYTHONPATH=build/gcc-release/python python3 python/bench/overhead.py \\
        --device cuda --out results/h200/torch_overhead.csv

One sample is --calls calls in a row without waiting for the device, after waiting for it;
the ways take turns in random order; --samples samples each.  The CSV has medians and the
10th and 90th percentile in microseconds, and what each way takes above the C call's median;
its lines are written as they are measured.  --limit S starts no shape after S seconds.
"""

import argparse
import csv
import datetime
import itertools
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

import tileglu
from tileglu import _core

COLUMNS = ("date", "commit", "device", "torch", "python", "reads", "op", "m", "n", "k", "dtype",
           "way", "us", "us_p10", "us_p90", "above_c_us")
SHAPES = ((896, 4864), (4096, 14336))
TOKENS = (1, 16)


def ways_of(op, x, gate, up, down):
    """{name: function of a number of calls that returns seconds a call}."""
    weights = (gate, up) if op == "glu" else (gate, up, down)
    public, registered = getattr(tileglu, op), getattr(torch.ops.tileglu, op)
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu

    def of_torch():
        h = silu(linear(x, gate)) * linear(x, up)
        return h if op == "glu" else linear(h, down)

    def timed(call):
        def run(calls):
            start = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start) / calls
        return run

    arguments = (int(op == "mlp"), x, gate, up, None, down if op == "mlp" else None, None, None,
                 None, None, None, "silu", None, None, None, None)
    return {
        "c": lambda calls: _core.time(*arguments, calls),
        "eager": timed(lambda: public(x, *weights)),
        "torch.ops": timed(lambda: registered(x, *weights)),
        "torch": timed(of_torch),
    }


def measure(ways, samples, calls, wait):
    """{name: sorted microseconds a call}."""
    times = {name: [] for name in ways}
    for sample in range(samples + 3):
        order = list(ways)
        random.shuffle(order)
        for name in order:
            wait()
            seconds = ways[name](calls)
            if sample >= 3:
                times[name].append(seconds * 1e6)
    return {name: sorted(values) for name, values in times.items()}


def commit():
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True, check=False, cwd=Path(__file__).parent)
    return result.stdout.strip()


def rows_of(options):
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    on_cuda = device.type == "cuda"
    wait = torch.cuda.synchronize if on_cuda else lambda: None
    common = {
        "date": datetime.date.today().isoformat(), "commit": options.commit or commit(),
        "device": tileglu.device_info(device)["device_name"], "torch": torch.__version__,
        "python": platform.python_version(), "dtype": options.dtype,
        "reads": "dlpack" if hasattr(torch.Tensor, "__dlpack_c_exchange_api__") else "attributes"}
    started = time.monotonic()
    for hidden, intermediate in SHAPES:
        gate, up = (torch.randn(intermediate, hidden, device=device).to(dtype).div_(hidden ** 0.5)
                    for _ in range(2))
        down = torch.randn(hidden, intermediate, device=device).to(dtype)
        for op, tokens in itertools.product(("glu", "mlp"), TOKENS if on_cuda else (0,)):
            if options.limit and time.monotonic() - started > options.limit:
                print(f"stopped before {op} m={tokens} n={intermediate} k={hidden}, at the limit "
                      f"of {options.limit:g} s")
                return
            x = torch.randn(tokens, hidden, device=device).to(dtype)
            times = measure(ways_of(op, x, gate, up, down), options.samples, options.calls, wait)
            c = statistics.median(times["c"])
            for way, values in times.items():
                middle = statistics.median(values)
                yield {**common, "op": op, "m": tokens, "n": intermediate, "k": hidden,
                       "way": way, "us": f"{middle:.3f}",
                       "us_p10": f"{values[len(values) // 10]:.3f}",
                       "us_p90": f"{values[len(values) * 9 // 10]:.3f}",
                       "above_c_us": f"{middle - c:.3f}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--limit", type=float, default=0, help="seconds; 0: none")
    parser.add_argument("--commit", default="", help="where the folder has no git")
    parser.add_argument("--out", help="CSV file to write, line by line")
    options = parser.parse_args()
    file = open(options.out, "w", newline="", encoding="utf-8") if options.out else None
    writer = csv.DictWriter(file, COLUMNS) if file else None
    if file:
        writer.writeheader()
    with torch.inference_mode():
        for row in rows_of(options):
            print("{op:4} m={m:<3} n={n:<6} k={k:<5} {way:10} {us:>8} us   above c {above_c_us:>8} us"
                  .format(**row), flush=True)
            if file:
                writer.writerow(row)
                file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
