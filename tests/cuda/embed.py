#!/usr/bin/env python3
"""embed.py NAME FILE OUT.c: the bytes of FILE as a C array NAME, on 64 bytes."""
import sys
from pathlib import Path

name, source, out = sys.argv[1:]
data = Path(source).read_bytes()
lines = [",".join(str(byte) for byte in data[i:i + 32]) + "," for i in range(0, len(data), 32)]
Path(out).write_text(f"extern const unsigned char {name}[];\n"
                     f"const unsigned char {name}[] __attribute__((aligned(64))) = {{\n"
                     + "\n".join(lines) + "\n};\n")
