"""Where output goes: full devices, terminals, progress."""

import os
import pty
import select
import subprocess
import time

import support
from support import Case, RUNTIME, environment

SHAPE = ["--hidden", "8", "--intermediate", "8"]


class Output(Case):
    def test_full_device(self):
        commands = [["info"], ["info", "--json"], ["verify", *SHAPE],
                    ["explain", *SHAPE, "--json"], ["bench", "--list"],
                    ["bench", "--list", "--json"]]
        for command in commands:
            with open("/dev/full", "w") as full:
                done = subprocess.run([support.BINARY, *command], stdout=full, text=True,
                                      stderr=subprocess.PIPE, env=environment(), timeout=60)
            self.assertEqual(done.returncode, RUNTIME, command)
            self.assertIn("write", done.stderr)

    def test_no_progress_without_a_terminal(self):
        _, err = self.tileglu("verify", "--quick")
        self.assertEqual(err, "")

    def bar_of(self, *command):
        """What a command shows on a terminal until a bar is seen, or it ends."""
        main, side = pty.openpty()
        process = subprocess.Popen([support.BINARY, *command], stdout=subprocess.DEVNULL,
                                   stderr=side, env=environment())
        os.close(side)
        seen, end = b"", time.monotonic() + 120
        try:
            while b"[" not in seen.replace(b"\033[", b"") and time.monotonic() < end:
                if select.select([main], [], [], 1)[0]:
                    try:
                        seen += os.read(main, 4096)
                    except OSError:  # it ended
                        break
        finally:
            process.kill()
            process.wait()
            os.close(main)
        return seen

    def test_progress_on_a_terminal(self):
        seen = self.bar_of("verify", "--full", "--threads", "1", "--seed", "2")
        self.assertIn(b"verify [", seen)
        self.assertIn(b" s", seen)

    def test_progress_within_one_long_case(self):
        seen = self.bar_of("verify", "--hidden", "4096", "--intermediate", "4096", "--tokens",
                           "1000", "--threads", "1", "--cpu-isa", "portable")
        self.assertIn(b"verify [......", seen)

    def test_quick_work_shows_none_on_a_terminal(self):
        main, side = pty.openpty()
        process = subprocess.run([support.BINARY, "verify", *SHAPE], stderr=side,
                                 stdout=subprocess.DEVNULL, env=environment(), timeout=60)
        os.close(side)
        self.assertEqual(process.returncode, 0)
        try:
            shown = os.read(main, 100)
        except OSError:  # the other side is closed and nothing is left
            shown = b""
        os.close(main)
        self.assertEqual(shown, b"")
