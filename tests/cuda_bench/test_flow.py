#!/usr/bin/env python3
"""The whole bench against a fake driver and a fake cuBLAS: every path that runs on a GPU,
except the GPU."""
import csv
import os
import pathlib
import subprocess
import time
import unittest

from bench_support import (CUBLAS, FAKE, INPUT, OK, QUICK, RUNTIME, SHAPE, TIME_LIMIT,
                           TILEGLU, WRONG, Case, main, number, strict_json)

COOP = "glu_bf16_sm90_paired_coop_128x72_s6_c1"


class Lines(Case):
    def test_all_rows_both_pdl_and_burst(self):
        out, err = self.measure("--rows", "all", "--pdl", "0,1", "--burst", "--stable-weights")
        lines = self.lines()
        for pdl in "01":
            sustained = [l for l in lines if l["pdl"] == pdl and l["mode"] == "sustained"]
            burst = [l for l in lines if l["pdl"] == pdl and l["mode"] == "burst"]
            self.assertGreater(len(sustained), 5)
            self.assertEqual(len({l["row"] for l in sustained}), len(sustained))
            self.assertEqual([l["chosen"] for l in sustained].count("1"), 1)
            self.assertEqual([l["chosen"] for l in burst], ["1"])
        for line in lines:
            self.check_line(line)
        self.assertIn("sustained, pdl 1", out)
        self.assertIn("burst, pdl 0", out)
        self.assertIn("geometric mean", out)
        self.assertIn("seed 1", err)

    def check_line(self, line):
        us, bare = number(line, "us"), number(line, "bare_us")
        flop = 4 * 100 * 128 * 64
        self.assertAlmostEqual(number(line, "ratio_bare"), us / bare, delta=2e-3)
        self.assertAlmostEqual(number(line, "tflops"), flop / us / 1e6, delta=0.02)
        self.assertAlmostEqual(number(line, "tbs"),
                               2 * (100 * 64 + 2 * 128 * 64 + 100 * 128) / us / 1e6, delta=1e-3)
        self.assertEqual(line["card"], "Fake H200")
        self.assertEqual(line["driver"], "580.00.fake")
        self.assertEqual(line["sm_clock_mhz"], "1395")
        self.assertEqual((line["m"], line["n"], line["k"]), ("100", "128", "64"))
        self.assertRegex(line["row_hash"], "^[0-9a-f]{8,}$")
        self.assertLess(number(line, "rel_l2"), 2 ** -8)
        self.assertLessEqual(number(line, "share_over_1pct"),
                             number(line, "reference_share_over_1pct"))
        self.assertEqual(number(line, "share_over_1pct_large"), 0)
        self.assertEqual(line["eager_us"], "")
        self.assertLessEqual(number(line, "us_min"), us)
        self.assertGreaterEqual(number(line, "us_max"), us)
        self.assertEqual(bool(line["unfused_us"]), line["mode"] == "sustained")

    def test_writing_x_is_subtracted(self):
        self.measure("--rows", COOP, "--pdl", "0,1")
        lines = [l for l in self.lines() if l["row"] == COOP]
        self.assertEqual([l["pdl"] for l in lines], ["0", "1"])
        # The fake's kernels take as long whatever went before, so nothing may remain.
        for column in ("us", "bare_us", "unfused_us"):
            self.assertAlmostEqual(number(lines[0], column), number(lines[1], column), delta=0.02)

    def test_bare_is_the_faster_of_the_two(self):
        self.measure("--rows", "chosen", "--commit", "abc")
        self.measure("--rows", "chosen", FAKE_LT_US="5")
        self.measure("--rows", "chosen", FAKE_NO_LT="1")
        first, second, third = self.lines()
        self.assertEqual(first["commit"], "abc")
        self.assertEqual([l["bare"] for l in (first, second, third)],
                         ["cublasLt", "cublasGemmEx", "cublasGemmEx"])
        self.assertLess(number(first, "bare_us"), number(second, "bare_us"))
        # The activation kernel follows the faster product: 2.5 us in the fake.
        for line in (first, second, third):
            self.assertAlmostEqual(number(line, "unfused_us") - number(line, "bare_us"), 2.5,
                                   delta=0.02)

    def test_types_activations_layouts(self):
        for dtype in ("bf16", "f16"):
            self.measure("--rows", "chosen", "--dtype", dtype)
        for activation in ("gelu_tanh", "gelu_erf", "relu", "sigmoid", "swigluoai"):
            self.measure("--rows", "chosen", "--activation", activation)
        for layout in ("stacked_gate_first", "stacked_up_first", "interleaved"):
            self.measure("--rows", "chosen", "--layout", layout)
        lines = self.lines()
        self.assertEqual(len(lines), 10)
        for line in lines:
            self.assertLess(number(line, "rel_l2"), 2 ** -8)
            self.assertIsNotNone(number(line, "us"))

    def test_odd_sizes(self):
        self.bench("--hidden", "33", "--intermediate", "27", "--tokens", "1,9", *QUICK, "--rows",
                   "all", "--out", self.out)
        lines = self.lines()
        self.assertTrue(lines)
        self.assertTrue(all("_general_" in l["row"] for l in lines))

    def test_models_and_parts(self):
        shapes = ["--hidden", "64", "--intermediate", "64", "--tokens", "1,2,3,4,5"]
        for part in ("1/2", "2/2"):
            self.bench(*shapes, *QUICK, "--out", self.out, "--part", part)
        self.assertEqual([l["m"] for l in self.lines()], ["1", "3", "5", "2", "4"])

    def test_resume(self):
        shapes = ["--hidden", "64", "--intermediate", "64", *QUICK, "--out", self.out]
        self.bench(*shapes, "--tokens", "2", "--resume")
        self.bench(*shapes, "--tokens", "1,2,3", "--resume")
        self.assertEqual([l["m"] for l in self.lines()], ["2", "1", "3"])
        self.bench(*shapes, "--tokens", "2", "--resume", "--pdl", "0,1") # pdl 1 was not there
        self.bench(*shapes, "--tokens", "3", "--resume", "--commit", "another")
        self.assertEqual([l["m"] for l in self.lines()], ["2", "1", "3", "2", "2", "3"])

    def test_time_limit(self):
        _, err = self.bench("--hidden", "64", "--intermediate", "64", "--tokens", "1,2,3", *QUICK,
                            "--out", self.out, "--time-limit", "0.001", code=TIME_LIMIT)
        self.assertIn("2 of 3 shapes are left out", err)
        self.assertEqual([l["m"] for l in self.lines()], ["1"])

    def test_best_of_a_former_run(self):
        self.measure("--rows", "all")
        former = sorted(self.lines(), key=lambda l: number(l, "us"))
        chosen = next(l["row"] for l in former if l["chosen"] == "1")
        again = self.folder / "again.csv"
        self.bench(*SHAPE, *QUICK, "--rows", "best", "--from", self.out, "--top", "2", "--out",
                   again)
        self.out = again
        self.assertEqual({l["row"] for l in self.lines()},
                         {former[0]["row"], former[1]["row"], chosen})

    def test_tables_of_a_file(self):
        self.measure("--rows", "all")
        out, _ = self.bench("--tables", self.out, libraries=False)
        self.assertIn("custom", out)
        self.assertIn("sustained, pdl 0", out)
        document, _ = self.bench("--tables", self.out, "--json", libraries=False)
        self.assertEqual(len(strict_json(document)["lines"]), len(self.lines()))
        self.bench("--tables", self.folder / "none.csv", libraries=False, code=INPUT)

    def test_json(self):
        out, _ = self.measure("--json", "--rows", "chosen", "--burst")
        document = strict_json(out)
        self.assertEqual([l["mode"] for l in document["lines"]], ["sustained", "burst"])
        self.assertIsNone(document["lines"][0]["eager_us"])
        self.assertEqual(document["device"], "Fake H200")

    def test_host_time(self):
        shape = ["--hidden", "8", "--intermediate", "8", "--tokens", "1"]
        out, _ = self.bench(*shape, "--host-time")
        self.assertIn("host time of run", out)
        self.assertIn("context creation to first result", out)
        document = strict_json(self.bench(*shape, "--host-time", "--json")[0])
        self.assertGreater(document["run_ns_pdl0"], 0)
        self.assertGreater(document["empty_ns"], 0)

    def test_without_nvml(self):
        self.measure(FAKE_NVML="9")
        self.assertEqual((self.lines()[0]["driver"], self.lines()[0]["sm_clock_mhz"]), ("", ""))


class Further(Case):
    """Rows near the prediction, suites, and the files of further figures."""

    def columns(self, name):
        with open(self.folder / name, newline="", encoding="ascii") as file:
            lines = list(csv.DictReader(file))
        for line in lines:
            self.assertNotIn(None, line)
            self.assertNotIn(None, line.values())
        return lines

    def test_rows_near_the_prediction(self):
        self.measure("--rows", "all")
        every = len(self.lines())
        counts = []
        for words in ((), ("--within", "1000", "--top", "100"), ("--within", "1e-6"),
                      ("--top", "2")):
            self.out = self.folder / f"{len(counts)}.csv"
            self.measure("--rows", "near", *words)
            lines = self.lines()
            self.assertEqual([l["chosen"] for l in lines].count("1"), 1)
            self.assertEqual(len({l["row"] for l in lines}), len(lines))
            counts.append(len(lines))
        self.assertLessEqual(counts[0], 6)
        self.assertGreater(counts[0], 1)
        self.assertGreater(counts[1], counts[0])
        self.assertLessEqual(counts[1], every)
        # The nearest is the choice, or beside it: that was planned for a bucket's tokens.
        self.assertIn(counts[2], (1, 2))
        self.assertIn(counts[3], (2, 3))

    def test_alone(self):
        self.bench(*SHAPE, *QUICK, "--rows", "all", "--alone", "--out", self.out,
                   "--cuda-library", FAKE, libraries=False)
        first, lines = self.out, self.lines()
        for line in lines:
            self.assertEqual((line["bare_us"], line["ratio_bare"], line["unfused_us"]), ("", "", ""))
            self.assertIsNotNone(number(line, "us"))
        least = min(number(l, "us") for l in lines)
        chosen = next(number(l, "us") for l in lines if l["chosen"] == "1")
        out, _ = self.bench("--tables", first, libraries=False)
        self.assertIn(f" {100 * (chosen / least - 1):.1f} ", out)
        self.assertNotIn("nan", out)

    def test_suites(self):
        words = ["--rows", "chosen", "--alone", *QUICK]
        for suite, part, said in (("few", "28/28", "m 64 n 29568 k 8192"),
                                  ("mlp", "2/49", "m 4 n 4864 k 896"),
                                  ("large", "49/49", "m 8192 n 29568 k 8192"),
                                  ("regret", "133/133", "m 8192 n 29568 k 8192"),
                                  ("extra", "190/190", "m 8192 n 768 k 2048")):
            _, err = self.bench("--suite", suite, "--part", part, *words, code=RUNTIME,
                                FAKE_MEMORY_MIB=0)
            self.assertIn(said + ":", err)  # which is refused for want of memory
        _, err = self.bench("--suite", "extra", "--tokens", "1,2", "--part", "20/20", *words,
                            code=RUNTIME, FAKE_MEMORY_MIB=0)
        self.assertIn("m 2 n 768 k 2048:", err)

    def test_read(self):
        self.measure("--rows", COOP, "--read", self.folder / "read.csv", "--pdl", "0,1")
        lines, read = self.lines(), self.columns("read.csv")
        self.assertEqual([l["row"] for l in lines], [l["row"] for l in read])
        self.assertEqual({l["read_kernel"] for l in read}, {"read8_x2"})  # the fake's fastest
        self.assertEqual({l["op"] for l in read}, {"glu"})
        weights = 4 * 128 * 64
        for line, main_line in zip(read, lines):
            us = number(main_line, "us")
            self.assertEqual(line["us"], main_line["us"])
            self.assertAlmostEqual(number(line, "read_us"), 2.75, delta=0.02)
            self.assertAlmostEqual(number(line, "share_of_read"), number(line, "read_us") / us,
                                   delta=1e-3)
            self.assertAlmostEqual(number(line, "weight_tbs"), weights / us / 1e6, delta=1e-3)
            self.assertAlmostEqual(number(line, "read_tbs"),
                                   weights / number(line, "read_us") / 1e6, delta=1e-3)

    def test_batch_invariant(self):
        self.measure("--invariant", self.folder / "i.csv", "--tokens", "1")
        self.measure("--invariant", self.folder / "i.csv", "--tokens", "2048", "--hidden", "8",
                     "--intermediate", "8")
        few, many = self.columns("i.csv")
        self.assertEqual((few["m"], many["m"]), ("1", "2048"))
        for line in (few, many):
            self.assertTrue(line["invariant_row"])
            self.assertRegex(line["invariant_row_hash"], "^[0-9a-f]{8,}$")
            self.assertAlmostEqual(number(line, "invariant_cost"),
                                   number(line, "invariant_us") / number(line, "us"), delta=1e-3)

    def test_energy(self):
        self.measure("--energy", self.folder / "e.csv", "--energy-ms", "300", "--energy-warm-ms",
                     "60")
        lines = self.columns("e.csv")
        self.assertEqual([l["variant"] for l in lines], 2 * ["cublasLt", "chosen"])
        for line in lines:
            self.assertEqual(line["sm_clock_mhz"], "1395")
            self.assertGreater(number(line, "seconds"), 0.299)
            # Loaded without a break, the fake takes 500 W; enqueued at once, half of it.
            self.assertAlmostEqual(number(line, "watts"), 500, delta=60)
            self.assertAlmostEqual(number(line, "millijoules"),
                                   number(line, "watts") * number(line, "us") * 1e-3, delta=1e-3)
        for line in lines[1::2]:
            self.assertAlmostEqual(number(line, "us"), number(self.lines()[0], "us"), delta=0.2)

    def test_energy_is_measured_after_a_warm_up(self):
        before = time.monotonic()
        self.measure("--energy", self.folder / "e.csv", "--energy-ms", "20", "--energy-warm-ms",
                     "400")
        self.assertGreater(time.monotonic() - before, 4 * 0.42)
        self.assertEqual(len(self.columns("e.csv")), 4)

    def test_energy_without_a_counter(self):
        self.measure("--energy", self.folder / "e.csv", "--energy-ms", "5", "--energy-warm-ms",
                     "5", FAKE_NVML="9")
        self.assertEqual({l["watts"] for l in self.columns("e.csv")}, {""})

    def test_a_file_of_another_kind_is_left_alone(self):
        self.out.write_text("date,commit\n1,2\n")
        _, err = self.measure(code=INPUT)
        self.assertIn("other columns", err)
        self.assertEqual(self.out.read_text(), "date,commit\n1,2\n")

    def test_a_tuned_choice(self):
        cache = self.folder / "tune.txt"
        self.start([TILEGLU, "tune", *SHAPE, "--op", "glu", "--cuda-library", FAKE, "--nvml", FAKE,
                    "--backend", "cuda", "--tune-cache", cache, "--settle-ms", "0.5",
                    "--sample-ms", "0.5"], OK, {"TILEGLU_CUDA_LIBRARY": FAKE})
        _, plain = self.measure("--rows", "all")
        best = min(self.lines(), key=lambda l: number(l, "us"))
        self.out = self.folder / "tuned.csv"
        _, tuned = self.measure("--rows", "all", "--tune-cache", cache)
        self.assertNotIn("(tuned)", plain)
        self.assertIn(" (tuned) ", tuned)
        (chosen,) = [l["row"] for l in self.lines() if l["chosen"] == "1"]
        self.assertEqual(chosen, best["row"])

    def test_a_missing_or_bad_cache_is_no_failure(self):
        """But said, once: the choice is not a winner then."""
        missing, bad = self.folder / "tune.txt", self.folder / "bad.txt"
        bad.write_text("no cache")
        for name, said in ((missing, "No such file"), (bad, "does not begin with"),
                           (self.folder, "it is a folder")):
            self.out.unlink(missing_ok=True)
            _, err = self.measure("--tune-cache", name, "--pdl", "0,1")
            self.assertEqual(len(self.lines()), 2)
            self.assertEqual(err.count("warning"), 1, err)
            self.assertIn(f"{name}: ", err)
            self.assertIn(said, err)


class Protocol(Case):
    def test_every_round_has_a_new_order_and_settles(self):
        trace = self.folder / "trace"
        self.measure("--rows", COOP + ",gate_first_128x96_s6_c1", "--rounds", "6", FAKE_TRACE=trace)
        events = [line.split() for line in trace.read_text().splitlines()]
        runs = []  # of the same graph replayed with no event between
        for i, (what, kernel, *_rest) in enumerate(events):
            if what != "graph" or (i and events[i - 1][:2] == [what, kernel]):
                continue
            runs.append(kernel)
        contenders = {"gemm_ex", "gemm_lt", "bench_activate", COOP,
                      "glu_bf16_sm90_gate_first_128x96_s6_c1"}
        self.assertLessEqual(contenders, set(runs))
        # At the end lie the rounds: each contender settles, then is sampled.
        count = len(set(runs))
        measured = runs[-2 * 6 * count:]
        self.assertEqual(measured[::2], measured[1::2])
        rounds = [tuple(measured[::2][r * count:(r + 1) * count]) for r in range(6)]
        for order in rounds:
            self.assertEqual(len(set(order)), count, rounds)
        self.assertGreater(len(set(rounds)), 1, "the order never changed")

    def test_same_seed_same_order(self):
        orders = []
        for seed in (1, 1, 2):
            trace = self.folder / f"trace{len(orders)}"
            self.measure("--rows", "all", "--seed", seed, FAKE_TRACE=trace)
            orders.append([l.split()[1] for l in trace.read_text().splitlines()
                           if l.startswith("graph")])
        self.assertEqual(orders[0], orders[1])
        self.assertNotEqual(orders[0], orders[2])


class Wrong(Case):
    def test_a_wrong_row_is_reported_and_not_timed(self):
        for variables in ({"FAKE_WRONG": COOP}, {"FAKE_UNWRITTEN": COOP}):
            self.out = self.folder / f"{list(variables)[0]}.csv"
            out, err = self.measure("--rows", "all", "--pdl", "0,1", code=WRONG, **variables)
            self.assertIn("WRONG RESULT", err)
            self.assertIn("WRONG RESULT", out)
            wrong = [l for l in self.lines() if l["row"] == COOP]
            right = [l for l in self.lines() if l["row"] != COOP]
            self.assertEqual(len(wrong), 2)
            for line in wrong:
                self.assertEqual((line["us"], line["ratio_bare"], line["tflops"]), ("", "", ""))
            self.assertTrue(right)
            self.assertTrue(all(number(l, "us") for l in right))

    def test_a_wrong_chosen_row(self):
        out, _ = self.measure("--burst", code=WRONG, FAKE_WRONG="glu_")
        self.assertNotIn("nan", out.lower())
        self.assertEqual([l["us"] for l in self.lines()], ["", ""])

    def test_everything_that_can_fail(self):
        driver = ("cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDeviceGetName "
                  "cuDeviceGetPCIBusId cuDeviceGetAttribute cuDevicePrimaryCtxRetain "
                  "cuCtxSetCurrent cuStreamCreate cuEventCreate cuModuleLoadData "
                  "cuModuleGetFunction cuMemGetInfo cuMemAlloc cuMemcpyHtoD cuMemcpyDtoH "
                  "cuMemsetD16 cuCtxSynchronize cuLaunchKernelEx cuStreamBeginCapture "
                  "cuStreamEndCapture cuGraphInstantiate cuGraphLaunch cuEventRecord "
                  "cuEventQuery cuEventElapsedTime").split()
        cublas = ("cublasCreate cublasGemmEx cublasLtCreate "
                  "cublasLtMatmulAlgoGetHeuristic").split()
        for call in driver + cublas:
            for after in (0, 1, 7, 40, 400):
                done = subprocess.run(self.failing(), capture_output=True, text=True, timeout=120,
                                      env={**os.environ, "FAKE_FAIL": f"{call}:{after}"})
                text = done.stdout + done.stderr
                self.assertNotIn("AddressSanitizer", text)
                self.assertIn(done.returncode, (OK, RUNTIME), f"{call}:{after}\n{text}")
                if after == 0:
                    self.assertEqual(done.returncode, RUNTIME, f"{call}\n{text}")
                    self.assertTrue(done.stderr.strip(), call)
                if done.returncode == OK:
                    break

    def failing(self):
        return [str(w) for w in (
            os.environ["BENCH_TILEGLU"], "bench", "--device", "cuda", "--cuda-library", FAKE,
            "--nvml", FAKE, "--cublas", CUBLAS, "--hidden", 8, "--intermediate", 8, "--tokens",
            1, *QUICK, "--burst", "--pdl", "0,1")]

    def test_a_gpu_that_hangs_is_given_up(self):
        _, err = self.measure("--wait-limit", "0.2", code=RUNTIME, FAKE_HANG="1")
        self.assertIn("did not finish within", err)

    def test_too_little_memory(self):
        _, err = self.measure(code=RUNTIME, FAKE_MEMORY_MIB="0")
        self.assertIn("MiB of GPU memory are needed", err)


class Script(Case):
    def test_run_sh_without_torch(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        folder = self.folder / "gpu"
        folder.mkdir()
        (folder / "tileglu").symlink_to(os.environ["BENCH_TILEGLU"])
        self.start([root / "bench/cuda/run.sh", folder, self.out, 2, "--cuda-library", FAKE,
                    "--nvml", FAKE, "--cublas", CUBLAS, "--hidden", 64, "--intermediate", 64,
                    "--tokens", "1,2,3", *QUICK], OK, {"STUB_NO_GPU": 1,
                    "PYTHONPATH": root / "tests/cuda_bench/stub"})
        self.assertEqual([l["m"] for l in self.lines()], ["1", "3", "2"])
        self.start([root / "bench/cuda/run.sh", folder], 2, {})


if __name__ == "__main__":
    main()
