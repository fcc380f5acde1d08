"""What newcomers to cells get wrong, and what they are told: by the check with the line, by a run with one line."""

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import ModelError
from denizen.space import Grid


class Walkers(dz.State):
    cell: Tensor = dz.count("agents")
    alive: Tensor = dz.mask("agents")


class Walk(dz.Model):
    """Right: everybody to a free neighbouring cell."""

    grid: Grid
    num_agents: int = 12

    def init(self, rng) -> Walkers:
        cell = self.grid.to_empty(None, None, rng)
        return Walkers(cell=cell, alive=torch.ones_like(cell, dtype=torch.int8))

    def step(self, now: Walkers, rng) -> Walkers:
        target = self.grid.random_neighbour(now.cell, rng, where=self.grid.occupants(now.cell) == 0)
        return now.replace(cell=self.grid.settle(now.cell, target, rng))


class Twice(Walk):
    """Two moves in a step with the same draws."""

    def step(self, now: Walkers, rng) -> Walkers:
        first = self.grid.settle(now.cell, self.grid.shift(now.cell, (0, 1)), rng)
        return now.replace(cell=self.grid.settle(first, self.grid.shift(first, (1, 0)), rng))  # wrong


class WrongAxis(Walk):
    """The draws of cells for the moves of agents."""

    def step(self, now: Walkers, rng) -> Walkers:
        cells = rng.on("cells", self.grid.num_cells)
        return now.replace(cell=self.grid.settle(now.cell, self.grid.shift(now.cell, (0, 1)), cells))  # wrong


class Coordinates(Walk):
    """Rows and columns in place of the numbers of cells."""

    def step(self, now: Walkers, rng) -> Walkers:
        places = torch.stack(self.grid.coordinates(now.cell), dim=1)
        return now.replace(cell=now.cell + 0 * self.grid.occupants(places).sum())  # wrong


class Square(Walk):
    """A field with the shape of the grid."""

    def step(self, now: Walkers, rng) -> Walkers:
        height = torch.zeros(self.grid.shape, device=now.cell.device)
        return now.replace(cell=now.cell * (self.grid.at(height, now.cell) == 0))  # wrong


class Crowded(Walk):
    """Everybody begins in one cell, which has room for one."""

    def init(self, rng) -> Walkers:
        cell = torch.zeros_like(self.grid.to_empty(None, None, rng))
        return Walkers(cell=cell, alive=torch.ones_like(cell, dtype=torch.int8))


class Beyond(Walk):
    """A cell that is counted from 1."""

    def step(self, now: Walkers, rng) -> Walkers:
        last = torch.full_like(now.cell, self.grid.num_cells)
        return now.replace(cell=self.grid.settle(now.cell, last, rng))


class Outside(Walk):
    """Agents who begin outside, as free places of agents may where `alive=` is forgotten."""

    def init(self, rng) -> Walkers:
        cell = self.grid.to_empty(None, None, rng) + self.grid.num_cells
        return Walkers(cell=cell, alive=torch.ones_like(cell, dtype=torch.int8))


MISTAKES = {
    Twice: "used twice in one step",
    WrongAxis: "expected the rng of the agents",
    Coordinates: "cell has shape (12, 2), expected (agents,)",
    Square: "field has shape (5, 6), expected (30,), one value for each cell, row by row",
}


def wrong_line(model: type) -> int:
    lines, first = inspect.getsourcelines(model)
    return first + next(k for k, line in enumerate(lines) if "# wrong" in line)


@pytest.mark.parametrize("model", MISTAKES, ids=lambda model: model.__name__)
def test_the_check_tells_the_line_of_a_mistake(model):
    report = dz.check(model(Grid((5, 6))), gradient=False)
    assert not report.ok
    told = str(report)
    assert f"{Path(__file__).name}:{wrong_line(model)}" in told
    assert MISTAKES[model] in told


FAULTS = {
    Crowded: r"grid: settle was given a cell with more agents than capacity=1; spread the agents in init, with "
    r"grid\.to_empty\(None, None, rng\), or raise the capacity",
    Beyond: r"grid: settle was given a target beyond its 30 cells; expected numbers of cells, or -1 to stay",
    Outside: r"grid: settle was given an agent outside its 30 cells; .*give alive= where",
}


@pytest.mark.parametrize("model", FAULTS, ids=lambda model: model.__name__)
def test_a_run_stops_at_what_cannot_be(model):
    with pytest.raises(ModelError, match=FAULTS[model]) as stop:
        dz.simulate(model(Grid((5, 6))), 3, compile=False)
    assert "\n" not in str(stop.value)


def test_more_agents_than_cells_are_refused_at_once():
    with pytest.raises(ModelError, match=r"31 agents for 30 places \(shape \(5, 6\), capacity=1\), expected"):
        dz.simulate(Walk(Grid((5, 6)), num_agents=31), 1, compile=False)


def test_what_is_right_runs():
    run = dz.simulate(Walk(Grid((5, 6))), 5, replicates=2, compile=False)
    assert all(cells.unique().numel() == 12 for cells in run.state.cell)
