"""A model whose device fails in a step, while there is a file of that name."""

from pathlib import Path

import torch
from torch import Tensor

import denizen as dz

BROKEN = Path("broken.txt")


class People(dz.State):
    ill: Tensor = dz.mask("agents")


class Flu(dz.Model):
    """A flu that goes around."""

    num_agents: int = 30

    def init(self, rng):
        return People(ill=torch.zeros(self.num_agents, dtype=torch.bool))

    def step(self, now, rng):
        if BROKEN.exists():
            steps = int(BROKEN.read_text())
            BROKEN.write_text(str(steps - 1))
            if not steps:
                raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore words")
        return now.replace(ill=now.ill | rng.bernoulli("ill", 0.1))

    @dz.series
    def sick(self, now):
        return now.ill.sum()
