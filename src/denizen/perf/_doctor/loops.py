"""Python loops that launch small operations one by one."""

import collections
import statistics
from collections.abc import Iterable

from denizen.perf._doctor.diagnosis import Diagnosis, at, period_of
from denizen.perf._doctor.records import Op
from denizen.perf._doctor.source import loops_around
from denizen.perf.watch._observe import SIMULATED
from denizen.perf.watch._places import Place

OFTEN = 16  # rounds in one step
PARAMETERS = 8  # rounds, where each takes another parameter
LAUNCH = 5e-6  # seconds of the host for an operation, about
BYTES, FLOPS = 2e12, 3e13  # per second, of a large GPU: an operation below LAUNCH by these leaves it waiting
# Where libraries are made of parts that a GPU has one kernel for.
_PARTS = ("torch/_decomp/", "torch/nn/modules/rnn.py", "perf/simulated/_device.py")

_PLAIN = ("aten::copy_", "aten::clone", "aten::zero_", "aten::fill_")  # element by element, though not tagged so

Loop = tuple[str, int]  # file and first line


def loops(ops: list[Op], steps: list[int], device: str, drawn: Iterable[Place]) -> list[Diagnosis]:
    """Lines in loops whose operations are so small and so many that launching them is what takes the time.

    Args:
        ops: of some steps.
        steps: numbers of these.
        device: kind of the device.
        drawn: the line of each batch that a step drew from a loader.
    """
    sites: dict[Loop, list[Op]] = {}
    for op in ops:
        if op.site is not None and not op.part and not _is_one_kernel(op):
            sites.setdefault((op.site.file, op.site.line), []).append(op)
    rounds = _rounds(ops, drawn)
    found: dict[Loop, list[tuple[int, list[Op]]]] = {}
    for (file, line), there in sites.items():
        heads = loops_around(file, line)
        times = max((rounds.get((file, head), 1) for head in heads), default=1)
        often = _often(there) // times
        own, plain = _own(there)
        if often >= (PARAMETERS if own and plain else OFTEN) and (plain or not own) and _small(there):
            found.setdefault((file, heads[-1]), []).append((often, there))
    return [_told(head, group, steps, device) for (_, head), group in found.items()]


def _often(there: list[Op]) -> int:
    """Rounds of a line in a step: how often most of its operations came, for a network has some more than once."""
    last = there[-1].step
    counts = collections.Counter((op.line, op.at, op.name) for op in there if op.step == last)
    return statistics.median_low(counts.values())


def _is_one_kernel(op: Op) -> bool:
    return any(part in file for file, _, _ in op.place.libraries for part in _PARTS)


def _rounds(ops: list[Op], drawn: Iterable[Place]) -> dict[Loop, int]:
    """Rounds of loops that are steps of training or batches of a loader: not loops that could be one operation."""
    passes: dict[Loop, set[int]] = {}
    last, before, number = ops[-1].step if ops else -1, "", 0
    for op in ops:
        number += op.part == "backward" and before != "backward"
        before = op.part
        if op.part == "backward" and op.step == last:
            for head in loops_around(*op.line):
                passes.setdefault((op.place.file, head), set()).add(number)
    rounds = {loop: len(numbers) for loop, numbers in passes.items()}
    for place in drawn:
        for head in loops_around(place.file, place.line):
            rounds[place.file, head] = rounds.get((place.file, head), 0) + 1
    return rounds


def _own(there: list[Op]) -> tuple[bool, bool]:
    """Whether rounds take parameters of their own, as over a network's layers; whether all of that is pointwise."""
    last = there[-1].step
    weights: dict[tuple[Loop, str], list[Op]] = {}
    for op in there:
        if op.step == last and op.weight:
            weights.setdefault((op.line, op.name), []).append(op)
    own = [many for many in weights.values() if len(many) > 1 and len({op.weight for op in many}) >= len(many) // 2]
    return bool(own), all(op.pointwise or op.schema in _PLAIN for many in own for op in many)


def _small(there: list[Op]) -> bool:
    mean = sum(max(op.bytes / BYTES, op.flops / FLOPS) for op in there) / len(there)
    return mean < LAUNCH


def _told(head: int, group: list[tuple[int, list[Op]]], steps: list[int], device: str) -> Diagnosis:
    often, there = max(group, key=lambda entry: (len(entry[1]), -_line(entry[1])))
    came = {op.step for op in there}
    last, place = max(came), there[0].site
    assert place is not None
    total = sum(op.step == last for _, ops in group for op in ops)
    largest = max(op.numel for op in there)
    evidence = [f"the loop of line {head} launches {total} operations a step, {often} of a kind at this line"]
    evidence += [f"the largest has {largest:,} elements: its work is less than its launch"]
    if device != SIMULATED:
        evidence += [f"about {1e3 * LAUNCH * total:.2g} ms of launching at {1e6 * LAUNCH:.0f} µs each (estimate)"]
    return at("launch-bound", place, total, period_of(came, steps), evidence, op=there[0].name, confidence="medium")


def _line(there: list[Op]) -> int:
    return 0 if there[0].site is None else there[0].site.line
