"""What calibration gives back: a fitted model, intervals, the course of the search, forecasts and their scores."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from denizen._arguments import folder as folder_path
from denizen._arguments import number, whole
from denizen._notebook import InNotebook
from denizen._printing import Table, plain
from denizen._results import number as figure
from denizen.errors import DataError, InputError
from denizen.fit import _plot, _xarray
from denizen.fit._budget import OVER
from denizen.fit._compare import Scenario, compare, scenario
from denizen.fit._diagnostics import Diagnostics
from denizen.fit._experiment import Experiment
from denizen.fit._folder import CalibrationFolder
from denizen.fit._gauss_newton import GaussNewton
from denizen.fit._identify import not_identified
from denizen.fit._method import Iteration, Solution
from denizen.fit._particles import Change, Filters
from denizen.fit._refit import Profile, bootstrap, profile
from denizen.fit._scores import Scores, last_seen, scores
from denizen.fit._setup import Absent, Setup, set_up
from denizen.fit._target import as_targets
from denizen.model import Intervention, Model
from denizen.run import Comparison, choose_device

LEVEL = 0.9
FAR = 2.0  # times the scatter of one world


@dataclasses.dataclass(frozen=True)
class Fit(InNotebook):
    """A calibration.

    Attributes:
        model: the model with the fitted values, or None where a function was fitted.
        params: fitted values by name: a float, or an array.
        trace: an entry for each iteration.
        runs: worlds simulated.
        converged: whether the search came to rest within its iterations.
        notes: what should be known before the numbers are used, in words.
        diagnostics: whether the fit gives such data, and what they say; None where the model failed at its draws.
    """

    model: Model | None
    params: dict[str, Any]
    trace: tuple[Iteration, ...]
    runs: int
    converged: bool
    notes: tuple[str, ...]
    diagnostics: Diagnostics | None
    _setup: Setup
    _solution: Solution

    @property
    def _experiment(self) -> Experiment:
        return self._setup.experiment

    @property
    def held_out(self) -> dict[str, np.ndarray]:
        """By target, the last values, which were kept back; empty where there are none."""
        return self._setup.held_out

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """Those of the calibration, after one that sets each parameter that changes in time to what was fitted.

        The fitted model has the last value of such a parameter; ``dz.simulate(fit.model, steps,
        interventions=fit.interventions)`` takes all of them.
        """
        return self._experiment.interventions(self._solution.free)

    def interval(self, level: float = LEVEL) -> dict[str, tuple[Any, Any]]:
        """Bounds between which the true value lies in a share `level` of calibrations.

        They come from the sandwich formula: the slopes of the mean by differences under common random numbers, and the
        scatter of one world's observation; a prior's curvature is added. They hold for a model that is right. Of a
        method that draws from a posterior they are its quantiles.

        Args:
            level: above 0, below 1.

        Raises:
            InputError: the method computed none; says what does.
        """
        number("Fit.interval", "level", level, above=0, high=1 - 1e-9)
        if self._solution.draws is not None:
            ends = np.quantile(self._solution.draws, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        else:
            reach = NormalDist().inv_cdf(0.5 + level / 2) * self._sd()
            ends = np.stack([self._solution.free - reach, self._solution.free + reach])
        values = self._experiment.parameters.values(ends)
        return {name: (_plain(ends[0]), _plain(ends[1])) for name, ends in values.items()}

    def samples(self, num: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Parameters `[num, …]` by name: from the posterior, or from the normal distribution of the free numbers."""
        whole("Fit.samples", "num", num, 1)
        if self._solution.draws is None:
            self._solution.covariance()  # says what is missing
        return self._experiment.parameters.values(self._drawn(num, seed))

    def curve(self, worlds: int = 64) -> dict[str, np.ndarray]:
        """The targets as the fitted model gives them: by name `[worlds, values, …]`, noise of observation included."""
        numbers = self._fresh(whole("Fit.curve", "worlds", worlds, 1))
        return self._experiment.windows(np.repeat(self._solution.free[None], len(numbers), axis=0), numbers)

    def forecast(
        self,
        ahead: int | None = None,
        draws: int = 64,
        seed: int = 0,
        particles: int | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> dict[str, np.ndarray]:
        """What may be observed after the last value that was fitted: by name `[draws, ahead, …]`.

        Each draw has parameters of its own from `samples`, a world of its own and its own noise of observation. Runs
        begin at the model's first step: they are not held to what was observed on the way. With `particles` each draw
        is filtered first, and the forecast goes on from a state that the data lead to.

        Args:
            ahead: values after the last one fitted; None: those held out.
            draws: how many.
            seed: of the parameters.
            particles: worlds that each draw is filtered with, so `draws` times as many runs; targets need a noise.
                None: none, but for a fit by `dz.fit.ParticleFilter` as many as it had.
            params: with particles, values of parameters from the last observation on, by name. The same seed gives the
                same states and random numbers without them and with them.
            interventions: with particles, added to those of the calibration from the last observation on. Their steps
                count from the model's first one.
        """
        if ahead is None:
            ahead = max((len(values) for values in self.held_out.values()), default=None)
        ahead = whole("Fit.forecast", "ahead", ahead, 1)
        free = self._drawn(whole("Fit.forecast", "draws", draws, 1), seed)
        particles = self._solution.particles if particles is None else particles
        if particles is not None:
            whole("Fit.forecast", "particles", particles, 2)
            model = self._experiment.model
            given = self._experiment._given
            change = (
                Change.of("Fit.forecast", model, params, interventions, given) if isinstance(model, Model) else None
            )
            return self._filtered(free, particles, ahead, seed, change)
        if params or interventions:
            raise InputError(
                "Fit.forecast: params and interventions change what comes after the last observation, and without "
                "particles= the runs begin at the first step; give particles, or compare fit.scenario(…)"
            )
        found = self._experiment.ahead(ahead).windows(free, self._fresh(draws))
        return {name: found[name][:, len(target.values) :] for name, target in self._experiment.targets.items()}

    def _filtered(
        self, free: np.ndarray, num: int, ahead: int, seed: int, change: Change | None
    ) -> dict[str, np.ndarray]:
        if isinstance(self._setup.model, Absent):
            self._setup.model(free, ())
        filters = Filters("Fit.forecast", self._experiment, num, len(free), 1)
        generator, found, worlds = np.random.default_rng([seed, num]), [], self._solution.worlds
        for first in range(0, len(free), filters.sets):
            found.append(filters.ahead(free[first : first + filters.sets], worlds, ahead, generator, change))
            worlds += filters.sets * num
        return {name: np.concatenate([part[name] for part in found]) for name in self._experiment.targets}

    def score(self, draws: int = 64, seed: int = 0, particles: int | None = None) -> dict[str, Scores]:
        """How well the held-out values were forecast, beside the last observed value kept (persistence).

        Args: as for `forecast`. Targets of whose held-out values none was observed are left out.
        """
        if not self.held_out:
            raise InputError(
                "Fit.score: nothing was held out; calibrate with holdout=, the number of last values to keep"
            )
        seen = {name: values for name, values in self.held_out.items() if not np.isnan(values).all()}
        if not seen:
            raise InputError("Fit.score: the held-out values are gaps (NaN) alone; calibrate with a larger holdout=")
        forecast = self.forecast(draws=draws, seed=seed, particles=particles)
        return {
            name: scores(forecast[name], values, last_seen(self._experiment.targets[name].values))
            for name, values in seen.items()
        }

    def scenario(
        self, params: Mapping[str, Any] | None = None, *, interventions: Sequence[Intervention] = (), name: str = ""
    ) -> Scenario:
        """The fit with something changed, to compare.

        Args:
            params: values that replace those of the fit, or of the model where they were not fitted, by name.
            interventions: added to those of the calibration.
            name: for tables; "": what is changed.
        """
        return scenario(self, params, interventions, name)

    def compare(
        self,
        other: "Fit | Scenario",
        *,
        draws: int = 64,
        steps: int | None = None,
        level: float = LEVEL,
        seed: int = 0,
        particles: int | None = None,
    ) -> Comparison:
        """This fit beside another one, or beside a scenario of it, in the same worlds.

        Each pair has a world of its own, and parameters drawn by the same random numbers: of one fit they are the same
        on both sides. So what differs is due to what was changed, and not to luck.

        Args:
            other: a fit, or what `scenario` gives.
            draws: pairs.
            steps: of each run; None: those of the calibration.
            level: of the intervals.
            seed: of the parameters.
            particles: worlds that each draw is filtered with. Both sides then go on from the state that the data lead
                to: steps count from there, and what is changed is changed from there on. None: both begin at the
                model's first step.

        Returns:
            Totals of flows, peaks and ends of levels, and their paired differences; print it.
        """
        if not isinstance(other, Fit | Scenario):
            raise InputError(f"Fit.compare: other={other!r}, expected a Fit, or what fit.scenario(…) gives")
        second = other if isinstance(other, Scenario) else other.scenario(name="the other fit")
        return compare(self.scenario(), second, draws=draws, steps=steps, level=level, seed=seed, particles=particles)

    def profile(self, name: str, *, points: int = 9, width: float = 2.5, worlds: int = 32) -> Profile:
        """Hold one number at several values and fit the others again, all values at once.

        Where the interval of `interval` is not to be trusted, as far from normal, the profile shows how wide it is.

        Args:
            name: of a parameter; of one number of a vector, such as ``"R[1]"``.
            points: values.
            width: how far they reach, in standard deviations.
            worlds: of each launch; there are three, and the slopes at the estimate.
        """
        return profile(self, name, points, width, worlds)

    def bootstrap(self, num: int = 100, *, worlds: int = 8) -> "Fit":
        """Fit data that the fitted model gives, `num` times: how far estimates lie from the truth, by simulation.

        All are fitted at once, by steps with the slopes at the estimate.

        Args:
            num: data sets, each of a world of its own.
            worlds: for each data set in each of two launches.

        Returns:
            The same fit, whose intervals and samples are those of the bootstrap.
        """
        draws = bootstrap(self, num, worlds)
        note = f"Intervals and samples are those of a parametric bootstrap of {num} data sets."
        precision = np.linalg.pinv(np.cov(draws.T).reshape(draws.shape[1], -1))
        notes = (*self._solution.notes, note)
        solution = dataclasses.replace(self._solution, draws=draws, precision=precision, notes=notes)
        return of_search(self._setup, Found(solution, self.runs, self.diagnostics))

    def plot(self, path: Path | str | None = None) -> Any:
        """Data with the bands of the fit, the forecast's fan over what was held out, and the course of the search.

        Args:
            path: file to write, for example ``"fit.png"`` or ``"fit.pdf"``; None writes none.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtra: matplotlib is not installed.
            StorageError: the file cannot be written.
        """
        return _plot.curves(self, path)

    def corner(self, path: Path | str | None = None) -> Any:
        """Marginals of the parameters and their pairs, of draws, beside the priors; arguments as for `plot`."""
        return _plot.corner(self, path)

    def to_xarray(self, draws: int = 1000, predictive: int = 64, seed: int = 0) -> Any:
        """The fit for ArviZ: an `xarray.DataTree` with the groups that it knows.

        ArviZ 1 takes it as it is, ArviZ 0.23 by ``arviz.InferenceData.from_datatree``.

        Args:
            draws: of a normal distribution of the free numbers; draws of a posterior are all taken.
            predictive: draws that are simulated; 0: none.
            seed: of the draws.

        Returns:
            Groups ``posterior`` (`chain`, `draw`, …), ``observed_data`` and, where the model is there,
            ``posterior_predictive``. Times are the last steps of windows, or dates where the targets have them.

        Raises:
            MissingExtra: xarray is not installed.
        """
        return _xarray.tree(self, draws, predictive, seed)

    def save(self, path: Path | str) -> None:
        """Write the fit to a new folder, from which `Fit.load` reads it.

        Args:
            path: the folder; must not exist yet, or be empty.

        Raises:
            StorageError: it holds something already, or cannot be written.
        """
        if isinstance(self._setup.model, Absent):
            raise InputError(
                "Fit.save: this fit was read without its model; copy its folder, or give Fit.load the model"
            )
        kind = choose_device(self._experiment.device, "Fit.save")[0].type
        folder = CalibrationFolder.enter(
            folder_path("Fit.save", "path", path), self._setup.model, self._setup.given, kind, None, new=True
        )
        with folder.session():
            folder.keep(self._found(), 0, str(self))

    def _found(self) -> "Found":
        return Found(self._solution, self.runs, self.diagnostics)

    @classmethod
    def load(
        cls,
        path: Path | str,
        model: Any = None,
        *,
        targets: Mapping[str, Any] | None = None,
        priors: Any = None,
        method: Any = None,
        interventions: Sequence[Intervention] | None = None,
        device: torch.device | str | None = None,
    ) -> "Fit":
        """Read a fit from a folder of `save`, or of a calibration with `out=`.

        Args:
            path: the folder.
            model: the model, or function, that was fitted. None: everything but what simulates works.
            targets: only where they have a noise of your own, which no folder keeps: as they were given.
            priors: only where they are distributions of your own: as they were given.
            method: only where it holds a relaxation or an optimiser of your own: as it was given.
            interventions: only where they hold functions: as they were given.
            device: where to simulate.

        Raises:
            DataError: there is no fit in the folder, or it is damaged.
            InputError: something that the folder does not keep, or that is not what it was.
        """
        folder = CalibrationFolder.open(folder_path("Fit.load", "path", path))
        found = folder.found()
        if found is None:
            raise DataError(
                f"{folder.path} holds a calibration that has not come to a fit: {folder.status}, {folder.launches} "
                f"launches; go on with it first"
            )
        again: dict[str, Any] = {
            "targets": targets,
            "priors": priors,
            "method": method,
            "interventions": interventions,
        }
        if targets is not None:
            again["targets"] = as_targets("Fit.load", targets)
        again = {name: value for name, value in again.items() if value is not None}
        given = folder.given(again, simulates=model is not None, searches=False)
        given["method"] = GaussNewton()  # nothing is searched
        setup = set_up("Fit.load", folder.model(model), **given, device=device)
        return of_search(setup, Found(**found))

    @property
    def _has_interval(self) -> bool:
        return self._solution.draws is not None or self._solution.precision is not None

    def _sd(self) -> np.ndarray:
        return np.sqrt(np.diag(self._solution.covariance()))

    def _drawn(self, num: int, seed: int) -> np.ndarray:
        return self._solution.drawn(num, np.random.default_rng(seed))

    def _fresh(self, worlds: int) -> list[int]:
        return list(range(self._solution.worlds, self._solution.worlds + worlds))

    def _size(self) -> str:
        """What the runs simulated together, in words."""
        agents = getattr(self._setup.model, "num_agents", 0)
        if not agents:
            return ""
        return f" ({figure(self.runs * agents * self._experiment.steps)} agent-{self._setup.model.time_unit}s)"

    def __str__(self) -> str:
        table = Table("parameter", "estimate", f"{LEVEL:.0%} interval", title="Fit")
        low_high = self.interval() if self._has_interval else {}
        for name, value in self.params.items():
            low, high = low_high.get(name, (np.nan, np.nan))
            for k, entries in enumerate(np.broadcast(value, low, high)):
                label = name if np.ndim(value) == 0 else f"{name}[{k}]"
                ends = f"{entries[1]:.4g} to {entries[2]:.4g}" if self._has_interval else "not computed"
                table.add_row(label, f"{entries[0]:.4g}", ends)
        rest = "at rest" if self.converged else "NOT at rest"
        lines = [f"{self.runs:,} runs{self._size()}, {len(self.trace)} iterations, {rest}"]
        return plain(table, 100).rstrip() + "\n" + "\n".join([*lines, *self.notes])


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search gave, as a folder keeps it.

    Attributes:
        solution: of the method.
        runs: worlds simulated.
        diagnostics: of the solution.
    """

    solution: Solution
    runs: int
    diagnostics: Diagnostics | None


def of_search(setup: Setup, found: Found) -> Fit:
    """A fit from what a search gave."""
    model, solution, experiment = setup.model, found.solution, setup.experiment
    values = {name: _plain(value[0]) for name, value in experiment.parameters.values(solution.free[None]).items()}
    its = {
        part.name: values[part.name] if part.every is None else values[part.name][-1]
        for part, _ in experiment.parameters.of_model(solution.free[None])
    }
    fitted = model.replace(**its) if isinstance(model, Model) else None
    notes = _notes(experiment, solution, found.diagnostics)
    converged, trace = solution.converged, solution.trace
    return Fit(fitted, values, trace, found.runs, converged, notes, found.diagnostics, setup, solution)


def _notes(experiment: Experiment, solution: Solution, diagnostics: Diagnostics | None) -> tuple[str, ...]:
    notes = [*solution.notes, *experiment.notes]
    if not solution.converged and not any(note.startswith(OVER) for note in notes):
        notes.append("The search did not come to rest; allow more iterations, or begin nearer.")
    if solution.away > FAR:
        notes.append(
            f"The data lie {solution.away:.1f} times the scatter of one world away from the fitted curve: the model "
            f"cannot give this curve, or the search ended in the wrong place. Do not trust the intervals."
        )
    flat = [part.name for part in experiment.parameters.parts if part.flat()]
    if flat:
        notes.append(f"Without a prior, so flat between the bounds in transformed units: {', '.join(flat)}.")
    if solution.precision is not None:
        notes += not_identified(experiment.parameters, solution.free, solution.precision)
    if diagnostics is None:
        notes.append("At draws of the fit the model fails, so it was not looked at how it gives such data.")
    return (*notes, *(() if diagnostics is None else diagnostics.notes))


def _plain(value: np.ndarray) -> Any:
    return float(value) if np.ndim(value) == 0 else value
