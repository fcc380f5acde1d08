"""Sets of parameters in, observations out: a model in one launch of sets × worlds, or a function in its place."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen._launches import at_once, called, simulated
from denizen.errors import InputError, ModelError, nearest
from denizen.fit._delay import TAIL
from denizen.fit._ledger import Ledger
from denizen.fit._parameters import Parameters, as_tensor
from denizen.fit._target import NO_DAYS, Calendar, Target
from denizen.model import Course, Intervention, Model
from denizen.rng import Relax
from denizen.run import Gradient, simulate

METHOD = 1 << 62  # no world has this number
BEYOND = 2 * TAIL  # of a delay: more than is left out of every distribution is told
FEW = 0.05  # of the median world's total: less is an outbreak that was none
FEWEST = 4  # second differences in a row, for a number of the noise
ROUGH = 1e-3  # keeps the logarithm of no roughness finite

KEEP = "begin nearer to the truth, or give priors whose bounds the model can stand"

Simulator = Callable[[Tensor, Sequence[int]], Any]


class Experiment:
    """What is simulated for a fit, and how it is seen.

    Attributes:
        targets: what was observed, by series.
        steps: simulated in each run.
        device: as it was given.
        observed: float64 `[D]`, every observed number as it is compared, gaps left out.
        sizes: how many of them each target has.
        runs: worlds simulated so far.
        few: by target of counts, of the last rows seen how many have next to nothing in all, and how many rows.
        calendar: days of the steps.
        ledger: what keeps launches while a search goes on, so that it can be resumed; None: nothing does.
    """

    ledger: Ledger | None = None

    def __init__(
        self,
        model: Model | Simulator,
        parameters: Parameters,
        targets: Mapping[str, Target],
        *,
        steps: int,
        seed: int,
        device: torch.device | str | None,
        interventions: Sequence[Intervention],
        calendar: Calendar = NO_DAYS,
    ) -> None:
        """Args: see `denizen.calibrate`; targets and parameters are checked already."""
        self.calendar = calendar
        self.model, self.parameters, self.targets, self.steps = model, parameters, dict(targets), steps
        self._seed, self.device, self._given = seed, device, tuple(calendar.placed(interventions))
        self._interventions = self.interventions(parameters.start)
        self._kinds = {name: kind_of("calibrate", model, name, target) for name, target in self.targets.items()}
        self._rough = {name for name, target in self.targets.items() if self._scatters(name, target)}
        self.observed = self._compared({name: target.values[None] for name, target in self.targets.items()})[0]
        self.sizes = tuple(self.compares(name) for name in self.targets)
        self.weights = np.repeat([target.weight for target in self.targets.values()], self.sizes)
        self.runs = 0
        self.few: dict[str, tuple[int, int]] = {}

    def recorded(self, what: str, inputs: Iterable[Any], compute: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """What `compute()` gives: arrays by name, which a resumed search is served with again instead.

        Every number that a search takes from a simulation goes through here, so that a search is a function of its seed
        and of what it was served. What counts runs stands outside of `compute`.

        Args:
            what: word for the kind of launch.
            inputs: arrays, numbers and texts that fix the result beside what the calibration was given.
            compute: launches.
        """
        return compute() if self.ledger is None else self.ledger.recorded(what, inputs, compute)

    def ahead(self, values: int) -> "Experiment":
        """The same with that many values more in each target, unobserved, and the steps for them."""
        longer = {name: target.ahead(values) for name, target in self.targets.items()}
        found = copy.copy(self)
        found.targets, found.steps = longer, max(target.last for target in longer.values())
        return found

    def fits(self, free: np.ndarray) -> bool:
        """Whether the model takes these free numbers `[P]`, such as a duration that is not over before a step is."""
        if not isinstance(self.model, Model):
            return True
        values = {part.name: (part, part.values(here)[0]) for part, here in self.parameters.of_model(free[None])}
        most = max((len(value) for part, value in values.values() if part.every), default=1)
        try:
            for k in range(most):
                now = {
                    name: value[min(k, len(value) - 1)] if part.every else value
                    for name, (part, value) in values.items()
                }
                self.model.with_values({name: as_tensor(value) for name, value in now.items()}).fits(1.0)
        except InputError:
            return False
        return True

    def interventions(self, free: np.ndarray) -> tuple[Intervention, ...]:
        """Those given, after those that set what changes in time to what these free numbers `[P]` say."""
        courses = [
            Course(
                target=part.name, values=part.values(here)[0].tolist(), every=part.every, name=f"{part.name} in time"
            )
            for part, here in self.parameters.of_model(free[None])
            if part.every is not None
        ]
        return (*courses, *self._given)

    def known(self, free: np.ndarray) -> dict[str, Target]:
        """The targets with their fitted numbers as these free numbers `[rows, P]` have them, for as many rows."""
        numbers: dict[str, dict[str, np.ndarray]] = {name: {} for name in self.targets}
        for part, here in self.parameters.of_targets(free):
            name, _, number = part.name.rpartition(".")
            numbers[name][number] = part.values(here)
        return {name: target.known(numbers[name]) for name, target in self.targets.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be known of the targets and of how the series are seen, in words."""
        beyond = [
            f"Of targets[{name!r}] {target.kernel.beyond:.1%} lie beyond the {target.kernel.shares.shape[-1]} steps of "
            f"its delay and count as never written down."
            for name, target in self.targets.items()
            if target.kernel is not None and target.kernel.beyond > BEYOND
        ]
        nothing = [
            f"Every observed value of targets[{name!r}] is 0, which bounds parameters from one side alone: take an "
            f"interval of a normal distribution, such as that of GaussNewton, for no more than an order of size."
            for name, target in self.targets.items()
            if not np.nan_to_num(target.values).any()
        ]
        return (*beyond, *nothing)

    def observations(self, free: np.ndarray, worlds: Sequence[int]) -> np.ndarray:
        """What is compared with `observed`, for each set of free numbers in each world: float64 `[sets, worlds, D]`."""
        rows = np.repeat(free, len(worlds), axis=0)
        return self.compared(rows, list(worlds) * len(free)).reshape(len(free), len(worlds), -1)

    def compares(self, name: str) -> int:
        """Numbers of a target that are compared."""
        return self._of_one(name, self.targets[name].values[None]).shape[1]

    def compared(self, free: np.ndarray, worlds: Sequence[int]) -> np.ndarray:
        """The same of rows that each have a world of their own: float64 `[rows, D]`."""
        return self._compared(self.windows(free, worlds))

    def label(self, k: int) -> str:
        """What the observed number k is, such as ``"cases[3]=12"``."""
        for name, target in self.targets.items():
            seen = np.argwhere(~np.isnan(target.values))
            if k < len(seen):
                return f"{name}[{', '.join(map(str, seen[k]))}]={target.values[tuple(seen[k])]:g}"
            k -= len(seen)
            if name in self._rough:
                if k == 0:
                    return f"the roughness of {name}"
                k -= 1
        raise IndexError(k)

    def generator(self) -> np.random.Generator:
        """What a method draws from: alike for alike seeds, and apart from the draws of the worlds."""
        return np.random.default_rng([self._seed, METHOD])

    def _compared(self, seen: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([self._of_one(name, values) for name, values in seen.items()], axis=1)

    def _of_one(self, name: str, values: np.ndarray) -> np.ndarray:
        """What is compared of a target's values `[rows, values, …]`.

        Those observed; and where its noise is fitted how rough they are, since their mean says nothing of it: the
        logarithm of the mean square of second differences, as large as a search that weighs all alike needs it.
        """
        target = self.targets[name]
        kept = ~np.isnan(target.values)
        scaled = target.scaled(values)
        numbers = scaled.reshape(len(values), -1)[:, kept.reshape(-1)]
        if name not in self._rough:
            return numbers
        bends = np.diff(scaled, n=2, axis=1)[:, kept[2:] & kept[1:-1] & kept[:-2]]
        rough = np.sqrt(bends.shape[1]) * np.log((bends**2).mean(1, keepdims=True) + ROUGH)
        return np.concatenate([numbers, rough], axis=1)

    def windows(self, free: np.ndarray, worlds: Sequence[int]) -> dict[str, np.ndarray]:
        """The targets as they would be observed, in their own units: by name `[rows, values, …]`.

        Args:
            free: `[rows, P]`.
            worlds: number of the world of each row.
        """
        series, found = self._series(free, worlds), {}
        for name, target in self.known(free).items():
            bad = np.argwhere(~np.isfinite(series[name]))
            if len(bad):
                row, step = bad[0][:2]  # in order of rows, then of steps
                raise ModelError(
                    f"calibrate: {name!r} is NaN or infinite from step {step + 1} on at {self.told(free[row])}; {KEEP}"
                )
            given = (len(target.values), *series[name].shape[2:])
            if given != target.values.shape:
                raise InputError(
                    f"calibrate: targets[{name!r}] has shape {target.values.shape}, expected {given}, as one world "
                    f"gives it; of a run, that is run[{name!r}][0]"
                )
            seen = target.windows(series[name], self._kinds[name])
            if target.noise is not None:
                means = seen
                seen = target.noise.draw(
                    seen, np.stack([self._uniform(name, world, seen.shape[1:]) for world in worlds])
                )
                none = np.argwhere(~np.isfinite(seen))
                if len(none):
                    at = tuple(none[0])
                    raise ModelError(
                        f"calibrate: {type(target.noise).__name__} draws no number about {means[at]:.4g}, what "
                        f"{name!r} gives for value {at[1]} at {self.told(free[at[0]])}; expected 0 or more of a series "
                        f"of counts, or take noise=dz.fit.Normal(sd)"
                    )
            found[name] = seen
            self._count_few(name, target, seen)
        return found

    def _count_few(self, name: str, target: Target, seen: np.ndarray) -> None:
        totals = np.nansum(np.where(np.isnan(target.values), np.nan, seen).reshape(len(seen), -1), axis=1)
        median = np.median(totals)
        if target.scale == "sqrt" and median >= 1:
            self.few[name] = int((totals < FEW * median).sum()), len(totals)

    def place(self, number: int) -> tuple[str, int]:
        """The target of one of the observed numbers, and the step at which its window ends."""
        for name, target in self.targets.items():
            windows = np.nonzero(~np.isnan(target.values))[0]
            size = len(windows) + (name in self._rough)
            if number < size:
                return name, target.first - 1 + target.every * (int([*windows, windows[-1]][number]) + 1)
            number -= size
        raise IndexError(number)

    @property
    def seed(self) -> int:
        """Of the worlds."""
        return self._seed

    def kind(self, name: str) -> str:
        """How a target sees its series: ``"flow"`` or ``"level"``."""
        return self._kinds[name]

    def series(self, free: np.ndarray, worlds: Sequence[int]) -> dict[str, np.ndarray]:
        """The targets' series, unseen: `[rows, steps, …]` by name, of free numbers `[rows, P]` and a world for each."""
        return self._series(free, worlds)

    def _series(self, free: np.ndarray, worlds: Sequence[int]) -> dict[str, np.ndarray]:
        self.runs += len(free)
        if not isinstance(self.model, Model):
            return dict(self.recorded("call", [free, list(worlds), self.steps], partial(self._call, free, worlds)))
        size, parts = at_once(self.model), []
        for k in range(0, len(free), size):
            rows, numbers = free[k : k + size], list(worlds[k : k + size])
            launch = partial(self._run, self.model, rows, numbers)
            parts.append(self.recorded("run", [rows, numbers, self.steps], launch))
        return {name: np.concatenate([part[name] for part in parts]) for name in self.targets}

    def _run(self, model: Model, free: np.ndarray, worlds: Sequence[int]) -> dict[str, np.ndarray]:
        values = {part.name: as_tensor(part.values(here)) for part, here in self.parameters.of_model(free)}
        try:
            found = simulated(
                model,
                self.steps,
                worlds,
                values,
                self.targets,
                seed=self._seed,
                device=self.device,
                start=self.calendar.start,
                interventions=self._interventions,
            )
        except ModelError as error:
            where = f"near {self.told(free[0])}" if error.place is None else f"at {self.told(free[error.place])}"
            raise type(error)(f"calibrate: {where}: {error}; {KEEP}") from error
        return {name: series.numpy() for name, series in found.items()}

    def relaxed(self, values: Mapping[str, Tensor], worlds: Sequence[int], relax: Relax) -> dict[str, Tensor]:
        """Series of relaxed runs, with slopes by the parameters `values`; the caller counts and records them."""
        assert isinstance(self.model, Model)
        run = simulate(
            self.model,
            self.steps,
            worlds=worlds,
            seed=self._seed,
            device=self.device,
            params={name: value.expand(len(worlds), *value.shape) for name, value in values.items()},
            start=self.calendar.start,
            interventions=self._interventions,
            relax=relax,
            compile=False,  # compiled functions have no backward pass for several slopes at once
        )
        return {name: run[name] for name in self.targets}

    def gradient(self, loss: Callable[..., Tensor], **options: Any) -> Gradient:
        """Relaxed runs of the model, with slopes; the caller counts them, and records what they give."""
        assert isinstance(self.model, Model)
        return Gradient(
            self.model,
            loss,
            self.steps,
            seed=self._seed,
            device=self.device,
            start=self.calendar.start,
            interventions=self._interventions,
            **options,
        )

    def _call(self, free: np.ndarray, worlds: Sequence[int]) -> dict[str, np.ndarray]:
        columns = [part.values(here).reshape(len(free), -1) for part, here in self.parameters.of_model(free)]
        theta, steps = torch.as_tensor(np.concatenate(columns, axis=1)), self.steps
        assert not isinstance(self.model, Model)
        found = self.model(theta, worlds)
        series = found if isinstance(found, Mapping) else dict.fromkeys(self.targets, found)
        for name in self.targets:
            if name not in series:
                raise InputError(
                    f"calibrate: targets has {name!r}, which the function does not give; {nearest(name, series)}"
                )
        found = called("calibrate", {name: series[name] for name in self.targets}, theta, steps)
        return {name: values.numpy() for name, values in found.items()}

    def told(self, free: np.ndarray) -> str:
        """The parameters at free numbers `[P]`, in words."""
        return ", ".join(
            f"{name}={np.round(value[0], 6).tolist()}" for name, value in self.parameters.values(free[None]).items()
        )

    def _scatters(self, name: str, target: Target) -> bool:
        """Whether a number of its noise is fitted."""
        fitted = {part.name for part in self.parameters.parts if part.of_target}
        names = {f"{name}.{number}" for number in target.numbers if number not in ("report", "people", "delay")}
        if not names & fitted:
            return False
        seen = ~np.isnan(target.values)
        if (seen[2:] & seen[1:-1] & seen[:-2]).sum() < FEWEST:
            raise InputError(
                f"calibrate: priors has {min(names & fitted)!r}, and targets[{name!r}] has too few values in a row to "
                f"say how they scatter, expected {FEWEST + 2}; give the number itself"
            )
        return True

    def _uniform(self, name: str, world: int, shape: tuple[int, ...]) -> np.ndarray:
        number = list(self.targets).index(name)
        return np.random.default_rng([self._seed, world, number]).random(shape)


def kind_of(caller: str, model: Model | Simulator, name: str, target: Target) -> str:
    """``"flow"`` or ``"level"``: how a target sees its series.

    Raises:
        InputError: the model has no such series, a level is to be summed, or one step of a flow to stand for more.
    """
    if not isinstance(model, Model):
        return target.kind or "flow"
    its = model.all_series.get(name)
    if its is None:
        raise InputError(f"{caller}: targets has {name!r}; {nearest(name, model.all_series)}")
    if its == "flow" and target.kind == "level" and target.every > 1:
        raise InputError(
            f"{caller}: targets[{name!r}] has kind='level', and the series is a flow, what happens in a step: the last "
            f"of the {target.every} steps of a window would be all; take kind='flow', which sums them"
        )
    if its == "level" and target.kind == "flow":
        raise InputError(
            f"{caller}: targets[{name!r}] has kind='flow', and the series is a level, the state after a step; "
            f"take a series of what happens in a step, or kind='level'"
        )
    return target.kind or its
