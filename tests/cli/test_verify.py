"""tileglu verify on shapes and sweeps, and that it can fail."""

import math

from support import Case, MISMATCH, RUNTIME, write_one

SHAPE = ["--hidden", "33", "--intermediate", "20", "--tokens", "3"]


class Shapes(Case):
    def one(self, *arguments, code=0):
        d = self.json("verify", *arguments, code=code)
        self.assertEqual(len(d["cases"]), 1)
        return d["cases"][0]

    def test_every_kind(self):
        for op in ["glu", "mlp"]:
            for dtype in ["bf16", "f16", "f32"]:
                for activation in ["silu", "gelu_tanh", "gelu_erf", "relu", "sigmoid",
                                   "swigluoai"]:
                    case = self.one(*SHAPE, "--op", op, "--dtype", dtype, "--activation",
                                    activation, "--bias")
                    self.assertTrue(case["pass"])
                    self.assertEqual(case["elements"], 3 * (33 if op == "mlp" else 20))
                    self.assertLess(case["rel_l2"], case["rel_l2_limit"])

    def test_error_is_not_zero_where_rounding_must_show(self):
        case = self.one(*SHAPE)
        self.assertGreater(case["rel_l2"], 1e-4)
        self.assertGreater(case["max_ulp"], 0)

    def test_layouts_strides_addresses(self):
        for layout in ["separate", "stacked_gate_first", "stacked_up_first", "interleaved"]:
            case = self.one(*SHAPE, "--layout", layout, "--bias", "--residual", "--pad", "3",
                            "--misalign", "2")
            self.assertTrue(case["pass"], layout)

    def test_lists(self):
        d = self.json("verify", "--model", "SmolLM2-135M", "--tokens", "1,5", "--dtype",
                      "bf16,f32")
        self.assertEqual(len(d["cases"]), 4)
        self.assertEqual((d["passed"], d["failed"], d["verdict"]), (4, 0, "pass"))

    def test_seed(self):
        a, b = (self.one(*SHAPE, "--seed", "5") for _ in range(2))
        c = self.one(*SHAPE, "--seed", "6")
        self.assertEqual(a, b)
        self.assertNotEqual(a["rel_l2"], c["rel_l2"])

    def test_forced_row(self):
        rows = self.json("info")["backends"][0]["rows"]
        tried = 0
        for row in rows:
            if row["op"] == "glu" and row["usable"]:
                case = self.one(*SHAPE, "--row", row["name"], "--dtype", row["dtypes"])
                self.assertEqual(case["row"], row["name"])
                self.assertTrue(case["pass"])
                tried += 1
        self.assertGreater(tried, 0)

    def test_isa_and_threads(self):
        case = self.one(*SHAPE, "--cpu-isa", "portable", "--threads", "1")
        self.assertIn("portable", case["row"])

    def test_quick_sweep(self):
        d = self.json("verify", "--quick", "--seed", "3")
        self.assertEqual(d["seed"], 3)
        self.assertGreaterEqual(len(d["cases"]), 144)
        self.assertEqual(d["failed"], 0)
        for word in ["glu ", "mlp ", "bf16", "f16", "f32", "swigluoai", "interleaved",
                     "bias", "residual", "pad", "misalign"]:
            self.assertTrue(any(word in c["case"] for c in d["cases"]), word)

    def test_text(self):
        out, _ = self.tileglu("verify", *SHAPE)
        for word in ["kernel row", "relative L2 error", "ULP", "NaN", "infinity",
                     "worst element", "1 passed, 0 failed", "seed 1: pass"]:
            self.assertIn(word, out)

    def test_too_large(self):
        self.refused(RUNTIME, "memory", "verify", "--hidden", 1 << 24, "--intermediate",
                     1 << 24)


class CanFail(Case):
    """Planted faults must be found."""

    def case(self, *faults, code=MISMATCH, shape=SHAPE, extra=()):
        arguments = [word for fault in faults for word in ("--inject", fault)]
        d = self.json("verify", *shape, *extra, *arguments, code=code)
        return d["cases"][0]

    def test_one_nan(self):
        case = self.case("nan@5")
        self.assertFalse(case["pass"])
        self.assertEqual(case["nan_wrong"], 1)
        self.assertEqual((case["worst"]["token"], case["worst"]["column"]), (0, 5))
        self.assertIsNone(case["worst"]["value"])
        self.assertEqual(case["worst"]["value_text"], "nan")
        out, _ = self.tileglu("verify", *SHAPE, "--inject", "nan@40", code=MISMATCH)
        self.assertIn("[1, 7]: nan", out)

    def test_all_nan(self):
        case = self.case("nan@all")
        self.assertEqual(case["nan_wrong"], case["elements"])
        self.assertIsNone(case["rel_l2"])

    def test_infinities(self):
        self.assertEqual(self.case("inf@2")["inf_wrong"], 1)
        self.assertEqual(self.case("-inf@2", "ref:inf@2")["inf_wrong"], 1)
        self.assertEqual(self.case("1@2", "ref:-inf@2")["inf_wrong"], 1)

    def test_matching_infinity_is_equal_but_counted(self):
        case = self.case("inf@2", "ref:inf@2", code=0)
        self.assertEqual((case["inf_both"], case["inf_wrong"], case["pass"]), (1, 0, True))

    def test_matching_nan_is_equal_but_counted(self):
        case = self.case("x:nan@0", code=0)
        self.assertTrue(case["pass"])
        self.assertEqual((case["nan_both"], case["nan_wrong"]), (33, 0))
        self.assertEqual(case["finite"], 66)

    def test_nan_in_reference_alone(self):
        self.assertEqual(self.case("ref:nan@3")["nan_wrong"], 1)

    def test_nothing_compared(self):
        for shape in (["--hidden", "8", "--intermediate", "8", "--tokens", "0"],
                      ["--hidden", "8", "--intermediate", "0", "--op", "glu"]):
            case = self.case(shape=shape)
            self.assertEqual(case["elements"], 0)
            self.assertIn("nothing compared", case["why"])
            out, _ = self.tileglu("verify", *shape, code=MISMATCH)
            self.assertIn("nothing compared", out)

    def test_small_error_in_one_element(self):
        """An error of a few percent of one element, far below what L2 would show."""
        for op in ["glu", "mlp"]:
            for dtype, factor in [("bf16", 1.10), ("f16", 1.02), ("f32", 1.01)]:
                shape = ["--hidden", "256", "--intermediate", "192", "--op", op, "--dtype",
                         dtype, "--tokens", "8"]
                probe = self.case("99@700", shape=shape)["worst"]
                wrong = probe["reference"] * factor + math.copysign(0.05, probe["reference"])
                case = self.case(f"{wrong}@700", shape=shape)
                self.assertEqual(case["over_allowed"], 1, (op, dtype))
                self.assertLess(case["rel_l2"], 0.02)

    def test_write_outside(self):
        case = self.case("guard:0@0")
        self.assertEqual(case["guard_damage"], 1)
        self.assertIn("outside", case["why"])

    def test_zero_result(self):
        self.assertFalse(self.case("0@all")["pass"])

    def test_sweep_fails_too(self):
        out, _ = self.tileglu("verify", "--quick", "--inject", "nan@0", code=MISMATCH)
        self.assertIn("144 failed", out)
        self.assertIn("FAIL", out)


class Oracle(Case):
    """The oracle itself, against values worked out by hand: a planted fault in element 0
    makes the report name what was expected there."""

    def expected(self, *arguments, element=0):
        d = self.json("verify", *arguments, "--inject", f"1e30@{element}", code=MISMATCH)
        return d["cases"][0]["worst"]["reference"]

    def test_activations(self):
        for name, value in [("silu", -0.1697271), ("swish", -0.1697271), ("gelu", -0.0092840),
                            ("gelu_pytorch_tanh", -0.0088108), ("gelu_new", -0.0088108),
                            ("quick_gelu", -0.0268818), ("relu", 0.0)]:
            folder, x = write_one(self.folder, [[-2.703125]], [[1]], [[1]], [1], name)
            got = self.expected(folder, "--input", x)
            self.assertAlmostEqual(got, value, delta=1e-6, msg=name)

    def test_gate_and_up_are_told_apart(self):
        folder, x = write_one(self.folder, [[2, 0], [0, 0]], [[-1, 0], [0, 0]],
                              [[1, 0], [3, 0]], [1, 0])
        for element, value in [(0, -1.76159416), (1, -5.28478247)]:
            got = self.expected(folder, "--input", x, element=element)
            self.assertAlmostEqual(got, value, delta=1e-6)
        self.assertTrue(self.json("verify", folder, "--input", x)["cases"][0]["pass"])

    def test_biases(self):
        folder, x = write_one(self.folder, [[0, 0], [0, 0]], [[0, 0], [0, 0]],
                              [[1, 0], [0, 2]], [1, 1],
                              biases={"gate": [2, 2], "up": [-1, -1], "down": [0.5, 0.5]})
        self.assertAlmostEqual(self.expected(folder, "--input", x), -1.76159416 + 0.5,
                               delta=1e-6)
        self.assertTrue(self.json("verify", folder, "--input", x)["cases"][0]["pass"])

    def test_half_overflow_is_flagged(self):
        folder, x = write_one(self.folder, [[300]], [[300]], [[0.001]], [1], dtype="F16")
        d = self.json("verify", folder, "--input", x, code=MISMATCH)
        self.assertEqual(d["cases"][0]["inf_wrong"], 1)
