"""Moves between cells: capacities hold, conflicts are settled fairly and free of order, choices follow their rules."""

import contextlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from denizen import ops
from denizen.errors import InputError, ModelError
from denizen.rng import Rng
from denizen.space import Grid

STEP = torch.tensor(3)


def rng_of(num: int, seed: int = 0, ids: Tensor | None = None) -> Rng:
    return Rng(torch.tensor([seed, 0]), STEP, num=num, ids=ids)


def in_worlds(worlds: int, agents: int, call, ids: Tensor | None = None) -> Tensor:
    """What `call(rng)` gives in each of many worlds."""
    keys = torch.stack([torch.zeros(worlds, dtype=torch.int64), torch.arange(worlds)], dim=1)
    return torch.vmap(lambda key: call(Rng(key, STEP, num=agents, ids=ids)))(keys)


def is_uniform(counts: Tensor, sigmas: float = 5.0) -> bool:
    """Chi-square of equally likely outcomes, within a band of its own spread."""
    expected = counts.sum() / counts.numel()
    statistic, free = float(((counts - expected) ** 2 / expected).sum()), counts.numel() - 1
    return abs(statistic - free) < sigmas * (2 * free) ** 0.5


@st.composite
def crowds(draw):
    """A grid, its capacity, agents within it, and where they want to go."""
    grid = Grid((draw(st.integers(3, 6)), draw(st.integers(3, 6))), torus=draw(st.booleans()))
    capacity = draw(st.integers(1, 3))
    agents = draw(st.integers(1, grid.num_cells * capacity))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(grid.num_cells * capacity, generator=generator)[:agents]
    target = torch.randint(-1, draw(st.integers(0, grid.num_cells - 1)) + 1, (agents,), generator=generator)
    alive = (torch.rand(agents, generator=generator) < 0.8).to(torch.int8) if draw(st.booleans()) else None
    return grid, capacity, slots // capacity, target, alive, seed


@settings(max_examples=60, deadline=None)
@given(crowds(), st.integers(1, 4), st.booleans())
def test_no_cell_ever_holds_more_than_its_capacity(crowd, rounds, by_cell):
    grid, capacity, cell, target, alive, seed = crowd
    room = torch.full((grid.num_cells,), capacity) if by_cell else capacity
    rng = rng_of(cell.numel(), seed)
    after = grid.settle(cell, target, rng, capacity=room, rounds=rounds, alive=alive)
    assert not any(bool(bad) for _, bad in rng._bad)
    assert int(grid.occupants(after, alive).max()) <= capacity
    assert ((after == cell) | (after == target)).all()
    if alive is not None:
        assert after[alive == 0].equal(cell[alive == 0])
    if rounds == 1:  # who wanted a cell and lost left no room there that was free before
        left = capacity - grid.occupants(cell, alive)
        wants = (target >= 0) & (target != cell) & (True if alive is None else alive != 0)
        asked, got = grid.occupants(target.clamp(min=0), wants), grid.occupants(after, wants & (after == target))
        assert got.equal(torch.minimum(asked, left))


@settings(max_examples=40, deadline=None)
@given(crowds(), st.booleans())
def test_moves_into_empty_places_are_a_matching(crowd, some):
    grid, capacity, cell, target, alive, seed = crowd
    who = (target % 2 == 0).to(torch.int8) if some else None
    rng = rng_of(cell.numel(), seed)
    after = grid.to_empty(cell, who, rng, capacity=capacity, alive=alive)
    assert int(grid.occupants(after, alive).max()) <= capacity
    there = torch.ones_like(cell) if alive is None else alive
    moving = there if who is None else there * who
    free = grid.num_cells * capacity - int(there.sum())
    assert after[moving == 0].equal(cell[moving == 0])
    moved, most = int((after != cell).sum()), min(free, int(moving.sum()))
    assert moved == most if capacity == 1 else moved <= most  # a larger cell may have been drawn for its own


def outcomes(crowd, rounds: int, ids: Tensor | None) -> list[Tensor]:
    """Everything that moves of a crowd give, in two worlds at once, and what they flag."""
    grid, capacity, cell, target, alive, seed = crowd
    room = torch.arange(grid.num_cells) % 2 + capacity

    def moves(key: Tensor) -> list[Tensor]:
        rng = Rng(key, STEP, num=cell.numel(), ids=ids)
        found = [
            grid.settle(cell, target, rng["one"], capacity=capacity, rounds=rounds, alive=alive),
            grid.settle(cell, target, rng["many"], capacity=room, rounds=rounds, alive=alive),
            grid.settle(cell - 1, target + 1, rng["wrong"], capacity=capacity, alive=alive),
            grid.to_empty(cell, target % 2, rng["some"], capacity=capacity, alive=alive),
            grid.to_empty(cell, None, rng["all"], capacity=capacity + 1, alive=alive),
            grid.to_empty(None, alive, rng["start"], capacity=capacity),
            grid.to_empty(cell - 1, None, rng["off"], capacity=capacity, alive=alive),
        ]
        return [*found, torch.stack([bad for _, bad in rng._bad])]

    both = torch.vmap(moves)(torch.tensor([[seed % 2**32, 0], [seed % 2**32, 1]]))
    flagged = both[-1].bool().any(dim=0)  # what a fault gives is not compared: it stops the run
    return [*both[:2], *([] if flagged[6:9].any() else both[2:3]), *both[3:6], both[-1]]


@settings(max_examples=40, deadline=None)
@given(crowds(), st.integers(1, 4), st.booleans())
def test_loops_of_the_cpu_give_what_plain_torch_gives(crowd, rounds, custom):
    agents = crowd[2].numel()
    ids = torch.randperm(1000, generator=torch.Generator().manual_seed(agents))[:agents] if custom else None
    fast = outcomes(crowd, rounds, ids)
    with ops.reference_only():
        plain = outcomes(crowd, rounds, ids)
    assert all(torch.equal(one, other) for one, other in zip(fast, plain, strict=True))


def test_loops_and_plain_torch_agree_on_a_large_crowd():
    grid, generator = Grid((60, 60)), torch.Generator().manual_seed(0)
    cell, target = (torch.randperm(3600, generator=generator)[:2500] for _ in range(2))
    found = []
    for reference in (False, True):
        with ops.reference_only() if reference else contextlib.nullcontext():
            rng = rng_of(2500, 7)
            found.append([grid.settle(cell, target // 2, rng, rounds=3), grid.to_empty(cell, None, rng)])
    assert found[0][0].equal(found[1][0])
    assert found[0][1].equal(found[1][1])
    assert int((found[0][1] != cell).sum()) == 1100


@pytest.mark.parametrize("capacity", [1, 2])
@pytest.mark.parametrize("contenders", [3, 5])
def test_each_contender_wins_with_the_same_probability(contenders, capacity):
    grid = Grid((3, 3))
    cell, target = torch.arange(contenders), torch.full((contenders,), 8)
    after = in_worlds(3000, contenders, lambda rng: grid.settle(cell, target, rng, capacity=capacity))
    winners, counts = (after == 8).unique(dim=0, return_counts=True)
    assert (winners.sum(dim=1) == capacity).all()
    assert len(winners) == math.comb(contenders, capacity)
    assert is_uniform(counts.double())


def test_every_matching_has_the_same_probability():
    """Two movers, three places: six matchings. Three movers, two places: six again, with one who stays."""
    grid = Grid((5,), torus=False)
    for agents, who in ((2, None), (3, None)):
        cell = torch.arange(agents)
        after = in_worlds(6000, agents, lambda rng, cell=cell, who=who: grid.to_empty(cell, who, rng))
        outcomes, counts = after.unique(dim=0, return_counts=True)
        assert len(outcomes) == 6
        assert is_uniform(counts.double())


def test_a_start_puts_agents_anywhere():
    grid = Grid((2, 3), torus=False)
    after = in_worlds(3000, 2, lambda rng: grid.to_empty(None, None, rng))
    outcomes, counts = after.unique(dim=0, return_counts=True)
    assert len(outcomes) == 30
    assert is_uniform(counts.double())


def test_the_order_of_agents_changes_nothing():
    generator = torch.Generator().manual_seed(1)
    grid, agents = Grid((8, 8)), 40
    cell = torch.randperm(64, generator=generator)[:agents]
    target = torch.randint(0, 64, (agents,), generator=generator)
    ids = torch.randperm(1000, generator=generator)[:agents]
    field, order = torch.randint(0, 3, (64,), generator=generator), torch.randperm(agents, generator=generator)

    def all_of_it(cell, target, ids):
        rng, empty = rng_of(agents, 5, ids), grid.occupants(cell) == 0
        return torch.stack(
            [
                grid.settle(cell, target, rng["one"], rounds=2),
                grid.settle(cell, target, rng["three"], rounds=2, capacity=3),
                grid.to_empty(cell, None, rng),
                grid.random_neighbour(cell, rng, where=empty),
                grid.best_visible(field, cell, rng, vision=3, most=3, where=empty),
                grid.nearest(field == 2, cell, rng, radius=2),
            ]
        )

    assert all_of_it(cell[order], target[order], ids[order]).equal(all_of_it(cell, target, ids)[:, order])
    plain = torch.arange(agents)  # as if none were given
    assert all_of_it(cell, target, None).equal(all_of_it(cell, target, plain))


def test_a_queue_moves_up_from_its_head_and_full_cells_are_not_exchanged():
    grid = Grid((6,), torus=False)
    cell = torch.tensor([0, 1, 2])
    after = [grid.settle(cell, cell + 1, rng_of(3), rounds=rounds).tolist() for rounds in (1, 2, 3, 4)]
    assert after == [[0, 1, 3], [0, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert grid.settle(cell[:2], cell[:2].flip(0), rng_of(2), rounds=5).tolist() == [0, 1]


def test_worlds_at_once_are_worlds_alone():
    grid, cell = Grid((4, 4)), torch.arange(10)
    together = in_worlds(5, 10, lambda rng: grid.settle(cell, grid.random_neighbour(cell, rng), rng, rounds=2))
    for world in range(5):
        rng = Rng(torch.tensor([0, world]), STEP, num=10)
        assert together[world].equal(grid.settle(cell, grid.random_neighbour(cell, rng), rng, rounds=2))


def test_random_neighbours_are_equally_likely_and_within_the_grid():
    grid = Grid((3, 4), torus=False)
    corner, drawn = torch.tensor([0]), {}
    drawn["any"] = in_worlds(3000, 1, lambda rng: grid.random_neighbour(corner, rng))
    where = torch.ones(12).index_fill(0, torch.tensor([4]), 0)
    drawn["some"] = in_worlds(3000, 1, lambda rng: grid.random_neighbour(corner, rng, where=where))
    for name, expected in (("any", [1, 4, 5]), ("some", [1, 5])):
        cells, counts = drawn[name].unique(return_counts=True)
        assert cells.tolist() == expected
        assert is_uniform(counts.double())
    assert grid.random_neighbour(corner, rng_of(1), where=torch.zeros(12)).tolist() == [0]


@pytest.mark.parametrize(
    "grid",
    [Grid((6, 7)), Grid((4, 5), torus=False, radius=2), Grid((3, 4, 5), torus=False), Grid((9,), radius=3)],
    ids=str,
)
def test_a_random_neighbour_of_all_is_the_one_that_a_mask_of_ones_allows(grid):
    cell = torch.arange(grid.num_cells).repeat(7)
    drawn = [grid.random_neighbour(cell, rng_of(cell.numel()), where=w) for w in (None, torch.ones(grid.num_cells))]
    assert drawn[0].equal(drawn[1])
    assert (grid.neighbour_cells(cell) == drawn[0][:, None]).any(dim=1).all()


def test_the_best_visible_cell():
    grid = Grid((5, 5), torus=False)
    field = torch.zeros(25, dtype=torch.int32)
    field[[10, 2, 22, 6]] = torch.tensor([5, 4, 4, 9], dtype=torch.int32)  # 6 lies on no line of 12
    middle = torch.tensor([12])
    look = lambda rng, **more: grid.best_visible(field, middle, rng, **{"vision": 2, "most": 2, **more})
    assert look(rng_of(1)).tolist() == [10]
    assert look(rng_of(1), vision=1).tolist() == [12]
    assert look(rng_of(1), vision=torch.tensor([1])).tolist() == [12]
    empty = torch.ones(25).index_fill(0, torch.tensor([10, 12]), 0)
    cells, counts = in_worlds(2000, 1, lambda rng: look(rng, where=empty)).unique(return_counts=True)
    assert cells.tolist() == [2, 22]
    assert is_uniform(counts.double())
    near = field.index_fill(0, torch.tensor([7]), 5)  # as good as 10, and nearer
    assert grid.best_visible(near, middle, rng_of(1), vision=2, most=2).tolist() == [7]


def test_the_nearest_cell():
    grid = Grid((7, 7), neighbours="von_neumann")
    where = torch.zeros(49).index_fill(0, torch.tensor([24, 26, 22, 0]), 1)
    cells, counts = in_worlds(
        2000, 1, lambda rng: grid.nearest(where, torch.tensor([24]), rng, radius=3, own=False)
    ).unique(return_counts=True)
    assert cells.tolist() == [22, 26]
    assert is_uniform(counts.double())
    assert grid.nearest(where, torch.tensor([24]), rng_of(1), radius=3).tolist() == [24]
    assert grid.nearest(where, torch.tensor([45]), rng_of(1), radius=2).tolist() == [-1]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda grid, cell: grid.settle(cell, cell[:3], rng_of(9)), r"target has shape \(3,\), expected \(9,\)"),
        (lambda grid, cell: grid.settle(cell, cell, rng_of(8)), r"rng is one for 8 on 'agents', expected the rng of"),
        (lambda grid, cell: grid.settle(cell, cell, rng_of(9), capacity=0), "capacity=0, expected .* at least 1"),
        (lambda grid, cell: grid.settle(cell, cell, rng_of(9), rounds=0), "rounds=0, expected .* at least 1"),
        (lambda grid, cell: grid.settle(cell, cell, rng_of(9), capacity=torch.ones(9)), "expected whole numbers"),
        (lambda grid, cell: grid.settle(cell, cell, rng_of(9), capacity=cell[:3]), r"capacity has shape \(3,\)"),
        (lambda grid, cell: grid.to_empty(None, None, rng_of(10)), "10 agents for 9 places"),
        (lambda grid, cell: grid.to_empty(cell, cell[:2], rng_of(9)), r"who has shape \(2,\), expected \(9,\)"),
        (lambda grid, cell: grid.nearest(cell, cell, rng_of(9), radius=2), "radius=2, expected .* from 1 to 1"),
        (lambda grid, cell: grid.best_visible(cell, cell, rng_of(9), vision=1, most=3), "most=3, expected .* to 2"),
        (lambda grid, cell: grid.random_neighbour(cell, None), "rng is NoneType, expected the rng of the agents"),
    ],
)
def test_wrong_arguments_are_told(call, told):
    with pytest.raises((ModelError, InputError), match=told):
        call(Grid((3, 3)), torch.arange(9))


@pytest.mark.parametrize("capacity", [2**31, 2**40, 2**70, torch.full((9,), 2**31), torch.full((9,), 2**62)])
@pytest.mark.parametrize("reference", [False, True])
def test_a_capacity_beyond_any_number_of_agents_is_room_for_all(capacity, reference):
    with ops.reference_only() if reference else contextlib.nullcontext():
        rng = rng_of(9)
        after = Grid((3, 3)).settle(torch.arange(9), torch.full((9,), 4), rng, capacity=capacity)
    assert after.tolist() == [4] * 9
    assert not any(bad for _, bad in rng._bad)


def test_a_cell_seen_both_ways_around_a_torus_is_one_choice():
    """Column 2 of 4 lies two cells off either way; row 3 of 6 three cells off, and column 3 is one cell off, not 3."""
    grid, own = Grid((6, 4)), torch.tensor([0])
    field = torch.zeros(24).index_fill(0, torch.tensor([2, 8]), 1.0)
    cells, counts = in_worlds(2000, 1, lambda rng: grid.best_visible(field, own, rng, vision=5, most=5)).unique(
        return_counts=True
    )
    assert cells.tolist() == [2, 8]
    assert is_uniform(counts.double())


def test_the_best_of_masks_of_nan_and_beyond_what_anybody_sees():
    grid, own = Grid((5, 5), torus=False), torch.tensor([12])
    look = lambda field, rng=None, **more: grid.best_visible(
        field, own, rng or rng_of(1), **{"vision": 2, "most": 2, **more}
    )
    field = torch.zeros(25).index_fill(0, torch.tensor([11]), 1.0)
    assert look(field.bool()).tolist() == [11]
    assert look(field.index_fill(0, torch.tensor([13, 12]), math.nan)).tolist() == [11]
    assert look(torch.full((25,), math.nan)).tolist() == [12]
    with pytest.raises(InputError, match=r"vision=3, expected .* to 2"):
        look(field, vision=3)
    rng = rng_of(1)
    look(field, rng, vision=torch.tensor([3]))
    assert [told for told, bad in rng._bad if bad] == [
        "grid: best_visible was given a vision beyond most=2; raise most"
    ]
