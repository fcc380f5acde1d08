"""Keys, doors and boxes: the shortest way by search is walked in the world; levels depend on their numbers alone."""

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.zoo.keydoor import Levels, keydoor, made, shortest

FAMILIES = [
    {"size": 5, "rooms": 2, "boxes": 0},
    {"size": 6, "rooms": 2, "boxes": 1},
    {"size": 5, "rooms": 3, "boxes": 3},
]


def plain(levels, which, size, rooms, moves):
    """The rules, one move after the other: (cells of the player, moves until the goal or None, keys held)."""
    columns = 1 + rooms * (size - 1)
    goal, doors, keys, boxes = (part[which].tolist() for part in levels[1:])
    at, held, locked, lying, closed, path = int(levels.start[which]), 0, {*doors}, {*keys}, {*boxes}, []
    for count, move in enumerate(moves, 1):
        there = at + (-columns, columns, -1, 1)[move]
        row, column = divmod(there, columns)
        if there in closed:
            closed.remove(there)
        elif there in locked:
            if held:
                held -= 1
                locked.remove(there)
        elif there in doors or (row % (size - 1) and column % (size - 1)):
            at = there
            held += there in lying
            lying -= {there}
        path.append(at)
        if at == goal:
            return path, count, held
    return path, None, held


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_lives_follow_the_rules(family):
    count, steps, generator = 40, 150, np.random.default_rng(0)
    env = keydoor(**family, levels=7, first=5, max_steps=steps)
    levels = made(*family.values(), range(5, 12))
    worlds = dz.rl.Worlds(env, count, device="cpu", max_resets=0)
    worlds.reset()
    which = worlds.state().level.tolist()
    assert len(set(which)) == 7
    moves = generator.integers(0, 4, (count, steps))
    told = [plain(levels, which[world], env.size, env.rooms, moves[world]) for world in range(count)]
    for number in range(steps):
        step = worlds.step(torch.from_numpy(moves[:, number]))
        for world, (path, end, _) in enumerate(told):
            if end is None or number < end:
                assert int(worlds.state().at[world]) == path[number], (world, number)
                assert bool(step.terminated[world]) == (number + 1 == end)
                paid = 1 - 0.9 * end / steps if number + 1 == end else 0.0
                assert float(step.reward[world]) == pytest.approx(paid)
    worlds.check()
    assert any(end is not None for _, end, _ in told) or env.rooms == 3


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_every_level_has_a_way_and_the_search_finds_the_shortest(family):
    """At least by way of keys and doors as the crow flies, and not much longer, since rooms are open."""
    size, rooms, _ = family.values()
    levels = made(*family.values(), range(200))
    lengths = [shortest(levels, which, size, rooms) for which in range(30)]
    columns = 1 + rooms * (size - 1)
    for which, length in enumerate(lengths):
        stops = [levels.start[which], *np.stack([levels.keys[which], levels.doors[which]], 1).ravel()]
        rows, across = np.divmod(np.array([*stops, levels.goal[which]]), columns)
        straight = int(np.abs(np.diff(rows)).sum() + np.abs(np.diff(across)).sum())
        bumps = (rooms - 1) * (2 if levels.boxes.shape[1] else 1)  # doors are opened by a move of their own, and boxes
        assert straight + bumps <= length <= straight + bumps + 4 * rooms, which


def test_the_shortest_way_of_a_level_made_by_hand():
    """Two rooms of 2 x 2."""
    level = Levels(*[np.array([part], np.int32) for part in (8, 12, [17], [15], [])])
    assert shortest(level, 0, 4, 2) == 7  # down to the key, right, against the door, right three times, up


def test_a_level_is_its_number():
    some, others = made(6, 3, 2, range(100, 110)), made(6, 3, 2, range(105, 120))
    for one, other in zip(some, others, strict=True):
        assert np.array_equal(one[5:], other[:5])
    cells = np.concatenate([some.start[:, None], some.goal[:, None], some.doors, some.boxes], axis=1)
    assert all(len(set(row)) == len(row) for row in cells.tolist())  # nothing lies on anything else
    assert np.array_equal(some.keys, some.boxes[:, ::2])


def test_a_key_in_a_box_is_not_seen_until_it_is_opened():
    env = keydoor(levels=1)
    worlds = dz.rl.Worlds(env, 1, device="cpu")
    key, box = worlds.reset().observation[0, 2:4]
    assert (int(key.sum()), int(box.sum())) == (0, 1)
    state = worlds.state(0)
    key, box = env.observe(state.replace(closed=torch.zeros_like(state.closed)))[2:4]
    assert (int(key.sum()), int(box.sum())) == (1, 0)


def test_sizes_are_checked():
    with pytest.raises(dz.errors.InputError, match=r"keydoor: boxes=3 do not fit into rooms of 4 cells; at most 2"):
        keydoor(size=4, boxes=3)
    with pytest.raises(dz.errors.InputError, match=r"keydoor: rooms=1, expected a whole number from 2 to 16"):
        keydoor(rooms=1)


@pytest.mark.slow
def test_what_is_learnt_holds_in_levels_that_were_not_met():
    env = keydoor(size=5, boxes=1, levels=2_000)
    settings = dz.PPO(num_envs=128, num_steps=32, num_minibatches=4, learning_rate=1e-3, ent_coef=0.02)
    result = dz.train(env, dz.rl.mlp(env, activation=torch.nn.ReLU), settings, 400_000, device="cpu", progress=False)
    held_out = keydoor(size=5, boxes=1, levels=2_000, first=1_000_000)
    levels = made(5, 2, 1, range(1_000_000, 1_000_200))
    best = np.mean([1 - 0.9 * shortest(levels, which, 5, 2) / env.max_steps for which in range(200)])
    found = dz.rl.evaluate(held_out, result.policy, num_envs=400, greedy=False, device="cpu")
    assert best - 0.15 < found.mean < best + 0.01
