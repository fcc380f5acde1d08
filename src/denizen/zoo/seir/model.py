"""SEIR on a contact network: susceptible, exposed, infectious, recovered."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.zoo._contacts import check_duration, check_schedules

MAX_PHASES = 120


class People(dz.State):
    """Which stage everybody is in; being exposed or infectious may be split into phases, see `SEIR`."""

    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "exposed", "infectious", "recovered"))


class SEIR(dz.Model):
    """Each infectious contact infects at `infect_rate`; the infected are first exposed, then infectious.

    A duration is passed in phases, each left with probability phases * dt / days in a step: one phase is memoryless,
    days / dt phases are a fixed duration, numbers between have a gamma shape. Everything in a step is decided from the
    stages at its start, so the infectious transmit before they recover, and seeds as long as later cases.
    """

    time_unit = "day"

    contacts: dz.Graph | dz.space.Layers | dz.space.Mixing | dz.space.Grid
    infect_rate: Tensor = dz.param(0.05, low=0.0, unit="1/contact/day", about="hazard from one infectious contact")
    latent_days: Tensor = dz.param(5.0, low=0.01, unit="day", about="mean time from infection until infectious")
    infectious_days: Tensor = dz.param(7.0, low=0.01, unit="day", about="mean time from then until recovery")
    seed_share: Tensor = dz.param(0.01, low=0.0, high=1.0, learnable=False, about="share infectious at the start")
    latent_phases: int = 1
    infectious_phases: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("seir", "latent_phases", self.latent_phases, 1, MAX_PHASES)
        whole("seir", "infectious_phases", self.infectious_phases, 1, MAX_PHASES)
        if self.latent_phases + self.infectious_phases > MAX_PHASES:
            both = f"{self.latent_phases} + {self.infectious_phases}"
            raise dz.errors.InputError(f"seir: {both} phases, expected at most {MAX_PHASES} together")

    def fits(self, dt: float) -> None:
        """Refuse a stage that is shorter than a step, and schedules by the step where a step is no day."""
        check_duration("latent", self.latent_days, self.latent_phases, dt)
        check_duration("infectious", self.infectious_days, self.infectious_phases, dt)
        check_schedules(self.contacts, dt)

    def init(self, rng: dz.rng.Rng) -> People:
        """Make a random share infectious."""
        seed = rng.bernoulli("seed", self.seed_share)
        everybody = torch.zeros_like(seed, dtype=torch.int8)
        stage = dz.model.Stage(everybody, ("susceptible", *self.latent, *self.sick, "recovered"))
        return People(stage=stage.move(seed, "infectious", source="susceptible"))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection along contacts, onset and recovery."""
        stage, dt = now.stage, now.time.dt
        susceptible, exposed, infectious = stage.is_("susceptible"), stage.is_(*self.latent), stage.is_(*self.sick)
        pressure = self.contacts.sum(infectious, needed=susceptible, step=now.time.step)
        caught = rng.event("catch", self.infect_rate * pressure)
        rng.record("caught", susceptible * caught)
        onset = rng.bernoulli("onset", len(self.latent) * dt / self.latent_days, where=exposed)
        healed = rng.bernoulli("heal", len(self.sick) * dt / self.infectious_days, where=infectious)
        # Last transition first: nobody passes two in one step.
        stage = stage.advance(healed, *self.sick).advance(onset, *self.latent).advance(caught, "susceptible")
        return now.replace(stage=stage)

    @property
    def latent(self) -> tuple[str, ...]:
        """Levels of the exposed."""
        return ("exposed", *[f"exposed {k}" for k in range(2, self.latent_phases + 1)])

    @property
    def sick(self) -> tuple[str, ...]:
        """Levels of the infectious."""
        return ("infectious", *[f"infectious {k}" for k in range(2, self.infectious_phases + 1)])

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        """New infections in the step."""
        return events["caught"].sum()

    @dz.series
    def exposed(self, now: People) -> Tensor:
        """Exposed at the end of the step."""
        return now.stage.is_(*self.latent).sum()

    @dz.series
    def infectious(self, now: People) -> Tensor:
        """Infectious at the end of the step."""
        return now.stage.is_(*self.sick).sum()

    @dz.series
    def recovered(self, now: People) -> Tensor:
        """Recovered at the end of the step."""
        return now.stage.is_("recovered").sum()
