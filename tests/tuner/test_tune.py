#!/usr/bin/env python3
"""tileglu tune from outside, on a fake GPU and on the CPU: candidates that fail in every way,
a tuner that is killed, places that cannot be written."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TILEGLU = os.environ["TUNE_TILEGLU"]
FAKE, FAULTS = os.environ["TUNE_FAKE"], os.environ["TUNE_FAULTS"]
HAVE_NVCC = bool(os.environ.get("TUNE_NVCC"))
SANITIZE = os.environ.get("TUNE_SANITIZE", "")
OK, FLAWED, USAGE, UNSAVED, RUNTIME = range(5)

QUICK = ["--settle-ms", "0.2", "--sample-ms", "0.2", "--rounds", "3"]
CUDA = ["--backend", "cuda", "--cuda-library", FAULTS, "--nvml", FAKE, *QUICK]
SHAPE = ["--hidden", "64", "--intermediate", "128", "--tokens", "3", "--op", "glu"]
CPU = ["--backend", "cpu", "--threads", "1", "--dtype", "f32", *QUICK]
HEAD = b"tileglu-tune 1\n"


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return value


def read_cache(path):
    """The lines of a whole cache, as lists of fields; an AssertionError if it is none."""
    data = pathlib.Path(path).read_bytes()
    assert data.startswith(HEAD), data[:40]
    body = data[:data.rindex(b"end ")]
    lines = body[len(HEAD):].decode("ascii").splitlines()
    assert data[len(body):] == b"end %d %016x\n" % (len(lines), fnv(body)), data[-60:]
    fields = [line.split("\t") for line in lines]
    assert all(len(f) == 15 for f in fields)
    keys = [tuple(f[:11]) for f in fields]
    assert len(keys) == len(set(keys))
    return fields


def environment(**changes):
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("TILEGLU_", "FAKE_", "FAULT_"))}
    return {k: str(v) for k, v in {**kept, **changes}.items() if v is not None}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tileglu-tune-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "tune.txt"

    def command(self, *arguments, **variables):
        variables.setdefault("TILEGLU_TUNE_CACHE", self.cache)
        return [str(w) for w in (TILEGLU, *arguments)], environment(**variables)

    def tileglu(self, *arguments, code=OK, **variables):
        words, env = self.command(*arguments, **variables)
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)
        self.assertEqual(done.returncode, code,
                         f"{words}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        self.assertNotIn("Sanitizer", done.stderr)
        self.assertNotIn("runtime error", done.stderr)
        return done.stdout, done.stderr

    def tune(self, *arguments, code=OK, **variables):
        """The JSON document of a run, and what it said."""
        out, err = self.tileglu("tune", *arguments, "--json", code=code, **variables)
        return json.loads(out), err

    def workers(self, parent):
        """The processes that work for this tuner."""
        mark, found = f"--worker={parent}:".encode(), []
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += [entry] if mark in entry.read_bytes() else []
            except OSError:
                pass
        return found

    def assert_no_worker(self, parent):
        """A killed tuner's worker goes, too."""
        for _ in range(100):
            if not self.workers(parent):
                return
            time.sleep(0.05)
        self.fail(f"workers are left: {self.workers(parent)}")

    def assert_ranked(self, found):
        """The second is measured in full, as the winner is, and not faster; nor is a row that
        was left out faster than either."""
        self.assertGreater(len(found["points"]), 0)
        for point in found["points"]:
            times = {c["row"]: c["us"] for c in point["candidates"] if c["us"] is not None}
            timed = [r for r, state in self.states(point).items() if state == "timed"]
            ranking = sorted(timed, key=times.get)
            self.assertEqual(point["us"], times[ranking[0]])
            if len(times) == 1:
                self.assertIsNone(point["runner_up"])
                continue
            self.assertEqual(point["runner_up_us"], times[ranking[1]])
            self.assertGreaterEqual(point["runner_up_us"], point["us"])
            for row in set(times) - set(timed):
                self.assertGreaterEqual(times[row], point["runner_up_us"], row)

    def states(self, point):
        return {c["row"]: c["state"] for c in point["candidates"]}


class Gpu(Case):
    def setUp(self):
        if not HAVE_NVCC:
            self.skipTest("built without nvcc: there are no kernels to launch")
        super().setUp()

    def ranking(self):
        """Rows of the usual shape, fastest first; nothing is stored."""
        found, _ = self.tune(*SHAPE, *CUDA, "--dry-run", "--within", "1000")
        self.assertFalse(self.cache.exists())
        timed = [c for c in found["points"][0]["candidates"] if c["state"] == "timed"]
        self.assertGreater(len(timed), 5)
        return [c["row"] for c in sorted(timed, key=lambda c: c["us"])]

    def test_winner_and_second_are_stored(self):
        ranking = self.ranking()
        found, err = self.tune(*SHAPE, *CUDA)
        point = found["points"][0]
        self.assertEqual([point["row"], point["runner_up"]], ranking[:2])
        self.assertEqual(found["stored"], 1)
        self.assert_ranked(found)
        self.assertIn(point["untuned"], ranking)
        self.assertIn(ranking[0], err)
        (line,) = read_cache(self.cache)
        self.assertEqual(line[2:4], ["cuda", "Fake H200"])
        self.assertEqual(line[5:10], ["13000", "bf16", "glu", "128", "64"])
        self.assertGreaterEqual(int(line[10]), 3)
        self.assertEqual([line[11], line[13]], ranking[:2])
        self.assertLessEqual(int(line[12]), int(line[14]))

    def test_one_launch_or_two(self):
        shape = ["--hidden", "64", "--intermediate", "128"]
        for variables, code in (({}, OK), ({"FAKE_WRONG": "mlp_bf16"}, FLAWED)):
            found, _ = self.tune(*shape, "--tokens", "3,9", *CUDA, code=code, **variables)
            points = found["points"]
            self.assertEqual([(p["op"], p["tokens"]) for p in points],
                             [("glu", 3), ("down", 3), ("mlp", 3), ("glu", 9), ("down", 9)])
            self.assertEqual(found["stored"], 5)
            self.assert_ranked(found)
            glu, down, mlp = (p["row"] for p in points[:3])
            names = [c["row"] for c in points[2]["candidates"]]
            self.assertEqual(names[-1], glu)
            self.assertGreater(len(names), 1)
            self.assertTrue(all(name.startswith("mlp_bf16_") for name in names[:-1]), names)
            if code == FLAWED:
                self.assertEqual(mlp, glu)
            self.assertEqual([f[11] for f in read_cache(self.cache) if f[7] == "mlp"], [mlp])
            out, _ = self.tileglu("explain", *shape, "--tokens", "3", "--backend", "cuda",
                                  "--json", TILEGLU_CUDA_LIBRARY=FAKE)
            (plan,) = json.loads(out)["plans"]
            self.assertEqual([plan["row"], plan["down_row"]],
                             [glu, down] if mlp == glu else [mlp, None])
            self.assertTrue(plan["tuned"])

    def test_near_the_prediction(self):
        every = len(self.ranking())
        for near in (1, 4):
            found, _ = self.tune(*SHAPE, *CUDA, "--near", near, "--within", "1000")
            (point,) = found["points"]
            states = list(self.states(point).values())
            measured = states.count("timed") + states.count("slow")
            self.assertGreaterEqual(measured, near)
            self.assertLess(measured, every)
            self.assertEqual(measured + states.count("far") + states.count("unsupported"),
                             len(states))
            self.assertEqual(self.states(point)[point["untuned"]], "timed")
        # One that is wrong leaves the others as they are.
        found, _ = self.tune(*SHAPE, *CUDA, "--near", "4", "--within", "1000", code=FLAWED,
                             FAKE_WRONG=point["row"])
        states = self.states(found["points"][0])
        self.assertEqual(states[point["row"]], "wrong")
        self.assertEqual(list(states.values()).count("timed"), measured - 1)

    def test_types_and_several_problems(self):
        found, _ = self.tune("--hidden", "64", "--intermediate", "128", "--op", "glu",
                             "--tokens", "1,50", "--dtype", "bf16,f16", *CUDA)
        self.assertEqual(len(found["points"]), 4)
        keys = {(f[6], f[10]) for f in read_cache(self.cache)}
        self.assertEqual(len(keys), 4)

    def test_both_halves(self):
        for pdl in "01":
            found, _ = self.tune("--hidden", "64", "--intermediate", "128", "--tokens", "9",
                                 *CUDA, "--pdl", pdl)
            self.assertEqual([p["op"] for p in found["points"]], ["glu", "down"])
            for point in found["points"]:
                self.assertTrue(point["row"].startswith(point["op"] + "_"))
                self.assertTrue(point["untuned"].startswith(point["op"] + "_"))
        self.assertEqual({f[7] for f in read_cache(self.cache)}, {"glu", "down"})
        out, _ = self.tileglu("explain", "--hidden", "64", "--intermediate", "128", "--tokens",
                              "9,50", "--backend", "cuda", "--json", TILEGLU_CUDA_LIBRARY=FAKE)
        near, far = json.loads(out)["plans"]
        self.assertEqual([near["row"], near["down_row"]], [p["row"] for p in found["points"]])
        self.assertEqual([near["tuned"], far["tuned"]], [True, False])
        self.assertEqual(near["why"].count("runner-up"), 2)
        self.assertEqual(near["why"].count("why: tuned"), 2)
        self.assertEqual(far["why"].count("why: cost model"), 2)

    def test_the_second_gpu(self):
        for words, variables in ((["--gpu", "1"], {}), ([], {"TILEGLU_DEVICE": 1})):
            found, _ = self.tune(*SHAPE, *CUDA, *words, FAKE_DEVICES=2, **variables)
            self.assertEqual(found["stored"], 1)
        self.tileglu("tune", *SHAPE, *CUDA, "--gpu", "2", code=RUNTIME, FAKE_DEVICES=2)

    def test_tuned_anew(self):
        self.tune(*SHAPE, *CUDA)
        before = read_cache(self.cache)
        self.tune(*SHAPE, *CUDA, FAULT_ERROR=before[0][11], code=FLAWED)
        after = read_cache(self.cache)
        self.assertEqual(len(after), 1)
        self.assertEqual(after[0][11], before[0][13])

    def check_left_out(self, variable, state, limit="60"):
        """The fastest row goes wrong: named, left out, the second wins."""
        ranking = self.ranking()
        begin = time.monotonic()
        found, err = self.tune(*SHAPE, *CUDA, "--candidate-limit", limit, code=FLAWED,
                               **{variable: ranking[0]})
        self.assertLess(time.monotonic() - begin, 60)
        point = found["points"][0]
        self.assertEqual(self.states(point)[ranking[0]], state)
        self.assertEqual(point["row"], ranking[1])
        self.assertIn(ranking[0], err)
        (line,) = read_cache(self.cache)
        self.assertEqual([line[11], line[13]], ranking[1:3])
        self.assertNotIn(ranking[0], self.cache.read_text())

    def test_error(self):
        self.check_left_out("FAULT_ERROR", "failed")

    def test_crash(self):
        self.check_left_out("FAULT_CRASH", "failed")

    def test_exit(self):
        self.check_left_out("FAULT_EXIT", "failed")

    def test_crash_while_timed(self):
        self.check_left_out("FAULT_LATE", "failed")

    def test_host_spins(self):
        self.check_left_out("FAULT_SPIN", "failed", limit="4")

    def test_a_killed_tuner_takes_a_hanging_worker_along(self):
        command, env = self.command("tune", *SHAPE, *CUDA, FAULT_SPIN="glu_bf16")
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        for _ in range(400):
            if self.workers(process.pid):
                break
            time.sleep(0.05)
        time.sleep(1)
        self.assertEqual(len(self.workers(process.pid)), 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assert_no_worker(process.pid)
        self.assertFalse(self.cache.exists())

    def test_device_hangs(self):
        self.check_left_out("FAULT_HANG", "failed", limit="4")

    def test_wrong_but_fastest(self):
        self.check_left_out("FAKE_WRONG", "wrong")

    def test_unwritten_but_fastest(self):
        self.check_left_out("FAKE_UNWRITTEN", "wrong")

    def test_wrong_after_a_while(self):
        self.check_left_out("FAULT_TURN", "wrong")

    def test_several_at_once(self):
        ranking = self.ranking()
        found, err = self.tune(*SHAPE, *CUDA, "--candidate-limit", "4", code=FLAWED,
                               FAULT_CRASH=ranking[0], FAKE_WRONG=ranking[1],
                               FAULT_SPIN=ranking[2], FAULT_ERROR=ranking[3])
        states = self.states(found["points"][0])
        self.assertEqual([states[r] for r in ranking[:4]], ["failed", "wrong", "failed", "failed"])
        self.assertEqual(found["points"][0]["row"], ranking[4])
        for row in ranking[:4]:
            self.assertIn(row, err)

    def test_all_fail(self):
        found, err = self.tune(*SHAPE, *CUDA, code=RUNTIME, FAULT_CRASH="glu_bf16")
        self.assertIsNone(found["points"][0]["row"])
        self.assertIn("no row is left", err)
        self.assertFalse(self.cache.exists())
        found, err = self.tune(*SHAPE, *CUDA, code=RUNTIME, FAKE_WRONG="glu_bf16")
        self.assertFalse(self.cache.exists())

    def test_the_rest_goes_on(self):
        """One problem that cannot be measured does not keep the next from it."""
        found, err = self.tune("--hidden", "64", "--intermediate", "128", "--op", "glu",
                               "--tokens", "900000,3", *CUDA, code=RUNTIME, FAKE_MEMORY_MIB="64")
        self.assertIn("could not begin", err)
        self.assertEqual([p["tokens"] for p in found["points"]], [3])
        self.assertEqual(len(read_cache(self.cache)), 1)

    def test_no_driver(self):
        _, err = self.tileglu("tune", *SHAPE, "--backend", "cuda", "--cuda-library",
                              "/nonexistent/libcuda.so.1", code=RUNTIME)
        self.assertIn("/nonexistent/libcuda.so.1", err)
        self.assertFalse(self.cache.exists())


class Cpu(Case):
    def test_both_halves(self):
        found, _ = self.tune("--hidden", "72", "--intermediate", "96", "--tokens", "1,50", *CPU)
        self.assertEqual([(p["op"], p["tokens"]) for p in found["points"]],
                         [("glu", 1), ("down", 1), ("glu", 50), ("down", 50)])
        self.assertEqual(found["stored"], 4)
        self.assert_ranked(found)
        self.assertEqual({(f[2], f[7], f[10]) for f in read_cache(self.cache)},
                         {("cpu", "glu", "1"), ("cpu", "down", "1"), ("cpu", "glu", "64"),
                          ("cpu", "down", "64")})
        for point in found["points"]:
            for row, state in self.states(point).items():
                self.assertIn(state, ("timed", "slow"), row)
        out, _ = self.tileglu("explain", "--hidden", "72", "--intermediate", "96", "--tokens",
                              "50,100", "--backend", "cpu", "--threads", "1", "--dtype", "f32",
                              "--json")
        near, far = json.loads(out)["plans"]
        self.assertTrue(near["tuned"])
        self.assertEqual([near["row"], near["down_row"]],
                         [found["points"][2]["row"], found["points"][3]["row"]])
        self.assertIn("tuned", near["why"])
        if found["points"][2]["runner_up"]:
            self.assertIn("runner-up " + found["points"][2]["runner_up"], near["why"])
        self.assertFalse(far["tuned"])

    def test_layouts_activations_types(self):
        for layout in ("stacked_gate_first", "stacked_up_first", "interleaved"):
            self.tune("--hidden", "33", "--intermediate", "27", "--tokens", "3", *CPU, "--layout",
                      layout, "--dtype", "bf16,f16", "--activation", "gelu_tanh")
        self.tune("--hidden", "16", "--intermediate", "8", "--tokens", "3", *CPU, "--activation",
                  "swigluoai", "--alpha", "1.5", "--limit", "3", "--offset", "0.5")
        self.assertEqual(len(read_cache(self.cache)), 6)

    def test_results_stay_right(self):
        self.tune("--hidden", "72", "--intermediate", "96", "--tokens", "1,50", *CPU)
        self.tileglu("verify", "--hidden", "72", "--intermediate", "96", "--tokens", "1,50",
                     "--dtype", "f32", "--backend", "cpu", "--threads", "1")

    def test_many_tuners_at_once(self):
        started = []
        for i in range(6):
            words, env = self.command("tune", "--hidden", 8 * (i + 1), "--intermediate", "16",
                                      "--tokens", "1,2,4", *CPU)
            started.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE, text=True))
        for process in started:
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, OK, err)
        self.assertEqual(len(read_cache(self.cache)), 6 * 3 * 2)

    def test_killed_at_twenty_moments(self):
        command, env = self.command("tune", "--hidden", "8", "--intermediate", "16", "--tokens",
                                    "1,2,4,8,16", *CPU)
        seed = random.randrange(2 ** 32)
        print(f"seed {seed}")
        source = random.Random(seed)
        begin = time.monotonic()
        subprocess.run(command, env=env, capture_output=True, check=True, timeout=120)
        whole = time.monotonic() - begin
        self.assertEqual(len(read_cache(self.cache)), 10)
        self.cache.unlink()
        seen, killed = 0, 0
        for _ in range(20):
            process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(source.random() * whole)
            if process.poll() is None:
                killed += 1
            else: # this run was quicker
                whole *= 0.8
            process.send_signal(signal.SIGKILL)
            process.wait()
            lines = len(read_cache(self.cache)) if self.cache.exists() else 0
            self.assertGreaterEqual(lines, seen)
            seen = lines
            self.assert_no_worker(process.pid)
        self.assertGreater(killed, 4)
        subprocess.run(command, env=env, capture_output=True, check=True, timeout=120)
        self.assertEqual(len(read_cache(self.cache)), 10)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()),
                         ["tune.txt", "tune.txt.lock"])

    def test_tokens_given_twice(self):
        found, _ = self.tune("--hidden", "8", "--intermediate", "16", "--tokens", "4,2,4", "--op",
                             "glu", *CPU)
        self.assertEqual([p["tokens"] for p in found["points"]], [4, 2])
        self.assertEqual(found["stored"], 2)

    def test_dry_run_writes_nothing(self):
        found, _ = self.tune("--hidden", "8", "--intermediate", "16", "--tokens", "2", "--dry-run",
                             *CPU)
        self.assertEqual(found["stored"], 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_noise(self):
        """Samples of a call or two, on whatever else this machine does."""
        found, _ = self.tune("--hidden", "72", "--intermediate", "96", "--tokens",
                             ",".join(str(m) for m in range(1, 25)), *CPU, "--settle-ms", "0.001",
                             "--sample-ms", "0.001", "--dry-run")
        self.assertEqual(len(found["points"]), 48)
        self.assert_ranked(found)

    def test_more_than_there_is(self):
        """Said once for both halves, with what asks for it; the rest goes on."""
        for tokens in ("99999999999", str(10 ** 12)):
            found, err = self.tune("--hidden", "72", "--intermediate", "96", "--tokens",
                                   f"{tokens},2", *CPU, code=RUNTIME)
            (line,) = [l for l in err.splitlines() if "bytes" in l]
            for word in ("--tokens " + tokens, "--n 96", "--k 72"):
                self.assertIn(word, line)
            need = int(line.split("take ")[1].split()[0])
            operands = int(tokens) * (96 + 72) * 4
            self.assertGreater(need, operands)
            self.assertLess(need - operands, 2 ** 33) # copies of the weights
            self.assertNotIn("could not begin", err)
            self.assertEqual([(p["op"], p["tokens"]) for p in found["points"]],
                             [("glu", 2), ("down", 2)])
            self.assertEqual(len(read_cache(self.cache)), 2)

    def test_table(self):
        out, err = self.tileglu("tune", "--hidden", "8", "--intermediate", "16", "--tokens", "2",
                                *CPU)
        self.assertIn("winner", out)
        self.assertIn("2 winners stored in " + str(self.cache), out)
        self.assertIn("m 2 n 16 k 8", err)


class Places(Case):
    """H24 and H26: files and homes that are not as they should be."""
    WORDS = ["--hidden", "8", "--intermediate", "16", "--tokens", "2", "--op", "glu", *CPU]

    def test_damaged_files(self):
        self.tune(*self.WORDS)
        good = self.cache.read_bytes()
        read_cache(self.cache)
        for name, data in {"empty": b"", "the first 100 bytes": good[:100], "a brace": good + b"}",
                           "zeros": bytes(1 << 20), "NaN": b'{"a":NaN}', "no UTF-8": b"\xff\xfe",
                           "another shape": b"[]"}.items():
            self.cache.write_bytes(data)
            _, err = self.tileglu("verify", "--hidden", "8", "--intermediate", "16", "--tokens",
                                  "2", "--dtype", "f32", "--backend", "cpu")
            self.assertEqual(err.count("treated as empty"), 1, (name, err))
            _, err = self.tune(*self.WORDS)
            self.assertEqual(err.count("treated as empty"), 1, (name, err))
            self.assertEqual(len(read_cache(self.cache)), 1, name)

    def check_not_measured(self, path, why, **variables):
        """A cache that cannot be written: said before anything is measured, and nothing is made;
        without storing, and in another command, it does no harm."""
        before = self.tree()
        out, err = self.tileglu("tune", *self.WORDS, code=UNSAVED, **variables)
        self.assertEqual(out, "")
        self.assertIn(f"nothing is measured, since no winner could be stored in {path}: {why}; ", err)
        for word in ("--tune-cache FILE", "TILEGLU_TUNE_CACHE", "--dry-run"):
            self.assertIn(word, err)
        self.assertNotIn(" us\n", err)
        self.tileglu("verify", "--hidden", "8", "--intermediate", "16", "--tokens", "2", "--dtype",
                     "f32", "--backend", "cpu", **variables)
        found, _ = self.tune(*self.WORDS, "--dry-run", **variables)
        self.assertGreater(found["points"][0]["us"], 0)
        self.assertEqual(self.tree(), before)

    def tree(self):
        """What lies in the folder."""
        return {str(p): (p.lstat().st_mode, p.lstat().st_mtime_ns, p.lstat().st_size)
                for p in self.folder.rglob("*")}

    def test_a_place_that_cannot_be_written(self):
        self.cache.mkdir()
        self.check_not_measured(self.cache, "it is a folder")
        self.cache.rmdir()
        os.mkfifo(self.cache)
        self.check_not_measured(self.cache, "it is no regular file")
        self.cache.unlink()
        with self.cache.open("wb") as file:
            file.truncate((4 << 20) + 1)
        self.check_not_measured(self.cache, "it is larger than 4 MiB")
        self.cache.write_bytes(b"a file")
        for path in (self.cache / "tune.txt", self.cache / "one" / "tune.txt"):
            self.check_not_measured(path, f"{path.parent}: Not a directory",
                                    TILEGLU_TUNE_CACHE=path)
        path = self.folder / "one/two/three/tune.txt"
        self.check_not_measured(path, f"{self.folder / 'one'}: No such file or directory",
                                TILEGLU_TUNE_CACHE=path)
        link = self.folder / "link"
        link.symlink_to(self.folder / "folder" / "tune.txt")
        (self.folder / "folder").mkdir()
        (self.folder / "folder" / "tune.txt").mkdir()
        self.check_not_measured(link, "it is a folder", TILEGLU_TUNE_CACHE=link)
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        self.check_not_measured(loop, "Too many levels of symbolic links", TILEGLU_TUNE_CACHE=loop)
        self.check_not_measured(f"{self.folder}/new/", "it is a folder's name",
                                TILEGLU_TUNE_CACHE=f"{self.folder}/new/")
        path = self.folder / ("n" * 300)
        self.check_not_measured(path, "File name too long", TILEGLU_TUNE_CACHE=path)

    def test_a_place_that_can(self):
        """It is looked at without being changed: nothing is measured here, and nothing made."""
        whole = self.folder / "whole.txt"
        self.tune(*self.WORDS, TILEGLU_TUNE_CACHE=whole)
        (self.folder / "link").symlink_to(whole)
        before = self.tree()
        for path in (self.cache, whole, self.folder / "link", self.folder / "one/two/tune.txt",
                     "tune.txt"):
            words, env = self.command("tune", *self.WORDS, "--candidate-limit", "0.001",
                                      "--sample-ms", "20", TILEGLU_TUNE_CACHE=path)
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env,
                                  cwd=self.folder)
            self.assertEqual(done.returncode, RUNTIME, done.stderr)
            self.assertIn("no row is left", done.stderr)
            self.assertEqual(self.tree(), before)

    def test_a_failure_that_does_not_show_before(self):
        """The winner is reported, and what was not measured yet is left out."""
        lock = self.folder / "tune.txt.lock"
        lock.mkdir()
        found, err = self.tune("--hidden", "8", "--intermediate", "16", "--tokens", "2,4", "--op",
                               "glu", *CPU, code=UNSAVED)
        self.assertEqual(err.count("not saved"), 2, err) # the command's word and the library's
        self.assertIn(f"{lock}: a folder has that name", err)
        self.assertEqual(found["stored"], 0)
        self.assertEqual([p["tokens"] for p in found["points"]], [2])
        self.assertIsNotNone(found["points"][0]["row"])
        self.assertEqual(list(self.folder.iterdir()), [lock])

    def check_nowhere(self, *words, **variables):
        """There is no cache at all: said before anything is measured, unless nothing is stored."""
        out, err = self.tileglu("tune", *self.WORDS, *words, code=UNSAVED, **variables)
        self.assertEqual(out, "")
        for word in ("HOME", "TILEGLU_TUNE_CACHE", "--tune-cache FILE", "--dry-run"):
            self.assertIn(word, err)
        self.assertNotIn("tuning on", err)
        found, _ = self.tune(*self.WORDS, *words, "--dry-run", **variables)
        self.assertGreater(found["points"][0]["us"], 0)

    def test_no_row_is_left(self):
        _, err = self.tileglu("tune", *self.WORDS, "--candidate-limit", "0.001", "--sample-ms",
                              "20", code=RUNTIME)
        self.assertIn("no row is left", err)
        self.assertNotIn("no row serves", err)
        self.assertFalse(self.cache.exists())

    def test_homes(self):
        for home in (None, "", "/", "relative"):
            self.check_nowhere(HOME=home, TILEGLU_TUNE_CACHE=None, XDG_CACHE_HOME=None)
        self.check_nowhere(HOME=self.folder, TILEGLU_TUNE_CACHE="")
        self.check_nowhere("--tune-cache", "")
        self.check_not_measured("/nonexistent/.cache/tileglu/tune.txt",
                                "/nonexistent: No such file or directory", HOME="/nonexistent",
                                TILEGLU_TUNE_CACHE=None, XDG_CACHE_HOME=None)
        self.assertFalse(os.path.exists("/nonexistent"))
        self.assertFalse(os.path.exists("/.cache"))

    def test_a_read_only_home(self):
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)
        words, env = self.command("tune", *self.WORDS, TILEGLU_TUNE_CACHE=None,
                                  XDG_CACHE_HOME=None, HOME=self.folder)
        extra = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
        try:
            done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60,
                                  cwd="/", **extra)
        except PermissionError:
            self.skipTest("the build is not readable by another user")
        self.assertEqual(done.returncode, UNSAVED, done.stderr)
        self.assertIn(f"{self.folder}/.cache/tileglu/tune.txt: {self.folder}: Permission denied",
                      done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertNotIn(" us\n", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_default_place(self):
        self.tune(*self.WORDS, TILEGLU_TUNE_CACHE=None, XDG_CACHE_HOME=self.folder / "x")
        self.assertEqual(len(read_cache(self.folder / "x/tileglu/tune.txt")), 1)
        self.tune(*self.WORDS, TILEGLU_TUNE_CACHE=None, XDG_CACHE_HOME=None, HOME=self.folder)
        self.assertEqual(len(read_cache(self.folder / ".cache/tileglu/tune.txt")), 1)
        self.tune(*self.WORDS, "--tune-cache", self.folder / "own.txt")
        self.assertEqual(len(read_cache(self.folder / "own.txt")), 1)
        self.assertFalse(self.cache.exists())


class Usage(Case):
    def test_refused(self):
        shape = ["--hidden", "8", "--intermediate", "16"]
        for words, said in (([], "--model"), ([*shape, "--tokens", "0"], "--tokens"),
                            ([*shape, "--row", "x"], "--row"), ([*shape, "--bias"], "--bias"),
                            ([*shape, "--pad", "1"], "--pad"),
                            ([*shape, "--batch-invariant"], "--batch-invariant"),
                            ([*shape, "--rounds", "0"], "--rounds"),
                            ([*shape, "--within", "0.5"], "--within"),
                            ([*shape, "--near", "0"], "--near"),
                            ([*shape, "--near", "4", "--backend", "cpu"], "--near"),
                            ([*shape, "--pdl", "1", "--backend", "cpu"], "--pdl"),
                            ([*shape, "--pdl", "2"], "--pdl"),
                            ([*shape, "--candidate-limit", "0"], "--candidate-limit"),
                            ([*shape, "--sample-ms", "x"], "--sample-ms"),
                            ([*shape, "--worker", "nonsense"], "--worker"),
                            (["--hidden", "8", "--intermediate", "0"], "--intermediate"),
                            ([*shape, "word"], "word")):
            _, err = self.tileglu("tune", *words, code=USAGE)
            self.assertIn(said, err, words)
        _, err = self.tileglu("tune", *shape, code=USAGE, TILEGLU_ROW="x")
        self.assertIn("TILEGLU_ROW", err)
        self.assertFalse(self.cache.exists())

    def test_help(self):
        out, _ = self.tileglu("tune", "--help")
        for word in ("--tokens", "--candidate-limit", "Exit status", "--tune-cache"):
            self.assertIn(word, out)
        self.assertNotIn("--worker", out)
        self.assertIn("--op=glu|down|mlp", out)

    def test_what_is_refused_is_not_offered(self):
        """An option is in the help, or refused in any case with the reason."""
        out, _ = self.tileglu("tune", "--help")
        offered = set(re.findall(r"--[a-z][a-z-]*", out))
        self.assertIn("--threads", offered)
        refused = {"--row": ["x"], "--batch-invariant": [], "--bias": [], "--residual": [],
                   "--pad": ["1"], "--misalign": ["2"]}
        for option, value in refused.items():
            self.assertNotIn(option, offered)
            _, err = self.tileglu("tune", "--hidden", "8", "--intermediate", "16", option, *value,
                                  code=USAGE)
            self.assertIn(option, err)
            self.assertNotIn("unrecognized", err)
        values = {"--threads": "1", "--cpu-isa": "portable", "--seed": "2", "--dtype": "f32",
                  "--activation": "relu", "--layout": "separate", "--op": "down", "--within": "2",
                  "--tokens": "3", "--m": "3", "--backend": "cpu", "--pdl": "0"}
        self.assertLessEqual(set(values), offered)
        for option, value in values.items():
            self.tileglu("tune", *CPU, "--hidden", "8", "--intermediate", "16", "--op", "glu",
                         "--tokens", "3", option, value, "--dry-run")


def main():
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(
        unittest.TestLoader().loadTestsFromModule(sys.modules["__main__"]))
    bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    passed = result.testsRun - bad - skipped
    for _, reason in result.skipped:
        print(f"SKIP: {reason}")
    print(f"{passed} passed, {bad} failed, {skipped} skipped")
    sys.exit(0 if bad == 0 and passed > 0 else 1)


if __name__ == "__main__":
    main()
