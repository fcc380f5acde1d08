"""Tests and isolation: errors and delays have their laws, contacts are what is left of them."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.disease import Isolation, Waning
from denizen.errors import InputError, ModelError
from denizen.relax import MeanField
from denizen.space import Graph, Layers, Mixing

Swab = dz.disease.Test


class Swabbed(dz.State):
    ill: Tensor = dz.mask("agents")
    pending: Tensor = dz.count("agents")


class Screening(dz.Model):
    """Everybody who awaits no result is tested in every step of the first day; a share is ill and stays so."""

    num_agents: int = 40_000
    swab: Any = Swab(0.8, 0.95)
    days: int = 1
    time_unit = "day"

    def init(self, rng: dz.rng.Rng) -> Swabbed:
        ill = (torch.arange(self.num_agents) % 4 == 0).to(torch.int8)
        return Swabbed(ill=ill, pending=0 * ill)

    def step(self, now: Swabbed, rng: dz.rng.Rng) -> Swabbed:
        asked = torch.ones_like(now.ill) * (now.time.step * now.time.dt < self.days)
        results = self.swab.step(rng, now, now.pending, asked, now.ill)
        for name in ("taken", "positive", "negative"):
            rng.record(name, getattr(results, name))
        return now.replace(pending=results.pending)

    @dz.series
    def told(self, now: Swabbed, events: dz.rng.Events) -> Tensor:
        """Samples, right and wrong positives, right and wrong negatives."""
        ill, yes, no = now.ill, events["positive"], events["negative"]
        return torch.stack(
            [part.sum() for part in (events["taken"], yes * ill, yes * (1 - ill), no * (1 - ill), no * ill)]
        )


def told(swab: Any, steps: int, dt: float = 1.0, **options: Any) -> Tensor:
    return dz.simulate(Screening(swab=swab, **options), steps, dt=dt, compile=False)["told"][0]


def test_positives_and_false_ones_are_binomial():
    """Of 10,000 ill and 30,000 well, within 4 standard deviations of the binomial law."""
    taken, hits, alarms, right, missed = told(Swab(0.8, 0.95), 1)[0].tolist()
    assert (taken, hits + missed, alarms + right) == (40_000, 10_000, 30_000)
    assert abs(hits - 8_000) < 4 * math.sqrt(10_000 * 0.8 * 0.2)
    assert abs(alarms - 1_500) < 4 * math.sqrt(30_000 * 0.95 * 0.05)


def test_a_perfect_test_never_errs():
    assert told(Swab(1.0), 1)[0].tolist() == [40_000, 10_000, 0, 30_000, 0]


@pytest.mark.parametrize(
    ("delay", "dt", "steps"), [(3, 1.0, 3), (2.5, 1.0, 3), (1.5, 0.5, 3), (0.3, 0.1, 3), (0, 1.0, 0)]
)
def test_results_come_after_a_fixed_delay(delay, dt, steps):
    """Rounded up to steps; nobody is tested again while a result is awaited."""
    rows = told(Swab(0.8, 0.95, delay=delay), 8, dt, num_agents=400)
    answers = rows[:, 1:].sum(dim=1)
    asked = min(math.ceil(1 / dt - 1e-9), 8)
    again = [k for k in range(asked) if k % max(steps, 1) == 0]
    assert rows[:, 0].nonzero().flatten().tolist() == again
    assert answers.nonzero().flatten().tolist() == [k + steps for k in again if k + steps < 8]
    assert set(answers[answers > 0].tolist()) == {400}


@pytest.mark.parametrize("phases", [1, 3])
def test_random_delays_have_the_law_of_their_phases(phases):
    """Mean 6 days, variance 36 / phases - 6 dt, at least a step for each phase."""
    rows = told(Swab(0.8, 0.95, delay=Waning(6.0, phases)), 90, num_agents=20_000)
    answers = rows[:, 1:].sum(dim=1).double()
    days = torch.arange(90).double()
    mean = (answers * days).sum() / answers.sum()
    variance = (answers * (days - mean) ** 2).sum() / answers.sum()
    assert int(answers.sum()) == 20_000
    assert int(answers[:phases].sum()) == 0
    assert float(mean) == pytest.approx(6.0, abs=0.16)
    assert float(variance) == pytest.approx(36 / phases - 6, rel=0.08)


@pytest.mark.parametrize("mean", [2.0, torch.tensor(2.0)])
def test_a_random_delay_shorter_than_its_phases_is_no_longer_one(mean):
    """Three phases of a day would be three days and not two, in models that check nothing in `fits`."""
    swab = Swab(0.8, 0.95, delay=Waning(mean, 3))
    with pytest.raises((InputError, ModelError), match=r"Test: delay: (its )?mean.* shorter than (3|its) phases"):
        told(swab, 3, num_agents=9)
    assert told(swab, 3, 0.5, num_agents=9).any()


@pytest.mark.parametrize("kind", [dz.mask, dz.model.alive])
def test_the_dead_are_neither_tested_nor_told(kind):
    name = {dz.mask: "alive", dz.model.alive: "lives"}[kind]  # a field of kind alive may be called anything
    Mortal: Any = type("Mortal", (Swabbed,), {name: kind("agents"), "__annotations__": {name: Tensor}})

    class Deadly(Screening):
        def init(self, rng: dz.rng.Rng) -> Mortal:
            begun = super().init(rng)
            return Mortal(ill=begun.ill, pending=begun.pending, **{name: begun.ill * 0 + 1})

        def step(self, now: Any, rng: dz.rng.Rng) -> Any:
            late = (now.time.step >= 1).to(torch.int8)
            return super().step(now, rng).replace(**{name: getattr(now, name) * (1 - late * now.ill)})

    rows = dz.simulate(Deadly(num_agents=400, swab=Swab(1.0, delay=2), days=9), 6, compile=False)["told"][0]
    assert rows[:, 0].tolist() == [400, 0, 300, 0, 300, 0]  # 100 are dead when their results are due
    assert rows[:, 1].tolist() == [0] * 6
    assert rows[:, 3].tolist() == [0, 0, 300, 0, 300, 0]


def test_worlds_and_chunks():
    model = Screening(num_agents=90, swab=Swab(0.8, 0.9, delay=Waning(3.0, 2)), days=20)
    whole = dz.simulate(model, 12, replicates=3, compile=False)
    alone = dz.simulate(model, 5, worlds=[2], compile=False).extend(7)
    assert torch.equal(whole["told"][2], alone["told"][0])


@pytest.mark.slow
def test_check_holds():
    model = Screening(num_agents=90, swab=Swab(0.8, 0.9, delay=Waning(3.0, 2)), days=20)
    report = dz.check(model)
    assert report.ok, report


# --- isolation --------------------------------------------------------------------------------------------------------

N = 60
LAYERS = Layers(
    {
        n: Graph.from_edges(*np.random.default_rng(k).integers(0, N, (2, 300)), N)
        for k, n in enumerate(("home", "work"))
    },
    strength={"work": 0.5},
)


def test_isolation_lowers_contacts_at_both_ends():
    """Against a dense matrix: each contact times the factor of each isolated end."""
    draw = torch.Generator().manual_seed(0)
    ill, shut = ((torch.rand(N, generator=draw) < 0.4).to(torch.int8) for _ in range(2))
    for factors in ({"home": 0.7, "work": 0.0}, {"work": 0.25}):
        out = Isolation(**factors).sum(LAYERS, ill, shut)
        wanted = torch.zeros(N)
        for name, strength in (("home", 1.0), ("work", 0.5)):
            kept = 1 - shut.float() * (1 - factors.get(name, 1.0))
            dense = torch.stack([LAYERS[name].sum((torch.arange(N) == k).to(torch.int8)).float() for k in range(N)], 1)
            wanted += strength * kept * (dense @ (ill.float() * kept))
        assert torch.allclose(out, wanted, atol=1e-5)
        needed = (torch.arange(N) % 2).to(torch.int8)
        some = Isolation(**factors).sum(LAYERS, ill, shut, needed=needed)
        assert torch.equal(some[needed != 0], out[needed != 0])
    assert torch.equal(Isolation(home=0.5).sum(LAYERS, ill, 0 * shut), LAYERS.sum(ill))


def test_isolation_and_tests_flow_through_relaxed_runs_or_say_so():
    mixed = Layers({"all": Mixing([0] * N, 4.0)})
    shut = torch.full((N,), 0.5, requires_grad=True)
    Isolation(all=0.0).sum(mixed, torch.ones(N), shut).sum().backward()
    assert bool((shut.grad < 0).all())
    with pytest.raises(ModelError, match="pending holds real numbers, and who waits for what is not differentiable"):
        dz.simulate(Screening(num_agents=30), 1, relax=MeanField())


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Swab(1.1), "Test: sensitivity=1.1, expected a number from 0 to 1"),
        (lambda: Swab(0.9, -0.2), "Test: specificity=-0.2, expected a number from 0 to 1"),
        (lambda: Swab(0.9, 0.9, -1), "Test: delay=-1, expected a number, at least 0, or Waning(mean, phases)"),
        (lambda: Swab(0.9, 0.9, "2 days"), "Test: delay='2 days'"),
        (lambda: Swab(0.9, delay=Waning(1.0, 3)).fits(1.0), "Test: delay: mean=1 is shorter than 3 phases"),
        (lambda: Isolation(), "Isolation: no layer given"),
        (lambda: Isolation(home=1.5), "Isolation: home=1.5, expected a number from 0 to 1"),
        (
            lambda: Isolation(works=0.5).sum(LAYERS, torch.ones(N), torch.ones(N)),
            "unknown layer 'works'; did you mean 'work'?",
        ),
    ],
)
def test_wrong_input_is_refused(make, told):
    with pytest.raises(InputError, match=re.escape(told)):
        make()


def test_what_does_not_fit_is_told():
    with pytest.raises(ModelError, match="contacts is Graph, expected Layers with home"):
        Isolation(home=0.5).sum(LAYERS["home"], torch.ones(N), torch.ones(N))
