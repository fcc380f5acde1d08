"""Sums of agents over the cells of a grid, and values of cells for agents, beside loops over agents."""

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
