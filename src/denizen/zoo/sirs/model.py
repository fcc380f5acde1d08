"""SIRS with births and deaths: immunity that wanes, in a population that renews itself."""

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._contacts import check_schedules


class People(dz.State):
    """Who is susceptible, infected or immune for a while."""

    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))


class SIRS(dz.Model):
    """Each infected contact infects at `infect_rate`; the infected recover and are immune for `immune_days` on average.

    At the rate `turnover` an agent dies and a newborn, who is susceptible, takes the place and its contacts. Everything
    in a step is decided from the stages at its start.
    """

    time_unit = "day"

    contacts: dz.Graph | dz.space.Layers | dz.space.Mixing | dz.space.Grid
    infect_rate: Tensor = dz.param(0.05, low=0.0, unit="1/contact/day", about="hazard from one infected contact")
    infectious_days: Tensor = dz.param(7.0, low=0.01, unit="day", about="mean time until recovery")
    immune_days: Tensor = dz.param(60.0, low=0.01, unit="day", about="mean time until immunity is lost")
    turnover: Tensor = dz.param(0.0, low=0.0, unit="1/day", about="rate at which agents die and are replaced")
    seed_share: Tensor = dz.param(0.05, low=0.0, high=1.0, learnable=False, about="share infected at the start")

    def fits(self, dt: float) -> None:
        """Refuse schedules by the step where a step is no day."""
        check_schedules(self.contacts, dt)

    def init(self, rng: dz.rng.Rng) -> People:
        """Infect a random share."""
        seed = rng.bernoulli("seed", self.seed_share)
        stage = dz.model.Stage(torch.zeros_like(seed, dtype=torch.int8), ("susceptible", "infected", "recovered"))
        return People(stage=stage.move(seed, "infected", source="susceptible"))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection along contacts, recovery, waning, births in place of deaths."""
        stage = now.stage
        susceptible, infected, immune = (stage.is_(level) for level in stage.levels)
        pressure = self.contacts.sum(infected, needed=susceptible, step=now.time.step)
        caught = rng.event("catch", self.infect_rate * pressure, where=susceptible)
        rng.record("caught", susceptible * caught)
        healed = rng.event("heal", 1 / self.infectious_days, where=infected)
        waned = rng.event("wane", 1 / self.immune_days, where=immune)
        died = rng.event("die", self.turnover)
        rng.record("died", died)
        ill = stage.move(healed, "recovered", source="infected").move(caught, "infected", source="susceptible")
        bare = stage.move(waned, "susceptible", source="recovered")
        # Both from the start of the step: one after the other, those who just became susceptible might be infected.
        stage = dz.model.Stage(ill.value + bare.value - stage.value, stage.levels)
        for level in ("infected", "recovered"):
            stage = stage.move(died, "susceptible", source=level)
        return now.replace(stage=stage)

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

    @dz.series
    def recovered(self, now: People) -> Tensor:
        """Immune at the end of the step."""
        return now.stage.is_("recovered").sum()
