"""Continuous space: neighbours against every pair, movement, layouts, gradients, and what is refused."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.space import Space

PLANE = Space(size=(10.0, 7.0))


def places(space: Space, num: int, seed: int = 0) -> Tensor:
    drawn = torch.rand(num, space.dims, generator=torch.Generator().manual_seed(seed))
    return drawn * torch.tensor(space.size)


def every_pair(space: Space, position: Tensor, radius: float) -> tuple[Tensor, Tensor, Tensor]:
    """(offset, distance, whether near) of all pairs, `[receiver, other, …]`."""
    offset = space.offset(position[:, None], position[None])
    square = (offset * offset).sum(dim=-1)
    near = (square <= torch.tensor(radius) ** 2) & ~torch.eye(len(position), dtype=torch.bool)
    return offset, torch.where(near, square, 1.0).sqrt(), near


def pull(offset, distance, weight, reach, own):
    force = torch.where(distance < reach, weight * offset / distance, torch.zeros_like(offset))
    return force, torch.exp(-distance) * own[0], torch.sin(3 * distance) + offset.abs().sum()


def rng_of(ids: Tensor) -> dz.rng.Rng:
    return dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=len(ids), ids=ids)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.floats(1.0, 10.0), st.booleans(), st.integers(1, 60), st.integers(0, 99), st.data())
def test_sums_are_those_over_every_pair(dims, ratio, torus, num, seed, data):
    """Also where the side is no multiple of the radius, and where a search of three cells would meet itself."""
    radius = data.draw(st.sampled_from([1.0, 0.05, 2.7]))
    longer = data.draw(st.sampled_from([1.0, 1.3]))
    space = Space(size=(ratio * radius, ratio * radius * longer, ratio * radius)[:dims], torus=torus)
    position = places(space, num, seed)
    offset, distance, near = every_pair(space, position, radius)
    found = space.near(position, radius)
    assert torch.equal(found.count(), near.sum(dim=1).int())
    weight = places(Space(size=(1.0, 1.0)), num, seed + 1)
    torch.testing.assert_close(found.sum(weight), near.float() @ weight, rtol=1e-5, atol=1e-5)
    mean = near.float() @ weight / near.sum(dim=1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(found.mean(weight), mean, rtol=1e-5, atol=1e-5)
    made = found.reduce(pull, weight[:, 0], torch.tensor(0.6 * radius), own=(weight,))
    there = (distance < 0.6 * radius) & near
    force = torch.where(there[..., None], weight[None, :, :1] * offset / distance[..., None], 0.0).sum(dim=1)
    torch.testing.assert_close(made[0], force, rtol=1e-4, atol=1e-5)
    faded = torch.where(near, torch.exp(-distance) * weight[:, :1], 0.0).sum(dim=1)
    torch.testing.assert_close(made[1], faded, rtol=1e-4, atol=1e-5)
    waves = torch.where(near, torch.sin(3 * distance) + offset.abs().sum(dim=-1), 0.0).sum(dim=1)
    torch.testing.assert_close(made[2], waves, rtol=1e-4, atol=1e-4)
    square = torch.where(near, (offset * offset).sum(dim=-1), torch.inf)
    nearest = found.nearest()
    assert torch.equal(nearest >= 0, near.any(dim=1))
    best = square.gather(1, nearest.clamp(min=0)[:, None])[:, 0]
    assert torch.equal(best[nearest >= 0], square.min(dim=1).values[nearest >= 0])


@pytest.mark.parametrize("length", [1.0, 0.6, 3.0, 0.3])
def test_points_a_radius_apart(length):
    """A lattice whose step is the radius: each point has its two neighbours, though 0.05 in float32 is not 0.05."""
    radius = 0.05 if length == 1.0 else length / 6
    num = round(length / radius)
    position = torch.arange(num, dtype=torch.float64)[:, None] * length / num
    found = Space(size=(length,)).near(position.float(), radius * (1 + 1e-5))
    assert found.count().tolist() == [2] * num


def test_many_in_one_cell_and_far_too_many_cells():
    crowd = torch.full((300, 2), 5.0)
    assert PLANE.near(crowd, 0.5).count().tolist() == [299] * 300
    wide = Space(size=(1e6, 1e6, 1e6))
    assert wide.near(places(wide, 50), 1.0).count().tolist() == [0] * 50


@pytest.mark.parametrize("space", [PLANE, Space(size=(4.0, 4.0, 4.0), torus=False)])
def test_another_layout_gives_the_same_bits(space):
    position, weight, order = places(space, 90), torch.randn(90, 2), torch.randperm(90)
    ids = torch.arange(90) * 3
    plain = space.near(position, 1.4, rng_of(ids)).sum(weight)
    turned = space.near(position[order], 1.4, rng_of(ids[order]))
    assert torch.equal(turned.sum(weight[order]), plain[order])
    place = torch.argsort(order)
    nearest = space.near(position, 1.4, rng_of(ids)).nearest()[order]
    assert torch.equal(turned.nearest(), torch.where(nearest < 0, nearest, place[nearest.clamp(min=0)]))


def test_who_is_not_there_is_nobodys_neighbour():
    position, there = places(PLANE, 80), (torch.arange(80) % 3 != 0).to(torch.int8)
    kept = there.nonzero().ravel()
    position[::3] = torch.nan  # where the dead are does not matter
    found = PLANE.near(position, 2.0, where=there)
    alone = PLANE.near(position[kept], 2.0)
    assert torch.equal(found.count()[kept], alone.count())
    assert found.count()[::3].sum() == 0
    assert (found.nearest()[::3] == -1).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.01, 10.5])
def test_a_position_outside_spoils_every_sum_of_its_world(wrong):
    position = places(PLANE, 20)
    position[7, 0] = wrong
    found = PLANE.near(position, 2.0)
    assert found.sum(torch.ones(20)).isnan().all()
    assert found.count().tolist() == [-1] * 20
    assert found.nearest().tolist() == [-2] * 20
    both = torch.vmap(lambda one: PLANE.near(one, 2.0).count())(torch.stack([position, places(PLANE, 20)]))
    assert (both[1] >= 0).all()


@pytest.mark.compile
def test_batched_and_compiled_are_the_same_bits():
    position = torch.stack([places(PLANE, 40, seed) for seed in range(3)])
    reach = torch.tensor([0.5, 1.0, 1.5])

    def forces(position, reach):
        return torch.cat([PLANE.near(position, 2.0).reduce(pull, position[:, 0], reach, own=(position,))[0], position])

    alone = torch.stack([forces(*one) for one in zip(position, reach, strict=True)])
    assert torch.equal(torch.vmap(forces)(position, reach), alone)
    shared = torch.stack([forces(position[0], one) for one in reach])
    assert torch.equal(torch.vmap(forces, in_dims=(None, 0))(position[0], reach), shared)
    compiled = torch.compile(torch.vmap(forces), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(position, reach), alone)


@pytest.mark.parametrize("space", [PLANE, Space(size=(3.0,)), Space(size=(4.0, 5.0, 6.0), torus=False)])
def test_gradients_are_those_of_every_pair(space):
    position = places(space, 30).requires_grad_()
    weight, reach = torch.rand(30, requires_grad=True), torch.tensor(1.1, requires_grad=True)
    own = torch.rand(30, 2, requires_grad=True)
    inputs = (position, weight, reach, own)

    def loss(force, faded, waves):
        return (force * torch.arange(30.0)[:, None]).sum() + (faded**2).sum() + waves.cos().sum()

    def plain(offset, distance, weight, reach, own):
        parts = pull(offset, distance, weight, torch.tensor(1.3), own)
        return parts[0] * reach, parts[1] / reach, parts[2]

    found = torch.autograd.grad(loss(*space.near(position, 1.5).reduce(plain, weight, reach, own=(own,))), inputs)
    offset, _, near = every_pair(space, position, 1.5)
    sums = []
    for i in range(30):
        rows = near[i].nonzero().ravel().tolist()
        pairs = [plain(offset[i, j], offset[i, j].norm(), weight[j], reach, own[i]) for j in rows]
        nobody = (torch.zeros(space.dims), torch.zeros(()), torch.zeros(()))
        sums.append([torch.stack(part).sum(dim=0) for part in zip(nobody, *pairs, strict=True)])
    wanted = torch.autograd.grad(loss(*[torch.stack(part) for part in zip(*sums, strict=True)]), inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)


def test_agents_in_one_place_have_finite_gradients():
    position = torch.ones(3, 2, requires_grad=True)
    near = PLANE.near(position, 1.0)
    near.reduce(lambda offset, distance: distance).sum().backward()
    assert position.grad.tolist() == [[0.0, 0.0]] * 3


# --- movement ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=2), st.booleans())
def test_every_way_back_leads_into_space(x, torus):
    space = Space(size=(10.0, 0.3), torus=torus)
    there = torch.tensor([x])
    for back in (space.wrap, space.reflect, space.clamp, lambda x: space.move(torch.zeros(1, 2), x)):
        assert space.inside(back(there)).all()
    assert (space.wrap(there) < torch.tensor(space.size)).all()
    assert torch.equal(space.wrap(torch.tensor([[-1e-9, 0.1]])), torch.tensor([[0.0, 0.1]]))


def test_moves():
    torus, box = Space(size=(10.0,)), Space(size=(10.0,), torus=False)
    here, step = torch.tensor([[1.0], [9.0], [5.0]]), torch.tensor([[-3.0], [2.0], [31.0]])
    assert torus.move(here, step).tolist() == [[8.0], [1.0], [6.0]]
    assert box.move(here, step).tolist() == [[2.0], [9.0], [4.0]]
    assert torus.offset(here, torus.move(here, step))[:2].tolist() == step[:2].tolist()
    assert torus.distance(torch.tensor([0.5]), torch.tensor([9.5])) == 1.0


class Walk(dz.Model):
    """A random walk on a torus."""

    space: Space = Space(size=(1000.0, 1000.0))
    num_agents: int = 4000

    def init(self, rng):
        return Walkers(position=self.space.random(rng, "place"), gone=torch.zeros(self.num_agents, 2))

    def step(self, now, rng):
        step = torch.stack([rng["step"].normal(f"axis {axis}") for axis in range(2)], dim=1)
        position = self.space.move(now.position, step)
        return now.replace(position=position, gone=now.gone + self.space.offset(now.position, position))

    @dz.series
    def square(self, now):
        return (now.gone**2).sum(dim=1).mean()


class Walkers(dz.State):
    position: Tensor = dz.real("agents", "dims")
    gone: Tensor = dz.real("agents", "dims")


def test_a_random_walk_diffuses():
    """<r²> = 2 d D t with D = 1/2 for steps of variance one along each axis; density stays uniform."""
    run = dz.simulate(Walk(), 40, seed=3, compile=False)
    square = run["square"][0]
    spread = 4 * math.sqrt(2 * 2 / (2 * 4000))  # four standard errors of a mean of chi-square, relative
    for t in (1, 10, 40):
        assert square[t - 1] == pytest.approx(2 * t, rel=spread)
    counts = torch.histc(run.state.position[0, :, 0], 10, 0, 1000)
    assert ((counts - 400) ** 2 / 400).sum() < 28  # chi-square of 9 degrees, p = 0.001


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"size": 10.0}, r"size=10.0, expected a length for each axis, such as \(10.0, 10.0\)"),
        ({"size": ()}, "one to three"),
        ({"size": (1.0,) * 4}, "one to three"),
        ({"size": (1.0, -2.0)}, r"size\[1\]=-2.0"),
        ({"size": (1.0, math.nan)}, r"size\[1\]=nan"),
        ({"size": (1.0, 1e-60)}, "float32"),
        ({"size": (1.0,), "torus": 1}, "torus=1"),
    ],
)
def test_wrong_spaces_are_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        Space(**arguments)


@pytest.mark.parametrize(
    ("radius", "says"),
    [
        (0.0, "radius=0"),
        (-1.0, "radius"),
        (math.nan, "radius=nan"),
        (10.5, "longest side"),
        (torch.tensor(1.0), "cut at"),
    ],
)
def test_wrong_radii_are_refused(radius, says):
    with pytest.raises((InputError, ModelError), match=says):
        PLANE.near(places(PLANE, 5), radius)


def test_wrong_tensors_are_refused():
    position = places(PLANE, 5)
    for wrong in (position[:, :1], position.long(), position[0], [[1.0, 2.0]]):
        with pytest.raises(ModelError, match=r"Space\.near"):
            PLANE.near(wrong, 1.0)
    with pytest.raises(ModelError, match=r"where is \(4,\)"):
        PLANE.near(position, 1.0, where=torch.arange(4))
    with pytest.raises(ModelError, match="rng is of 4 agents, position of 5"):
        PLANE.near(position, 1.0, rng_of(torch.arange(4)))
    with pytest.raises(ModelError, match="expected the step's rng"):
        PLANE.near(position, 1.0, torch.arange(5))
    near = PLANE.near(position, 1.0)
    with pytest.raises(ModelError, match=r"theirs\[0\] is torch.float32 \(4,\)"):
        near.sum(torch.ones(4))
    with pytest.raises(ModelError, match=r"own\[0\]"):
        near.reduce(lambda offset, distance, own: own, own=(torch.ones(4),))
    with pytest.raises(InputError, match=r"pair is .* expected a function of \(offset, distance, theirs 1\)"):
        near.reduce(lambda offset, distance: distance, position)
    with pytest.raises(InputError, match="pair=3, expected a function of"):
        near.reduce(3)


def _branches(offset, distance):
    return offset if distance < 1 else -offset


def _takes_from_outside(offset, distance):
    return offset * LEVEL


def _writes(offset, distance):
    offset[0] = 0.0
    return offset


def _sorts(offset, distance):
    return offset.sort().values


def _returns_a_matrix(offset, distance):
    return offset[:, None] * offset


def _returns_nothing(offset, distance):
    offset * 2


def _is_wide(offset, distance):
    return offset.double()


def _masks_bits(offset, distance):
    return ((distance * 3).int() & 2).float()


def _is_half(offset, distance):
    return distance.half().float()


def _is_a_byte(offset, distance):
    return (offset[0] * 100).to(torch.uint8).float()


LEVEL = torch.tensor(2.0)


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (_branches, "torch.where"),
        (_takes_from_outside, "from outside; pass it to reduce"),
        (_writes, "in place"),
        (_sorts, "sort"),
        (_returns_a_matrix, "written for one pair"),
        (_returns_nothing, "returned NoneType"),
        (_is_wide, "float64"),
    ],
)
def test_what_a_function_of_two_neighbours_cannot_do(pair, says):
    with pytest.raises(ModelError, match=says) as raised:
        PLANE.near(places(PLANE, 5), 1.0).reduce(pair)
    assert pair.__name__ in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_a_function_of_two_neighbours_can_do():
    """Every operation against torch's own, on values of every sign."""
    functions = [
        lambda o, d: torch.stack([o[0] - o[1], o[1] * 2 + 1, 3 - o[0], o[0] / (o[1] + 20)]),
        lambda o, d: torch.cat([o.abs(), -o, o**2, o**3]),
        lambda o, d: torch.where((o > 0) & (d < 1) | (o[0] == 0), o, 1 - o).flip(0),
        lambda o, d: o.clamp(-0.3, 0.4) + torch.minimum(o[0], o[1]) + torch.maximum(o, d),
        lambda o, d: torch.stack([torch.linalg.vector_norm(o), o.norm(), (o * o).sum().sqrt(), torch.rsqrt(d + 1)]),
        lambda o, d: torch.stack([o.amin(), o.amax(), o.mean(), o.prod(), o @ o, o.dot(o + 1)]),
        lambda o, d: torch.stack([o.floor(), o.ceil(), o.trunc(), torch.sign(o)]).sum(dim=0),
        lambda o, d: torch.exp(4 * o) + torch.tanh(3 * o) + torch.sigmoid(5 * o),
        lambda o, d: torch.sin(20 * o) + torch.cos(20 * o) + torch.cos(o),
        lambda o, d: (o.remainder(0.3) + d.reciprocal(), (o > 0).sum() + (o > 0).any().float(), (o < 0).all().float()),
        lambda o, d: torch.logical_not(o > 0).float() + torch.logical_xor(o[0] > 0, o[1] > 0) + (o != 0) + (~(d < 1)),
        lambda o, d: torch.zeros_like(o) + torch.ones(2) * d + torch.tensor([1.0, 2.0]) * o.unsqueeze(0).squeeze(0),
    ]
    pair = torch.tensor([[1.0, 2.0], [1.7, 1.4]])
    for function in functions:
        made = PLANE.near(pair, 1.5).reduce(function)
        for row, offset in enumerate(PLANE.offset(pair, pair.flip(0))):
            wanted = function(offset, offset.norm())
            for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (made, wanted)], strict=True):
                torch.testing.assert_close(one[row], other.float(), rtol=2e-6, atol=2e-6)


def test_numbers_made_whole_and_conditions_added_up():
    """Bits that a kind of number loses are lost for pairs too: casts are torch's."""
    functions = [
        lambda o, d: torch.stack([(3 * d).int(), (-3 * d).long(), (o[0] * 5).int()]).float(),
        lambda o, d: torch.stack([(o[0] * 3).int().bool(), (o * 0 + 0.5).bool().all(), (d > 1) + (d > 2)]).float(),
        lambda o, d: torch.stack([(d > 1).int() + (d > 2).int(), (o > 0).amax().int()]) + 0.0,
        lambda o, d: (d * 5).int() / 2 + torch.div((o[0] * 5).int(), 2, rounding_mode="floor"),
    ]
    position = places(PLANE, 12)
    offset, distance, near = every_pair(PLANE, position, 3.0)
    for function in functions:
        found = torch.zeros(PLANE.near(position, 3.0).reduce(function).shape)
        for one, other in near.nonzero().tolist():
            found[one] += function(offset[one, other], distance[one, other])
        torch.testing.assert_close(PLANE.near(position, 3.0).reduce(function), found)


@pytest.mark.parametrize("pair", [_masks_bits, _is_half, _is_a_byte])
def test_kinds_of_numbers_that_pairs_do_not_have(pair):
    with pytest.raises(ModelError, match=r"bitwise_and of numbers|float16 numbers|uint8 numbers"):
        PLANE.near(places(PLANE, 5), 1.0).reduce(pair)


REACH = 1.0


def _nearer(offset, distance):
    return _as_near(distance)


def _as_near(distance):
    return torch.where(distance < REACH, 1.0, 0.0)


def test_a_number_that_a_function_finds_outside_may_change(monkeypatch):
    """As a notebook's does between two runs; also one in a closure, and one in a class."""

    class Held:
        reach = 1.0

    reach = 1.0
    closed = lambda offset, distance: torch.where(distance < reach, 1.0, 0.0)
    of_class = lambda offset, distance: torch.where(distance < _HELD[0].reach, 1.0, 0.0)
    _HELD[:] = [Held]
    near = PLANE.near(places(PLANE, 40), 3.0)
    few = near.reduce(_nearer)
    assert torch.equal(near.reduce(closed), few)
    assert torch.equal(near.reduce(of_class), few)
    monkeypatch.setitem(globals(), "REACH", 2.0)
    reach = Held.reach = 2.0
    more = PLANE.near(places(PLANE, 40), 2.0).count().float()
    assert few.sum() < more.sum()
    assert all(torch.equal(near.reduce(pair), more) for pair in (_nearer, closed, of_class))


_HELD: list[type] = []


def test_functions_that_bits_do_not_depend_on_are_close_enough():
    """exp, sin and cos are made of few operations: within 2e-7 of their value, 3e-7 for waves up to 1,000 π."""
    x = torch.cat([torch.linspace(-86, 87, 3001), torch.tensor([-200.0, 200.0, 0.0])])
    pair = torch.tensor([[1.0], [2.0]])
    near = Space(size=(9.0,)).near(pair, 2.0)
    values = [torch.full((2,), v) for v in x[::50]]
    found = [near.reduce(lambda o, d, t: (torch.exp(t), torch.sin(t), torch.cos(t)), v) for v in values]
    for v, (exp, sin, cos) in zip(x[::50].double(), found, strict=True):
        torch.testing.assert_close(exp[0].double(), v.exp().float().double(), rtol=4e-7, atol=2e-38)
        torch.testing.assert_close(sin[0].double(), v.sin(), rtol=0, atol=4e-7)
        torch.testing.assert_close(cos[0].double(), v.cos(), rtol=0, atol=4e-7)


class Crowd(dz.State):
    position: Tensor = dz.real("agents", "dims")


class Escapes(dz.Model):
    """A newcomer's mistake: agents walk out of space."""

    space: Space = PLANE
    num_agents: int = 10
    known: bool = True

    def init(self, rng):
        return Crowd(position=self.space.random(rng, "place"))

    def step(self, now, rng):
        num = self.space.near(now.position, 2.0, rng if self.known else None).count()
        return now.replace(position=now.position + 0.1 * num[:, None])


def test_agents_who_leave_space_stop_the_run():
    with pytest.raises(ModelError, match=r"a position is NaN or outside .* \(10.0, 7.0\); .*space.move.*between steps"):
        dz.simulate(Escapes(), 60, compile=False)


def test_every_size_of_cells_gives_the_same_pairs():
    """However few agents bound the number of cells."""
    for dims, torus in itertools.product((1, 2, 3), (True, False)):
        space = Space(size=(40.0, 30.0, 20.0)[:dims], torus=torus)
        for num in (2, 5, 40):
            position = places(space, num)
            assert torch.equal(space.near(position, 1.9).count(), every_pair(space, position, 1.9)[2].sum(dim=1).int())
