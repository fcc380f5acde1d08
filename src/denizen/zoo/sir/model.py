"""SIR on a contact network: susceptible, infected, recovered, with memoryless recovery."""

from torch import Tensor

import denizen as dz


class People(dz.State):
    """Who is susceptible, infected or recovered."""

    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))


class SIR(dz.Model):
    """Each infected contact infects at `infect_rate`; the infected recover after an exponential time.

    One step is one day by default. Infection is decided before recovery, from the stages at the start of the step.
    """

    time_unit = "day"

    contacts: dz.Graph
    infect_rate: Tensor = dz.param(0.05, low=0.0, unit="1/contact/day", about="hazard from one infected contact")
    infectious_days: Tensor = dz.param(7.0, low=0.1, unit="day", about="mean time until recovery")
    seed_share: Tensor = dz.param(0.01, low=0.0, high=1.0, learnable=False, about="share infected at the start")

    def init(self, rng: dz.rng.Rng) -> People:
        """Infect a random share."""
        return People(stage=rng.bernoulli("seed", self.seed_share))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection along contacts, then recovery."""
        stage = now.stage
        pressure = self.contacts.sum(stage.is_("infected"), where=stage.is_("susceptible"))
        caught = rng.event("catch", self.infect_rate * pressure)
        healed = rng.event("heal", stage.is_("infected") / self.infectious_days)
        moved = stage.move(caught, "infected", source="susceptible")
        return now.replace(stage=moved.move(healed * stage.is_("infected"), "recovered", source="infected"))

    @dz.series
    def cases(self, before: People, now: People) -> Tensor:
        """New infections in the step."""
        return (before.stage.is_("susceptible") - now.stage.is_("susceptible")).sum()

    @dz.series
    def infected(self, now: People) -> Tensor:
        """Infected at the end of the step."""
        return now.stage.is_("infected").sum()
