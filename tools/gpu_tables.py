#!/usr/bin/env python3
"""Tables for people from results/<card>/glu_bf16.csv: python tools/gpu_tables.py FOLDER

Writes FOLDER/tables.md: R (time over the bare GEMM's) of the planner's choice, of the best
row, and of gate_first against paired, for Qwen-2.5 x tokens, with the geometric means.
Medians over the runs in the file; the choice is that of the newest run of a shape.
"""

import collections
import csv
import math
import statistics
import sys
from pathlib import Path

MODELS = ["0.5B", "1.5B", "3B", "7B", "14B", "32B", "72B"]


def short(row):
    return (row.replace("glu_bf16_sm90_", "").replace("paired_", "")
            .replace("pingpong", "pp"))


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


class Table:
    def __init__(self, lines):
        self.ratios = collections.defaultdict(lambda: collections.defaultdict(list))
        self.chosen = {}
        for line in lines:
            key = line["model"].removeprefix("Qwen2.5-"), int(line["m"])
            self.ratios[key][line["row"]].append(float(line["ratio_bare"]))
            if line["chosen"] == "1":
                self.chosen[key] = line["row"]

    def median(self, key, row):
        return statistics.median(self.ratios[key][row])

    def best(self, key, keep=lambda row: True):
        return min((row for row in self.ratios[key] if keep(row)),
                   key=lambda row: self.median(key, row), default=None)

    def show(self, title, cell):
        tokens = sorted({m for _, m in self.ratios})
        lines = [f"## {title}", "", "| M | " + " | ".join(MODELS) + " |",
                 "|--" * (len(MODELS) + 1) + "|"]
        for m in tokens:
            cells = [cell((model, m)) if (model, m) in self.ratios else "" for model in MODELS]
            lines.append(f"| {m} | " + " | ".join(cells) + " |")
        return [*lines, ""]


def named(table, row_of):
    def cell(key):
        row = row_of(key)
        return f"{table.median(key, row):.3f} {short(row)}" if row else ""
    return cell


def pair(table):
    def cell(key):
        gate = table.best(key, lambda row: "gate_first" in row)
        paired = table.best(key, lambda row: "paired_p" in row or "paired_c" in row)
        return (f"{table.median(key, gate):.3f} / {table.median(key, paired):.3f}"
                if gate and paired else "")
    return cell


def means(table):
    out = []
    for name, keep in (("M < 1024", lambda m: m < 1024), ("M >= 1024", lambda m: m >= 1024)):
        values = [table.median(key, row) for key, row in table.chosen.items() if keep(key[1])]
        if values:
            out.append(f"- {name}: geometric mean of R, chosen row {geomean(values):.3f}, "
                       f"highest {max(values):.3f}, {len(values)} points")
    return [*out, ""]


def main():
    folder = Path(sys.argv[1])
    with open(folder / "glu_bf16.csv", newline="", encoding="ascii") as file:
        lines = [line for line in csv.DictReader(file) if line["us"]]
    out = ["# R = time over the bare GEMM's, bf16, from glu_bf16.csv", "",
           "pp = paired_pingpong, coop = paired_coop.  Made by tools/gpu_tables.py.", ""]
    for mode, pdl in (("sustained", "0"), ("sustained", "1"), ("burst", "0")):
        table = Table([line for line in lines if line["mode"] == mode and line["pdl"] == pdl])
        if not table.ratios:
            continue
        out += table.show(f"{mode}, pdl {pdl}: the planner's choice",
                          named(table, lambda key, t=table: t.chosen.get(key)))
        out += means(table)
        if mode == "sustained" and pdl == "0":
            out += table.show("the best row measured (picked, so optimistic)",
                              named(table, table.best))
            out += table.show("Kernel-1 (gate_first) / the best row of Kernel-2 (paired)",
                              pair(table))
    (folder / "tables.md").write_text("\n".join(out).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
