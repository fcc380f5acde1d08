"""What findings cost: the step timed with and without each, in interleaved pairs, or an estimate.

Never the time within a call. Every estimate is bounded by what the step can gain: work that is saved on the device
shortens a step only as far as the device is what is waited for.
"""

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from denizen.perf._doctor.ablation import Tape, can_be_taken_out
from denizen.perf._doctor.diagnosis import AB, ESTIMATE, NOTE, SEVERE, SEVERE_SHARE, Cost, Diagnosis, order
from denizen.perf._doctor.hooks import living
from denizen.perf._doctor.report import DoctorReport
from denizen.perf._doctor.roofline import BUSY_SHARE, Roofline
from denizen.perf._doctor.subject import Kept, Subject
from denizen.perf._profile.gaps import COPY, LAUNCH, READ

PAIRS = 12
RESAMPLES = 2000
SAMPLE = 15e-3  # seconds of a sample, at least
LEAD = 2  # steps of a sample before its clock starts: the host has run ahead of the device then, as in a loop
LEAST_STEPS, MOST_STEPS = 3, 20  # of a sample, by the clock
FEWEST = 6  # pairs, of steps so slow that there is no time for more
SMALLEST = 0.01  # of a step: gains below are not looked for any further
BUDGET = 60.0  # seconds for all comparisons


@dataclasses.dataclass(frozen=True)
class Gain:
    """Seconds of a step saved, with the ends of the 95 % interval over pairs, and the seconds before."""

    seconds: float
    low: float
    high: float
    before: float = 0.0


def ranked(report: DoctorReport, subject: Subject, device: torch.device) -> DoctorReport:
    """With costs: measured where a finding can be taken out of the step, else estimated where that makes sense.

    Gains do not add, so the best is kept applied while the others are measured again; `combined` is measured too.
    """
    findings = list(report.findings)
    wanted = [one for one in findings if one.level != NOTE and can_be_taken_out(one)]
    step = report.step_seconds or 0.0
    costs: dict[int, Cost] = {}
    notes, combined = list(report.notes), None
    if wanted and step:
        try:
            with Trial(subject, device, wanted, step) as trial:
                costs, combined = _measured(trial, wanted, step)
        except Exception as error:  # of the step, which took another course: findings stand, without times
            first = f"{type(error).__name__}: {error}".partition("\n")[0]
            notes.append(f"costs were not measured, the step failed when it was repeated: {first}")
    out = [_with_cost(one, costs.get(id(one)), report) for one in findings]
    out.sort(key=order)
    return dataclasses.replace(report, findings=out, combined=combined, notes=notes)


def _measured(trial: "Trial", wanted: Sequence[Diagnosis], step: float) -> tuple[dict[int, Cost], float | None]:
    ends = time.perf_counter() + BUDGET
    alone = {}
    for one in filter(trial.touches, wanted):
        if time.perf_counter() + trial.seconds > ends:
            break
        with contextlib.suppress(Exception):  # without this finding the step takes another course: no cost
            gain = trial.gain([], [one])
            if trial.took(one):
                alone[id(one)] = gain
    costs = {key: _cost(gain, trial.pairs) for key, gain in alone.items()}
    by_gain = sorted((one for one in wanted if id(one) in alone), key=lambda one: -alone[id(one)].seconds)
    kept: list[Diagnosis] = []
    for one in by_gain:
        if time.perf_counter() + trial.seconds > ends or alone[id(one)].high < SMALLEST * step:
            break
        with contextlib.suppress(Exception):
            gain = alone[id(one)] if not kept else trial.gain(kept, [*kept, one])
            if gain.low > 0 and gain.seconds >= SMALLEST * step:
                kept.append(one)
    if len(kept) < 2:
        return costs, alone[id(kept[0])].seconds if kept else None
    return costs, trial.gain([], kept).seconds


def _cost(gain: Gain, pairs: int) -> Cost:
    return Cost(gain.seconds, gain.low, gain.high, gain.seconds / gain.before, AB, f"{pairs} pairs")


def _with_cost(one: Diagnosis, cost: Cost | None, report: DoctorReport) -> Diagnosis:
    step = report.step_seconds or 0.0
    if cost is None:
        estimate = estimated(one, report)
        return one if estimate is None else dataclasses.replace(one, cost=estimate)
    if cost.low > 0:
        return dataclasses.replace(one, cost=cost, level=SEVERE if cost.share >= SEVERE_SHARE else one.level)
    measured = f"no measurable cost: {1e3 * cost.low:.3g} to {1e3 * cost.high:.3g} ms a step in {cost.basis}"
    level = NOTE if cost.high < SMALLEST * step else one.level
    return dataclasses.replace(one, cost=cost, level=level, evidence=(*one.evidence, measured))


class Trial:
    """A step that can be repeated from one state, with findings in it or taken out.

    Attributes:
        seconds: that one comparison takes, about.
        pairs: of a comparison.
    """

    seconds = 0.0
    pairs = PAIRS

    def __init__(self, subject: Subject, device: torch.device, findings: Sequence[Diagnosis], step: float) -> None:
        self._subject, self._device, self._findings = subject, device, findings
        self._steps = min(MOST_STEPS, max(LEAST_STEPS, math.ceil(SAMPLE / step)))
        if 2 * PAIRS * (LEAD + self._steps) * step * len(findings) > BUDGET / 2:
            self.pairs = FEWEST
        self._tape = Tape(device.type)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Trial":
        if self._subject.spent:
            self._subject.rebuild()
        self._take(1)  # first-call work of a step that was built anew
        self._kept: Kept = self._subject.snapshot()
        try:
            self._stack.enter_context(self._tape.installed(self._things()))
            with self._tape.recorded(self._findings):
                self._take(LEAD + self._steps)
            self._seconds([])  # with wrappers in place, once without looking
            self.seconds = 2 * self.pairs * (LEAD + self._steps) * self._seconds([])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._kept.restore()

    def touches(self, one: Diagnosis) -> bool:
        """Whether taking a finding out changes what the step does."""
        return self._tape.touched(one)

    def took(self, one: Diagnosis) -> bool:
        """Whether anything was left out of the step where a finding was taken out last."""
        if one.kind == "optimizer-unfused":
            return any("foreach" in group for group in _groups(self._subject))
        return self._tape.took(one)

    def gain(self, before: Sequence[Diagnosis], after: Sequence[Diagnosis]) -> Gain:
        """What taking `after` out saves against `before` taken out: pairs in the order A B B A."""
        gains, times = [], []
        for pair in range(self.pairs):
            if pair % 2:
                b, a = self._seconds(after), self._seconds(before, after)
            else:
                a, b = self._seconds(before, after), self._seconds(after)
            gains.append(a - b)
            times.append(a)
        return dataclasses.replace(interval(gains), before=statistics.median(times))

    def _seconds(self, out: Sequence[Diagnosis], located: Sequence[Diagnosis] = ()) -> float:
        self._kept.restore()
        self._tape.rewind()
        with self._tape.without(out, located), _foreach(out, self._subject):
            self._wait()
            self._take(LEAD)
            began = self._mark()
            self._take(self._steps)
            ended = self._mark()
            self._wait()
            seconds = ended - began if isinstance(began, float) else began.elapsed_time(ended) / 1e3
            return seconds / self._steps

    def _things(self) -> list[Any]:
        """Objects whose methods findings call; modules where one is about them, for compiled ones would notice."""
        kinds: list[type] = [torch.optim.Optimizer, torch.amp.GradScaler]
        if any(one.kind in ("no-grad-missing", "grad-memset") for one in self._findings):
            kinds.append(nn.Module)
        if self._device.type == "cuda":
            kinds += [torch.cuda.Event, torch.cuda.Stream]
        return living(*kinds)

    def _mark(self) -> Any:
        """The time: an event of the device, which no wait at the end of a sample delays; on the CPU a clock."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _take(self, steps: int) -> None:
        for _ in range(steps):
            self._subject()

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def interval(gains: Sequence[float]) -> Gain:
    """Median of pairs, with a bootstrap interval over them."""
    values, random = np.asarray(gains), np.random.default_rng(0)
    drawn = random.integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[drawn], axis=1), [0.025, 0.975])
    return Gain(statistics.median(gains), float(low), float(high))


@contextlib.contextmanager
def _foreach(out: Sequence[Diagnosis], subject: Subject) -> Generator[None]:
    """Optimizers that are taken out step with `foreach`: the same state, fewer launches."""
    if not any(one.kind == "optimizer-unfused" for one in out):
        yield
        return
    changed = [(group, group.get("foreach")) for group in _groups(subject) if "foreach" in group]
    for group, _ in changed:
        group["foreach"] = True
    try:
        yield
    finally:
        for group, before in changed:
            group["foreach"] = before


def _groups(subject: Subject) -> Iterator[dict[str, Any]]:
    for thing in subject.used():
        if isinstance(thing, torch.optim.Optimizer):
            yield from thing.param_groups


_BUSY = 0.8  # of a step: fewer launches do not shorten it
_IDLE = {"host-sync-": READ, "d2h-accumulate": READ, "h2d-": COPY, "roundtrip": READ, "loader-pin": COPY}


def estimated(one: Diagnosis, report: DoctorReport) -> Cost | None:
    """An estimate, by the kind of finding; None where there is nothing to compute it from."""
    roof, step = report.roofline, report.step_seconds or 0.0
    if roof is None or not step:
        return None
    if one.kind in ("launch-bound", "optimizer-unfused"):
        found = _launches(one, roof, step)
    elif one.needless or one.flops:
        found = _moved(one, roof, step)
    else:
        found = _waits(one, report, roof)
    if found is None:
        return None
    seconds, basis = min(found[0], step), found[1]
    return Cost(seconds, seconds, seconds, seconds / step, ESTIMATE, basis)


def _launches(one: Diagnosis, roof: Roofline, step: float) -> tuple[float, str] | None:
    """Launches of a loop, by the host's cost of one, where launching takes the time.

    That cost is the least: a launch through Python takes indexing and views along. A loop has its part, by launches, of
    the time in which the device stood still for launches.
    """
    if not roof.launch or (roof.busy is not None and roof.busy > _BUSY):
        return None
    seconds, basis = one.count * roof.launch, f"{one.count} launches at {1e6 * roof.launch:.1f} µs each"
    idle = sum(roof.idle.values()) if roof.idle else 0.0
    if one.kind == "launch-bound" and roof.busy is not None and roof.idle and idle and roof.launches:
        share = roof.idle.get(LAUNCH, 0.0) / idle * min(1.0, one.count / roof.launches)
        if (waited := step * (1 - roof.busy) * share) > seconds:
            return waited, f"{one.count} of {roof.launches} launches, for which the device stood still"
    return seconds, basis


def _moved(one: Diagnosis, roof: Roofline, step: float) -> tuple[float, str] | None:
    """Bytes that need not be moved, and products in a wider type, at the measured rates of the device."""
    if not roof.bandwidth or (roof.busy is not None and roof.busy < BUSY_SHARE):
        return None
    seconds, basis = one.needless / roof.bandwidth, f"{one.needless:,} bytes at {roof.bandwidth / 1e9:,.0f} GB/s"
    if one.flops and roof.peak and roof.peak64:
        seconds += one.flops * max(0.0, 1 / roof.peak64 - 1 / roof.peak)
        basis += f", {one.flops / 1e9:.3g} GFLOP in float64 at {roof.peak64 / 1e12:.3g} TFLOP/s"
    late = step - roof.launches * (roof.launch or 0.0) if roof.busy is not None else step
    return min(seconds, max(0.0, late)), basis


def _waits(one: Diagnosis, report: DoctorReport, roof: Roofline) -> tuple[float, str] | None:
    """A wait or a copy: its part, by count, of the time in which the device stood still for such."""
    cause = next((cause for kind, cause in _IDLE.items() if one.kind.startswith(kind)), None)
    if cause is None or not roof.idle or one.level == NOTE:
        return None
    alike = [kind for kind, other in _IDLE.items() if other == cause]
    counts = sum(other.count for other in report.findings if other.kind.startswith(tuple(alike)))
    idle = roof.idle.get(cause, 0.0)
    return idle * one.count / max(1, counts), f"its part of {1e3 * idle:.3g} ms that the device stood still ({cause})"
