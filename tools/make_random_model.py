#!/usr/bin/env python3
"""Makes a model folder with random MLP weights, for `tileglu run` and `verify`.

    python3 tools/make_random_model.py FOLDER --hidden 896 --intermediate 4864 --layers 2

model.safetensors holds gate_proj, up_proj and down_proj of each layer in bf16, normal with
deviation 1 / sqrt(columns); config.json the sizes, as Qwen2.5's.  The same seed gives the
same file.  Needs Python alone: every matrix is made of pieces, drawn at random, of a pool of
a million numbers.
"""

import argparse
import json
import random
import struct
from pathlib import Path

POOL, PIECE = 1 << 20, 1 << 14


def bf16(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def make_pool(source, columns):
    values = [bf16(source.gauss(0, columns ** -0.5)) for _ in range(POOL)]
    return struct.pack(f"<{POOL}H", *values)


def write_matrix(file, source, pool, count):
    while count > 0:
        size = min(count, PIECE)
        start = source.randrange(POOL - size + 1)
        file.write(pool[2 * start:2 * (start + size)])
        count -= size


def describe(layers, hidden, intermediate):
    """(header of the safetensors file, its matrices' columns and counts)"""
    header, matrices, at = {}, [], 0
    for layer in range(layers):
        for name, rows, columns in (("gate_proj", intermediate, hidden),
                                    ("up_proj", intermediate, hidden),
                                    ("down_proj", hidden, intermediate)):
            end = at + 2 * rows * columns
            header[f"model.layers.{layer}.mlp.{name}.weight"] = {
                "dtype": "BF16", "shape": [rows, columns], "data_offsets": [at, end]}
            matrices.append((columns, rows * columns))
            at = end
    text = json.dumps(header).encode()
    return text + b" " * (-len(text) % 8), matrices


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--intermediate", type=int, required=True)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    source = random.Random(args.seed)
    pools = {columns: make_pool(source, columns)
             for columns in dict.fromkeys((args.hidden, args.intermediate))}
    header, matrices = describe(args.layers, args.hidden, args.intermediate)
    args.folder.mkdir(parents=True, exist_ok=True)
    with open(args.folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for columns, count in matrices:
            write_matrix(file, source, pools[columns], count)
    (args.folder / "config.json").write_text(json.dumps(
        {"model_type": "qwen2", "hidden_act": "silu", "hidden_size": args.hidden,
         "intermediate_size": args.intermediate, "num_hidden_layers": args.layers}) + "\n")


if __name__ == "__main__":
    main()
