"""Delays between what happens and its being written down: a kernel over steps."""

import dataclasses
from typing import Any, Self

import numpy as np
import torch
from torch.distributions import Distribution

from denizen.errors import InputError
from denizen.fit._priors import check_distribution

TAIL = 1e-3  # of a distribution: what lies beyond is left out
LONGEST = 400  # steps of a kernel: a year of days
PARTS = 64  # of a step, for the time within it at which something happens


@dataclasses.dataclass(frozen=True)
class Delay:
    """A kernel of delays.

    Attributes:
        shares: `[steps]` or `[rows, steps]`: probability of 0, 1, 2, … steps.
        of: the distribution that it is of, or None.
        mean: of that, in steps.
    """

    shares: np.ndarray
    of: Any = None
    mean: float | None = None

    @property
    def beyond(self) -> float:
        """What does not fit into the kernel; the largest of all rows."""
        return max(0.0, float((1 - self.shares.sum(-1)).max()))

    def stretched(self, means: np.ndarray) -> Self:
        """The same form with other means `[rows]`."""
        assert self.mean is not None
        each, rows = np.unique(means, return_inverse=True)
        kernels = [_discrete(self.of, self.mean, float(mean)) for mean in each]
        length = max(map(len, kernels))
        shares = np.stack([np.pad(one, (0, length - len(one))) for one in kernels])
        return type(self)(shares[rows], self.of, self.mean)

    def apply(self, series: np.ndarray) -> np.ndarray:
        """When a series `[rows, steps, …]`, which is 0 before its first step, is written down."""
        found = np.zeros_like(series)
        wide = self.shares.reshape(-1, self.shares.shape[-1], *[1] * (series.ndim - 1))
        for k in range(min(self.shares.shape[-1], series.shape[1])):
            found[:, k:] += wide[:, k] * series[:, : series.shape[1] - k]
        return found


def as_delay(given: Any) -> Delay | None:
    """A delay of probabilities or of a distribution.

    Raises:
        InputError: something else, probabilities above one together, a distribution below 0 or of no finite mean.
    """
    if given is None or isinstance(given, Delay):
        return given
    if isinstance(given, Distribution):
        check_distribution("Target", "delay", given, "a distribution of one number")
    if not isinstance(given, type) and (isinstance(given, Distribution) or callable(getattr(given, "cdf", None))):
        mean = float(given.mean() if callable(given.mean) else given.mean)
        if not np.isfinite(mean) or mean <= 0 or _cdf(given, np.array([-1e-9]))[0] > 0:
            raise InputError(
                f"Target: delay={_name(given)} has mean {mean:g}, expected a distribution of times from 0 on with a "
                f"finite mean, such as torch.distributions.Gamma"
            )
        return Delay(_discrete(given, mean, mean), given, mean)
    try:
        kernel = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        kernel = np.zeros(0)
    if kernel.ndim != 1 or not kernel.size or not (kernel >= 0).all() or not 0 < kernel.sum() <= 1 + 1e-6:
        raise InputError(
            f"Target: delay={given!r}, expected probabilities of 0, 1, 2, … steps, at most 1 together, or a "
            f"distribution of torch or scipy"
        )
    return Delay(kernel)


def _discrete(distribution: Any, own: float, mean: float) -> np.ndarray:
    """Probability of each number of steps, where what happens is spread evenly over its step: the mean is kept."""
    stretch = own / mean
    most = 1 - _cdf(distribution, stretch * np.arange(1, LONGEST)) > TAIL
    length = 1 + int(most.sum())
    within = (np.arange(PARTS) + 0.5) / PARTS
    ends = np.arange(length + 1)[:, None] + 1 - within  # written down before the end of step k after it
    below = _cdf(distribution, stretch * ends).mean(1)
    return np.diff(below, prepend=0.0)


def _cdf(distribution: Any, times: np.ndarray) -> np.ndarray:
    if not isinstance(distribution, Distribution):
        return np.asarray(distribution.cdf(times), dtype=np.float64)
    support: Any = distribution.support
    low, high = (float(getattr(support, f"{end}_bound", side)) for end, side in (("lower", -np.inf), ("upper", np.inf)))
    inside = torch.as_tensor(np.clip(times, low + 1e-9, high), dtype=torch.float64)
    try:
        below = distribution.cdf(inside).numpy()
    except NotImplementedError as error:
        raise InputError(
            f"Target: delay={_name(distribution)} has no cdf in torch; take scipy.stats, or Gamma, Exponential, "
            f"LogNormal or Uniform of torch"
        ) from error
    return np.where(times < low, 0.0, np.where(times >= high, 1.0, below))


def _name(distribution: Any) -> str:
    return type(getattr(distribution, "dist", distribution)).__name__
