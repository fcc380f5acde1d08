"""The dead, known to the engine, take no part in an epidemic; two kinds follow the equations of Lotka and Volterra."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

import denizen as dz
from denizen.model import Stage, alive, births, deaths
from denizen.space.generators import erdos_renyi

LEVELS = ("susceptible", "infected", "immune")
TOWN = dz.Graph.from_edges(erdos_renyi(300, mean_degree=8, seed=0))


class Known(dz.State):
    alive: Tensor = alive("agents")
    stage: Stage = dz.stage("agents", levels=LEVELS)
    age: Tensor = dz.count("agents")


class Unknown(dz.State):
    alive: Tensor = dz.mask("agents")
    stage: Stage = dz.stage("agents", levels=LEVELS)
    age: Tensor = dz.count("agents")


class Plague(dz.Model):
    """Many of the infected die, and some of the living have children; the engine knows who lives."""

    contacts: dz.Graph

    def init(self, rng: dz.rng.Rng) -> Any:
        stage = rng.bernoulli("seed", 0.1)
        living = (torch.arange(300) < 260).to(torch.int8)
        return Known(alive=living, stage=stage, age=rng.integers("age", 0, 80))

    def step(self, now: Any, rng: dz.rng.Rng) -> Any:
        caught = rng.event("catch", 0.1 * self.contacts.sum(now.stage.is_("infected")))
        rng.record("caught", now.stage.is_("susceptible") * caught)
        dies = rng.event("die", 0.1 * now.stage.is_("infected"))
        rng.record("died", dies)
        stage = now.stage.move(rng.event("heal", 0.2), "immune", source="infected")
        now = now.replace(stage=stage.move(caught, "infected", source="susceptible"), age=now.age + 1)
        now = deaths(now, dies)
        return births(now, rng, rng.event("bear", 0.01))

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        return events["caught"].sum()

    @dz.series
    def died(self, events: dz.rng.Events) -> Tensor:
        return events["died"].sum()

    @dz.series
    def by_level(self, now: Any) -> Tensor:
        return now.stage.counts()

    @dz.series
    def ages(self, now: Any) -> Tensor:
        return now.age.sum()


class ByHand(Plague):
    """The same, where the dead keep what they had and everything is multiplied by who lives."""

    def init(self, rng: dz.rng.Rng) -> Any:
        known = super().init(rng)
        return Unknown(alive=known.alive, stage=known.stage, age=known.age)

    def step(self, now: Any, rng: dz.rng.Rng) -> Any:
        infected = now.stage.is_("infected") * now.alive
        caught = rng.event("catch", 0.1 * self.contacts.sum(infected))
        rng.record("caught", now.stage.is_("susceptible") * caught * now.alive)
        dies = rng.event("die", 0.1 * infected)
        rng.record("died", dies)
        stage = now.stage.move(rng.event("heal", 0.2), "immune", source="infected")
        stage = stage.move(caught, "infected", source="susceptible")
        now = now.replace(alive=now.alive - dies, stage=stage, age=now.age + now.alive)
        return births(now, rng, rng.event("bear", 0.01))

    @dz.series
    def by_level(self, now: Any) -> Tensor:
        return torch.stack([(now.stage.is_(level) * now.alive).sum() for level in LEVELS])

    @dz.series
    def ages(self, now: Any) -> Tensor:
        return (now.age * now.alive).sum()


def test_an_epidemic_is_the_same_whether_the_dead_are_removed_or_not() -> None:
    known, by_hand = (dz.simulate(kind(TOWN), 40, replicates=4, compile=False) for kind in (Plague, ByHand))
    assert int(known["died"].sum()) > 100
    for name in known.series_names:
        assert torch.equal(known[name], by_hand[name]), name
    dead = known.state.alive == 0
    assert bool(by_hand.state.age[dead].any())  # there they still lie
    assert not bool(known.state.age[dead].any())


# --- predators and prey -----------------------------------------------------------------------------------------------

GROW, EAT, BEAR, DIE = 1.0, 1.0, 1.0, 1.0  # a, b, d, g: x' = a x - b x y, y' = d x y - g y
DENSE, STEPS, DT = 3_000, 150, 0.04  # prey are x, predators y of so many
START = (1.5, 1.0)


class Numbers(dz.State):
    prey: Tensor = alive("prey")
    predators: Tensor = alive("predators")


class LotkaVolterra(dz.Model):
    """Everybody meets everybody; each thing that happens at a rate is an event of one animal."""

    num_agents: int = 6 * DENSE
    time_unit = "year"

    def init(self, rng: dz.rng.Rng) -> Numbers:
        place = torch.arange(3 * DENSE)
        return Numbers(
            prey=(place < START[0] * DENSE).to(torch.int8), predators=(place < START[1] * DENSE).to(torch.int8)
        )

    def step(self, now: Numbers, rng: dz.rng.Rng) -> Numbers:
        prey, predators = rng.on("prey"), rng.on("predators")
        x, y = now.prey.sum() / DENSE, now.predators.sum() / DENSE
        grown, eaten = prey.event("grow", GROW), prey.event("eaten", EAT * y)
        born, died = predators.event("bear", BEAR * x), predators.event("die", DIE)
        now = births(births(now, rng, grown, "prey"), rng, born, "predators")
        return deaths(deaths(now, eaten, "prey"), died, "predators")

    @dz.series
    def x(self, now: Numbers) -> Tensor:
        return now.prey.sum() / DENSE

    @dz.series
    def y(self, now: Numbers) -> Tensor:
        return now.predators.sum() / DENSE


def solved() -> np.ndarray:
    """The equations as the steps have them, each event with the probability 1 - exp(-rate dt): [steps, 2]."""
    x, y, rows = *START, []
    for _ in range(STEPS):
        grow, eat, bear, die = (-math.expm1(-rate * DT) for rate in (GROW, EAT * y, BEAR * x, DIE))
        x, y = x * (1 + grow - eat), y * (1 + bear - die)
        rows.append((x, y))
    return np.array(rows)


def test_predators_and_prey_follow_lotka_and_volterra() -> None:
    """About one cycle, of 2 pi years; noise falls with the root of the number of animals."""
    run = dz.simulate(LotkaVolterra(), STEPS, replicates=2, dt=DT, compile=False)
    expected = torch.from_numpy(solved())
    x, y = run["x"].double(), run["y"].double()
    for name, series, rows in (("prey", x, expected[:, 0]), ("predators", y, expected[:, 1])):
        assert float((series - rows).abs().max()) < 6 / math.sqrt(DENSE), name
    # The quantity that the equations keep (d x - g ln x + b y - a ln y) drifts by noise and by the length of steps.
    kept = BEAR * x - DIE * x.log() + EAT * y - GROW * y.log()
    begun = BEAR * START[0] - DIE * math.log(START[0]) + EAT * START[1] - GROW * math.log(START[1])
    assert float((kept - begun).abs().max()) < 0.1
