#!/usr/bin/env python3
"""Writes the build's view of rows.def, at configure time.

  gen_rows.py FOLDER   one <row>.cu a row, rewritten only if it changed; prints the
                       names of the rows, separated by semicolons
"""
import sys
from pathlib import Path

import rows


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    table = rows.read_rows()
    for row in table:
        unit = folder / f"{row.name}.cu"
        if not unit.is_file() or unit.read_text() != row.unit:
            unit.write_text(row.unit)
    print(";".join(row.name for row in table), end="")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(str(error))
