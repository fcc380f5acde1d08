"""COVID on a contact network: exposure history, fixed dwell times, weekly reproduction numbers, isolation, deaths."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.zoo._contacts import check_days, check_schedules

from .config import AGE_GROUPS

STAGES = ("susceptible", "exposed", "infected", "recovered", "dead")


class People(dz.State):
    """When each agent was exposed, and who died (where deaths are sampled)."""

    exposed: dz.model.History = dz.history("agents")
    dead: Tensor = dz.mask("agents")


class Covid(dz.Model):
    """Exposed agents transmit along contacts with a gamma-shaped infectiousness; see README.md for the formulae."""

    time_unit = "day"

    contacts: dz.Graph | dz.space.Layers
    group: Tensor  # uint8 [agents]: age group of each agent, a position in AGE_GROUPS
    origin: Tensor  # uint8 [agents]: stage at the start: 0 susceptible, 1 exposed seed, 2 infected seed
    kernel: Tensor  # float32 [ages]: share of infectiousness k + 1 days after exposure
    stage: Tensor  # int64 [origins, ages]: stage k + 1 days after exposure, a position in STAGES
    start_age: Tensor  # int16 [origins]: days since exposure at the start
    R: Tensor = dz.param(
        [4.75, 4.75, 4.75],
        low=0.0,
        any_length="weeks",
        about="reproduction number of each week; the last value holds on",
    )
    mortality: Tensor = dz.param(0.12, low=0.0, high=1.0, about="share of the infected that die")
    susceptibility: Tensor = dz.param([0.35, 0.69, 1.03, 1.03, 1.03, 1.03], low=0.0, about="by age group")
    infector: Tensor = dz.param([0.0, 0.33, 0.72, 0.0, 0.0], low=0.0, about="factor of the infector's stage")
    interactions: Tensor = dz.param([2.0, 3.0, 3.0, 3.0, 3.0, 4.0], low=0.1, unit="contacts", about="by age group")
    isolation: Tensor = dz.param([0.0] * 6, low=0.0, high=1.0, about="probability to isolate today, by age group")
    sample_deaths: bool = False
    ask: Callable[[str, int], float] | None = None  # asked for each age group's isolation, once a day
    policy: torch.nn.Module | None = None  # [groups, 2] (share infected, week) -> isolation [groups]

    @property
    def interventions(self) -> tuple[dz.model.Intervention, ...]:
        """Asks for isolation on the host where `ask` is given."""
        ask = self.ask
        return () if ask is None else (dz.model.Ask(target="isolation", groups=AGE_GROUPS, answer=ask, days=1),)

    def fits(self, dt: float) -> None:
        """Refuse steps that neither divide a day nor are whole days, schedules by them, and to step over a stage."""
        check_days("covid", dt)
        check_schedules(self.contacts, dt)
        if any(len(row.unique()) < 3 for row in self.stages(dt)):
            raise InputError(f"covid: dt={dt:g}, expected no more than the shortest stage, or nobody would be in it")

    def init(self, rng: dz.rng.Rng) -> People:
        """Everybody as the population says."""
        elapsed = self.start_age[self.origin.long()]
        exposed = dz.model.History.start(elapsed, length=self.kernel.numel() + math.ceil(rng.dt) - 1, dt=rng.dt)
        return People(exposed=exposed, dead=0 * elapsed)

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Transmission, then progression."""
        infectiousness = dz.model.by_step(self.infector[self.stage] * self.kernel, now.time.dt)
        shed = now.exposed.weigh(infectiousness, self.origin)
        never = now.exposed.never()
        pressure = self.contacts.sum(shed, needed=never, max=1.0, step=now.time.step)
        week = now.time.whole(7).clamp(max=self.R.numel() - 1)
        receptive = self.R.index_select(0, week[None])[0] * dz.model.lookup(
            self.susceptibility / self.interactions, self.group
        )
        caught = rng.event("catch", self.let_through(now, receptive * pressure))
        isolation = dz.model.lookup(self.isolation_by_group(now), self.group)
        caught = caught * (1 - rng.bernoulli("isolate", isolation, where=caught))
        rng.record("caught", never * caught)
        history = now.exposed.record(caught)
        if not self.sample_deaths:
            return now.replace(exposed=history)
        died = rng.bernoulli("die", history.weigh(self.first_step_after(now), self.origin) * self.mortality)
        rng.record("died", died)
        return now.replace(exposed=history, dead=now.dead + died)

    def let_through(self, now: People, hazard: Tensor) -> Tensor:
        """The hazard of infection, `[agents]`, that is left of one without a vaccine."""
        return hazard

    def stages(self, dt: float) -> Tensor:
        """Stage at each age in steps: int64 `[origins, ages]`, the last one past every infection."""
        longer = self.stage if dt <= 1 else torch.nn.functional.pad(self.stage, (0, math.ceil(dt) - 1), value=3)
        return dz.model.by_step(longer, dt)

    def first_step_after(self, now: People) -> Tensor:
        """1 at the age at which the infected stage has just ended: float32 `[origins, ages]`."""
        stage = self.stages(now.time.dt)
        before = torch.nn.functional.pad(stage[:, :-1], (1, 0))
        return ((before == 2) & (stage == 3)).to(torch.float32)

    def isolation_by_group(self, now: People) -> Tensor:
        """Probability to isolate today: `[groups]`, from the parameter or from the policy module."""
        if self.policy is None:
            return self.isolation
        infected = now.exposed.weigh((self.stages(now.time.dt) == 2).to(torch.float32), self.origin)
        nobody = torch.zeros(len(AGE_GROUPS), device=infected.device)
        count = nobody.index_add(0, self.group.long(), infected)
        size = nobody.index_add(0, self.group.long(), torch.ones_like(infected)).clamp(min=1)
        week = now.time.whole(7).to(torch.float32).expand(len(AGE_GROUPS))
        return self.policy(torch.stack([count / size, week], dim=1)).reshape(len(AGE_GROUPS))

    @dz.series
    def daily_infected(self, before: People, now: People) -> Tensor:
        """New exposures of the step, by the history. Interventions do not move these, and seeds do not count."""
        return now.exposed.total(torch.ones(self.stage.shape[0], 1, device=self.stage.device), self.origin)

    @dz.series
    def daily_deaths(self, now: People, events: dz.rng.Events) -> Tensor:
        """Deaths of the step: expected ones, or those drawn where deaths are sampled."""
        if self.sample_deaths:
            return events["died"].sum().to(torch.float32)
        return self.mortality * now.exposed.total(self.first_step_after(now), self.origin)

    def _in_stage(self, now: People, stage: int) -> Tensor:
        return now.exposed.total((self.stages(now.time.dt) == stage).to(torch.float32), self.origin)

    @dz.series
    def susceptible(self, now: People) -> Tensor:
        """Susceptible at the end of the step."""
        return now.exposed.count_never().to(torch.float32)

    @dz.series
    def exposed(self, now: People) -> Tensor:
        """Exposed, not yet infected, at the end of the step."""
        return self._in_stage(now, 1)

    @dz.series
    def infected(self, now: People) -> Tensor:
        """Infected at the end of the step."""
        return self._in_stage(now, 2)

    @dz.series
    def dead(self, now: People) -> Tensor:
        """Dead at the end of the step (0 where deaths are expected values, not draws)."""
        return now.dead.sum().to(torch.float32) if self.sample_deaths else torch.zeros_like(self.mortality)

    @dz.series
    def recovered(self, now: People) -> Tensor:
        """Recovered at the end of the step."""
        others = self.susceptible(now) + self.exposed(now) + self.infected(now) + self.dead(now)
        return self.group.numel() - others
