"""What the host has for this process: memory that is left, and cores."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# Of control groups, by what /proc/self/cgroup calls them, versions 2 and 1: folder, files of limit and use, and what of
# the use are cached files.
NAMES = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_on_host() -> int | None:
    """Bytes that can still be taken, by the least that anything allows; None where nothing tells."""
    return min([*_of_host(), *_of_groups(), *_of_process()], default=None)


def available_cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS, not on Windows
        return os.cpu_count() or 1


def _of_host() -> Iterator[int]:
    try:
        lines = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines())
        yield int(lines["MemAvailable"].split()[0]) * 1024  # counts what caches would give back
    except (OSError, KeyError, ValueError):
        if hasattr(os, "sysconf_names") and "SC_AVPHYS_PAGES" in os.sysconf_names:
            yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups() -> Iterator[int]:
    """What the control groups leave, of a container or a batch job: beyond it the process is killed without a word."""
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in NAMES:
                continue
            place, most, used, cache = NAMES[controllers]
            root = GROUPS / place
            below = (root / path.lstrip("/")).relative_to(root)
            for folder in (root / below, *(root / above for above in below.parents)):
                with contextlib.suppress(OSError, ValueError):  # "max"; a path that a container does not see
                    free = int((folder / most).read_text()) - int((folder / used).read_text())
                    kept = re.search(rf"^{cache} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
                    yield max(0, free + (int(kept[1]) if kept else 0))


def _of_process() -> Iterator[int]:
    with contextlib.suppress(ImportError, OSError):
        import resource  # not on Windows

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            pages = int((PROC / "self" / "statm").read_text().split()[0])
            yield max(0, most - pages * resource.getpagesize())
