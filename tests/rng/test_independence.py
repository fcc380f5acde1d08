"""Independence of the draws across streams, steps, seeds, worlds and neighbouring agents.

Every family of tests is judged at a significance of 1e-3 after Bonferroni's correction for its size. Seeds are fixed:
nothing here fails by chance.
"""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from denizen.rng import Rng

NUM, FAMILY = 8_000, 1e-3


def uniform(seed: int = 1, world: int = 0, step: int = 0, name: str = "x", num: int = NUM) -> np.ndarray:
    return Rng(torch.tensor([seed, world]), torch.tensor(step), num=num).uniform(name).double().numpy()


def words(seed: int = 1, world: int = 0, step: int = 0, name: str = "x", num: int = NUM) -> np.ndarray:
    return Rng(torch.tensor([seed, world]), torch.tensor(step), num=num)._words(name).numpy()


VARIED: dict[str, Callable[[int], np.ndarray]] = {
    "streams": lambda k: uniform(name=f"stream{k}"),
    "scoped streams": lambda k: uniform(name=f"layer/{k}/x"),
    "steps": lambda k: uniform(step=k),
    "seeds": lambda k: uniform(seed=k),
    "seeds of one bit": lambda k: uniform(seed=1 << k),
    "worlds": lambda k: uniform(world=k),
    "seed and world": lambda k: uniform(seed=k, world=31 - k),
    "step and world": lambda k: uniform(step=k, world=k),
}


@pytest.mark.parametrize("varied", VARIED)
def test_pairs_are_uncorrelated(varied: str) -> None:
    """276 pairs of 24 sequences: largest correlation, of values and of ranks shifted by up to one block of agents."""
    sequences = np.stack([VARIED[varied](k) for k in range(24)])
    assert len({row.tobytes() for row in sequences}) == 24
    upper = np.triu_indices(24, 1)
    for shift in range(5):
        matrix = np.corrcoef(sequences, np.roll(sequences, shift, axis=1))[:24, 24:]
        z = matrix[upper] * np.sqrt(NUM)
        assert np.abs(z).max() < stats.norm.isf(FAMILY / 2 / (5 * z.size))


@pytest.mark.parametrize("varied", ["streams", "steps", "worlds", "seeds"])
def test_pairs_are_jointly_uniform(varied: str) -> None:
    """120 pairs of 16 sequences on a grid of 16 x 16: chi-square of each, and the p-values together."""
    sequences = np.stack([(VARIED[varied](k) * 16).astype(int) for k in range(16)])
    p = []
    for a, b in itertools.combinations(range(16), 2):
        counts = np.bincount(sequences[a] * 16 + sequences[b], minlength=256)
        p.append(stats.chisquare(counts).pvalue)
    assert min(p) > FAMILY / len(p)
    assert stats.kstest(p, "uniform").pvalue > FAMILY


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 8, 64])
def test_neighbouring_agents(lag: int) -> None:
    """Serial correlation and a serial chi-square over agents, within and across the blocks of four."""
    long = uniform(num=400_000)
    z = np.corrcoef(long[:-lag], long[lag:])[0, 1] * np.sqrt(long.size - lag)
    assert abs(z) < stats.norm.isf(FAMILY / 2 / 7)
    cells = (long * 20).astype(int)
    pairs = cells[:-lag] * 20 + cells[lag:]
    disjoint = pairs[(np.arange(pairs.size) // lag) % 2 == 0]  # pairs that share no agent
    assert stats.chisquare(np.bincount(disjoint, minlength=400)).pvalue > FAMILY / 7


def test_the_four_words_of_a_block() -> None:
    lanes = words(num=400_000).reshape(-1, 4) >> 28
    for a, b in itertools.combinations(range(4), 2):
        counts = np.bincount(lanes[:, a] * 16 + lanes[:, b], minlength=256)
        assert stats.chisquare(counts).pvalue > FAMILY / 6


def test_every_bit_is_fair_and_independent_of_the_others() -> None:
    bits = (words(num=80_000)[:, None] >> np.arange(32)) & 1
    n = bits.shape[0]
    z = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(n)
    assert np.abs(z).max() < stats.norm.isf(FAMILY / 2 / 32)
    pairs = np.corrcoef(bits.T)[np.triu_indices(32, 1)] * np.sqrt(n)
    assert np.abs(pairs).max() < stats.norm.isf(FAMILY / 2 / pairs.size)


@pytest.mark.parametrize("along", ["agents", "steps", "worlds", "seeds"])
def test_runs_of_bits(along: str) -> None:
    """Wald-Wolfowitz: number of runs in the sequence of each of 32 bits, along agents, steps, worlds and seeds."""
    count = 4000
    if along == "agents":
        sequence = words(num=count)
    else:
        sequence = np.array([words(num=1, **{along.removesuffix("s"): k})[0] for k in range(count)])
    bits = (sequence[:, None] >> np.arange(32)) & 1
    ones = bits.sum(axis=0)
    zeros = count - ones
    runs = 1 + (np.diff(bits, axis=0) != 0).sum(axis=0)
    mean = 1 + 2 * ones * zeros / count
    variance = (mean - 1) * (mean - 2) / (count - 1)
    assert np.abs((runs - mean) / np.sqrt(variance)).max() < stats.norm.isf(FAMILY / 2 / 32)


def test_avalanche() -> None:
    """Changing one bit of the seed, world, step or id's block changes half the bits of the word."""
    base = words(num=1)[0]
    flips = []
    for bit in range(20):
        flips += [
            words(seed=1 ^ (1 << bit), num=1)[0],
            words(world=1 << bit, num=1)[0],
            words(step=1 << bit, num=1)[0],
            words(num=4 * (1 << min(bit, 16)) + 1)[-1],
        ]
    distance = np.array([int(base ^ word).bit_count() for word in set(flips)])
    assert abs(distance.mean() - 16) < 4 * np.sqrt(8 / distance.size)
    assert distance.min() >= 4


@pytest.mark.parametrize(
    "pair", [("event", "event"), ("event", "bernoulli"), ("normal", "poisson"), ("gamma", "gamma")]
)
def test_two_draws_of_one_agent_are_independent(pair: tuple[str, str]) -> None:
    args = {"event": (0.5,), "bernoulli": (0.3,), "normal": (), "poisson": (3.0,), "gamma": (0.7,)}
    z = []
    for step in range(30):
        rng = Rng(torch.tensor([8, 8]), torch.tensor(step), num=NUM)
        a, b = (getattr(rng, name)(f"{k}{name}", *args[name]).double().numpy() for k, name in enumerate(pair))
        z.append(stats.spearmanr(a, b).statistic * np.sqrt(NUM))
    assert np.abs(z).max() < stats.norm.isf(FAMILY / 2 / len(z))
    assert stats.kstest(z, "norm").pvalue > FAMILY


def test_sums_over_agents_have_the_binomial_spread() -> None:
    """Over-dispersed counts would betray agents that move together: chi-square of 500 steps' counts."""
    counts = np.array(
        [
            Rng(torch.tensor([3, 0]), torch.tensor(step), num=1000).bernoulli("x", 0.2).sum().item()
            for step in range(500)
        ]
    )
    statistic = ((counts - 200) ** 2 / 160).sum()
    p = stats.chi2.cdf(statistic, 500)
    assert FAMILY / 2 < p < 1 - FAMILY / 2
