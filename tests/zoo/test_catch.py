"""Catch by its rules, from every start under every kind of play."""

import pytest
import torch

import denizen as dz
from denizen.zoo.catch import Catch


@pytest.mark.parametrize("size", [{}, {"rows": 2, "columns": 1}, {"rows": 6, "columns": 9}])
def test_lives_follow_the_rules(size):
    env = Catch(**size)
    worlds = dz.rl.Worlds(env, 40, device="cpu")
    board = worlds.reset().observation
    generator = torch.Generator().manual_seed(3)
    ball, paddle, row = board[:, 0].argmax(1).tolist(), [env.columns // 2] * 40, 0
    for number in range(3 * (env.rows - 1)):
        action = torch.randint(0, 3, (40,), generator=generator)
        step = worlds.step(action)
        row += 1
        landed = row == env.rows - 1
        assert bool(step.terminated.all()) == bool(step.terminated.any()) == landed, number
        final = torch.empty_like(board).index_copy(0, step.final_index, step.final.observation)
        for world in range(40):
            paddle[world] = min(max(paddle[world] + int(action[world]) - 1, 0), env.columns - 1)
            expected = torch.zeros(env.rows, env.columns, dtype=torch.uint8)
            expected[row, ball[world]] = expected[-1, paddle[world]] = 1
            seen = final[world] if landed else step.observed.observation[world]
            assert torch.equal(seen, expected)
            caught = 1 if ball[world] == paddle[world] else -1
            assert int(step.reward[world]) == (caught if landed else 0)
        if landed:
            ball, paddle, row = step.observed.observation[:, 0].argmax(1).tolist(), [env.columns // 2] * 40, 0
    assert not bool(step.truncated.any())


def test_balls_start_in_every_column():
    board = dz.rl.Worlds(Catch(), 2_000, device="cpu").reset().observation
    share = board[:, 0].float().mean(0)
    assert torch.allclose(share, torch.full((5,), 0.2), atol=0.04)


def test_a_board_needs_a_size():
    with pytest.raises(dz.errors.InputError, match=r"Catch: rows=1, expected a whole number, at least 2"):
        Catch(rows=1)


def test_the_picture_shows_ball_and_paddle():
    worlds = dz.rl.Worlds(Catch(), 1, device="cpu")
    worlds.reset()
    assert Catch().draw(worlds.state(0)).shape == (80, 40, 3)
