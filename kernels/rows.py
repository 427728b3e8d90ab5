"""Kernel rows: parses rows.def, names rows, hashes what a row is made of.

A row's hash covers the comment-stripped sources that it includes (the schedule
file, and what that includes, inside kernels/sm90) and its own line of rows.def.
So other rows, other schedules and comments do not change it.  Build and evidence
test both call `row_hash`.
"""
import functools
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

SM90 = Path(__file__).resolve().parent / "sm90"
SCHEDULE_FILES = {
    "paired_pingpong": "paired.cuh",
    "paired_coop": "paired.cuh",
    "paired_three": "paired_three.cuh",
    "gate_first": "gate_first.cuh",
    "paired_general": "paired_general.cuh",
    "stream": "stream.cuh",
    "stream_mlp": "stream_mlp.cuh",
    "down_pingpong": "down.cuh",
    "down_coop": "down.cuh",
    "down_split": "down_split.cuh",
    "down_diag": "down_diag.cuh",
}
SCHEDULE_MACROS = {
    "paired_pingpong": "ROW_SCHEDULE_PINGPONG",
    "paired_coop": "ROW_SCHEDULE_COOP",
    "paired_three": "ROW_SCHEDULE_THREE",
    "gate_first": "ROW_SCHEDULE_GATE_FIRST",
    "paired_general": "ROW_SCHEDULE_GENERAL",
    "stream": "ROW_SCHEDULE_STREAM",
    "stream_mlp": "ROW_SCHEDULE_STREAM_MLP",
    "down_pingpong": "ROW_SCHEDULE_DOWN_PINGPONG",
    "down_coop": "ROW_SCHEDULE_DOWN_COOP",
    "down_split": "ROW_SCHEDULE_DOWN_SPLIT",
    "down_diag": "ROW_SCHEDULE_DOWN_DIAG",
}
OPS = ("glu", "down", "mlp")
DTYPES = ("bf16", "f16")
LOADERS = ("tma", "general")
FIELDS = ("op", "dtype", "schedule", "tile_m", "tile_n", "stages", "cluster_m", "loader")


class Row(NamedTuple):
    op: str
    dtype: str
    schedule: str
    tile_m: int
    tile_n: int
    stages: int
    cluster_m: int
    loader: str

    @property
    def name(self):
        """Name of the row and of its kernel; src/plan/rows.c builds the same."""
        return (f"{self.op}_{self.dtype}_sm90_{self.schedule}_{self.tile_m}x{self.tile_n}"
                f"_s{self.stages}_c{self.cluster_m}")

    @property
    def line(self):
        """The row's line of rows.def, white space taken out."""
        return "ROW(" + ",".join(str(field) for field in self) + ")"

    @property
    def unit(self):
        """Text of the row's translation unit: every ROW_ macro is there, the ones of
        alternatives as 0 or 1."""
        defines = [("ROW_NAME", self.name)]
        defines += [(f"ROW_OP_{name.upper()}", int(name == self.op)) for name in OPS]
        defines += [(f"ROW_DTYPE_{name.upper()}", int(name == self.dtype)) for name in DTYPES]
        defines += [(f"ROW_{field.upper()}", getattr(self, field))
                    for field in ("tile_m", "tile_n", "stages", "cluster_m")]
        defines += [(f"ROW_LOADER_{name.upper()}", int(name == self.loader))
                    for name in LOADERS]
        defines += [(macro, int(name == self.schedule))
                    for name, macro in SCHEDULE_MACROS.items()]
        lines = [f"#define {name} {value}" for name, value in defines]
        return "\n".join(lines) + f'\n#include "{SCHEDULE_FILES[self.schedule]}"\n'


@functools.lru_cache(maxsize=None)  # every row includes much the same files
def strip_comments(text):
    """C source without comments, blank lines and changes of white space; string
    and character literals are kept as they are."""
    token = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*',
                       re.DOTALL)
    text = text.replace("\\\n", " ")
    text = token.sub(lambda m: " " if m.group()[0] == "/" else m.group(), text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def read_rows(sm90=SM90):
    """The rows of rows.def, in order.  ValueError on a line that is none."""
    rows = []
    for line in strip_comments((Path(sm90) / "rows.def").read_text()).splitlines():
        match = re.fullmatch(r"ROW\s*\((.*)\)", line)
        values = [value.strip() for value in match.group(1).split(",")] if match else []
        if len(values) != len(FIELDS):
            raise ValueError(f"rows.def: not a row: {line}")
        try:
            row = Row(*values[:3], *(int(value) for value in values[3:7]), values[7])
        except ValueError:
            raise ValueError(f"rows.def: a size is not a number: {line}") from None
        known = {"op": OPS, "dtype": DTYPES, "schedule": SCHEDULE_FILES,
                 "loader": LOADERS}
        for field, names in known.items():
            if getattr(row, field) not in names:
                raise ValueError(f"rows.def: {field} {getattr(row, field)} is none of "
                                 f"{', '.join(names)}: {line}")
        rows.append(row)
    names = [row.name for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"rows.def: two rows are named {name}")
    return rows


def row_sources(row, sm90=SM90):
    """Files of kernels/sm90 that the row includes, by name, in sorted order.  A
    schedule file that does not exist yet counts as empty."""
    found, queue = set(), [SCHEDULE_FILES[row.schedule]]
    while queue:
        name = queue.pop()
        path = Path(sm90) / name
        if name in found or not path.is_file():
            continue
        found.add(name)
        text = strip_comments(path.read_text())
        queue += re.findall(r'^# ?include "([^"]+)"', text, re.MULTILINE)
    found.discard("rows.def")
    return sorted(found)


def row_hash(row, sm90=SM90):
    """16 hex digits over the row's sources and its line."""
    digest = hashlib.sha256()
    for name in row_sources(row, sm90):
        digest.update(f"{name}\n{strip_comments((Path(sm90) / name).read_text())}\n".encode())
    digest.update(row.line.encode())
    return digest.hexdigest()[:16]
