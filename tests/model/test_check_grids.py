"""`dz.check` finds at its line what newcomers write on a grid."""

import inspect

import pytest
import torch

import denizen as dz
from denizen.space import Grid


class Field(dz.State):
    heat: torch.Tensor = dz.real("cells")
    cell: torch.Tensor = dz.count("agents")


class Base(dz.Model):
    """A model without fault; each bad one below replaces `step`."""

    grid: Grid = Grid((5, 6))
    num_agents: int = 4

    def init(self, rng):
        return Field(
            heat=rng.on("cells", self.grid.num_cells).uniform("heat"),
            cell=rng.integers("cell", 0, self.grid.num_cells).to(torch.int32),
        )

    def step(self, now, rng):
        left = self.grid.beside(now.heat, (0, -1))
        up = torch.roll(now.heat, 6)
        row, column = self.grid.coordinates(now.cell)
        cell = self.grid.cell((row - 1) % 5, column)
        return now.replace(heat=0.5 * left + 0.25 * up + 0.25 * self.grid.mean(now.heat), cell=cell)

    @dz.series
    def total(self, now):
        return now.heat.sum() + now.cell.sum()


class Square(Base):
    def step(self, now, rng):
        around = self.grid.sum(now.heat.reshape(5, 6))  # BAD
        return now.replace(heat=around / 8)


class Flat(Base):
    def step(self, now, rng):
        left = torch.roll(now.heat, 1)  # BAD
        return now.replace(heat=0.5 * (now.heat + left))


class Closed(Base):
    grid: Grid = Grid((5, 6), torus=False)

    def step(self, now, rng):
        up = now.heat.reshape(self.grid.shape).roll(1, 0).flatten()  # BAD
        return now.replace(heat=0.5 * (now.heat + up))


class Sign(Base):
    def step(self, now, rng):
        row, column = self.grid.coordinates(now.cell)
        cell = torch.fmod(row - 1, 5) * 6 + column  # BAD
        return now.replace(cell=cell.clamp(min=0))


class Item(Base):
    def step(self, now, rng):
        here = now.heat[int(now.cell[0])].item()  # BAD
        return now.replace(heat=now.heat * 0.9 + 0.1 * here)


FOUND = {
    Square: ("shapes", "flat, row by row"),
    Flat: ("grid", "the last cell of each row moves into the next row"),
    Closed: ("grid", "border of a closed grid"),
    Sign: ("grid", "fmod keeps the sign"),
    Item: ("host read", "reads a value on the host"),
}


def test_the_model_without_fault_passes():
    report = dz.check(Base())
    assert report.ok, str(report)


@pytest.mark.parametrize("model", FOUND, ids=lambda model: model.__name__)
def test_each_mistake_is_found_at_its_line(model):
    report = dz.check(model(), gradient=False)
    lines, start = inspect.getsourcelines(model)
    bad = start + next(k for k, line in enumerate(lines) if "# BAD" in line)
    rule, told = FOUND[model]
    (finding,) = report.findings
    assert (finding.rule, finding.line.number) == (rule, bad)
    assert told in f"{finding.what} {finding.instead}"
