"""Scenarios of a fit beside each other, in the same worlds."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._arguments import number, whole
from denizen._launches import at_once, simulated
from denizen._results import Comparison, Series, compare_series, in_common, series_of
from denizen.errors import InputError
from denizen.fit._parameters import as_tensor
from denizen.fit._particles import Change, Filters, changed, check_params, onward
from denizen.model import Intervention, Model, check_not_set, interventions_of
from denizen.rng import MAX_SEED

if TYPE_CHECKING:
    from denizen.fit._filter import Filtered
    from denizen.fit._fit import Fit


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
        model, values = changed("Fit.scenario", model, values, self.params)
        given = experiment.calendar.placed(self.interventions)
        interventions = (*experiment.interventions(self.fit._solution.free), *given)
        size, parts, kinds = at_once(model), [], model.all_series
        for k in range(0, len(free), size):
            found = simulated(
                model,
                steps,
                worlds[k : k + size],
                {name: as_tensor(value[k : k + size]) for name, value in values.items()},
                kinds,
                seed=seed,
                device=experiment.device,
                start=experiment.calendar.start,
                interventions=interventions,
            )
            parts.append({name: series.numpy() for name, series in found.items()})
        return {name: (kinds[name], np.concatenate([part[name] for part in parts])) for name in kinds}

    def _called(self, free: np.ndarray, worlds: list[int], steps: int) -> Series:
        experiment = copy.copy(self.fit._experiment)
        experiment.steps, free, at = steps, free.copy(), 0
        for part in experiment.parameters.parts:
            if part.name in self.params:
                value = number("Fit.scenario", part.name, self.params[part.name], part.low, part.high)
                free[:, at : at + part.size] = part.free(np.asarray(value))
            at += part.size
        return {name: (experiment.kind(name), values) for name, values in experiment.series(free, worlds).items()}


def scenario(
    fit: "Fit", params: Mapping[str, Any] | None, interventions: Sequence[Intervention], name: str
) -> Scenario:
    """See `Fit.scenario`."""
    model = fit._setup.model
    its = [part.name for part, _ in fit._experiment.parameters.of_model(fit._solution.free[None])]
    known = list(model.params) if isinstance(model, Model) else its
    params = check_params("Fit.scenario", params, known)
    if interventions and not isinstance(model, Model):
        raise InputError("Fit.scenario: interventions are for a model, and this fit has a function or was read without")
    if isinstance(model, Model):
        given = interventions_of("Fit.scenario", model, [*fit._experiment._given, *interventions])
        check_not_set("Fit.scenario", "params changes", params, given)
        check_not_set("Fit.scenario", "was fitted", its, interventions)
    return Scenario(fit, params, tuple(interventions), name or told(params, "as fitted"))


def told(params: Mapping[str, Any] | None, nothing: str) -> str:
    """What is changed, for tables."""
    return ", ".join(f"{name}={np.asarray(value).tolist()}" for name, value in (params or {}).items()) or nothing


@dataclasses.dataclass(frozen=True, eq=False)
class Prospect:
    """What comes after the last value of a filter, with something changed; made by `Filtered.scenario`.

    Attributes:
        filtered: from whose states it goes on.
        change: what is different; None: nothing.
        name: for people.
    """

    filtered: "Filtered"
    change: Change | None
    name: str

    def series(self, draws: int, steps: int | None, seed: int) -> Series:
        """Every series of the model after the last observation, groups summed."""
        particles = self.filtered._particles
        generator = np.random.default_rng([particles.seed, seed])
        rows = self.filtered._rows(draws, generator)
        first = int(generator.integers(MAX_SEED - draws))
        steps = particles.steps if steps is None else steps
        return series_of(onward(particles, rows, first, steps, self.change), steps)


def compare(
    a: Scenario | Prospect,
    b: Scenario | Prospect,
    *,
    draws: int = 64,
    steps: int | None = None,
    level: float = 0.9,
    seed: int = 0,
    particles: int | None = None,
) -> Comparison:
    """Two scenarios in the same worlds; the arguments are those of `Fit.compare`, or of `Filtered.compare`."""
    whole("compare", "draws", draws, 2)
    whole("compare", "seed", seed, 0, MAX_SEED)
    if steps is not None:
        whole("compare", "steps", steps, 1)
    if particles is not None:
        whole("compare", "particles", particles, 2)
    names = (a.name, b.name) if a.name != b.name else (f"{a.name} (a)", f"{b.name} (b)")
    if isinstance(a, Prospect) and isinstance(b, Prospect) and a.filtered is b.filtered:
        return compare_series(a.series(draws, steps, seed), b.series(draws, steps, seed), names, level)
    if not (isinstance(a, Scenario) and isinstance(b, Scenario)):
        raise InputError("compare: expected two scenarios of fits, or two that go on from the states of one filter")
    in_common(*(one.kinds for one in (a, b)))
    if particles is not None:
        of_a, of_b = _filtered(a, b, draws, steps, seed, particles)
        return compare_series(of_a, of_b, names, level)
    longest = max(one.fit._experiment.steps for one in (a, b))
    steps = longest if steps is None else steps
    first = max(one.fit._solution.worlds for one in (a, b))
    worlds = list(range(first, first + draws))
    shared = a.fit._experiment.seed
    series = [
        one.simulate(one.fit._solution.drawn(draws, np.random.default_rng(seed)), worlds, steps, shared)
        for one in (a, b)
    ]
    return compare_series(series[0], series[1], names, level)


def _filtered(
    a: Scenario, b: Scenario, draws: int, steps: int | None, seed: int, particles: int
) -> tuple[Series, Series]:
    """Both from filtered states on, one of each draw; those of one fit from the same states."""
    if a.fit is b.fit:
        first, second = _from_states([a, b], draws, steps, seed, particles)
        return first, second
    return _from_states([a], draws, steps, seed, particles)[0], _from_states([b], draws, steps, seed, particles)[0]


def _from_states(
    scenarios: Sequence[Scenario], draws: int, steps: int | None, seed: int, particles: int
) -> list[Series]:
    """Series of scenarios of one fit after its last observation."""
    fit = scenarios[0].fit
    free = fit._solution.drawn(draws, np.random.default_rng(seed))
    filters = Filters("compare", fit._experiment, particles, draws, 1)
    model = fit._experiment.model
    assert isinstance(model, Model), "Filters has looked"
    generator, parts, worlds = np.random.default_rng([seed, particles]), [[] for _ in scenarios], fit._solution.worlds
    for begin in range(0, draws, filters.sets):
        here = free[begin : begin + filters.sets]
        held, _, rows, _ = filters.states(here, worlds, generator)
        first = int(generator.integers(MAX_SEED - len(rows)))
        for scenario_, found in zip(scenarios, parts, strict=True):
            change = Change("compare", scenario_.params, scenario_.interventions)
            reach = held.steps if steps is None else steps
            found.append(series_of(onward(held, rows, first, reach, change), reach))
        worlds += filters.sets * particles
    kinds = model.all_series
    return [
        {name: (kind, np.concatenate([part[name][1] for part in one])) for name, kind in kinds.items()} for one in parts
    ]
