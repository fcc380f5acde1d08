"""A thread that looks, beside the loop, at what all threads do and at the device's counters."""

import linecache
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from denizen.perf._profile.gaps import LOADERS, WAITS, WAITS_FOR_THREADS
from denizen.perf._profile.trace import SAMPLE
from denizen.perf.watch._gpu_counters import gpu_reader
from denizen.perf.watch._places import USER, role, short

PERIOD = 0.002  # s between looks at threads, while steps are recorded
GPU_PERIOD = 0.05  # s between looks at the device; its driver averages over longer times
WAKES = 300_000  # ns that waking up may take without the interpreter lock being to blame
MOST = 200_000  # samples kept: half an hour of a few threads is not what a profile is for

# Number of the system call that locks wait in.
FUTEX = {"x86_64": "202", "aarch64": "98"}.get(platform.machine())


class Sampler:
    """Reads the device's counters from `start` to `stop`, and looks at threads from `watch` on.

    Attributes:
        events: samples of threads, as events of a Chrome trace but for their times, which are `time.time_ns`.
        gpu: values of the device by name: (`time.time_ns`, value). Empty without nvidia-ml-py or without a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.events: list[dict[str, Any]] = []
        self.gpu: dict[str, list[tuple[int, float]]] = {}
        self._read = gpu_reader(device) if device.type == "cuda" else None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="denizen-sampler", daemon=True)
        self._own, self._watching = 0, threading.Event()
        self._loop = threading.get_native_id()
        self._state = _open(self._loop)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def watch(self) -> None:
        """Look at threads from now on."""
        self._watching.set()

    def stop(self) -> None:
        """End; the thread is gone afterwards."""
        self._end.set()
        self._watching.set()
        self._thread.join()
        if self._state is not None:
            os.close(self._state)
            self._state = None

    def _run(self) -> None:
        self._own = threading.get_native_id()
        next_gpu, sampled = 0.0, 0
        while not self._end.is_set():
            if self._watching.is_set():
                time.sleep(PERIOD)
            else:
                self._watching.wait(GPU_PERIOD)
            if self._watching.is_set():
                now = time.time_ns()
                late = now - sampled - round(1e9 * PERIOD) if sampled else 0
                self._threads(now, late if late > WAKES else 0)
                sampled = now
            if self._read is not None and time.perf_counter() >= next_gpu:
                next_gpu = time.perf_counter() + GPU_PERIOD
                self._gpu()

    def _threads(self, now: int, late: int) -> None:
        """Look at all threads. Until all lines are read nothing gives the lock away, so that no thread goes on."""
        if len(self.events) >= MOST:
            return
        frames, seen = sys._current_frames(), []
        for thread in threading.enumerate():
            native, frame = thread.native_id, frames.get(thread.ident or 0)
            used = core_time(native) if native is not None and frame is not None and native != self._own else None
            if native is not None and frame is not None and used is not None:
                seen.append((native, used, *_place(frame)))
        del frames
        call = self._call()
        for native, used, at, code in seen:
            waits = _waits(code, call if native == self._loop else None)
            args = {"used_ns": used, "late_ns": late, "waits": waits, "at": at}
            self.events.append(
                {"ph": "i", "s": "t", "cat": SAMPLE, "name": at, "time": now, "tid": native, "args": args}
            )

    def _call(self) -> str | None:
        """What the loop's thread does for the system: ``"running"``, the number of a call, None where not known."""
        try:
            return os.pread(self._state, 16, 0).split()[0].decode() if self._state is not None else None
        except (OSError, IndexError):
            return None

    def _gpu(self) -> None:
        assert self._read is not None
        now = time.time_ns()
        for name, value in self._read():
            self.gpu.setdefault(name, []).append((now, value))

    def trace_events(self, first: int, last: int, base: int) -> Iterator[dict[str, Any]]:
        """What was seen between two moments, for a Chrome trace whose clock begins at `base`; all in nanoseconds."""
        process = os.getpid()
        for event in self.events:
            if first <= event["time"] - base <= last:
                plain = {key: value for key, value in event.items() if key != "time"}
                yield plain | {"pid": process, "ts": (event["time"] - base) / 1e3}
        for name, values in self.gpu.items():
            for moment, value in values:
                counter = {"ph": "C", "name": f"GPU {name}", "pid": process, "ts": (moment - base) / 1e3}
                yield counter | {"args": {name: value}}


def core_time(thread: int) -> int | None:
    """Nanoseconds of a core that a thread of this process has had; None where the system does not say.

    The number of the clock is made as glibc does it from the thread's: the kernel refuses one of a thread that is gone,
    while `pthread_getcpuclockid` may crash on it.
    """
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime_ns((~thread << 3) | 6)
    except OSError:
        return None


def _open(thread: int) -> int | None:
    """The file that says which system call a thread is in; None where there is none."""
    try:
        return os.open(f"/proc/self/task/{thread}/syscall", os.O_RDONLY)
    except OSError:
        return None


def _waits(code: str, call: str | None) -> bool:
    """Whether a thread waits of its own accord, by the line that it is on and the system call that it is in.

    One that wants the interpreter lock is ready to run, or in the call that locks are made of on a line that asks for
    none.
    """
    if call is None or FUTEX is None:
        return bool(WAITS.search(code))
    return call != "running" and (call != FUTEX or bool(WAITS_FOR_THREADS.search(code)))


def _place(frame: FrameType) -> tuple[str, str]:
    """The innermost line of the user's and what it is in; and the text of the innermost line of all.

    Where a loader is anywhere around, it is named, whatever it waits in: what a thread does there is loading.
    """
    code = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0)
    user = loader = None
    outer: FrameType | None = frame
    while outer is not None and (loader is None or user is None):
        file = outer.f_code.co_filename
        user = outer if user is None and role(file) == USER else user
        loader = outer if loader is None and LOADERS.search(file) else loader
        outer = outer.f_back
    inner = loader or frame
    if user is None or user is inner:
        return _line(inner), code
    return f"{_line(user)} in {_line(inner)}", code


def _line(frame: FrameType) -> str:
    return f"{short(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
