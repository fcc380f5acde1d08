"""Sets of parameters × particles of a model that run through a filter, and forecasts from where they end."""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen._launches import MOST_AGENTS
from denizen.errors import CapacityError, InputError, ModelError, nearest
from denizen.fit._experiment import KEEP, Experiment
from denizen.fit._parameters import as_tensor
from denizen.fit._target import NO_DAYS, Calendar, Target
from denizen.fit._weigher import Observation, Weigher
from denizen.model import Intervention, Model, check_not_set, extent, interventions_of
from denizen.rng import MAX_SEED
from denizen.run import Run, check_room, choose_device, simulate
from denizen.run._sieve import Sieve, again, branch, sift, take_over


def check_targets(caller: str, targets: Mapping[str, Target]) -> None:
    """Refuse targets that have no likelihood.

    Raises:
        InputError: no noise, or a weight.
    """
    for name, target in targets.items():
        if target.noise is None:
            raise InputError(
                f"{caller}: targets[{name!r}] has no noise: a world would either give exactly what was observed or "
                f"have no weight, and the filter degenerates; say how it was observed, for example "
                f"dz.fit.Target(values, noise=dz.fit.NegativeBinomial(10))"
            )
        if target.weight != 1:
            raise InputError(
                f"{caller}: targets[{name!r}] has weight={target.weight:g}, and a likelihood weighs by the noise "
                f"alone; leave weight out, or widen the noise"
            )


class Particles:
    """Sets × particles of a model that run through a filter, as often as wanted.

    Attributes:
        model: what runs.
        targets: what was observed.
        kinds: ``"flow"`` or ``"level"`` for each target.
        sets: S.
        particles: R.
        steps: T.
        seed: of worlds and resampling.
        run: of all rows, as the last pass left it.
    """

    def __init__(
        self,
        caller: str,
        model: Model,
        targets: Mapping[str, Target],
        kinds: Mapping[str, str],
        *,
        sets: int = 1,
        particles: int,
        steps: int,
        threshold: float = 0.5,
        seed: int,
        device: torch.device | str | None,
        interventions: Sequence[Intervention] = (),
        calendar: Calendar = NO_DAYS,
        params: Mapping[str, Tensor] | None = None,
        compile: bool | None = None,
    ) -> None:
        """Args: see the attributes, `Weigher`, `Calendar` and `simulate`.

        Raises:
            InputError: an argument does not fit, or memory is short.
        """
        self.model, self.targets, self.kinds = model, dict(targets), dict(kinds)
        self.sets, self.particles, self.steps, self.seed = sets, particles, steps, seed
        self._caller, self._threshold, self.calendar = caller, threshold, calendar
        self._interventions = tuple(calendar.placed(interventions))
        # They are weighed against one another, so all run at once.
        check_room(
            model, sets * particles, choose_device(device, caller)[0], caller, "particles", ", or run fewer agents"
        )
        self.run = self._roomy(
            lambda: simulate(
                model,
                0,
                worlds=range(sets * particles),
                seed=seed,
                device=device,
                start=calendar.start,
                interventions=self._interventions,
                params=dict(params or {}),
                compile=compile,
            )
        )
        self._observations = self._due(self.targets, 1)

    def begin(self, worlds: int, params: Mapping[str, Tensor]) -> None:
        """Anew before the first step.

        Args:
            worlds: number of the first row's world; the others follow.
            params: values `[S * R, …]` of the parameters that were given at first.
        """
        again(self.run, range(worlds, worlds + self.sets * self.particles), params)

    def weigher(self, worlds: int, known: Mapping[str, Target] | None = None, *, keep: bool = False) -> Weigher:
        """What weighs a pass that begins.

        Args:
            worlds: number of the first row's world.
            known: the targets with numbers of their own for each set, each set in T rows; None: as they are.
            keep: whether curves are kept.
        """
        return Weigher(
            self._caller,
            self._observations if known is None else self._due(known, self.sets),
            {name: target.values.shape[1:] for name, target in self.targets.items()},
            sets=self.sets,
            particles=self.particles,
            steps=self.steps,
            threshold=self._threshold,
            seed=self.seed,
            worlds=worlds,
            device=self.run.device,
            keep=keep,
        )

    def walk(self, sieve: Sieve, later: int = 0, *, progress: bool = False) -> None:
        """All steps; `later` passes will follow."""
        self._roomy(lambda: sift(self.run, self.steps, sieve, later * self.steps, progress))

    @property
    def observed_steps(self) -> list[int]:
        """Numbers of steps after which something was observed, in order."""
        return [step for step in sorted(self._observations) if self.observed(step)]

    def observed(self, step: int) -> list[Observation]:
        """What was observed after so many steps."""
        return [one for one in self._observations[step] if one.seen is not None]

    def _due(self, targets: Mapping[str, Target], sets: int) -> dict[int, list[Observation]]:
        """Every value of every target, gaps too, by the step at which its window ends.

        A mean is linear in the series: what each step adds to it is what the target makes of one event in it.

        Args:
            targets: for one event in each step of each set, which are rows.
            sets: S, or 1 for all alike.
        """
        found: dict[int, list[Observation]] = {}
        steps = self.steps
        for name, target in targets.items():
            entries = target.values.shape[1:]
            events = np.tile(np.eye(steps), (sets, 1)).reshape(sets * steps, steps, *[1] * len(entries))
            shares = target.windows(np.broadcast_to(events, (*events.shape[:2], *entries)), self.kinds[name])
            shares = shares.reshape(sets, steps, len(target.values), -1)
            for place in range(len(target.values)):
                end = target.first - 1 + target.every * (place + 1)
                one = Observation.of(target, name, place, shares[:, :end, place], self.run.device)
                found.setdefault(end, []).append(one)
        return found

    def _roomy(self, work: Any) -> Any:
        try:
            return work()
        except CapacityError as error:
            if "out of memory" not in str(error):
                raise
            sets = f"{self.sets} sets × " if self.sets > 1 else ""
            raise CapacityError(
                f"{self._caller}: memory is short for {sets}{self.particles:,} particles, which are weighed against "
                f"one another and so run at once; lower particles, or run fewer agents: {error}"
            ) from error


@dataclasses.dataclass(frozen=True)
class Change:
    """What is different from the last observation on.

    Attributes:
        caller: for messages.
        params: values that replace those of the filter, by name.
        interventions: added to those of the filter.
    """

    caller: str
    params: Mapping[str, Any]
    interventions: tuple[Intervention, ...]

    @classmethod
    def of(
        cls, caller: str, model: Model, params: Any, interventions: Any, given: Sequence[Intervention] = ()
    ) -> "Change | None":
        """Of what a user gave; None where that is nothing.

        Args:
            caller: for messages.
            model: that is filtered.
            params: by name.
            interventions: further ones.
            given: those of the filter.

        Raises:
            InputError: it does not fit the model.
        """
        params = check_params(caller, params, list(model.params))
        if not isinstance(interventions, list | tuple):
            raise InputError(f"{caller}: interventions={interventions!r}, expected a list of interventions")
        check_not_set(caller, "params changes", params, interventions_of(caller, model, [*given, *interventions]))
        return cls(caller, params, tuple(interventions)) if params or interventions else None


class Filters:
    """Filters at free numbers of a calibration, so many sets at once.

    Attributes:
        sets: at once; as many as were asked for, or as a launch holds.
        particles: of each.
    """

    def __init__(
        self, caller: str, experiment: Experiment, particles: int, sets: int, passes: int, threshold: float = 0.5
    ) -> None:
        """Args:
        caller: for messages.
        experiment: of the calibration.
        particles: of each set.
        sets: most at once.
        passes: that will be made, roughly.
        threshold: as for `Weigher`.

        Raises:
            InputError: a function stands where a model should, or a target has no likelihood.
        """
        if not isinstance(experiment.model, Model):
            raise InputError(
                f"{caller}: a function gives whole series, and a filter goes on from states on the way; give a "
                f"dz.Model, or take another method"
            )
        check_targets(caller, experiment.targets)
        agents = max(1, extent(experiment.model)[0])
        self.sets, self.particles = max(1, min(sets, MOST_AGENTS // (agents * particles))), particles
        self._caller, self._experiment, self._passes, self._threshold = caller, experiment, passes, threshold
        self._held: Particles | None = None

    def go(self, free: np.ndarray, worlds: int) -> Weigher:
        """One pass at free numbers `[up to sets, P]`; rows that are lacking repeat the last one.

        Args:
            free: numbers that the model takes.
            worlds: number of the first world.
        """
        free = free[np.minimum(np.arange(self.sets), len(free) - 1)]
        with self._near(free[0]):
            held = self.begin(np.repeat(free, self.particles, axis=0), worlds)
            own = None
            if self._experiment.parameters.of_targets(free):
                own = self._experiment.known(np.repeat(free, held.steps, axis=0))
            weigher = held.weigher(worlds, own)
            held.walk(weigher, self._passes)
            return weigher

    def wander(self, free: np.ndarray, worlds: int, sieve: Callable[[Particles, Weigher], Sieve]) -> Weigher:
        """One pass in which each particle has free numbers of its own.

        Args:
            free: `[R, P]` at the beginning.
            worlds: number of the first world.
            sieve: what moves them on the way, around what weighs them.
        """
        with self._near(free[0]):
            held = self.begin(free, worlds)
            weigher = held.weigher(worlds)
            held.walk(sieve(held, weigher), self._passes)
            return weigher

    def begin(self, rows: np.ndarray, worlds: int) -> Particles:
        """The particles before a pass, with free numbers `[S * R, P]`."""
        parts = self._experiment.parameters.of_model(rows)
        params = {part.name: as_tensor(part.values(here)) for part, here in parts}
        if self._held is None:
            self._held = self._begun(params)
        self._passes = max(0, self._passes - 1)
        self._held.begin(worlds, params)
        return self._held

    @contextlib.contextmanager
    def _near(self, free: np.ndarray) -> Generator[None]:
        try:
            yield
        except ModelError as error:
            raise type(error)(f"{self._caller}: near {self._experiment.told(free)}: {error}; {KEEP}") from error

    def ahead(
        self,
        free: np.ndarray,
        worlds: int,
        ahead: int,
        generator: np.random.Generator,
        change: Change | None = None,
    ) -> dict[str, np.ndarray]:
        """Forecasts from filtered states: by name `[sets, ahead, …]`, one of each set."""
        held, weigher, rows, own = self.states(free, worlds, generator)
        return go_on(held, weigher, rows, ahead, generator, self._experiment.known(free[own]), change)

    def states(
        self, free: np.ndarray, worlds: int, generator: np.random.Generator
    ) -> tuple[Particles, Weigher, np.ndarray, np.ndarray]:
        """One filtered state of each set: the particles, what weighed them, rows `[sets]`, and the set of each row."""
        weigher = self.go(free, worlds)
        assert self._held is not None
        died = (weigher.invalid | (weigher.log_likelihood == -torch.inf)).cpu().numpy()[: len(free)]
        alive = np.flatnonzero(~died)
        told = (
            f"{self._caller}: for {died.sum()} of {len(free)} draws none of {self.particles:,} particles can give what "
            f"was observed, such as at {self._experiment.told(free[int(died.argmax())])}"
        )
        if not len(alive):
            raise ModelError(f"{told}: there is no state to go on from; take more particles, or a wider noise")
        if died.any():
            warnings.warn(f"{told}; others stand for them, more particles help", stacklevel=4)
        own = np.where(died, alive[np.arange(len(free)) % len(alive)], np.arange(len(free)))
        weights = weigher.log_weights.exp().cpu().numpy()
        rows = [k * self.particles + drawn(weights[k], 1, generator)[0] for k in own]
        return self._held, weigher, np.array(rows), own

    def _begun(self, params: dict[str, Tensor]) -> Particles:
        experiment = self._experiment
        assert isinstance(experiment.model, Model)
        return Particles(
            self._caller,
            experiment.model,
            experiment.targets,
            experiment._kinds,
            sets=self.sets,
            particles=self.particles,
            steps=max(target.last for target in experiment.targets.values()),  # without those held out
            seed=experiment._seed,
            threshold=self._threshold,
            device=experiment.device,
            interventions=experiment._interventions,
            calendar=experiment.calendar,
            params=params,
        )


def check_params(caller: str, params: Any, known: Sequence[str]) -> Mapping[str, Any]:
    """Values by name, as a scenario has them.

    Raises:
        InputError: an unknown name, or no values by name.
    """
    params = {} if params is None else params
    if not isinstance(params, Mapping):
        raise InputError(f"{caller}: params={params!r}, expected values by name, such as {{'R': 2.0}}")
    for one in params:
        if one not in known:
            raise InputError(f"{caller}: params has {one!r}; {nearest(one, known)}")
    return params


def changed(
    caller: str, model: Model, values: Mapping[str, np.ndarray], params: Mapping[str, Any]
) -> tuple[Model, dict[str, np.ndarray]]:
    """A model and the values `[rows, …]` of parameters that rows have of their own, with others in their place.

    Raises:
        InputError: of another shape.
    """
    found = dict(values)
    for name in params.keys() & found.keys():
        shape = found[name].shape
        try:
            one = np.broadcast_to(np.asarray(params[name], dtype=np.float64), shape[1:])
        except (TypeError, ValueError) as error:
            raise InputError(f"{caller}: {name}={params[name]!r}, expected numbers of shape {shape[1:]}") from error
        found[name] = np.repeat(one[None], shape[0], axis=0)
    return model.replace(**{name: value for name, value in params.items() if name not in found}), found


def onward(particles: Particles, rows: np.ndarray, first: int, steps: int, change: Change | None = None) -> Run:
    """A run that goes on from states of a filter; its series begin after the filter's last step.

    Args:
        particles: as their last pass left them.
        rows: from whose state each row goes on.
        first: number of the first row's world; the others follow.
        steps: how many.
        change: what is different from there on; alike random numbers without it and with it.
    """
    places, worlds = torch.as_tensor(rows, device=particles.run.device), range(first, first + len(rows))
    if change is None:
        run = branch(particles.run, places, worlds)
    else:
        held = {name: value.detach().cpu().numpy()[rows] for name, value in particles.run._stepper.values.items()}
        model, values = changed(change.caller, particles.model, held, change.params)
        run = simulate(
            model,
            0,
            worlds=worlds,
            seed=particles.run.seed,
            device=particles.run.device,
            start=particles.calendar.start,
            interventions=[*particles._interventions, *particles.calendar.placed(change.interventions)],
            params={name: as_tensor(value) for name, value in values.items()},
            compile=False,
        )
        take_over(particles.run, places, run)
    return run.extend(steps)


def go_on(
    particles: Particles,
    weigher: Weigher,
    rows: np.ndarray,
    ahead: int,
    generator: np.random.Generator,
    targets: Mapping[str, Target] | None = None,
    change: Change | None = None,
) -> dict[str, np.ndarray]:
    """Forecasts from states of a filter: by name `[rows, ahead, …]`, noise of observation included.

    Args:
        particles: where they run.
        weigher: of their last pass.
        rows: from whose state each forecast goes on.
        ahead: values after the last one of each target.
        generator: of world numbers and noise.
        targets: with the numbers that they have for each row; None: as the filter has them.
        change: what is different from the last observation on.
    """
    first = int(generator.integers(MAX_SEED - len(rows)))
    longer = {name: target.ahead(ahead) for name, target in (targets or particles.targets).items()}
    more = max(0, max(target.last for target in longer.values()) - particles.steps)
    run = onward(particles, rows, first, more, change)
    places, found = torch.as_tensor(rows, device=particles.run.device), {}
    for name, target in longer.items():
        before = weigher.series[name].index_select(0, places)
        parts = [before, run[name].reshape(len(rows), run[name].shape[1], -1).to(torch.float64)]
        series = torch.cat(parts, dim=1).cpu().numpy()
        series = series.reshape(*series.shape[:2], *target.values.shape[1:])
        seen = target.windows(series, particles.kinds[name])[:, len(target.values) - ahead :]
        assert target.noise is not None, "check_targets has looked"
        found[name] = target.noise.draw(seen, generator.random(seen.shape))
    return found


def drawn(weights: np.ndarray, num: int, generator: np.random.Generator) -> np.ndarray:
    """Rows by their weights `[R]`, systematically and in random order: int64 `[num]`."""
    edges = np.cumsum(weights)
    aims = (np.arange(num) + generator.random()) * (edges[-1] / num)
    return generator.permutation(np.searchsorted(edges, aims, side="right").clip(max=len(weights) - 1))
