#!/usr/bin/env python3
"""The bench of whole MLPs and of down projections alone, on the fake GPU."""
import csv
import os
import pathlib
import statistics
import subprocess
import sys

for folder in ("tools", "tests/cuda"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / folder))
import evidence  # noqa: E402
import gpu_tables  # noqa: E402
from bench_support import (CUBLAS, FAKE, OK, QUICK, RUNTIME, WRONG, Case, main, number,
                           strict_json)

COLUMNS = ("date,commit,glu_row_hash,down_row_hash,card,driver,model,m,n,k,dtype,activation,"
           "layout,glu_row,down_row,chosen,mode,pdl,sm_clock_mhz,us,gemm3_us,unfused_us,eager_us,"
           "floor_us,ratio_gemm3,ratio_unfused,ratio_eager,floor_over_us,tflops,share_of_989,tbs,"
           "rel_l2,share_over_1pct,reference_share_over_1pct").split(",")
M, N, K = 100, 128, 64


class Mlp(Case):
    def measured(self, *arguments, **rest):
        self.measure("--op", "mlp", *arguments, **rest)
        with open(self.out, newline="", encoding="ascii") as file:
            reader = csv.DictReader(file)
            lines = list(reader)
        self.assertEqual(reader.fieldnames[:len(COLUMNS)], COLUMNS)
        return lines

    def check_line(self, line):
        us = number(line, "us")
        self.assertTrue(line["glu_row"].startswith("glu_bf16_sm90_"))
        self.assertTrue(line["down_row"].startswith("down_bf16_sm90_"))
        for column in ("glu_row_hash", "down_row_hash"):
            self.assertRegex(line[column], "^[0-9a-f]{8,}$")
        self.assertAlmostEqual(number(line, "ratio_gemm3"), us / number(line, "gemm3_us"),
                               delta=2e-3)
        self.assertAlmostEqual(number(line, "tflops"), 6 * M * N * K / us / 1e6, delta=0.02)
        self.assertAlmostEqual(number(line, "tbs"),
                               2 * (2 * M * K + 3 * N * K) / us / 1e6, delta=1e-3)
        self.assertLess(number(line, "rel_l2"), 2 ** -8)
        self.assertLessEqual(number(line, "share_over_1pct"),
                             number(line, "reference_share_over_1pct"))
        self.assertEqual(line["eager_us"], "")
        if line["mode"] != "sustained":
            return
        self.assertAlmostEqual(number(line, "floor_us"), 2.75, delta=0.02)
        self.assertAlmostEqual(number(line, "floor_over_us"), 2.75 / us, delta=0.01)
        # The activation kernel stands between the two products: 2.5 us in the fake.
        self.assertAlmostEqual(number(line, "unfused_us") - number(line, "gemm3_us"), 2.5,
                               delta=0.02)

    def test_rows_pair_with_the_choice(self):
        lines = self.measured("--rows", "all", "--pdl", "0,1", "--burst", "--stable-weights")
        for pdl in "01":
            these = [l for l in lines if l["pdl"] == pdl and l["mode"] == "sustained"]
            pairs = {(l["glu_row"], l["down_row"]) for l in these}
            self.assertEqual(len(pairs), len(these))
            chosen = [l for l in these if l["chosen"] == "1"]
            self.assertEqual(len(chosen), 1)
            glu, down = chosen[0]["glu_row"], chosen[0]["down_row"]
            self.assertTrue(all(g == glu or d == down for g, d in pairs))
            self.assertGreater(len({g for g, _ in pairs}), 2)
            self.assertGreater(len({d for _, d in pairs}), 2)
        self.assertEqual([l["chosen"] for l in lines if l["mode"] == "burst"], ["1", "1"])
        for line in lines:
            self.check_line(line)

    def test_one_launch(self):
        few = ["--tokens", "3", "--alone"]
        lines = self.measured(*few, "--rows", "all", "--pdl", "0,1", "--invariant",
                              self.folder / "i.csv")
        one = [l for l in lines if not l["down_row"]]
        self.assertGreater(len({l["glu_row"] for l in one}), 1)
        for line in one:
            self.assertTrue(line["glu_row"].startswith("mlp_bf16_sm90_stream_mlp_"))
            self.assertEqual(line["down_row_hash"], "")
            current = {line["glu_row"]: line["glu_row_hash"]}
            self.assertEqual(evidence.check_line(line, ["glu_row", "down_row"], current),
                             ([line["glu_row"]], {}))
            self.assertGreater(number(line, "us"), 0)
            self.assertLess(number(line, "rel_l2"), 2 ** -8)
        self.assertGreater(len(lines), len(one))
        self.assertEqual([l["chosen"] for l in lines].count("1"), 2)
        first, self.out = self.out, self.folder / "again.csv"
        best = min(one, key=lambda l: number(l, "us"))["glu_row"]
        named = self.measured(*few, "--rows", best.split("_sm90_")[1])
        self.assertIn(best, {l["glu_row"] for l in named})
        self.bench("--tables", first, libraries=False)
        count = len(self.measured(*few, "--rows", best.split("_sm90_")[1], "--resume"))
        self.assertEqual(count, len(named))
        self.out = self.folder / "wrong.csv"
        wrong = self.measured(*few, "--rows", best, code=WRONG, FAKE_WRONG="mlp_")
        self.assertIn((best, ""), {(l["glu_row"], l["us"]) for l in wrong})
        self.assertEqual(gpu_tables.rows_of(one[0]), one[0]["glu_row"])

    def test_writing_x_is_subtracted(self):
        plain, after = self.measured("--pdl", "0,1")
        for column in ("us", "gemm3_us", "unfused_us", "floor_us"):
            self.assertAlmostEqual(number(plain, column), number(after, column), delta=0.03)

    def test_types_layouts_activations(self):
        for words in (["--dtype", "f16"], ["--layout", "interleaved"],
                      ["--layout", "stacked_up_first"], ["--activation", "gelu_tanh"]):
            line = self.measured(*words)[-1]
            self.assertLess(number(line, "rel_l2"), 2 ** -8)
            self.assertIsNotNone(number(line, "us"))

    def test_tables_resume_json(self):
        lines = self.measured("--rows", "all")
        out, _ = self.bench("--tables", self.out, libraries=False)
        self.assertIn("mlp, sustained, pdl 0 (R: time over the two bare GEMMs')", out)
        self.assertNotIn("\nsustained", out)
        document = strict_json(self.bench("--tables", self.out, "--json", libraries=False)[0])
        self.assertEqual({l["op"] for l in document["lines"]}, {"mlp"})
        self.assertEqual(len(document["lines"]), len(lines))
        self.assertEqual(len(self.measured("--resume")), len(lines))

    def test_best_and_near(self):
        former = sorted(self.measured("--rows", "all"), key=lambda l: number(l, "us"))
        best = {(l["glu_row"], l["down_row"]) for l in former[:2]}
        first, self.out = self.out, self.folder / "again.csv"
        again = self.measured("--rows", "best", "--from", first, "--top", "2")
        self.assertLessEqual(best, {(l["glu_row"], l["down_row"]) for l in again})
        self.out = self.folder / "near.csv"
        near = self.measured("--rows", "near", "--top", "3")
        self.assertLessEqual(len(near), 4)
        self.assertEqual([l["chosen"] for l in near].count("1"), 1)

    def test_wrong_rows(self):
        for rows in ("down_", "glu_"):
            self.out = self.folder / f"{rows}.csv"
            lines = self.measured(code=WRONG, FAKE_WRONG=rows)
            self.assertEqual([l["us"] for l in lines], [""])
        self.out = self.folder / "unwritten.csv"
        lines = self.measured(code=WRONG, FAKE_UNWRITTEN="down_")
        self.assertEqual([l["us"] for l in lines], [""])

    def test_invariant_at_several_counts(self):
        self.measured("--invariant", self.folder / "i.csv", "--alone", "--tokens", "1,16,1024",
                      "--pdl", "0,1")
        with open(self.folder / "i.csv", newline="", encoding="ascii") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([(l["m"], l["pdl"]) for l in lines],
                         [(m, pdl) for m in ("1", "16", "1024") for pdl in "01"])
        for line in lines:
            self.assertAlmostEqual(number(line, "invariant_cost"),
                                   number(line, "invariant_us") / number(line, "us"), delta=1e-3)
        # Two launches of the same rows whatever the count of tokens.
        self.assertEqual(len({(l["invariant_row"], l["invariant_down_row"]) for l in lines}), 1)
        self.assertGreater(len({l["row"] for l in lines}), 1)
        self.assertTrue(all(l["invariant_down_row"].startswith("down_") for l in lines))

    def test_invariant_and_energy(self):
        self.measured("--invariant", self.folder / "i.csv", "--energy", self.folder / "e.csv",
                      "--energy-ms", "5", "--energy-warm-ms", "5")
        with open(self.folder / "i.csv", newline="", encoding="ascii") as file:
            (line,) = csv.DictReader(file)
        self.assertEqual(line["op"], "mlp")
        for column in ("row", "down_row", "invariant_row", "invariant_down_row"):
            self.assertIn("_sm90_", line[column])
            self.assertRegex(line[column + "_hash"], "^[0-9a-f]{8,}$")
        with open(self.folder / "e.csv", newline="", encoding="ascii") as file:
            self.assertEqual([l["variant"] for l in csv.DictReader(file)],
                             2 * ["cublasLt", "chosen"])

    def test_everything_that_can_fail(self):
        for call in ("cuMemAlloc", "cuLaunchKernelEx", "cublasGemmEx", "cuGraphInstantiate",
                     "cuMemcpyDtoH", "cublasLtMatmulAlgoGetHeuristic"):
            for after in (0, 3, 6, 9, 12, 20, 40, 200):
                done = subprocess.run(
                    [str(w) for w in (os.environ["BENCH_TILEGLU"], "bench", "--device", "cuda",
                     "--cuda-library", FAKE, "--nvml", FAKE, "--cublas", CUBLAS, "--op", "mlp",
                     "--hidden", 8, "--intermediate", 8, "--tokens", 1, *QUICK)],
                    capture_output=True, text=True, timeout=120,
                    env={**os.environ, "FAKE_FAIL": f"{call}:{after}"})
                text = done.stdout + done.stderr
                self.assertNotIn("AddressSanitizer", text)
                self.assertIn(done.returncode, (OK, RUNTIME), f"{call}:{after}\n{text}")
                if done.returncode == OK:
                    break


class Down(Case):
    def test_rows(self):
        self.measure("--op", "down", "--rows", "all", "--pdl", "0,1", "--read",
                     self.folder / "read.csv")
        lines = self.lines()
        self.assertGreater(len(lines), 4)
        for line in lines:
            us = number(line, "us")
            self.assertTrue(line["row"].startswith("down_bf16_sm90_"))
            self.assertEqual((line["m"], line["n"], line["k"]), ("100", "128", "64"))
            self.assertEqual((line["unfused_us"], line["eager_us"]), ("", ""))
            self.assertLess(number(line, "rel_l2"), 2 ** -8)
            self.assertAlmostEqual(number(line, "ratio_bare"), us / number(line, "bare_us"),
                                   delta=2e-3)
            self.assertAlmostEqual(number(line, "tflops"), 2 * M * N * K / us / 1e6, delta=0.02)
        out, _ = self.bench("--tables", self.out, libraries=False)
        self.assertIn("down, sustained, pdl 1", out)
        best = min((l for l in lines if l["pdl"] == "0"), key=lambda l: number(l, "us"))["row"]
        first, self.out = self.out, self.folder / "again.csv"
        self.measure("--op", "down", "--rows", "best", "--from", first, "--top", "1")
        self.assertIn(best, {l["row"] for l in self.lines()})

    def test_wrong(self):
        self.measure("--op", "down", code=WRONG, FAKE_WRONG="down_")


class Tables(Case):
    """tools/gpu_tables.py on what the bench writes."""

    def test_goals(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
        import gpu_goals
        points = {("7B", 1): 0.90, ("7B", 64): 1.05, ("custom", 1): 9.0}
        mean, every = gpu_goals.ratio_lines({("glu", 0): points}, statistics.geometric_mean)
        self.assertEqual(mean[1:], ("≤ 0.96", "0.972", 2, "**missed**"))
        self.assertEqual(every[1:], ("≤ 1.02", "1.050 at 7B, M = 64", 2, "met"))
        points["7B", 4] = 1.05  # no more than 0.02 there
        _, every = gpu_goals.ratio_lines({("glu", 0): points}, statistics.geometric_mean)
        self.assertEqual(every[4], "**missed**")
        reads = list(gpu_goals.read_lines({("7B", 1): 0.93, ("72B", 4): 0.91, ("3B", 1): 0.1,
                                           ("7B", 64): 0.86}))
        self.assertEqual([r[2:] for r in reads], [("0.910 at 72B, M = 4", 2, "**missed**"),
                                                  ("0.860 at 7B, M = 64", 1, "met")])
        eager = list(gpu_goals.eager_lines({"mlp": {("7B", 1): 0.99}, "glu": {}}))
        self.assertEqual([e[4] for e in eager], ["met"])
        regrets = list(gpu_goals.regret_lines(
            {"": {"glu": {("7B", 1): 9.0, ("7B", 2): 1.0}}, "_tuned": {"glu": {("7B", 1): 1.0}},
             "_extra": {"down": {("8192x3696", 4): 4.1}}}, lambda values: sum(values) / len(values)))
        self.assertEqual([r[2:] for r in regrets], [
            ("5.00 %", 2, "**missed**"), ("9.0 % at 7B, M = 1", 2, "**missed**"),
            ("1.00 %", 1, "met"), ("4.10 %", 1, "**missed**")])
        self.assertEqual(gpu_goals.table([]), [])

    def test_kernels(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
        import gpu_tables
        rows = {"glu_bf16_sm90_gate_first_128x96_s6_c1": ("1", 80, 90),
                "glu_bf16_sm90_paired_coop_128x72_s6_c1": ("0", 100, 100),
                "glu_bf16_sm90_paired_pingpong_128x96_s5_c1": ("0", 160, 50),
                "glu_bf16_sm90_paired_general_128x128_s2_c1": ("0", 1, 1)}
        lines = [{"model": "Qwen2.5-7B", "m": "128", "mode": "sustained", "pdl": "0", "row": row,
                  "chosen": chosen, "us": str(us[run]), "date": str(run)}
                 for row, (chosen, *us) in rows.items() for run in (0, 1)]
        self.assertEqual(gpu_tables.kernel_ratios(lines), {("7B", 128): 1.3})  # 0.8 and 1.8
        text = "\n".join(gpu_tables.kernels_table(lines))
        self.assertIn("| 128 | 1.300 |", text)
        self.assertIn("faster at 0 of 1 points, 1.300 in geometric mean", text)
        self.assertEqual(gpu_tables.kernels_table(lines[2:]), [])

    def test_best_by_second_runs(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
        import gpu_tables

        def line(m, row, chosen, us, ratio=""):
            return {"model": "Qwen2.5-7B", "m": m, "mode": "sustained", "pdl": "0", "chosen": chosen,
                    "row": f"glu_bf16_sm90_{row}", "us": us, "ratio_bare": ratio, "date": "1"}

        glu = [line("128", "a", "1", "10", "1.100"), line("256", "a", "1", "10", "1.1"),
               line("512", "b", "1", "10", "0.9")]
        second = [line("128", "a", "1", "11"), line("128", "b", "0", "10"),
                  line("256", "b", "1", "11"), line("256", "a", "0", "12"),  # another choice
                  line("512", "b", "1", "5"), line("512", "a", "0", "6")]
        ratios, rows = gpu_tables.second_run_best(glu, second)
        self.assertEqual({key: round(value, 9) for key, value in ratios.items()},
                         {("7B", 128): 1.0, ("7B", 512): 0.9})
        self.assertEqual(rows, {("7B", 128): "glu_bf16_sm90_b", ("7B", 512): "glu_bf16_sm90_b"})

    def test_every_table(self):
        out = {name: self.folder / name for name in (
            "glu_bf16.csv", "mlp_bf16.csv", "read_bf16.csv", "regret_bf16.csv",
            "regret_tuned_bf16.csv", "regret_extra_bf16.csv", "kernels_bf16.csv",
            "invariant_bf16.csv", "energy.csv")}
        sizes = ["--hidden", K, "--intermediate", N, "--tokens", "16,100", *QUICK]
        self.bench(*sizes, "--rows", "all", "--pdl", "0,1", "--burst", "--out",
                   out["glu_bf16.csv"], "--read", out["read_bf16.csv"])
        self.bench(*sizes, "--op", "mlp", "--out", out["mlp_bf16.csv"], "--invariant",
                   out["invariant_bf16.csv"], "--energy", out["energy.csv"], "--energy-ms", 2,
                   "--energy-warm-ms", 2)
        for op in ("glu", "down"):
            self.bench(*sizes, "--op", op, "--rows", "all", "--alone", "--out",
                       out["regret_bf16.csv"])
        for kind in ("_tuned", "_extra"):
            self.bench(*sizes, "--rows", "all", "--alone", "--out",
                       out[f"regret{kind}_bf16.csv"])
        self.bench("--hidden", K, "--intermediate", N, "--tokens", 128, *QUICK, "--rows",
                   "gate_first_128x96_s6_c1", "--alone", "--out", out["kernels_bf16.csv"])
        script = pathlib.Path(__file__).resolve().parents[2] / "tools/gpu_tables.py"
        self.start([sys.executable, "-B", script, self.folder], OK, {})
        text = (self.folder / "tables.md").read_text()
        for title in ("GLU: R, sustained, pdl 0: the planner's choice", "GLU: R, burst, pdl 0",
                      "the best row by second runs", "Kernel-1 (gate_first)", "MLP: R3, sustained, pdl 0",
                      "the floor over its time, pdl 0", "a reading kernel's time over the GLU's",
                      "regret in per cent, glu", "regret in per cent, down",
                      "regret of the untuned choice, down: every point | ≤ 8.0 % |",
                      "regret of the tuned choice, glu: geometric mean | ≤ 1.5 % |",
                      "untuned choice on ten other shapes, glu: geometric mean | ≤ 4.0 % |",
                      "of 3 points, ", "chosen's energy over bare's ",
                      "batch-invariant: time over the ordinary choice's, mlp", "## energy"):
            self.assertIn(title, text)
        self.assertNotIn("nan", text)
        with open(out["regret_bf16.csv"], newline="", encoding="ascii") as file:
            lines = [l for l in csv.DictReader(file) if l["m"] == "100"]
        for op in ("glu", "down"):
            us = [(number(l, "us"), l["chosen"]) for l in lines if l["row"].startswith(op)]
            regret = 100 * (next(t for t, c in us if c == "1") / min(us)[0] - 1)
            table = text.split(f"regret in per cent, {op}")[1].split("##")[0]
            self.assertIn(f"| 100 | {regret:.1f} |", table)


if __name__ == "__main__":
    main()
