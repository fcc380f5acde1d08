"""The geometry of a grid: numbers of cells, coordinates, borders, neighbours in canonical order."""

import itertools

import pytest
import torch
from torch.utils import _pytree as pytree

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.space import Grid

GRIDS = [
    Grid((4, 5)),
    Grid((4, 5), torus=False),
    Grid((6, 7), neighbours="von_neumann", radius=2),
    Grid((6, 7), torus=False, radius=2),
    Grid((3, 4, 5), neighbours="von_neumann"),
    Grid((3, 4, 5), torus=False),
    Grid((9,)),
]


def by_hand(grid: Grid, cell: int) -> list[int]:
    """Neighbours from coordinates, written out."""
    places = list(itertools.product(*map(range, grid.shape)))
    found = []
    for step in itertools.product(range(-grid.radius, grid.radius + 1), repeat=len(grid.shape)):
        near = sum(map(abs, step)) <= grid.radius or grid.neighbours == "moore"
        if not any(step) or not near:
            continue
        at = [place + by for place, by in zip(places[cell], step, strict=True)]
        if grid.torus:
            at = [place % side for place, side in zip(at, grid.shape, strict=True)]
        found.append(places.index(tuple(at)) if tuple(at) in places else -1)
    return found


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_neighbours_are_those_counted_by_hand(grid):
    cells = grid.neighbour_cells(torch.arange(grid.num_cells))
    assert cells.shape == (grid.num_cells, len(grid.offsets))
    assert cells.tolist() == [by_hand(grid, cell) for cell in range(grid.num_cells)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_coordinates_lead_back_to_the_cell(grid):
    cells = torch.arange(grid.num_cells)
    assert grid.cell(*grid.coordinates(cells)).equal(cells)
    assert [place.tolist() for place in grid.coordinates(cells)] == [
        list(axis) for axis in zip(*itertools.product(*map(range, grid.shape)), strict=True)
    ]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_no_cell_has_no_neighbours(grid):
    assert (grid.neighbour_cells(torch.tensor([-1], dtype=torch.int32)) == -1).all()


def test_offsets_are_in_canonical_order():
    assert Grid((5, 5), neighbours="von_neumann").offsets == ((-1, 0), (0, -1), (0, 1), (1, 0))
    for grid in GRIDS:
        assert list(grid.offsets) == sorted(grid.offsets)


def test_a_grid_is_static_in_trees():
    grid = Grid((4, 5))
    leaves, structure = pytree.tree_flatten({"grid": grid})
    assert leaves == []
    assert pytree.tree_unflatten(leaves, structure)["grid"] == grid == Grid([4, 5])
    assert dz.space.Grid is Grid


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"shape": 5}, "shape=5, expected"),
        ({"shape": (5, 5, 5, 5)}, r"shape=\(5, 5, 5, 5\), expected"),
        ({"shape": (5, 0)}, r"shape\[1\]=0, expected a whole number, at least 1"),
        ({"shape": (2**20, 2**20)}, "more than 2,147,483,647 cells"),
        ({"shape": (5, 5), "neighbours": "more"}, "neighbours='more', did you mean 'moore'"),
        ({"shape": (5, 5), "radius": 0}, "radius=0, expected a whole number, at least 1"),
        ({"shape": (5, 5), "radius": 3}, "radius=3 on a torus.*at most 2"),
        ({"shape": (5, 5), "radius": 5, "torus": False}, "radius=5.*less than the longest side"),
        ({"shape": (5, 5), "torus": 1}, "torus=1, expected True or False"),
    ],
)
def test_what_cannot_be_a_grid_is_refused(arguments, told):
    with pytest.raises(InputError, match=told):
        Grid(**arguments)


def test_another_number_of_axes_is_refused():
    grid, cells = Grid((4, 5)), torch.arange(3)
    with pytest.raises(ModelError, match="got 1 coordinates, expected 2"):
        grid.cell(cells)
    with pytest.raises(ModelError, match="expected 2 numbers on shape"):
        grid.shift(cells, (1,))
