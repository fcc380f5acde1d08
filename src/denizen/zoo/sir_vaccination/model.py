"""SIR with a vaccine: leaky or all-or-nothing, given before the start or by a campaign."""

import torch
from torch import Tensor

import denizen as dz
from denizen.disease import Campaign, Vaccine, Waning
from denizen.model import During, Stage, number, one_of, whole
from denizen.zoo._contacts import check_duration, check_schedules


class People(dz.State):
    """Who is susceptible, infected or recovered, and who has had a dose; see `denizen.disease.Vaccine`."""

    stage: Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))
    vaccine: Stage = dz.stage("agents", levels=("none", "dose 1 protected", "dose 1 unprotected"))


class SIRVaccination(dz.Model):
    """SIR whose hazard of infection a vaccine lowers; doses go to whoever has had none, the ill included."""

    time_unit = "day"

    contacts: dz.Graph | dz.space.Layers | dz.space.Mixing | dz.space.Grid
    infect_rate: Tensor = dz.param(0.04, low=0.0, unit="1/contact/day", about="hazard from one infected contact")
    infectious_days: Tensor = dz.param(7.0, low=0.01, unit="day", about="mean time until recovery")
    seed_share: Tensor = dz.param(0.002, low=0.0, high=1.0, learnable=False, about="share infected at the start")
    efficacy: Tensor = dz.param(0.8, low=0.0, high=1.0, about="of a dose")
    coverage: Tensor = dz.param(0.0, low=0.0, high=1.0, learnable=False, about="share with a dose at the start")
    kind: str = "leaky"
    daily_share: float = 0.02
    first_day: float = 5.0
    waning_days: float = 0.0
    waning_phases: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("sir_vaccination", "kind", self.kind, ("leaky", "all_or_nothing"))
        number("sir_vaccination", "daily_share", self.daily_share, 0, 1)
        number("sir_vaccination", "first_day", self.first_day, 0)
        number("sir_vaccination", "waning_days", self.waning_days, 0)
        whole("sir_vaccination", "waning_phases", self.waning_phases, 1, 60)

    @property
    def vaccine(self) -> Vaccine:
        """What a dose does."""
        waning = Waning(self.waning_days, self.waning_phases) if self.waning_days else None
        return Vaccine(self.efficacy, self.kind, waning)

    @property
    def interventions(self) -> tuple[Campaign, ...]:
        """The campaign, where it has doses."""
        doses = self.daily_share * self.num_agents
        campaign = Campaign(vaccine="vaccine", doses_per_day=doses, when=During(days=self.first_day))
        return (campaign,) if doses else ()

    def fits(self, dt: float) -> None:
        """Refuse durations that are shorter than a step, and schedules by the step where a step is no day."""
        check_duration("infectious", self.infectious_days, 1, dt)
        check_schedules(self.contacts, dt)
        self.vaccine.fits(dt)

    def init(self, rng: dz.rng.Rng) -> People:
        """Infect a random share, and vaccinate one."""
        seed = rng.bernoulli("seed", self.seed_share)
        well = Stage(torch.zeros_like(seed, dtype=torch.int8), ("susceptible", "infected", "recovered"))
        covered = rng.bernoulli("covered", self.coverage)
        status = self.vaccine.give(rng, self.vaccine.start(seed), covered)
        return People(stage=well.move(seed, "infected", source="susceptible"), vaccine=status)

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection, recovery and waning, all decided from the start of the step."""
        stage, vaccine = now.stage, self.vaccine
        infected, susceptible = stage.is_("infected"), stage.is_("susceptible")
        pressure = self.contacts.sum(infected, needed=susceptible, step=now.time.step)
        caught = rng.event("catch", self.infect_rate * pressure * vaccine.factor(now.vaccine), where=susceptible)
        healed = rng.bernoulli("heal", now.time.dt / self.infectious_days, where=infected)
        rng.record("caught", susceptible * caught)
        rng.record("broke through", susceptible * caught * vaccine.given(now.vaccine))
        stage = stage.advance(healed, "infected").advance(caught, "susceptible")
        return now.replace(stage=stage, vaccine=vaccine.wane(rng, now, now.vaccine))

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        """New infections in the step."""
        return events["caught"].sum()

    @dz.series
    def breakthroughs(self, events: dz.rng.Events) -> Tensor:
        """Those of them who had had a dose."""
        return events["broke through"].sum()

    @dz.series
    def infected(self, now: People) -> Tensor:
        """Infected at the end of the step."""
        return now.stage.is_("infected").sum()

    @dz.series
    def recovered(self, now: People) -> Tensor:
        """Recovered at the end of the step."""
        return now.stage.is_("recovered").sum()

    @dz.series
    def vaccinated(self, now: People) -> Tensor:
        """Those who have had a dose, at the end of the step."""
        return self.vaccine.given(now.vaccine).sum()
