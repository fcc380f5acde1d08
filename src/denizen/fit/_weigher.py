"""Particle filters: worlds are particles, weighed by what was observed and resampled on the device.

The bootstrap filter of Gordon, Salmond and Smith (1993). After the step in which an observation ends every world r has
a likelihood w_r = p(y | world r) by the target's noise, and the weights it carries. Their mean estimates what the
observation adds to the likelihood of all data, without bias, whatever the number of particles. Where the effective
number of particles, 1 / sum of squared weights, falls below half of them, worlds are drawn anew by their weights,
systematically, and all go on alike. Who is drawn stays in its row, and as often as it is drawn again it is copied to a
row that was not drawn. A copy keeps the number of the row that it is copied to: random numbers are a function of (seed,
row, step), so copies draw apart from the next step on.

Nothing is read on the host before the last step: weights are float64 on the device, and resampling counts in integers,
so that its order of summation does not matter.

Legend: S sets of parameters, R particles of each, T steps, G entries of a series at a step.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import ops
from denizen.errors import InputError
from denizen.fit._target import NegativeBinomial, Noise, Normal, Poisson, Target
from denizen.rng import stream_number

UNITS = 1 << 52  # of which a weight is a whole number while particles are drawn
STREAM = stream_number("filter/resample@sets")


class Density:
    """Log density of values on the device, under the noises that come with denizen; others are asked on the host.

    What does not depend on the mean is computed once: a filter asks at every observation.
    """

    def __init__(self, noise: Noise, values: Tensor) -> None:
        """Args:
        noise: its fields are numbers, or arrays `[S, 1, G or 1]`.
        values: float64 `[G]`, on the device of the means.
        """
        self._noise, self._values = noise, values
        self._density = DENSITIES.get(type(noise))
        if self._density is not None:
            fields = [getattr(noise, field.name) for field in dataclasses.fields(noise)]  # type: ignore[arg-type]  # pyrefly: ignore
            numbers = [_there(field, values.device) for field in fields]
            self._numbers = [values, *numbers, CONSTANTS[type(noise)](values, *numbers)]

    def __call__(self, mean: Tensor) -> Tensor:
        """Float64 `[S, R, G]` of means `[S, R, G]`."""
        if self._density is not None:
            return self._density(mean, *self._numbers)
        found = self._noise.log_prob(self._values.cpu().numpy(), mean.cpu().numpy())
        return torch.as_tensor(found, dtype=torch.float64, device=mean.device)


def _there(number: Any, device: torch.device) -> Tensor:
    if isinstance(number, np.ndarray):
        return torch.as_tensor(number, dtype=torch.float64, device=device)
    return torch.full((), number, dtype=torch.float64, device=device)


def _poisson(mean: Tensor, values: Tensor, ways: Tensor) -> Tensor:
    return _counted(mean, torch.xlogy(values, mean) - mean + ways)


def _negative_binomial(mean: Tensor, values: Tensor, size: Tensor, ways: Tensor) -> Tensor:
    return _counted(mean, ways - size * torch.log1p(mean / size) + torch.xlogy(values, mean / (size + mean)))


def _counted(mean: Tensor, log_prob: Tensor) -> Tensor:
    """NaN below 0: no count has such a mean, also where the formula gives a number."""
    return log_prob.masked_fill(mean < 0, math.nan)


def _normal(mean: Tensor, values: Tensor, sd: Tensor, constant: Tensor) -> Tensor:
    return constant - 0.5 * ((values - mean) / sd) ** 2


DENSITIES: dict[type, Callable[..., Tensor]] = {
    Poisson: _poisson,
    NegativeBinomial: _negative_binomial,
    Normal: _normal,
}
CONSTANTS: dict[type, Callable[..., Tensor]] = {
    Poisson: lambda values: -torch.lgamma(values + 1),
    NegativeBinomial: lambda values, size: torch.lgamma(values + size) - torch.lgamma(size) - torch.lgamma(values + 1),
    Normal: lambda values, sd: -sd.log() - 0.5 * math.log(2 * math.pi),
}


@dataclasses.dataclass(frozen=True)
class Observation:
    """One value of a target: what it needs of the series so far, all on the device.

    Attributes:
        name: of the series.
        place: of the value in the target.
        begin: first step that counts, from 0.
        share: float64 `[S or 1, steps, G]`: what each step from `begin` on adds to the mean.
        seen: int64: entries of the value that were observed; None for none.
        density: of those entries.
    """

    name: str
    place: int
    begin: int
    share: Tensor
    seen: Tensor | None
    density: Density

    @classmethod
    def of(cls, target: Target, name: str, place: int, shares: np.ndarray, device: torch.device) -> "Observation":
        """The value `place` of a target.

        Args:
            target: with numbers for all, or for each of S sets, in several rows of each.
            name: of its series.
            place: of the value.
            shares: float64 `[S or 1, steps, G]`: what one event in each step adds to its mean.
            device: of the run.
        """
        values = target.values.reshape(len(target.values), -1)[place]
        seen = np.flatnonzero(~np.isnan(values))
        begin = int(np.flatnonzero(shares.any((0, 2)))[:1].sum())
        assert target.noise is not None, "check_targets has looked"
        return cls(
            name,
            place,
            begin,
            torch.as_tensor(shares[:, begin:], device=device),
            torch.as_tensor(seen, device=device) if len(seen) else None,
            Density(_noise_of(target.noise, len(shares), seen), torch.as_tensor(values[seen], device=device)),
        )


def _noise_of(noise: Noise, sets: int, seen: np.ndarray) -> Noise:
    """A noise with its arrays, which hold each set in several rows, as `[S, 1, G or 1]`: entries that were seen."""
    changes = {}
    for field in dataclasses.fields(noise) if dataclasses.is_dataclass(noise) else ():
        array = np.asarray(getattr(noise, field.name))
        if array.ndim:
            wide = array[:: len(array) // sets].reshape(sets, 1, -1)
            changes[field.name] = wide[..., seen] if wide.shape[2] > 1 else wide
    return dataclasses.replace(noise, **changes) if changes else noise  # type: ignore[type-var]  # pyrefly: ignore


class Weigher:
    """Weighs and resamples sets × particles; a `Sieve`.

    Attributes:
        log_likelihood: float64 `[S]`, of what was observed so far.
        log_weights: float64 `[S, R]`, normalised.
        series: by name, float64 `[S * R, T, G]`: of each particle and its ancestors.
        first: int64 `[S, R]`: which particle of the beginning each comes from.
        effective: for each observed step float64 `[S]`: effective particles, before they are drawn anew.
        extinct: for each observed step int64 `[S]`: particles that cannot give what was observed.
        invalid: bool `[S]`: whether a likelihood was NaN or infinite.
        curves: by name and place of a value: (means float64 `[S, R, G]`, log weights `[S, R]`), where they are kept.
    """

    def __init__(
        self,
        caller: str,
        observations: Mapping[int, Sequence[Observation]],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        sets: int,
        particles: int,
        steps: int,
        threshold: float,
        seed: int,
        worlds: int,
        device: torch.device,
        keep: bool,
    ) -> None:
        """Args:
        caller: for messages.
        observations: by the number of steps after which they are due.
        shapes: of a value of each.
        sets: S.
        particles: R.
        steps: T.
        threshold: share of the particles that is effective, below which they are drawn anew.
        seed: of what draws them.
        worlds: number of the first world; tells apart the draws of one pass from those of others.
        device: of the run.
        keep: whether `curves` are kept.
        """
        self._caller, self._observations, self._shapes, self._keep = caller, observations, shapes, keep
        self._sets, self._particles, self._threshold = sets, particles, threshold
        wide = {"dtype": torch.float64, "device": device}
        self.log_likelihood = torch.zeros(sets, **wide)
        self.log_weights = torch.full((sets, particles), -math.log(particles), **wide)
        self.series = {
            name: torch.zeros(sets * particles, steps, math.prod(shape), **wide) for name, shape in shapes.items()
        }
        rows = torch.arange(sets * particles, device=device).reshape(sets, particles)
        self._offset = rows[:, :1]
        self.first = self._slots = rows - self._offset
        self._keys = torch.stack([torch.full((sets,), seed, device=device), worlds + rows[:, 0]], dim=1)
        self.effective: list[Tensor] = []
        self.extinct: list[Tensor] = []
        self.invalid = torch.zeros(sets, dtype=torch.bool, device=device)
        self.curves: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        self._done = 0

    def due(self, step: int) -> bool:
        """See `Sieve`."""
        return step in self._observations

    def see(self, step: int, records: Mapping[str, Tensor]) -> Tensor | None:
        """See `Sieve`."""
        begin, self._done = self._done, step
        for name, kept in self.series.items():
            record, shape = records[name], self._shapes[name]
            if tuple(record.shape[2:]) != shape:
                raise InputError(
                    f"{self._caller}: targets[{name!r}] has values of shape {shape}, expected "
                    f"{tuple(record.shape[2:])}, as a world gives them at each step"
                )
            kept[:, begin:step] = record.reshape(*record.shape[:2], -1)
        here = self._observations.get(step, ())
        means = [self._mean(one, step) for one in here]
        parts = [
            one.density(mean.index_select(2, one.seen)).sum(2)
            for one, mean in zip(here, means, strict=True)
            if one.seen is not None
        ]
        if parts:
            self._weigh(functools.reduce(torch.add, parts))
        if self._keep:
            for one, mean in zip(here, means, strict=True):
                self.curves[one.name, one.place] = mean, self.log_weights
        return self._draw(step) if parts else None

    def _mean(self, one: Observation, step: int) -> Tensor:
        part = self.series[one.name][:, one.begin : step]
        part = part.reshape(self._sets, self._particles, *part.shape[1:])
        return (part * one.share[:, None]).sum(2)

    def _weigh(self, log_prob: Tensor) -> None:
        none = ~(log_prob < math.inf)
        self.invalid |= none.any(1)
        log_prob = log_prob.masked_fill(none, -math.inf)
        self.extinct.append((log_prob == -math.inf).sum(1))
        weighed = self.log_weights + log_prob
        total = torch.logsumexp(weighed, 1)
        self.log_likelihood = self.log_likelihood + total
        lost = (total == -math.inf)[:, None]  # nobody can give it: all go on alike, so that no NaN spreads
        self.log_weights = torch.where(lost, self.log_weights, weighed - total[:, None])
        effective = self.log_weights.exp().square().sum(1).reciprocal()
        self.effective.append(effective.masked_fill(lost[:, 0], 0.0))

    def _draw(self, step: int) -> Tensor | None:
        """Rows to go on from; sets with enough effective particles keep theirs."""
        needed = self.effective[-1] < self._threshold * self._particles
        if needed.device.type == "cpu" and not bool(needed.any()):
            return None
        units = (self.log_weights.exp() * UNITS).round().to(torch.int64).cumsum(1)
        words = ops.draw_words(needed.new_empty(0, dtype=torch.int64), 1, self._keys, self._steps(step), STREAM)
        unit = (words.to(torch.float64) + 0.5) * 2.0**-32
        slots = self._slots
        aims = ((slots + unit) * (units[:, -1:].to(torch.float64) / self._particles)).to(torch.int64)
        found = torch.searchsorted(units, aims, right=True).clamp(max=self._particles - 1)
        picked = torch.where(needed[:, None], placed(found, slots), slots)
        self.log_weights = self.log_weights.masked_fill(needed[:, None], -math.log(self._particles))
        self.first = self.first.gather(1, picked)
        rows = (picked + self._offset).reshape(-1)
        for kept in self.series.values():
            kept[:, :step] = kept[:, :step].index_select(0, rows)
        return rows

    def _steps(self, step: int) -> Tensor:
        return torch.full((), step, dtype=torch.int64, device=self.log_weights.device)


def placed(drawn: Tensor, slots: Tensor) -> Tensor:
    """Those drawn, each in its own place once, and the further times in the places of those not drawn, in order.

    Args:
        drawn: int64 `[S, R]`, ascending.
        slots: int64 `[S, R]`: 0, 1, … in each row.
    """
    first = torch.searchsorted(drawn, slots).clamp(max=drawn.shape[1] - 1)
    gone = drawn.gather(1, first) != slots
    more = torch.zeros_like(drawn)
    more[:, 1:] = drawn[:, 1:] == drawn[:, :-1]
    where = torch.searchsorted(more.cumsum(1), gone.cumsum(1))  # the k-th further time for the k-th that is gone
    return torch.where(gone, drawn.gather(1, where), slots)
