"""tileglu explain."""

from support import Case


class Explain(Case):
    def test_text(self):
        out, _ = self.tileglu("explain", "--model", "Qwen2.5-7B", "--tokens", "1,1024")
        self.assertEqual(out.count("Qwen2.5-7B: mlp"), 2)
        self.assertEqual(out.count("  row glu_bf16_"), 2)
        self.assertIn(" + down_bf16_", out)
        self.assertNotIn("\n\n", out)

    def test_json_agrees_with_what_runs(self):
        for tokens in [1, 7, 100]:
            shape = ["--hidden", "65", "--intermediate", "40", "--tokens", tokens,
                     "--dtype", "f32", "--pad", "1", "--misalign", "4"]
            plan = self.json("explain", *shape)["plans"][0]
            case = self.json("verify", *shape)["cases"][0]
            self.assertEqual((plan["row"], plan["down_row"]), (case["row"], case["down_row"]))
            self.assertIn(plan["row"], plan["why"])

    def test_glu_and_forced_row(self):
        plan = self.json("explain", "--hidden", 8, "--intermediate", 8, "--op", "glu",
                         "--row", "glu_bf16_portable_dot_1x2")["plans"][0]
        self.assertEqual(plan["row"], "glu_bf16_portable_dot_1x2")
        self.assertIsNone(plan["down_row"])
        self.assertIn("forced", plan["why"])

    def test_options(self):
        for layout in ["separate", "interleaved"]:
            out, _ = self.tileglu("explain", "--hidden", 8, "--intermediate", 8, "--bias",
                                  "--residual", "--layout", layout)
            self.assertIn(f"{layout} bias residual", out)

    def test_huge_shapes_cost_nothing(self):
        plan = self.json("explain", "--model", "Llama-3.1-405B", "--tokens",
                         100000)["plans"][0]
        self.assertTrue(plan["row"])
