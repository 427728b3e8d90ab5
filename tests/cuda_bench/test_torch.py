#!/usr/bin/env python3
"""The Python driver, with a stub in torch's place and the fake GPU."""
import csv
import os
import pathlib
import sys

from bench_support import (CUBLAS, FAKE, LIBRARY, OK, QUICK, RUNTIME, SANITIZE, SHAPE, USAGE,
                           Case, main, number)

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = ["--cuda-library", FAKE, "--nvml", FAKE, "--cublas", CUBLAS]


class Torch(Case):
    def setUp(self):
        super().setUp()
        if SANITIZE:
            self.skipTest("python3 cannot load a sanitized library")

    def driver(self, *arguments, code=OK, libraries=LIBRARIES, **variables):
        command = [sys.executable, "-B", ROOT / "bench/cuda/with_torch.py", "--library", LIBRARY,
                   *SHAPE, *QUICK, "--out", self.out, *libraries, *arguments]
        return self.start(command, code, {"PYTHONPATH": ROOT / "tests/cuda_bench/stub",
                                          **variables})

    def test_eager_and_controls(self):
        out, err = self.driver("--pdl", "0,1", "--controls", "--rows", "all")
        self.assertIn("torch 0.0-stub", err)
        lines = self.lines()
        plain = [l for l in lines if l["pdl"] == "0"]
        self.assertGreater(len(plain), 5)
        for line in plain:  # two products, two passes; a graph launch is not counted
            self.assertAlmostEqual(number(line, "eager_us"), 9, delta=0.01)
            self.assertAlmostEqual(number(line, "ratio_eager"),
                                   number(line, "us") / number(line, "eager_us"), delta=1e-3)
        self.assertTrue(all(l["eager_us"] for l in lines))
        self.assertIn("torch.nn.functional.linear over bare", out)
        self.assertEqual(out.count("custom m 100: 0.8"), 1)

    def test_mlp(self):
        self.driver("--op", "mlp", "--pdl", "0,1", "--controls")
        with open(self.out, newline="", encoding="ascii") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([l["pdl"] for l in lines], ["0", "1"])
        # three products, two passes
        self.assertAlmostEqual(number(lines[0], "eager_us"), 11.5, delta=0.01)
        self.assertTrue(number(lines[1], "eager_us"))

    def test_down(self):
        self.driver("--op", "down")
        self.assertEqual([l["eager_us"] for l in self.lines()], [""])

    def test_types_and_layouts(self):
        self.driver("--dtype", "f16")
        self.driver("--layout", "stacked_gate_first")
        self.driver("--layout", "interleaved")      # torch has no such thing
        self.driver("--activation", "gelu_tanh")
        self.assertEqual([bool(l["eager_us"]) for l in self.lines()], [True, True, False, False])

    def test_failures(self):
        _, err = self.driver(code=RUNTIME, STUB_REPLAY_FAILS=1)
        self.assertIn("a planted failure", err)
        _, err = self.driver(code=RUNTIME, STUB_COPIES=1)
        self.assertIn("torch copied the bench's memory", err)
        _, err = self.driver(code=1, STUB_NO_GPU=1)
        self.assertIn("torch sees no GPU", err)
        self.driver("--rounds", "0", code=USAGE)

    def test_finds_cublas(self):
        site = self.folder / "site"
        (site / "nvidia/cu13/lib").mkdir(parents=True)
        for name in ("libcublas.so.13", "libcublasLt.so.13"):
            os.symlink(pathlib.Path(CUBLAS).parent / name, site / "nvidia/cu13/lib" / name)
        stub = ROOT / "tests/cuda_bench/stub"
        self.driver(libraries=LIBRARIES[:4], PYTHONPATH=f"{stub}:{site}")
        self.assertEqual(len(self.lines()), 1)

    def test_run_sh(self):
        self.start([ROOT / "bench/cuda/run.sh", pathlib.Path(LIBRARY).parent, self.out, 1, *SHAPE,
                    *QUICK, *LIBRARIES], OK, {"PYTHONPATH": ROOT / "tests/cuda_bench/stub"})
        self.assertTrue(self.lines()[0]["eager_us"])


if __name__ == "__main__":
    main()
