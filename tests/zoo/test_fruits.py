"""The fruit catcher against a slow reference, its options, and what simple play scores."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import denizen as dz
from denizen.zoo.fruits import Fruits, fruits, fruits_match, fruits_original
from denizen.zoo.fruits.config import ORIGINAL_STARTS

VARIANTS = [
    {},
    {"sprite_width": 1, "max_fruits": 1},
    {"sprite_width": 5, "min_fruits": 3, "max_fruits": 5, "min_interval": 2, "spawn_prob": 0.9},
    {"width": 7, "height": 2, "min_interval": 1, "min_fruits": 2},
    {"min_fruits": 0, "spawn_prob": 0.1, "height": 9},
]


class Slow:
    """The rules, one world, plain Python; told what was drawn."""

    def __init__(self, env, start, column):
        self.env, self.sprite, self.score, self.age = env, start, 0, 0
        self.slots = [[column, 0, True]] + [[0, 0, False] for _ in range(env.max_fruits - 1)]

    def step(self, action, chance, columns):
        env = self.env
        self.sprite = min(max(self.sprite + action - 1, 0), env.width - 1)
        freed = False
        for slot in self.slots:
            if slot[2]:
                slot[1] += 1
                if slot[1] == env.height - 1:
                    self.score += 1 if abs(slot[0] - self.sprite) <= env.sprite_width // 2 else -1
                    slot[2], freed = False, True
        there = [slot for slot in self.slots if slot[2]]
        gate = not there or min(slot[1] for slot in there) >= env.min_interval
        forced = max(env.min_fruits - len(there), 0)
        new = 0
        if gate:
            new = forced
            if forced == 0 and not freed and len(there) < env.max_fruits and chance:
                new = 1
        for number, slot in enumerate(self.slots):
            if new and not slot[2]:
                slot[:] = [columns[number], 0, True]
                new -= 1
        self.age += 1

    def observation(self):
        w, h = self.env.width - 1, self.env.height - 1
        seen = [2 * self.sprite / w - 1]
        for x, y, there in self.slots:
            seen += [2 * x / w - 1, 2 * y / h - 1, 1.0] if there else [0.0, 0.0, 0.0]
        return torch.tensor(seen)


def draws(env, seed, world, clock, phase):
    return dz.rng.Rng(torch.tensor([seed, world]), torch.tensor(clock), num=1, phase=phase)


@pytest.mark.parametrize("options", VARIANTS)
def test_the_game_equals_a_slow_reference_over_thousands_of_random_steps(options):
    env, count, steps = Fruits(max_steps=None, **options), 10, 200
    worlds = dz.rl.Worlds(env, count, seed=3, device="cpu")
    observed = worlds.reset()
    slow = []
    for world in range(count):
        rng = draws(env, 3, world, 0, "init")
        columns = env.start_columns
        start = columns[int(rng.integers("start", 0, len(columns)))]
        slow.append(Slow(env, start, int(rng.integers("fruit", 0, env.width))))
    actions = torch.randint(0, 3, (steps, count), generator=torch.Generator().manual_seed(0))
    before = [0] * count
    for t in range(steps):
        for world, game in enumerate(slow):
            torch.testing.assert_close(observed.observation[world], game.observation(), rtol=0, atol=1e-6)
            rng = draws(env, 3, world, t, "step")
            chance = int(rng.bernoulli("spawn", env.spawn_prob))
            columns = rng.on("slots", env.max_fruits).integers("column", 0, env.width).tolist()
            game.step(int(actions[t, world]), chance, columns)
        step = worlds.step(actions[t])
        observed = step.observed
        assert step.reward.tolist() == [game.score - last for game, last in zip(slow, before, strict=True)]
        before = [game.score for game in slow]
    worlds.check()


def test_a_fruit_lands_after_height_minus_one_moves():
    worlds = dz.rl.Worlds(fruits(spawn_prob=0.0), 50, device="cpu")
    worlds.reset()
    for t in range(1, 15):
        reward = worlds.step(torch.ones(50, dtype=torch.int64)).reward
        assert bool((reward != 0).all()) == (t == 14)
        assert bool((reward == 0).all()) == (t < 14)


@hypothesis.given(
    width=st.integers(2, 9),
    height=st.integers(2, 9),
    slots=st.integers(1, 5),
    least=st.integers(0, 5),
    interval=st.integers(1, 10),
    prob=st.floats(0, 1),
    half=st.integers(0, 4),
    seed=st.integers(0, 9999),
)
@hypothesis.settings(max_examples=12, deadline=None, phases=[hypothesis.Phase.reuse, hypothesis.Phase.generate])
def test_no_fruit_is_lost_doubled_or_off_screen(width, height, slots, least, interval, prob, half, seed):
    env = Fruits(
        spawn_prob=prob,
        width=width,
        height=height,
        sprite_width=2 * min(half, (width - 1) // 2) + 1,
        max_fruits=slots,
        min_fruits=min(least, slots),
        min_interval=interval,
        max_steps=None,
    )
    worlds = dz.rl.Worlds(env, 5, seed=seed, device="cpu")
    worlds.reset()
    old = worlds.state()
    assert old.active.sum(1).tolist() == [1] * 5
    for action in torch.randint(0, 3, (30, 5), generator=torch.Generator().manual_seed(seed)):
        step = worlds.step(action)
        now = worlds.state()
        landed = (now.caught + now.missed) - (old.caught + old.missed)
        assert torch.equal(landed, ((old.active != 0) & (old.y == height - 2)).sum(1))
        kept = (old.active != 0) & (old.y < height - 2)
        assert torch.equal(now.x[kept], old.x[kept])
        assert torch.equal(now.y[kept], old.y[kept] + 1)
        assert bool(now.active[kept].all())
        new = (now.active != 0) & ~kept
        assert bool((now.y[new] == 0).all())
        assert bool(((now.x >= 0) & (now.x < width) & (now.y >= 0) & (now.y < height)).all())
        assert bool(((now.sprite >= 0) & (now.sprite < width)).all())
        assert torch.equal(step.flows["caught"] - step.flows["missed"], step.reward)
        old = now
    worlds.check()


def test_what_falls_depends_on_the_world_alone():
    env = fruits()
    worlds = dz.rl.Worlds(env, 6, worlds=[4, 4, 4, 5, 5, 6], device="cpu")
    seen = [worlds.reset().observation]
    sprites = []
    for action in torch.randint(0, 3, (99, 6), generator=torch.Generator().manual_seed(1)):
        seen.append(worlds.step(action).observed.observation)
        sprites.append(worlds.state().sprite)
    field = torch.stack(seen)[..., 1:]
    assert torch.equal(field[:, 0], field[:, 1])
    assert torch.equal(field[:, 0], field[:, 2])
    assert torch.equal(field[:, 3], field[:, 4])
    assert not torch.equal(field[:, 0], field[:, 3])
    assert not torch.equal(field[:, 3], field[:, 5])
    moved = torch.stack(sprites)
    assert not torch.equal(moved[:, 0], moved[:, 1])


def test_spawning_and_random_play_have_the_statistics_of_the_rules():
    """Reference values of the description: 544 worlds, starts 1 … 17, standard error of its own about 0.02."""
    count = 4352
    worlds = dz.rl.Worlds(fruits(starts=ORIGINAL_STARTS, max_steps=101), count, device="cpu")
    worlds.reset()
    generator = torch.Generator().manual_seed(0)
    score = torch.zeros(count)
    landed = active = caught = 0.0
    for t in range(1, 101):
        step = worlds.step(torch.randint(0, 3, (count,), generator=generator))
        score += step.reward
        landed += float((step.flows["caught"] + step.flows["missed"]).sum())
        caught += float(step.flows["caught"].sum())
        active += float(worlds.state().active.sum())
        if t == 30:
            spawned = (landed + float(worlds.state().active.sum()) - count) / 30
            assert spawned / count * 544 == pytest.approx(81.9, abs=0.5)
            assert landed / count == pytest.approx(3.26, abs=0.04)
            assert float(score.mean()) == pytest.approx(-2.33, abs=4 * 0.03)
    spawned = (landed + float(worlds.state().active.sum()) - count) / 100
    assert spawned / count * 544 == pytest.approx(86.5, abs=0.5)
    assert landed / count == pytest.approx(14.63, abs=0.06)
    assert float(score.mean()) == pytest.approx(-10.41, abs=4 * 0.05)
    assert float(score.std()) == pytest.approx(2.78, abs=0.15)
    assert caught / landed == pytest.approx(0.144, abs=0.006)
    assert active / count / 100 == pytest.approx(2.21, abs=0.05)
    worlds.check()


def test_the_original_reward_and_observation():
    count, total = 4352, 0.0
    env = fruits_original()
    worlds = dz.rl.Worlds(env, count, device="cpu")
    observed = worlds.reset()
    assert observed.observation[:, 0].unique().tolist() == [float(x) for x in range(1, 18)]
    generator = torch.Generator().manual_seed(0)
    for t in range(30):
        step = worlds.step(torch.randint(0, 3, (count,), generator=generator))
        if t == 0:
            torch.testing.assert_close(step.reward, torch.full((count,), 0.05))
        total += float(step.reward.mean()) / 30
    assert total == pytest.approx(0.0092, abs=4 * 0.0004)
    now = worlds.state()
    assert torch.equal(step.observed.observation[:, 1::3], now.x.float())
    assert bool((now.x[now.active == 0] != 0).any())  # stale places are shown
    assert bool(((step.observed.observation >= 0) & (step.observed.observation <= env.observation_space.high)).all())


def test_a_life_ends_with_its_steps_or_at_a_threshold():
    worlds = dz.rl.Worlds(fruits(max_steps=7), 3, device="cpu")
    worlds.reset()
    ends = [worlds.step(torch.ones(3, dtype=torch.int64)) for _ in range(14)]
    assert [bool(step.terminated.all()) for step in ends] == [t % 7 == 6 for t in range(14)]
    assert all(bool((step.truncated == step.terminated).all()) for step in ends)  # both hold: the end is the rule's
    env = fruits_match(fail_score=-3, win_score=2)
    worlds = dz.rl.Worlds(env, 40, device="cpu")
    worlds.reset()
    score, outcomes = torch.zeros(40), []
    for action in torch.randint(0, 3, (200, 40), generator=torch.Generator().manual_seed(0)):
        step = worlds.step(action)
        score += step.reward
        assert torch.equal(step.terminated, (score <= -3) | (score >= 2))
        outcomes += score[step.terminated].tolist()
        score[step.terminated] = 0
    assert set(outcomes) == {-3.0, 2.0}


def test_the_clock_tells_what_is_left():
    worlds = dz.rl.Worlds(fruits(clock=True, max_steps=4), 2, device="cpu")
    seen = [worlds.reset()] + [worlds.step(torch.ones(2, dtype=torch.int64)).observed for _ in range(5)]
    assert [float(observed.observation[0, -1]) for observed in seen] == [1.0, 0.75, 0.5, 0.25, 1.0, 0.75]


def test_worlds_may_differ_in_their_spawn_probability():
    worlds = dz.rl.Worlds(fruits(min_fruits=0), 2, params={"spawn_prob": [0.0, 1.0]}, device="cpu")
    worlds.reset()
    for _ in range(60):
        worlds.step(torch.ones(2, dtype=torch.int64))
    now = worlds.state()
    assert (now.caught + now.missed + now.active.sum(1))[0] == 1
    assert (now.caught + now.missed + now.active.sum(1))[1] > 8


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sprite_width": 2}, "sprite_width=2, expected an odd number"),
        ({"spawn_prob": 1.5}, r"spawn_prob = 1.5: expected 0 to 1"),
        ({"min_interval": 0}, "min_interval=0, expected a whole number, at least 1"),
        ({"height": 1}, "height=1"),
        ({"max_fruits": 0}, "max_fruits=0"),
        ({"min_fruits": 4}, "min_fruits=4, expected a whole number from 0 to 3"),
        ({"width": 2}, "width=2, expected a whole number, at least 3"),
        ({"starts": (3, 20)}, r"starts=\(3, 20\), expected columns from 0 to 19"),
        ({"starts": ()}, "starts="),
        ({"clock": True, "max_steps": None}, "clock=True needs max_steps"),
        ({"pays": "score"}, "pays='score', expected a function"),
        ({"win_score": 0}, "win_score=0"),
        ({"fail_score": True}, "fail_score=True"),
    ],
)
def test_wrong_options_are_named(options, told):
    with pytest.raises(dz.errors.InputError, match=told):
        fruits(**options)


def test_a_picture_shows_fruits_and_sprite():
    worlds = dz.rl.Worlds(fruits(), 1, device="cpu")
    worlds.reset()
    worlds.step(torch.tensor([2]))
    now = worlds.state(0)
    lines = worlds.env.draw(now)
    assert {len(line) for line in lines[:-1]} == {22}
    assert lines[2][int(now.x[0]) + 1] == "o"
    assert lines[15].count("=") == 3
    assert lines[-1] == "step 1  score +0  caught 0"
