"""Shared by the tests of the Python package: the closing line that tools/test_report.py
reads, and one thread for torch and for tileglu, which takes torch's number: two pools that
wait for work by spinning stand in each other's way on a small machine."""

import pytest
import torch

torch.set_num_threads(1)

_counts = {"passed": 0, "failed": 0, "skipped": 0}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _counts[report.outcome] += 1


def pytest_collectreport(report):
    if report.failed:
        _counts["failed"] += 1
    elif report.skipped:
        _counts["skipped"] += 1


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    if config.option.collectonly:
        return
    print("\n{passed} passed, {failed} failed, {skipped} skipped".format(**_counts))
