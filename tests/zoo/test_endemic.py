"""Infections that stay: endemic states of SIS and SIRS with births and deaths, and an HIV-like infection over ties."""

import math

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.relax import MeanField
from denizen.space import Mixing
from denizen.zoo.hiv import HIV
from denizen.zoo.sirs import sirs
from denizen.zoo.sis import sis

RATE, DAYS, IMMUNE, TURNOVER = 0.5, 5.0, 20.0, 0.05
R0 = RATE / (1 / DAYS + TURNOVER)
ENDEMIC = {
    sis: 1 - 1 / R0,
    sirs: (1 - 1 / R0) * (TURNOVER + 1 / IMMUNE) / (TURNOVER + 1 / IMMUNE + 1 / DAYS),
}
OPTIONS = {sis: {}, sirs: {"immune_days": IMMUNE}}


def mixed(build, agents: int):
    everybody = Mixing(torch.zeros(agents, dtype=torch.int8), 1.0)
    return build(everybody, infect_rate=RATE, infectious_days=DAYS, turnover=TURNOVER, **OPTIONS[build])


def settled(build, dt: float) -> float:
    """Endemic share infected of the step's own mean field: iterated to its end."""
    s, i, r = 0.9, 0.1, 0.0
    out = lambda rate: 1 - math.exp(-rate * dt)
    for _ in range(20_000):
        caught, healed, died = s * out(RATE * i), i * out(1 / DAYS), out(TURNOVER)
        waned = r * out(1 / IMMUNE)
        i = (i + caught - healed) * (1 - died)
        r = 0.0 if build is sis else (r + healed - waned) * (1 - died)
        s = 1 - i - r
    return i


@pytest.mark.parametrize("build", [sis, sirs])
def test_endemic_states(build):
    """1 - 1/R0 without immunity; with it times (mu + w) / (mu + w + g): mean field, and a population of agents."""
    errors = []
    for dt in (1.0, 0.5):
        run = dz.simulate(mixed(build, 3), int(90 / dt), dt=dt, relax=MeanField(), compile=False)
        got = float(run["infected"][0, -1]) / 3
        assert abs(got - settled(build, dt)) < 1e-4
        errors.append(abs(got - ENDEMIC[build]))
    assert errors[1] < 0.6 * errors[0] < 0.04  # in proportion to dt
    run = dz.simulate(mixed(build, 1000), 120, replicates=6, dt=0.5, seed=1, compile=False)
    levels = run["infected"][:, 40:].double().mean(dim=1) / 1000
    assert abs(float(levels.mean()) - settled(build, 0.5)) < 4 * float(levels.std()) / math.sqrt(6) + 3e-3
    deaths = run["deaths"].double().mean() / 1000
    assert abs(float(deaths) - (1 - math.exp(-TURNOVER / 2))) < 4 * math.sqrt(0.025 / 1000 / 6 / 120)


@pytest.mark.parametrize("build", [sis, sirs])
def test_builders(build):
    with pytest.raises(InputError, match=r"unknown parameter 'turnovr'; did you mean 'turnover'"):
        build(Mixing([0, 0], 1.0), turnovr=0.1)
    graph = dz.space.generators.erdos_renyi(300, 8.0, seed=1)
    assert 0 < dz.simulate(build(graph, infect_rate=0.1), 30, compile=False)["infected"][0, -1] < 300


@pytest.mark.slow
def test_hiv_in_a_mixture():
    """Casual ties so short that nobody is met twice: endemic share 1 - 1/R0, R0 = ties x chance x steps infected."""
    rate, ties, months = 0.1, 0.5 * (1 - math.exp(-1.0)), (15.0, 30.0, 15.0)
    model = HIV(
        num_agents=4000,
        infect_rate=rate,
        acute_factor=1.0,
        late_factor=1.0,
        **dict(zip(("acute_months", "chronic_months", "late_months"), months, strict=True)),
        turnover=0.0,
        steady_rate=0.0,
        casual_rate=1.0,
        casual_months=0.5,
        seed_share=0.3,
        most_casual=9,
    )
    run = dz.simulate(model, 330, replicates=3, seed=1, compile=False)
    steps = sum(1 / (1 - math.exp(-1 / mean)) for mean in months)
    reproduction = ties * (1 - math.exp(-rate)) * steps
    levels = run["infected"][:, 130:].double().mean(dim=1) / 4000
    assert abs(float(levels.mean()) - (1 - 1 / reproduction)) < 0.02, (levels, reproduction)
    flow = run["deaths"][:, 130:].double().mean() / 4000
    assert abs(float(flow) - float(levels.mean()) / steps) < 5e-4  # in a steady state as many die as are infected


def test_hiv_couples():
    """Share with a steady partner: time in ties over time between their ends."""
    model = HIV(num_agents=3000, infect_rate=0.0, turnover=0.0, seed_share=0.0, steady_rate=0.1, steady_months=12.0)
    run = dz.simulate(model, 60, replicates=2, seed=2, compile=False)
    chance, never = 1 - math.exp(-0.1), 1 - 12 * (1 - math.exp(-1 / 12))
    # The series looks as the next step begins, when ties that end with a step are over: one step of each is not seen.
    expected = (12 - (1 - never)) / (1 / chance - 1 + 12 + never)
    got = run["in_steady"][:, 40:].double().mean() / 3000
    assert abs(float(got) - expected) < 4 * math.sqrt(0.25 / 3000 / 2), (got, expected)


def test_hiv_promises():
    model = HIV(num_agents=300, seed_share=0.2, infect_rate=0.05)
    run = dz.simulate(model, 15, replicates=2, seed=3, compile=False)
    alone = dz.simulate(model, 15, worlds=[1], seed=3, compile=False)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(2))
    moved = dz.simulate(model, 15, replicates=2, seed=3, ids=order, compile=False)
    for name in run.series_names:
        assert torch.equal(alone[name], run[name][1:])
        assert torch.equal(moved[name], run[name])
    for wrong in ({"num_agents": 1}, {"most_casual": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            HIV(**wrong)
