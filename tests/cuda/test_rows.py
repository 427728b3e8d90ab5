#!/usr/bin/env python3
"""Tests of the kernel build's Python: rows.def, names, hashes, the judge of ptxas."""
import argparse
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
sys.path.insert(0, str(KERNELS))
import build_row  # noqa: E402
import rows  # noqa: E402

GOOD = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 5 barriers, 1024 bytes smem
"""


class Judge(unittest.TestCase):
    def test_good(self):
        self.assertEqual(build_row.judge(GOOD), [])
        self.assertEqual(build_row.facts(GOOD), (168, 1024, 5))

    def test_each_fault(self):
        cases = {
            "stack frame": GOOD.replace("0 bytes stack frame", "8 bytes stack frame"),
            "spill stores": GOOD.replace("0 bytes spill stores", "4 bytes spill stores"),
            "spill loads": GOOD.replace("0 bytes spill loads", "16 bytes spill loads"),
            "local memory": GOOD + "ptxas info : 32 bytes lmem\n",
            "C75xx": GOOD + "ptxas info    : (C7510) Potential Performance Loss: "
                            "wgmma.mma_async instructions are serialized due to x\n",
            "ignored setmaxnreg": GOOD + "ptxas warning : setmaxnreg ignored to maintain "
                                         "minimum requirements\n",
            "serialised wgmma": GOOD + "wgmma.mma_async are serialized\n",
            "no register count": "",
        }
        for name, report in cases.items():
            faults = build_row.judge(report)
            self.assertTrue(any(name in fault for fault in faults), (name, faults))

    def test_second_kernel_counts(self):
        self.assertTrue(build_row.judge(GOOD + GOOD.replace("0 bytes spill loads",
                                                            "4 bytes spill loads")))


class Fatbinary(unittest.TestCase):
    """It is sought beside nvcc, then beside the program that a link of that name leads to."""
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        path = mock.patch.dict(os.environ, {"PATH": str(self.folder / "path")})
        path.start()
        self.addCleanup(path.stop)

    def program(self, name, text=""):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n" + text)
        file.chmod(0o755)
        return file

    def test_beside_nvcc(self):
        nvcc, tool = self.program("cu da/bin/nvcc"), self.program("cu da/bin/fatbinary")
        self.program("path/fatbinary")
        self.assertEqual(build_row.find_fatbinary(str(nvcc)), tool)

    def test_beside_what_a_link_leads_to(self):
        nvcc, tool = self.program("cuda/bin/nvcc"), self.program("cuda/bin/fatbinary")
        link = self.folder / "path" / "nvcc"
        link.parent.mkdir()
        link.symlink_to(nvcc)
        self.assertEqual(build_row.find_fatbinary("nvcc"), tool)
        own = self.program("path/fatbinary")
        self.assertEqual(build_row.find_fatbinary("nvcc"), own)

    def test_on_the_path(self):
        tool = self.program("path/fatbinary")
        self.assertEqual(build_row.find_fatbinary(str(self.program("bin/nvcc"))), str(tool))

    def test_failures_name_the_row(self):
        row = rows.read_rows()[0]
        args = argparse.Namespace(nvcc=str(self.program("bin/nvcc")), pack=["--pack"])
        with self.assertRaisesRegex(SystemExit, f"{row.name}: there is no fatbinary"):
            build_row.compress(args, row, self.folder / "k.cubin")
        self.program("bin/fatbinary", "echo bad option $3 >&2\nexit 1\n")
        with self.assertRaisesRegex(SystemExit, f"{row.name}: fatbinary failed(.|\n)*--pack"):
            build_row.compress(args, row, self.folder / "k.cubin")


class Table(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.sm90 = Path(self.folder.name) / "sm90"
        shutil.copytree(rows.SM90, self.sm90)

    def tearDown(self):
        self.folder.cleanup()

    def hashes(self):
        return {row.name: rows.row_hash(row, self.sm90) for row in rows.read_rows(self.sm90)}

    def edit(self, name, change):
        path = self.sm90 / name
        before = path.read_text()
        after = change(before)
        self.assertNotEqual(before, after)
        path.write_text(after)

    def test_hashes(self):
        first = self.hashes()
        self.assertTrue(first)
        self.assertEqual(len(set(first.values())), len(first))
        self.assertTrue(all(len(value) == 16 and int(value, 16) >= 0
                            for value in first.values()))
        self.assertEqual(first, {row.name: rows.row_hash(row) for row in rows.read_rows()})

    def test_comments_and_spaces_do_not_age(self):
        first = self.hashes()
        for name in ("paired.cuh", "launch.h", "rows.def"):
            self.edit(name, lambda text: "/* a new\n comment */\n\n" + text + "\n// end\n")
        self.edit("rows.def", lambda text: text.replace(", ", ",   "))
        self.assertEqual(first, self.hashes())

    def test_code_ages_what_includes_it(self):
        first = self.hashes()
        self.edit("gate_first.cuh", lambda text: text + "\nstatic int added;\n")
        for row in rows.read_rows(self.sm90):
            changed = self.hashes()[row.name] != first[row.name]
            self.assertEqual(changed, row.schedule == "gate_first", row.name)
        first = self.hashes()
        self.edit("smem_layout.h", lambda text: text + "\nstatic int added;\n")
        second = self.hashes()
        self.assertTrue(all(first[name] != second[name] for name in first))

    def test_another_row_does_not_age(self):
        first = self.hashes()
        self.edit("rows.def", lambda text: text + "\nROW(glu, f16, paired_coop, 128, 8, 2, 1, tma)\n")
        second = self.hashes()
        self.assertEqual(len(second), len(first) + 1)
        self.assertTrue(all(second[name] == first[name] for name in first))

    def test_bad_rows_are_refused(self):
        bad = ["ROW(glu, bf16, paired_coop, 128, 128, 4, 2)",
               "ROW(glu, f32, paired_coop, 128, 128, 4, 2, tma)",
               "ROW(glu, bf16, unheard_of, 128, 128, 4, 2, tma)",
               "ROW(glu, bf16, paired_coop, wide, 128, 4, 2, tma)",
               "ROW(glu, bf16, paired_coop, 128, 128, 4, 2, lorry)",
               "int x;"]
        good = (self.sm90 / "rows.def").read_text()
        for line in bad:
            (self.sm90 / "rows.def").write_text(good + "\n" + line + "\n")
            with self.assertRaises(ValueError, msg=line):
                rows.read_rows(self.sm90)
        line = rows.read_rows()[0].line
        (self.sm90 / "rows.def").write_text(good + "\n" + line + "\n")
        with self.assertRaises(ValueError):
            rows.read_rows(self.sm90)

    def test_every_source_of_a_row_is_found(self):
        for row in rows.read_rows():
            sources = rows.row_sources(row)
            self.assertIn(rows.SCHEDULE_FILES[row.schedule], sources)
            self.assertIn("launch.h", sources)
            stream = row.schedule.startswith("stream")
            self.assertIn("stream_launch.h" if stream else "wgmma.cuh", sources)
            self.assertNotIn("rows.def", sources)


class Strip(unittest.TestCase):
    def test_strings_are_kept(self):
        text = 'a = "/* no */"; /* yes */ b = \'"\'; // "gone"\nc /* x\ny */ = 1;\n\n\n'
        self.assertEqual(rows.strip_comments(text),
                         'a = "/* no */"; b = \'"\';\nc = 1;')


if __name__ == "__main__":
    unittest.main()
