"""A model, makers of it, one that is ready, and what is none."""

import torch
from torch import Tensor

import denizen as dz


class People(dz.State):
    ill: Tensor = dz.mask("agents")


class Epidemic(dz.Model):
    """Illness that spreads along contacts."""

    contacts: dz.Graph
    infect_rate: Tensor = dz.param(0.05, low=0.0, unit="1/contact/day", about="from one contact")
    waves: int = 1

    def init(self, rng):
        return People(ill=rng.bernoulli("seed", torch.tensor(0.1)))

    def step(self, now, rng):
        caught = rng.event("catch", self.infect_rate * self.contacts.sum(now.ill)) * (1 - now.ill)
        return now.replace(ill=now.ill + caught)

    @dz.series
    def sick(self, now):
        return now.ill.sum()


def town(contacts: dz.Graph, rate: float = 0.1):
    return Epidemic(contacts, infect_rate=rate)


ready = Epidemic(dz.Graph.from_edges([0, 1, 2], [1, 2, 0]))
number = 3


def nothing():
    return number


def raises():
    raise ValueError("no town")
