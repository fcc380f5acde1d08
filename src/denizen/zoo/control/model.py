"""Epidemic control: close and vaccinate, a week at a time, in a city that runs the COVID model itself."""

import dataclasses
from typing import Any, Self

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import Time, own, whole
from denizen.zoo.covid.model import Covid, People

DAYS = 7
CLOSURES, SHOTS = 3, 2
PERCENT = 100.0


class City(dz.State):
    """Everybody's course of infection, the share that is protected, and the figures of the last week."""

    exposed: dz.model.History = dz.history("agents")
    dead: Tensor = dz.mask("agents")
    protected: Tensor = dz.real()
    cases: Tensor = dz.real()
    closure: Tensor = dz.real()
    campaign: Tensor = dz.real()


class EpidemicControl(dz.Env):
    """Each week choose a closure (0, 1, 2) and whether to vaccinate: action = 2 * closure + vaccinate.

    A closure scales transmission by 1 - `closure_effect` * closure. A campaign protects `shots` of the population more
    (a leaky vaccine, the same for all: susceptibility is scaled by the share that is left). The reward of a week is
    minus the sum of its costs, all in percent of the population infected: infections, `closure_cost` for a step of
    closure, `campaign_cost` for a campaign.

    The model within is an ordinary `Covid`, as `simulate` takes it.
    """

    model: Covid
    closure_effect: Tensor = dz.param(0.35, low=0.0, high=0.5, learnable=False, about="transmission lost by a step")
    closure_cost: Tensor = dz.param(0.5, low=0.0, learnable=False, about="of a step of closure for a week")
    campaign_cost: Tensor = dz.param(0.3, low=0.0, learnable=False, about="of a week's campaign")
    shots: Tensor = dz.param(0.06, low=0.0, high=1.0, learnable=False, about="share protected by a week's campaign")
    weeks: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("control", "weeks", self.weeks, 1)
        if self.model.interventions:
            raise InputError(
                "control: the model within has interventions (ask=), which would not act; build it without"
            )

    @property
    def num_agents(self) -> int:
        """Those of the city."""
        return self.model.num_agents

    @property
    def time_limit(self) -> int:
        """`weeks`."""
        return self.weeks

    @property
    def action_space(self) -> dz.rl.Discrete:
        """Closure times campaign."""
        return dz.rl.Discrete(CLOSURES * SHOTS)

    @property
    def observation_space(self) -> dz.rl.Box:
        """Percent infected last week, percent infectious, share protected, closure, campaign, share of the time."""
        return dz.rl.Box(0.0, torch.inf, (6,))

    def to(self, device: torch.device | str) -> Self:
        """On a device, the city included."""
        return dataclasses.replace(super().to(device), model=self.model.to(device))  # type: ignore[type-var]

    def init(self, rng: dz.rng.Rng) -> City:
        """As the population says, nobody protected."""
        people = self.model.init(rng)
        none = torch.zeros((), device=self.closure_cost.device)
        return City(exposed=people.exposed, dead=people.dead, protected=none, cases=none, closure=none, campaign=none)

    def step(self, now: City, action: Tensor, rng: dz.rng.Rng) -> City:
        """Seven days of the COVID model."""
        closure, campaign = (action // SHOTS).to(torch.float32), (action % SHOTS).to(torch.float32)
        protected = (now.protected + campaign * self.shots).clamp(max=1.0)
        model = self.model.with_values(
            {
                "R": self.model.R * (1 - self.closure_effect * closure),
                "susceptibility": self.model.susceptibility * (1 - protected),
            }
        )
        people: Any = People(exposed=now.exposed, dead=now.dead)
        cases = torch.zeros_like(now.cases)
        for day in range(DAYS):
            before = own(people, Time(now.time.step * DAYS + day, 1.0, "day"), now.id)
            people = model.step(before, rng["day", day])
            cases = cases + model.daily_infected(before, people)
        return now.replace(
            exposed=people.exposed,
            dead=people.dead,
            protected=protected,
            cases=self._percent(cases),
            closure=closure,
            campaign=campaign,
        )

    def _percent(self, count: Tensor) -> Tensor:
        return count * (PERCENT / self.num_agents)

    def observe(self, now: City) -> Tensor:
        """What an authority knows: float32 `[6]`."""
        people: Any = own(People(exposed=now.exposed, dead=now.dead), Time(now.time.step * DAYS, 1.0, "day"), now.id)
        infectious = self._percent(self.model.infected(people))
        time = now.time.step / self.weeks
        return torch.stack([now.cases, infectious, now.protected, now.closure, now.campaign, time])

    def reward(self, before: City, action: Tensor, now: City) -> Tensor:
        """Minus the costs of the week, in percent of the population infected."""
        return -(now.cases + self.closure_cost * now.closure + self.campaign_cost * now.campaign)

    def terminated(self, now: City) -> Tensor:
        """Never: the last week ends it."""
        return torch.zeros((), dtype=torch.bool, device=now.cases.device)

    @dz.series
    def infections(self, before: City, now: City) -> Tensor:
        """Percent infected within the week."""
        return now.cases

    def draw(self, now: City) -> list[str]:
        """A line for each number."""
        bar = "#" * int(min(60.0, float(now.cases) * 3))
        return [
            f"week {int(now.time.step):2d}  infected {float(now.cases):5.2f} %  {bar}",
            f"closure {int(now.closure)}  campaign {int(now.campaign)}  protected {float(now.protected):.0%}",
        ]
