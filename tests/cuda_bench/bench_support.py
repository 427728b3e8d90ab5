"""What the tests of the GPU bench share: running it on the fake GPU, reading its file."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TILEGLU, LIBRARY = os.environ["BENCH_TILEGLU"], os.environ["BENCH_LIBRARY"]
FAKE, CUBLAS = os.environ["BENCH_FAKE"], os.environ["BENCH_CUBLAS"]
HAVE_NVCC = bool(os.environ.get("BENCH_NVCC"))
SANITIZE = os.environ.get("BENCH_SANITIZE", "")
OK, WRONG, USAGE, INPUT, RUNTIME, TIME_LIMIT = range(6)

SHAPE = ["--hidden", "64", "--intermediate", "128", "--tokens", "100"]
QUICK = ["--settle-ms", "0.5", "--sample-ms", "0.5", "--idle-ms", "2", "--burst-ms", "0.5",
         "--burst-repeats", "3", "--rounds", "3"]

REQUIRED = ("date,commit,row_hash,card,driver,model,m,n,k,dtype,activation,layout,row,chosen,"
            "mode,pdl,sm_clock_mhz,us,bare_us,unfused_us,eager_us,ratio_bare,ratio_unfused,"
            "ratio_eager,tflops,share_of_989,tbs,rel_l2,share_over_1pct,"
            "reference_share_over_1pct").split(",")


def environment(**changes):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TILEGLU_", "FAKE_"))}
    return {**kept, **{k: str(v) for k, v in changes.items()}}


class Case(unittest.TestCase):
    def setUp(self):
        if not HAVE_NVCC:
            self.skipTest("built without nvcc: there are no kernels to launch")
        folder = tempfile.TemporaryDirectory(prefix="tileglu-bench-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.csv"

    def start(self, command, code, variables):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=240, env=environment(**variables),
                              cwd=tempfile.gettempdir()) # not beside the fakes: a loader may look there
        self.assertEqual(done.returncode, code,
                         f"{command}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        for text in (done.stdout, done.stderr):
            self.assertNotIn("AddressSanitizer", text)
            self.assertNotIn("runtime error", text)
        return done.stdout, done.stderr

    def bench(self, *arguments, code=OK, libraries=True, **variables):
        """Runs the command on the fake; returns (stdout, stderr)."""
        command = [TILEGLU, "bench", "--device", "cuda", *arguments]
        if libraries:
            command += ["--cuda-library", FAKE, "--nvml", FAKE, "--cublas", CUBLAS]
        return self.start(command, code, variables)

    def measure(self, *arguments, **rest):
        """The bench of the usual small shape, with an output file."""
        return self.bench(*SHAPE, *QUICK, "--out", self.out, *arguments, **rest)

    def lines(self):
        with open(self.out, newline="", encoding="ascii") as file:
            reader = csv.DictReader(file)
            lines = list(reader)
        self.assertEqual(reader.fieldnames[:len(REQUIRED)], REQUIRED)
        for line in lines:
            self.assertNotIn(None, line)
            self.assertNotIn(None, line.values())
        return lines


def number(line, column):
    return float(line[column]) if line[column] else None


def strict_json(text):
    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")
    return json.loads(text, parse_constant=refuse)


def main():
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(
        unittest.TestLoader().loadTestsFromModule(sys.modules["__main__"]))
    bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    passed = result.testsRun - bad - skipped
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    print(f"{passed} passed, {bad} failed, {skipped} skipped")
    sys.exit(0 if bad == 0 and passed + skipped > 0 else 1)
