"""Structures of an author's own: fields of models that move with them, are seen by vmap and stand in the manifest."""

import dataclasses

import torch
from torch import Tensor

import denizen as dz


@dataclasses.dataclass(frozen=True, eq=False)
class Weather(dz.space.Structure):
    rain: Tensor
    station: dz.space.Structure | None = None
    unit: str = "mm"

    @property
    def num_agents(self) -> int:
        return self.rain.numel()


class Field(dz.State):
    water: Tensor = dz.real("agents")


class Farm(dz.Model):
    weather: Weather

    def init(self, rng) -> Field:
        return Field(water=torch.zeros_like(self.weather.rain))

    def step(self, now: Field, rng) -> Field:
        return now.replace(water=now.water + self.weather.rain)

    @dz.series
    def total(self, now: Field):
        return now.water.sum()


def test_a_model_holds_a_structure():
    farm = Farm(Weather(torch.tensor([1.0, 2.0]), station=Weather(torch.ones(1))))
    assert farm.num_agents == 2
    run = dz.simulate(farm, steps=3, replicates=2, compile=False)
    assert run["total"].tolist() == [[3.0, 6.0, 9.0]] * 2
    assert dz.check(farm, steps=2).ok


def test_its_tensors_move_and_the_rest_stays():
    there = Farm(Weather(torch.ones(2), station=Weather(torch.ones(1)))).to("meta").weather
    assert (there.rain.device.type, there.station.rain.device.type, there.unit) == ("meta", "meta", "mm")
