"""How many workers a loader needs on this machine, found by trying."""

import dataclasses
import math
import os
import time
from typing import Any

from torch.utils.data import DataLoader

from denizen._arguments import number, whole
from denizen.errors import InputError
from denizen.perf.watch import available_cores
from denizen.tools._feed import mapped
from denizen.tools._position import plain, rebuilt, same_random_numbers

LIKE_THE_BEST = 1.05  # a setting within 5 % of the best one is as good
KEEPS_UP = 0.05  # of a step may go into waiting
FACTORS = (2, 4, 8)
MOST_BATCHES = 64
MEMORY = 0.25  # of what is free may be taken by batches under way


@dataclasses.dataclass(frozen=True)
class Trial:
    """A setting that was tried.

    Attributes:
        num_workers: processes; 0 loads in the training process.
        prefetch_factor: batches under way for each; None without workers.
        seconds_waited: for a batch, the mean; a step's own time is not part of it.
        seconds_start: until the first batch came.
        batches: that were timed.
    """

    num_workers: int
    prefetch_factor: int | None
    seconds_waited: float
    seconds_start: float
    batches: int


@dataclasses.dataclass(frozen=True)
class TunedLoader:
    """A loader with the setting that was chosen, and all that were tried.

    Attributes:
        loader: the same batches in the same order; its workers stay between passes.
        chosen: its setting.
        trials: in the order in which they were run.
        reason: why this one, in words.
    """

    loader: DataLoader
    chosen: Trial
    trials: list[Trial]
    reason: str

    def __str__(self) -> str:
        lines = [f"{'workers':>7}  {'prefetch':>8}  {'ms waited a batch':>17}  {'s to start':>10}"]
        for trial in self.trials:
            factor = "-" if trial.prefetch_factor is None else trial.prefetch_factor
            mark = "  <- chosen" if trial is self.chosen else ""
            waited = f"{trial.seconds_waited * 1e3:.2f}"
            lines.append(f"{trial.num_workers:7}  {factor:>8}  {waited:>17}  {trial.seconds_start:10.2f}{mark}")
        return "\n".join([*lines, self.reason])


def tune_workers(
    loader: DataLoader, step_seconds: float = 0.0, max_workers: int | None = None, seconds: float = 10.0
) -> TunedLoader:
    """Try numbers of workers and depths of prefetching on the loader itself, and take the smallest that does.

    Numbers of workers go 0, 1, 2, 4, … up to the cores that this process may use. The smallest one wins with which a
    loop of this step time waits for less than 5 % of a step; if none does, the smallest within 5 % of the best. Then
    `prefetch_factor` is tried in the same way, as far as the batches under way fit into a quarter of the free memory.

    Args:
        loader: whose dataset, sampler and collation are used; it is not changed, and random numbers are given back.
        step_seconds: what a training step takes without its loader; 0 asks for the highest rate.
        max_workers: at most so many workers; None: cores. More than cores are never tried.
        seconds: for all trials together, about; starting workers comes on top.

    Raises:
        InputError: the loader is of a class of its own, so that no other one can be made like it, or it is empty.
    """
    if not plain(loader):
        raise InputError(f"loader is a {type(loader).__name__}: expected a torch.utils.data.DataLoader itself")
    number("tune_workers", "step_seconds", step_seconds, 0)
    number("tune_workers", "seconds", seconds, 0)
    if max_workers is not None:
        whole("tune_workers", "max_workers", max_workers, 0)
    cores = available_cores()
    most = cores if max_workers is None else min(max_workers, cores)
    numbers = sorted({0, most, *(2**k for k in range(most.bit_length()) if 2**k <= most)})
    budget = seconds / (len(numbers) + len(FACTORS) - 1)
    with same_random_numbers(loader):
        room = _room(loader)
        trials = [
            _tried(loader, number, 2, step_seconds, budget) for number in numbers if number * 2 <= room or not number
        ]
        chosen = _smallest(trials, step_seconds)
        if chosen.num_workers:
            deeper = [factor for factor in FACTORS[1:] if chosen.num_workers * factor <= room]
            more = [_tried(loader, chosen.num_workers, factor, step_seconds, budget) for factor in deeper]
            trials += more
            chosen = _smallest([chosen, *more], step_seconds)
    settings = {"num_workers": chosen.num_workers, "prefetch_factor": chosen.prefetch_factor}
    tuned = rebuilt(loader, **settings, persistent_workers=chosen.num_workers > 0)
    return TunedLoader(tuned, chosen, trials, _reason(chosen, trials, step_seconds, cores))


def _tried(loader: DataLoader, workers: int, factor: int, step_seconds: float, budget: float) -> Trial:
    candidate = rebuilt(
        loader, num_workers=workers, prefetch_factor=factor if workers else None, persistent_workers=False
    )
    under_way = workers * factor
    waits, begun = [], time.perf_counter()
    batches = iter(candidate)
    try:
        start, began = None, begun
        while len(waits) < MOST_BATCHES + under_way and (
            len(waits) <= under_way + 1 or time.perf_counter() - begun < budget
        ):
            try:
                next(batches)
            except StopIteration:
                break
            now = time.perf_counter()
            if start is None:
                start, begun = now - began, now
            else:
                waits.append(now - began)
            if step_seconds:
                time.sleep(step_seconds)
            began = time.perf_counter()
    finally:
        del batches  # ends the workers
    if start is None:
        raise InputError("the loader has no batch to try")
    # Batches that were ready when the first one came say nothing of the rate.
    steady = waits[under_way:] or waits[-1:] or [start]
    mean = math.fsum(steady) / len(steady)
    return Trial(workers, factor if workers else None, mean, start, len(steady))


def _smallest(trials: list[Trial], step_seconds: float) -> Trial:
    """The first that is good enough; trials are sorted by what they take."""
    for trial in trials:
        if step_seconds and trial.seconds_waited <= KEEPS_UP * step_seconds:
            return trial
    best = min(trial.seconds_waited + step_seconds for trial in trials)
    return next(trial for trial in trials if trial.seconds_waited + step_seconds <= best * LIKE_THE_BEST)


def _reason(chosen: Trial, trials: list[Trial], step_seconds: float, cores: int) -> str:
    if step_seconds and chosen.seconds_waited <= KEEPS_UP * step_seconds:
        why = f"the smallest that waits for less than {KEEPS_UP:.0%} of a step of {step_seconds * 1e3:.1f} ms"
    else:
        why = "the smallest within 5 % of the best rate"
        if step_seconds:
            why += f"; none waits for less than {KEEPS_UP:.0%} of a step of {step_seconds * 1e3:.1f} ms"
    return f"{chosen.num_workers} workers: {why} ({cores} cores)"


def _room(loader: DataLoader) -> float:
    """Batches that may be under way at once: they lie in (shared) memory."""
    batch = next(iter(rebuilt(loader, num_workers=0, prefetch_factor=None, persistent_workers=False)), None)
    if batch is None:
        raise InputError("the loader has no batch to try")
    sizes: list[int] = []
    mapped(batch, lambda tensor: sizes.append(tensor.nbytes), lambda thing: thing)
    return MEMORY * _free_bytes() / sum(sizes) if any(sizes) else math.inf


def _free_bytes() -> float:
    """Free memory, and free shared memory where workers hand their batches over through it."""
    free: Any = math.inf
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        shared = os.statvfs("/dev/shm")
        free = min(free, shared.f_bavail * shared.f_frsize)
    except (AttributeError, ValueError, OSError):
        pass
    return free
