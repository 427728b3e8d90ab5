"""Committed measurements under results/<card>/ against the kernels as they are.

Every csv is looked at that has a column X_hash, where X is row or ends in _row (an MLP's
glu_row and down_row), and judged by X, for the rows of sm_90a (the others keep no hash).  A
row is stale if its hash is not today's, or if there is no such row any more: a line of two
rows is stale if either is.  Both X and X_hash may be empty, except the first of a line.  A
stale row fails unless
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


def row_columns(fields):
    """The X of every column X_hash that holds a row's hash."""
    return [field[:-5] for field in fields if re.fullmatch(r"(\w+_)?row_hash", field)]


def check_line(line, columns, current):
    """(names of rows judged, {stale row: what is wrong}), or None if it is incomplete."""
    if None in line or None in line.values() or not line[columns[0]]:
        return None
    names, stale = [], {}
    for column in columns:
        name, value = line[column], line[column + "_hash"]
        if "_sm90_" not in name:
            if value and not name:
                return None
            continue
        if not value:
            return None
        names.append(name)
        if name not in current:
            stale[name] = f"there is no row {name}"
        elif current[name] != value:
            stale[name] = f"{name} was measured as {value}, it is {current[name]} now"
    return names, stale


def check_card(folder, current):
    """(lines of evidence, faults, excused rows) of one results/<card>/."""
    excuses, faults = read_excuses(folder / "stale.txt")
    lines, stale = 0, {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            fields = reader.fieldnames or []
            columns = row_columns(fields)
            if not columns:
                continue
            missing = [column for column in columns if column not in fields]
            if missing:
                faults.append(f"{path}: has {missing[0]}_hash and no {missing[0]}")
                continue
            columns.sort(key=lambda column: fields.index(column))
            for number, line in enumerate(reader, 2):
                found = check_line(line, columns, current)
                if found is None:
                    faults.append(f"{path}:{number}: an incomplete line")
                    continue
                lines += bool(found[0])
                for name, text in found[1].items():
                    stale.setdefault(name, f"{path}:{number}: {text}")
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
