#!/usr/bin/env python3
"""The evidence test: committed measurements belong to the kernels as they are.  Before
it judges results/ it shows on doctored copies that it can fail."""
import sys
import tempfile
import unittest
from pathlib import Path

import evidence

RESULTS = Path(__file__).resolve().parents[2] / "results"
NOW = {"glu_sm90_a": "0123456789abcdef", "glu_sm90_b": "fedcba9876543210"}
HEAD = "date,row_hash,row,us\n"


class Doctored(unittest.TestCase):
    def judge(self, text, stale=None):
        with tempfile.TemporaryDirectory() as folder:
            card = Path(folder) / "h200"
            card.mkdir()
            (card / "glu.csv").write_text(text)
            if stale is not None:
                (card / "stale.txt").write_text(stale)
            return evidence.check(folder, NOW)

    def test_current_passes(self):
        lines, faults, excused = self.judge(HEAD + "2026-01-01,0123456789abcdef,glu_sm90_a,1\n")
        self.assertEqual((lines, faults, excused), (1, [], []))

    def test_old_hash_fails(self):
        lines, faults, _ = self.judge(HEAD + "2026-01-01,0123456789abcdee,glu_sm90_a,1\n")
        self.assertEqual((lines, len(faults)), (1, 1))
        self.assertIn("glu_sm90_a was measured as 0123456789abcdee", faults[0])

    def test_unknown_row_fails(self):
        self.assertEqual(len(self.judge(HEAD + "2026-01-01,0123456789abcdef,glu_sm90_c,1\n")[1]), 1)

    def test_incomplete_line_fails(self):
        self.assertEqual(len(self.judge(HEAD + "2026-01-01,0123456789abcdef\n")[1]), 1)

    def test_excuse(self):
        text = HEAD + "2026-01-01,0123456789abcdee,glu_sm90_a,1\n"
        self.assertEqual(self.judge(text, "glu_sm90_a 2026-02-01 tuned, card away\n"),
                         (1, [], ["glu_sm90_a"]))
        self.assertEqual(len(self.judge(text, "glu_sm90_a\n")[1]), 2)
        self.assertEqual(len(self.judge(text, "glu_sm90_b 2026-02-01 wrong one\n")[1]), 2)

    def test_excuse_without_need_fails(self):
        text = HEAD + "2026-01-01,0123456789abcdef,glu_sm90_a,1\n"
        self.assertEqual(len(self.judge(text, "glu_sm90_a 2026-02-01 no longer\n")[1]), 1)

    def judge_pair(self, text):
        return self.judge("date,glu_row_hash,down_row_hash,glu_row,down_row,us\n" + text)

    def test_both_rows_of_an_mlp_count(self):
        good = "2026-01-01,0123456789abcdef,fedcba9876543210,glu_sm90_a,glu_sm90_b,1\n"
        self.assertEqual(self.judge_pair(good), (1, [], []))
        for old in (good.replace("0123", "1123"), good.replace("fedc", "eedc"),
                    good.replace("glu_sm90_b", "glu_sm90_c")):
            lines, faults, _ = self.judge_pair(good + old)
            self.assertEqual((lines, len(faults)), (2, 1), old)
        self.assertEqual(len(self.judge_pair(good.replace("fedcba9876543210", ""))[1]), 1)
        self.assertEqual(len(self.judge_pair(good.replace("glu_sm90_b", ""))[1]), 1)
        one = good.replace("fedcba9876543210", "").replace("glu_sm90_b", "")
        self.assertEqual(self.judge_pair(one), (1, [], []))

    def test_a_hash_without_its_row_column_fails(self):
        self.assertEqual(len(self.judge("date,glu_row_hash,us\n2026-01-01,0,1\n")[1]), 1)

    def test_other_csv_is_left_alone(self):
        self.assertEqual(self.judge("m,us\n1,2\n"), (0, [], []))


class Results(unittest.TestCase):
    def test_results(self):
        lines, faults, excused = evidence.check(RESULTS)
        print(f"{lines} lines of evidence, {len(excused)} rows excused by stale.txt",
              file=sys.stderr)
        self.assertEqual(faults, [], "\n".join(faults))
        if lines == 0:
            self.skipTest("no evidence under results/ yet")


if __name__ == "__main__":
    unittest.main()
