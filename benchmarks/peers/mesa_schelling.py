"""Schelling with Mesa, by the rules of JuliaDynamics' ABMFrameworksComparison, on Mesa's grid of cells."""

# ruff: noqa: D101, D102

import mesa
from _worker import serve
from mesa.discrete_space import CellAgent, OrthogonalMooreGrid

town = {}


class Neighbour(CellAgent):
    def __init__(self, model, cell, second):
        super().__init__(model)
        self.cell, self.second = cell, second

    def alike(self):
        return sum(1 for other in self.cell.get_neighborhood(self.model.radius).agents if other.second == self.second)

    def step(self):
        if self.alike() < self.model.need:
            self.model.unhappy += 1
            self.cell = self.model.grid.select_random_empty_cell()


class Schelling(mesa.Model):
    def __init__(self, seed):
        super().__init__(rng=seed)
        self.radius, self.need, self.unhappy = town["radius"], town["need"], 0
        self.grid = OrthogonalMooreGrid((town["rows"], town["columns"]), torus=False, capacity=1, random=self.random)
        cells = self.random.sample(list(self.grid.all_cells), town["num_agents"])
        for number, cell in enumerate(cells):
            Neighbour(self, cell, number % 2)
        for cell in self.grid.all_cells:  # lists of neighbours are kept by Mesa once they have been asked for
            cell.get_neighborhood(self.radius)

    def step(self):
        self.unhappy = 0
        self.agents.shuffle_do("step")

    def segregation(self):
        alike = every = 0
        for agent in self.agents:
            alike += agent.alike()
            every += len(list(agent.cell.get_neighborhood(self.radius).agents))
        return alike / every


def setup(**options):
    town.update(options)


def run(first, steps, seed):
    model = Schelling(seed)
    for _ in range(first):
        model.step()

    def work():
        unhappy = []
        for _ in range(steps):
            model.step()
            unhappy.append(model.unhappy)
        return unhappy

    return work, lambda unhappy: {"unhappy": unhappy, "segregation": model.segregation()}


if __name__ == "__main__":
    serve(setup, run, {"mesa": mesa.__version__})
