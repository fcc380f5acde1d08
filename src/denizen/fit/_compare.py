"""Scenarios of a fit beside each other, in the same worlds."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._arguments import number, whole
from denizen.errors import InputError, nearest
from denizen.fit._parameters import as_tensor
from denizen.model import Intervention, Model
from denizen.run._compare import Comparison, Series, compare_series, in_common
from denizen.run._rows import at_once, simulated

if TYPE_CHECKING:
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
                interventions=interventions,
            )
            parts.append({name: series.numpy() for name, series in found.items()})
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
    in_common(*(one.kinds for one in (a, b)))
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
