"""Work in a fork of this process, which has imported everything: for what needs a process, but not a fresh one."""

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path


def fork(work: Callable[[], object], told: Path) -> int:
    """Begin `work` in a fork.

    Args:
        work: what it does; `SystemExit` gives its exit code, any other exception 1.
        told: file of what it writes to stderr.

    Returns:
        Its process id, for `end_of`.
    """
    with warnings.catch_warnings():  # Python 3.12 warns where there are threads: what is forked here asks none of them
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        with told.open("w") as sys.stderr, open(os.devnull, "w") as sys.stdout:
            try:
                work()
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(code)


def end_of(child: int) -> int:
    """Wait for a fork: its exit code; of one that was killed, minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
