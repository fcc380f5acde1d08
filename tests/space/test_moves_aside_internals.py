"""The quick way to a random neighbour draws what looking at all of them draws."""

import pytest
import torch

from denizen.rng import Rng
from denizen.space import Grid


@pytest.mark.parametrize(("shape", "radius"), [((5, 7), 1), ((7, 6), 2), ((9,), 3), ((3, 4, 5), 1)])
def test_the_quick_way_draws_the_same(shape: tuple[int, ...], radius: int) -> None:
    grid = Grid(shape, radius=radius)
    cell = torch.arange(grid.num_cells).repeat(20)
    rngs = [Rng(torch.tensor([1, 0]), torch.tensor(0), num=cell.numel()) for _ in range(2)]
    everywhere = torch.ones(grid.num_cells, dtype=torch.int8)
    quick, slow = grid.random_neighbour(cell, rngs[0]), grid.random_neighbour(cell, rngs[1], where=everywhere)
    assert torch.equal(quick, slow)
    assert not bool((quick == cell).any())
