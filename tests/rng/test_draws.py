"""What is drawn: numbers frozen for ever, laws against scipy, shapes, errors."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from denizen.rng import Rng, gamma_quantile, poisson_quantile

SIGNIFICANCE = 1e-4  # of each test; seeds are fixed, so that nothing fails by chance


def rng(num: int, seed: int = 42, world: int = 1, step: int = 5, **options: object) -> Rng:
    return Rng(torch.tensor([seed, world]), torch.tensor(step), num=num, **options)  # type: ignore[arg-type]


# --- frozen -----------------------------------------------------------------------------------------------------------

FROZEN = {
    "uniform": ((), [0.5904212, 0.183992088, 0.485638261, 0.413129926, 0.52239269, 0.260157943]),
    "normal": ((), [-1.36268818, 0.698559165, -0.0677921474, 0.0608627684, -0.329168618, -1.42486513]),
    "exponential": ((2.0,), [0.383299768, 0.903850853, 0.331551343, 0.521170437, 0.120836243, 2.0261693]),
    "gamma": ((2.5,), [2.87323141, 8.33862591, 4.54413462, 2.88703251, 3.03258419, 4.13237333]),
    "poisson": ((3.0,), [5, 7, 2, 0, 2, 4]),
    "integers": ((0, 1000), [553, 994, 657, 984, 858, 688]),
    "event": ((0.7,), [0, 1, 0, 1, 0, 1]),
    "bernoulli": ((0.5,), [1, 0, 0, 0, 0, 1]),
    "categorical": ((torch.tensor([0.2, 0.3, 0.5]),), [0, 2, 2, 2, 2, 1]),
}


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_draws(name: str) -> None:
    args, expected = FROZEN[name]
    drawn = getattr(rng(6), name)("x" + name, *args)
    if drawn.dtype == torch.float32:  # special functions may differ in the last bits between versions of torch
        torch.testing.assert_close(drawn, torch.tensor(expected), rtol=5e-7, atol=1e-7)
    else:
        assert drawn.tolist() == expected


def test_frozen_permutation() -> None:
    assert rng(6).permutation("xpermutation").tolist() == [4, 2, 0, 1, 5, 3]


# --- laws -------------------------------------------------------------------------------------------------------------

NUM = 100_000
SHAPES = [0.05, 0.3, 1.0, 2.5, 30.0, 1e4]


@pytest.mark.parametrize(
    ("name", "args", "law"),
    [
        ("uniform", (), stats.uniform()),
        ("uniform", (-3.0, 5.0), stats.uniform(-3, 8)),
        ("normal", (), stats.norm()),
        ("normal", (10.0, 0.1), stats.norm(10, 0.1)),
        ("exponential", (), stats.expon()),
        ("exponential", (0.25,), stats.expon(scale=4)),
        *[("gamma", (shape, 2.0), stats.gamma(shape, scale=2.0)) for shape in SHAPES],
    ],
)
def test_continuous_laws(name: str, args: tuple[float, ...], law: object) -> None:
    drawn = getattr(rng(NUM), name)(name, *args)
    assert drawn.dtype == torch.float32
    assert stats.kstest(drawn.double().numpy(), law.cdf).pvalue > SIGNIFICANCE  # type: ignore[attr-defined]


def chi_square(drawn: torch.Tensor, probs: np.ndarray) -> float:
    """p-value of counts of 0, 1, … against probabilities; the last class takes the rest, small classes are merged."""
    counts = np.bincount(drawn.numpy(), minlength=probs.size)[: probs.size].astype(float)
    counts[-1] = drawn.numel() - counts[:-1].sum()
    expected = probs * drawn.numel()
    big = expected >= 10
    observed, wanted = np.append(counts[big], counts[~big].sum()), np.append(expected[big], expected[~big].sum())
    keep = wanted > 0
    if keep.sum() == 1:
        return float(observed[keep].sum() == drawn.numel())
    return stats.chisquare(observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()).pvalue


@pytest.mark.parametrize("mean", [0.01, 0.7, 3.0, 20.0, 400.0])
def test_poisson_law(mean: float) -> None:
    drawn = rng(NUM).poisson("x", mean)
    assert drawn.dtype == torch.int64
    ks = np.arange(int(mean + 12 * math.sqrt(mean) + 20))
    assert chi_square(drawn, np.append(stats.poisson.pmf(ks, mean), stats.poisson.sf(ks[-1], mean))) > SIGNIFICANCE


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-5, 2), (0, 1000), (2**40, 2**40 + 7)])
def test_integers_law(low: int, high: int) -> None:
    drawn = rng(NUM).integers("x", low, high)
    assert int(drawn.min()) >= low
    assert int(drawn.max()) < high
    assert chi_square(drawn - low, np.full(high - low, 1 / (high - low))) > SIGNIFICANCE


@pytest.mark.parametrize("probs", [[1.0], [0.5, 0.5], [0.0, 0.2, 0.0, 0.3, 0.5, 0.0], [3.0, 1.0, 6.0]])
@pytest.mark.parametrize("each", [False, True])
def test_categorical_law(probs: list[float], each: bool) -> None:
    table = torch.tensor(probs)
    drawn = rng(NUM).categorical("x", table.expand(NUM, -1) if each else table)
    share = np.array(probs) / sum(probs)
    assert set(drawn.unique().tolist()) <= set(np.flatnonzero(share).tolist())
    assert chi_square(drawn, share) > SIGNIFICANCE


def test_categorical_each_agent_its_own() -> None:
    probs = torch.eye(4)[torch.arange(NUM) % 4]
    assert torch.equal(rng(NUM).categorical("x", probs), torch.arange(NUM) % 4)


def test_permutations_are_uniform() -> None:
    """All 24 orders of 4 agents, over 20,000 steps."""
    seen = [tuple(rng(4, step=k).permutation("x").tolist()) for k in range(20_000)]
    orders = sorted(set(seen))
    assert len(orders) == 24
    assert stats.chisquare([seen.count(order) for order in orders]).pvalue > SIGNIFICANCE


def test_permutation_of_many_is_one() -> None:
    assert torch.equal(rng(NUM).permutation("x").sort().values, torch.arange(NUM))


def test_uniform_never_reaches_its_end() -> None:
    """Rounding to float32 must not turn [low, high) into [low, high]."""

    class Last(Rng):
        def _words(self, name: str) -> torch.Tensor:
            return torch.full((3,), 2**32 - 1)

    last = Last(torch.tensor([0, 0]), torch.tensor(0), num=3)
    for low, high in ((0.0, 1.0), (5.0, 6.0), (1000.0, 1001.0), (-1.0, 0.0), (1e6, 1e6 + 1)):
        drawn = last.uniform("x", low, high)
        assert (drawn < high).all()
        assert (drawn >= low).all()
    assert (last.uniform("y", torch.tensor(5.0), torch.tensor([6.0, 7.0, 8.0])) < torch.tensor([6.0, 7.0, 8.0])).all()


@pytest.mark.parametrize("word", [0, 2**32 - 1])
def test_extreme_words_give_finite_numbers(word: int) -> None:
    class Extreme(Rng):
        def _words(self, name: str) -> torch.Tensor:
            return torch.full((1,), word)

    extreme = Extreme(torch.tensor([0, 0]), torch.tensor(0), num=1)
    for name, args in (
        ("normal", ()),
        ("exponential", ()),
        ("gamma", (0.05,)),
        ("gamma", (1e4,)),
        ("poisson", (50.0,)),
    ):
        drawn = getattr(extreme, name)(name + str(args), *args)
        assert torch.isfinite(drawn).all()
        assert name in ("normal",) or drawn.item() >= 0
    assert 0 <= extreme.integers("i", 0, 10).item() < 10
    assert extreme.categorical("c", torch.tensor([0.0, 1.0, 1.0, 0.0])).item() in (1, 2)


# --- quantiles --------------------------------------------------------------------------------------------------------

PROBS = torch.cat(
    [
        2.0 ** -torch.arange(1, 34, dtype=torch.float64),
        1 - 2.0 ** -torch.arange(2, 34, dtype=torch.float64),
        torch.linspace(0.001, 0.999, 333, dtype=torch.float64),
    ]
)


@pytest.mark.parametrize("shape", [0.05, 0.1, 0.3, 0.7, 0.999, 1.0, 1.001, 1.7, 3.0, 10.0, 55.5, 300.0, 2000.0, 1e4])
def test_gamma_quantile(shape: float) -> None:
    ours = gamma_quantile(PROBS, torch.tensor(shape, dtype=torch.float64)).numpy()
    exact = stats.gamma.ppf(PROBS.numpy(), shape)
    float_range = exact > 1e-250  # far below every float32
    np.testing.assert_allclose(ours[float_range], exact[float_range], rtol=1e-8)
    assert (ours[~float_range] < 1e-200).all()


@pytest.mark.parametrize("mean", [0.0, 1e-6, 0.1, 0.5, 1.0, 2.0, 7.7, 30.0, 100.0, 999.9, 20_000.0, 1e6])
def test_poisson_quantile(mean: float) -> None:
    ours = poisson_quantile(PROBS, torch.tensor(mean, dtype=torch.float64)).numpy()
    exact = stats.poisson.ppf(PROBS.numpy(), mean)
    # A probability that is a float64 image of a step of the distribution function may fall on either side of it.
    off = ours != exact
    assert (np.abs(ours - exact) <= 1).all()
    step = stats.poisson.cdf(np.minimum(ours, exact)[off], mean)
    np.testing.assert_allclose(step, PROBS.numpy()[off], rtol=1e-11)
    assert off.mean() < 0.01


def test_quantiles_are_monotone() -> None:
    prob = torch.linspace(1e-9, 1 - 1e-9, 200_001, dtype=torch.float64)
    assert (gamma_quantile(prob, torch.tensor(2.5, dtype=torch.float64)).diff() > 0).all()
    assert (poisson_quantile(prob, torch.tensor(12.0, dtype=torch.float64)).diff() >= 0).all()
