#!/usr/bin/env python3
"""embed.py OUT.c [FILE]: the bytes of FILE as the C array bench_cubin; with no FILE an
array of length 0."""
import sys
from pathlib import Path

out, *source = sys.argv[1:]
data = Path(source[0]).read_bytes() if source else b""
lines = [",".join(str(byte) for byte in data[i:i + 32]) + "," for i in range(0, len(data), 32)]
Path(out).write_text('/* Generated. */\n#include "bench_cubin.h"\n\n'
                     "const unsigned char bench_cubin[] __attribute__((aligned(64))) = {\n"
                     + "\n".join(lines or ["0"]) + "\n};\n"
                     f"const size_t bench_cubin_bytes = {len(data)};\n")
