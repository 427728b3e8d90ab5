#!/usr/bin/env python3
"""Wrong use, missing drivers and files: a message that names what is wrong, and the exit
status that the help promises."""
import unittest

from bench_support import (CUBLAS, FAKE, HAVE_NVCC, INPUT, OK, QUICK, RUNTIME, SHAPE, USAGE,
                           Case, main)


class Arguments(Case):
    def test_refused(self):
        for words, said in (
                (["--rows", "best"], "--from"),
                (["--rows", "no_row"], "\"no_row\""), (["--rows", ""], "\"\""),
                (["--rows", "paired_general_128x128_s2_c1,gone"], "\"gone\""),
                (["--rows", "paired_general_128x128_s2_c1,"], "\"\""),
                (["--rows", "paired_general_128x128_s2_c1,all"], "\"all\" stands alone"),
                (["--rows", "near,gone,best"], "\"gone\" is no row"),
                (["--rows", "down_pingpong_128x128_s6_c1"], "of op glu"),
                (["--rows", "glu_f16_sm90_paired_general_128x128_s2_c1"], "for the types"),
                (["--from", "x.csv"], "--rows best"),
                (["--part", "3/2"], "--part"), (["--part", "0/2"], "--part"),
                (["--part", "1"], "--part"), (["--part", "1/2/3"], "--part"),
                (["--pdl", "2"], "--pdl"), (["--pdl", "1,0"], "--pdl"),
                (["--rounds", "0"], "--rounds"), (["--rounds", "1001"], "--rounds"),
                (["--settle-ms", "0"], "--settle-ms"), (["--sample-ms", "nan"], "--sample-ms"),
                (["--sample-ms", "1e9"], "--sample-ms"), (["--top", "0"], "--top"),
                (["--time-limit", "-1"], "--time-limit"), (["--gpu", "-1"], "--gpu"),
                (["--resume"], "--out"), (["--op", "x"], "--op"),
                (["--suite", "none"], "few, large"), (["--suite", "few"], "--suite"),
                (["--alone", "--energy", "x"], "--alone"),
                (["--within", "-1"], "--within"), (["--energy-ms", "0"], "--energy-ms"),
                (["--energy-warm-ms", "no"], "--energy-warm-ms"),
                (["--op", "mlp", "--host-time"], "--host-time"), (["--bias"], "--bias"),
                (["--pad", "8"], "--pad"), (["--dtype", "f32"], "f32"),
                (["--tokens", "0"], "--tokens"), (["--models", "nobody"], "nobody"),
                (["word"], "word"), (["--nonsense"], "nonsense")):
            _, err = self.bench(*SHAPE, *words, code=USAGE)
            self.assertIn(said, err, words)

    def test_help(self):
        out, _ = self.bench("--help", libraries=False)
        for word in ("--cublas", "--rounds", "--part", "Exit status", "--models"):
            self.assertIn(word, out)
        out, _ = self.start([*self.command(), "--device=cuda", "--help"], OK, {})
        self.assertIn("--cublas", out)

    def command(self):
        import bench_support
        return [bench_support.TILEGLU, "bench"]

    def test_other_devices_are_not_ours(self):
        _, err = self.start([*self.command(), "--device", "tpu", *SHAPE], USAGE, {})
        self.assertIn("tpu", err)

    def test_the_device_as_any_option_is_given(self):
        """Shortened, and the last of several."""
        for words in (["--dev", "cuda"], ["--de=cuda"], ["--device", "cpu", "--device", "cuda"],
                      ["--device=cpu", "--devic=cuda"]):
            out, _ = self.start([*self.command(), *words, "--help"], OK, {})
            self.assertIn("--cublas", out, words)
        for words in (["--device=cuda", "--device", "cpu"], ["--device", "cuda", "--de=cpu"],
                      ["--dtype", "bf16"]):
            out, _ = self.start([*self.command(), *words, "--help"], OK, {})
            self.assertIn("--cache-mib", out, words)
        for words in (["--devices=cuda"], ["--device"], ["--d", "cuda"], ["--", "--device=cuda"]):
            _, err = self.start([*self.command(), *SHAPE, *words], USAGE, {})
            self.assertIn(words[0], err)

    def test_environment(self):
        _, err = self.bench(*SHAPE, *QUICK, code=USAGE, TILEGLU_ROW="x")
        self.assertIn("TILEGLU_ROW", err)


class Places(Case):
    def test_no_driver(self):
        _, err = self.bench(*SHAPE, "--cuda-library", "/nonexistent/libcuda.so.1", code=RUNTIME,
                            libraries=False)
        self.assertIn("no CUDA driver", err)
        self.assertIn("/nonexistent/libcuda.so.1", err)

    def test_no_driver_at_all(self):
        _, err = self.bench(*SHAPE, "--cuda-library", "libm.so.6", code=RUNTIME, libraries=False)
        self.assertIn("libm.so.6 has no cuInit", err)

    def test_no_gpu(self):
        for variables, said in (({"FAKE_INIT": 100}, "no GPU"), ({"FAKE_DEVICES": 0}, "0 GPUs"),
                                ({"FAKE_MAJOR": 8}, "capability 8"),
                                ({"FAKE_INIT": 999}, "999")):
            _, err = self.bench(*SHAPE, code=RUNTIME, **variables)
            self.assertIn(said, err)

    def test_no_cublas(self):
        drivers = ["--cuda-library", FAKE, "--nvml", FAKE]
        for words, code, said in ((["--cublas", "/nonexistent/libcublas.so.13"], INPUT, "/nonexistent"),
                                  (["--cublas", FAKE], USAGE, "--cublaslt"),
                                  (["--cublas", FAKE, "--cublaslt", FAKE], RUNTIME, "cublasCreate"),
                                  (["--cublas", CUBLAS, "--cublaslt", CUBLAS], RUNTIME,
                                   "cublasLtCreate"),
                                  ([], INPUT, "--cublas")):
            _, err = self.bench(*SHAPE, *QUICK, *drivers, *words, code=code, libraries=False)
            self.assertIn(said, err)

    def test_files(self):
        _, err = self.bench(*SHAPE, *QUICK, "--out", "/nonexistent/x.csv", code=INPUT)
        self.assertIn("/nonexistent/x.csv", err)
        for file in ("--out", "--read", "--invariant"):  # before anything is measured
            _, err = self.bench(*SHAPE, *QUICK, file, "/nonexistent/x.csv", code=INPUT)
            self.assertNotIn(" us ", err)
        bad = self.folder / "bad.csv"
        bad.write_text("one,two\n1,2\n")
        for name, said in ((self.folder, "Is a directory"), (bad, "other columns")):
            for file in ("--out", "--read", "--invariant"):
                out, err = self.bench(*SHAPE, *QUICK, file, name, code=INPUT)
                self.assertEqual(out, "")
                self.assertIn(f"{name}: ", err)
                self.assertIn(said, err)
        self.assertEqual(bad.read_text(), "one,two\n1,2\n")
        for file in ("--out", "--read", "--invariant", "--energy", "--from", "--tables"):
            _, err = self.bench(*SHAPE, *QUICK, file, "", code=USAGE)
            self.assertIn(f"{file}: the name of the file is empty", err)
        _, err = self.bench(*SHAPE, "--rows", "best", "--from", bad, code=INPUT)
        self.assertIn("bad.csv", err)
        _, err = self.bench(*SHAPE, *QUICK, "--resume", "--out", bad, code=INPUT)
        self.assertIn("bad.csv", err)


class WithoutNvcc(unittest.TestCase):
    def test_it_says_so(self):
        if HAVE_NVCC:
            self.skipTest("built with nvcc")
        case = Case()
        _, err = Case.bench(case, *SHAPE, code=RUNTIME)
        self.assertIn("built without nvcc", err)


if __name__ == "__main__":
    main()
