"""tileglu info."""

from support import Case


class Info(Case):
    def test_text(self):
        out, _ = self.tileglu("info")
        for word in ["tileglu ", "commit ", "backend in use: ", "CPU features:", "caches:",
                     "cpu: ", "cuda: ", "ISA level", "kernel row", "portable"]:
            self.assertIn(word, out)

    def test_json(self):
        d = self.json("info")
        self.assertEqual(d["command"], "info")
        self.assertEqual([b["name"] for b in d["backends"]], ["cpu", "cuda"])
        cpu, cuda = d["backends"]
        self.assertTrue(cpu["usable"])
        self.assertIsNone(cpu["why_not"])
        self.assertGreaterEqual(cpu["threads"], 1)
        self.assertEqual(cuda["usable"], cuda["why_not"] is None)
        self.assertTrue(d["reason"])
        for row in cpu["rows"]:
            self.assertIn(row["op"], ["glu", "down"])
            self.assertTrue(row["name"].startswith(row["op"] + "_"))
            self.assertTrue(set(row["dtypes"].split()) <= {"bf16", "f16", "f32"})
        for op in ["glu", "down"]:
            for dtype in ["bf16", "f16", "f32"]:
                self.assertTrue([r for r in cpu["rows"] if r["op"] == op and r["usable"] and
                                 dtype in r["dtypes"].split() and r["isa"] == "portable"])

    def test_options(self):
        d = self.json("info", "--cpu-isa", "portable", "--threads", "3", "--backend", "cpu")
        cpu = d["backends"][0]
        self.assertEqual((cpu["isa"], cpu["threads"]), ("portable", 3))
        self.assertEqual({r["isa"] for r in cpu["rows"] if r["usable"]}, {"portable"})
