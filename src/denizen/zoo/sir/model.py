"""SIR on a contact network: susceptible, infected, recovered."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.zoo._contacts import check_duration, check_schedules

MAX_PHASES = 120


class People(dz.State):
    """Who is susceptible, infected or recovered; being infected may be split into phases, see `SIR`."""

    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))


class SIR(dz.Model):
    """Each infected contact infects at `infect_rate`; the infected recover after `infectious_days` on average.

    Infection lasts `infectious_phases` phases in a row, each left with probability phases * dt / days in a step: one
    phase is memoryless, days / dt phases are a fixed duration, numbers between have a gamma shape. Infection and
    recovery are decided from the stages at the start of the step, so the infected transmit before they recover.
    """

    time_unit = "day"

    contacts: dz.Graph | dz.space.Layers | dz.space.Mixing | dz.space.Grid
    infect_rate: Tensor = dz.param(0.05, low=0.0, unit="1/contact/day", about="hazard from one infected contact")
    infectious_days: Tensor = dz.param(7.0, low=0.01, unit="day", about="mean time until recovery")
    seed_share: Tensor = dz.param(0.01, low=0.0, high=1.0, learnable=False, about="share infected at the start")
    infectious_phases: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("sir", "infectious_phases", self.infectious_phases, 1, MAX_PHASES)

    def fits(self, dt: float) -> None:
        """Refuse a stage that is shorter than a step, and schedules by the step where a step is no day."""
        check_duration("infectious", self.infectious_days, self.infectious_phases, dt)
        check_schedules(self.contacts, dt)

    def init(self, rng: dz.rng.Rng) -> People:
        """Infect a random share."""
        seed = rng.bernoulli("seed", self.seed_share)
        everybody = torch.zeros_like(seed, dtype=torch.int8)
        stage = dz.model.Stage(everybody, ("susceptible", *self.phases, "recovered"))
        return People(stage=stage.move(seed, "infected", source="susceptible"))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection along contacts, and recovery."""
        stage = now.stage
        infected, susceptible = stage.is_(*self.phases), stage.is_("susceptible")
        pressure = self.contacts.sum(infected, needed=susceptible, step=now.time.step)
        caught = rng.event("catch", self.infect_rate * pressure)
        rng.record("caught", susceptible * caught)
        leave = len(self.phases) * now.time.dt / self.infectious_days
        healed = rng.bernoulli("heal", leave, where=infected)
        return now.replace(stage=stage.advance(healed, *self.phases).advance(caught, "susceptible"))

    @property
    def phases(self) -> tuple[str, ...]:
        """Levels of the infected."""
        return ("infected", *[f"infected {k}" for k in range(2, self.infectious_phases + 1)])

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        """New infections in the step."""
        return events["caught"].sum()

    @dz.series
    def infected(self, now: People) -> Tensor:
        """Infected at the end of the step."""
        return now.stage.is_(*self.phases).sum()

    @dz.series
    def recovered(self, now: People) -> Tensor:
        """Recovered at the end of the step."""
        return now.stage.is_("recovered").sum()
