"""Models that several tests of fits take, and Ctrl-C in the midst of a calibration."""

import os
from typing import Any

import pytest
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


class DullRain(Rain):
    """With a number that nothing depends on."""

    dull: Tensor = dz.param(1.0, low=0.0)

    @dz.series
    def wet(self, now: Any) -> Tensor:
        return now.wet.sum() + 0 * self.dull


def fenced(days: float) -> type[SIR]:
    """An SIR model that cannot stand fewer days of infection."""

    class Fenced(SIR):
        def fits(self, dt: float) -> None:
            super().fits(dt)
            if self.infectious_days < days:
                raise InputError(f"Fenced: infectious_days below {days}")

    return Fenced


def interrupt_at_launch(number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have Ctrl-C pressed where a calibration keeps its launch of this number; how many bytes each of them takes."""
    plain, kept = os.pwrite, []

    def pwrite(descriptor: int, data: Any, at: int) -> int:
        kept.append(len(data))
        if len(kept) == number:
            raise KeyboardInterrupt
        return plain(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return kept
