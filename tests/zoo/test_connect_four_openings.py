"""Connect Four that begins with openings: which they are, who moves, games that are over at once, refusals."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.connect_four import ConnectFour
from denizen.zoo.connect_four.openings import random_openings

COUNT, MOST = 3000, 14
GAME = ConnectFour(rows=4, columns=5)
OPENINGS = random_openings(GAME, COUNT, MOST)


def stones_of(openings):
    return torch.tensor([[row[0].bit_count(), row[1].bit_count()] for row in openings.tolist()])


def test_openings_are_positions_of_games_that_go_on():
    game = ConnectFour(rows=4, columns=5, openings=OPENINGS)  # whose constructor refuses others
    first, second = stones_of(OPENINGS).T
    assert torch.isin(first - second, torch.tensor([0, 1])).all()
    numbers = (first + second).bincount(minlength=MOST + 1)
    assert numbers.tolist() == [COUNT // (MOST + 1)] * (MOST + 1)  # 3000 = 15 times 200
    assert torch.equal(OPENINGS, random_openings(GAME, COUNT, MOST))
    assert not torch.equal(OPENINGS, random_openings(GAME, COUNT, MOST, seed=1))
    assert len(random_openings(GAME, 7, most=100)) == 7  # games do not last so long
    assert repr(game) == "ConnectFour(rows=4, columns=5, openings=torch.int64[3000, 2])"


def test_games_begin_with_them():
    game = ConnectFour(rows=4, columns=5, openings=OPENINGS[:-1:20])
    worlds = dz.rl.Worlds(dz.rl.Against(game, seat=0), 4000, device="cpu")
    worlds.reset()
    now = worlds.state()
    begun = now.result == 0
    own = [tuple(row) for row in OPENINGS[:-1:20].tolist()]
    even = torch.tensor([sum(map(int.bit_count, row)) % 2 == 0 for row in own])
    found = [tuple(row) for row, even in zip(now.stones.tolist(), (now.moves % 2 == 0).tolist(), strict=True) if even]
    assert torch.equal(now.moves, stones_of(now.stones).sum(1))
    assert (now.moves[begun] % 2 == 0).all()  # the others have moved where it was their turn
    kept = [row for row in found if row in own]
    assert len(set(kept)) > 0.9 * len({row for row, here in zip(own, even.tolist(), strict=True) if here})


def test_a_game_that_is_over_before_the_first_move_here_is_paid_once():
    """The first player has three in a row and no other column: whoever sits second has lost before a move."""
    row = sum(1 << column * 2 for column in range(3)), sum(1 << column * 2 for column in range(4, 7))
    game = ConnectFour(rows=1, columns=7, openings=torch.tensor([row]))
    worlds = dz.rl.Worlds(dz.rl.Against(game, seat=1), 5, device="cpu")
    worlds.reset()
    before = worlds.state().stones
    assert worlds.state().result.tolist() == [1] * 5
    for _ in range(2):
        step = worlds.step(torch.zeros(5, dtype=torch.int64))
        assert step.ended.all()
        assert step.terminated.all()
        assert step.reward.tolist() == [-1.0] * 5
        assert torch.equal(worlds.state().stones, before)
    lives = dz.rl.evaluate(dz.rl.Against(game), dz.rl.mlp(game, (4,)), num_envs=64, max_steps=3, device="cpu")
    assert set(lives.returns.tolist()) == {1.0, -1.0}


def test_practice_is_what_trainings_play():
    practice = ConnectFour(rows=4, columns=5, openings=OPENINGS)
    env = dz.rl.SelfPlay(GAME, pool=2, practice=practice)
    worlds = dz.rl.Worlds(env, 50, device="cpu")
    worlds.reset()
    assert (worlds.state().moves <= 1).all()
    policy = dz.rl.mlp(env, (8,))
    assert env.of_training(policy, 0).game is practice
    ppo = dz.PPO(num_envs=50, num_steps=2, num_minibatches=2)
    assert dz.train(env, policy, ppo, 200, device="cpu", compile=False, progress=False).updates == 2


def test_they_keep_the_rules():
    """By the one game of a run of one world too: an index without an axis would be read on the host."""
    game = ConnectFour(rows=4, columns=5, openings=OPENINGS)
    assert not dz.check(dz.rl.SelfPlay(game)).findings


@pytest.mark.parametrize(("count", "most", "told"), [(0, 3, "count=0"), (3, -1, "most=-1"), (3, 2.5, r"most=2\.5")])
def test_openings_are_of_whole_numbers(count, most, told):
    with pytest.raises(InputError, match=f"random_openings: {told}, expected a whole number"):
        random_openings(GAME, count, most)


@pytest.mark.parametrize(
    ("openings", "told"),
    [
        (
            [[0, 0]],
            "openings=[[0, 0]], expected a torch.Tensor, or None; torch.as_tensor(…) makes one of lists and arrays",
        ),
        (torch.zeros(3, 2), "openings is torch.float32 [3, 2], expected int64 [positions, 2]"),
        (torch.zeros(3, dtype=torch.int64), "openings is torch.int64 [3], expected int64 [positions, 2]"),
        (torch.zeros(0, 2, dtype=torch.int64), "openings is empty, expected one position at least, or None"),
        (torch.tensor([[0, 0], [1 << 4, 0]]), "openings[1] has a stone beside the board"),
        (torch.tensor([[-1, 0]]), "openings[0] has a stone beside the board"),
        (torch.tensor([[1, 1]]), "openings[0] has both players' stones in one cell"),
        (torch.tensor([[2, 0]]), "openings[0] has a stone over a free cell"),
        (torch.tensor([[0, 1]]), "openings[0] has stones that players who take turns from the first on do not have"),
        (torch.tensor([[0b1111, 0b111 << 5]]), "openings[0] is over"),
    ],
)
def test_what_games_cannot_begin_with(openings, told):
    with pytest.raises(dz.errors.InputError) as error:
        ConnectFour(rows=4, columns=5, openings=openings)
    assert str(error.value) == f"ConnectFour: {told}"


def test_practice_is_of_the_same_board():
    with pytest.raises(dz.errors.InputError, match=r"SelfPlay: practice has action_space Discrete.*, expected that of"):
        dz.rl.SelfPlay(GAME, practice=ConnectFour())
    with pytest.raises(dz.errors.InputError, match=r"SelfPlay: practice: game is int, expected a dz.rl.Game"):
        dz.rl.SelfPlay(GAME, practice=3)
