#!/usr/bin/env python3
"""Runs test modules of this folder against a built command.

    run_tests.py PATH-OF-TILEGLU [MODULE ...]

Ends with "N passed, N failed, N skipped"; that no test ran is a failure.
"""

import pathlib
import sys
import unittest

import support


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(__file__).parent
    support.BINARY = sys.argv[1]
    modules = sys.argv[2:] or sorted(path.stem for path in folder.glob("test_*.py"))
    suite = unittest.TestLoader().loadTestsFromNames(modules)
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    passed = result.testsRun - bad - skipped
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    print(f"{passed} passed, {bad} failed, {skipped} skipped")
    sys.exit(0 if bad == 0 and passed > 0 else 1)


if __name__ == "__main__":
    main()
