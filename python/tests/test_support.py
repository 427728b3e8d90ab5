"""What the tests share can fail."""

import threading

import pytest

from support import run_threads


def test_threads_run_at_once():
    met, seen = threading.Barrier(4, timeout=60), []

    def work(index):
        met.wait()
        seen.append(index)

    run_threads(work, count=3, meanwhile=met.wait)
    assert sorted(seen) == [0, 1, 2]


def test_what_a_thread_raises_is_a_failure():
    def work(index):
        assert index != 2, "another result"

    with pytest.raises(AssertionError, match="thread 2: .*another result"):
        run_threads(work)
    with pytest.raises(AssertionError, match="thread 0: SystemExit"):
        run_threads(lambda index: exit(0), count=1)
    with pytest.raises(KeyError):
        run_threads(lambda index: None, meanwhile={}.popitem)
