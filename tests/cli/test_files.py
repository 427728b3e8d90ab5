"""Files that run and verify must refuse, or read right."""

import struct

from support import (Case, INPUT, USAGE, normal, write_model, write_one, write_safetensors)


class BadFiles(Case):
    def refused_file(self, words, path, *arguments):
        for command in ["run", "verify"]:
            self.refused(INPUT, words, command, path, *arguments)

    def test_not_safetensors(self):
        path = self.folder / "pickle.safetensors"
        path.write_bytes(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46" + b"x" * 100)
        self.refused_file("pickle.safetensors", path)
        path.write_bytes(b"")
        self.refused_file("pickle.safetensors", path)

    def test_truncated(self):
        model = write_model(self.folder / "m")
        path = model / "model.safetensors"
        whole = path.read_bytes()
        for keep in [len(whole) - 1, len(whole) // 2, 9, 8, 3]:
            path.write_bytes(whole[:keep])
            self.refused_file("model.safetensors", model)

    def test_header_length(self):
        path = write_model(self.folder / "m") / "model.safetensors"
        path.write_bytes(struct.pack("<Q", 1 << 62) + path.read_bytes()[8:])
        self.refused_file("model.safetensors", path)

    def test_no_mlp(self):
        path = write_safetensors(self.folder / "w.safetensors", {"w": ([2, 2], [1, 2, 3, 4])})
        self.refused_file("w.safetensors", path)

    def test_empty_folder(self):
        self.refused_file(str(self.folder), self.folder)

    def test_unknown_activation(self):
        model = write_model(self.folder / "m", activation="foo")
        self.refused_file("foo", model)

    def test_unknown_activation_of_an_option(self):
        model = write_model(self.folder / "m", config=False)
        for command, option in [("run", "--activation"), ("verify", "--config-activation")]:
            for name in ["foo", "SiLU", ""]:
                err = self.refused(USAGE, [f"{option}: '{name}'", "gelu_new"], command, model,
                                   option, name)
                self.assertEqual(err.count("activation"), 1)

    def test_each_path_once(self):
        """Where the library's message names the file, the command does not again; where it
        does not, the command does."""
        model = write_model(self.folder / "m", layers=1)
        missing, bad = self.folder / "missing", self.folder / "bad.st"
        bad.write_bytes(b"")
        (self.folder / "empty").mkdir()
        unknown = write_model(self.folder / "u", layers=1, activation="foo")
        shape = write_safetensors(self.folder / "shape.st", {"h": ([3], [1, 2, 3])})
        cases = [(missing, [missing]), (bad, [bad]), (unknown, [unknown]),
                 (self.folder / "empty", [self.folder / "empty"]),
                 (self.folder / "empty", [f"{self.folder}/empty/"]),
                 (missing, [model, "--input", missing]), (bad, [model, "--input", bad]),
                 (shape, [model, "--input", f"{shape}:nope"])]
        for path, arguments in cases:
            for command in ["run", "verify"]:
                err = self.refused(INPUT, str(path), command, *arguments)
                self.assertEqual(err.count(str(path)), 1, err)

    def test_no_config(self):
        model = write_model(self.folder / "m", config=False)
        self.refused_file("activation", model)
        out, _ = self.tileglu("run", model, "--activation", "silu", "--repeat", 1)
        self.assertIn("ok", out)

    def test_broken_config(self):
        model = write_model(self.folder / "m")
        (model / "config.json").write_text("{not json")
        self.refused_file("config.json", model)

    def test_config_elsewhere(self):
        model = write_model(self.folder / "m", config=False)
        (self.folder / "other.json").write_text('{"hidden_act": "relu"}')
        d = self.json("run", model, "--config", self.folder / "other.json", "--repeat", 1)
        self.assertEqual(d["layers"][0]["activation"], "relu")
        self.refused_file("missing.json", model, "--config", self.folder / "missing.json")

    def test_transposed_weights(self):
        folder = self.folder / "m"
        write_model(folder, layers=1)
        prefix = "model.layers.0.mlp."
        write_safetensors(folder / "model.safetensors", {
            prefix + "gate_proj.weight": ([2, 3], normal(1, 6)),
            prefix + "up_proj.weight": ([2, 3], normal(2, 6)),
            prefix + "down_proj.weight": ([3, 4], normal(3, 12))})
        self.refused_file(prefix, folder)


class Layers(Case):
    def setUp(self):
        super().setUp()
        self.model = write_model(self.folder / "m", layers=12, hidden=8, intermediate=12)

    def layers(self, choice):
        d = self.json("run", self.model, "--layer", choice, "--repeat", 1)
        return [layer["layer"] for layer in d["layers"]]

    def test_choices(self):
        self.assertEqual(self.layers("all"), list(range(12)))
        self.assertEqual(self.layers("1"), [1])
        self.assertEqual(self.layers("1-3"), [1, 2, 3])
        self.assertEqual(self.layers("11,0,2-3,3"), [0, 2, 3, 11])

    def test_refused(self):
        for choice in ["12", "20-30"]:
            self.refused(USAGE, ["--layer", choice, "from 0 to 11"], "run", self.model,
                         "--layer", choice)
        for choice in ["", "a", "3-1", "-1", "1-", "1,,2"]:
            self.refused(USAGE, "--layer", "run", self.model, "--layer=" + choice)


class Input(Case):
    def setUp(self):
        super().setUp()
        self.model = write_model(self.folder / "m", layers=1, hidden=8, intermediate=12)

    def states(self, tensors, dtype="F32"):
        return write_safetensors(self.folder / "states.safetensors", tensors, dtype)

    def refused_input(self, words, *arguments):
        for command in ["run", "verify"]:
            self.refused(INPUT, ["--", *([words] if isinstance(words, str) else words)],
                         command, self.model, *arguments)

    def test_one_tensor(self):
        path = self.states({"h": ([3, 8], normal(1, 24))}, "BF16")
        d = self.json("run", self.model, "--input", path, "--repeat", 1)
        self.assertEqual(d["tokens"], 3)
        self.assertIn("states.safetensors", d["input"])
        d = self.json("run", self.model, "--input", path, "--tokens", 2, "--repeat", 1)
        self.assertEqual(d["tokens"], 2)

    def test_named_and_three_dimensions(self):
        path = self.states({"a": ([1, 8], normal(1, 8)), "b": ([2, 2, 8], normal(2, 32))})
        self.refused_input("2 tensors", "--input", path)
        d = self.json("run", self.model, "--input", f"{path}:b", "--repeat", 1)
        self.assertEqual(d["tokens"], 4)
        self.refused_input("nope", "--input", f"{path}:nope")

    def test_refused(self):
        path = self.states({"h": ([3, 9], normal(1, 27))})
        self.refused_input(["9", "8"], "--input", path)
        path = self.states({"h": ([3, 8], normal(1, 24))})
        for command in ["run", "verify"]:
            self.refused(USAGE, ["--tokens", "3 rows"], command, self.model, "--input", path,
                         "--tokens", 4)
        path = self.states({"h": ([8], normal(1, 8))})
        self.refused_input("dimensions", "--input", path)
        path = self.states({"h": ([3, 8], range(24), "U8")})
        self.refused_input("U8", "--input", path)
        self.refused_input("no-such", "--input", self.folder / "no-such.safetensors")

    def test_no_tokens(self):
        path = self.states({"h": ([0, 8], [])})
        self.refused(INPUT, "no tokens", "run", self.model, "--input", path)

    def test_values_reach_the_kernel(self):
        folder, x = write_one(self.folder / "one", [[1, 0]], [[0, 1]], [[1], [2]], [3, 5],
                              "relu")
        d = self.json("verify", folder, "--input", x, "--inject", "1e30@1", code=1)
        self.assertEqual(d["cases"][0]["worst"]["reference"], 30)
