"""Prioritised replay by the paper's formulas: how often steps are drawn, what their errors weigh, when it changes."""

import pytest
import torch

import denizen as dz
from denizen.rl._replay import UNIT, Priorities, Replay
from denizen.zoo.cartpole import CartPole

ROWS, STEPS = 4, 5


def stored(exponent=0.6, total=7, waiting=None):
    """A replay of 5 steps of 4 rows, into which 7 went, and its priorities."""
    replay = Replay(STEPS, torch.zeros(ROWS, 1), torch.zeros(ROWS), gamma=0.9, gaps=waiting is not None)
    priorities = Priorities(replay, exponent)
    for at in range(total):
        valid = torch.ones(1, ROWS, dtype=torch.bool)
        if waiting is not None and at == total - 1:
            valid[0, waiting] = False
        no = torch.zeros(1, ROWS, dtype=torch.bool)
        happened = {
            "observation": torch.full((1, ROWS, 1), float(at)),
            "action": torch.arange(float(ROWS))[None],
            "reward": torch.zeros(1, ROWS),
            "terminated": no,
            "truncated": no,
            "valid": valid,
        }
        priorities.store(replay.add(happened, torch.full((ROWS, 1), at + 1.0)), valid)
    return replay, priorities


def leaves(replay):
    """Of all steps that can be drawn, oldest first."""
    age = torch.arange(STEPS)
    return (replay.slot(age)[:, None] * ROWS + torch.arange(ROWS)).flatten()


def test_steps_are_drawn_in_proportion_to_their_priorities():
    replay, priorities = stored()
    leaf, error = leaves(replay), torch.linspace(-2, 3, STEPS * ROWS)
    priorities.learn(leaf, error, torch.tensor(True))
    expected = (error.abs() + 1e-6).pow(0.6)
    expected = expected / expected.sum()
    draw, counts, batches = torch.Generator().manual_seed(0), torch.zeros(priorities.size), 1500
    for _ in range(batches):
        found = priorities.draw(torch.randint(0, 2**32, (16,), generator=draw))
        counts += torch.bincount(found, minlength=priorities.size)
    mean = 16 * batches * expected
    chi = float(((counts[leaf] - mean) ** 2 / mean).sum())
    assert counts.sum() == counts[leaf].sum()  # never the present look
    assert chi < 19 + 4 * 38**0.5  # stratified, so it may be far less
    assert (counts[leaf] - mean).abs().max() < 4 * mean.max() ** 0.5


def test_errors_weigh_what_the_paper_says():
    replay, priorities = stored(exponent=0.7)
    leaf, error = leaves(replay), torch.linspace(0.1, 3, STEPS * ROWS)
    priorities.learn(leaf, error, torch.tensor(True))
    picked = leaf[[3, 9, 9, 17]]
    chance = (error + 1e-6).pow(0.7) / (error + 1e-6).pow(0.7).sum()
    weight = (STEPS * ROWS * chance[[3, 9, 9, 17]]).pow(-0.4)
    found = priorities.corrections(picked, torch.tensor(0.4))
    torch.testing.assert_close(found, weight / weight.max(), rtol=1e-4, atol=0)
    assert torch.equal(priorities.corrections(picked, torch.tensor(0.0)), torch.ones(4))


def test_new_steps_begin_with_the_largest_priority_and_old_ones_go():
    replay, priorities = stored(exponent=1.0)
    assert (priorities.tree[leaves(replay)] == UNIT).all()
    priorities.learn(leaves(replay)[:1], torch.tensor([4.0]), torch.tensor(True))
    no = torch.zeros(2, ROWS, dtype=torch.bool)
    happened = {
        "observation": torch.zeros(2, ROWS, 1),
        "action": torch.zeros(2, ROWS),
        "reward": torch.zeros(2, ROWS),
        "terminated": no,
        "truncated": no,
        "valid": ~no,
    }
    priorities.store(replay.add(happened, torch.zeros(ROWS, 1)), ~no)
    weights = priorities.tree[leaves(replay)].view(STEPS, ROWS) / UNIT
    assert torch.allclose(weights[-2:], torch.tensor(4.0))  # and the step that had it is gone
    assert torch.allclose(weights[:-2], torch.tensor(1.0))
    assert priorities.tree[: priorities.size].count_nonzero() == STEPS * ROWS


def test_rows_that_wait_have_no_priority():
    replay, priorities = stored(waiting=2)
    found = priorities.draw(torch.arange(0, 2**32, 2**26))
    age, row = priorities.steps(found)
    assert set(row[age == STEPS - 1].tolist()) == {0, 1, 3}
    batch = replay.batch(age, row)
    assert torch.equal(batch.action, row.float())
    assert torch.equal(batch.observation[:, 0], age + 2.0)


def test_nothing_changes_before_learning_begins():
    replay, priorities = stored()
    before = priorities.tree.clone()
    priorities.learn(leaves(replay), torch.rand(STEPS * ROWS), torch.tensor(False))
    assert torch.equal(priorities.tree, before)


@pytest.mark.parametrize("importance", [0.5, pytest.param(dz.rl.Linear(0.4, 1.0), marks=pytest.mark.slow)])
def test_a_training_by_priority_is_repeated_bit_for_bit(tmp_path, importance):
    def trained(steps, **options):
        env = CartPole()
        algorithm = dz.rl.DQN(
            num_envs=4,
            num_steps=2,
            gradient_steps=2,
            batch_size=8,
            buffer_size=48,
            learning_starts=32,
            epsilon=0.1,
            priority=0.6,
            importance=importance,
        )
        made = env, dz.rl.q_mlp(env, (8,)), algorithm
        if "resumed" in options:
            return dz.rl.resume(options["resumed"], *made, steps=steps, progress=False)
        return dz.train(*made, steps, device="cpu", progress=False, **options)

    first = trained(160)
    if isinstance(importance, float):
        trained(120, folder=tmp_path / "run")
        again = trained(40, resumed=tmp_path / "run")
    else:
        again = trained(160)
    for name, tensor in first.policy.state_dict().items():
        assert torch.equal(tensor, again.policy.state_dict()[name]), name
