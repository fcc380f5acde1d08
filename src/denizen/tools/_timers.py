"""Timers for parts of a loop: CUDA events that nobody waits for, and wall time; medians with their spread."""

import contextlib
import time
from collections import deque
from collections.abc import Generator
from typing import Any

import torch

from denizen.perf.watch import Timing

KEEP = 10_000


class _Clock:
    """Times of one name."""

    def __init__(self, keep: int) -> None:
        self.times: deque[float] = deque(maxlen=keep)
        self.count, self.total = 0, 0.0

    def add(self, milliseconds: float) -> None:
        self.times.append(milliseconds)
        self.count += 1
        self.total += milliseconds

    def timing(self) -> Timing:
        return Timing.of(self.times, self.count, self.total)


class Timers:
    """Named timers that do not slow the loop down.

    ```python
    timers = Timers("cuda")
    for batch in loader:
        with timers("forward"):
            loss = model(batch)
        with timers("backward"):
            loss.backward()
    print(timers)  # only here does the host wait for the device
    ```

    On CUDA two events go into the stream around each part: `device_times()` is what the device took, `host_times()`
    what the host took to launch it. Where the host's time is the longer one, the device waits for it. On other devices
    there is wall time alone, and both are the same.
    """

    def __init__(self, device: torch.device | str = "cpu", keep: int = KEEP) -> None:
        """Args:
        device: whose work is timed.
        keep: times of each name that medians are taken of.
        """
        self.device, self.keep = torch.device(device), keep
        self._host: dict[str, _Clock] = {}
        self._device: dict[str, _Clock] = {}
        self._pending: deque[tuple[str, Any, Any]] = deque()
        self._spare: list[Any] = []

    @contextlib.contextmanager
    def __call__(self, name: str) -> Generator[None]:
        """Time the block; blocks may nest, and one that raises is not counted."""
        on_device = self.device.type == "cuda"
        began = time.perf_counter()
        first = self._mark() if on_device else None
        yield
        if on_device:
            self._pending.append((name, first, self._mark()))
            self._collect(wait=False)
        self._host.setdefault(name, _Clock(self.keep)).add((time.perf_counter() - began) * 1e3)

    def host_times(self) -> dict[str, Timing]:
        """Wall time by name."""
        return {name: clock.timing() for name, clock in self._host.items()}

    def device_times(self) -> dict[str, Timing]:
        """Time on the device by name; waits for the last block to end there. Without CUDA the wall time."""
        if self.device.type != "cuda":
            return self.host_times()
        self._collect(wait=True)
        return {name: clock.timing() for name, clock in self._device.items()}

    def reset(self) -> None:
        """Forget all times, for example after warm-up."""
        self._collect(wait=True)
        self._host, self._device = {}, {}

    def __str__(self) -> str:
        host, device = self.host_times(), self.device_times()
        width = max([len(name) for name in host], default=4)
        lines = [f"{'part':{width}}  {'count':>6}  {'device ms':>9}  {'10 % to 90 %':>18}  {'host ms':>9}"]
        for name, wall in host.items():
            part = device.get(name, wall)
            spread = f"{part.low:.3f} to {part.high:.3f}"
            lines.append(f"{name:{width}}  {part.count:6}  {part.median:9.3f}  {spread:>18}  {wall.median:9.3f}")
        return "\n".join(lines)

    def _mark(self) -> Any:
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _collect(self, wait: bool) -> None:
        """Take over times that are known by now; with `wait` all. Events are used again, so there are few of them."""
        while self._pending and (wait or self._pending[0][2].query()):
            name, first, last = self._pending.popleft()
            if wait:
                last.synchronize()
            self._device.setdefault(name, _Clock(self.keep)).add(first.elapsed_time(last))
            self._spare += [first, last]
