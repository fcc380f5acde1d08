"""What `dz.check` says of a mask `alive`: whether the dead matter to the living, to children and to series."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.model import Act, During, History, Stage, births

NUM = 60


def ring() -> dz.Graph:
    source = torch.arange(NUM)
    return dz.Graph.from_edges(source, (source + 1) % NUM, NUM, directed=False)


class Life(dz.State):
    alive: Tensor = dz.mask("agents")
    ill: Tensor = dz.mask("agents")
    age: Tensor = dz.count("agents")
    fat: Tensor = dz.real("agents", "goods")
    ate: History = dz.history("agents", length=5)
    grass: Tensor = dz.real("cells")


class Careful(dz.Model):
    """Illness along contacts, deaths from it only, births into free places; nobody counts who is not alive."""

    contacts: dz.Graph
    rate: Tensor = dz.param(0.3, low=0.0)
    lethal: float = 0.3

    def init(self, rng: dz.rng.Rng) -> Life:
        alive = (torch.arange(NUM) < 50).to(torch.int8)
        return Life(
            alive=alive,
            ill=alive * rng.bernoulli("seed", 0.3),
            age=rng.integers("age", 0, 60),
            fat=torch.ones(NUM, 2),
            ate=0 * alive,
            grass=torch.ones(3),
        )

    def shown(self, now: Life) -> Tensor:
        """Who is seen to be ill."""
        return now.ill * now.alive

    def step(self, now: Life, rng: dz.rng.Rng) -> Any:
        pressure = self.contacts.sum(self.shown(now), where=now.alive)
        caught = now.alive * (1 - now.ill) * rng.event("catch", self.rate * pressure)
        dies = now.alive * rng.bernoulli("die", now.ill * self.lethal)
        new = now.replace(
            alive=now.alive - dies,
            ill=now.ill + caught,
            age=now.age + 1,
            fat=now.fat * 1.1,
            ate=now.ate.record(rng.event("eat", 0.5)),
            grass=now.grass * 0.9,
        )
        return self.born(new, rng, caught)

    def born(self, now: Life, rng: dz.rng.Rng, caught: Tensor) -> Life:
        """Whoever bears children."""
        return births(now, rng, rng.event("bear", 0.1), age=1)

    @dz.series
    def number_ill(self, now: Life) -> Tensor:
        return (now.ill * now.alive).sum()

    @dz.series
    def dead_and_old(self, now: Life) -> Tensor:
        return ((1 - now.alive) * (now.age > 40)).sum()

    @dz.series
    def deaths(self, before: Life, now: Life) -> Tensor:
        return (before.alive * (before.id == now.id) * (1 - now.alive)).sum()


class DeadTransmit(Careful):
    def shown(self, now: Life) -> Tensor:
        return now.ill


class DeadCount(Careful):
    def step(self, now: Life, rng: dz.rng.Rng) -> Life:
        new = super().step(now, rng)
        return new.replace(ill=torch.maximum(new.ill, new.alive * rng.bernoulli("all", 0.5 * now.ill.sum() / NUM)))


class DeadGraze(Careful):
    def step(self, now: Life, rng: dz.rng.Rng) -> Life:
        return now.replace(grass=now.grass + now.fat.sum())


class SeriesOfAll(Careful):
    @dz.series
    def number_ill(self, now: Life) -> Tensor:
        return now.ill.sum()

    @dz.series
    def mean_age(self, now: Life) -> Tensor:
        return now.age.to(torch.float32).mean()


class FlowOfAll(Careful):
    @dz.series
    def cases(self, before: Life, now: Life) -> Tensor:
        return ((now.ill > before.ill) | (now.age == before.age + before.ill + 1)).sum()


class EventsOfAll(Careful):
    def born(self, now: Life, rng: dz.rng.Rng, caught: Tensor) -> Life:
        rng.record("caught", (1 - now.ill) * rng.event("catch again", 0.5))
        return super().born(now, rng, caught)

    @dz.series
    def caught(self, events: Any) -> Tensor:
        return events["caught"].sum()


class Cleared(SeriesOfAll, DeadTransmit):
    """What the dead had is taken from them when they die; free places never had it."""

    def born(self, now: Life, rng: dz.rng.Rng, caught: Tensor) -> Life:
        return super().born(now.replace(ill=now.ill * now.alive), rng, caught)

    @dz.series
    def mean_age(self, now: Life) -> Tensor:
        return (now.age * now.alive).sum() / now.alive.sum()


class BornByHand(Careful):
    def born(self, now: Life, rng: dz.rng.Rng, caught: Tensor) -> Life:
        return now.replace(alive=torch.maximum(now.alive, rng.bernoulli("arrive", 0.5)), age=0 * now.age)


class IllAtBirth(Careful):
    def born(self, now: Life, rng: dz.rng.Rng, caught: Tensor) -> Life:
        everywhere = torch.maximum(now.ill, caught)
        return births(now, rng, now.alive * rng.event("bear", 0.1)).replace(ill=everywhere)


def found(model: dz.Model, *interventions: Act) -> tuple[str, str, str]:
    """What depends on the dead: of the living, of children, series."""
    report = dz.check(model, interventions=interventions, gradient=False)
    told = "\n".join([*(finding.what for finding in report.findings if finding.rule == "alive"), *report.notes])
    assert not any("nobody is dead" in one for one in report.skipped)
    living = re.search(r"the dead take part: (.*) of the living, or of the world", told)
    born = re.search(r"(.*) of who comes to life changes with what the dead left", told)
    series = re.findall(r"series '(\w+)' counts who is not alive", told)
    return *(named[1].replace(",", "") if named else "" for named in (living, born)), " ".join(series)


@pytest.mark.parametrize(
    ("model", "depends"),
    [
        (Careful, ("", "", "")),
        (DeadTransmit, ("ill", "", "")),
        (DeadCount, ("ill", "", "")),
        (DeadGraze, ("grass", "", "")),
        (SeriesOfAll, ("", "", "number_ill mean_age")),
        (FlowOfAll, ("", "", "cases")),
        (Cleared, ("", "", "")),
        (EventsOfAll, ("", "", "caught")),
        (BornByHand, ("", "ill fat ate", "")),
        (IllAtBirth, ("", "ill", "")),
    ],
)
def test_what_depends_on_the_dead(model: type[Careful], depends: tuple[str, str, str]) -> None:
    living, born, series = found(model(ring()))
    assert (living, born) == depends[:2]
    assert series == depends[2] or depends[:2] != ("", "")


def test_interventions_that_count_the_dead() -> None:
    def change(model: Any, now: Any, rng: Any) -> Any:
        return now.replace(ill=torch.maximum(now.ill, now.alive * rng.bernoulli("more", now.ill.sum() / NUM)))

    assert found(Careful(ring()), Act(change=change, when=During(0)))[0] == "alive ill"  # of whom some die


def test_the_report_says_so() -> None:
    def rows(report: Any) -> list[tuple[str, int, str]]:
        lines = report.findings
        return [(one.rule, one.line.number if one.line else 0, one.what.partition(" of ")[0]) for one in lines]

    class Wrong(DeadTransmit, SeriesOfAll):
        pass

    ill, by_hand = SeriesOfAll.number_ill.__code__, BornByHand.step.__code__
    report = dz.check(Wrong(ring()), gradient=False)
    assert rows(report) == [("alive", Careful.step.__code__.co_firstlineno, "the dead take part: ill")]
    told = f":{ill.co_firstlineno} series 'number_ill' counts who is not alive along with the living"
    assert any(told in note for note in report.notes)  # as one that counts all who ever lived does rightly
    assert rows(dz.check(BornByHand(ring()), gradient=False)) == [("alive", by_hand.co_firstlineno, "ill, fat, ate")]


def test_a_model_that_leaves_the_dead_out() -> None:
    report = dz.check(Careful(ring()), gradient=False)
    assert report.ok, str(report)
    assert "who is not alive changes nothing for the living, for children and in the series" in report.proved


class Ratios(Careful):
    """Of what nobody ever has none of; emptied, the dead have 0/0, which no mask takes out of a sum."""

    def shown(self, now: Life) -> Tensor:
        share = (now.grass.sum() / now.fat[:, 0] * now.alive).sum() / now.alive.sum()
        return now.ill * now.alive * (share > 0)

    @dz.series
    def welfare(self, now: Life) -> Tensor:
        return (now.fat.log() * now.alive.unsqueeze(1)).sum()

    @dz.series
    def growth(self, before: Life, now: Life) -> Tensor:
        return ((now.fat[:, 0] / before.fat[:, 0]).log() * now.alive).sum()

    def born(self, now: Life, rng: dz.rng.Rng, caught: Tensor) -> Life:
        return now


def test_emptied_places_without_a_ratio_are_no_dead_that_take_part() -> None:
    assert found(Ratios(ring())) == ("", "", "")

    class Wrong(Ratios):
        def shown(self, now: Life) -> Tensor:
            return now.ill * (now.fat[:, 0].log().sum() > -1)

    assert found(Wrong(ring()))[0] == "ill"


def test_nobody_dies() -> None:
    class Immortal(Careful):
        def init(self, rng: dz.rng.Rng) -> Life:
            return super().init(rng).replace(alive=torch.ones(NUM, dtype=torch.int8))

        def born(self, now: Life, rng: dz.rng.Rng, caught: Tensor) -> Life:
            return now

    report = dz.check(Immortal(ring(), lethal=0.0), gradient=False)
    assert report.ok
    assert "whether the dead matter: nobody is dead within 40 steps" in report.skipped


class Marked(dz.State):
    alive: Tensor = dz.mask("agents")
    stage: Stage = dz.stage("agents", levels=("well", "ill", "dead"))


class ByLevel(dz.Model):
    """The dead are told by a level of their own; `alive` says the same."""

    contacts: dz.Graph

    def init(self, rng: dz.rng.Rng) -> Marked:
        return Marked(alive=torch.ones(NUM, dtype=torch.int8), stage=rng.bernoulli("seed", 0.5))

    def step(self, now: Marked, rng: dz.rng.Rng) -> Marked:
        pressure = self.contacts.sum(now.stage.is_("ill"), where=now.stage.is_("well"))
        stage = now.stage.move(rng.event("die", 0.1), "dead", source="ill")
        stage = stage.move(rng.event("catch", 0.3 * pressure), "ill", source="well")
        return now.replace(stage=stage, alive=1 - stage.is_("dead"))

    @dz.series
    def stages(self, now: Marked) -> Tensor:
        return now.stage.counts()


def test_a_level_that_tells_the_dead_is_left_alone() -> None:
    assert found(ByLevel(ring())) == ("", "", "")
