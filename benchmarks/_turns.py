"""Benchmarks that run at once, to compile together, and are timed one after another."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """While the block runs no other benchmark times anything, if all have one file in DENIZEN_BENCH_LOCK.

    Nothing is timed before the file that DENIZEN_BENCH_AFTER names is there, if it names one.
    """
    after, path = os.environ.get("DENIZEN_BENCH_AFTER"), os.environ.get("DENIZEN_BENCH_LOCK")
    while after and not os.path.exists(after):
        time.sleep(0.2)
    if not path:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
