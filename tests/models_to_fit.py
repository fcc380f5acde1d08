"""Models that several tests of fits take."""

from typing import Any

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.sir import SIR


class Wet(dz.State):
    """Who is wet."""

    wet: Tensor = dz.mask("agents")


class Rain(dz.Model):
    """Some of many get wet in every step, at a rate that changes every few."""

    rate: Tensor = dz.param([0.5, 0.5, 0.5], low=0.0, any_length="times")
    num_agents: int = 400
    every: int = 2

    def init(self, rng: dz.rng.Rng) -> Wet:
        return Wet(wet=rng.bernoulli("wet", torch.zeros(400, device=self.rate.device)))

    def step(self, now: Any, rng: dz.rng.Rng) -> Wet:
        rate = self.rate.index_select(0, (now.time.step // self.every).clamp(max=len(self.rate) - 1)[None])[0]
        return now.replace(wet=rng.event("rain", rate.expand(400)))

    @dz.series
    def wet(self, now: Any) -> Tensor:
        return now.wet.sum()


def fenced(days: float) -> type[SIR]:
    """An SIR model that cannot stand fewer days of infection."""

    class Fenced(SIR):
        def fits(self, dt: float) -> None:
            super().fits(dt)
            if self.infectious_days < days:
                raise InputError(f"Fenced: infectious_days below {days}")

    return Fenced
