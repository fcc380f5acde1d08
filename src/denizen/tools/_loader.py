"""A loader that has the next batches on the device before they are asked for, and says what was waited for."""

import copy
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch.autograd.profiler import record_function

from denizen._arguments import whole
from denizen.errors import InputError
from denizen.perf.state import Keeper
from denizen.perf.watch import SIMULATED
from denizen.tools._feed import Inline, Prefetched, Stager, at_once
from denizen.tools._position import order_of, start_workers, taken_up
from denizen.tools._waiting import Waiting, costs

VERSION = 1
PLACE = ("epoch", "_consumed", "_order", "_taking_up", "_resumed")  # where in which pass a loader is
WAITING = "enumerate(PrefetchLoader)"  # range by which profiles tell waiting for data, as of torch's own loaders


class PrefetchLoader:
    """Brings the batches of a loader to a device, ahead of time; same batches, same order, same values.

    ```python
    batches = PrefetchLoader(DataLoader(dataset, 64, shuffle=True, num_workers=4, persistent_workers=True), "cuda")
    for x, y in batches:
        train(x, y)
    print(batches.report())  # which share of the time went into waiting, and for what
    ```

    On CUDA batches are staged in pinned memory and copied on a stream of their own while the current one computes; the
    host never waits for a copy. A loader with workers is read by a thread, `depth` batches ahead. A loader without
    workers is read when a batch is asked for, so that random numbers are drawn in the same places as without this
    class. On the CPU batches are passed through; on the simulated device of budgets they are pinned and copied.

    Nested dictionaries, lists, tuples, named tuples and dataclasses are gone into. Objects that move themselves with a
    method ``to`` (packed sequences, graph batches) are moved on the current stream.

    Attributes:
        loader: the loader that is read.
        device: where batches arrive.
        epoch: number of the current pass, from 0.
    """

    def __init__(self, loader: Iterable[Any], device: torch.device | str | None = None, depth: int = 2) -> None:
        """Args:
        loader: a ``torch.utils.data.DataLoader``, or any iterable that can be iterated once for each pass.
        device: where batches go; None takes the current CUDA device where there is one, else the CPU.
        depth: batches under way at most, besides the one in use.

        Raises:
            InputError: `loader` cannot be iterated, or `depth` is below 1.
        """
        if not hasattr(loader, "__iter__"):
            raise InputError(f"loader is a {type(loader).__name__}: expected a DataLoader or an iterable of batches")
        whole("PrefetchLoader", "depth", depth, 1)
        self.loader, self.device, self.depth, self.epoch = loader, _resolved(device), depth, 0
        self._consumed = 0
        self._order: dict[str, Any] | None = None  # of the pass that is under way, or to be taken up
        self._taking_up = self._resumed = False
        self._feeds: set[Inline | Prefetched] = set()
        self._waiting = Waiting()

    def __len__(self) -> int:
        return len(self.loader)  # pyrefly: ignore

    def __iter__(self) -> Iterator[Any]:
        """A pass; one that was taken up by `load_state_dict` begins where that was saved."""
        if self._taking_up:
            self._taking_up = False
            assert self._order is not None
            batches = taken_up(self.loader, self._order, self._consumed)
        else:
            if self._order is not None:  # the last pass was left early
                self.epoch += 1
            if self._resumed:
                start_workers(self.loader)
                self._resumed = False
            self._consumed = 0
            self._order = order_of(self.loader)
            batches = iter(self.loader)
        return self._passed_through(batches) if self.device.type != "cuda" else self._prefetched(batches)

    def state_dict(self) -> dict[str, Any]:
        """The place in the current pass: batches that were handed out (not those under way), and what sets the order.

        Tensors, numbers and dictionaries; after ``load_state_dict`` the next pass has the batches that were left.
        Random numbers that workers draw for augmentation are not continued: seed them by sample if that matters.
        """
        return {"version": VERSION, "epoch": self.epoch, "batches": self._consumed, "order": self._order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a pass where `state_dict` was called.

        Raises:
            InputError: the state is not of a `PrefetchLoader`.
        """
        missing = {"version", "epoch", "batches", "order"} - set(state)
        if missing or state["version"] != VERSION:
            lacking = ", ".join(sorted(missing)) or f"version {VERSION}"
            raise InputError(f"the state has no {lacking}: expected one from PrefetchLoader.state_dict()")
        self.epoch, self._consumed, self._order = state["epoch"], state["batches"], state["order"]
        self._taking_up, self._resumed = self._order is not None, True

    def _keep_in(self, keeper: Keeper, name: str) -> None:
        """Have a `TrainingState` keep the place in the pass, and put it back."""
        place = {key: copy.deepcopy(getattr(self, key)) for key in PLACE}
        order = self._order
        keeper.keep(f"{name}.loader", self.loader, strict=False)

        def restore() -> None:
            moved = self._order is order and self._consumed != place["_consumed"]  # by a pass under way
            for key, value in place.items():
                setattr(self, key, copy.deepcopy(value))
            self._order = order
            self._taking_up = self._taking_up or moved

        keeper.restores.append(restore)

    def report(self, probe: int = 4) -> Waiting:
        """What was waited for so far.

        Args:
            probe: batches that are loaded in this process to tell the dataset's time from collation's; what they draw
                from global generators is given back. 0 for none: both are then reported together.

        Returns:
            A snapshot; print it.
        """
        report = self._waiting.snapshot()
        if probe and report.waited_for["load"] and (parts := costs(self.loader, probe)) is not None:
            report.divide_loading(*parts)
        return report

    def close(self) -> None:
        """End what is under way; passes that were left early end by themselves as soon as Python lets go of them."""
        for feed in list(self._feeds):
            feed.close()
        self._feeds.clear()

    def __enter__(self) -> "PrefetchLoader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- passes -------------------------------------------------------------------------------------------------------

    def _passed_through(self, batches: Iterator[Any]) -> Iterator[Any]:
        clock = self._waiting.begin()
        while True:
            began = time.perf_counter()
            try:
                with record_function(WAITING):
                    batch = next(batches)
            except StopIteration:
                break
            clock.waited(time.perf_counter() - began, {"load": time.perf_counter() - began})
            self._consumed += 1
            yield at_once(batch, self.device) if self.device.type == SIMULATED else batch
        self._end()

    def _prefetched(self, batches: Iterator[Any]) -> Iterator[Any]:
        clock, stager = self._waiting.begin(), Stager(self.device)
        ahead = getattr(self.loader, "num_workers", 0) > 0
        feed = (Prefetched if ahead else Inline)(batches, stager, self.depth)
        self._feeds.add(feed)
        try:
            while True:
                began = time.perf_counter()
                with record_function(WAITING):
                    staged = feed.get()
                if staged.error is not None:
                    break
                assert staged.slot is not None
                batch = stager.hand_over(staged)
                feed.hand_back(staged.slot)
                clock.waited(time.perf_counter() - began, staged.spent)
                self._waiting.copy_seconds += staged.copied
                self._consumed += 1
                del staged  # the batch belongs to whoever gets it
                yield batch
                del batch
        finally:
            feed.close()
            self._feeds.discard(feed)
        if not isinstance(staged.error, StopIteration):
            raise staged.error
        self._end()

    def _end(self) -> None:
        self.epoch, self._consumed, self._order = self.epoch + 1, 0, None


def _resolved(device: torch.device | str | None) -> torch.device:
    """A device with its number: threads have a current device of their own."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
