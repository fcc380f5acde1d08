"""Distributions over actions, with what learning needs of them; every method works on a batch of rows."""

import itertools
import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.errors import InputError
from denizen.model import Box

FEW = 8  # choices
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """What a policy says about its next action, for each row."""

    def sample(self, uniform: Tensor) -> Tensor:
        """Actions from uniform numbers `[rows, draws]`."""
        ...

    def mode(self) -> Tensor:
        """The likeliest actions."""
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability or log-density of actions: `[rows]`."""
        ...

    def entropy(self) -> Tensor:
        """In nats: `[rows]`."""
        ...

    def kl(self, other: Any) -> Tensor:
        """KL(self, other) to another distribution of this kind, in nats: `[rows]`."""
        ...


class BoxDistribution(Protocol):
    """A class of distributions over the numbers of a box, which a policy may be told to have.

    Attributes:
        each: numbers that the actor gives for each number of the box.
        draws: uniform numbers that a draw of one takes.
        learns_std: whether it takes the policy's `log_std`.
    """

    each: int
    draws: int
    learns_std: bool

    def of(self, numbers: Tensor, log_std: Tensor | None, space: Box) -> Distribution:
        """From the actor's numbers `[rows, each * numbers of the box]`."""
        ...

    def check(self, space: Box, what: str) -> None:
        """Raise `InputError` where it does not fit a box."""
        ...


class Categorical(NamedTuple):
    """One of several choices.

    Attributes:
        log_probs: float32 `[rows, choices]`, normalised; -inf where a choice is closed.
    """

    log_probs: Tensor

    @staticmethod
    def of(logits: Tensor, open_: Tensor | None = None) -> "Categorical":
        """From logits `[rows, choices]`, and which choices are open (bool), where some are not.

        Rows where none is, as of agents that are out, count as open: their numbers stay finite.
        """
        logits = logits.to(torch.float32)
        if open_ is not None:
            open_ = open_ | ~open_.any(-1, keepdim=True)
            logits = logits.masked_fill(~open_, -torch.inf)
        return Categorical(torch.log_softmax(logits, dim=-1))

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion of one uniform number a row; a closed choice has no width and is never drawn."""
        # Few choices are added up one by one: compiled, that is part of one pass over the rows; a scan is a kernel.
        # The last open choice ends at the total, whatever rounding made of it.
        probs = self.log_probs.exp()
        if probs.shape[-1] <= FEW:
            edges = list(itertools.accumulate(probs.unbind(-1)))
            drawn = sum((edge <= uniform[:, 0] * edges[-1]).to(torch.int64) for edge in edges)
            assert isinstance(drawn, Tensor)
        else:
            sums = probs.cumsum(-1)
            drawn = (sums <= uniform[:, :1] * sums[:, -1:]).sum(-1)
        return drawn.clamp(max=probs.shape[-1] - 1)

    def mode(self) -> Tensor:
        """The likeliest choice; the first of equals."""
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Of the choice made."""
        return self.log_probs.gather(-1, action[:, None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """Closed choices add nothing, and their gradient is finite: 0."""
        finite = self.log_probs.masked_fill(self.log_probs == -torch.inf, 0.0)
        return -(finite.exp() * finite * (self.log_probs != -torch.inf)).sum(-1)

    def kl(self, other: "Categorical") -> Tensor:
        """Choices closed here add nothing, whatever the other says of them."""
        closed = self.log_probs == -torch.inf
        mine, its = self.log_probs.masked_fill(closed, 0.0), other.log_probs.masked_fill(closed, 0.0)
        return torch.where(closed, 0.0, mine.exp() * (mine - its)).sum(-1)


class Categoricals(NamedTuple):
    """A choice of each of several factors, independent of one another.

    Attributes:
        log_probs: float32 `[rows, factors, choices]`, normalised; -inf where a choice is closed, or a factor has none
            of that number.
    """

    log_probs: Tensor

    @staticmethod
    def of(logits: Tensor, factors: tuple[int, ...], open_: Tensor | None = None) -> "Categoricals":
        """From logits of the choices of all factors side by side, `[rows, choices]`, and which of them are open."""
        if len(set(factors)) == 1:  # nothing to fill up
            apart = logits.unflatten(-1, (len(factors), -1))
            kept = None if open_ is None else open_.unflatten(-1, (len(factors), -1))
        else:
            apart = _side_by_side(logits.to(torch.float32), factors, -torch.inf)
            kept = None if open_ is None else _side_by_side(open_, factors, False)
        return Categoricals(Categorical.of(apart, kept).log_probs)

    def _each(self) -> Categorical:
        return Categorical(self.log_probs.flatten(0, 1))

    def _per_factor(self, numbers: Tensor) -> Tensor:
        return numbers.view(self.log_probs.shape[:2])

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion, one uniform number for each factor: int64 `[rows, factors]`."""
        return self._per_factor(self._each().sample(uniform.reshape(-1, 1)))

    def mode(self) -> Tensor:
        """The likeliest choice of each factor."""
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the factors."""
        return self.log_probs.gather(-1, action.to(torch.int64)[..., None]).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over the factors."""
        return self._per_factor(self._each().entropy()).sum(-1)

    def kl(self, other: "Categoricals") -> Tensor:
        """Sum over the factors."""
        return self._per_factor(self._each().kl(other._each())).sum(-1)


def _side_by_side(entries: Tensor, factors: tuple[int, ...], fill: float) -> Tensor:
    """`[rows, choices]` as `[rows, factors, most choices]`, filled up."""
    most = max(factors)
    parts = entries.split(factors, -1)
    return torch.stack([F.pad(part, (0, most - part.shape[-1]), value=fill) for part in parts], -2)


class Gaussian(NamedTuple):
    """Independent normal numbers; worlds get the nearest ones within the bounds of their box.

    Attributes:
        mean: float32 `[rows, numbers]`.
        log_std: float32 `[numbers]` or `[rows, numbers]`.
        shape: of one action.
    """

    mean: Tensor
    log_std: Tensor
    shape: tuple[int, ...]

    # Numbers of an actor, and uniform numbers of a draw, for each number of a box; whether `log_std` is learnt.
    each, draws, learns_std = 1, 1, True

    @staticmethod
    def of(numbers: Tensor, log_std: Tensor | None, space: Box) -> "Gaussian":
        """From the actor's numbers `[rows, numbers]`."""
        assert log_std is not None
        return Gaussian(numbers.to(torch.float32), log_std, space.shape)

    @staticmethod
    def check(space: Box, what: str) -> None:
        """Any box will do."""

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion, one uniform number for each number of the action."""
        return (self.mean + self.log_std.exp() * normal(uniform)).reshape(-1, *self.shape)

    def mode(self) -> Tensor:
        """The mean."""
        return self.mean.reshape(-1, *self.shape)

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the numbers of the action."""
        far = (action.reshape(self.mean.shape) - self.mean) / self.log_std.exp()
        return -(0.5 * far.square() + self.log_std + _HALF_LOG_TAU).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over the numbers of the action; may be negative."""
        return (self.log_std + _HALF_LOG_TAU + 0.5).sum(-1).expand(self.mean.shape[0])

    def kl(self, other: "Gaussian") -> Tensor:
        """Sum over the numbers of the action."""
        wider = other.log_std - self.log_std
        far = (self.mean - other.mean) / other.log_std.exp()
        return (wider + 0.5 * ((-2 * wider).exp() + far.square() - 1)).sum(-1)


def normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers by inversion."""
    return torch.special.ndtri(uniform.to(torch.float64)).to(torch.float32)


class Greedy(NamedTuple):
    """The choice of the highest value, for certain.

    Attributes:
        values: float32 `[rows, choices]`; -inf where a choice is closed.
    """

    values: Tensor

    @staticmethod
    def of(values: Tensor, open_: Tensor | None = None) -> "Greedy":
        """From values `[rows, choices]`, and which choices are open (bool); rows where none is count as open."""
        values = values.to(torch.float32)
        if open_ is not None:
            values = values.masked_fill(~(open_ | ~open_.any(-1, keepdim=True)), -torch.inf)
        return Greedy(values)

    def explored(self, epsilon: Tensor) -> Categorical:
        """One of the open choices with probability `epsilon` (float32 `[]`), else the best."""
        is_open = (self.values > -torch.inf).to(torch.float32)
        best = torch.zeros_like(self.values).scatter(-1, self.mode()[:, None], 1.0)
        return Categorical((epsilon * is_open / is_open.sum(-1, keepdim=True) + (1 - epsilon) * best).log())

    def sample(self, uniform: Tensor) -> Tensor:
        """The best choice, whatever was drawn."""
        return self.mode()

    def mode(self) -> Tensor:
        """The best choice; the first of equals."""
        return self.values.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """0 for the best choice, -inf for others."""
        return torch.where(action == self.mode(), 0.0, -torch.inf)

    def entropy(self) -> Tensor:
        """0."""
        return torch.zeros_like(self.values[:, 0])

    def kl(self, other: "Greedy") -> Tensor:
        """0 where both choose alike, else infinite."""
        return torch.where(self.mode() == other.mode(), 0.0, torch.inf)


class Certain(NamedTuple):
    """One action, for certain.

    Attributes:
        action: float32 `[rows, *shape]`.
    """

    action: Tensor

    def sample(self, uniform: Tensor) -> Tensor:
        """The action, whatever was drawn."""
        return self.action

    def mode(self) -> Tensor:
        """The action."""
        return self.action

    def log_prob(self, action: Tensor) -> Tensor:
        """0 for the action, -inf for others."""
        return torch.where((action == self.action).reshape(len(action), -1).all(1), 0.0, -torch.inf)

    def entropy(self) -> Tensor:
        """-inf, as of a density that is all at one place."""
        return torch.full_like(self.action.reshape(len(self.action), -1)[:, 0], -torch.inf)

    def kl(self, other: "Certain") -> Tensor:
        """0 where both are the same, else infinite."""
        return torch.where((self.action == other.action).reshape(len(self.action), -1).all(1), 0.0, torch.inf)


# --- over numbers of a Box, beside the Gaussian -----------------------------------------------------------------------


ATTEMPTS = 6  # at a gamma number, of which one in 20 fails at most: all of them once in 7e7
NODES, REACH = 33, 6.0  # of integrals over a normal number: as many within so many deviations
_EPS = torch.finfo(torch.float32).eps


class SquashedGaussian(NamedTuple):
    """Independent normal numbers, put between two bounds by tanh.

    A number that lacks a bound is not squashed: it is normal, and cut where it has one, as with `Gaussian`.

    Attributes:
        mean: float32 `[rows, numbers]`, before tanh.
        log_std: float32 `[numbers]` or `[rows, numbers]`, before tanh.
        low: float32 `[numbers]`; may be -inf.
        high: float32 `[numbers]`; may be inf.
        shape: of one action.
        eps: relative spacing of the numbers that actions are kept as: what lies closer to a bound than a quarter of it
            counts as that far away.
    """

    mean: Tensor
    log_std: Tensor
    low: Tensor
    high: Tensor
    shape: tuple[int, ...]
    eps: float = _EPS

    # Numbers of an actor, and uniform numbers of a draw, for each number of a box; whether `log_std` is learnt.
    each, draws, learns_std = 1, 1, True

    @staticmethod
    def of(numbers: Tensor, log_std: Tensor | None, space: Box) -> "SquashedGaussian":
        """From the actor's numbers `[rows, numbers]`."""
        assert log_std is not None
        return SquashedGaussian(numbers.to(torch.float32), log_std, *_bounds(numbers, space), space.shape, _eps(space))

    @staticmethod
    def check(space: Box, what: str) -> None:
        """Raise `InputError` where nothing would be squashed."""
        if not any(math.isfinite(low) and math.isfinite(high) for low, high in space.bounds()):
            raise InputError(
                f"{what}: SquashedGaussian squashes numbers between two bounds, and {space} has none; "
                f"take dz.rl.Gaussian"
            )

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion, one uniform number for each number of the action."""
        return self._squashed(self._free().sample(uniform))

    def drawn(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Actions as `sample` gives them, and their log-density: exact also where an action rounds to a bound."""
        noise = normal(uniform)
        free = self.mean + self.log_std.exp() * noise
        inside, low, high = _both(self.low, self.high)
        # log(1 - tanh²) = 2 (log 2 - u - softplus(-2 u)) does not cancel (Haarnoja et al., 2018, appendix C).
        slope = (0.5 * (high - low)).log() + 2 * (math.log(2) - free - F.softplus(-2 * free))
        density = -(0.5 * noise.square() + self.log_std + 0.5 * math.log(2 * math.pi)) - torch.where(inside, slope, 0.0)
        return self._squashed(free), density.sum(-1)

    def mode(self) -> Tensor:
        """The squashed mean: the median of each number."""
        return self._squashed(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the numbers of the action of the log-density within the bounds."""
        flat = action.reshape(self.mean.shape).to(torch.float32)
        inside, below, above = _distances(flat, self.low, self.high, self.eps)
        free = torch.where(inside, 0.5 * (below.log() - above.log()), flat)
        slope = math.log(2) + below.log() + above.log() - (below + above).log()
        return self._free().log_prob(free) - torch.where(inside, slope, 0.0).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over the numbers of the action; an integral by the trapezoidal rule over 33 points.

        Exact to 1e-4 up to a standard deviation of 3 before tanh.
        """
        z = (torch.arange(NODES, device=self.mean.device) / (NODES - 1) - 0.5) * (2 * REACH)
        weight = torch.softmax(-0.5 * z.square(), 0)
        inside, low, high = _both(self.low, self.high)
        std = self.log_std.exp().expand(self.mean.shape)
        free = (self.mean[..., None] + std[..., None] * z).abs()
        slope = (2 * (high - low)).log() - 2 * ((free + (-2 * free).exp().log1p()) * weight).sum(-1)
        return self._free().entropy() + torch.where(inside, slope, 0.0).sum(-1)

    def kl(self, other: "SquashedGaussian") -> Tensor:
        """That of the normal numbers: what is done to both alike changes nothing."""
        return self._free().kl(other._free())

    def _free(self) -> Gaussian:
        return Gaussian(self.mean, self.log_std, self.mean.shape[1:])

    def _squashed(self, free: Tensor) -> Tensor:
        inside, low, high = _both(self.low, self.high)
        within = torch.minimum(low + (high - low) * torch.sigmoid(2 * free), high)
        return torch.where(inside, within, free).reshape(-1, *self.shape)


class Beta(NamedTuple):
    """Independent numbers with a beta distribution between two bounds (Chou, Maturana and Scherer, 2017).

    Both concentrations are above 1, so that each number has one mode within its bounds.

    Attributes:
        alpha: float32 `[rows, numbers]`: concentration towards `high`.
        beta: float32 `[rows, numbers]`: concentration towards `low`.
        low: float32 `[numbers]`.
        high: float32 `[numbers]`.
        shape: of one action.
        eps: as of `SquashedGaussian`.
    """

    alpha: Tensor
    beta: Tensor
    low: Tensor
    high: Tensor
    shape: tuple[int, ...]
    eps: float = _EPS

    each, draws, learns_std = 2, 4 * ATTEMPTS, False

    @staticmethod
    def of(numbers: Tensor, log_std: Tensor | None, space: Box) -> "Beta":
        """From the actor's numbers `[rows, 2 * numbers]`: 1 + softplus of each is a concentration."""
        alpha, beta = (1.000001 + F.softplus(numbers.to(torch.float32))).chunk(2, -1)
        return Beta(alpha, beta, *_bounds(numbers, space), space.shape, _eps(space))

    @staticmethod
    def check(space: Box, what: str) -> None:
        """Raise `InputError` where a number lacks a bound."""
        if not space.bounded:
            raise InputError(
                f"{what}: Beta is for numbers between two finite bounds, and {space} lacks some; take "
                f"dz.rl.Gaussian or dz.rl.SquashedGaussian"
            )

    def sample(self, uniform: Tensor) -> Tensor:
        """As a ratio of gamma numbers, by the method of Marsaglia and Tsang (2000) with six attempts at each.

        Uniform numbers are `[rows, 24 * numbers]`. One draw in 3e7 has no attempt that succeeds, and gets a number in
        the middle; the rest follow the distribution as exactly as float32 numbers do.
        """
        given = uniform.reshape(*self.alpha.shape, 2, 2, ATTEMPTS)
        normal = torch.special.ndtri(given[..., 0, :].to(torch.float64)).to(torch.float32)
        least = torch.stack([self.alpha, self.beta], -1)[..., None] - 1 / 3
        root = 1 + normal / (9 * least).sqrt()
        cubed = root.clamp(min=1e-6) ** 3
        fits = given[..., 1, :].log() < 0.5 * normal.square() + least * (1 - cubed + cubed.log())
        fits = fits & (root > 0)
        found = torch.ones_like(cubed[..., 0])
        for attempt in range(ATTEMPTS - 1, -1, -1):
            found = torch.where(fits[..., attempt], cubed[..., attempt], found)
        one, other = (least[..., 0] * found).unbind(-1)
        return self._within(one / (one + other))

    def mode(self) -> Tensor:
        """Where the density is highest."""
        one, other = self.alpha - 1, self.beta - 1
        return self._within(one / (one + other))

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the numbers of the action."""
        flat = action.reshape(self.alpha.shape).to(torch.float32)
        _, below, above = _distances(flat, self.low, self.high, self.eps)
        width = (self.high - self.low).log()
        powers = (self.alpha - 1) * (below.log() - width) + (self.beta - 1) * (above.log() - width)
        return (powers - _log_beta(self.alpha, self.beta) - width).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over the numbers of the action; may be negative."""
        alpha, beta = self.alpha, self.beta
        flat = _log_beta(alpha, beta) - (alpha - 1) * _digamma(alpha) - (beta - 1) * _digamma(beta)
        return (flat + (alpha + beta - 2) * _digamma(alpha + beta) + (self.high - self.low).log()).sum(-1)

    def kl(self, other: "Beta") -> Tensor:
        """Sum over the numbers of the action."""
        one, two = self.alpha - other.alpha, self.beta - other.beta
        flat = _log_beta(other.alpha, other.beta) - _log_beta(self.alpha, self.beta)
        flat = flat + one * _digamma(self.alpha) + two * _digamma(self.beta)
        return (flat - (one + two) * _digamma(self.alpha + self.beta)).sum(-1)

    def _within(self, share: Tensor) -> Tensor:
        return torch.minimum(self.low + (self.high - self.low) * share, self.high).reshape(-1, *self.shape)


def _bounds(numbers: Tensor, space: Box) -> tuple[Tensor, Tensor]:
    """Of each number in a row, as float32 on the device of the actor's numbers."""
    low, high = space.spans(numbers.device)
    return low, high


def _eps(space: Box) -> float:
    """Spacing of the numbers that actions are kept as; none are drawn finer than in float32."""
    return max(_EPS, torch.finfo(space.dtype).eps)


def _both(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(which numbers have two bounds, their bounds; of others -1 and 1, which stand in)."""
    inside = torch.isfinite(low) & torch.isfinite(high)
    return inside, torch.where(inside, low, -1.0), torch.where(inside, high, 1.0)


def _distances(flat: Tensor, low: Tensor, high: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(which numbers have two bounds, how far actions are above the one and below the other), never 0."""
    inside, low, high = _both(low, high)
    edge = 0.25 * eps * torch.maximum(high - low, torch.maximum(low.abs(), high.abs()))
    return inside, torch.maximum(flat - low, edge), torch.maximum(high - flat, edge)


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    """In float64: differences of large numbers."""
    one, two = alpha.to(torch.float64), beta.to(torch.float64)
    return (torch.lgamma(one) + torch.lgamma(two) - torch.lgamma(one + two)).to(torch.float32)


def _digamma(value: Tensor) -> Tensor:
    return torch.digamma(value.to(torch.float64)).to(torch.float32)
