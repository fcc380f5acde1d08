"""`dz.check(dt=True)`: silent where series converge as steps get short; else the series, the ratio and the line."""

import inspect
import re
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import Course, During, History, Model, Report, Scale
from denizen.space.generators import erdos_renyi
from denizen.zoo.cartpole import CartPole
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

CONTACTS = dz.Graph.from_edges(erdos_renyi(120, mean_degree=8, seed=1))


def check(model: Model, until: float = 12.0, **options: Any) -> Report:
    return dz.check(model, gradient=False, dt=True, until=until, steps=2, **options)


class People(dz.State):
    ill: Tensor = dz.mask("agents")
    well: Tensor = dz.mask("agents")


class Base(dz.Model):
    """Without fault: the shield follows from an infection, so that its chance need not follow dt."""

    time_unit = "day"
    contacts: dz.Graph = CONTACTS
    rate: Tensor = dz.param(0.08, low=0.0)
    days: Tensor = dz.param(7.0, low=0.1)

    def init(self, rng: dz.rng.Rng) -> People:
        ill = rng.bernoulli("seed", 0.05)
        return People(ill=ill, well=1 - ill)

    def heals(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.event("heal", 1 / self.days)

    def catches(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.event("catch", self.rate * self.contacts.sum(now.ill, needed=now.well))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        caught = now.well * self.catches(now, rng) * (1 - rng.bernoulli("shield", 0.3))
        rng.record("caught", caught)
        return now.replace(ill=now.ill + caught - now.ill * self.heals(now, rng), well=now.well - caught)

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        return events["caught"].sum()

    @dz.series
    def infected(self, now: People) -> Tensor:
        return now.ill.sum()


class RateAsChance(Base):
    def heals(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.bernoulli("heal", 1 / self.days)  # BAD


class ConstantChance(Base):
    def heals(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.bernoulli("heal", 0.6, where=now.ill)  # BAD: so large that little is left to part


class OwnStep(Base):
    def heals(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.event("heal", 1 / self.days, dt=1.0)  # BAD


class TwoFaults(Base):
    def heals(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.bernoulli("heal", 0.3)  # BAD

    def catches(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.bernoulli("catch", 0.05 * self.contacts.sum(now.ill, needed=now.well).clamp(max=9))  # BAD


class Clocked(Base):
    def heals(self, now: People, rng: dz.rng.Rng) -> Tensor:
        return rng.event("heal", torch.where(now.time.step < 8, 0.0, 0.5))  # BAD


class Purse(dz.State):
    money: Tensor = dz.real("agents")


class Income(dz.Model):
    time_unit = "year"
    num_agents: int = 50
    income: Tensor = dz.param(2.0)

    def init(self, rng: dz.rng.Rng) -> Purse:
        return Purse(money=rng.uniform("money"))

    def step(self, now: Purse, rng: dz.rng.Rng) -> Purse:
        return now.replace(money=now.money + self.income - 0.05 * now.money)  # BAD

    @dz.series
    def wealth(self, now: Purse) -> Tensor:
        return now.money.mean()


class Saving(Income):
    def step(self, now: Purse, rng: dz.rng.Rng) -> Purse:
        return now.replace(money=now.money + (self.income - 0.05 * now.money) * now.time.dt)


class Exposed(dz.State):
    got: History = dz.history("agents")


class Ages(Base):
    def init(self, rng: dz.rng.Rng) -> Exposed:
        return Exposed(got=History.start(rng.bernoulli("seed", 0.05).int(), length=10))

    def step(self, now: Exposed, rng: dz.rng.Rng) -> Exposed:
        ill, never = now.got.within(1, 7), now.got.never()  # BAD
        caught = rng.event("catch", self.rate * self.contacts.sum(ill, needed=never))
        rng.record("caught", never * caught)
        return now.replace(got=now.got.record(caught))

    @dz.series
    def infected(self, now: Exposed) -> Tensor:
        return now.got.within(1, 7).sum()


def marked(model: type[Model]) -> list[int]:
    lines, first = inspect.getsourcelines(model)
    return [first + k for k, line in enumerate(lines) if "# BAD" in line]


FAULTS = {
    RateAsChance: (["cases", "infected"], "the probability of 'heal' does not follow dt"),
    ConstantChance: (["infected"], "the probability of 'heal' does not follow dt"),
    OwnStep: (["cases", "infected"], "the hazard times dt of 'heal' does not follow dt"),
    TwoFaults: (["infected"], "the probability of '(heal|catch)' does not follow dt"),
    Clocked: (["infected"], "now.time.step counts steps"),
    Income: (["wealth"], "the field 'money' moves as far in half a step"),
    Ages: (["infected"], "the history 'got' counts steps"),
}


QUICK = (RateAsChance, Clocked, Income, Ages)


@pytest.mark.parametrize("model", [pytest.param(m, marks=[] if m in QUICK else pytest.mark.slow) for m in FAULTS])
def test_what_goes_by_the_step_is_named_by_line(model: type[Any]) -> None:
    names, what = FAULTS[model]
    report = check(model())
    assert [finding.rule for finding in report.findings] == ["dt"] * len(marked(model)), report
    assert sorted(finding.line.number for finding in report.findings if finding.line) == marked(model)
    for finding in report.findings:
        assert re.match(what, finding.what)
        assert all(f"'{name}' comes to " in finding.what for name in names)
        assert "in steps of 1, 0.5 and 0.25" in finding.what


def test_the_ratio_is_that_of_the_runs() -> None:
    (finding,) = check(Income(), until=4.0).findings
    whole, half = (float(dz.simulate(Income(), round(4 / dt), dt=dt)["wealth"][0, -1]) for dt in (1.0, 0.5))
    told = re.search(r"'wealth' comes to ([\d.]+) times", finding.what)
    assert told is not None
    assert float(told.group(1)) == pytest.approx(half / whole, rel=0.02)


GOOD = {
    "sir": lambda: sir(CONTACTS),
    "fast sir": lambda: sir(CONTACTS, infect_rate=0.3, infectious_days=3.0),
    "seir in phases": lambda: seir(CONTACTS, infect_rate=0.1, latent_days=3.0, infectious_phases=3),
    "what follows from an event": Base,
    "no draws": Saving,
}


@pytest.mark.parametrize(
    "name", ["fast sir", *[pytest.param(name, marks=pytest.mark.slow) for name in GOOD if name != "fast sir"]]
)
def test_silent_where_series_converge(name: str) -> None:
    report = check(GOOD[name]())
    assert report.ok, report
    assert "series come to one limit as steps get short" in report.proved[-1]


@pytest.mark.slow
def test_interventions_in_steps_part_and_those_in_days_do_not() -> None:
    closed = Scale(target="rate", factor=0.0, when=During(4, 12), name="closed")
    (finding,) = check(Base(rate=0.3), interventions=[closed]).findings
    assert "the intervention 'closed' counts steps: During(4, 12)" in finding.what
    assert finding.instead == "During(days=…), or dates="
    in_days = Scale(target="rate", factor=0.0, when=During(days=(4, 12)), name="closed")
    assert check(Base(rate=0.3), interventions=[in_days]).ok
    weekly = Course(target="rate", values=[0.3, 0.0, 0.1], every=4)
    assert "'course' has a value for every 4 steps" in check(Base(), interventions=[weekly]).findings[0].what


def test_what_cannot_be_judged_is_said() -> None:
    class Steps(Base):
        def fits(self, dt: float) -> None:
            if dt != 1:
                raise InputError(f"steps: dt={dt:g}, expected 1")

    report = check(Steps())
    assert report.ok
    assert report.skipped == ("steps of other lengths: steps: dt=0.5, expected 1",)
    report = check(Base(rate=0.0, days=1e9))
    assert report.skipped == ("steps of other lengths, for series that are 0 throughout: cases",)


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (Base(), {"dt": -1.0}, "check: dt=-1.0, expected a number above 0"),
    (Base(), {"dt": "half"}, "check: dt='half', expected a number"),
    (Base(), {"dt": True, "until": 0}, "check: until=0, expected a number above 0"),
    (CartPole(), {"dt": True}, "check: dt= is for models that are simulated"),
]


@pytest.mark.parametrize(("model", "options", "told"), WRONG)
def test_wrong_arguments_are_one_line(model: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        dz.check(model, **options)
