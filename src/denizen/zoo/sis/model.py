"""SIS with births and deaths: infection without immunity, in a population that renews itself."""

from typing import ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._contacts import check_schedules


class People(dz.State):
    """Who is susceptible or infected; further levels are those of the model."""

    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected"))


class SIS(dz.Model):
    """Each infected contact infects at `infect_rate`; the infected recover, and can be infected again.

    At the rate `turnover` an agent dies and a newborn, who is susceptible, takes the place and its contacts. Everything
    in a step is decided from the stages at its start.
    """

    time_unit = "day"
    levels: ClassVar[tuple[str, ...]] = ("susceptible", "infected")

    contacts: dz.Graph | dz.space.Layers | dz.space.Mixing | dz.space.Grid
    infect_rate: Tensor = dz.param(0.05, low=0.0, unit="1/contact/day", about="hazard from one infected contact")
    infectious_days: Tensor = dz.param(7.0, low=0.01, unit="day", about="mean time until recovery")
    turnover: Tensor = dz.param(0.0, low=0.0, unit="1/day", about="rate at which agents die and are replaced")
    seed_share: Tensor = dz.param(0.05, low=0.0, high=1.0, learnable=False, about="share infected at the start")

    def fits(self, dt: float) -> None:
        """Refuse schedules by the step where a step is no day."""
        check_schedules(self.contacts, dt)

    def init(self, rng: dz.rng.Rng) -> People:
        """Infect a random share."""
        seed = rng.bernoulli("seed", self.seed_share)
        stage = dz.model.Stage(torch.zeros_like(seed, dtype=torch.int8), self.levels)
        return People(stage=stage.move(seed, "infected", source="susceptible"))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection along contacts, recovery, births in place of deaths."""
        stage = now.stage
        susceptible, infected = stage.is_("susceptible"), stage.is_("infected")
        pressure = self.contacts.sum(infected, needed=susceptible, step=now.time.step)
        caught = rng.event("catch", self.infect_rate * pressure, where=susceptible)
        rng.record("caught", susceptible * caught)
        healed = rng.event("heal", 1 / self.infectious_days, where=infected)
        died = rng.event("die", self.turnover)
        rng.record("died", died)
        stage = self.passed(stage, caught, healed, rng)
        for level in self.levels[1:]:
            stage = stage.move(died, "susceptible", source=level)
        return now.replace(stage=stage)

    def passed(self, stage: dz.model.Stage, caught: Tensor, healed: Tensor, rng: dz.rng.Rng) -> dz.model.Stage:
        """Who was infected and who recovered, both from the start of the step.

        One after the other, those who just recovered might be infected at once.
        """
        well = stage.move(healed, "susceptible", source="infected")
        ill = stage.move(caught, "infected", source="susceptible")
        return dz.model.Stage(well.value + ill.value - stage.value, stage.levels)

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        """New infections in the step."""
        return events["caught"].sum()

    @dz.series
    def deaths(self, events: dz.rng.Events) -> Tensor:
        """Deaths in the step, each followed by a birth."""
        return events["died"].sum()

    @dz.series
    def infected(self, now: People) -> Tensor:
        """Infected at the end of the step."""
        return now.stage.is_("infected").sum()
