"""What `dz.check(model, dt=True)` asks: whether series come to one limit as steps get short.

Worlds are run with steps of dt, dt/2 and dt/4. A scheme that converges takes smaller and smaller strides from one to
the next; where something goes by the step instead of by time, the second stride is the larger one, or goes back.
Strides within the noise of the worlds tell nothing. Causes are looked for in single steps (`_check_dt_causes`), and one
that can be put right by itself is blamed where series agree once it is.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from denizen.errors import DenizenError
from denizen.model._check_dt_causes import Cause, Looks, halved_clock, in_steps, slowed
from denizen.model._flat_world import FlatWorld, Setting, series_kinds
from denizen.model._interventions import Intervention, bind
from denizen.model._model import Model, ids_of
from denizen.model._source_lines import Line
from denizen.model._when import Clock

WORLDS, BUDGET = (8, 64), 50_000  # fewest and most worlds; agents in all of them
PARTS = (1, 2, 4)  # that a step is cut into
SURE = 4.5  # standard errors that noise does not reach in thousands of looks
# A second stride is half of the first one where a scheme of first order converges. It parts where it is further from
# that than this share of the longest first stride; of logarithms, where it is at least this share of it.
OFF, OFF_BY_LOG = 0.75, 0.75
CLOSED = 0.5  # share of a gap that may be left once its cause is put right
ROUNDING = 1e-5
ENTRIES = 32  # of a series that are looked at one by one
TRIED = 6  # causes that are put right, one after the other


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What runs with steps of several lengths showed.

    Attributes:
        apart: by name, each series that parts: its mean with steps of dt/2 over that with dt, where they are furthest
            apart; NaN where the latter is 0.
        causes: of that, as far as found.
        about: what was run, in words.
        idle: names of series that were 0 throughout.
        refused: why the model does not run with shorter steps; empty where it does.
    """

    apart: dict[str, float]
    causes: tuple[Cause, ...]
    about: str
    idle: tuple[str, ...] = ()
    refused: str = ""

    def findings(self) -> Iterator[tuple[Line | None, str, str]]:
        """(line, what is wrong, what to write instead) for each cause, or for all series where none was found."""
        causes = self.causes or (
            Cause(
                None,
                "no draw, field or line was found that goes by the step",
                "hazards in rng.event, other rates times now.time.dt, now.time.value in place of now.time.step",
            ),
        )
        for cause in causes if self.apart else ():
            names = [name for name in self.apart if cause.series is None or name in cause.series]
            told = ", ".join(f"{name!r} {_times(self.apart[name])}" for name in names)
            yield cause.line, f"{cause.what}; with steps of half the length {told}: {self.about}", cause.instead


def _times(ratio: float) -> str:
    return "is 0 no more" if math.isnan(ratio) else f"comes to {ratio:.3g} times as much"


class Halving:
    """Runs of one model with steps of several lengths."""

    def __init__(
        self, model: Model, dt: float, until: float, seed: int, extra: Sequence[Intervention], start: str | None
    ) -> None:
        """Args:
        model: on the CPU.
        dt: the longest step.
        until: time to run, in the model's unit.
        seed: of the random numbers.
        extra: interventions besides the model's own.
        start: day of the first step.
        """
        self.model, self.dt, self.extra, self.start = model, dt, tuple(extra), start
        self.steps = max(1, math.ceil(until / dt - 1e-9))
        self.ids = ids_of(model)
        low, high = WORLDS
        self.worlds = min(high, max(low, BUDGET // max(len(self.ids), 1)))
        self.keys = torch.tensor([[seed, world] for world in range(self.worlds)])
        *first, last = [f"{dt / part:g}" for part in PARTS]
        time, lengths = f"{self.steps * dt:g} {model.time_unit}s", f"{', '.join(first)} and {last}"
        self.about = f"{self.worlds} worlds of {len(self.ids):,} agents, {time} in steps of {lengths}"

    def verdict(self) -> Verdict:
        """Run, compare, and look for causes."""
        try:
            for part in PARTS:
                self.model.fits(self.dt / part)
                self.world(part)
        except DenizenError as error:
            return Verdict({}, (), self.about, refused=str(error))
        with torch.no_grad():
            looks = Looks(self.keys, self.steps)
            runs = [self.run(1, looks.keep), *[self.run(part) for part in PARTS[1:]]]
            idle = tuple(name for name in runs[0] if not any(bool(run[name].any()) for run in runs))
            differ = [name for name in runs[0] if bool(_told(runs, name).any())]
            part = [name for name in runs[0] if _parts(*[run[name] for run in runs])]
            causes = self._causes(looks, runs, differ, part) if differ or part else []
        named = {name for cause in causes for name in cause.series or ()} | set(part)
        return Verdict({n: _ratio(runs, n) for n in runs[0] if n in named}, tuple(causes), self.about, idle)

    def world(self, part: int) -> FlatWorld:
        """Of steps cut into parts."""
        clock = Clock(self.dt / part, self.model.time_unit, self.start)
        acting = tuple(one.timed(clock) for one in (*self.model.interventions, *self.extra))
        setting = Setting(dt=clock.dt, interventions=acting, start=self.start)
        return FlatWorld(bind(self.model, acting), setting, self.ids)

    def run(self, part: int, keep: Callable[[int, FlatWorld, list[Tensor], Tensor], None] | None = None) -> Any:
        """Series by name: float64 `[worlds, steps of dt, entries]`, flows added up from the beginning.

        Args:
            part: number of steps to cut each into.
            keep: told (number, world, leaves, switches) of all worlds before each step.
        """
        world = self.world(part)
        leaves, _ = torch.vmap(lambda key: world.init(key, {}))(self.keys)
        switches = torch.zeros(self.worlds, len(world.setting.interventions), dtype=torch.int8)
        step = torch.vmap(world.step, in_dims=(0, 0, 0, None, None, None))
        kinds = series_kinds(self.model, world.setting)
        rows: dict[str, list[Tensor]] = {name: [] for name in kinds}
        for number in range(self.steps * part):
            if keep is not None:
                keep(number, world, leaves, switches)
            answers = {n: v for one in world.setting.interventions for n, v in one.answers(number).items()}
            leaves, switches, records, _ = step(leaves, switches, self.keys, {}, torch.tensor(number), answers)
            for name, value in zip(kinds, records, strict=True):
                told = value.double().reshape(self.worlds, -1)
                rows[name].append(told if told.shape[1] <= ENTRIES else told.sum(1, keepdim=True))
        found = {name: torch.stack(values, dim=1) for name, values in rows.items()}
        summed = {name: found[name].cumsum(1) if kind == "flow" else found[name] for name, kind in kinds.items()}
        return {name: values[:, part - 1 :: part] for name, values in summed.items()}

    def _causes(self, looks: Looks, runs: list[Any], differ: list[str], part: list[str]) -> list[Cause]:
        def agree(names: list[str], put_right: AbstractContextManager[None]) -> frozenset[str]:
            with put_right:
                other = self.run(2)
            pairs = ((name, _gap(runs[0][name], runs[1][name]), _gap(runs[0][name], other[name])) for name in names)
            return frozenset(name for name, before, after in pairs if after <= CLOSED * before)

        looks.look(self.world(2))
        draws, found = looks.draws()[:TRIED], []
        streams = [draw.stream for draw in draws]
        closed = agree(differ, slowed(*streams)) if draws else frozenset()
        for draw in draws if closed else ():  # which of them opens the gap again, left as it is
            others = [stream for stream in streams if stream != draw.stream]
            names = closed - agree(sorted(closed), slowed(*others)) if others else closed
            found += [draw.cause(names)] if names else []
        left = [name for name in part if not any(name in (cause.series or ()) for cause in found)]
        if left:
            tried_lines = [(line, agree(left, halved_clock(line))) for line in looks.clocks[:TRIED]]
            clocks = [looks.clock(line, names) for line, names in tried_lines if names]
            others = [*in_steps((*self.model.interventions, *self.extra)), *looks.fields()]
            found += clocks or [dataclasses.replace(other, series=frozenset(left)) for other in others]
        return found


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one.mean(0) - other.mean(0)).abs().max())


def _told(runs: list[Any], name: str) -> Tensor:
    """Whether the difference between dt and dt/2 is no noise: bool `[steps, entries]`."""
    stride, error = _stride(runs[0][name], runs[1][name])
    return stride.abs() > SURE * error


def _ratio(runs: list[Any], name: str) -> float:
    whole, half = (run[name].mean(0).flatten() for run in runs[:2])
    stride, error = (part.flatten() for part in _stride(runs[0][name], runs[1][name]))
    place = int((stride.abs() / error.clamp(min=1e-300)).argmax())
    return float(half[place] / whole[place]) if float(whole[place]) else math.nan


def _parts(one: Tensor, two: Tensor, three: Tensor) -> bool:
    """Whether second strides are others than a convergent scheme would show."""
    (first, noise), (second, more) = _stride(one, two), _stride(two, three)
    longest, at = first.abs().cummax(0)  # so far: where two curves cross, they differ by nothing
    noise = torch.maximum(noise, noise.gather(0, at))
    beyond = (second - first / 2).abs() - OFF * longest > SURE * (more**2 + noise**2).sqrt()
    means = [run.mean(0) for run in (one, two, three)]
    if all(bool((mean > 0).all()) for mean in means):  # in fast growth strides multiply
        logs = [(b / a).log().abs().cummax(0).values for a, b in pairwise(means)]
        beyond &= logs[1] > OFF_BY_LOG * logs[0]
    return bool(beyond.any())


def _stride(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """(difference of the means over worlds, its standard error), rounding among it."""
    finite = torch.isfinite(one).all(0) & torch.isfinite(other).all(0)
    spread = (one.var(0) + other.var(0)) / one.shape[0]
    size = torch.maximum(one.abs().amax(0), other.abs().amax(0))
    return torch.where(finite, other.mean(0) - one.mean(0), 0.0), torch.where(
        finite, spread.sqrt() + ROUNDING * size, 1.0
    )
