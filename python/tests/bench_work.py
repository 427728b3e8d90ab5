"""What test_bench.py's processes do; without torch, which takes seconds to import."""

import os
import time


def work(points, factor):
    for point in points:
        if point == "raise":
            raise ValueError("it broke")
        if point == "crash":
            os.abort()
        if point == "hang":
            time.sleep(600)
        if point == "leave":
            return
        yield os.getpid(), point * factor
