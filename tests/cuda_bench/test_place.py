#!/usr/bin/env python3
"""verify, run and explain with their operands on the fake GPU."""
import pathlib
import sys

import bench_support
from bench_support import FAKE, INPUT, OK, RUNTIME, USAGE, WRONG, Case, main, strict_json

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import write_model  # noqa: E402

DOWN, GLU = "down_", "glu_"


class Place(Case):
    def tileglu(self, *arguments, code=OK, **variables):
        command = [bench_support.TILEGLU, *arguments]
        return self.start(command, code, {"TILEGLU_CUDA_LIBRARY": FAKE, **variables})

    def json(self, *arguments, **rest):
        return strict_json(self.tileglu(*arguments, "--json", **rest)[0])


class Verify(Place):
    SHAPE = ["verify", "--device", "cuda", "--hidden", "64", "--intermediate", "96"]

    def test_glu_and_mlp(self):
        for op in ("glu", "mlp"):
            for words in ([], ["--bias"], ["--layout", "interleaved", "--dtype", "f16"]):
                document = self.json(*self.SHAPE, "--op", op, "--tokens", "1,5", *words)
                self.assertEqual((document["passed"], document["failed"]), (2, 0))
                self.assertEqual(document["backend"], "cuda")
                for case in document["cases"]:
                    self.assertIn("_sm90_", case["row"])
                    self.assertEqual(bool(case["down_row"]), op == "mlp")

    def test_strides_and_addresses(self):
        document = self.json(*self.SHAPE, "--op", "glu", "--tokens", "3", "--pad", "5",
                             "--misalign", "2")
        self.assertEqual(document["passed"], 1)
        self.assertEqual(document["cases"][0]["guard_damage"], 0)

    def test_residual(self):
        self.assertEqual(self.json(*self.SHAPE, "--residual")["passed"], 1)

    def test_the_sweep(self):
        document = self.json("verify", "--device", "cuda", "--quick")
        self.assertEqual(document["failed"], 0)
        self.assertGreater(document["passed"], 60)
        for case in document["cases"]:  # what is refused is named, and never fp32
            if case.get("refused"):
                self.assertRegex(case["refused"], "^(ld_down|down|ld|gate|up|x|h)")

    def test_a_wrong_result_fails(self):
        for variables in ({"FAKE_WRONG": DOWN}, {"FAKE_WRONG": GLU}, {"FAKE_UNWRITTEN": DOWN}):
            self.tileglu(*self.SHAPE, "--op", "mlp", code=WRONG, **variables)
        self.tileglu(*self.SHAPE, "--op", "mlp", "--inject", "guard:1@0", code=WRONG)

    def test_a_failing_driver(self):
        for call in ("cuMemAlloc", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuLaunchKernelEx",
                     "cuEventQuery", "cuModuleLoadData", "cuStreamCreate"):
            _, err = self.tileglu(*self.SHAPE, code=RUNTIME, FAKE_FAIL=call)
            self.assertTrue(err.strip(), call)

    def test_no_gpu(self):
        _, err = self.tileglu(*self.SHAPE, code=RUNTIME, FAKE_INIT=100)
        self.assertIn("tileglu verify", err)
        self.tileglu(*self.SHAPE, "--device", "tpu", code=USAGE)

    def test_auto_takes_the_gpu(self):
        words = ["verify", "--hidden", "16", "--intermediate", "16", "--op", "glu"]
        self.assertEqual(self.json(*words)["backend"], "cuda")
        self.assertEqual(self.json(*words, FAKE_INIT=100)["backend"], "cpu")
        self.assertEqual(self.json(*words, "--backend", "cpu")["backend"], "cpu")

    def test_a_file(self):
        model = write_model(self.folder / "m", layers=3, hidden=32, intermediate=48)
        document = self.json("verify", "--device", "cuda", model)
        self.assertEqual((document["passed"], document["failed"]), (3, 0))


class Run(Place):
    def test_layers(self):
        for words in ({}, {"merged": True}, {"bias": True}):
            folder = self.folder / "-".join(["m", *words])
            model = write_model(folder, layers=2, hidden=32, intermediate=48, **words)
            document = self.json("run", "--device", "cuda", model, "--tokens", "4")
            self.assertEqual(document["backend"], "cuda")
            self.assertEqual(document["total"]["failed"], 0)
            for layer in document["layers"]:
                self.assertTrue(layer["row"].startswith(GLU))
                self.assertTrue(layer["down_row"].startswith(DOWN))
                self.assertTrue(layer["error"]["pass"])
                self.assertGreater(layer["us"], 0)
                # Three products and a pass, against two kernels.
                parts = layer["unfused_parts_us"]
                self.assertAlmostEqual(sum(parts.values()), layer["unfused_us"], delta=0.2)
                self.assertAlmostEqual(parts["activation"], 2.5, delta=0.1)

    def test_a_random_model(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "tools/make_random_model.py"
        for name in ("a", "b"):
            self.start([sys.executable, "-B", script, self.folder / name, "--hidden", 48,
                        "--intermediate", 80, "--layers", 2], OK, {})
        self.assertEqual((self.folder / "a/model.safetensors").read_bytes(),
                         (self.folder / "b/model.safetensors").read_bytes())
        document = self.json("run", "--device", "cuda", self.folder / "a", "--tokens", "4")
        self.assertEqual((document["total"]["layers"], document["total"]["failed"]), (2, 0))

    def test_text(self):
        model = write_model(self.folder / "m", hidden=32, intermediate=48)
        out, _ = self.tileglu("run", "--backend", "cuda", model, "--repeat", "3")
        for word in ("cuda: Fake H200", "fused us", "down_bf16_sm90_", "ok"):
            self.assertIn(word, out)
        out, _ = self.tileglu("run", "--device", "cuda", model, "--no-unfused", "--no-check")
        self.assertIn("not checked", out)

    def test_wrong_results(self):
        model = write_model(self.folder / "m", layers=1, hidden=32, intermediate=48)
        self.tileglu("run", "--device", "cuda", model, code=WRONG, FAKE_WRONG=GLU)
        _, err = self.tileglu("run", "--device", "cuda", model, "--no-check", code=WRONG,
                              FAKE_WRONG=GLU)
        self.assertIn("the unfused way differs", err)

    def test_fp32_is_named(self):
        model = write_model(self.folder / "m", layers=1, hidden=32, intermediate=48, dtype="F32")
        _, err = self.tileglu("run", "--device", "cuda", model, code=RUNTIME)
        self.assertIn("f32", err)
        self.tileglu("run", "--device", "cuda", model, "--dtype", "bf16")
        self.tileglu("run", "--device", "cuda", self.folder / "none", code=INPUT)


class Explain(Place):
    def test_plans(self):
        document = self.json("explain", "--device", "cuda", "--model", "Qwen2.5-0.5B", "--tokens",
                             "1,1024")
        self.assertEqual(document["backend"], "cuda")
        self.assertEqual(len(document["plans"]), 2)
        for plan in document["plans"]:
            self.assertTrue(plan["row"].startswith(GLU) and plan["down_row"].startswith(DOWN))
            self.assertIn("cost model", plan["why"])
            self.assertGreater(plan["predicted_us"], 0)

    def test_layouts_and_biases(self):
        for layout in ("separate", "stacked_up_first", "interleaved"):
            out, _ = self.tileglu("explain", "--device", "cuda", "--hidden", "64", "--intermediate",
                                  "96", "--layout", layout, "--bias")
            self.assertIn(layout, out)

    def test_too_large(self):
        _, err = self.tileglu("explain", "--device", "cuda", "--hidden", "64", "--intermediate",
                              "96", code=RUNTIME, FAKE_FAIL="cuMemAlloc")
        self.assertIn("weights", err)


if __name__ == "__main__":
    main()
