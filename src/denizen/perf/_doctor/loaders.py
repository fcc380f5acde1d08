"""What loaders cost: data prepared inline, workers started anew, batches that are not pinned, slow collating."""

import linecache
import statistics
from collections.abc import Sequence
from typing import Any

from denizen.perf._doctor.diagnosis import NOTE, WARNING, Diagnosis, at, period_of
from denizen.perf._doctor.hooks import Drawn
from denizen.perf.watch._findings import EVERY
from denizen.perf.watch._places import Place

BOUND = 0.05  # share of a step that may be waited for data
LEAST = 5e-4  # seconds of the host for a batch, below which workers would not be faster


def loaders(
    drawn: Sequence[Drawn], times: Sequence[float], steps: Sequence[int], rest: float | None
) -> list[Diagnosis]:
    """Diagnoses of the loaders that plain steps drew from.

    Args:
        drawn: batches, by line.
        times: seconds of the host in each step, loading within.
        steps: numbers of these steps.
        rest: seconds of a step besides loading, about, where `times` are those of a stand-in; None where they are real.
    """
    found: list[Diagnosis] = []
    for batches in drawn:
        found += _restarted(batches, steps) + _waited(batches, times, steps, rest)
    return found


def _made(batches: Drawn) -> Place:
    """The line that made the loader, where that is known or the file with the loop has one only; else that draws."""
    known = getattr(batches.loader, "_denizen_place", None)
    if known is not None:
        return known
    file, text = batches.place.file, "DataLoader("
    lines = [n for n, line in enumerate(linecache.getlines(file), 1) if text in line.partition("#")[0]]
    return Place(file, lines[0], "") if len(lines) == 1 else batches.place


def _workers(loader: Any) -> int:
    """Of a loader or of a pass over one that began before anybody listened."""
    return getattr(loader, "num_workers", getattr(loader, "_num_workers", 0))


def _restarted(batches: Drawn, steps: Sequence[int]) -> list[Diagnosis]:
    loader = batches.loader
    if len(batches.starts) < 2 or getattr(loader, "persistent_workers", False):
        return []
    evidence = [f"{len(batches.starts)} passes in {len(steps)} steps each started {_workers(loader)} workers anew"]
    period = period_of(batches.starts, steps)
    return [at("loader-persistent", _made(batches), 1, period, evidence, op="DataLoader.__iter__")]


def _waited(batches: Drawn, times: Sequence[float], steps: Sequence[int], rest: float | None) -> list[Diagnosis]:
    workers = _workers(batches.loader)
    if not batches.wait or not times or (workers and rest is not None):
        return []
    drawn, came = len(batches.wait), len(set(batches.steps))
    wait, dataset, collate = statistics.median(batches.wait), batches.dataset / drawn, batches.collate / drawn
    per_step = wait * drawn / came
    share = per_step / (statistics.median(times) if rest is None else per_step + rest)
    if share < BOUND:
        return []
    evidence = [f"line {batches.place.line} draws from it and waits {1e3 * wait:.3g} ms for a batch"]
    if workers:
        evidence[0] += f", though {workers} workers prepare them"
    else:
        evidence[0] += f", made in this process (dataset {1e3 * dataset:.3g} ms, collate {1e3 * collate:.3g} ms)"
        evidence += [f"{batches.samples} samples one by one"] if batches.samples > 1 else []
    evidence += [f"{share:.0%} of a step here"] if rest is None else []
    period = period_of(batches.steps, steps)
    often = period == EVERY or came > len(steps) // 2
    level = WARNING if often and not workers and min(batches.wait) >= LEAST else NOTE
    kind = "loader-collate" if collate > dataset and not workers else "loader-workers"
    count = max(1, round(drawn / came))
    return [at(kind, _made(batches), count, period, evidence, level=level, op="DataLoader", confidence="medium")]
