"""What the tests share: running the command, reading its JSON strictly, writing
model files by hand."""

import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

BINARY = ""

OK, MISMATCH, USAGE, INPUT, RUNTIME = range(5)


def environment(**changes):
    """The environment without the library's variables but for the CPU backend and no tuning
    cache, so that neither a GPU nor former winners change anything, and with changes (None:
    not set)."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TILEGLU_")}
    all_of_them = {**kept, "TILEGLU_BACKEND": "cpu", "TILEGLU_TUNE_CACHE": "", **changes}
    return {k: v for k, v in all_of_them.items() if v is not None}


def refuse_constant(text):
    raise ValueError(f"{text} is no JSON")


def unique_keys(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise ValueError(f"duplicate key in {keys}")
    return dict(pairs)


def strict_json(text):
    """Parses JSON that holds no NaN, Infinity or duplicate key."""
    return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique_keys)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tileglu-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tileglu(self, *arguments, code=OK, **variables):
        """Runs the command, checks its exit status, returns (stdout, stderr)."""
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True,
                              text=True, timeout=240, env=environment(**variables))
        self.assertEqual(done.returncode, code,
                         f"{arguments}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done.stdout, done.stderr

    def json(self, *arguments, code=OK, **variables):
        """Runs it with --json and returns the document."""
        out, _ = self.tileglu(*arguments, "--json", code=code, **variables)
        return strict_json(out)

    def refused(self, code, words, *arguments, **variables):
        """Runs it, expects this status, nothing on stdout, and each word in the message."""
        out, err = self.tileglu(*arguments, code=code, **variables)
        self.assertEqual(out, "", arguments)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, err, arguments)
        return err


# ---- model files ----
def bf16(value):
    """Bytes of the nearest bfloat16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return struct.pack("<H", 0x7FC0)
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


ENCODERS = {
    "BF16": bf16,
    "F16": lambda value: struct.pack("<e", value),
    "F32": lambda value: struct.pack("<f", value),
    "U8": lambda value: struct.pack("<B", int(value) & 255),
}


def write_safetensors(path, tensors, dtype="F32"):
    """tensors: name -> (shape, flat values), or (shape, flat values, dtype)."""
    header, data = {}, b""
    for name, (shape, values, *own) in tensors.items():
        kind = own[0] if own else dtype
        body = b"".join(ENCODERS[kind](v) for v in values)
        header[name] = {"dtype": kind, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def normal(seed, count, scale=1.0):
    source = random.Random(seed)
    return [source.gauss(0, scale) for _ in range(count)]


def write_model(folder, layers=2, hidden=24, intermediate=40, dtype="BF16", seed=1,
                merged=False, bias=False, activation="silu", config=True):
    """A folder with model.safetensors and config.json; returns the folder."""
    n, k = intermediate, hidden
    tensors = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}.mlp."
        base = seed * 1000 + layer * 10

        def matrix(offset, rows, columns):
            return [rows, columns], normal(base + offset, rows * columns, columns ** -0.5)

        if merged:
            tensors[prefix + "gate_up_proj.weight"] = matrix(1, 2 * n, k)
        else:
            tensors[prefix + "gate_proj.weight"] = matrix(1, n, k)
            tensors[prefix + "up_proj.weight"] = matrix(2, n, k)
        tensors[prefix + "down_proj.weight"] = matrix(3, k, n)
        if bias:
            tensors[prefix + "gate_proj.bias"] = [n], normal(base + 4, n)
            tensors[prefix + "up_proj.bias"] = [n], normal(base + 5, n)
            tensors[prefix + "down_proj.bias"] = [k], normal(base + 6, k)
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors, dtype)
    if config:
        (folder / "config.json").write_text(json.dumps(
            {"model_type": "llama", "hidden_act": activation, "hidden_size": k,
             "intermediate_size": n, "num_hidden_layers": layers}))
    return folder


def write_one(folder, gate, up, down, x, activation="silu", dtype="F32", biases=None):
    """One layer with these matrices (lists of rows) and one token x; returns
    (model folder, file of x)."""
    def tensor(rows):
        return [len(rows), len(rows[0])], [v for row in rows for v in row]

    prefix = "model.layers.0.mlp."
    tensors = {prefix + "gate_proj.weight": tensor(gate),
               prefix + "up_proj.weight": tensor(up),
               prefix + "down_proj.weight": tensor(down)}
    for name, values in (biases or {}).items():
        tensors[f"{prefix}{name}_proj.bias"] = [len(values)], values
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors, dtype)
    (folder / "config.json").write_text(json.dumps({"hidden_act": activation}))
    states = write_safetensors(folder / "x.st", {"x": ([1, len(x)], x)}, dtype)
    return folder, states
