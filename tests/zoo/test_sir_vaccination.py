"""SIR with a vaccine: critical coverage and attack rates by either mechanism are those of theory."""

import math

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.relax import MeanField
from denizen.space import Mixing
from denizen.zoo.sir_vaccination import sir_vaccination

KINDS = ["leaky", "all_or_nothing"]
R0, DAYS, CONTACTS = 3.0, 5.0, 10.0
RATES = {"infect_rate": R0 / DAYS / CONTACTS, "infectious_days": DAYS}


def town(num: int) -> Mixing:
    return Mixing([0] * num, CONTACTS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_critical_coverage_is_exact(kind):
    """The mean of a small epidemic grows by 1 + (R0 (1 - c E) - 1) / 5 a day: not at all at c = (1 - 1/R0) / E."""
    efficacy = 0.8
    critical = (1 - 1 / R0) / efficacy
    coverages = [0.0, critical - 0.1, critical, critical + 0.1]
    model = sir_vaccination(town(4), kind=kind, daily_share=0, seed_share=1e-7, efficacy=efficacy, **RATES)
    run = dz.simulate(model, 20, replicates=4, params={"coverage": coverages}, relax=MeanField(), compile=False)
    grown = (run["infected"][:, -1] / run["infected"][:, 0]).tolist()
    wanted = [(1 + (R0 * (1 - c * efficacy) - 1) / DAYS) ** 19 for c in coverages]
    assert grown == pytest.approx(wanted, rel=2e-4)
    assert wanted[2] == pytest.approx(1)


def final_size(kind: str, efficacy: float, coverage: float, seed: float) -> float:
    total = 1.0
    for _ in range(300):
        hit, partly = 1 - math.exp(-R0 * total), 1 - math.exp(-(1 - efficacy) * R0 * total)
        vaccinated = (1 - efficacy) * hit if kind == "all_or_nothing" else partly
        total = seed + (1 - seed) * ((1 - coverage) * hit + coverage * vaccinated)
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_attack_rates(kind):
    """Within 4 standard errors of 8 epidemics; the other mechanism is further away."""
    model = sir_vaccination(town(3_000), kind=kind, daily_share=0, seed_share=0.03, efficacy=0.6, coverage=0.6, **RATES)
    run = dz.simulate(model, 80, replicates=8, seed=1, compile=False)
    attack = (run["recovered"][:, -1] + run["infected"][:, -1]).double() / 3_000
    error = float(attack.std()) / 8**0.5
    one, other = (final_size(k, 0.6, 0.6, 0.03) for k in (kind, *(k for k in KINDS if k != kind)))
    assert abs(float(attack.mean()) - one) < 4 * error < abs(float(attack.mean()) - other)
    doses = run["vaccinated"][:, -1].double() / 3_000
    assert float(doses.mean()) == pytest.approx(0.6, abs=4 * (0.24 / 24_000) ** 0.5)


def test_the_campaign_gives_its_doses():
    model = sir_vaccination(town(500), daily_share=0.02, first_day=3.5, waning_days=6, waning_phases=2, **RATES)
    run = dz.simulate(model, 20, dt=0.5, replicates=2, compile=False)
    assert torch.equal(run["vaccinated"][0], (5 * (torch.arange(1, 21) - 7)).clamp(min=0))
    assert int(run["breakthroughs"].sum()) <= int(run["cases"].sum())


def test_wrong_values_are_refused():
    for changes, told in (
        ({"kind": "leeky"}, "did you mean 'leaky'"),
        ({"efficacy": 1.5}, "expected 0 to 1"),
        ({"daily_share": -0.1}, "daily_share=-0.1"),
        ({"eficacy": 0.5}, "did you mean 'efficacy'"),
    ):
        with pytest.raises(InputError, match=told):
            sir_vaccination(town(9), **changes)
    with pytest.raises(InputError, match="Vaccine: waning: mean=2 is shorter than 4 phases"):
        dz.simulate(sir_vaccination(town(9), waning_days=2, waning_phases=4), 1)
