"""tileglu bench: short runs; times are not judged."""

import csv
import io
import resource
import signal
import subprocess

import support
from support import Case, INPUT, RUNTIME, USAGE

QUICK = ["--rounds", "3", "--slice", "0.001", "--warm-up", "0.001", "--cache-mib", "0.01"]
SHAPE = ["--hidden", "64", "--intermediate", "96"]


def small_files(limit):
    """In the child: a file cannot grow beyond so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


class Bench(Case):
    def test_json(self):
        d = self.json("bench", *SHAPE, *QUICK, "--tokens", "1,16", "--commit", "abc")
        self.assertEqual((d["commit"], d["command"]), ("abc", "bench"))
        self.assertRegex(d["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual([(l["m"], l["row"] if l["row"] in ("unfused", "read") else "row")
                          for l in d["lines"]],
                         [(m, row) for m in (1, 16) for row in ("row", "unfused", "read")])
        for line in d["lines"]:
            self.assertGreater(line["us"], 0)
            self.assertGreater(line["weight_gbs"], 0)
            self.assertEqual(line["rounds"], 3)
            self.assertGreater(line["copies"] * 2 * 64 * 96 * 2, 3 * 0.01 * 2 ** 20)
            self.assertEqual(line["chosen"], line["row"].startswith("glu_"))
            if line["row"] == "read":
                self.assertEqual(line["share_of_read"], 1)
                self.assertIsNone(line["gflops"])
                self.assertIsNone(line["rel_l2"])
            else:
                self.assertTrue(0 < line["rel_l2"] < 0.02)
                self.assertAlmostEqual(line["gflops"] * line["us"] * 1e3,
                                       4 * line["m"] * 64 * 96, delta=2)
            if line["row"] == "unfused":
                self.assertEqual(line["ratio_unfused"], 1)

    def test_all_rows_each_type(self):
        rows = self.json("info")["backends"][0]["rows"]
        for dtype in ["bf16", "f16", "f32"]:
            d = self.json("bench", *SHAPE, *QUICK, "--rows", "all", "--dtype", dtype)
            names = [l["row"] for l in d["lines"]][:-2]
            usable = {r["name"] for r in rows if r["op"] == "glu" and r["usable"] and
                      dtype in r["dtypes"].split()}
            self.assertEqual(set(names), usable)
            self.assertEqual(len(names), len(usable))
            self.assertEqual(sum(l["chosen"] for l in d["lines"]), 1)

    def test_named_rows(self):
        name = "glu_bf16_portable_dot_1x2"
        d = self.json("bench", *SHAPE, *QUICK, "--rows", name)
        self.assertIn(name, [l["row"] for l in d["lines"]])

    def test_what_is_named_twice_is_measured_once(self):
        name = "glu_bf16_portable_dot_1x2"
        d = self.json("bench", *SHAPE, *QUICK, "--tokens", "2,2", "--rows", f"{name},{name}")
        rows = [l["row"] for l in d["lines"]]
        self.assertEqual([rows.count(name), rows.count("unfused"), rows.count("read")], [1, 1, 1])

    def test_too_many_tokens(self):
        self.refused(RUNTIME, ["--tokens 1099511627776", "unfused", "GiB"], "bench", *SHAPE, *QUICK,
                     "--tokens", 2 ** 40)

    def test_a_forced_row(self):
        """It stands where the choice would, and is not called one; the unfused way is the same."""
        glu, down = "glu_bf16_portable_dot_1x2", "down_bf16_portable_dot_1x4"
        for op, row in (("glu", glu), ("mlp", glu), ("mlp", down)):
            d = self.json("bench", *SHAPE, *QUICK, "--op", op, "--row", row)
            first, *others = d["lines"]
            self.assertIn(row, first["row"].split(" + "))
            self.assertEqual([line["row"] for line in others], ["unfused", "read"])
            self.assertEqual([line["chosen"] for line in d["lines"]], [False] * 3)
        self.refused(USAGE, ["TILEGLU_ROW", "--row"], "bench", *SHAPE, *QUICK, TILEGLU_ROW=glu)

    def test_names_that_no_problem_has_a_row_of(self):
        """Refused before the weights are made, of which there are too many here."""
        good, huge = "glu_bf16_portable_dot_1x2", ["--hidden", 2 ** 24, "--intermediate", 2 ** 24]
        for rows, word in (("no_row", "no_row"), ("", ""), (good + ",", ""), ("," + good, ""),
                           ("all,nope", "nope"), ("nope,all", "nope"), ("all,", ""),
                           (good + " ", good + " "),
                           (good[:-1], good[:-1]), ("dot_1x2", "dot_1x2"),
                           ("down_bf16_portable_dot_1x4", "down_bf16_portable_dot_1x4"),
                           ("glu_f32_portable_dot_1x2", "glu_f32_portable_dot_1x2")):
            err = self.refused(USAGE, [f'--rows: "{word}" is no row of op glu', "chosen, all"],
                               "bench", *huge, *QUICK, "--rows", rows)
            self.assertNotIn("GiB", err)
        for rows, word in (("all," + good, "all"), (good + ",chosen,all", "chosen"),
                           ("all,all", "all")):
            self.refused(USAGE, [f'--rows: "{word}" stands alone', "chosen, all"], "bench", *huge,
                         *QUICK, "--rows", rows)
        d = self.json("bench", *SHAPE, *QUICK, "--dtype", "bf16,f32", "--rows",
                      "glu_f32_portable_dot_1x2")
        self.assertIn("glu_f32_portable_dot_1x2", [l["row"] for l in d["lines"]])

    def test_mlp_layout_bias(self):
        for layout in ["separate", "stacked_gate_first", "stacked_up_first", "interleaved"]:
            d = self.json("bench", *SHAPE, *QUICK, "--op", "mlp", "--layout", layout,
                          "--bias", "--residual", "--activation", "gelu_erf")
            first = d["lines"][0]
            self.assertEqual((first["op"], first["layout"]), ("mlp", layout))
            self.assertIn(" + down_", first["row"])

    def test_every_activation_unfused(self):
        """The unfused way's result is checked before it is timed."""
        for activation in ["silu", "gelu_tanh", "gelu_erf", "relu", "sigmoid", "swigluoai"]:
            for isa in ["portable", None]:
                where = ["--cpu-isa", isa] if isa else []
                d = self.json("bench", *SHAPE, *QUICK, "--rounds", "1", "--activation",
                              activation, "--dtype", "bf16,f16,f32", *where)
                self.assertEqual(len(d["lines"]), 9)

    def test_csv(self):
        path = self.folder / "out.csv"
        out, _ = self.tileglu("bench", "--model", "smollm2-135m", *QUICK, "--csv", path,
                              "--tokens", "2")
        self.assertIn("SmolLM2-135M", out)
        to_stdout, _ = self.tileglu("bench", "--model", "SmolLM2-135M", *QUICK, "--csv", "-",
                                    "--tokens", "2")
        for text in [path.read_text(), to_stdout]:
            lines = list(csv.DictReader(io.StringIO(text)))
            self.assertEqual(len(lines), 3)
            for line in lines:
                self.assertEqual(None, line.get(None))
                self.assertEqual((line["model"], line["k"], line["n"], line["m"]),
                                 ("SmolLM2-135M", "576", "1536", "2"))
                self.assertGreater(float(line["us"]), 0)
                self.assertTrue(line["date"] and line["commit"] and line["cpu"])
            self.assertEqual(lines[2]["row"], "read")
            self.assertEqual(lines[2]["gflops"], "")

    def test_csv_replaces_the_file(self):
        """As the help says."""
        out, _ = self.tileglu("bench", "--help")
        self.assertIn("over what FILE held", " ".join(out.split()))
        path = self.folder / "out.csv"
        path.write_text("what was there\n" * 1000)
        for _ in range(2):
            self.tileglu("bench", *SHAPE, *QUICK, "--rounds", "1", "--csv", path)
            self.assertEqual(len(path.read_text().splitlines()), 1 + 3)
            self.assertTrue(path.read_text().startswith("date,"))

    def test_csv_refused(self):
        for path, why in (("no/such/out.csv", "No such file"), (self.folder, "Is a directory")):
            self.refused(INPUT, [f"--csv: {path} cannot be written: {why}"], "bench", *SHAPE,
                         *QUICK, "--csv", path)
        self.refused(USAGE, "--csv: the name of the file is empty", "bench", *SHAPE, *QUICK,
                     "--csv", "")

    def test_csv_quotes_text(self):
        for text in ["plain", "a,b", 'say "hi"', '"', "two\nlines", "cr\rlf\r\n", '",\n"', ""]:
            path = self.folder / "out.csv"
            self.tileglu("bench", *SHAPE, *QUICK, "--rounds", "1", "--csv", path, "--commit",
                         text)
            with open(path, newline="") as file:
                lines = list(csv.DictReader(file, strict=True))
            self.assertEqual([line["commit"] for line in lines], [text] * 3)
            self.assertEqual([line["m"] for line in lines], ["16"] * 3)

    def test_csv_on_a_full_disk(self):
        """It must not look as if the lines were kept."""
        for more in [[], ["--json"]]:
            self.refused(RUNTIME, ["--csv", "/dev/full", "write"], "bench", *SHAPE, *QUICK,
                         "--csv", "/dev/full", *more)

    def test_csv_when_the_disk_fills_up(self):
        """The header still fits under the limit on the size of a file, the lines do not."""
        path = self.folder / "out.csv"
        limit = 400
        done = subprocess.run(
            [support.BINARY, "bench", *SHAPE, *QUICK, "--tokens", "1,2", "--csv", path],
            capture_output=True, text=True, timeout=60, env=support.environment(),
            preexec_fn=lambda: small_files(limit))
        self.assertEqual(done.returncode, RUNTIME, done.stderr)
        self.assertIn("out.csv: write failed", done.stderr)
        self.assertEqual(done.stderr.count("write failed"), 1)
        self.assertLessEqual(path.stat().st_size, limit)

    def test_list(self):
        out, _ = self.tileglu("bench", "--list")
        for word in ["Qwen2.5-72B", "29568", "gelu_tanh", "stacked_gate_first"]:
            self.assertIn(word, out)
        models = {m["model"]: m for m in self.json("bench", "--list")["models"]}
        self.assertEqual(models["Qwen2.5-7B"]["intermediate"], 18944)
        self.assertEqual(models["gpt-oss-20B-expert"]["activation"], "swigluoai")
        for name in models:
            self.json("explain", "--model", name)
