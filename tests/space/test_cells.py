"""Sums of agents over the cells of a grid, and values of cells for agents, beside loops over agents."""

import math

import pytest
import torch

from denizen.errors import ModelError
from denizen.space import Grid

GRID = Grid((5, 7), torus=False, neighbours="von_neumann", radius=2)
CELL = torch.tensor([3, 3, 34, 0, 12, 3, 20], dtype=torch.int32)
ALIVE = torch.tensor([1, 0, 1, 1, 1, 1, 0], dtype=torch.int8)


def test_occupants_count_who_is_alive():
    for alive in (None, ALIVE):
        expected = [0] * GRID.num_cells
        for agent, cell in enumerate(CELL.tolist()):
            expected[cell] += 1 if alive is None else int(alive[agent])
        counted = GRID.occupants(CELL, alive)
        assert counted.tolist() == expected
        assert counted.dtype == torch.int32


def test_sums_are_exact_and_free_of_order():
    generator = torch.Generator().manual_seed(0)
    cell = torch.randint(0, 35, (4000,), generator=generator)
    real, whole = torch.rand(4000, generator=generator) * 3, torch.randint(-9, 9, (4000,), generator=generator)
    order = torch.randperm(4000, generator=generator)
    total = GRID.per_cell(cell, real, max=3)
    assert total.equal(GRID.per_cell(cell[order], real[order], max=3))
    exact = torch.zeros(35, dtype=torch.float64).index_add(0, cell, real.double())
    assert total.equal(exact.float())
    assert GRID.per_cell(cell, whole).equal(torch.zeros(35, dtype=torch.int64).index_add(0, cell, whole))


def test_one_agent_outside_spoils_all_sums_unless_it_does_not_count():
    cell, alive = torch.tensor([1, 35, -1]), torch.tensor([1, 0, 0])
    assert (GRID.occupants(cell) == -1).all()
    assert (GRID.per_cell(cell, torch.ones(3, dtype=torch.int8)) == -(2**31)).all()
    assert GRID.per_cell(cell, torch.ones(3), max=1).isnan().all()
    assert int(GRID.occupants(cell, alive).sum()) == 1


@pytest.mark.parametrize("wrong", [4.5, -4.5, float("nan"), float("inf")])
def test_a_value_beyond_its_bound_makes_sums_nan(wrong):
    values = torch.tensor([1.0, wrong, 1.0])
    assert GRID.per_cell(torch.tensor([1, 2, 3]), values, max=4).isnan().all()
    assert float(GRID.per_cell(torch.tensor([1, 2, 3]), values, torch.tensor([1, 0, 1]), max=4).sum()) == 2.0


def test_at_and_empty_neighbours():
    field = torch.arange(35, dtype=torch.int8)
    assert GRID.at(field, torch.tensor([[3, -1], [34, 35]]), outside=99).tolist() == [[3, 99], [34, 99]]
    grid = Grid((3, 3), torus=False)
    occupied = grid.occupants(torch.tensor([1]))
    assert grid.empty_neighbours(occupied, torch.tensor([0])).tolist() == [[0, 0, 0, 0, 0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: GRID.occupants([1, 2]), "cell is list .1, 2., expected a tensor"),
        (lambda: GRID.occupants(torch.zeros(3, 2)), r"cell has shape \(3, 2\), expected \(agents,\).*grid.cell\(row"),
        (lambda: GRID.occupants(CELL, torch.ones(3)), r"alive has shape \(3,\), expected \(7,\)"),
        (lambda: GRID.per_cell(CELL, torch.ones(3), max=1), r"values has shape \(3,\), expected \(7,\)"),
        (lambda: GRID.per_cell(CELL, torch.ones(7)), "values are real numbers, expected a bound"),
        (lambda: GRID.at(torch.ones(5, 7), CELL), r"field has shape \(5, 7\), expected \(35,\)"),
        (lambda: GRID.at(3, CELL), r"field is 3, expected \(35,\)"),
        (lambda: Grid((5000, 5000)).occupants(CELL.float()), "does not tell 25,000,000 cells apart"),
    ],
)
def test_wrong_arguments_are_told(call, told):
    with pytest.raises(ModelError, match=told):
        call()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.float32])
def test_cells_of_any_kind_have_the_same_neighbours(dtype):
    """Numbers of one byte hold neither a side of 200 nor, without a sign, the way back from row 0."""
    for torus in (True, False):
        grid, cell = Grid((3, 200), torus=torus), torch.tensor([5, 0, 127])
        assert torch.equal(grid.neighbour_cells(cell.to(dtype)), grid.neighbour_cells(cell))
        assert torch.equal(grid.shift(cell.to(dtype), (-1, 3)), grid.shift(cell, (-1, 3)))
        row, column = torch.tensor([2, 0]), torch.tensor([100, 3])
        assert grid.cell(row.to(dtype), column.to(dtype)).tolist() == [500, 3]


def test_points_lie_in_cells():
    grid = Grid((10, 10), torus=False)
    row, column = torch.tensor([3.7, 0.0, -0.2, math.nan]), torch.tensor([2.5, 9.9, 1.0, 1.0])
    assert grid.cell(row, column).tolist() == [32, 9, -1, -1]
    assert Grid((10, 10)).cell(row, column).tolist() == [32, 9, 91, -1]
    field = torch.arange(100.0)
    assert grid.at(field, torch.tensor([7.0, 7.5, math.nan]), outside=-1).tolist() == [7, -1, -1]


def test_sums_of_cells_carry_gradient():
    grid, cell = Grid((3, 3)), torch.tensor([0, 4, 4, 8])
    values = torch.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
    alive = torch.tensor([1, 1, 1, 0])
    total = grid.per_cell(cell, values, alive, max=1.0)
    assert torch.equal(total, grid.per_cell(cell, values.detach(), alive, max=1.0))
    (total * torch.arange(9.0)).sum().backward()
    assert values.grad.tolist() == [0.0, 4.0, 4.0, 0.0]
