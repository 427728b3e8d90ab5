#!/usr/bin/env python3
"""Tables for people from the files of results/<card>/: python tools/gpu_tables.py FOLDER

Writes FOLDER/tables.md from those of these that are there:
    glu_bf16.csv           R (time over the bare GEMM's) of the planner's choice and of the
                           best row
    kernels_bf16.csv       with it: gate_first's time over the best paired row's
    mlp_bf16.csv           R3 (time over both bare GEMMs'), and the floor over it
    read_bf16.csv          a reading kernel's time over the GLU's
    regret*_bf16.csv       second runs: what the choice costs over the best row of its run, and
                           with it R of that row;
                           _tuned: the choice is the tuner's; _extra: other shapes
    invariant_bf16.csv     what batch-invariant contexts cost
    energy.csv             energy a call, power and clock of bare and chosen, each twice
Medians over the runs in a file; the choice is that of the newest run of a shape; a ratio
is formed within one run.
"""

import argparse
import collections
import csv
import math
import statistics
from pathlib import Path

import gpu_goals

EXTREMES = {max: "highest", min: "lowest"}
ORDER = ["0.5B", "1.5B", "3B", "7B", "14B", "32B", "72B"]


def read(path):
    if not path.is_file():
        return []
    with open(path, newline="", encoding="ascii") as file:
        return [line for line in csv.DictReader(file) if line.get("us", "1")]


def short(row):
    name = row.split("_sm90_")[-1]
    return name.replace("paired_", "").replace("pingpong", "pp")


def key_of(line):
    return line["model"].removeprefix("Qwen2.5-"), int(line["m"])


def rows_of(line):
    """A line's row, or the pair of an MLP, unless one row computes both halves."""
    if "glu_row" in line:
        return " + ".join(filter(None, (line["glu_row"], line["down_row"])))
    return line["row"]


def label(rows):
    return " + ".join(short(row) for row in rows.split(" + "))


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def models_of(keys):
    seen = list(dict.fromkeys(model for model, _ in keys))
    return [m for m in ORDER if m in seen] + [m for m in seen if m not in ORDER]


def grid(title, values, show="{:.3f}", words=None, mean=geomean, worst=max):
    """A table model x tokens of {key: number}; words: what is said after each.  The last
    columns are the mean and the worst of a line."""
    if not values:
        return []
    models = models_of(values)
    out = [f"## {title}", "", "| M | " + " | ".join(models) + f" | mean | {EXTREMES[worst]} |",
           "|--" * (len(models) + 3) + "|"]
    for m in sorted({m for _, m in values}):
        cells = []
        for model in models:
            value = values.get((model, m))
            word = (words or {}).get((model, m), "")
            cells.append("" if value is None else f"{show.format(value)} {word}".strip())
        line = [values[model, m] for model in models if (model, m) in values]
        cells += [show.format(mean(line)), show.format(worst(line))]
        out.append(f"| {m} | " + " | ".join(cells) + " |")
    return [*out, ""]


def groups(values, mean=geomean, show="{:.3f}", name="R"):
    """The means that the goals speak of."""
    out = []
    for text, keep in (("M <= 64", lambda m: m <= 64), ("64 < M < 1024", lambda m: 64 < m < 1024),
                       ("M >= 1024", lambda m: m >= 1024)):
        some = [value for (_, m), value in values.items() if keep(m)]
        if some:
            out.append(f"- {text}: mean of {name} {show.format(mean(some))}, highest "
                       f"{show.format(max(some))}, {len(some)} points")
    return [*out, ""] if out else []


class Points:
    """Per key and rows the median of a column; per key the newest choice."""

    def __init__(self, lines, column):
        self.values = collections.defaultdict(lambda: collections.defaultdict(list))
        self.choice = {}
        for line in lines:
            if line[column]:
                self.values[key_of(line)][rows_of(line)].append(float(line[column]))
            if line.get("chosen", "1") == "1":
                self.choice[key_of(line)] = rows_of(line)

    def median(self, key, rows):
        return statistics.median(self.values[key][rows])

    def chosen(self):
        return {key: self.median(key, rows) for key, rows in self.choice.items()
                if self.values[key][rows]}

    def best(self, keep=lambda rows: True):
        """{key: rows}"""
        found = {}
        for key, values in self.values.items():
            kept = [rows for rows in values if values[rows] and keep(rows)]
            if kept:
                found[key] = min(kept, key=lambda rows, key=key: self.median(key, rows))
        return found


def named(rows):
    return {key: label(row) for key, row in rows.items()}


def ratio_tables(lines, column, what):
    """The choice and the best rows for each mode and pdl."""
    out = []
    for mode, pdl in (("sustained", "0"), ("sustained", "1"), ("burst", "0")):
        points = Points([line for line in lines if line["mode"] == mode and line["pdl"] == pdl],
                        column)
        chosen, best = points.chosen(), points.best()
        out += grid(f"{what}, {mode}, pdl {pdl}: the planner's choice", chosen,
                    words=named(points.choice)) + groups(chosen)
        if any(best[key] != points.choice.get(key) for key in best):
            out += grid(f"{what}, {mode}, pdl {pdl}: the best row measured (picked, so "
                        "optimistic)", {key: points.median(key, row) for key, row in best.items()},
                        words=named(best))
    return out


def kernel_ratios(lines):
    """{key: gate_first's time over the best paired row's}: the median over the runs of both."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in lines:
        if line["mode"] == "sustained" and line["pdl"] == "0":
            kernel = "gate" if "gate_first" in line["row"] else "paired"
            if kernel == "gate" or "paired_p" in line["row"] or "paired_c" in line["row"]:
                runs[key_of(line), line["date"]][kernel].append(float(line["us"]))
    found = collections.defaultdict(list)
    for (key, _), times in runs.items():
        if len(times) == 2:
            found[key].append(min(times["gate"]) / min(times["paired"]))
    return {key: statistics.median(values) for key, values in found.items()}


def kernels_table(lines):
    ratios = kernel_ratios(lines)
    if not ratios:
        return []
    least = min(ratios, key=ratios.get)
    return [*grid("Kernel-1 (gate_first): its time over that of the fastest row of Kernel-2 (paired) "
                  "in the same run", ratios),
            f"- faster at {sum(value < 1 for value in ratios.values())} of {len(ratios)} points, "
            f"{geomean(list(ratios.values())):.3f} in geometric mean, lowest {ratios[least]:.3f} "
            f"at {least[0]}, M = {least[1]}", ""]


def share_tables(lines, column, what):
    out = []
    for pdl in ("0", "1"):
        values = Points([line for line in lines if line["mode"] == "sustained"
                         and line["pdl"] == pdl and line["chosen"] == "1"], column).chosen()
        out += grid(f"{what}, pdl {pdl} (1: as fast as reading alone)", values,
                    worst=min)
    return out


def regrets(lines):
    """{op: {key: per cent}}: the median over the runs in which the choice was measured."""
    runs = collections.defaultdict(list)
    for line in lines:
        if line["mode"] == "sustained" and line["pdl"] == "0":
            op = "down" if line["row"].startswith("down_") else "glu"
            runs[op, key_of(line), line["date"]].append(line)
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for (op, key, _), run in runs.items():
        chosen = [float(line["us"]) for line in run if line["chosen"] == "1"]
        if chosen:
            least = min(float(line["us"]) for line in run)
            found[op][key].append(100 * (chosen[0] / least - 1))
    return {op: {key: statistics.median(values) for key, values in points.items()}
            for op, points in found.items()}


def second_run_best(glu, second):
    """R of the best row by second runs, where it is not the one that was picked: R of the choice
    over what the choice costs there; and the rows.  Of points whose second run had another
    choice, nothing."""
    points = Points([line for line in glu if line["mode"] == "sustained" and line["pdl"] == "0"],
                    "ratio_bare")
    again = Points([line for line in second if line["mode"] == "sustained" and line["pdl"] == "0"
                    and line["row"].startswith("glu_")], "us")
    cost, best = regrets(second).get("glu", {}), again.best()
    ratios = {key: ratio / (1 + cost[key] / 100) for key, ratio in points.chosen().items()
              if key in cost and again.choice.get(key) == points.choice[key]}
    return ratios, {key: best[key] for key in ratios}


def second_run_table(glu, second):
    ratios, best = second_run_best(glu, second)
    return grid("GLU: R, sustained, pdl 0: the best row by second runs (R of the choice over what it "
                "costs in regret_bf16.csv)", ratios, words=named(best)) + groups(ratios)


def mean_regret(values):
    return 100 * (geomean([1 + value / 100 for value in values]) - 1)


def regret_tables(path):
    out = []
    for op, values in sorted(regrets(read(path)).items(), reverse=True):
        title = f"regret in per cent, {op} ({path.name})"
        out += grid(title, values, show="{:.1f}", mean=mean_regret)
        out += groups(values, mean=mean_regret, show="{:.1f}", name="regret")
        out += [f"- all: {mean_regret(list(values.values())):.2f} in geometric mean, highest "
                f"{max(values.values()):.1f}, {len(values)} points", ""]
    return out


def invariant_tables(lines):
    out = []
    for op in ("glu", "mlp", "down"):
        found = collections.defaultdict(list)
        for line in lines:
            if line["op"] == op and line["pdl"] == "0" and line["invariant_cost"]:
                found[key_of(line)].append(float(line["invariant_cost"]))
        out += grid(f"batch-invariant: time over the ordinary choice's, {op}",
                    {key: statistics.median(values) for key, values in found.items()})
    return out


def energy_table(lines):
    if not lines:
        return []
    out = ["## energy", "", "| op | model | M | variant | us | mJ a call | W | SM MHz |",
           "|--" * 8 + "|"]
    spent = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in lines:
        variant = "chosen" if line["variant"] == "chosen" else "bare"
        if line["millijoules"]:
            spent[line["op"], line["model"], line["m"], line["date"]][variant].append(
                float(line["millijoules"]))
        out.append(f"| {line['op']} | {line['model']} | {line['m']} | {line['variant']} | "
                   f"{line['us']} | {line['millijoules']} | {line['watts']} | "
                   f"{line['sm_clock_mhz']} |")
    ratios = [f"- {op}, {model}, M = {m}: chosen's energy over bare's "
              f"{statistics.mean(of['chosen']) / statistics.mean(of['bare']):.3f}"
              for (op, model, m, _), of in spent.items() if len(of) == 2]
    return [*out, "", *ratios, *([""] if ratios else [])]


def chosen_of(lines, column, pdl="0"):
    return Points([line for line in lines if line["mode"] == "sustained" and line["pdl"] == pdl],
                  column).chosen()


def goals(glu, mlp, reads, folder):
    ratios = {("glu", pdl): chosen_of(glu, "ratio_bare", str(pdl)) for pdl in (0, 1)}
    ratios |= {("mlp", pdl): chosen_of(mlp, "ratio_gemm3", str(pdl)) for pdl in (0, 1)}
    return gpu_goals.table([
        *gpu_goals.ratio_lines(ratios, geomean),
        *gpu_goals.read_lines(chosen_of(reads, "share_of_read")),
        *gpu_goals.eager_lines({"glu": chosen_of(glu, "ratio_eager"),
                                "mlp": chosen_of(mlp, "ratio_eager")}),
        *gpu_goals.regret_lines({kind: regrets(read(folder / f"regret{kind}_bf16.csv"))
                                 for kind in ("", "_tuned", "_extra")}, mean_regret)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="a folder of results/, with its CSV files")
    folder = parser.parse_args().folder
    glu, mlp, reads = (read(folder / f"{name}_bf16.csv") for name in ("glu", "mlp", "read"))
    out = [f"# Tables of {folder.resolve().name}, bf16", "",
           "R: time over the bare GEMM's; R3: over both bare GEMMs' of an MLP.  pp = "
           "paired_pingpong, coop = paired_coop.  Made by tools/gpu_tables.py.", ""]
    reads = [line for line in reads if line["op"] == "glu"]
    out += goals(glu, mlp, reads, folder)
    out += ratio_tables(glu, "ratio_bare", "GLU: R")
    out += second_run_table(glu, read(folder / "regret_bf16.csv"))
    out += kernels_table(glu + read(folder / "kernels_bf16.csv"))
    out += ratio_tables(mlp, "ratio_gemm3", "MLP: R3")
    out += share_tables(mlp, "floor_over_us", "MLP: the floor over its time")
    out += share_tables(reads, "share_of_read",
                        "a reading kernel's time over the GLU's")
    for path in sorted(folder.glob("regret*_bf16.csv")):
        out += regret_tables(path)
    out += invariant_tables(read(folder / "invariant_bf16.csv"))
    out += energy_table(read(folder / "energy.csv"))
    (folder / "tables.md").write_text("\n".join(out).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
