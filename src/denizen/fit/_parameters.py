"""What is fitted: numbers without bounds, on which a search moves, and the parameters that they stand for."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Dirichlet, Distribution

from denizen.errors import InputError
from denizen.fit._densities import log_prob
from denizen.fit._priors import Prior, Walk

TRIES = 20
Ends = tuple[float | None, float | None]
SMALLEST = 1e-30  # share that is drawn: rounding has given 0 to it


@dataclasses.dataclass(frozen=True)
class Bounded:
    """A parameter with its bounds: log for one bound, logit for two, as it is without.

    Attributes:
        name: of the parameter; of a number of a target ``"cases.report"``.
        low: lower bound, or None.
        high: upper bound, or None.
        shape: of the parameter; of one that changes in time `[values, …]`.
        start: where the search begins, float64 of the shape.
        priors: of each free number, None: flat in the numbers that the search moves on.
        places: of the entries that are free, in the flattened parameter; the others are held at `start`.
        shared: whether one free number stands for all entries.
        walk: standard deviation of the step from an entry of the first axis to the next, in free numbers, or None.
        every: steps of a value, of a parameter that changes in time.
        of_target: whether it is a number of a target.
    """

    name: str
    low: float | None
    high: float | None
    shape: tuple[int, ...]
    start: np.ndarray
    priors: tuple[Prior, ...]
    places: tuple[int, ...]
    shared: bool = False
    walk: float | None = None
    every: int | None = None
    of_target: bool = False

    @property
    def size(self) -> int:
        """Free numbers."""
        return len(self.priors)

    @property
    def prior(self) -> Prior | Walk:
        """The first prior there is, or None where all is flat."""
        walk = None if self.walk is None else Walk(self.walk)
        return next((prior for prior in self.priors if prior is not None), walk)

    @property
    def labels(self) -> list[str]:
        """A name for each free number."""
        return [self.name] if self.shared or not self.shape else [f"{self.name}[{k}]" for k in self.places]

    @property
    def late(self) -> bool:
        """Whether some may be seen by no value yet, as what changes in time and has a prior."""
        return self.every is not None and not self.flat()

    def free(self, value: np.ndarray) -> np.ndarray:
        """Numbers without bounds, of values within."""
        if self.low is not None and self.high is not None:
            share = (value - self.low) / (self.high - self.low)
            return np.log(share) - np.log1p(-share)
        if self.low is not None:
            return np.log(value - self.low)
        return -np.log(self.high - value) if self.high is not None else np.asarray(value, dtype=np.float64)

    def bound(self, free: Any, tensors: bool = False) -> Any:
        """Values within the bounds, of numbers without."""
        exp, sigmoid = (torch.exp, torch.sigmoid) if tensors else (np.exp, _sigmoid)
        if self.low is not None and self.high is not None:
            return self.low + (self.high - self.low) * sigmoid(free)
        if self.low is not None:
            return self.low + exp(free)
        return self.high - exp(-free) if self.high is not None else free

    def entries(self, free: Any, tensors: bool = False) -> Any:
        """Values of the entries at `places`, or of all alike, of free numbers `[…, size]`."""
        return self.bound(free, tensors)

    def width(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """How far each number `[size]` goes in the parameter's own units, between free numbers `[size]`."""
        return self.bound(high) - self.bound(low)

    def begin(self) -> np.ndarray:
        """Free numbers `[size]` of `start`."""
        return self.free(self.start.reshape(-1)[list(self.places[: self.size])])

    def units(self) -> np.ndarray:
        """A size of each free number `[size]` that is much: 1, or where it is as it is searched that of `start`."""
        ends = [(one.low, one.high) for one in map(self.alone, range(self.size))]
        return np.where([end == (None, None) for end in ends], np.maximum(1, np.abs(self.begin())), 1.0)

    def values(self, free: np.ndarray) -> np.ndarray:
        """The parameter `[sets, …]`, of its free numbers `[sets, size]`."""
        # What rounding to float32 takes over a bound comes back to it.
        low, high = self.low if self.low is not None else -np.inf, self.high if self.high is not None else np.inf
        whole = np.tile(self.start.reshape(-1), (len(free), 1))
        whole[:, list(self.places)] = np.clip(self.entries(free), low, high)
        return whole.reshape(len(free), *self.shape)

    def log_density(self, free: Tensor) -> Tensor:
        """Of the prior in free numbers, without a constant where it is flat: `[sets]` of `[sets, size]`."""
        found = free.new_zeros(len(free))
        for prior, columns in self._by_prior().items():
            one, here = self.alone(columns[0]), free[:, columns]
            density = log_prob(prior, one.bound(here, tensors=True)) + one._log_slope(here)
            found = found + density.sum(1)
        if self.walk is not None:
            found = found - 0.5 * (self._moves(free) / self.walk).square().sum((1, 2))
            found = found - self._moves(free)[0].numel() * math.log(self.walk * math.sqrt(2 * math.pi))
        return found

    def draw(self, num: int) -> np.ndarray:
        """Free numbers `[num, size]` of the prior."""
        found = np.zeros((num, self.size))
        for prior, columns in self._by_prior().items():
            one = self.alone(columns[0])
            drawn = prior.sample(torch.Size((num, len(columns)))).double()
            for _ in range(TRIES):  # the little of a prior that lies beyond the bounds is drawn again
                beyond = ~one._within(drawn)
                if not beyond.any():
                    break
                drawn[beyond] = prior.sample(torch.Size((int(beyond.sum()),))).double()
            found[:, columns] = one.free(drawn.numpy())
        if self.walk is not None:
            rows = found.reshape(num, self.shape[0], -1)
            steps = torch.randn(num, self.shape[0] - 1, rows.shape[2], dtype=torch.float64).numpy()
            rows[:, 1:] = rows[:, :1] + self.walk * np.cumsum(steps, axis=1)
        return found

    def flat(self) -> bool:
        """Whether a free number has no prior."""
        needed = self.priors if self.walk is None else self.priors[: self.size // self.shape[0]]
        return any(prior is None for prior in needed)

    def curve(self, free: np.ndarray) -> np.ndarray:
        """Curvature `[size, size]` of the prior's log density, downwards, and no entry of its diagonal below 0."""
        here = torch.tensor(free[None], dtype=torch.float64, requires_grad=True)
        alone = dataclasses.replace(self, walk=None)  # its entries are independent: the diagonal is all
        first = _slope(alone.log_density(here), here, create_graph=True)
        found = np.diag(np.maximum(0, -_slope(first, here).detach().numpy()[0]))
        if self.walk is not None:
            steps = np.diff(np.eye(self.shape[0]), axis=0) / self.walk
            found = found + np.kron(steps.T @ steps, np.eye(self.size // self.shape[0]))
        return found

    def alone(self, column: int) -> "Bounded":
        """What knows the bounds of a free number."""
        return self

    def _within(self, value: Tensor) -> Tensor:
        inside = torch.ones_like(value, dtype=torch.bool)
        if self.low is not None:
            inside &= value > self.low
        return inside if self.high is None else inside & (value < self.high)

    def _moves(self, free: Tensor) -> Tensor:
        return free.reshape(len(free), self.shape[0], -1).diff(dim=1)

    def _by_prior(self) -> dict[Distribution, list[int]]:
        found: dict[Distribution, list[int]] = {}
        for k, prior in enumerate(self.priors):
            if prior is not None:
                found.setdefault(prior, []).append(k)
        return found

    def _log_slope(self, free: Tensor) -> Tensor:
        """Logarithm of the slope of `bound`."""
        if self.low is not None and self.high is not None:
            sigmoid = torch.nn.functional.logsigmoid
            return math.log(self.high - self.low) + sigmoid(free) + sigmoid(-free)
        if self.low is not None:
            return free
        return -free if self.high is not None else torch.zeros_like(free)


@dataclasses.dataclass(frozen=True)
class Apart(Bounded):
    """A vector whose entries have bounds of their own, within those of the whole.

    Attributes:
        ends: lower and upper bound of each free number.
    """

    ends: tuple[Ends, ...] = ()

    def free(self, value: np.ndarray) -> np.ndarray:
        """See `Bounded`: of values `[…, size]`."""
        return np.stack([self.alone(k).free(value[..., k]) for k in range(self.size)], axis=-1)

    def bound(self, free: Any, tensors: bool = False) -> Any:
        """See `Bounded`: of free numbers `[…, size]`."""
        found = [self.alone(k).bound(free[..., k], tensors) for k in range(self.size)]
        return torch.stack(found, dim=-1) if tensors else np.stack(found, axis=-1)

    def alone(self, column: int) -> Bounded:
        low, high = self.ends[column]
        return Bounded(self.name, low, high, (), np.zeros(()), (self.priors[column],), (0,))


class Simplex(Bounded):
    """Shares that add up to one, by the logarithms of the others over the last one; its one prior is a Dirichlet."""

    @property
    def size(self) -> int:
        """See `Bounded`: one less than there are shares."""
        return len(self.places) - 1

    @property
    def labels(self) -> list[str]:
        """See `Bounded`; the last share is what the others leave."""
        return [f"{self.name}[{k}]" for k in self.places[:-1]]

    def free(self, value: np.ndarray) -> np.ndarray:
        """See `Bounded`, of all shares but the last `[…, size]`."""
        return np.log(value) - np.log1p(-value.sum(-1, keepdims=True))

    def bound(self, free: Any, tensors: bool = False) -> Any:
        """See `Bounded`: all shares but the last."""
        return self.entries(free, tensors)[..., :-1]

    def entries(self, free: Any, tensors: bool = False) -> Any:
        """See `Bounded`: all shares."""
        found = _log_shares(torch.as_tensor(free)).exp()
        return found if tensors else found.numpy()

    def width(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """See `Bounded`: of each with the others in the middle."""
        ends = [np.where(np.eye(self.size, dtype=bool), end, (low + high) / 2) for end in (low, high)]
        return np.diag(self.bound(ends[1]) - self.bound(ends[0]))

    def log_density(self, free: Tensor) -> Tensor:
        """See `Bounded`. The slope of the shares but the last by the free numbers is the product of all shares."""
        (prior,) = self.priors
        if prior is None:
            return free.new_zeros(len(free))
        shares = _log_shares(free)
        return log_prob(prior, shares.exp()) + shares.sum(1)

    def draw(self, num: int) -> np.ndarray:
        """See `Bounded`."""
        (prior,) = self.priors
        assert prior is not None, "what is flat is not drawn"
        drawn = prior.sample(torch.Size((num,))).double().clamp(min=SMALLEST).numpy()
        return np.log(drawn[:, :-1]) - np.log(drawn[:, -1:])

    def curve(self, free: np.ndarray) -> np.ndarray:
        """See `Bounded`: of all concentrations together times the covariance of one draw of a share."""
        (prior,) = self.priors
        if not isinstance(prior, Dirichlet):
            return np.zeros((self.size, self.size))
        shares = self.bound(free)
        return float(prior.concentration.sum()) * (np.diag(shares) - np.outer(shares, shares))


def _log_shares(free: Tensor) -> Tensor:
    """Logarithms of shares `[…, K]` of free numbers `[…, K - 1]`."""
    return torch.log_softmax(torch.cat([free, torch.zeros_like(free[..., :1])], dim=-1), dim=-1)


def _slope(of: Tensor, at: Tensor, create_graph: bool = False) -> Tensor:
    """Gradient of a sum, also where it depends on nothing."""
    if not of.requires_grad:
        return torch.zeros_like(at)
    (found,) = torch.autograd.grad(of.sum(), at, create_graph=create_graph, allow_unused=True)
    return torch.zeros_like(at) if found is None else found


class Parameters:
    """The parameters of a fit, side by side as one vector of free numbers.

    Attributes:
        parts: the parameters.
        labels: a name for each number, such as ``"R[3]"``.
    """

    def __init__(self, parts: Iterable[Bounded]) -> None:
        self.parts = tuple(parts)
        self.labels = [label for part in self.parts for label in part.labels]

    @property
    def start(self) -> np.ndarray:
        """Free numbers to begin with."""
        return np.concatenate([part.begin() for part in self.parts])

    @property
    def units(self) -> np.ndarray:
        """A size of each free number that is much, `[P]`."""
        return np.concatenate([part.units() for part in self.parts])

    def values(self, free: np.ndarray) -> dict[str, np.ndarray]:
        """Parameters by name `[sets, …]`, of free numbers `[sets, P]`; numbers of targets among them."""
        return {part.name: part.values(here) for part, here in self._split(free)}

    def of_model(self, free: np.ndarray) -> list[tuple[Bounded, np.ndarray]]:
        """The parameters of the model, each with its free numbers `[sets, size]`."""
        return [(part, here) for part, here in self._split(free) if not part.of_target]

    def of_targets(self, free: np.ndarray) -> list[tuple[Bounded, np.ndarray]]:
        """The numbers of targets, each with its free numbers `[sets, size]`."""
        return [(part, here) for part, here in self._split(free) if part.of_target]

    def log_prior(self, free: np.ndarray) -> np.ndarray:
        """Log density of the prior in free numbers, without a constant where it is flat: `[sets]` of `[sets, P]`."""
        found = np.zeros(len(free))
        for part, here in self._split(free):
            found += part.log_density(torch.tensor(here, dtype=torch.float64)).numpy()
        return found

    def draw(self, caller: str, num: int, generator: np.random.Generator) -> np.ndarray:
        """Free numbers `[num, P]` drawn from the priors.

        Raises:
            InputError: a parameter is flat in the numbers that the search moves on: nothing can be drawn from that.
        """
        columns = []
        for part in self.parts:
            if part.flat():
                bounds = part.low is not None and part.high is not None
                example = f"Uniform({part.low:g}, {part.high:g})" if bounds else "LogNormal(mean, sd)"
                raise InputError(
                    f"{caller}: {part.name!r} has no prior, which a posterior needs; give one, such as "
                    f"priors={{{part.name!r}: torch.distributions.{example}}}"
                )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(generator.integers(1 << 62)))
                columns.append(part.draw(num))
        return np.concatenate(columns, axis=1)

    def prior(self, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slope `[P]` and curvature `[P, P]` (downwards) of the prior's log density in free numbers `[P]`."""
        slope, curve = [], np.zeros((len(free), len(free)))
        at = 0
        for part, rows in self._split(free[None]):
            here = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
            slope.append(_slope(part.log_density(here), here).numpy()[0])
            curve[at : at + part.size, at : at + part.size] = part.curve(rows[0])
            at += part.size
        return np.concatenate(slope), curve

    def _split(self, free: np.ndarray) -> list[tuple[Bounded, np.ndarray]]:
        ends = np.cumsum([part.size for part in self.parts])
        return list(zip(self.parts, np.split(free, ends[:-1], axis=1), strict=True))


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


def as_tensor(value: np.ndarray) -> Tensor:
    """Float32, as parameters are."""
    return torch.as_tensor(value, dtype=torch.float32)
