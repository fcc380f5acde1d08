"""Functions in the place of models whose posterior has a closed form, for tests of methods that draw from one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor
from torch.distributions import Beta, Distribution, Gamma, Normal

import denizen as dz

WORLDS, VALUES, TRIALS = 60_000, 8, 20
NORMAL = torch.as_tensor(np.random.default_rng(5).normal(size=(WORLDS, VALUES)))
UNIFORM = np.random.default_rng(6).random(size=(WORLDS, VALUES))


def normal_mean(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    """Eight values with sd 1 about an unknown mean."""
    return theta[:, :1] + NORMAL[torch.as_tensor(worlds)]


def poisson_rate(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    """Eight counts: `scipy.stats.poisson.ppf` of uniform numbers, which takes ten times as long."""
    mean = theta[:, :1].numpy()
    count = np.arange(int(mean.max() + 8 * mean.max() ** 0.5 + 15))
    below = np.exp(count * np.log(mean) - mean - special.gammaln(count + 1)).cumsum(1)
    return torch.as_tensor((below[:, None] < UNIFORM[worlds][:, :, None]).sum(-1, dtype=np.float64))


def binomial_share(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    """How many of 20."""
    return torch.as_tensor(stats.binom.ppf(UNIFORM[worlds][:, :1], TRIALS, theta[:, :1].numpy()))


# Function, prior, what it gives at a true value, and the exact posterior.
CONJUGATE: dict[str, tuple[Any, Distribution, Callable, Callable]] = {
    "normal": (
        normal_mean,
        Normal(0.0, 2.0),
        lambda rng, theta: rng.normal(theta, size=VALUES),
        lambda y: stats.norm(y.sum() / (VALUES + 0.25), (VALUES + 0.25) ** -0.5),
    ),
    "gamma-poisson": (
        poisson_rate,
        Gamma(3.0, 0.5),
        lambda rng, theta: rng.poisson(theta, size=VALUES),
        lambda y: stats.gamma(3 + y.sum(), scale=1 / (0.5 + VALUES)),
    ),
    "beta-binomial": (
        binomial_share,
        Beta(2.0, 3.0),
        lambda rng, theta: rng.binomial(TRIALS, theta, size=1),
        lambda y: stats.beta(2 + y[0], 3 + TRIALS - y[0]),
    ),
}


def drawn(which: str, number: int) -> tuple[float, np.ndarray]:
    """A true value from the prior, and an observation."""
    prior, give = CONJUGATE[which][1:3]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        theta = float(prior.sample())
    return theta, give(np.random.default_rng([9, number]), theta)


def fitted(which: str, values: Any, method: Any, seed: int = 0, **options: Any) -> dz.fit.Fit:
    function, prior = CONJUGATE[which][:2]
    targets = {"y": dz.fit.Target(values, scale="identity")}
    given = {"priors": {"theta": prior}, **options}
    return dz.calibrate(function, targets, method=method, seed=seed, progress=False, **given)


def against_exact(which: str, method: Any, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Of `num` observations: errors of the posterior's mean in exact deviations, and ratios of the deviations."""
    errors, ratios = [], []
    for number in range(num):
        _, y = drawn(which, number)
        fit, exact = fitted(which, y, method, seed=number), CONJUGATE[which][3](y)
        samples = fit.samples(2_000)["theta"]
        errors.append((samples.mean() - exact.mean()) / exact.std())
        ratios.append(samples.std() / exact.std())
    return np.array(errors), np.array(ratios)


def ranks(which: str, method: Any, num: int, draws: int) -> np.ndarray:
    """Ranks of true values among draws of their posteriors, 0 … draws: uniform where the posterior is right."""
    found = []
    for number in range(num):
        theta, y = drawn(which, 1_000 + number)
        samples = fitted(which, y, method, seed=number).samples(draws, seed=number)["theta"]
        found.append((samples < theta).sum())
    return np.array(found)


def outside_band(ranks: np.ndarray, draws: int, level: float = 0.999) -> float:
    """Largest distance of the ranks' distribution to the uniform one, over what it stays under at this level."""
    expected = (np.arange(draws + 1) + 1) / (draws + 1)
    seen = (ranks[:, None] <= np.arange(draws + 1)).mean(0)
    return float(np.abs(seen - expected).max() / stats.kstwobign.ppf(level) * np.sqrt(len(ranks)))


def worth(chains: np.ndarray) -> np.ndarray:
    """How many independent draws those of `[chains, draws, P]` are worth, `[P]`: Geyer's initial positive sequence."""
    count, length, _ = chains.shape
    away = chains - chains.mean((0, 1))  # so that chains that lie apart are worth little
    covariance = np.stack([(away[:, lag:] * away[:, : length - lag]).mean((0, 1)) for lag in range(length // 2)])
    pairs = covariance[: len(covariance) // 2 * 2].reshape(-1, 2, chains.shape[2]).sum(1)
    positive = np.cumprod(pairs > 0, axis=0)
    return count * length * covariance[0] / (2 * (pairs * positive).sum(0) - covariance[0])
