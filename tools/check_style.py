#!/usr/bin/env python3
"""The source rules that a machine can check (CONTRIBUTING.md, "Rules").

Comments and strings are blanked before words are looked for.  Prints each breach
as path:line: rule, and fails if there is one.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED_FOLDERS = {".git", ".venv", ".cache", "dist", "results", "__pycache__"}
C_LIKE = {".c", ".h", ".cu", ".cuh", ".def", ".cc", ".cpp"}
TEXT = C_LIKE | {".py", ".sh", ".txt", ".cmake", ".md"}
MAX_LINES, MAX_COLUMNS = 700, 100

# (pattern, where it is looked for, where it is allowed, the rule)
BANNED = [
    (r"\b(?:asm|__asm__|__asm)\b", r"^(?:src|kernels|cli|include|tests|bench|python)/",
     r"^kernels/sm90/(?:ptx|wgmma)(?:_\w+)?\.cuh$|^src/.*cpuid",
     "inline assembly belongs in kernels/sm90/ptx*.cuh or wgmma*.cuh"),
    (r"\b(?:exit|_exit|_Exit|quick_exit|abort|printf|fprintf|vprintf|vfprintf|puts|perror)\s*\(",
     r"^src/", r"^$", "the library never exits, aborts or prints"),
    (r"\bassert\s*\(", r"^src/", r"^$", "the library never aborts: return a status"),
    (r"\b(?:secure_)?getenv\s*\(", r"^src/", r"^src/context\.c$",
     "only src/context.c reads the environment"),
    (r"\b_mm\w*\s*\(|\bimmintrin\.h\b", r"^src/", r"^src/cpu/kernels/",
     "intrinsics belong in src/cpu/kernels"),
    (r"#\s*if\s+0\b", r"", r"^$", "no dead code"),
]
TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code_only(text):
    """The text with comments and strings blanked, line by line in place."""
    return TOKENS.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def files():
    for path in sorted(ROOT.rglob("*")):
        relative = path.relative_to(ROOT)
        if relative.parts[0].startswith("build"):
            continue
        if path.is_file() and not SKIPPED_FOLDERS.intersection(relative.parts) and (
                path.suffix in TEXT or path.name in ("Makefile", "CMakeLists.txt")):
            yield path, relative.as_posix()


def check(path, name):
    """Yields (line number, rule) for each breach in one file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield 1, "not UTF-8"
        return
    lines = text.split("\n")
    if text and not text.endswith("\n"):
        yield len(lines), "no newline at the end of the file"
    is_code = path.suffix in C_LIKE or path.suffix in (".py", ".sh")
    if is_code and path.suffix != ".def" and len(lines) - 1 > MAX_LINES:
        yield len(lines), f"{len(lines) - 1} lines; at most {MAX_LINES} are allowed"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if path.suffix in C_LIKE and path.suffix != ".def" and len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns; at most {MAX_COLUMNS} are allowed"
        if path.suffix in C_LIKE and "\t" in line:
            yield number, "tab"
    if path.suffix in C_LIKE:
        code = code_only(text)
        for pattern, where, allowed, rule in BANNED:
            if re.search(where, name) and not re.search(allowed, name):
                for match in re.finditer(pattern, code):
                    yield code.count("\n", 0, match.start()) + 1, rule
    if path.suffix == ".py":
        try:
            compile(text, name, "exec")
        except SyntaxError as error:
            yield error.lineno or 1, f"does not parse: {error.msg}"


def main():
    breaches = count = 0
    for path, name in files():
        count += 1
        for line, rule in check(path, name):
            print(f"{name}:{line}: {rule}")
            breaches += 1
    print(f"style: {count} files, {breaches} breaches")
    if count == 0:
        print("style: no file was checked")
    sys.exit(1 if breaches or count == 0 else 0)


if __name__ == "__main__":
    main()
