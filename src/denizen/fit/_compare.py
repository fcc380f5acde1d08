"""Scenarios of a fit beside each other, in the same worlds."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._arguments import number, whole
from denizen._printing import Table, plain
from denizen.errors import InputError, nearest
from denizen.fit._experiment import MOST_AGENTS
from denizen.fit._parameters import as_tensor
from denizen.model import Intervention, Model
from denizen.run import simulate
from denizen.run._results import number as figure

if TYPE_CHECKING:
    from denizen.fit._fit import Fit

Series = dict[str, tuple[str, np.ndarray]]  # kind and numbers [rows, steps], by name


@dataclasses.dataclass(frozen=True)
class Difference:
    """A measure of two scenarios, over worlds that share their random numbers.

    Attributes:
        name: of the series.
        measure: ``"total"`` of a flow, ``"peak"`` or ``"end"`` of a level.
        a: mean of the first scenario.
        b: mean of the second.
        difference: mean of b - a, world by world.
        low, high: between these b - a lies in a share `level` of the worlds.
        less: share of the worlds in which b is less than a, ties counted by half.
    """

    name: str
    measure: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    less: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What two scenarios give; made by `Fit.compare`.

    Attributes:
        rows: an entry for each measure.
        worlds: how many pairs.
        level: of the intervals.
        names: of the scenarios.
    """

    rows: tuple[Difference, ...]
    worlds: int
    level: float
    names: tuple[str, str]

    def __getitem__(self, name: str) -> Difference:
        """The first measure of a series."""
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"comparison[{name!r}]: no such series; {nearest(name, [row.name for row in self.rows])}")

    def __rich__(self) -> Table:
        a, b = self.names
        head = f"a: {a}\nb: {b}\n{self.worlds} worlds, with the same parameters' draws and random numbers on both sides"
        table = Table(title=head, title_justify="left", title_style="", box=None)
        for name, side in (("series", "left"), ("", "left"), ("a", "right"), ("b", "right"), ("b - a", "right")):
            table.add_column(name, justify=side, no_wrap=True)
        table.add_column(f"{self.level:.0%} of worlds", justify="right", no_wrap=True)
        table.add_column("b < a in", justify="right", no_wrap=True)
        for row in self.rows:
            cells = *map(figure, (row.a, row.b, row.difference)), f"{figure(row.low)} to {figure(row.high)}"
            table.add_row(row.name, row.measure, *cells, f"{row.less:.0%}")
        return table

    def __str__(self) -> str:
        return plain(self, 110)


@dataclasses.dataclass(frozen=True, eq=False)
class Scenario:
    """A fit in which something is changed; made by `Fit.scenario`.

    Attributes:
        fit: whose parameters are drawn.
        params: values that replace those of the fit, by name.
        interventions: added to those of the fit.
        name: for people.
    """

    fit: "Fit"
    params: Mapping[str, Any]
    interventions: tuple[Intervention, ...]
    name: str

    @property
    def kinds(self) -> dict[str, str]:
        """``"flow"`` or ``"level"`` of each series that there is."""
        experiment = self.fit._experiment
        if isinstance(experiment.model, Model):
            return dict(experiment.model.all_series)
        return {name: experiment.kind(name) for name in experiment.targets}

    def simulate(self, free: np.ndarray, worlds: list[int], steps: int, seed: int) -> Series:
        """Each row in its world: all series of the model, or what a function gives; groups summed."""
        experiment = self.fit._experiment
        if isinstance(experiment.model, Model):
            found = self._simulated(experiment.model, free, worlds, steps, seed)
        else:
            found = self._called(free, worlds, steps)
        return {name: (kind, values.reshape(*values.shape[:2], -1).sum(2)) for name, (kind, values) in found.items()}

    def _simulated(self, model: Model, free: np.ndarray, worlds: list[int], steps: int, seed: int) -> Series:
        experiment = self.fit._experiment
        values = {part.name: part.values(here) for part, here in experiment.parameters.of_model(free)}
        for name in self.params.keys() & values.keys():
            shape = values[name].shape
            try:
                one = np.broadcast_to(np.asarray(self.params[name], dtype=np.float64), shape[1:])
                values[name] = np.repeat(one[None], shape[0], axis=0)
            except (TypeError, ValueError) as error:
                told = f"{name}={self.params[name]!r}"
                raise InputError(f"Fit.scenario: {told}, expected numbers of shape {shape[1:]}") from error
        model = model.replace(**{name: value for name, value in self.params.items() if name not in values})
        interventions = (*experiment.interventions(self.fit._solution.free), *self.interventions)
        at_once, parts = max(1, MOST_AGENTS // max(1, model.num_agents)), []
        for k in range(0, len(free), at_once):
            run = simulate(
                model,
                steps,
                worlds=worlds[k : k + at_once],
                seed=seed,
                device=experiment.device,
                params={name: as_tensor(value[k : k + at_once]) for name, value in values.items()},
                interventions=interventions,
            )
            parts.append({name: run[name].detach().cpu().numpy() for name in model.all_series})
        kinds = model.all_series
        return {name: (kinds[name], np.concatenate([part[name] for part in parts])) for name in kinds}

    def _called(self, free: np.ndarray, worlds: list[int], steps: int) -> Series:
        experiment = copy.copy(self.fit._experiment)
        experiment.steps, free, at = steps, free.copy(), 0
        for part in experiment.parameters.parts:
            if part.name in self.params:
                value = number("Fit.scenario", part.name, self.params[part.name])
                free[:, at : at + part.size] = part.free(np.asarray(value))
            at += part.size
        return {name: (experiment.kind(name), values) for name, values in experiment.series(free, worlds).items()}


def scenario(
    fit: "Fit", params: Mapping[str, Any] | None, interventions: Sequence[Intervention], name: str
) -> Scenario:
    """See `Fit.scenario`."""
    params = {} if params is None else params
    model = fit._setup.model
    if not isinstance(params, Mapping):
        raise InputError(f"Fit.scenario: params={params!r}, expected values by name, such as {{'R': 2.0}}")
    its = [part.name for part, _ in fit._experiment.parameters.of_model(fit._solution.free[None])]
    known = list(model.params) if isinstance(model, Model) else its
    for one in params:
        if one not in known:
            raise InputError(f"Fit.scenario: params has {one!r}; {nearest(one, known)}")
    if interventions and not isinstance(model, Model):
        raise InputError("Fit.scenario: interventions are for a model, and this fit has a function or was read without")
    told = ", ".join(f"{n}={np.asarray(v).tolist()}" for n, v in params.items())
    return Scenario(fit, params, tuple(interventions), name or told or "as fitted")


def compare(
    a: Scenario, b: Scenario, *, draws: int = 64, steps: int | None = None, level: float = 0.9, seed: int = 0
) -> Comparison:
    """Two scenarios of fits in the same worlds; the arguments are those of `Fit.compare`."""
    whole("compare", "draws", draws, 2)
    number("compare", "level", level, above=0, high=1 - 1e-9)
    _in_common(*(one.kinds for one in (a, b)))
    longest = max(one.fit._experiment.steps for one in (a, b))
    steps = longest if steps is None else whole("compare", "steps", steps, 1)
    first = max(one.fit._solution.worlds for one in (a, b))
    worlds = list(range(first, first + draws))
    shared = a.fit._experiment.seed
    series = [
        one.simulate(one.fit._solution.drawn(draws, np.random.default_rng(seed)), worlds, steps, shared)
        for one in (a, b)
    ]
    names = (a.name, b.name) if a.name != b.name else (f"{a.name} (a)", f"{b.name} (b)")
    return compare_series(series[0], series[1], names, level)


def compare_series(a: Series, b: Series, names: tuple[str, str], level: float = 0.9) -> Comparison:
    """Series of the same worlds in the same order, row by row.

    Raises:
        InputError: they have none in common.
    """
    rows = []
    for name in _in_common(*({name: kind for name, (kind, _) in one.items()} for one in (a, b))):
        for measure, of_a in _measures(*a[name]).items():
            of_b = _measures(*b[name])[measure]
            away = of_b - of_a
            low, high = np.quantile(away, [0.5 - level / 2, 0.5 + level / 2])
            less = (away < 0).mean() + (away == 0).mean() / 2
            told = (of_a.mean(), of_b.mean(), away.mean(), low, high, less)
            rows.append(Difference(name, measure, *map(float, told)))
    return Comparison(tuple(rows), len(next(iter(a.values()))[1]), level, names)


def _in_common(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Names of series that two have of one kind; raises `InputError` where there is none."""
    both = [name for name in a if a[name] == b.get(name)]
    if not both:
        raise InputError(f"compare: no series in common: {', '.join(a)} and {', '.join(b)}")
    return both


def _measures(kind: str, values: np.ndarray) -> dict[str, np.ndarray]:
    values = values.astype(np.float64)
    return {"total": values.sum(1)} if kind == "flow" else {"peak": values.max(1), "end": values[:, -1]}
