"""Strains: competing hazards have exact shares, cross-immunity and waning are what the matrix says."""

import math
import re

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.disease import CrossImmunity, Waning, compete, independent, sums
from denizen.errors import InputError, ModelError
from denizen.model import Stage
from denizen.relax import MeanField
from denizen.space import Mixing


def rng(num: int, seed: int = 0, **options) -> dz.rng.Rng:
    return dz.rng.Rng(torch.tensor([seed, 0]), torch.tensor(0), num=num, **options)


HAZARDS = (0.5, 0.2, 0.0, 1.1)


@pytest.mark.parametrize("dt", [1.0, 0.25])
def test_competing_hazards_have_exact_shares(dt):
    """Nothing with exp(-h dt), strain k with the share h_k / h of the rest: chi-square of 100,000 agents."""
    num = 100_000
    out = compete(rng(num, dt=dt), "catch", torch.tensor(HAZARDS).expand(num, -1))
    assert out.dtype == torch.int8
    assert int(out.sum(dim=1).max()) == 1
    total = sum(HAZARDS)
    caught = -math.expm1(-total * dt)
    counts = [*out.sum(dim=0).tolist(), int((out.sum(dim=1) == 0).sum())]
    expected = [num * caught * h / total for h in HAZARDS] + [num * (1 - caught)]
    assert counts[2] == 0  # no hazard, no case
    chi = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True) if e)
    assert chi < 21  # 3 degrees of freedom: one in 10,000


def test_the_order_of_strains_does_not_matter():
    """Strain by strain the counts agree within 4 standard deviations when the columns change places."""
    num = 100_000
    hazards = torch.tensor(HAZARDS).expand(num, -1)
    one = compete(rng(num), "catch", hazards).sum(dim=0).double()
    two = compete(rng(num, 1), "catch", hazards.flip(1)).sum(dim=0).double().flip(0)
    assert ((one - two).abs() <= 4 * (one + two).sqrt()).all()


def test_where_and_shares_of_relaxed_runs():
    num = 1_000
    where = (torch.arange(num) % 2).to(torch.int8)
    hazards = torch.tensor(HAZARDS).expand(num, -1)
    out = compete(rng(num), "catch", hazards, where=where)
    assert int(out[where == 0].sum()) == 0 < int(out.sum())
    shares = compete(rng(num, relax=MeanField()), "catch", hazards)[0]
    total = sum(HAZARDS)
    assert shares.tolist() == pytest.approx([-math.expm1(-total) * h / total for h in HAZARDS])


def test_independent_things_happen_together():
    num = 100_000
    out = independent(rng(num), "catch", torch.tensor([0.5, 1.0]).expand(num, -1)).double()
    a, b = -math.expm1(-0.5), -math.expm1(-1.0)
    assert out.mean(dim=0).tolist() == pytest.approx([a, b], abs=0.01)
    assert float((out[:, 0] * out[:, 1]).mean()) == pytest.approx(a * b, abs=0.01)


def test_cross_immunity_multiplies_what_past_infections_let_through():
    shared = CrossImmunity([[0.9, 0.5, 0.0], [0.2, 1.0, 0.25], [0.0, 0.0, 1.0]])
    had = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.int8)
    wanted = [[1, 1, 1], [0.1, 0.5, 1], [0.08, 0, 0.75], [1, 1, 0]]
    assert shared.factor(had).tolist() == [pytest.approx(row) for row in wanted]


class People(dz.State):
    ill: Tensor = dz.mask("agents", "strains")
    had: Tensor = dz.mask("agents", "strains")


class Two(dz.Model):
    """Two strains in a well-mixed population; nobody has both at once, who had one is immune as the matrix says."""

    time_unit = "day"

    contacts: Mixing
    rate: Tensor = dz.param([0.5, 0.5], low=0.0)
    protection: Tensor = dz.param([[1.0, 0.5], [0.5, 1.0]], low=0.0, high=1.0)

    def init(self, rng: dz.rng.Rng) -> People:
        ill = compete(rng, "seed", 0.05 * torch.ones(self.num_agents, 2, device=self.rate.device))
        return People(ill=ill, had=1 * ill)

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        well = 1 - now.ill.sum(dim=1)
        pressure = sums(self.contacts, now.ill, needed=well) * self.rate
        hazards = pressure * CrossImmunity(self.protection).factor(now.had)
        caught = well[:, None] * compete(rng, "catch", hazards, where=well)
        healed = now.ill * independent(rng, "heal", 0.2 * now.ill, where=now.ill)
        rng.record("caught", caught)
        return now.replace(ill=now.ill + caught - healed, had=now.had + caught * (1 - now.had))

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        return events["caught"].sum(dim=0)


MODEL = Two(Mixing([0] * 120, 1.0))


def test_worlds_resume_and_order():
    """Replicate i is worlds=[i]; a run goes on bit for bit; another order of agents is the same world."""
    whole = dz.simulate(MODEL, 12, replicates=3, compile=False)
    alone = dz.simulate(MODEL, 5, worlds=[2], compile=False).extend(7)
    assert torch.equal(whole["cases"][2], alone["cases"][0])
    order = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    moved = dz.simulate(MODEL, 12, replicates=3, ids=order, compile=False)
    assert torch.equal(moved["cases"], whole["cases"])
    assert torch.equal(moved.state.had, whole.state.had[:, order])


@pytest.mark.slow
def test_check_holds():
    report = dz.check(MODEL)
    assert report.ok, report
    assert "gradients reach rate, protection" in str(report)


@pytest.mark.parametrize("phases", [1, 3])
def test_immunity_wanes_by_its_law(phases):
    """Mean and variance of the time until it is over: mean, and mean² / phases - mean dt."""
    waning = Waning(12.0, phases)
    levels = ("susceptible", *waning.levels("immune"), "over")

    class One(dz.State):
        stage: Stage = dz.stage("agents", levels=levels)

    class Immune(dz.Model):
        num_agents: int = 20_000

        def init(self, rng: dz.rng.Rng) -> One:
            return One(stage=Stage(torch.ones(self.num_agents, dtype=torch.int8), levels))

        def step(self, now: One, rng: dz.rng.Rng) -> One:
            return now.replace(stage=waning.wane(rng, now, now.stage, "immune", "susceptible"))

        @dz.series
        def immune(self, now: One) -> Tensor:
            return now.stage.is_(*waning.levels("immune")).sum()

    left = dz.simulate(Immune(), 150, compile=False, dt=0.5)["immune"][0].double() / 20_000
    times = torch.arange(1, 151) * 0.5
    gone = -torch.diff(left, prepend=torch.ones(1))
    mean = (gone * times).sum() / gone.sum()
    variance = (gone * (times - mean) ** 2).sum() / gone.sum()
    wanted = 144 / phases - 12 * 0.5
    assert left[-1] < 0.01
    assert float(mean) == pytest.approx(12.0, abs=0.5)
    assert float(variance) == pytest.approx(wanted, rel=0.12)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: CrossImmunity([[1.0, 1.5], [0.0, 1.0]]), "CrossImmunity: matrix[0][1]=1.5, expected a number from 0"),
        (lambda: CrossImmunity([[1.0, 0.5]]), "has shape (1, 2), expected a square one"),
        (lambda: CrossImmunity("all"), "CrossImmunity: matrix='all', expected rows of numbers"),
        (lambda: Waning(2.0, 4).fits(1.0), "mean=2 is shorter than 4 phases of a step each (4)"),
    ],
)
def test_wrong_input_is_refused(make, told):
    with pytest.raises(InputError, match=re.escape(told)):
        make()


def test_phases_that_lie_apart_are_told():
    stage = Stage(torch.zeros(3, dtype=torch.int8), ("immune", "well", "immune 2"))
    now = type("Now", (), {"time": type("Time", (), {"dt": 1.0})})
    with pytest.raises(ModelError, match="the phases of 'immune' lie apart in immune, well, immune 2"):
        Waning(9.0, 2).wane(rng(3), now, stage, "immune", "well")
