"""Committed measurements under results/<card>/ against the kernels as they are.

Every csv with the columns row and row_hash is looked at, for the rows of sm_90a (the
others keep no hash).  A row is stale if its hash is
not today's, or if there is no such row any more.  A stale row fails unless
results/<card>/stale.txt names it: one line a row, "row  date  reason", '#' comments.  An
entry that names no stale row fails too, so that the file empties itself.
"""
import csv
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))
import rows  # noqa: E402


def read_excuses(path):
    """({row: (date, reason)}, faults) of a stale.txt, which need not exist."""
    excuses, faults = {}, []
    if not path.is_file():
        return excuses, faults
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"(\S+)\s+(\d{4}-\d\d-\d\d)\s+(\S.*)", line)
        if not match:
            faults.append(f"{path}:{number}: not \"row  date  reason\"")
            continue
        excuses[match.group(1)] = match.group(2), match.group(3)
    return excuses, faults


def check_card(folder, current):
    """(lines of evidence, faults, excused rows) of one results/<card>/."""
    excuses, faults = read_excuses(folder / "stale.txt")
    lines, stale = 0, {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            fields = reader.fieldnames or []
            if "row_hash" not in fields:
                continue
            if "row" not in fields:
                faults.append(f"{path}: has row_hash and no row")
                continue
            for number, line in enumerate(reader, 2):
                name, value = line["row"], line["row_hash"]
                if not name or value is None or None in line.values():
                    faults.append(f"{path}:{number}: an incomplete line")
                    continue
                if "_sm90_" not in name:
                    continue
                lines += 1
                if name not in current:
                    stale.setdefault(name, f"{path}:{number}: there is no row {name}")
                elif current[name] != value:
                    stale.setdefault(name, f"{path}:{number}: {name} was measured as {value}, "
                                           f"it is {current[name]} now")
    faults += [text for name, text in stale.items() if name not in excuses]
    faults += [f"{folder}/stale.txt: {name} is not stale" for name in excuses
               if name not in stale]
    return lines, faults, sorted(set(stale) & set(excuses))


def check(results, current=None):
    """(lines, faults, excused) over all cards of a results folder."""
    if current is None:
        current = {row.name: rows.row_hash(row) for row in rows.read_rows()}
    lines, faults, excused = 0, [], []
    results = Path(results)
    for folder in sorted(results.iterdir()) if results.is_dir() else []:
        if folder.is_dir():
            more, wrong, named = check_card(folder, current)
            lines, faults, excused = lines + more, faults + wrong, excused + named
    return lines, faults, excused
