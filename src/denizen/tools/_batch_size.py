"""Which batch size: the largest that fits and the smallest of the fastest, each of them tried on the real step."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch

from denizen._arguments import share, whole
from denizen.errors import InputError, expect_function
from denizen.perf.state import Snapshot, TrainingState
from denizen.perf.watch import clean, free, out_of_memory, peak_bytes, size, wait, without_frames
from denizen.tools._warm_up import place_of, warn_of_forgotten

AS_FAST = 0.97  # of the best rate: a smaller batch at this rate is the better one
WARM, ROUNDS = 2, 3  # steps before timing; rounds of steps, of which the best counts: other programs only add time
TOP = 1 << 24  # where nothing else ends the search
FITS, NO_MEMORY, NO_ROOM, NOT_TRIED = "fits", "out of memory", "over the headroom", "not tried: needs too much memory"


@dataclasses.dataclass(frozen=True)
class SizeTrial:
    """What was seen at one batch size.

    Attributes:
        batch_size: samples in a step.
        outcome: ``"fits"``, ``"out of memory"``, ``"over the headroom"``, or that it was not tried (on a CPU, which
            kills a process rather than raise an error).
        samples_per_second: None unless it fits.
        step_ms: milliseconds of a step, in the best round.
        peak_bytes: the most that a step held at once beyond what was held before; an estimate if it was not tried.
        reserved_bytes: what torch's allocator took from the device for it; None on a CPU.
        verified: whether it ran a second time, longer.
    """

    batch_size: int
    outcome: str
    samples_per_second: float | None = None
    step_ms: float | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    verified: bool = False


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """The answer of `find_batch_size`; print it, with `print` or with rich.

    Attributes:
        largest: the largest size that fits.
        fastest: the smallest size within 3 % of the best rate.
        trials: all sizes that were tried, by size.
        reason: why the search ended.
        room_bytes: what a step may hold at most.
        device: where it ran.
    """

    largest: int
    fastest: int
    trials: list[SizeTrial]
    reason: str
    room_bytes: int | None
    device: torch.device

    def __rich__(self) -> Any:
        from rich.console import Group

        from denizen._printing import Table, as_it_is

        table = Table()
        for title in ("batch size", "samples/s", "ms/step", "peak", "outcome"):
            table.add_column(title, justify="left" if title == "outcome" else "right")
        for trial in self.trials:
            marks = [name for name in ("fastest", "largest") if getattr(self, name) == trial.batch_size]
            rate = "" if trial.samples_per_second is None else f"{trial.samples_per_second:,.0f}"
            taken = "" if trial.step_ms is None else f"{trial.step_ms:.2f}"
            memory = "" if trial.peak_bytes is None else size(trial.peak_bytes)
            outcome = trial.outcome + (", verified" if trial.verified else "")
            notes = f"{outcome} <- {' and '.join(marks)}" if marks else outcome
            table.add_row(str(trial.batch_size), rate, taken, memory, notes, style="bold" if marks else None)
        room = "" if self.room_bytes is None else f"; room for a step: {size(self.room_bytes)}"
        return Group(
            as_it_is(f"{self.device}: fastest {self.fastest}, largest {self.largest}{room}"),
            table,
            as_it_is(f"the search ended because {self.reason}"),
        )

    def __str__(self) -> str:
        from denizen._printing import plain

        return plain(self, 100)


def find_batch_size(
    make_step: Callable[[int], Callable[[], object]],
    *,
    state: Any,
    floor: int = 1,
    ceiling: int | None = None,
    dataset_length: int | None = None,
    headroom: float = 0.1,
    steps: int = 3,
    device: torch.device | str | None = None,
) -> BatchSizes:
    """Try the real step at growing batch sizes, and leave no trace.

    ```python
    def make_step(batch_size):
        batch = longest_samples(batch_size)  # the largest that will come, so that training fits later
        return lambda: train_step(batch)  # forward, backward, optimizer


    sizes = dz.tools.find_batch_size(make_step, state=[model, optimizer], dataset_length=len(dataset))
    print(sizes)
    ```

    Sizes double from `floor` until memory, `ceiling` or the dataset ends; then the last that fits is found by halving,
    then sizes below the fastest are tried. Each trial begins at the same state, runs past the first allocations and is
    timed in rounds, of which the best counts; the answers run once more, three times as long. Weights, optimizer,
    loaders and random numbers are put back in place in the end, also after an error.

    Args:
        make_step: gets a batch size and returns a function that runs one step.
        state: what the step changes: a `TrainingState`, or a list or mapping of its parts.
        floor: the smallest size to try.
        ceiling: the largest one.
        dataset_length: samples there are; larger batches are not tried.
        headroom: share of the memory that is free at the start to leave free.
        steps: steps in a round; each trial times three rounds.
        device: None takes that of the tensors in `state`.

    Returns:
        The largest and the fastest size, both tried and verified, with the table of trials.

    Raises:
        InputError: not even `floor` fits (with the out-of-memory error as its cause), or an argument is wrong.

    Warns:
        UserWarning: the step uses a model, optimizer, scheduler or generator that is not in `state`.
    """
    limits = {"ceiling": ceiling, "dataset_length": dataset_length}
    for name, value in ({"floor": floor, "steps": steps} | limits).items():
        if value is not None:
            whole("find_batch_size", name, value, 1)
    for name, value in limits.items():
        if value is not None and value < floor:
            raise InputError(f"{name}={value} is below floor={floor}: nothing is left to try")
    if share("find_batch_size", "headroom", headroom) == 1:
        raise InputError(f"find_batch_size: headroom={headroom!r}, expected a number from 0 to below 1")
    expect_function("find_batch_size: make_step", make_step, "batch_size")
    training = TrainingState.of(state)
    place = torch.device(device) if device is not None else place_of(training)
    with training.kept(drop_fresh=True) as snapshot:
        warn_of_forgotten(make_step, snapshot, "find_batch_size")
        search = _Search(make_step, snapshot, place, headroom, steps)
        reason = search.grow(floor, limits)
        search.refine()
        fastest, largest = search.answers()
        trials = [search.trials[number] for number in sorted(search.trials)]
    return BatchSizes(largest, fastest, trials, reason, search.room, place)


class _Search:
    """Trials by size, and the next ones to make.

    Attributes:
        trials: what was tried.
        room: bytes that a step may hold; None if unknown.
    """

    def __init__(
        self,
        make_step: Callable[[int], Callable[[], object]],
        snapshot: Snapshot,
        device: torch.device,
        headroom: float,
        steps: int,
    ) -> None:
        self.make_step, self.snapshot, self.device, self.steps = make_step, snapshot, device, steps
        self.trials: dict[int, SizeTrial] = {}
        self._failure: BaseException | None = None
        clean(device)
        available = free(device)
        self.room = None if available is None else int((1 - headroom) * available)

    def fitting(self) -> list[int]:
        return sorted(number for number, trial in self.trials.items() if trial.outcome == FITS)

    def largest(self) -> int:
        return self.fitting()[-1]

    def fastest(self) -> int:
        """The smallest within 3 % of the best rate."""
        rates = {number: self.trials[number].samples_per_second or 0.0 for number in self.fitting()}
        return min(number for number, rate in rates.items() if rate >= AS_FAST * max(rates.values()))

    def grow(self, floor: int, limits: dict[str, int | None]) -> str:
        """Double, then halve the gap between the last that fits and the first that does not; why it ended."""
        ends = {name: value for name, value in limits.items() if value is not None}
        top = min(ends.values(), default=TOP)
        number = fits = floor
        while self._try(number):
            if number == top:
                why = next((f"{name}={top} is reached" for name in ends if ends[name] == top), "")
                return why or f"nothing has limited it up to {top}; does the step use the batch size?"
            fits, number = number, min(2 * number, top)
        if number == floor:
            self._none_fits()
        fails = number
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self._try(middle):
                fits = middle
            else:
                fails = middle
        return f"{fails} does not fit ({self.trials[fails].outcome})"

    def refine(self) -> None:
        """Try sizes between the fastest and the next smaller one, while the gap matters."""
        while True:
            chosen = self.fastest()
            smaller = [number for number in self.fitting() if number < chosen]
            if not smaller or chosen - smaller[-1] <= max(1, chosen // 8):
                return
            self._try((chosen + smaller[-1]) // 2)

    def answers(self) -> tuple[int, int]:
        """The fastest and the largest, both verified; what one longer run shows may change the other choice."""
        while True:
            largest, fastest = self.verified(self.largest), self.verified(self.fastest)
            if largest == self.largest() and fastest == self.fastest():
                return fastest, largest

    def verified(self, choose: Callable[[], int]) -> int:
        """Run the choice once more, longer; choose again until it stands."""
        while True:
            number = choose()
            if self.trials[number].verified:
                return number
            if not self._try(number, longer=3) and not self.fitting():
                self._none_fits()

    # --- one trial ----------------------------------------------------------------------------------------------------

    def _try(self, number: int, longer: int = 1) -> bool:
        expected = self._expected(number)
        if expected is not None:
            self.trials[number] = SizeTrial(number, NOT_TRIED, peak_bytes=expected)
            return False
        failure = None
        try:
            trial = self._measured(number, longer)
        except Exception as error:
            if not out_of_memory(error):
                raise
            failure = without_frames(error)
            trial = SizeTrial(number, NO_MEMORY)
        # Out here the error has let go of the frames of the step, and with them of its tensors.
        if failure is not None:
            self._failure = failure
            self.snapshot.restore()
            clean(self.device)
        self.trials[number] = trial
        return trial.outcome == FITS

    def _measured(self, number: int, longer: int) -> SizeTrial:
        self.snapshot.restore()
        on_device = self.device.type == "cuda"
        if on_device:
            clean(self.device)  # so that what is reserved belongs to this trial
        seconds = 0.0
        with peak_bytes(self.device) as peak:
            step = self.make_step(number)
            if not callable(step):
                raise InputError(
                    f"make_step({number}) returned {type(step).__name__}: expected a function that runs one step, for "
                    "example `return lambda: train_step(batch)`"
                )
            expect_function(f"what make_step({number}) returned", step)
            for _ in range(WARM if on_device else 1):
                step()
            if on_device:
                seconds = self._seconds(step, longer)
        if not on_device:  # there, measuring memory takes time
            step()
            seconds = self._seconds(step, longer)
        outcome = NO_ROOM if self.room is not None and peak.nbytes > self.room else FITS
        rate = number / seconds if outcome == FITS else None
        return SizeTrial(number, outcome, rate, seconds * 1e3, peak.nbytes, peak.reserved, longer > 1)

    def _seconds(self, step: Callable[[], object], longer: int) -> float:
        """Of a step: the host may run ahead within a round, as in training."""
        rounds = []
        for _ in range(ROUNDS):
            wait(self.device)
            began = time.perf_counter()
            for _ in range(self.steps * longer):
                step()
            wait(self.device)
            rounds.append((time.perf_counter() - began) / (self.steps * longer))
        return max(min(rounds), 1e-9)

    def _expected(self, number: int) -> int | None:
        """Bytes that a size would need, if that is too much to be tried: a CPU does not raise an error in time."""
        fitting = self.fitting()
        if self.device.type == "cuda" or self.room is None or not fitting or number <= fitting[-1]:
            return None
        known = self.trials[fitting[-1]].peak_bytes or 0
        expected = known * number // fitting[-1]
        return expected if expected > self.room else None

    def _none_fits(self) -> None:
        number = min(self.trials)
        trial = self.trials[number]
        found = str(self._failure).partition("\n")[0] if self._failure is not None else trial.outcome
        if self._failure is None and trial.peak_bytes is not None and self.room is not None:
            found += f", needs {size(trial.peak_bytes)} of {size(self.room)}"
        raise InputError(
            f"floor={number}: not even this batch size fits ({found}); use a smaller floor, lower precision, a smaller "
            "model, or activation checkpointing (dz.tools.fit_memory)"
        ) from self._failure
