"""Boltzmann's wealth: coins are kept, and distributed as every way of distributing them being as likely says."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.wealth import wealth

AGENTS, MEAN, STEPS = 400, 5, 600
SETTLED = 300  # steps; a purse wanders by a coin a step, over a few times the mean
ENTROPY = math.log(1 + MEAN) + MEAN * math.log(1 + 1 / MEAN)


def ways(agents: int, coins: int) -> float:
    """Logarithm of the number of ways in which agents can have so many coins: C(agents + coins - 1, coins)."""
    return math.lgamma(agents + coins) - math.lgamma(agents) - math.lgamma(coins + 1)


def law(has: int) -> float:
    """Probability that somebody has so many coins, all ways of distributing them being as likely (Bose-Einstein)."""
    coins = AGENTS * MEAN
    return math.exp(ways(AGENTS - 1, coins - has) - ways(AGENTS, coins))


def gini() -> float:
    """Expected coefficient: that of two agents who share any sum in every way, each as likely."""
    coins = AGENTS * MEAN
    apart = 0.0
    for both in range(coins + 1):
        prob = (both + 1) * math.exp(ways(AGENTS - 2, coins - both) - ways(AGENTS, coins))
        apart += prob * sum(abs(2 * one - both) for one in range(both + 1)) / (both + 1) if prob > 1e-12 else 0.0
    return (AGENTS - 1) / AGENTS * apart / (2 * MEAN)


@pytest.fixture(scope="module")
def run() -> Any:
    return dz.simulate(wealth(num_agents=AGENTS, mean_wealth=MEAN), STEPS, replicates=32, seed=1, compile=False)


def test_coins_are_kept_and_disorder_rises(run: Any) -> None:
    assert bool((run["total"] == AGENTS * MEAN).all())
    entropy = run["entropy"].mean(dim=0)
    assert float(run["entropy"][:, 0].max()) < 1.2  # three values after a step
    assert bool((entropy[[0, 3, 10, 30, 100]].diff() > 0).all())
    seen = sum(1 - (1 - law(has)) ** AGENTS for has in range(20 * MEAN))
    expected = ENTROPY - (seen - 1) / (2 * AGENTS)  # of a sample (Miller 1955)
    assert abs(float(entropy[SETTLED:].mean()) - expected) < 0.02


def test_wealth_is_distributed_by_the_exact_law(run: Any) -> None:
    """Shares over worlds that are long in equilibrium; 4 standard deviations of independent agents each."""
    held, drawn = run.state.wealth.flatten(), run.state.wealth.numel()
    for has in range(4 * MEAN):
        expected = law(has)
        share = float((held == has).double().mean())
        assert abs(share - expected) < 4 * math.sqrt(expected / drawn), has
    assert abs(law(0) - 1 / (1 + MEAN)) < 1e-3  # the geometric law, in a large town
    assert abs(float(run["poor"][:, SETTLED:].mean()) - law(0)) < 0.003


def test_inequality_and_temperature(run: Any) -> None:
    by_world = run["gini"][:, SETTLED:].double().mean(dim=1)
    assert abs(float(by_world.mean()) - gini()) < 4 * float(by_world.std()) / math.sqrt(len(by_world))
    assert abs(gini() - (1 + MEAN) / (1 + 2 * MEAN)) < 0.003  # of the geometric law; 1/2 for large purses
    held = run.state.wealth.double()
    shares = [float((held == has).double().mean()) for has in (0, 1, 2, 3)]
    slope = [math.log(a / b) for a, b in pairwise(shares)]
    temperature = 1 / (sum(slope) / len(slope))  # of the exponential fall; ln(1 + 1/m) = 1/T, so T is m + 1/2
    assert abs(temperature - 1 / math.log(1 + 1 / MEAN)) < 0.8


def test_promises(run: Any) -> None:
    model = wealth(num_agents=AGENTS, mean_wealth=MEAN)
    alone = dz.simulate(model, 50, worlds=[7], seed=1, compile=False)
    order = torch.randperm(AGENTS, generator=torch.Generator().manual_seed(0))
    moved = dz.simulate(model, 50, worlds=[7], seed=1, ids=order, compile=False)
    for name in run.series_names:
        assert torch.equal(run[name][7, :50], alone[name][0]), name
        assert torch.equal(moved[name], alone[name]), name
    assert torch.equal(moved.state.wealth[0], alone.state.wealth[0][order])


def test_the_check_is_content_and_wrong_numbers_are_refused() -> None:
    report = dz.check(wealth(num_agents=21))
    assert report.ok, report
    with pytest.raises(InputError, match="mean_wealth=0, expected a whole number from 1 to 10000"):
        wealth(mean_wealth=0)
