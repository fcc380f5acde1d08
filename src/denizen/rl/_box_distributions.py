"""Distributions over the numbers of a box that keep to its bounds; the usual one, `Gaussian`, is cut at them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.errors import InputError
from denizen.model import Box
from denizen.rl._distributions import Gaussian, normal

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
