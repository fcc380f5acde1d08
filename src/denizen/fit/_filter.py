"""`filter`: the likelihood of data under a model, and the states that they lead to."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from denizen._arguments import number, switch, whole
from denizen._notebook import InNotebook
from denizen.errors import InputError, ModelError
from denizen.fit._compare import Prospect, compare, told
from denizen.fit._experiment import kind_of
from denizen.fit._particles import Change, Particles, check_targets, drawn, go_on
from denizen.fit._target import Calendar, as_targets, dated
from denizen.fit._weigher import Weigher
from denizen.model import Env, Intervention, Model
from denizen.rng import MAX_SEED
from denizen.run import Comparison

ALONE = 1.5  # effective particles below which one of them stands for all
FEW = 0.02  # effective share of the particles below which the filter is told to be near its end


@dataclasses.dataclass(frozen=True)
class Filtered(InNotebook):
    """What a particle filter found.

    Attributes:
        log_likelihood: of all observed values, the natural logarithm of an estimate without bias.
        se: its standard error, from how few of the first particles the last ones come from (Lee and Whiteley 2018).
        ess: effective number of particles after each observed step, float64 `[observations]`.
        extinct: particles at each observed step that cannot give what was observed, such as those in which nobody is
            left, int64 `[observations]`.
        at: number of steps after which each observation was due, int64 `[observations]`.
        particles: how many.
        notes: what should be known before the numbers are used, in words.
    """

    log_likelihood: float
    se: float
    ess: np.ndarray
    extinct: np.ndarray
    at: np.ndarray
    particles: int
    notes: tuple[str, ...]
    _particles: Particles = dataclasses.field(repr=False)
    _weigher: Weigher = dataclasses.field(repr=False)

    def curve(self, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> dict[str, np.ndarray]:
        """What the targets' means were, as far as the values up to each one say: by name `[levels, values, …]`.

        Quantiles over the weighed particles, delay and reporting share included, noise of observation not; gaps too.
        """
        if not isinstance(levels, Sequence | np.ndarray) or isinstance(levels, str) or not len(levels):
            raise InputError(f"Filtered.curve: levels={levels!r}, expected a list of numbers from 0 to 1")
        wanted = np.array([number("Filtered.curve", "levels", level, 0, 1) for level in levels])
        found = {}
        for name, target in self._particles.targets.items():
            columns = []
            for place in range(len(target.values)):
                means, log_weights = (one[0].cpu().numpy() for one in self._weigher.curves[name, place])
                columns.append(weighted_quantiles(means, np.exp(log_weights), wanted))
            found[name] = np.stack(columns, axis=1).reshape(len(wanted), *target.values.shape)
        return found

    def forecast(
        self,
        ahead: int,
        draws: int = 64,
        seed: int = 0,
        *,
        params: Mapping[str, Any] | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> dict[str, np.ndarray]:
        """What may be observed after the last value, from the filtered states: by name `[draws, ahead, …]`.

        Args:
            ahead: values after the last one of each target.
            draws: how many; each goes on from a particle drawn by its weight, in a world of its own and with its own
                noise of observation.
            seed: of all these draws. Forecasts with other `params` and `interventions` and the same seed go on from
                the same states with the same random numbers, so what differs is due to these.
            params: values of parameters from the last observation on, by name.
            interventions: added to those of the filter. Their steps count from the model's first one.
        """
        whole("Filtered.forecast", "ahead", ahead, 1)
        whole("Filtered.forecast", "draws", draws, 1)
        whole("Filtered.forecast", "seed", seed, 0, MAX_SEED)
        generator = np.random.default_rng([self._particles.seed, seed])
        change = self._change("Filtered.forecast", params, interventions)
        return go_on(self._particles, self._weigher, self._rows(draws, generator), ahead, generator, change=change)

    def scenario(
        self, params: Mapping[str, Any] | None = None, *, interventions: Sequence[Intervention] = (), name: str = ""
    ) -> Prospect:
        """What comes after the last value, with something changed, to compare.

        Args:
            params: as for `forecast`.
            interventions: as for `forecast`.
            name: for tables; "": what is changed.
        """
        change = self._change("Filtered.scenario", params, interventions)
        return Prospect(self, change, name or told(params, "as filtered"))

    def compare(
        self,
        other: Prospect,
        *,
        steps: int | None = None,
        draws: int = 64,
        level: float = 0.9,
        seed: int = 0,
    ) -> Comparison:
        """What comes after the last value beside a scenario of it, from the same states with the same random numbers.

        Args:
            other: what `scenario` gives.
            steps: after the last observation; None: as many as were filtered.
            draws: pairs.
            level: of the intervals.
            seed: of states and worlds.

        Returns:
            Totals of flows, peaks and ends of levels over those steps, and their paired differences; print it.
        """
        if not isinstance(other, Prospect):
            raise InputError(f"Filtered.compare: other={other!r}, expected what filtered.scenario(…) gives")
        return compare(self.scenario(), other, draws=draws, steps=steps, level=level, seed=seed)

    def _change(self, caller: str, params: Any, interventions: Any) -> Change | None:
        held = self._particles
        return Change.of(caller, held.model, params, interventions, held._interventions)

    def _rows(self, num: int, generator: np.random.Generator) -> np.ndarray:
        return drawn(self._weigher.log_weights[0].exp().cpu().numpy(), num, generator)

    def __str__(self) -> str:
        lowest = int(np.argmin(self.ess))
        lines = [
            f"log-likelihood {self.log_likelihood:.2f} ± {self.se:.2f} (standard error), {self.particles:,} particles",
            f"effective particles: {np.median(self.ess):,.0f} in the middle, {self.ess[lowest]:,.1f} at least, after "
            f"step {self.at[lowest]}",
        ]
        return "\n".join([*lines, *self.notes])


def weighted_quantiles(values: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The least values `[levels, G]` up to which a share `levels` of the weights `[R]` lies; values `[R, G]`."""
    order = np.argsort(values, axis=0, kind="stable")
    edges = np.cumsum(weights[order], axis=0)
    found = [np.searchsorted(edges[:, g] / edges[-1, g], levels - 1e-12) for g in range(values.shape[1])]
    places = np.stack(found, axis=1).clip(max=len(values) - 1)
    return np.take_along_axis(np.take_along_axis(values, order, axis=0), places, axis=0)


def filter(
    model: Model,
    targets: Mapping[str, Any],
    *,
    particles: int = 1024,
    start: Any = None,
    seed: int = 0,
    interventions: Sequence[Intervention] = (),
    device: torch.device | str | None = None,
    compile: bool | None = None,
    progress: bool = False,
) -> Filtered:
    """Run a model as the particles of a filter: the likelihood of the data, and the states that they lead to.

    Args:
        model: with the parameters at which it is filtered; that of a `Fit` is one.
        targets: what was observed, by name of the series: `dz.fit.Target` objects with a noise.
        particles: worlds. The variance of the log-likelihood falls as one over them; all must fit on the device.
        start: date of the first step, as for `dz.calibrate`.
        seed: of the worlds and of resampling. The same seed gives the same bits on one kind of device.
        interventions: as for `dz.simulate`.
        device: as for `dz.simulate`.
        compile: as for `dz.simulate`.
        progress: show a progress bar.

    Returns:
        A `Filtered`: ``.log_likelihood``, ``.ess``, ``.curve()``, and ``.forecast(28)``, which starts from the states
        that the data lead to.

    Raises:
        InputError: for an argument that does not fit.
        ModelError: the filter collapses: at some value no particle, or a single one, comes near what was observed.
        CapacityError: memory is short.
    """
    if not isinstance(model, Model) or isinstance(model, Env):
        kind = f"the class {model.__name__}" if isinstance(model, type) else f"of type {type(model).__name__}"
        raise InputError(f"filter: model is {kind}, expected an object of a dz.Model that steps by itself")
    plain = as_targets("filter", targets)
    given = dated("filter", plain, start, model.time_unit)
    check_targets("filter", given)
    whole("filter", "particles", particles, 2)
    whole("filter", "seed", seed, 0, MAX_SEED)
    switch("filter", "progress", progress)
    own = Particles(
        "filter",
        model,
        given,
        {name: kind_of("filter", model, name, target) for name, target in given.items()},
        particles=particles,
        steps=max(target.last for target in given.values()),
        seed=seed,
        device=device,
        interventions=interventions,
        calendar=Calendar.of("filter", plain, start, model),
        compile=compile,
    )
    weigher = own.weigher(0, keep=True)
    own.walk(weigher, progress=progress)
    return filtered("filter", own, weigher)


def filtered(caller: str, particles: Particles, weigher: Weigher) -> Filtered:
    """What one pass of one set found.

    Raises:
        ModelError: a likelihood was NaN, or the filter collapsed.
    """
    ess = torch.stack(weigher.effective)[:, 0].cpu().numpy()
    extinct = torch.stack(weigher.extinct)[:, 0].cpu().numpy()
    at = np.array(particles.observed_steps)
    if bool(weigher.invalid[0]):
        raise ModelError(
            f"{caller}: a series or its likelihood is NaN or infinite in some particle, or the mean of a count is "
            f"below 0; dz.simulate(model, {particles.steps}) shows which series it is"
        )
    alone = np.flatnonzero(ess < ALONE)
    if len(alone):
        raise ModelError(_collapsed(caller, particles, int(alone[0]), ess, extinct))
    notes = []
    few = int(np.argmin(ess))
    if ess[few] < FEW * particles.particles:
        what = _observed(particles, few)
        notes.append(
            f"At {what} {ess[few]:.1f} of {particles.particles:,} particles were effective: the model hardly gives it, "
            f"and the likelihood is rough. More particles help, or a wider noise."
        )
    if extinct.any():
        most = int(np.argmax(extinct))
        notes.append(
            f"At {_observed(particles, most)} {extinct[most]:,} of {particles.particles:,} particles could not give "
            f"what was observed, as where nobody is left (extinct); the result is conditioned on the others."
        )
    weights = weigher.log_weights[0].exp().cpu().numpy()
    log_likelihood = float(weigher.log_likelihood[0])
    se = _standard_error(weights, weigher.first[0].cpu().numpy())
    return Filtered(log_likelihood, se, ess, extinct, at, particles.particles, tuple(notes), particles, weigher)


def _standard_error(weights: np.ndarray, first: np.ndarray) -> float:
    """Of the logarithm: families of one first particle are independent of the others, so their weights tell it."""
    families = np.bincount(first, weights, minlength=len(weights))
    num = len(weights)
    return math.sqrt(max(0.0, (num * float((families**2).sum()) - 1) / (num - 1)))


def _observed(particles: Particles, place: int) -> str:
    """An observed step in words: its values and which step it is."""
    step = particles.observed_steps[place]
    parts = []
    for one in particles.observed(step):
        target = particles.targets[one.name]
        value = target.values[one.place]
        shown = f"{value:g}" if np.ndim(value) == 0 else np.array2string(value, threshold=6, precision=4)
        parts.append(f"targets[{one.name!r}], value {one.place} = {shown}")
    return f"{' and '.join(parts)} (step {step})"


def _collapsed(caller: str, particles: Particles, place: int, ess: np.ndarray, extinct: np.ndarray) -> str:
    num = particles.particles
    lost = f"; {extinct[place]:,} of {num:,} cannot give it at all (extinct)" if extinct[place] else ""
    return (
        f"{caller}: the filter collapses at {_observed(particles, place)}: {ess[place]:.1f} of {num:,} particles are "
        f"effective{lost}; begin from parameters that come nearer, widen the noise, or take more particles"
    )
