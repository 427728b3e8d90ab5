"""Points of a benchmark, measured in processes of their own.

One process measures points one after the other until one fails; the points after it get a
new process.  So a point cannot harm the next, whether it raises, crashes, hangs or leaves a
device unusable, and what points share (a model) is made once where nothing fails.
"""

import multiprocessing
import os


def _serve(connection, work, points, arguments):
    try:
        for result in work(points, *arguments):
            connection.send((True, result))
    except BaseException as error:  # pylint: disable=broad-except
        connection.send((False, f"{type(error).__name__}: {error}"))
        connection.close()
        os._exit(0)  # nothing is torn down: a broken device may hang or abort there
    connection.close()


def _until_failure(work, left, arguments, timeout):
    """Takes the points from `left` whose results it yields."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, work, list(left), arguments),
                              daemon=True)
    process.start()
    theirs.close()
    patience = 0  # for the end of the process, in seconds
    try:
        done = True
        while left and done:
            try:
                done, result = mine.recv() if mine.poll(timeout) else (
                    False, f"TimeoutError: nothing within {timeout:g} s")
            except EOFError:
                process.join()
                done, result = False, f"RuntimeError: its process ended with {process.exitcode}"
            yield left.pop(0), result if done else RuntimeError(result)
        patience = 10 if done else 0
    finally:
        process.join(patience)
        process.kill()
        process.join()
        mine.close()


def results(work, groups, arguments=(), timeout=None):
    """(point, result or RuntimeError with the reason) of all points in lists of them.

    Lists never share a process.  work(points, *arguments) yields the points' results in
    order, in a process that was spawned: it, the points, arguments and results are pickled.
    timeout: seconds from one result, or the process's start, to the next result."""
    for group in groups:
        left = list(group)
        while left:
            yield from _until_failure(work, left, arguments, timeout)
