"""The MinAtar games against slow, readable rules, with the same random numbers."""

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.zoo.asterix import Asterix
from denizen.zoo.breakout import Breakout
from denizen.zoo.freeway import Freeway
from denizen.zoo.seaquest import Seaquest
from denizen.zoo.spaceinvaders import SpaceInvaders

from . import minatar_rules as rules

GAMES = [Breakout, Freeway, Asterix, SpaceInvaders, Seaquest]
IDS = [game.__name__ for game in GAMES]
SEED = 5


def streams(world, clock, phase="step"):
    return dz.rng.Rng(torch.tensor([SEED, world]), torch.tensor(clock), num=1, phase=phase)


def traffic(rng):
    drawn = rng.on("lanes", 8).integers("traffic", 0, 10).tolist()
    return [(1 + d % 5) * (1 if d >= 5 else -1) for d in drawn]


def begin(game, world, clock):
    """The reference at the start of a life."""
    rng = streams(world, clock, "init")
    slow = getattr(rules, game.__name__)()
    if game is Breakout:
        slow.start(int(rng.on("start", 1).integers("side", 0, 2)))
    elif game is Freeway:
        slow.start(traffic(rng))
    else:
        slow.start()
    return slow


def follow(game, slow, action, world, clock):
    """A step of the reference with the numbers that the world draws."""
    if game is Freeway:
        return slow.step(action, traffic(streams(world, clock)))
    if game is Asterix:
        side, kind, where = streams(world, clock).on("spawn", 3).uniform("what").tolist()
        return slow.step(action, side < 0.5, kind < 1 / 3, where)
    if game is Seaquest:
        return slow.step(action, *streams(world, clock).on("spawn", 5).uniform("what").tolist())
    return slow.step(action)


def play(game, slow, generator):
    """An action, by its place among those that do something: good enough to get far, with some chance in it."""
    choices = len(game.moves)
    if game is Breakout and generator.random() < 0.98:
        x = slow.x + slow.dx
        return 1 if x < slow.paddle else 2 if x > slow.paddle else 0
    if game is Freeway and generator.random() < 0.9:
        return 1
    if game is SpaceInvaders and generator.random() < 0.4:
        return 3
    if game is Seaquest and generator.random() < 0.8:
        return dive(slow)
    return int(generator.integers(choices))


def dive(slow):
    """Down to a diver and up with it where there is air for no more; shots at what comes near on the way."""
    if slow.crew == 6 or (slow.air < 40 and slow.crew != 0):
        return 2
    if any(foe["y"] == slow.y and (foe["x"] > slow.x) == slow.right for foe in slow.foes) and slow.to_fire == 0:
        return 5
    if not slow.divers:
        return 4 if slow.y < 4 else 0
    diver = slow.divers[0]
    if diver["y"] != slow.y:
        return 4 if diver["y"] > slow.y else 2 if slow.y > 1 else 0
    return 3 if diver["x"] > slow.x else 1


@pytest.mark.parametrize("game", GAMES, ids=IDS)
def test_lives_follow_the_rules(game):
    count, steps, generator = 5, 200 if game is Seaquest else 400, np.random.default_rng(0)
    env = game()
    worlds = dz.rl.Worlds(env, count, seed=SEED, device="cpu")
    observed = worlds.reset()
    slow = [begin(game, world, 0) for world in range(count)]
    paid, ends, longest = 0, 0, 0
    ages = [0] * count
    for clock in range(steps):
        assert np.array_equal(observed.observation.numpy(), np.stack([each.planes() for each in slow])), clock
        actions = [play(game, each, generator) for each in slow]
        step = worlds.step(torch.tensor(actions))
        for world, each in enumerate(slow):
            ages[world] += 1
            reward, over = follow(game, each, game.moves[actions[world]], world, clock)
            assert (float(step.reward[world]), bool(step.terminated[world])) == (reward, over), (clock, world)
            assert np.array_equal(step.final.observation[world].numpy(), each.planes())
            paid, longest = paid + reward, max(longest, ages[world])
            if over:
                slow[world], ages[world], ends = begin(game, world, clock + 1), 0, ends + 1
        observed = step.observed
    worlds.check()
    assert not bool(step.truncated.any())
    least = {Breakout: (20, 5), Freeway: (5, 0), Asterix: (5, 10), SpaceInvaders: (30, 5), Seaquest: (5, 5)}[game]
    assert (paid, ends) >= least, (paid, ends, longest)


def random_states(game, count, generator):
    """Fields of states as they may come up late in a life, `[worlds, …]` each."""

    def whole(low, high, *shape):
        return generator.integers(low, high, (count, *shape))

    def share(prob, *shape):
        return (generator.random((count, *shape)) < prob).astype(int)

    zero = np.zeros(count, int)
    if game is Breakout:
        full = share(0.7, 3, 10) * share(0.8)[:, None, None]
        fields = {"paddle": whole(0, 10), "x": whole(0, 10), "y": whole(0, 9), "right": share(0.5), "down": share(0.5)}
        fields |= {
            "trail_x": whole(0, 10),
            "trail_y": whole(0, 10),
            "struck": share(0.3),
            "lost": zero,
            "bricks": full.reshape(count, 30),
        }
    elif game is Freeway:
        pace = whole(1, 6, 8)
        fields = {"row": whole(1, 10), "crossed": zero, "rest": whole(0, 4), "x": whole(0, 10, 8)}
        fields |= {
            "wait": (generator.random((count, 8)) * (pace + 1)).astype(int),
            "pace": pace,
            "right": share(0.5, 8),
        }
    elif game is Asterix:
        fields = {"x": whole(0, 10), "y": whole(1, 9), "there": share(0.8, 8), "thing_x": whole(0, 10, 8)}
        fields |= {"right": share(0.5, 8), "gold": share(0.4, 8), "to_spawn": whole(0, 3), "to_move": whole(0, 3)}
        fields |= {"to_ramp": whole(0, 3), "spawn_every": whole(1, 11), "move_every": whole(1, 6)}
        fields |= {"ramps": whole(0, 9), "found": zero, "dead": zero}
    elif game is Seaquest:
        fields = {"x": whole(0, 10), "y": whole(0, 9), "right": share(0.5), "air": whole(0, 201)}
        fields |= {"crew": whole(-2, 7), "surfaced": share(0.3)}
        fields |= {"foe": share(0.6, 32), "foe_x": whole(0, 10, 32), "foe_y": whole(1, 9, 32)}
        fields |= {"foe_right": share(0.5, 32), "foe_armed": share(0.4, 32)}
        fields |= {"foe_move": whole(0, 3, 32), "foe_shoot": whole(0, 3, 32)}
        fields |= {"diver": share(0.7, 2), "diver_x": whole(0, 10, 2), "diver_y": whole(1, 9, 2)}
        fields |= {"diver_right": share(0.5, 2), "diver_move": whole(0, 2, 2)}
        fields |= {"shot": share(0.8, 2), "shot_x": whole(0, 10, 2), "shot_y": whole(1, 9, 2)}
        fields |= {"shot_right": share(0.5, 2)}
        inside = np.repeat(np.arange(10) % 9 > 0, 10)
        fields |= {"shells_left": share(0.1, 100) * inside, "shells_right": share(0.1, 100) * inside}
        fields |= {"to_spawn": whole(0, 3), "to_dive": whole(0, 3), "to_fire": whole(0, 3)}
        fields |= {"spawn_every": whole(1, 21), "move_every": whole(2, 6), "ramps": whole(0, 9)}
        fields |= {"paid": zero, "dead": zero}
        fields["right"] = np.where(fields["x"] == 9, 1, fields["right"] * (fields["x"] > 0))  # the back is on board
        for name, timer in (("foe", "to_spawn"), ("diver", "to_dive"), ("shot", "to_fire")):
            fields[name][:, -1] *= fields[timer] > 0  # there is room whenever one may come
    else:
        dense = generator.random(count)[:, None, None] ** 3
        some = (generator.random((count, 10, 10)) < dense).astype(int)
        some[:, 5, 5] |= some.any((1, 2)) == 0  # a wave that is over is followed by the next one at once
        fields = {"cannon": whole(0, 10), "aliens": some.reshape(count, 100)}
        fields |= {"ours": share(0.2, 100), "theirs": share(0.05, 100)}
        fields |= {"right": share(0.5), "to_fire": whole(0, 3), "to_move": whole(0, 3), "to_shoot": whole(0, 3)}
        fields |= {"move_every": whole(6, 13), "killed": zero, "dead": zero}
    return fields | {"last": zero}


@pytest.mark.parametrize(
    ("game", "options"),
    [*[(game, {}) for game in GAMES], *[(game, {"ramping": False}) for game in (Asterix, SpaceInvaders, Seaquest)]],
)
def test_a_step_from_any_state_follows_the_rules(game, options):
    count, generator = 1_000, np.random.default_rng(1)
    env = game(**options)
    worlds = dz.rl.Worlds(env, count, seed=SEED, device="cpu", max_resets=0)
    worlds.reset()
    fields = random_states(game, count, generator)
    state = worlds.state()
    assert list(fields) == list(state.kinds)
    worlds.run_state.leaves = [
        torch.tensor(fields[name]).to(leaf.dtype) for name, leaf in zip(fields, worlds.run_state.leaves, strict=True)
    ]
    actions = generator.integers(0, len(game.moves), count)
    step = worlds.step(torch.tensor(actions))
    worlds.check()
    flags = set()
    for world in range(count):
        slow, came = (getattr(rules, game.__name__)(**options) for _ in range(2))
        slow.load({name: value[world].tolist() for name, value in fields.items()})
        told = follow(game, slow, game.moves[actions[world]], world, 0)
        assert (float(step.reward[world]), bool(step.terminated[world])) == told, (world, actions[world])
        assert np.array_equal(step.observed.observation[world].numpy(), slow.planes()), (world, actions[world])
        came.load({name: leaf[world].tolist() for name, leaf in zip(fields, worlds.run_state.leaves, strict=True)})
        assert vars(came) == vars(slow)  # what is not seen counts as well
        flags.add(told)
    assert len(flags) >= 2


@pytest.mark.parametrize("game", GAMES, ids=IDS)
def test_all_actions_are_minatars_six(game):
    few, all_ = (dz.rl.Worlds(game(all_actions=flag), 4, device="cpu") for flag in (False, True))
    assert all_.env.action_space.n == 6
    few.reset()
    all_.reset()
    generator = torch.Generator().manual_seed(0)
    codes = torch.tensor(game.moves)
    for _ in range(60):
        chosen = torch.randint(0, len(game.moves), (4,), generator=generator)
        a, b = few.step(chosen), all_.step(codes[chosen])
        assert torch.equal(a.observed.observation, b.observed.observation)
        assert torch.equal(a.reward, b.reward)
    if len(game.moves) == 6:
        return
    useless = next(code for code in range(6) if code not in game.moves)
    before = all_.run_state.clone()
    still = all_.step(torch.full((4,), useless))
    all_.run_state = before
    moved = all_.step(torch.zeros(4, dtype=torch.int64))
    assert torch.equal(still.observed.observation, moved.observed.observation)


@pytest.mark.parametrize("game", GAMES, ids=IDS)
def test_actions_stick_as_often_as_told(game):
    """The paddle of Breakout, the player of others: told by the state, which keeps the action that was taken."""
    worlds = dz.rl.Worlds(game(sticky=0.25, max_steps=None), 400, device="cpu", max_resets=0)
    worlds.reset()
    generator, repeats, trials = torch.Generator().manual_seed(0), 0, 0
    last = torch.zeros(400, dtype=torch.int64)
    codes = torch.tensor(game.moves)
    for _ in range(20):
        given = torch.randint(0, len(game.moves), (400,), generator=generator)
        step = worlds.step(given)
        taken = worlds.state().last.to(torch.int64)
        differs = step.valid & (codes[given] != last)
        assert bool(((taken == last) | (taken == codes[given]))[step.valid].all())
        repeats, trials = repeats + int((differs & (taken == last)).sum()), trials + int(differs.sum())
        last = torch.where(step.valid, taken, last)
    assert repeats / trials == pytest.approx(0.25, abs=4 * (0.19 / trials) ** 0.5)


def test_always_sticky_means_nothing_is_ever_done():
    worlds = dz.rl.Worlds(Breakout(sticky=1.0), 3, device="cpu", max_resets=0)
    worlds.reset()
    worlds.step(torch.tensor([1, 2, 1]))
    assert worlds.state().paddle.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("game", "limit"),
    [(Breakout, 1_000), (Freeway, 2_500), (Asterix, 1_000), (SpaceInvaders, 1_000), (Seaquest, 1_000)],
)
def test_limits_cut_lives_off(game, limit):
    assert game().time_limit == limit
    assert game(max_steps=None).time_limit is None
    worlds = dz.rl.Worlds(game(max_steps=3), 2, device="cpu")
    worlds.reset()
    flags = [worlds.step(torch.zeros(2, dtype=torch.int64)).truncated.tolist() for _ in range(4)]
    assert flags == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]


def test_options_are_checked():
    with pytest.raises(dz.errors.InputError, match=r"Breakout: sticky=1.5, expected a number from 0 to 1"):
        Breakout(sticky=1.5)
    with pytest.raises(dz.errors.InputError, match=r"Asterix: max_steps=0, expected a whole number"):
        Asterix(max_steps=0)


@pytest.mark.parametrize("game", GAMES, ids=IDS)
def test_pictures_show_every_plane(game):
    worlds = dz.rl.Worlds(game(), 1, device="cpu")
    worlds.reset()
    picture = game().draw(worlds.state(0))
    assert (picture.shape, picture.dtype) == ((80, 80, 3), torch.uint8)
    colours = {tuple(pixel) for pixel in picture.reshape(-1, 3).tolist()}
    assert len(colours) >= 2
