"""What torch's distributions say as priors: their density, where it is above 0, how much lies beyond bounds."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution


def log_prob(prior: Distribution, value: Tensor) -> Tensor:
    """Log density, minus infinity where there is none; torch raises an error there, also for a bound rounded over."""
    lenient = one = copy.copy(prior)
    one._validate_args = False
    while isinstance(one, TransformedDistribution):
        one.base_dist = copy.copy(one.base_dist)
        one = one.base_dist
        one._validate_args = False
    found = lenient.log_prob(value)
    return torch.where(found.isnan(), -torch.inf, found)


def support(prior: Distribution) -> tuple[float | None, float | None]:
    """The values between which a prior is above 0; None where there is no end."""
    if isinstance(prior, TransformedDistribution):
        # Its own support forgets where the distribution underneath ends, as of a log-uniform.
        ends = [_transformed(prior, end) for end in support(prior.base_dist)]
        if all(end is not None for end in ends):
            return min(ends), max(ends)  # pyrefly: ignore
    region: Any = prior.support
    low, high = getattr(region, "lower_bound", None), getattr(region, "upper_bound", None)
    return (None if low is None else float(low)), (None if high is None else float(high))


def _transformed(prior: TransformedDistribution, end: float | None) -> float | None:
    if end is None or not all(transform.bijective for transform in prior.transforms):
        return None
    value = torch.tensor(end, dtype=torch.float64)
    for transform in prior.transforms:
        value = torch.as_tensor(transform(value))
    return value.item()


def median(prior: Distribution) -> float:
    """The median, or the mean where torch does not know it."""
    try:
        return float(prior.icdf(torch.tensor(0.5)))
    except NotImplementedError:
        return float(prior.mean)


def beyond(prior: Distribution, low: float | None, high: float | None) -> float:
    """Probability outside of bounds that the support reaches beyond; 1 where torch does not know it."""
    least, most = support(prior)
    try:
        under = 0.0 if low is None or (least is not None and least >= low) else float(prior.cdf(torch.tensor(low)))
        over = 0.0 if high is None or (most is not None and most <= high) else 1 - float(prior.cdf(torch.tensor(high)))
    except (NotImplementedError, ValueError):  # a bound outside of the support is no value of the distribution
        return 1.0
    return under + over
