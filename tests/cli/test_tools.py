"""The scripts in tools/, called in a wrong way."""

import pathlib
import subprocess
import sys
import unittest

from support import OK, USAGE

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
TAKE_ONE_FOLDER = ["check_readme.py", "gpu_tables.py", "test_report.py"]


class Tools(unittest.TestCase):
    def call(self, name, *arguments):
        return subprocess.run([sys.executable, "-B", TOOLS / name, *arguments], capture_output=True,
                              text=True, timeout=60)

    def test_a_folder_is_missing_or_one_too_many(self):
        for name in TAKE_ONE_FOLDER:
            for arguments in ([], ["a", "b"], ["--nonsense", "a"]):
                done = self.call(name, *arguments)
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(f"usage: {name}", done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_help(self):
        for name in TAKE_ONE_FOLDER:
            done = self.call(name, "--help")
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertIn("folder", done.stdout)
