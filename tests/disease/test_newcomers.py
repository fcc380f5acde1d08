"""Newcomers' mistakes with products: `dz.check` tells each by its line."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.disease import Campaign, CrossImmunity, Isolation, Vaccine, Waning, compete, sums, years
from denizen.errors import ModelError
from denizen.model import During, Stage
from denizen.space import Layers, Mixing

JAB = Vaccine(0.8, "all_or_nothing", Waning(30.0))
SWAB = dz.disease.Test(0.9, 0.98, delay=2.0)
HERE = Path(__file__)


class People(dz.State):
    ill: Tensor = dz.mask("agents")
    jab: Stage = dz.stage("agents", levels=JAB.levels)
    pending: Tensor = dz.count("agents")
    age: Tensor = dz.count("agents")


class Base(dz.Model):
    time_unit = "day"
    contacts: Mixing
    rate: Tensor = dz.param(0.1, low=0.0)

    def init(self, rng: dz.rng.Rng) -> People:
        ill = rng.bernoulli("seed", 0.2)
        return People(ill=ill, jab=JAB.start(ill), pending=0 * ill, age=0 * ill)


class StrainsAsRows(Base):
    def step(self, now, rng):
        pressure = self.rate * self.contacts.sum(now.ill)
        hazards = torch.stack([pressure, 2 * pressure])
        caught = compete(rng, "catch", hazards, where=1 - now.ill)  # line: a row for each agent
        return now.replace(ill=torch.maximum(now.ill, caught[:, 0]))


class OneNumber(Base):
    def step(self, now, rng):
        had = now.ill  # of one strain alone
        factor = CrossImmunity([[1.0, 0.5], [0.5, 1.0]]).factor(had)  # line: a column for each strain
        return now.replace(ill=(now.ill * factor[:, 0]).to(torch.int8))


class OtherLevels(Base):
    def init(self, rng):
        begun = super().init(rng)
        return begun.replace(jab=Stage(begun.ill, ("no", "yes")))

    def step(self, now, rng):
        hazard = self.rate * JAB.factor(now.jab)  # line: levels of the vaccine
        return now.replace(ill=torch.maximum(now.ill, rng.event("catch", hazard)))


class TwoTests(Base):
    def step(self, now, rng):
        one = SWAB.step(rng, now, now.pending, now.ill, now.ill)
        two = SWAB.step(rng, now, one.pending, 1 - now.ill, now.ill)  # line: a name for the second
        return now.replace(pending=two.pending)


class HalfATest(Base):
    def step(self, now, rng):
        asked = 0.5 * now.ill  # a share, and no draw
        results = SWAB.step(rng, now, now.pending, asked, now.ill)  # line: masks
        return now.replace(pending=results.pending)


class AgeInSteps(Base):
    def step(self, now, rng):
        old = (years(now, now.age) > 60).to(torch.int8)  # line: when they were born
        return now.replace(ill=now.ill * (1 - old), age=now.age + 1)


class OneLayer(Base):
    def step(self, now, rng):
        pressure = Isolation(home=0.5).sum(self.contacts, now.ill, now.ill)  # line: Layers
        return now.replace(ill=torch.maximum(now.ill, rng.event("catch", self.rate * pressure)))


class WanesOnce(Base):
    def step(self, now, rng):
        jab = JAB.wane(rng, now, now.jab)
        jab = JAB.wane(rng, now, jab)  # line: once in a step
        return now.replace(jab=jab)


class Mortal(dz.State):
    ill: Tensor = dz.mask("agents", "strains")
    alive: Tensor = dz.mask("agents")


class DeadShed(Base):
    def init(self, rng):
        alive = rng.bernoulli("alive", 0.8)
        ill = compete(rng, "seed", 0.2 * torch.ones(self.num_agents, 2))
        return Mortal(ill=ill, alive=alive)

    def step(self, now, rng):  # line: the dead shed both strains
        well = now.alive * (1 - now.ill.amax(dim=1))
        hazards = self.rate * sums(self.contacts, now.ill, needed=well)
        caught = well[:, None] * compete(rng, "catch", hazards, where=well)
        died = now.alive * rng.event("die", 0.1, where=now.alive)
        return now.replace(ill=now.ill + caught, alive=now.alive - died)

    @dz.series
    def cases(self, before, now):
        return ((now.ill - before.ill) * now.alive[:, None]).sum()


MISTAKES = [
    (StrainsAsRows, "hazards has shape (2, 40), expected (40, strains): a row for each agent"),
    (OneNumber, "had has shape (40,), expected (agents, 2)"),
    (OtherLevels, "expected none, dose 1 protected, dose 1 unprotected; give it in init"),
    (TwoTests, "used twice in one step"),
    (HalfATest, "taken holds real numbers"),
    (AgeInSteps, "declare born: Tensor = dz.real('agents')"),
    (OneLayer, "contacts is Mixing, expected Layers with home"),
    (WanesOnce, "used twice in one step"),
    pytest.param(DeadShed, "the dead take part", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("model", "told"), MISTAKES)
def test_each_is_told_by_its_line(model, told):
    report = dz.check(model(Mixing([0] * 40, 5.0)), gradient=False)
    found = [one for one in report.findings if told in f"{one.what}; {one.instead}"]
    assert found, report
    assert Path(found[0].line.file).name == HERE.name
    assert "# line: " in HERE.read_text().splitlines()[found[0].line.number - 1], report


class NeverWanes(Base):
    def step(self, now, rng):  # line: protection stays as it is
        hazard = self.rate * JAB.factor(now.jab) * self.contacts.sum(now.ill)
        return now.replace(ill=torch.maximum(now.ill, rng.event("catch", hazard)))


class Wanes(NeverWanes):
    def step(self, now, rng):
        return super().step(now, rng).replace(jab=JAB.wane(rng, now, now.jab))


DOSES = Campaign(vaccine=JAB, field="jab", doses_per_day=5)


@pytest.mark.slow
def test_protection_that_never_wanes_is_told_by_a_check():
    report = dz.check(NeverWanes(Mixing([0] * 40, 5.0)), interventions=[DOSES], gradient=False)
    (found,) = [one for one in report.findings if "the step leaves it as it is" in one.what]
    assert "# line: " in HERE.read_text().splitlines()[found.line.number - 1], report


def test_protection_that_never_wanes_stops_the_run():
    """At the end of its chunk, once doses are given."""
    everybody = Mixing([0] * 40, 5.0)
    late = dataclasses.replace(DOSES, when=During(3))
    with pytest.raises(ModelError, match="the protection of a vaccine wanes, and the step leaves it as it is; write"):
        dz.simulate(NeverWanes(everybody), 5, replicates=2, interventions=[late], compile=False)
    assert dz.simulate(NeverWanes(everybody), 3, interventions=[late], compile=False).steps == 3
    dz.simulate(Wanes(everybody), 5, replicates=2, interventions=[DOSES], compile=False)


class TwoKinds(Base):
    """Doses of two vaccines; the step lets one of them wane."""

    class Both(dz.State):
        jab: Stage = dz.stage("agents", levels=JAB.levels)
        flu: Stage = dz.stage("agents", levels=JAB.levels)

    def init(self, rng):
        like = torch.zeros(self.num_agents, dtype=torch.int8)
        return self.Both(jab=JAB.start(like), flu=JAB.start(like))

    def step(self, now, rng):
        return now.replace(jab=JAB.wane(rng, now, now.jab))


def test_each_of_two_vaccines_has_to_wane():
    model = TwoKinds(Mixing([0] * 40, 5.0))
    shots = dataclasses.replace(DOSES, field="flu", name="flu shots")
    with pytest.raises(ModelError, match=r"the protection of a vaccine wanes, and the step leaves it.*field: flu"):
        dz.simulate(model, 2, interventions=[DOSES, shots], compile=False)
    dz.simulate(model, 2, interventions=[DOSES], compile=False)


def test_layers_of_isolation_go_by_name():
    layers = Layers({"home": Mixing([0] * 4, 2.0)})
    ill = torch.tensor([1, 0, 0, 1], dtype=torch.int8)
    assert Isolation(home=0.0).sum(layers, ill, 1 - ill).tolist() == [1, 0, 0, 1]
