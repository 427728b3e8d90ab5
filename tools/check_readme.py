#!/usr/bin/env python3
"""Compiles README's C program against an installed copy and runs it.

    tools/check_readme.py BUILD_FOLDER

Installs the build into a temporary folder, compiles the program as printed with the
flags that pkg-config gives, and compares its output with the one README shows.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def block(text, language, containing):
    """The first fenced block of a language that contains a string."""
    for body in re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S):
        if containing in body:
            return body
    sys.exit(f"error: README.md has no {language} block with {containing!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build_folder", help="a build of the library and the command")
    build = parser.parse_args().build_folder
    text = (ROOT / "README.md").read_text()
    program = block(text, "c", "int main")
    shown = block(text, "text", "h[0][0]")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["cmake", "--install", build, "--prefix", str(folder / "prefix")],
                       check=True, stdout=subprocess.DEVNULL)
        (folder / "program.c").write_text(program)
        pc = next((folder / "prefix").rglob("tileglu.pc"))
        env = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}
        env.pop("LD_LIBRARY_PATH", None)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "tileglu"], env=env,
                               check=True, capture_output=True, text=True).stdout.split()
        libdir = subprocess.run(["pkg-config", "--variable=libdir", "tileglu"], env=env,
                                check=True, capture_output=True, text=True).stdout.strip()
        flags.append(f"-Wl,-rpath,{libdir}")
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                        "program.c", "-o", "program", *flags], cwd=folder, env=env, check=True)
        printed = subprocess.run([str(folder / "program")], env=env, check=True,
                                 capture_output=True, text=True).stdout
        # The installed command must find its library without help, too.
        subprocess.run([str(folder / "prefix" / "bin" / "tileglu"), "info"], env=env, check=True,
                       stdout=subprocess.DEVNULL)
    if printed != shown:
        sys.exit(f"error: README shows {shown!r}, the program printed {printed!r}")
    lines = len(program.strip().split("\n"))
    print(f"README's program ({lines} lines) compiles against the installed library and "
          f"prints {printed.strip()!r}")


if __name__ == "__main__":
    main()
