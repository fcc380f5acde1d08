"""What a loop waited for when it asked for batches."""

import copy
import dataclasses
import itertools
import time
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from denizen.tools._feed import PHASES
from denizen.tools._position import same_random_numbers

NAMES = ("load", "pin", "copy")
BOUND = 0.05  # share of the time from which waiting is worth a change


@dataclasses.dataclass
class Waiting:
    """Waiting for batches, without the first one of each pass (workers start, files are opened).

    Attributes:
        batches: that were handed out, without first ones.
        seconds: from the first batch of a pass to its last, in all.
        seconds_waited: of these, until a batch was there.
        first_batches: number of passes.
        seconds_first: waited for their first batches.
        waited_for: `seconds_waited` by what was going on meanwhile: ``load``, or ``dataset`` and ``collate`` where they
            could be told apart; ``pin``: copying to pinned memory; ``copy``: until an earlier copy to the device was
            done.
        copy_seconds: that copies took on the device; they run while it computes, and cost time only where they are
            longer than a step.
    """

    batches: int = 0
    seconds: float = 0.0
    seconds_waited: float = 0.0
    first_batches: int = 0
    seconds_first: float = 0.0
    waited_for: dict[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(("load", "pin", "copy"), 0.0)
    )
    copy_seconds: float = 0.0

    @property
    def share(self) -> float:
        """Of the time, that was spent waiting: 0 to 1."""
        return self.seconds_waited / self.seconds if self.seconds else 0.0

    @property
    def loader_bound(self) -> bool:
        """Whether waiting takes more than 5 % of the time."""
        return self.share > BOUND

    def begin(self) -> "_Clock":
        """A pass begins."""
        return _Clock(self)

    def snapshot(self) -> "Waiting":
        """A copy that does not go on."""
        return dataclasses.replace(self, waited_for=copy.copy(self.waited_for))

    def divide_loading(self, dataset: float, collate: float) -> None:
        """Replace ``load`` by ``dataset`` and ``collate``, in proportion to what they cost."""
        load = self.waited_for.pop("load")
        part = dataset / (dataset + collate) if dataset + collate else 1.0
        self.waited_for = {"dataset": load * part, "collate": load * (1 - part), **self.waited_for}

    def __str__(self) -> str:
        if not self.batches:
            return "waiting for batches: nothing to report before the second batch of a pass"
        mean = self.seconds_waited / self.batches * 1e3
        verdict = "loader-bound" if self.loader_bound else "the loader keeps up"
        lines = [
            f"waiting for batches: {self.share:.1%} of {self.seconds:.2f} s, {mean:.2f} ms a batch: {verdict}",
            "  of it " + ", ".join(f"{name} {self._part(part)}" for name, part in self.waited_for.items() if part),
        ]
        if self.first_batches:
            lines.append(f"  first batch of a pass: {self.seconds_first / self.first_batches:.2f} s")
        if self.copy_seconds:
            lines.append(f"  copies took {self.copy_seconds:.2f} s on the device")
        return "\n".join(lines)

    def _part(self, seconds: float) -> str:
        return f"{seconds / self.seconds_waited:.0%}" if self.seconds_waited else "0%"


class _Clock:
    """Adds one pass to a report."""

    def __init__(self, report: Waiting) -> None:
        self._report = report
        self._last = 0.0  # when the batch before was handed out; 0 before the first

    def waited(self, seconds: float, spent: dict[str, float]) -> None:
        """A batch has come after `seconds`; producing it took `spent`, in the order of `PHASES`, to the very end."""
        report, now = self._report, time.perf_counter()
        first, last = not self._last, self._last
        self._last = now
        if first:
            report.first_batches += 1
            report.seconds_first += seconds
            return
        report.batches += 1
        report.seconds += now - last
        report.seconds_waited += seconds
        for name in reversed(PHASES):  # the last of them were waited for, first of all
            part = min(seconds, spent.get(name, 0.0))
            report.waited_for[name] += part
            seconds -= part
        report.waited_for["load"] += seconds  # the producer had not begun


def costs(loader: Any, batches: int) -> tuple[float, float] | None:
    """Seconds that the dataset and collation take for a batch, in this process, without workers.

    Returns:
        (dataset, collate), or None where the loader is not torch's or its dataset cannot be read a second time.
    """
    if not isinstance(loader, DataLoader) or loader.collate_fn is None:
        return None
    dataset_seconds = collate_seconds = 0.0
    count = 0
    with same_random_numbers(loader):
        try:
            samples = _samples(loader)
            for _ in range(batches):
                began = time.perf_counter()
                data = next(samples, None)
                if data is None:
                    break
                fetched = time.perf_counter()
                loader.collate_fn(data)
                dataset_seconds += fetched - began
                collate_seconds += time.perf_counter() - fetched
                count += 1
        except Exception:  # the dataset's own errors belong to the loop, not to a report about it
            return None
    return (dataset_seconds / count, collate_seconds / count) if count else None


def _samples(loader: DataLoader) -> Any:
    """What would be collated, batch by batch."""
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        one = iter(dataset)
        if loader.batch_size is None:
            return one
        return iter(lambda: list(itertools.islice(one, loader.batch_size)) or None, None)
    if loader.batch_sampler is None:
        return (dataset[index] for index in loader.sampler)
    if hasattr(dataset, "__getitems__"):
        return (dataset.__getitems__(indices) for indices in loader.batch_sampler)
    return ([dataset[index] for index in indices] for indices in loader.batch_sampler)
