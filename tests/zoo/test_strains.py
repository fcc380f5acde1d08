"""Two strains: the endemic state of one, and the threshold of protection below which both stay."""

import math

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.space import Mixing
from denizen.zoo.strains import strains

# Of the defaults, in a well-mixed town with 10 contacts: infections a day, recoveries and losses of immunity a step.
BETA, HEAL, WANE = (0.5, 0.35), 1 / 7, 1 - math.exp(-1 / 60)


def endemic() -> tuple[float, float, float]:
    """Shares of well, ill and immune with the first strain alone: infections, recoveries and losses are equal."""
    low, high = 1e-6, 1 / (1 + HEAL / WANE)
    for _ in range(100):
        ill = (low + high) / 2
        gained = (1 - ill * (1 + HEAL / WANE)) * -math.expm1(-BETA[0] * ill)
        low, high = (ill, high) if gained > HEAL * ill else (low, ill)
    return 1 - ill * (1 + HEAL / WANE), ill, ill * HEAL / WANE


def invasion(protection: float) -> float:
    """By what the second strain grows in a step where the first is endemic and shares the well with it."""
    well, ill, immune = endemic()
    hazard = BETA[0] * ill
    return 1 - HEAL + BETA[1] * (well * -math.expm1(-hazard) / hazard + (1 - protection) * immune)


def threshold() -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if invasion(middle) > 1 else (low, middle)
    return low


def town(num: int, **options) -> dz.Model:
    return strains(Mixing([0] * num, 10.0), **options)


def tables(*protections: float) -> dict[str, torch.Tensor]:
    return {"protection": torch.tensor([[c, c] for c in protections])}


def test_the_threshold_is_within_reach():
    assert threshold() == pytest.approx(0.807312, abs=1e-5)
    assert invasion(1.0) < 1 < invasion(0.4)


def test_below_the_threshold_both_stay_above_it_one_goes():
    """Of 3 towns on either side; where the second strain has gone, the first is at its endemic level."""
    low, high = threshold() - 0.4, 1.0
    run = dz.simulate(
        town(2_000, arrival_day=40), 260, replicates=6, params=tables(*[low] * 3, *[high] * 3), compile=False
    )
    first, second = run["first"].double() / 2_000, run["second"]
    assert int(second[:, :39].sum()) == 0
    assert bool((second[:3, -1] > 20).all())
    assert bool((second[3:, -1] == 0).all())
    assert float(first[3:, 140:].mean()) == pytest.approx(endemic()[1], rel=0.06)
    assert bool((first[:3, -1] > 0.01).all())


@pytest.mark.slow
@pytest.mark.parametrize("away", [-0.1, 0.15])
def test_a_rare_strain_grows_as_theory_says(away):
    """From day 8 to day 24 after its arrival, by the mean of 12 towns; the immune alone would give another rate."""
    protection = threshold() + away
    model = town(10_000, arrival_day=200, seed_share=[0.01, 0.006])
    run = dz.simulate(model, 226, replicates=12, params=tables(*[protection] * 12), compile=False)
    mean = run["second"].double().mean(dim=0)
    grown = float((mean[224] / mean[208]).log()) / 16
    assert grown == pytest.approx(math.log(invasion(protection)), abs=0.008)


def test_equal_strains_share_the_cases():
    """Arriving together with the same rates, both have half: exact symmetry of competing hazards."""
    model = town(1_500, infect_rate=[0.06, 0.06], arrival_day=0, seed_share=[0.05, 0.05])
    run = dz.simulate(model, 40, replicates=8, compile=False)
    ratio = (run["second"].double().sum(dim=1) / (run["first"] + run["second"]).double().sum(dim=1)).mean()
    assert 0.4 < float(ratio) < 0.56  # the second comes a step later


def test_wrong_values_are_refused():
    for changes, told in (
        ({"protection": [1.2, 0.0]}, "expected 0 to 1"),
        ({"protection": 0.5}, "expected shape"),
        ({"infect_rate": [0.1]}, "expected shape"),
        ({"arrival_day": -3}, "arrival_day=-3, expected a number, at least 0"),
        ({"protecton": 0.5}, "did you mean 'protection'"),
    ):
        with pytest.raises(InputError, match=told):
            town(9, **changes)
