"""`dz.perf.profile`: some steps of a loop under torch's profiler, with what it takes to read the result rightly."""

import contextlib
import gzip
import json
import os
import socket
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import torch

from denizen._arguments import whole
from denizen.errors import InputError, StorageError
from denizen.perf._doctor.subject import Subject
from denizen.perf._profile.gaps import Gap
from denizen.perf._profile.report import ProfileReport
from denizen.perf._profile.sampler import Sampler
from denizen.perf._profile.trace import exported, trace_of
from denizen.perf.watch._blame import users_code
from denizen.perf.watch._host import available_cores

PLAIN, WARM_UP, ACTIVE = 3, 2, 5


@overload
def profile(
    step: Callable[..., Any],
    /,
    *args: Any,
    trace_dir: str | Path | None = None,
    plain: int = PLAIN,
    warm_up: int = WARM_UP,
    active: int = ACTIVE,
    stacks: bool = False,
    device: torch.device | str | None = None,
) -> ProfileReport: ...
@overload
def profile(
    *,
    trace_dir: str | Path | None = None,
    plain: int = PLAIN,
    warm_up: int = WARM_UP,
    active: int = ACTIVE,
    stacks: bool = False,
    device: torch.device | str | None = None,
) -> "Profiler": ...
def profile(
    step: Callable[..., Any] | None = None,
    /,
    *args: Any,
    trace_dir: str | Path | None = None,
    plain: int = PLAIN,
    warm_up: int = WARM_UP,
    active: int = ACTIVE,
    stacks: bool = False,
    device: torch.device | str | None = None,
) -> "ProfileReport | Profiler":
    """Profile some steps: how long the device was busy, why it stood still, which operators take the time.

    ```python
    print(dz.perf.profile(train_step))  # calls it 10 times

    with dz.perf.profile(trace_dir="traces") as prof:  # or in a loop of your own
        for batch in loader:
            train_step(batch)
            prof.step()
            if prof.done:
                break
    print(prof.report)
    ```

    The first `plain` steps run without the profiler and are timed, which tells what it costs; `warm_up` steps run under
    it and are thrown away, since its first ones are slow; `active` steps are recorded. The device is waited for once,
    before the first recorded step, so that nothing unrecorded runs in it.

    Args:
        step: does one step of the loop; it really trains. One that takes a single argument, and is given none, gets the
            step's number. Without it a `Profiler` for a ``with`` block is returned.
        args: for `step`.
        trace_dir: folder for the trace: Chrome's format with shapes and memory, gzipped, as Perfetto and TensorBoard
            read it. None: no trace is kept.
        plain: steps without the profiler, at least 1.
        warm_up: steps under the profiler that are not recorded, at least 1.
        active: steps to record, at least 1.
        stacks: record Python functions; about doubles the cost of an operator. Without it lines of long gaps are known
            from samples, every 2 ms, of what the threads do.
        device: ``"cpu"``: operators of the host only. None: CUDA where there is one.

    Returns:
        The report, or the profiler.

    Raises:
        InputError: a number of steps below 1, a device that is not there.
        StorageError: the trace cannot be written.
    """
    profiler = Profiler(trace_dir, plain, warm_up, active, stacks, device)
    if step is None:
        return profiler
    if not callable(step):
        raise InputError(f"profile(step={step!r}): expected a function that does one step of the loop")
    subject = Subject(step, args, None, made=False)
    with users_code("the step of profile"), profiler:
        while not profiler.done:
            subject()
            profiler.step()
    return profiler.report


class Profiler:
    """Profiles the loop in a ``with`` block; made by `denizen.perf.profile`.

    Attributes:
        done: whether all steps were recorded; further ones cost nothing.
        device: that is examined.
    """

    def __init__(
        self,
        trace_dir: str | Path | None,
        plain: int,
        warm_up: int,
        active: int,
        stacks: bool,
        device: torch.device | str | None,
    ) -> None:
        for name, value in {"plain": plain, "warm_up": warm_up, "active": active}.items():
            whole("profile", name, value, low=1)
        self.device = _chosen(device)
        self._folder = Path(trace_dir) if trace_dir is not None else None
        self._plain, self._before, self._all = plain, plain + warm_up, plain + warm_up + active
        self._stacks, self._count = stacks, 0
        self._times: list[float] = []
        self._marks: list[Any] = []
        self._report: ProfileReport | None = None
        self._began = 0.0

    @property
    def done(self) -> bool:
        """Whether all steps were recorded."""
        return self._count >= self._all

    @property
    def report(self) -> ProfileReport:
        """What was found; after the block.

        Raises:
            InputError: the block has not ended, or ended before a step was recorded.
        """
        if self._report is None:
            raise InputError(
                f"profile: no step was recorded in {self._count} calls of step(); the first {self._before} are not, so "
                f"the loop must call it at least {self._before + 1} times before the block ends (or give fewer plain "
                f"and warm_up steps)"
            )
        return self._report

    def __enter__(self) -> Self:
        from torch.profiler import ProfilerActivity, schedule
        from torch.profiler import profile as torch_profile

        if self._folder is not None:
            _make(self._folder)
        kinds = [ProfilerActivity.CPU]
        if self.device.type == "cuda":
            kinds.append(ProfilerActivity.CUDA)
        elif not torch.cuda.is_available():
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes to stderr at each start without CUDA
        self._sampler = Sampler(self.device)
        phases = {"wait": self._plain, "warmup": self._before - self._plain, "active": self._all - self._before}
        self._profiler = torch_profile(
            activities=kinds,
            record_shapes=True,
            profile_memory=True,
            with_stack=self._stacks,
            acc_events=True,
            schedule=schedule(**phases, repeat=1),
        )
        self._profiler.__enter__()
        self._sampler.start()
        self._ranges = contextlib.ExitStack()
        self._begin()
        return self

    def step(self) -> None:
        """A step has ended."""
        self._ranges.close()
        if self._count < self._plain:
            self._end_plain()
        self._count += 1
        if self._count == self._before:
            self._sampler.watch()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        self._profiler.step()
        self._begin()

    @contextlib.contextmanager
    def range(self, name: str) -> Generator[None]:
        """Name a part of the step, such as ``"forward"``: a range in the trace, and an NVTX range for Nsight."""
        with torch.profiler.record_function(name), self._nvtx(name):
            yield

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ranges.close()
        self._sampler.stop()
        recorded = self._count > self._before
        try:
            self._profiler.__exit__(kind, error, trace)
        except Exception:
            if kind is None:
                raise
        if kind is None and recorded:
            self._report = self._finish()

    def _begin(self) -> None:
        """Of a step: its range for Nsight, and its time."""
        if not self.done:
            self._ranges.enter_context(self._nvtx(f"step {self._count}"))
        self._began = time.perf_counter()
        if self.device.type == "cuda" and self._count <= self._plain:
            self._marks.append(torch.cuda.Event(enable_timing=True))
            self._marks[-1].record(torch.cuda.current_stream(self.device))

    def _end_plain(self) -> None:
        if self.device.type != "cuda":
            self._times.append(time.perf_counter() - self._began)

    @contextlib.contextmanager
    def _nvtx(self, name: str) -> Generator[None]:
        pushed = False
        if self.device.type == "cuda":
            with contextlib.suppress(RuntimeError):  # a torch built without it
                torch.cuda.nvtx.range_push(name)
                pushed = True
        try:
            yield
        finally:
            if pushed:
                torch.cuda.nvtx.range_pop()

    def _plain_times(self) -> list[float]:
        """Seconds of the plain steps; from event to event on CUDA. The first one is left out where there are others."""
        if self.device.type == "cuda":
            self._marks[-1].synchronize()
            times = [a.elapsed_time(b) / 1e3 for a, b in zip(self._marks, self._marks[1:], strict=False)]
        else:
            times = self._times
        return times[1:] or times

    def _finish(self) -> ProfileReport:
        content = exported(self._profiler)
        times = self._plain_times()
        content["denizen"] = {
            "plain_times": times,
            "steps": min(self._count, self._all) - self._before,
            "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
            "cores": available_cores(),
        }
        events = content["traceEvents"]
        stamps = [event["ts"] * 1e3 for event in events if event.get("ph") == "X"]
        base = int(content.get("baseTimeNanoseconds", 0))
        if stamps:
            events += self._sampler.trace_events(round(min(stamps)), round(max(stamps)), base)
        facts = {key: value for key, value in content.items() if key != "traceEvents"}
        report = ProfileReport.of(trace_of(events, facts), self._path())
        if report.trace is not None:
            events += gap_events(report.gaps)
            _write(report.trace, content)
        return report

    def _path(self) -> Path | None:
        """A new file, under a name by which TensorBoard's plugin finds it."""
        if self._folder is None:
            return None
        return self._folder / f"{socket.gethostname()}_{os.getpid()}.{time.time_ns()}.pt.trace.json.gz"


def gap_events(gaps: list[Gap]) -> list[dict[str, Any]]:
    """A track of its own for viewers: each gap under its cause."""
    track = {"ph": "M", "name": "process_name", "pid": "Gaps", "tid": 0, "args": {"name": "idle gaps by cause"}}
    return [track] + [
        {
            "ph": "X",
            "cat": "denizen_gap",
            "name": gap.cause,
            "pid": "Gaps",
            "tid": 0,
            "ts": gap.start / 1e3,
            "dur": gap.duration / 1e3,
            "args": {"evidence": gap.evidence, "at": gap.at},
        }
        for gap in gaps
    ]


def _write(path: Path, content: dict[str, Any]) -> None:
    """In one go: a full disk leaves no half of a trace."""
    part = path.with_suffix(".part")
    try:
        with gzip.open(part, "wt", encoding="utf-8", compresslevel=3) as file:
            json.dump(content, file)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"profile(trace_dir={str(path.parent)!r}): {error.strerror or error}") from error


def _chosen(device: torch.device | str | None) -> torch.device:
    if device is None:
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    kind, _, index = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise InputError(f"profile(device={str(device)!r}): expected 'cpu', 'cuda' or 'cuda:N'")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"profile(device={str(device)!r}): there is no CUDA device here; leave it out, or say 'cpu'")
    if kind == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", int(index) if index else torch.cuda.current_device())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"profile(trace_dir={str(folder)!r}): {error.strerror or error}") from error
