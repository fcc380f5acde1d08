"""A model of homogeneous mixing with a vaccine, for tests of products against final-size equations."""

import torch
from torch import Tensor

import denizen as dz
from denizen.disease import Campaign, Vaccine, Waning
from denizen.model import During, Stage


class People(dz.State):
    ill: Tensor = dz.mask("agents")
    well: Tensor = dz.mask("agents")
    vaccine: Stage = dz.stage("agents", levels=("none", "dose 1 protected"))
    last_dose: Tensor = dz.count("agents")


class Mixing(dz.Model):
    """Everybody meets everybody: the hazard is R0 / 5 times the share of the ill, who are ill for 5 days on average."""

    time_unit = "day"

    group: Tensor
    kind: str = "leaky"
    waning: Waning | None = None
    doses: float = 0.0
    efficacy: Tensor = dz.param(0.7, low=0.0, high=1.0)
    R0: Tensor = dz.param(3.0, low=0.0)
    seed_share: Tensor = dz.param(0.01, low=0.0, high=1.0)

    @property
    def num_agents(self) -> int:
        return self.group.numel()

    @property
    def vaccine(self) -> Vaccine:
        return Vaccine(self.efficacy, self.kind, self.waning)

    @property
    def interventions(self) -> tuple[Campaign, ...]:
        first_day = Campaign(vaccine="vaccine", doses_per_day=self.doses, when=During(0, 1))
        return (first_day,) if self.doses else ()

    def init(self, rng: dz.rng.Rng) -> People:
        ill = rng.bernoulli("seed", self.seed_share)
        return People(ill=ill, well=1 - ill, vaccine=self.vaccine.start(ill), last_dose=0 * ill)

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        share = now.ill.sum() / self.num_agents
        caught = now.well * rng.event("catch", self.R0 / 5 * share * self.vaccine.factor(now.vaccine), where=now.well)
        healed = now.ill * rng.bernoulli("heal", now.time.dt / 5, where=now.ill)
        rng.record("caught", caught)
        status = self.vaccine.wane(rng, now, now.vaccine)
        return now.replace(ill=now.ill + caught - healed, well=now.well - caught, vaccine=status)

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        return events["caught"].sum()

    @dz.series
    def status(self, now: People) -> Tensor:
        return now.vaccine.counts()


def people(num: int, groups: int = 3) -> Tensor:
    """Age groups, `[agents]`."""
    return (torch.arange(num) % groups).to(torch.uint8)
