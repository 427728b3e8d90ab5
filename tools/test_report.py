#!/usr/bin/env python3
"""Adds up what tools/test.sh ran and prints one closing line.

Reads a folder with, per step, NAME.txt (its output) and NAME.status (its exit
status), and for CTest steps NAME.xml (CTest's JUnit file).  A CTest test counts as
the cases that its output reports (cmocka's summary, or an "N passed, N failed, N
skipped" line), else as one.  A step that failed counts at least one failure, and a
step in which nothing ran is a failure.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

COUNTS = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\.?$", re.M)
CMOCKA = {
    "passed": re.compile(r"^\[  PASSED  \] (\d+) test\(s\)", re.M),
    "failed": re.compile(r"^\[  FAILED  \] (\d+) test\(s\)", re.M),
    "skipped": re.compile(r"^\[  SKIPPED \] (\d+) test\(s\)", re.M),
}
CMOCKA_SKIP = re.compile(r"\[  SKIPPED \]|\s*\d+ SKIPPED TEST")
SKIP_REASON = re.compile(r"^.*\bskip(?:ped|s|ping)?\b.*$", re.M | re.I)


def counts_in(text):
    """(passed, failed, skipped) that an output reports, or None if it has no such line."""
    found = [tuple(int(n or 0) for n in match) for match in COUNTS.findall(text)]
    if found:
        return found[-1]
    sums = {key: [int(n) for n in regex.findall(text)] for key, regex in CMOCKA.items()}
    if any(sums.values()):
        return tuple(sum(sums[key]) for key in ("passed", "failed", "skipped"))
    return None


def ctest_results(path):
    """(name, counts, output) of each test in a CTest JUnit file."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        status = case.get("status")
        if status in ("notrun", "disabled"):
            skipped = case.find("skipped")
            reason = skipped.get("message", "") if skipped is not None else ""
            if status == "notrun" and "SKIP" not in reason.upper():
                yield case.get("name"), (0, 1, 0), f"did not run: {reason}"
            else:
                yield case.get("name"), (0, 0, 1), output or f"skipped: {reason}"
            continue
        counts = counts_in(output)
        if counts is None:
            counts = (1, 0, 0) if status == "run" else (0, 1, 0)
        elif status != "run" and counts[1] == 0:
            counts = (counts[0], 1, counts[2])
        elif status == "run" and counts[1] > 0:
            output += "\n(the test reports failures but exited 0)"
        yield case.get("name"), counts, output


def step_results(folder, name):
    status = int((folder / f"{name}.status").read_text())
    text = (folder / f"{name}.txt").read_text(errors="replace")
    junit = folder / f"{name}.xml"
    if junit.exists():
        results = list(ctest_results(junit))
        if status != 0 and not any(counts[1] for _, counts, _ in results):
            results.append((name, (0, 1, 0), "ctest itself failed"))
    else:
        counts = counts_in(text) or ((1, 0, 0) if status == 0 else (0, 1, 0))
        if status != 0 and counts[1] == 0:
            counts = (counts[0], 1, counts[2])
        results = [(name, counts, text)]
    if not any(sum(counts) for _, counts, _ in results):
        results.append((name, (0, 1, 0), "no test ran"))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="what tools/test.sh wrote of its steps")
    folder = parser.parse_args().folder
    total, failures, reasons = [0, 0, 0], [], {}
    for status in sorted(folder.glob("*.status"), key=lambda path: path.stat().st_mtime):
        name = status.stem
        results = step_results(folder, name)
        sums = [sum(counts[i] for _, counts, _ in results) for i in range(3)]
        print(f"{name:24} {sums[0]:6} passed {sums[1]:4} failed {sums[2]:4} skipped")
        total = [a + b for a, b in zip(total, sums)]
        for test, counts, output in results:
            if counts[1]:
                failures.append(f"{name}: {test}")
            if counts[2]:
                lines = [line.strip() for line in SKIP_REASON.findall(output)
                         if not CMOCKA_SKIP.match(line) and not COUNTS.match(line)]
                for line in dict.fromkeys(lines[:20] or [f"{test}: no reason given"]):
                    reasons[line[:160]] = reasons.get(line[:160], 0) + 1
    if reasons:
        print("Skips, and how many steps or tests said so:")
        for line, count in list(reasons.items())[:40]:
            print(f"  {count} x  {line}")
    for failure in failures:
        print(f"FAILED {failure}")
    if sum(total) == 0:
        print("no test ran")
        total[1] = 1
    print("{} passed, {} failed, {} skipped".format(*total))
    sys.exit(1 if total[1] else 0)


if __name__ == "__main__":
    main()
