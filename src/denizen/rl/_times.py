"""How fast updates follow each other, and what their time goes into."""

import time
from collections import deque
from typing import Any

import torch
from torch import Tensor

from denizen.nn import kernels
from denizen.perf.watch._gpu_counters import gpu_reader

LAST = 4  # updates of the rate that follows closely
RATES = ("seconds", "steps_per_second", "steps_per_second_of_4", "steps_per_second_overall")
PHASES = ("rollout_seconds", "learning_seconds")
COUNTERS = {"utilisation %": "gpu_utilisation", "memory GiB": "gpu_memory_gib", "power W": "gpu_power"}
TIMES = (*RATES, *PHASES, *COUNTERS.values())  # what differs from run to run
EACH = 1.0  # seconds between looks at the GPU's counters; its driver averages over a good part of that


class Times:
    """Adds times to the metrics of each update, as they arrive on the host."""

    def __init__(self, samples: int) -> None:
        """Args:
        samples: steps of worlds in an update.
        """
        self._samples, self._count = samples, 0
        self._began = time.perf_counter()
        self._arrived = deque([self._began], LAST + 1)

    def add_to(self, row: dict[str, Any]) -> None:
        """Add `seconds` since the first update began, and steps of worlds a second: of this update, of the last four,
        of all since then.
        """
        now, arrived, self._count = time.perf_counter(), self._arrived, self._count + 1
        arrived.append(now)
        rates = (1, arrived[-2]), (len(arrived) - 1, arrived[0]), (self._count, self._began)
        speeds = [updates * self._samples / max(now - since, 1e-9) for updates, since in rates]
        row.update(zip(RATES, (now - self._began, *speeds), strict=True))


class Counters:
    """Adds the GPU's utilisation (%), memory (GiB) and power (W) to the metrics; nothing without nvidia-ml-py."""

    def __init__(self, device: torch.device) -> None:
        """Args:
        device: of the training.
        """
        self._read = gpu_reader(device) if device.type == "cuda" else None
        self._looked, self._last = -EACH, dict[str, float]()

    def add_to(self, row: dict[str, Any]) -> None:
        """Called by the thread that writes: a look takes the driver longer than a small update."""
        if self._read is None:
            return
        now = time.perf_counter()
        if now - self._looked >= EACH:
            self._looked = now
            self._last = {COUNTERS[name]: value for name, value in self._read() if name in COUNTERS}
        row.update(self._last)


class Phases:
    """Seconds of the phases of an update, told by the device, also within a captured graph."""

    def __init__(self, device: torch.device) -> None:
        """Args:
        device: of the training.
        """
        self._last = torch.zeros(1, dtype=torch.int64, device=device)
        self._before, *self._seconds = [torch.zeros(1, device=device) for _ in range(1 + len(PHASES))]
        self._known = False

    def begin(self) -> None:
        """An update begins."""
        kernels.device_clock(self._last, self._before)

    def ended(self, number: int) -> None:
        """A phase ended."""
        self._known = kernels.device_clock(self._last, self._seconds[number])

    def metrics(self) -> dict[str, Tensor]:
        """Of the last update: float32 `[]` each, on the device; none where it has no clock."""
        return {name: part[0] for name, part in zip(PHASES, self._seconds, strict=True)} if self._known else {}
