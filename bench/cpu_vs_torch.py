#!/usr/bin/env python3
"""The library against torch's eager `silu(linear) * linear` on the CPU.

    make bench                                   all of it, into results/cpu/<cpu>/
    bench/cpu_vs_torch.py BUILD_FOLDER [--models ...] [--tokens ...] [--dtypes ...]

Protocol.  One process holds both.  Per point, every contender is measured once a
round, in random order; one measurement is a pause of 5 ms (so that the other's
spinning threads sleep), one untimed call, then calls for at least 20 ms.  Medians over
the rounds.  Up to 16 tokens the weights rotate over copies that together hold at least
three times the last-level cache, for both alike.  The results are compared before
anything is timed.  Torch runs twice: held to AVX2 like the library (by environment
variables, so the script runs itself again), and as it comes.

The library is called through ctypes on torch's own tensors, torch in inference mode;
the call overhead of both is inside the times (some microseconds each).

ratio = torch_us / ours_us: above 1 the library is faster.  read_gbs is a plain AVX2
read loop over the same weights with as many threads, in the same rounds (one token,
weights of 100 MB and more).
"""

import argparse
import concurrent.futures
import csv
import ctypes
import datetime
import json
import math
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

MODELS = {"SmolLM2-135M": (576, 1536), "Qwen2.5-0.5B": (896, 4864),
          "Qwen2.5-7B": (3584, 18944)}
TOKENS = (1, 16, 128, 1024)
ROTATED_TOKENS = 16  # weights rotate up to this many tokens
READ_BYTES = 100e6   # weights from this size are also read plainly; below, handing the
                     # work to the threads would be a visible part of the time
MODES = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "free": {},
}
COLUMNS = ("date,commit,cpu,threads,isa,torch,torch_isa,dtype,model,hidden,intermediate,m,"
           "row,copied_bytes,copies,rounds,ours_us,torch_us,ratio,ours_iqr_us,torch_iqr_us,"
           "ours_gflops,ours_gbs,read_gbs,share_of_read,rel_l2").split(",")


def cpu_name():
    match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return match.group(1).strip() if match else platform.machine()


def slug(name):
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", name).lower()).strip("-")


def last_level_cache_bytes():
    best = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        best = max(best, int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0))
    return best or 32 << 20


def commit():
    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True,
                              text=True, check=False).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "include",
                  "CMakeLists.txt", "CMakePresets.json", "cmake", "bench")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if changed else "")


# ---- The measuring process ---------------------------------------------------


class ReadLoop:
    """bench/read_loop.c on several threads."""

    def __init__(self, threads, folder):
        library = Path(folder) / "read_loop.so"
        subprocess.run(["cc", "-O3", "-mavx2", "-shared", "-fPIC", "-o", str(library),
                        str(ROOT / "bench" / "read_loop.c")], check=True)
        self.read = ctypes.CDLL(str(library)).tileglu_bench_read
        self.read.argtypes, self.read.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_uint64
        self.threads = threads
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)

    def run(self, tensors):
        parts = []
        for tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            step = math.ceil(size / self.threads / 256) * 256
            parts += [(tensor.data_ptr() + at, min(step, size - at))
                      for at in range(0, size, step)]
        list(self.pool.map(lambda part: self.read(*part), parts))


def measure_us(call, copies):
    """Mean time of a call, over the copies in turn."""
    time.sleep(0.005)
    call(0)
    count, start = 0, time.perf_counter()
    while True:
        for index in range(copies):
            call(index)
        count += copies
        elapsed = time.perf_counter() - start
        if elapsed > 0.02:
            return elapsed / count * 1e6


def iqr(samples):
    if len(samples) < 4:
        return max(samples) - min(samples)
    low, _, high = statistics.quantiles(samples, n=4)
    return high - low


def measure_point(torch, tileglu, context, loop, dtype, model, m, rounds, seconds):
    """One line of the table, as a dict."""
    from torch.nn import functional
    k, n = MODELS[model]
    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    weight_bytes = 2 * n * k * (4 if dtype == "f32" else 2)
    copies = 1
    if m <= ROTATED_TOKENS:
        copies = max(1, math.ceil(3 * last_level_cache_bytes() / weight_bytes))
    x = torch.randn(m, k).to(kind)
    weights = [(torch.randn(n, k).mul_(k ** -0.5).to(kind),
                torch.randn(n, k).mul_(k ** -0.5).to(kind)) for _ in range(copies)]
    out = torch.empty(m, n, dtype=kind)
    objects = [tileglu.Object(context, k, n, dtype, "silu", gate=gate.data_ptr(),
                              up=up.data_ptr()) for gate, up in weights]
    args = objects[0].args(x.data_ptr(), m, out.data_ptr())

    def ours(index):
        objects[index].run(args)

    def eager(index):
        gate, up = weights[index]
        return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)

    ours(0)
    reference = (functional.silu(x.float() @ weights[0][0].float().T)
                 * (x.float() @ weights[0][1].float().T))
    rel_l2 = ((out.float() - reference).norm() / reference.norm()).item()
    if not rel_l2 < (1e-5 if dtype == "f32" else 2.0 ** -8):
        sys.exit(f"error: {dtype} {model} m={m}: relative L2 error {rel_l2:.2e}")
    del reference

    contenders = {"ours": ours, "torch": eager}
    if m == 1 and weight_bytes >= READ_BYTES:
        contenders["read"] = lambda index: loop.run(weights[index])
    samples = {name: [] for name in contenders}
    started = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - started > seconds:
            break
        order = list(contenders)
        random.shuffle(order)
        for name in order:
            samples[name].append(measure_us(contenders[name], copies))
    median = {name: statistics.median(values) for name, values in samples.items()}
    line = {
        "dtype": dtype, "model": model, "hidden": k, "intermediate": n, "m": m,
        "row": objects[0].plan(m).row.decode(), "copied_bytes": objects[0].info().copied_bytes,
        "copies": copies, "rounds": len(samples["ours"]),
        "ours_us": round(median["ours"], 1), "torch_us": round(median["torch"], 1),
        "ratio": round(median["torch"] / median["ours"], 3),
        "ours_iqr_us": round(iqr(samples["ours"]), 1),
        "torch_iqr_us": round(iqr(samples["torch"]), 1),
        "ours_gflops": round(4 * m * n * k / median["ours"] / 1e3, 1),
        "ours_gbs": round(weight_bytes / median["ours"] / 1e3, 2),
        "read_gbs": "", "share_of_read": "", "rel_l2": f"{rel_l2:.2e}",
    }
    if "read" in median:
        line["read_gbs"] = round(weight_bytes / median["read"] / 1e3, 2)
        line["share_of_read"] = round(median["read"] / median["ours"], 3)
    for handle in objects:
        handle.close()
    return line


def child(options):
    """Measures every point asked for; one JSON object a line on standard output."""
    import torch
    import tileglu_ctypes as tileglu
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    library = tileglu.Library(options.build)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode(), \
            tileglu.Context(library, threads=options.threads, cpu_isa=options.isa,
                            tune_cache="") as context:
        loop = ReadLoop(options.threads, folder)
        for dtype in options.dtypes:
            for model in options.models:
                for m in options.tokens:
                    line = measure_point(torch, tileglu, context, loop, dtype, model, m,
                                         options.rounds, options.seconds)
                    line["torch"] = torch.__version__
                    line["torch_isa"] = torch.backends.cpu.get_cpu_capability()
                    print(json.dumps(line), flush=True)


# ---- The process that the user starts ----------------------------------------


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def summary(lines):
    """The table for people and the geometric means, as Markdown."""
    text = ["| torch | type | model | M | ours us | torch us | torch/ours | GFLOP/s | GB/s "
            "| of a plain read |", "|---|---|---|---|---|---|---|---|---|---|"]
    for line in lines:
        share = f"{100 * line['share_of_read']:.0f} %" if line["share_of_read"] != "" else ""
        text.append(f"| {line['torch_isa']} | {line['dtype']} | {line['model']} | {line['m']} "
                    f"| {line['ours_us']:.0f} | {line['torch_us']:.0f} | {line['ratio']:.2f} "
                    f"| {line['ours_gflops']:.0f} | {line['ours_gbs']:.1f} | {share} |")
    text.append("")
    for torch_isa in dict.fromkeys(line["torch_isa"] for line in lines):
        for dtype in dict.fromkeys(line["dtype"] for line in lines):
            ratios = [line["ratio"] for line in lines
                      if line["dtype"] == dtype and line["torch_isa"] == torch_isa]
            if ratios:
                text.append(f"- {dtype}, torch at {torch_isa}: geometric mean of torch/ours "
                            f"{geometric_mean(ratios):.2f}, least {min(ratios):.2f}, "
                            f"{len(ratios)} points")
    return "\n".join(text) + "\n"


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build folder, or the shared library itself")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tokens", nargs="+", type=int, default=list(TOKENS))
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"],
                        choices=["f32", "bf16", "f16"])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default="avx2", help="level of the library (default: avx2)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=8,
                        help="a point's time, after which no round beyond the third starts")
    parser.add_argument("--out", type=Path, help="folder; default results/cpu/<cpu>")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.child:
        child(options)
        return
    cpu = cpu_name()
    out = options.out or ROOT / "results" / "cpu" / slug(cpu)
    common = {"date": datetime.date.today().isoformat(), "commit": commit(), "cpu": cpu,
              "threads": options.threads, "isa": options.isa}
    lines = []
    for mode in options.modes:
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("TILEGLU_")}
        environment.update(MODES[mode])
        command = [sys.executable, __file__, "--child", *sys.argv[1:]]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                              text=True) as process:
            for text in process.stdout:
                lines.append({**common, **json.loads(text)})
                line = lines[-1]
                print(f"{line['torch_isa']:7} {line['dtype']:5} {line['model']:13} "
                      f"m={line['m']:<5} ours {line['ours_us']:>11.1f} us   torch "
                      f"{line['torch_us']:>11.1f} us   torch/ours {line['ratio']:.2f}",
                      flush=True)
        if process.returncode:
            sys.exit(process.returncode)

    out.mkdir(parents=True, exist_ok=True)
    with open(out / "cpu_vs_torch.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    text = (f"# {cpu}, {options.threads} threads, level {options.isa}, torch "
            f"{lines[0]['torch']}, {common['date']}, commit {common['commit']}\n\n"
            "Made by `make bench` (bench/cpu_vs_torch.py, where the protocol is).\n\n"
            + summary(lines))
    (out / "cpu_vs_torch.md").write_text(text)
    print()
    print(summary(lines))
    print(f"written: {out / 'cpu_vs_torch.csv'} and cpu_vs_torch.md")


if __name__ == "__main__":
    main()
