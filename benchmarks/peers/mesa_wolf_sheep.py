"""Wolf-sheep with Mesa, by the rules of denizen.zoo.wolf_sheep: sheep in random order, then wolves, then grass."""

# ruff: noqa: D101, D102

import mesa
import numpy as np
from _worker import serve
from mesa.discrete_space import CellAgent, OrthogonalMooreGrid

rules = {}


class Animal(CellAgent):
    def __init__(self, model, energy, cell):
        super().__init__(model)
        self.energy, self.cell = energy, cell

    def step(self):
        self.cell = self.cell.neighborhood.select_random_cell()
        self.energy -= 1
        self.eat()
        if self.energy < 0:
            self.remove()
        elif self.random.random() < self.birth:
            self.energy /= 2
            type(self)(self.model, self.energy, self.cell)


class Sheep(Animal):
    @property
    def birth(self):
        return rules["sheep_birth"]

    def eat(self):
        if self.model.growing[self.cell.coordinate] == 0:
            self.model.growing[self.cell.coordinate] = rules["regrow_steps"] + 1
            self.energy += 5


class Wolf(Animal):
    @property
    def birth(self):
        return rules["wolf_birth"]

    def eat(self):
        sheep = [one for one in self.cell.agents if isinstance(one, Sheep)]
        if sheep:
            self.random.choice(sheep).remove()
            self.energy += 13


class Meadow(mesa.Model):
    def __init__(self, seed):
        super().__init__(rng=seed)
        side = rules["side"]
        self.grid = OrthogonalMooreGrid((side, side), torus=True, capacity=None, random=self.random)
        half = np.random.default_rng(seed)
        grown = half.integers(0, 2, (side, side))
        self.growing = (1 - grown) * half.integers(1, rules["regrow_steps"] + 1, (side, side))
        cells = self.grid.all_cells.cells
        for kind, number, gain in ((Sheep, rules["sheep"], 5), (Wolf, rules["wolves"], 13)):
            for _ in range(number):
                kind(self, self.random.random() * 2 * gain, self.random.choice(cells))

    def step(self):
        for kind in (Sheep, Wolf):
            if kind in self.agents_by_type:
                self.agents_by_type[kind].shuffle_do("step")
        np.maximum(self.growing - 1, 0, out=self.growing)


def setup(**given):
    rules.update(given)


def run(steps, seed):
    model = Meadow(seed)
    numbers = []

    def work():
        for _ in range(steps):
            model.step()
            counts = [len(model.agents_by_type.get(kind, ())) for kind in (Sheep, Wolf)]
            numbers.append([*counts, int((model.growing == 0).sum())])
        return numbers

    return work, lambda numbers: {"numbers": numbers}


if __name__ == "__main__":
    serve(setup, run, {"mesa": mesa.__version__})
