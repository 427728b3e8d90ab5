"""tileglu run on small model files that the test writes."""

import math

from support import Case, MISMATCH, write_model, write_one, write_safetensors


class Run(Case):
    def test_text(self):
        model = write_model(self.folder / "m", layers=3)
        out, err = self.tileglu("run", model, "--tokens", 5, "--repeat", 3)
        self.assertEqual(err, "")
        for word in ["5 tokens (random normal, seed 1)", "fused us", "GFLOP/s", "unfused us",
                     "speed-up", "rel L2", ">1 % (%)", "all 3", "rows a: glu_", " + down_"]:
            self.assertIn(word, out)
        self.assertEqual(sum(line.endswith("ok") for line in out.splitlines()), 4)

    def test_json(self):
        model = write_model(self.folder / "m", layers=2, hidden=24, intermediate=40)
        d = self.json("run", model, "--tokens", 7, "--repeat", 4)
        self.assertEqual((d["tokens"], d["backend"]), (7, "cpu"))
        self.assertEqual(len(d["layers"]), 2)
        for number, layer in enumerate(d["layers"]):
            self.assertEqual(layer["layer"], number)
            self.assertEqual(layer["prefix"], f"model.layers.{number}.mlp.")
            self.assertEqual((layer["hidden"], layer["intermediate"]), (24, 40))
            self.assertEqual((layer["dtype"], layer["activation"]), ("bf16", "silu"))
            self.assertIn("config.json", layer["activation_source"])
            self.assertTrue(layer["row"].startswith("glu_bf16_"))
            self.assertTrue(layer["down_row"].startswith("down_bf16_"))
            self.assertEqual(layer["rounds"], 4)
            self.assertGreater(layer["us"], 0)
            self.assertGreater(layer["unfused_us"], 0)
            self.assertAlmostEqual(layer["speedup"], layer["unfused_us"] / layer["us"], 4)
            self.assertAlmostEqual(layer["gflops"] * layer["us"] * 1e3,
                                   6 * 7 * 24 * 40, delta=1)
            self.assertEqual(set(layer["unfused_parts_us"]),
                             {"gate", "up", "activation", "down"})
            self.assertTrue(layer["error"]["pass"])
            self.assertEqual(layer["error"]["elements"], 7 * 24)
            self.assertTrue(0 < layer["error"]["rel_l2"] < 2 ** -8)
        total = d["total"]
        self.assertAlmostEqual(total["us"], sum(l["us"] for l in d["layers"]), 3)
        self.assertEqual(total["max_rel_l2"], max(l["error"]["rel_l2"] for l in d["layers"]))
        self.assertEqual(total["failed"], 0)

    def test_layouts_biases_types(self):
        for dtype in ["BF16", "F16", "F32"]:
            for merged, bias in [(False, False), (False, True), (True, False)]:
                model = write_model(self.folder / "m", layers=1, dtype=dtype, merged=merged,
                                    bias=bias, activation="gelu_pytorch_tanh")
                layer = self.json("run", model, "--repeat", 1)["layers"][0]
                self.assertEqual(layer["dtype"], dtype.lower())
                self.assertEqual(layer["activation"], "gelu_tanh")
                self.assertEqual(layer["layout"],
                                 "stacked_gate_first" if merged else "separate")
                self.assertTrue(layer["error"]["pass"])

    def test_converted_type(self):
        for merged in [False, True]:
            model = write_model(self.folder / "m", layers=1, dtype="F32", merged=merged)
            for dtype in ["bf16", "f16", "keep"]:
                layer = self.json("run", model, "--dtype", dtype, "--repeat", 1)["layers"][0]
                self.assertEqual(layer["dtype"], "f32" if dtype == "keep" else dtype)
                self.assertTrue(layer["error"]["pass"])

    def test_a_file_instead_of_a_folder(self):
        model = write_model(self.folder / "m", layers=1)
        d = self.json("run", model / "model.safetensors", "--repeat", 1)
        self.assertEqual(d["total"]["layers"], 1)

    def test_without(self):
        model = write_model(self.folder / "m", layers=1)
        d = self.json("run", model, "--no-check", "--no-unfused", "--repeat", 1)
        layer = d["layers"][0]
        self.assertIsNone(layer["error"])
        self.assertIsNone(layer["speedup"])
        self.assertIsNone(layer["unfused_parts_us"])
        self.assertNotIn("max_rel_l2", d["total"])
        out, _ = self.tileglu("run", model, "--no-check", "--no-unfused", "--repeat", 1)
        self.assertIn("not checked", out)

    def test_mismatch_gives_status_1(self):
        """An fp16 H that overflows: finite in the oracle, infinite by contract."""
        folder, x = write_one(self.folder, [[300]], [[300]], [[0.001]], [1], dtype="F16")
        out, err = self.tileglu("run", folder, "--input", x, "--repeat", 1, code=MISMATCH)
        self.assertIn("FAIL", out)
        self.assertIn("layer 0", err)
        d = self.json("run", folder, "--input", x, "--repeat", 1, code=MISMATCH)
        self.assertEqual(d["total"]["failed"], 1)

    def nan_column(self, out):
        """Of the table's layers and of its total, and the results beside."""
        rows = [line.split() for line in out.splitlines() if line.endswith(("ok", "FAIL"))]
        return [(int(row[-2]), row[-1]) for row in rows]

    def test_nan_weights(self):
        """One of two columns is NaN: the other is compared, and the NaN are counted."""
        folder, x = write_one(self.folder, [[1, 0]], [[0, 1]], [[math.nan], [1]], [3, 5])
        error = self.json("run", folder, "--input", x, "--repeat", 1)["layers"][0]["error"]
        self.assertEqual((error["nan_both"], error["finite"], error["pass"]), (1, 1, True))
        out, _ = self.tileglu("run", folder, "--input", x, "--repeat", 1)
        self.assertEqual(self.nan_column(out), [(1, "ok")] * 2)

    def test_nothing_finite_gives_status_1(self):
        """All NaN, or all infinite: on both sides the same, but nothing was compared."""
        model = write_model(self.folder / "m", layers=2, hidden=8, intermediate=12)
        states = write_safetensors(self.folder / "nan.st", {"x": ([3, 8], [math.nan] * 24)})
        run = ["run", model, "--input", states, "--repeat", 1]
        out, err = self.tileglu(*run, code=MISMATCH)
        self.assertEqual(self.nan_column(out), [(24, "FAIL"), (24, "FAIL"), (48, "FAIL")])
        for layer in range(2):
            self.assertIn(f"layer {layer}: nothing compared", err)
        d = self.json(*run, code=MISMATCH)
        self.assertEqual(d["total"]["failed"], 2)
        for layer in d["layers"]:
            error = layer["error"]
            self.assertEqual((error["pass"], error["finite"], error["nan_both"]),
                             (False, 0, 24))
            self.assertIn("nothing compared", error["why"])
        folder, x = write_one(self.folder / "one", [[1]], [[1]], [[math.inf]], [1])
        error = self.json("run", folder, "--input", x, "--repeat", 1,
                          code=MISMATCH)["layers"][0]["error"]
        self.assertEqual((error["pass"], error["inf_both"]), (False, 1))

    def test_row_and_threads(self):
        model = write_model(self.folder / "m", layers=1)
        d = self.json("run", model, "--cpu-isa", "portable", "--threads", 1, "--repeat", 1)
        self.assertEqual((d["isa"], d["threads"]), ("portable", 1))
        self.assertIn("portable", d["layers"][0]["row"])
