"""An HIV-like infection over steady and casual partnerships that form and end."""

import torch
from torch import Tensor

import denizen as dz
from denizen.space import Ties

LEVELS = ("susceptible", "acute", "chronic", "late")


class People(dz.State):
    """Stage of infection, and partners of both kinds with the month in which each tie ends."""

    stage: dz.model.Stage = dz.stage("agents", levels=LEVELS)
    steady: Tensor = dz.count("agents", "spouses")
    steady_until: Tensor = dz.count("agents", "spouses")
    casual: Tensor = dz.count("agents", "affairs")
    casual_until: Tensor = dz.count("agents", "affairs")


class HIV(dz.Model):
    """Infection along ties, at a rate by the partner's stage; three stages in a row, and death after the last.

    Whoever has no steady partner seeks one; everybody has casual ones now and then, with or without a steady one. A
    newborn, susceptible and alone, takes the place of the dead. Ties that form in a step count in it; all else in a
    step is decided from its start.

    Attributes:
        num_agents: people; as many at any time.
        most_casual: casual partners that somebody can have at once.
    """

    time_unit = "month"

    infect_rate: Tensor = dz.param(0.03, low=0.0, unit="1/tie/month", about="hazard from a chronic partner")
    acute_factor: Tensor = dz.param(10.0, low=0.0, about="hazard from an acute partner, relative to that")
    late_factor: Tensor = dz.param(5.0, low=0.0, about="hazard from a late partner, relative to that")
    acute_months: Tensor = dz.param(3.0, low=1.0, unit="month", about="mean duration")
    chronic_months: Tensor = dz.param(96.0, low=1.0, unit="month", about="mean duration")
    late_months: Tensor = dz.param(12.0, low=1.0, unit="month", about="mean time until death")
    turnover: Tensor = dz.param(0.002, low=0.0, learnable=False, unit="1/month", about="rate of other exits")
    steady_rate: Tensor = dz.param(0.05, low=0.0, learnable=False, unit="1/month", about="singles who find a partner")
    steady_months: Tensor = dz.param(60.0, low=0.0, learnable=False, unit="month", about="mean duration")
    casual_rate: Tensor = dz.param(0.1, low=0.0, learnable=False, unit="1/month", about="casual ties that begin")
    casual_months: Tensor = dz.param(2.0, low=0.0, learnable=False, unit="month", about="mean duration")
    seed_share: Tensor = dz.param(0.01, low=0.0, high=1.0, learnable=False, about="share acute at the start")
    num_agents: int = 10_000
    most_casual: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        dz.model.whole("HIV", "num_agents", self.num_agents, 2)
        dz.model.whole("HIV", "most_casual", self.most_casual, 1, 100)

    def init(self, rng: dz.rng.Rng) -> People:
        """A share is acute, nobody has a partner yet."""
        seed = rng.bernoulli("seed", self.seed_share)
        stage = dz.model.Stage(torch.zeros_like(seed, dtype=torch.int8), LEVELS)
        steady, casual = Ties.none(self.num_agents, 1), Ties.none(self.num_agents, self.most_casual)
        return People(
            stage=stage.move(seed, "acute", source="susceptible"),
            steady=steady.who,
            steady_until=steady.until,
            casual=casual.who,
            casual_until=casual.until,
        )

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Ties form, infection along them, stages pass, the dead are replaced."""
        stage = now.stage
        steady = Ties(now.steady, now.steady_until, now.time.step)
        casual = Ties(now.casual, now.casual_until, now.time.step)
        seeks = (steady.degree() < 1) * rng.event("court", self.steady_rate)
        steady = steady.form(rng, "steady", seeks, rng.exponential("steady lasts", 1 / self.steady_months))
        seeks = (casual.degree() < self.most_casual) * rng.event("flirt", self.casual_rate)
        casual = casual.form(rng, "casual", seeks, rng.exponential("casual lasts", 1 / self.casual_months))

        one = torch.ones_like(self.acute_factor)
        infectious = stage.table(torch.stack([0 * one, self.acute_factor, one, self.late_factor]))
        months = stage.table(torch.stack([one, self.acute_months, self.chronic_months, self.late_months]))
        susceptible, infected = stage.is_("susceptible"), stage.is_("acute", "chronic", "late")
        pressure = steady.sum(infectious) + casual.sum(infectious)
        caught = rng.event("catch", self.infect_rate * pressure, where=susceptible)
        rng.record("caught", susceptible * caught)
        passed = rng.event("progress", 1 / months, where=infected)
        late = stage.is_("late") * passed
        rng.record("died", late)
        left = torch.maximum(late, rng.event("leave", self.turnover).to(late.dtype))

        stage = stage.move(passed, "susceptible", source="late").advance(passed, "acute", "chronic")
        stage = stage.move(caught, "acute", source="susceptible")
        for level in ("acute", "chronic", "late"):
            stage = stage.move(left, "susceptible", source=level)
        steady, casual = steady.end(left), casual.end(left)
        return now.replace(
            stage=stage,
            steady=steady.who,
            steady_until=steady.until,
            casual=casual.who,
            casual_until=casual.until,
        )

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        """New infections in the step."""
        return events["caught"].sum()

    @dz.series
    def deaths(self, events: dz.rng.Events) -> Tensor:
        """Deaths of the infection in the step."""
        return events["died"].sum()

    @dz.series
    def infected(self, now: People) -> Tensor:
        """Infected at the end of the step."""
        return now.stage.is_("acute", "chronic", "late").sum()

    @dz.series
    def in_steady(self, now: People) -> Tensor:
        """Agents with a steady partner, as the next step finds them."""
        return Ties(now.steady, now.steady_until, now.time.step).degree().sum()
