"""Benchmarks that run at once, to compile together, and are timed one after another."""

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """While the block runs no other benchmark times anything, if all have one file in DENIZEN_BENCH_LOCK."""
    path = os.environ.get("DENIZEN_BENCH_LOCK")
    if not path:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
