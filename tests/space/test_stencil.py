"""Stencils over a grid: the bits of the graph of the same neighbourhood, exact diffusion, slopes, borders."""

import pytest
import torch

from denizen.errors import InputError, ModelError
from denizen.space import Grid

SHAPES = [((6, 7), 1), ((5, 8), 2), ((4, 5, 6), 1), ((7,), 2), ((1, 6), 1), ((2, 9), 3)]
GRIDS = [
    Grid(shape, torus, neighbours, radius)
    for shape, radius in SHAPES
    for torus in (True, False)
    for neighbours in ("moore", "von_neumann")
    if not torus or 2 * radius + 1 <= min(shape)
]
EVERY = pytest.mark.parametrize("grid", GRIDS, ids=repr)
PLANES = pytest.mark.parametrize("grid", [g for g in GRIDS if g.shape in ((6, 7), (5, 8))], ids=repr)


def drawn(grid, seed=0):
    return torch.randn(grid.num_cells, generator=torch.Generator().manual_seed(seed))


@EVERY
def test_sums_have_the_bits_of_the_graph(grid):
    graph, values = grid.graph(), drawn(grid)
    mask = (values > 0).to(torch.int8)
    some = (drawn(grid, 1) > 0).to(torch.int8)
    counts = (values * 1e9).to(torch.int32)
    for given, options in (
        (mask, {"where": some}),
        (mask * 127, {"needed": some}),
        (mask != 0, {}),
        (counts, {}),
        (values, {}),
        (values, {"where": some}),
        (values, {"max": 4.7, "where": some != 0}),
        (values.half(), {"needed": some.float()}),
    ):
        ours, theirs = grid.sum(given, **options), graph.sum(given, **options)
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
        assert torch.equal(grid.mean(given, **options), graph.mean(given, **options))
    for given in (mask, counts, values):
        assert torch.equal(grid.max(given), graph.max(given))
        assert torch.equal(grid.max(given, where=some, empty=3), graph.max(given, where=some, empty=3))
        assert torch.equal(grid.any(given, where=some), graph.any(given, where=some))
    assert grid.num_neighbours == int(graph.in_degree.max()) or not grid.torus


def test_the_graph_has_the_edges_of_the_neighbourhood():
    graph = Grid((2, 3), torus=False, neighbours="von_neumann").graph()
    edges = {tuple(edge) for edge in torch.stack(graph.edges()).T.tolist()}
    assert edges == {
        (a, b) for x, y in ((0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)) for a, b in ((x, y), (y, x))
    }


def test_a_large_radius():
    grid = Grid((40, 40), radius=16)  # more neighbours than an int16 takes, and than fit with all digits
    mask = torch.full((1600,), 127, dtype=torch.int8)
    assert (grid.sum(mask) == 127 * grid.num_neighbours).all()
    values = torch.full((1600,), -1.5)
    assert torch.equal(grid.sum(values, max=1.5), values * grid.num_neighbours)
    assert grid.sum(values, max=1.0).isnan().all()


def test_a_value_beyond_the_bound_makes_its_neighbours_nan():
    grid, values = Grid((5, 5), torus=False, neighbours="von_neumann"), torch.zeros(25)
    for wrong in (2.0, -2.0, float("nan"), float("inf")):
        values[12] = wrong
        assert grid.sum(values, max=1.0).isnan().nonzero().flatten().tolist() == [7, 11, 13, 17]


@PLANES
def test_what_is_beside(grid):
    values = torch.arange(grid.num_cells)
    for offset in ((1, 0), (-2, 1), (0, -3)):
        cell = grid.shift(values, offset)
        expected = torch.where(cell >= 0, values[cell], -7)
        assert torch.equal(grid.beside(values, offset, empty=-7), expected)


# --- diffusion --------------------------------------------------------------------------------------------------------


@PLANES
def test_diffusion_keeps_the_total_to_the_last_bit(grid):
    most = 1 / grid.num_neighbours
    for rate in (most, 0.3 * most, torch.tensor(most)):
        field = grid.diffuse(drawn(grid).abs() + 10 * torch.eye(grid.num_cells)[17], 0.0, max=16.0)
        plain, total = field, field.double().sum()
        for _ in range(50):
            field, plain = grid.diffuse(field, rate, max=16.0), grid.diffuse(plain, rate)
            assert field.double().sum() == total
            assert field.min() >= 0
        unit = 16.0 * 2**-22  # of which each neighbour keeps less than one back in a step
        torch.testing.assert_close(field, plain, rtol=0, atol=4 * unit * grid.num_neighbours)
        torch.testing.assert_close(plain.double().sum(), total, rtol=50 * 6e-8, atol=0)
        signed = grid.diffuse(field - 3, 0.0, max=16.0)
        assert torch.equal(grid.diffuse(-signed, rate, max=16.0), -grid.diffuse(signed, rate, max=16.0))


def test_a_uniform_field_stays():
    grid = Grid((5, 6), torus=False)
    field = torch.full((30,), 0.7)
    assert torch.equal(grid.diffuse(field, 0.1, max=1.0), grid.diffuse(field, 0.0, max=1.0))


@pytest.mark.parametrize(("neighbours", "growth"), [("von_neumann", 2), ("moore", 6)])
def test_a_point_spreads_with_the_variance_of_theory(neighbours, growth):
    """Along each axis the variance grows by rate times the sum of squared steps to the neighbours."""
    grid = Grid((101, 101), torus=False, neighbours=neighbours)
    field = torch.zeros(grid.num_cells)
    field[grid.cell(torch.tensor(50), torch.tensor(50))] = 1.0
    rate, steps = 0.1, 40
    for _ in range(steps):
        field = grid.diffuse(field, rate, max=1.0)
    row, column = (place.double() - 50 for place in grid.coordinates(torch.arange(grid.num_cells)))
    for place in (row, column):
        variance = (field * place**2).sum() / field.sum()
        assert float(variance) == pytest.approx(growth * rate * steps, rel=1e-4)


@PLANES
def test_slopes_are_those_of_the_graph_and_of_differences(grid):
    graph, values = grid.graph(), drawn(grid).requires_grad_()
    pull = drawn(grid, 2)
    for options in ({}, {"max": 8.0}):
        ours = torch.autograd.grad(grid.sum(values, **options) @ pull, values)[0]
        theirs = torch.autograd.grad(graph.sum(values, **options) @ pull, values)[0]
        torch.testing.assert_close(ours, theirs)
    rate = torch.tensor(0.02, requires_grad=True)
    by_rate = torch.func.jacfwd(lambda r: (grid.diffuse(values.detach(), r) ** 2).sum())(rate.detach())
    for options in ({}, {"max": 8.0}):
        slopes = torch.autograd.grad((grid.diffuse(values, rate, **options) ** 2).sum(), (values, rate))
        torch.testing.assert_close(slopes[1], by_rate, rtol=1e-4, atol=1e-4)
        there = grid.diffuse(values, rate).detach()
        torch.testing.assert_close(slopes[0], 2 * grid.diffuse(there, rate).detach(), rtol=1e-4, atol=1e-4)  # symmetric


def test_slopes_within_a_batch_of_worlds():
    """A world of a batch says that it needs no gradient."""
    grid, worlds = Grid((6, 7)), torch.stack([drawn(Grid((6, 7)), seed) for seed in range(2)]).requires_grad_()
    rate = torch.tensor(0.05, requires_grad=True)

    def squares(values, rate):
        return (grid.sum(grid.diffuse(values, rate, max=8.0), max=80.0) ** 2).sum()

    batched = torch.autograd.grad(torch.func.vmap(squares, in_dims=(0, None))(worlds, rate).sum(), (worlds, rate))
    alone = torch.autograd.grad(sum(squares(world, rate) for world in worlds), (worlds, rate))
    assert float(alone[1].abs()) > 1
    for one, other in zip(batched, alone, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("neighbours", ["moore", "von_neumann"])
def test_neighbours_by_index_as_on_a_gpu(monkeypatch, neighbours):
    """What a CPU looks up in a padded copy."""
    grid = Grid((6, 7), neighbours=neighbours, radius=2)
    values = drawn(grid)
    padded = [grid.sum(values, max=8.0), grid.max(values), grid.diffuse(values, 0.01, max=8.0)]
    monkeypatch.setattr(Grid, "_padded", lambda self, values, axis, *_: lambda far: torch.roll(values, -far, axis))
    rolled = [grid.sum(values, max=8.0), grid.max(values), grid.diffuse(values, 0.01, max=8.0)]
    assert all(torch.equal(one, other) for one, other in zip(padded, rolled, strict=True))


@pytest.mark.cuda
def test_the_bits_of_the_cpu_on_a_gpu():
    for grid in GRIDS:
        values = drawn(grid)
        mask, there = (values > 0).to(torch.int8), values.cuda()
        assert torch.equal(grid.sum(there, max=8.0).cpu(), grid.sum(values, max=8.0))
        assert torch.equal(grid.sum(there).cpu(), grid.sum(values))
        assert torch.equal(grid.sum(mask.cuda()).cpu(), grid.sum(mask))
        assert torch.equal(grid.mean(mask.cuda()).cpu(), grid.mean(mask))
        assert torch.equal(grid.max(there).cpu(), grid.max(values))
        spread = grid.diffuse(there, 0.5 / grid.num_neighbours, max=8.0)
        assert torch.equal(spread.cpu(), grid.diffuse(values, 0.5 / grid.num_neighbours, max=8.0))


def test_many_worlds_and_one_compiled_graph():
    grid = Grid((6, 7))

    def everything(values):
        mask = (values > 0).to(torch.int8)
        return (
            (
                grid.sum(mask, where=mask)
                + grid.sum(values)
                + grid.sum(values, max=8.0)
                + grid.diffuse(values, 0.1, max=8.0)
            )
            * grid.max(values)
            + grid.mean(values)
            + grid.any(mask)
            + grid.beside(values, (1, 1))
        )

    worlds = torch.stack([drawn(grid, seed) for seed in range(3)])
    together = torch.func.vmap(everything)(worlds)
    assert all(torch.equal(row, everything(world)) for row, world in zip(together, worlds, strict=True))
    compiled = torch.compile(torch.func.vmap(everything), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(worlds), together, rtol=0, atol=0)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_wrong_arguments():
    grid, field = Grid((3, 4)), torch.zeros(12)
    with pytest.raises(ModelError, match=r"values has shape \(3, 4\), expected \(12,\).* flat.* values.flatten\(\)"):
        grid.sum(field.reshape(3, 4))
    with pytest.raises(ModelError, match=r"where has shape \(4,\), expected \(12,\), one for each cell"):
        grid.any(field, where=field[:4])
    with pytest.raises(ModelError, match="got where= and needed="):
        grid.mean(field, where=field, needed=field)
    with pytest.raises(ModelError, match="values is list"):
        grid.max([0] * 12)
    with pytest.raises(ModelError, match=r"max=0"):
        grid.sum(field, max=0)
    with pytest.raises(ModelError, match=r"field is torch.int32, expected real numbers"):
        grid.diffuse(field.int(), 0.1)
    with pytest.raises(InputError, match=r"rate=0.2, expected a number from 0 to 0.125 \(1 / 8 neighbours\).*shorter"):
        grid.diffuse(field, 0.2)
    with pytest.raises(ModelError, match=r"rate has shape \(12,\)"):
        grid.diffuse(field, field)
    with pytest.raises(ModelError, match=r"offset=\(1,\), expected 2 numbers"):
        grid.beside(field, (1,))
    assert grid.diffuse(field, torch.tensor(0.2)).isnan().all()
    assert grid.diffuse(field + 2.1, 0.1, max=1.0).isnan().all()
