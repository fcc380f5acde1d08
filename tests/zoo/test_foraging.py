"""The foraging world against a slow reference and the rules of its description."""

import dataclasses

import pytest
import torch

import denizen as dz
from denizen.zoo.foraging import MODES, Foraging, Interestingness, Mode, Pay, Plot, for_evaluation, foraging
from denizen.zoo.foraging.grid import cells, draw_empty, scattered

SMALL = {"height": 7, "width": 9, "food_range": (4, 9), "poison_range": (3, 8), "view_radius": 2}
MOVES = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]


def grid_of(env, plot):
    """0 empty, 1 food, 2 poison: int `[height, width]` of one world."""
    food, poison = cells(plot.planes, torch.arange(env.height), torch.arange(env.width))
    assert not bool((food & poison).any())
    return food + 2 * poison


class Slow:
    """The rules for one world in plain Python, told what is drawn: the rank of the cell on which something grows."""

    def __init__(self, env, plot):
        self.env, self.grid = env, grid_of(env, plot).tolist()
        self.x, self.y, self.energy = int(plot.x), int(plot.y), torch.tensor(1.0)

    def step(self, action, word):
        env = self.env
        dx, dy = MOVES[action]
        self.x, self.y = (self.x + dx) % env.width, (self.y + dy) % env.height
        ate = self.grid[self.y][self.x]
        if not env.mode.frozen:
            self.energy = self.energy - 0.01
            self.energy = self.energy + [0.0, 1.0, -2.0][ate]
        if ate:
            self.grid[self.y][self.x] = 0
            free = [
                (y, x)
                for y in range(env.height)
                for x in range(env.width)
                if self.grid[y][x] == 0 and (y, x) != (self.y, self.x)
            ]
            y, x = free[word * len(free) >> 31]
            self.grid[y][x] = ate
        return ate

    def seen(self):
        env, r = self.env, self.env.view_radius
        around = range(-r, r + 1)
        return torch.tensor(
            [[self.grid[(self.y + j) % env.height][(self.x + i) % env.width] for i in around] for j in around]
        )


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("ground_truth", SMALL),
        ("proxy", {**SMALL, "height": 5, "width": 64, "view_radius": 5}),
        ("proxy_mortal", {**SMALL, "height": 12, "width": 32, "view_radius": 5}),
    ],
)
def test_the_world_equals_a_slow_reference(mode, options):
    env, count, steps = foraging(mode, steps=40, **options), 8, 160
    worlds = dz.rl.Worlds(env, count, seed=5, device="cpu")
    observed = worlds.reset()
    slow = [Slow(env, worlds.state(world)) for world in range(count)]
    actions = torch.randint(0, 8, (steps, count), generator=torch.Generator().manual_seed(0))
    eaten = 0
    for t in range(steps):
        planes = env.unpacked(observed.observation)
        for world, game in enumerate(slow):
            seen = game.seen()
            assert torch.equal(planes[world, 0], (seen == 1).float())
            assert torch.equal(planes[world, 1], (seen == 2).float())
        step = worlds.step(actions[t])
        observed = step.observed
        for world, game in enumerate(slow):
            rng = dz.rng.Rng(torch.tensor([5, world]), torch.tensor(t), num=1)
            ate = game.step(int(actions[t, world]), int(rng.integers("grow", 0, 2**31)))
            eaten += ate != 0
            flows = [float(step.flows[name][world]) for name in ("food", "poison", "deaths")]
            assert flows == [ate == 1, ate == 2, game.energy <= 0]
            assert bool(step.terminated[world]) == bool(game.energy <= 0)
            if bool(step.ended[world]):
                slow[world] = Slow(env, worlds.state(world))
                assert grid_of(env, worlds.state(world)).tolist() == game.grid
            else:
                now = worlds.state(world)
                assert (int(now.x), int(now.y), float(now.energy)) == (game.x, game.y, float(game.energy))
                assert grid_of(env, now).tolist() == game.grid
    assert eaten > 20
    worlds.check()


def plot(env, items, x, y, **fields):
    """A world with given items {(y, x): 1 or 2}."""
    grid = torch.zeros(env.height, env.width, dtype=torch.int64)
    for (row, column), item in items.items():
        grid[row % env.height, column % env.width] = item
    foods = [n for n, item in enumerate(grid.flatten().tolist()) if item == 1]
    poisons = [n for n, item in enumerate(grid.flatten().tolist()) if item == 2]
    planes, taken = scattered(
        torch.tensor(foods + poisons, dtype=torch.int64),
        torch.tensor(len(foods)),
        torch.tensor(len(poisons)),
        env.height,
        env.width,
    )
    zero = torch.tensor(0, dtype=torch.int32)
    values = dict.fromkeys(Plot.kinds, zero) | {"ate_food": zero.to(torch.int8), "ate_poison": zero.to(torch.int8)}
    values |= {
        "planes": planes,
        "taken": taken.to(torch.int32),
        "foods": torch.tensor(len(foods), dtype=torch.int32),
        "poisons": torch.tensor(len(poisons), dtype=torch.int32),
        "x": torch.tensor(x, dtype=torch.int32),
        "y": torch.tensor(y, dtype=torch.int32),
        "energy": torch.tensor(1.0),
    }
    return Plot(**(values | fields))


def moved(env, now, dx, dy, clock=0):
    rng = dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(clock), num=1)
    return env.step(now, torch.tensor(MOVES.index((dx, dy))), rng)


def test_without_food_the_agent_dies_at_step_101():
    worlds = dz.rl.Worlds(foraging(food_range=(0, 0), poison_range=(0, 0)), 3, device="cpu")
    worlds.reset()
    ends = [bool(worlds.step(torch.zeros(3, dtype=torch.int64)).terminated.all()) for _ in range(202)]
    assert [t + 1 for t, end in enumerate(ends) if end] == [101, 202]
    assert worlds.state(0).last_steps == 101


def test_a_frozen_agent_dies_only_in_evaluation():
    env = foraging("proxy", food_range=(0, 0), poison_range=(5, 5), height=6, width=6, steps=30)
    worlds = dz.rl.Worlds(env, 3, device="cpu")
    worlds.reset()
    steps = [worlds.step(torch.full((3,), t % 8)) for t in range(60)]
    assert sum(float(step.flows["poison"].sum()) for step in steps) > 5
    assert not any(bool(step.terminated.any()) for step in steps)
    assert [t + 1 for t, step in enumerate(steps) if bool(step.truncated.all())] == [30, 60]
    worlds = dz.rl.Worlds(for_evaluation(env), 3, device="cpu")
    worlds.reset()
    assert any(bool(worlds.step(torch.full((3,), t % 8)).terminated.any()) for t in range(60))


@pytest.mark.parametrize(("energy", "dies"), [(1.0, True), (2.01, True), (2.02, False)])
def test_poison_kills_unless_energy_is_above_two_and_the_cost_of_the_move(energy, dies):
    env = foraging()
    now = plot(env, {(0, 1): 2}, x=0, y=0, energy=torch.tensor(energy))
    after = moved(env, now, 1, 0)
    assert bool(env.terminated(after)) == dies
    assert (int(after.ate_poison), int(after.poison), int(after.ate_food)) == (1, 1, 0)


def test_views_wrap_at_corners_with_rows_as_y():
    around = {(-1, -1): 1, (-1, 0): 2, (-1, 1): 1, (0, -1): 2, (0, 1): 1, (1, -1): 1, (1, 0): 2, (1, 1): 2}
    for corner in [(0, 0), (0, 127), (127, 0), (127, 127), (64, 31), (64, 32), (64, 95)]:
        for mode in MODES:
            env = foraging(mode, view_radius=1)
            items = {(corner[0] + dy, corner[1] + dx): item for (dy, dx), item in around.items()}
            seen = env.network_input(env.observe(plot(env, items, x=corner[1], y=corner[0]))[None])[0]
            for (dy, dx), item in {**around, (0, 0): 0}.items():
                true = [float(item == 1), float(item == 2)]
                wanted = (
                    true if mode.startswith("ground_truth") and "blinded" not in mode else [[0, 1.0, 0.5][item]] * 2
                )
                assert seen[:, dy + 1, dx + 1].tolist() == wanted


@pytest.mark.parametrize("mode", list(MODES))
def test_what_is_stored_is_what_was_seen_and_the_critics_input_belongs_to_it(mode):
    env = foraging(mode)
    worlds = dz.rl.Worlds(env, 8, device="cpu")
    stored, privileged, truth = [], [], []
    observed = worlds.reset()
    for action in torch.randint(0, 8, (10, 8), generator=torch.Generator().manual_seed(0)):
        stored.append(observed.observation)
        privileged.append(observed.privileged)
        grids = torch.stack([grid_of(env, worlds.state(world)) for world in range(8)])
        now, around = worlds.state(), torch.arange(-5, 6)
        rows = (now.y[:, None] + around) % 128
        columns = (now.x[:, None] + around) % 128
        truth.append(grids[torch.arange(8)[:, None, None], rows[:, :, None], columns[:, None, :]])
        observed = worlds.step(action).observed
    stored, truth = torch.cat(stored), torch.cat(truth)
    assert stored.dtype == torch.int16
    assert stored[0].numel() * stored.element_size() == 44
    both = torch.stack([(truth == 1).float(), (truth == 2).float()], 1)
    seen = env.network_input(stored)
    worth = 1.0 * both[:, :1] + 0.5 * both[:, 1:]
    assert torch.equal(seen, both if MODES[mode].view == MODES["ground_truth"].view else worth.expand(-1, 2, -1, -1))
    assert bool((seen[:, :, 5, 5] == 0).all())
    assert bool((seen == 0.5).any()) == (MODES[mode].view != MODES["ground_truth"].view)
    given = env.privileged_input(stored, torch.cat(privileged))
    assert given.shape == (80, 244)
    assert torch.equal(given[:, 2:], both.flatten(1))
    now = worlds.state()
    torch.testing.assert_close(given[:8, 0], (now.foods - 160) / 96)
    torch.testing.assert_close(given[:8, 1], (now.poisons - 160) / 96)


def test_items_are_conserved_for_ever():
    for options in (SMALL, {"height": 4, "width": 5, "food_range": (9, 9), "poison_range": (9, 9), "view_radius": 1}):
        env = foraging("proxy_mortal", **options)
        worlds = dz.rl.Worlds(env, 16, device="cpu")
        worlds.reset()
        first = worlds.state()
        for action in torch.randint(0, 8, (200, 16), generator=torch.Generator().manual_seed(0)):
            worlds.step(action)
        now = worlds.state()
        for world in range(16):
            grid = grid_of(env, worlds.state(world))
            assert int((grid == 1).sum()) == int(first.foods[world]) == int(now.foods[world])
            assert int((grid == 2).sum()) == int(first.poisons[world])
            assert grid[now.y[world], now.x[world]] == 0
            assert torch.equal((grid != 0).sum(1), now.taken[world])


def chi_square(counts, cells):
    """Of counts over cells, standardised: about normal for many cells."""
    expected = counts.sum() / cells
    return float(((counts - expected).square().sum() / expected - (cells - 1)) / (2 * (cells - 1)) ** 0.5)


def test_growth_and_starts_are_uniform_over_empty_cells():
    env = Foraging(height=6, width=9, food_range=(5, 5), poison_range=(6, 6), view_radius=1)
    items = {(0, 0): 1, (0, 3): 2, (2, 2): 1, (5, 8): 2, (5, 7): 2, (4, 1): 1}
    now = plot(env, items, x=3, y=3)
    words = dz.rng.Rng(torch.tensor([1, 0]), torch.tensor(0), num=40_000).integers("word", 0, 2**31)
    draw = torch.vmap(
        lambda word, y, x: draw_empty(now.planes, now.taken.to(torch.int64), 9, word, y, x), (0, None, None)
    )
    for left_out in (True, False):
        y, x = draw(words, torch.tensor(3 if left_out else -1), torch.tensor(3 if left_out else -1))
        counts = torch.bincount(y * 9 + x, minlength=54).double()
        closed = [row * 9 + column for row, column in items] + ([30] if left_out else [])
        assert bool((counts[closed] == 0).all())
        assert abs(chi_square(counts[counts > 0], 54 - len(closed))) < 4
        assert int((counts > 0).sum()) == 54 - len(closed)


def test_first_worlds_are_uniform():
    env = Foraging(height=8, width=8, food_range=(3, 6), poison_range=(2, 4), view_radius=1)
    worlds = dz.rl.Worlds(env, 6000, device="cpu")
    worlds.reset()
    now = worlds.state()
    rows, columns = torch.arange(8), torch.arange(8)
    food, poison = torch.vmap(lambda planes: cells(planes, rows, columns))(now.planes).unbind(1)
    assert torch.equal(food.sum((1, 2)), now.foods.long())
    assert torch.equal(poison.sum((1, 2)), now.poisons.long())
    for numbers, low, high in ((now.foods, 3, 6), (now.poisons, 2, 4)):
        counts = torch.bincount(numbers, minlength=high + 1).double()
        assert counts[:low].sum() == 0
        assert abs(chi_square(counts[low:], high - low + 1)) < 4
    for plane in (food, poison):
        assert abs(chi_square(plane.sum(0).flatten().double(), 64)) < 4
    agents = torch.bincount(now.y * 8 + now.x, minlength=64).double()
    assert abs(chi_square(agents, 64)) < 4
    assert int((food + poison)[torch.arange(6000), now.y, now.x].sum()) == 0


def test_grid_lifetime_says_what_a_new_life_finds():
    """Over 64 … 256 items a uniform draw has mean 160 and standard deviation 55.7."""
    for lifetime in ("persist", "life"):
        env = foraging(grid_lifetime=lifetime, steps=2)
        worlds = dz.rl.Worlds(env, 40, device="cpu")
        worlds.reset()
        counts = [worlds.state().foods]
        for t in range(60):
            before = worlds.state()
            step = worlds.step(torch.full((40,), t % 8))
            now = worlds.state()
            ended = step.ended
            assert bool(((now.last_steps == 1) | (now.last_steps == 2))[ended].all())
            if bool(ended.any()):
                counts.append(now.foods[ended])
                assert bool((now.energy[ended] == 1).all())
                assert bool((now.food[ended] == 0).all())
                assert bool(((now.x != before.x) | (now.y != before.y))[ended].all())
        if lifetime == "persist":
            assert torch.equal(worlds.state().foods, counts[0])
        else:
            assert float((worlds.state().foods != counts[0]).double().mean()) > 0.9
            drawn = torch.cat(counts).double()
            assert drawn.min() >= 64
            assert drawn.max() <= 256
            assert float(drawn.mean()) == pytest.approx(160, abs=4 * 55.7 / len(drawn) ** 0.5)
            assert float(drawn.std()) == pytest.approx(55.7, rel=0.08)


def test_densities_differ_between_worlds_and_change_with_a_training():
    params = {"food_share": [0.0, 0.25, 1.0], "poison_share": [1.0, 0.5, 0.0]}
    worlds, plain = (dz.rl.Worlds(foraging(), 3, params=given, device="cpu") for given in (params, None))
    worlds.reset()
    plain.reset()
    now, all_ = worlds.state(), plain.state()
    assert torch.equal(now.foods, (all_.foods * torch.tensor([0.0, 0.25, 1.0])).round().long())
    assert torch.equal(now.poisons, (all_.poisons * torch.tensor([1.0, 0.5, 0.0])).round().long())

    env = foraging(grid_lifetime="life", steps=2, food_range=(100, 100))
    algorithm, policy = dz.PPO(num_envs=4, num_steps=2), dz.rl.conv(env, channels=(2,), hidden=4, critic_hidden=(4,))
    training = algorithm.init(env, policy, total_steps=4 * 8, device="cpu", params={"food_share": dz.rl.Linear(0.2, 1)})
    seen = []
    for _ in range(4):
        algorithm.update(training)
        seen.append(set(training.worlds.state_of(training.rollout.state.worlds).foods.tolist()))
    assert seen == [{20}, {40}, {60}, {80}]
    with pytest.raises(dz.errors.InputError, match=r"food_share cannot change .* set grid_lifetime='life'"):
        algorithm.init(foraging(), policy, total_steps=8, device="cpu", params={"food_share": dz.rl.Linear(0.2, 1)})


def test_batches_are_the_same_in_parts():
    given = torch.randint(0, 8, (150, 10), generator=torch.Generator().manual_seed(0))
    whole = dz.rl.Worlds(foraging(steps=50), 10, device="cpu")
    part = dz.rl.Worlds(foraging(steps=50), 3, worlds=[2, 5, 9], device="cpu")
    whole.reset()
    part.reset()
    for action in given:
        all_, some = whole.step(action), part.step(action[[2, 5, 9]])
        assert torch.equal(all_.observed.observation[[2, 5, 9]], some.observed.observation)
        assert torch.equal(all_.reward[[2, 5, 9]], some.reward)


def test_rewards_by_mode():
    items = {(0, 1): 1, (1, 0): 2}
    wanted = {
        "ground_truth": (0.99, -6.01, -0.01),
        "ground_truth_blinded": (0.99, -6.01, -0.01),
        "proxy_mortal": (1.0, 0.5, 0.0),
        "proxy": (1.0, 0.5, 0.0),
    }
    for mode, rewards in wanted.items():
        env = foraging(mode)
        now = plot(env, items, x=0, y=0)
        for (dx, dy), reward in zip([(1, 0), (0, 1), (-1, -1)], rewards, strict=True):
            assert float(env.reward(now, torch.tensor(0), moved(env, now, dx, dy))) == pytest.approx(reward)
    starved = plot(foraging(), {}, x=0, y=0, energy=torch.tensor(0.005))
    assert float(foraging().reward(starved, torch.tensor(0), moved(foraging(), starved, 1, 0))) == pytest.approx(-4.01)


def test_guidance_telescopes_over_a_life():
    env = foraging("ground_truth_handhold", steps=None)
    guided, plain = env.mode.pay, dataclasses.replace(env.mode.pay, guidance=None)
    bare = env.replace(mode=dataclasses.replace(env.mode, pay=plain))
    now = plot(env, {(3, 3): 1, (60, 60): 2, (5, 1): 1}, x=0, y=0)
    first = now
    total = 0.0
    for t, (dx, dy) in enumerate([(1, 0), (0, 1), (1, 1), (1, 1), (0, 1), (-1, 1), (1, 0)]):
        after = moved(env, now, dx, dy, clock=t)
        shaping = float(env.reward(now, torch.tensor(0), after)) - float(bare.reward(now, torch.tensor(0), after))
        total += guided.guidance**t * shaping
        now = after
    wanted = guided.guidance**7 * float(env._near(now)) - float(env._near(first))
    assert total == pytest.approx(wanted, abs=1e-5)
    assert float(env._near(first)) == pytest.approx(0.5 / (18**0.5 + 0.5))
    doomed = plot(env, {(2, 1): 2, (3, 1): 1}, x=1, y=1)
    died = moved(env, doomed, 0, 1)
    assert float(env.reward(doomed, torch.tensor(0), died)) == pytest.approx(-1 - 0.01 - 2 - 0.5 / 2.5)


def test_a_view_without_types_and_a_pay_of_ones_own():
    mode = Mode("flat", Interestingness(1.0, 1.0), Pay(food=2.0, poison=0.0, step=0.0, death=0.0))
    env = Foraging(mode=mode)
    now = plot(env, {(0, 1): 1, (1, 0): 2}, x=0, y=0)
    seen = env.network_input(env.observe(now)[None])[0]
    assert sorted(seen.unique().tolist()) == [0.0, 1.0]
    assert float(env.reward(now, torch.tensor(0), moved(env, now, 1, 0))) == 2.0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "prxy"}, "unknown mode 'prxy'.*proxy"),
        ({"wdth": 3}, "unknown option 'wdth'.*width"),
        ({"grid_lifetime": "run"}, "grid_lifetime='run', .*valid: life, persist"),
        ({"food_range": (5, 3)}, r"food_range=\(5, 3\), expected \(fewest, most\)"),
        ({"poison_range": 5}, "poison_range=5"),
        ({"height": 10, "width": 10}, "up to 512 items on 10 x 10 cells"),
        ({"view_radius": 8}, "view_radius=8, expected a whole number from 1 to 7"),
        ({"steps": 0}, "steps=0, expected a whole number, at least 1, or None"),
        ({"move_cost": -1}, "move_cost=-1, expected a number from 0 to 1000000"),
    ],
)
def test_wrong_options_are_named(options, told):
    with pytest.raises(dz.errors.InputError, match=told):
        foraging(**options)
    with pytest.raises(dz.errors.InputError, match="mode='proxy', expected a Mode"):
        Foraging(mode="proxy")


def test_a_picture_shows_items_and_the_agent():
    env = foraging(height=16, width=20, food_range=(3, 3), poison_range=(2, 2))
    image = env.draw(plot(env, {(0, 1): 1, (4, 7): 2}, x=19, y=0))
    assert image.shape == (48, 60, 3)
    assert image.dtype == torch.uint8
    assert len({tuple(pixel.tolist()) for pixel in (image[0, 3], image[12, 21], image[0, 57], image[24, 30])}) == 4


@pytest.mark.parametrize("options", [{}, {"mode": "ground_truth_handhold", "grid_lifetime": "life"}])
def test_the_world_keeps_the_authors_rules(options):
    assert dz.check(foraging(height=16, width=16, food_range=(3, 9), poison_range=(3, 9), **options)).ok


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Pay(food="1"), "Pay: food='1', expected a number"),
        (
            lambda: Pay(guidance=float("nan")),
            "Pay: guidance=nan, expected a number from 0 to 1, or None for no guidance",
        ),
        (lambda: Interestingness(poison=None), "Interestingness: poison=None, expected a number"),
    ],
)
def test_what_a_view_and_a_pay_are_made_of_are_numbers(made, told):
    with pytest.raises(dz.errors.InputError, match=told):
        made()
