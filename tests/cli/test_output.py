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
                    ["explain", *SHAPE, "--json"], ["bench", "--list"]]
        for command in commands:
            with open("/dev/full", "w") as full:
                done = subprocess.run([support.BINARY, *command], stdout=full, text=True,
                                      stderr=subprocess.PIPE, env=environment(), timeout=60)
            self.assertEqual(done.returncode, RUNTIME, command)
            self.assertIn("write", done.stderr)

    def test_no_progress_without_a_terminal(self):
        _, err = self.tileglu("verify", "--quick")
        self.assertEqual(err, "")

    def test_progress_on_a_terminal(self):
        """A sweep of minutes shows a bar within its first seconds."""
        main, side = pty.openpty()
        process = subprocess.Popen([support.BINARY, "verify", "--full", "--threads", "1"],
                                   stdout=subprocess.DEVNULL, stderr=side, env=environment())
        os.close(side)
        seen, end = b"", time.monotonic() + 120
        try:
            while b"verify [" not in seen and time.monotonic() < end:
                if select.select([main], [], [], 1)[0]:
                    try:
                        seen += os.read(main, 4096)
                    except OSError:
                        break
                elif process.poll() is not None:
                    break
        finally:
            process.kill()
            process.wait()
            os.close(main)
        self.assertIn(b"verify [", seen)
        self.assertIn(b"s left", seen)

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
