"""Two strains that compete for the same people: nobody has both at once, and each protects from the other in part."""

import math

import torch
from torch import Tensor

import denizen as dz
from denizen.disease import CrossImmunity, compete, independent, sums
from denizen.model import number
from denizen.zoo._contacts import check_duration, check_schedules


class People(dz.State):
    """Who is ill with which strain, and immune from which."""

    ill: Tensor = dz.mask("agents", "strains")
    immune: Tensor = dz.mask("agents", "strains")


class Strains(dz.Model):
    """Each ill contact infects at the rate of its strain, lowered by what immunity from either strain protects.

    Who recovers is immune from the strain that they had. Immunity from each strain wanes by itself, at a constant rate.
    Infection, recovery and waning are decided from the start of the step; which of two strains somebody catches, by
    competing hazards.
    """

    time_unit = "day"

    contacts: dz.Graph | dz.space.Layers | dz.space.Mixing | dz.space.Grid
    infect_rate: Tensor = dz.param([0.05, 0.035], low=0.0, unit="1/contact/day", about="of each strain")
    infectious_days: Tensor = dz.param([7.0, 7.0], low=0.01, unit="day", about="mean time until recovery, of each")
    immune_days: Tensor = dz.param([60.0, 60.0], low=0.01, unit="day", about="mean time that immunity lasts, of each")
    protection: Tensor = dz.param([0.4, 0.4], low=0.0, high=1.0, about="from the other strain, by immunity from each")
    seed_share: Tensor = dz.param([0.01, 0.01], low=0.0, high=0.5, learnable=False, about="ill on arrival, of each")
    arrival_day: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number("strains", "arrival_day", self.arrival_day, 0)

    @property
    def cross_immunity(self) -> CrossImmunity:
        """Full protection from the strain that one had, and some from the other."""
        full = torch.ones_like(self.protection[0])
        rows = (torch.stack([full, self.protection[0]]), torch.stack([self.protection[1], full]))
        return CrossImmunity(torch.stack(rows))

    def fits(self, dt: float) -> None:
        """Refuse an illness that is shorter than a step, and schedules by the step where a step is no day."""
        check_duration("infectious", self.infectious_days, 1, dt)
        check_schedules(self.contacts, dt)

    def init(self, rng: dz.rng.Rng) -> People:
        """Infect a random share with the first strain."""
        first = rng.bernoulli("seed", self.seed_share[0])
        ill = torch.stack([first, torch.zeros_like(first)], dim=1)
        return People(ill=ill, immune=0 * ill)

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection, recovery, waning, and the arrival of the second strain."""
        well = 1 - now.ill.sum(dim=1).to(now.ill.dtype)
        pressure = sums(self.contacts, now.ill, needed=well, step=now.time.step)
        hazards = self.infect_rate * pressure * self.cross_immunity.factor(now.immune)
        caught = well[:, None] * compete(rng, "catch", hazards, where=well)
        rng.record("caught", caught)
        begins = now.time.step == math.ceil(self.arrival_day / now.time.dt - 1e-9)  # as `During(days=…)` begins
        arrived = well * rng.bernoulli("arrive", self.seed_share[1] * begins, where=well) * (1 - caught.sum(dim=1))
        arrived = torch.stack([torch.zeros_like(arrived), arrived], dim=1).to(now.ill.dtype)
        leave = (now.ill * (now.time.dt / self.infectious_days)).sum(dim=1)
        healed = now.ill * rng.bernoulli("heal", leave, where=1 - well)[:, None]
        waned = now.immune * independent(rng, "wane", now.immune / self.immune_days, where=now.immune)
        immune = now.immune - waned
        return now.replace(ill=now.ill + caught + arrived - healed, immune=immune + healed * (1 - immune))

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        """New infections in the step, of both strains."""
        return events["caught"].sum()

    @dz.series
    def first(self, now: People) -> Tensor:
        """Ill with the first strain at the end of the step."""
        return now.ill[:, 0].sum()

    @dz.series
    def second(self, now: People) -> Tensor:
        """Ill with the second strain at the end of the step."""
        return now.ill[:, 1].sum()

    @dz.series
    def immune(self, now: People) -> Tensor:
        """Immune from at least one strain at the end of the step, the ill included."""
        return (1 - (1 - now.immune[:, 0]) * (1 - now.immune[:, 1])).sum()
