"""Advantages against loops in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from denizen.rl import advantages, normalised


def loop(reward, value, bootstrap, terminated, truncated, valid, gamma, lam):
    """Section 4.2 of the foraging specification, one entry at a time."""
    steps, rows = reward.shape
    gained = torch.zeros(steps, rows, dtype=torch.float64)
    for n in range(rows):
        later = 0.0
        for t in reversed(range(steps)):
            if not valid[t, n]:
                later = 0.0
                continue
            ahead = 0.0 if terminated[t, n] else bootstrap[t, n].item()
            delta = reward[t, n].item() + gamma * ahead - value[t, n].item()
            ended = bool(terminated[t, n] or truncated[t, n])
            later = delta + (0.0 if ended else gamma * lam * later)
            gained[t, n] = later
    return gained


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 4), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_equals_a_loop(seed, steps, rows, lam):
    made = torch.Generator().manual_seed(seed)
    reward, value, bootstrap = torch.randn(3, steps, rows, generator=made)
    terminated, truncated = torch.rand(2, steps, rows, generator=made) < 0.2
    valid = torch.rand(steps, rows, generator=made) < 0.8
    wanted = loop(reward, value, bootstrap, terminated, truncated, valid, 0.99, lam)
    got = advantages(reward, value, bootstrap, terminated, truncated, valid, 0.99, lam)
    assert torch.allclose(got.advantage.double(), wanted, atol=1e-5)
    assert torch.allclose(got.returns.double(), torch.where(valid, wanted + value, 0.0), atol=1e-5)


def one(reward, value, bootstrap, terminated=(), truncated=()):
    flags = [[[t in ended] for t in range(len(reward))] for ended in (terminated, truncated)]
    column = [torch.tensor(x)[:, None] for x in (reward, value, bootstrap)]
    valid = torch.ones(len(reward), 1, dtype=torch.bool)
    return advantages(*column, torch.tensor(flags[0]), torch.tensor(flags[1]), valid, 0.5, 1.0).returns[:, 0].tolist()


def test_two_steps_and_a_terminal_reward():
    assert one([0.0, 1.0], [0.0, 0.0], [0.0, 9.0], terminated=[1]) == [0.5, 1.0]


def test_a_truncated_life_is_continued_by_the_value_of_its_final_state():
    assert one([1.0, 1.0], [0.0, 0.0], [0.0, 4.0], truncated=[1]) == [2.5, 3.0]


def test_nothing_leaks_from_the_next_life():
    assert one([1.0, 100.0], [0.0, 0.0], [2.0, 0.0], truncated=[0]) == [2.0, 100.0]
    assert one([1.0, 100.0], [0.0, 0.0], [2.0, 0.0], terminated=[0]) == [1.0, 100.0]


def test_a_rollout_that_ends_within_a_life_uses_the_value_of_its_last_state():
    assert one([1.0], [0.0], [6.0]) == [4.0]


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_entries_to_normalise_stay_finite(count):
    weight = torch.zeros(4)
    weight[:count] = 1
    assert torch.equal(normalised(torch.tensor([3.0, 1.0, 2.0, 0.0]), weight), torch.tensor([3.0 * count, 0, 0, 0]))


def test_normalised_over_the_entries_that_count():
    made = torch.Generator().manual_seed(0)
    values, weight = torch.randn(50, generator=made), (torch.rand(50, generator=made) < 0.5).float()
    got = normalised(values, weight)[weight > 0]
    assert math.isclose(got.mean().item(), 0, abs_tol=1e-6)
    assert math.isclose(got.std().item(), 1, rel_tol=1e-5)
    garbage = torch.where(weight > 0, values, 1e9)
    assert torch.equal(normalised(garbage, weight)[weight > 0], got)


@pytest.mark.parametrize(
    "values",
    [
        torch.full((1000,), 0.1),
        torch.tensor([0.1, 0.10000005, 0.10000001]).repeat(40),
        torch.tensor([0.1, 0.1 + 1e-8, 0.1 - 1e-8]).repeat(20),  # as for recipes/ppo.py
        torch.full((8192,), -1e6 / 3),
        torch.tensor([[0.1, 0.1], [0.1, 0.6], [0.6, 0.1]]).sum(0).repeat(100),
    ],
)
def test_advantages_that_differ_by_rounding_alone_teach_nothing(values):
    weight = torch.ones_like(values)
    assert bool((normalised(values, weight) == 0).all())
    compiled = torch.compile(normalised, backend="aot_eager", fullgraph=True)
    assert bool((compiled(values, weight) == 0).all())
    weight[-1], values = 0, values.clone()
    values[-1] = 99  # does not count
    assert bool((normalised(values, weight) == 0).all())


def test_a_real_difference_is_normalised_whatever_it_lies_on():
    values = torch.tensor([1000.0, 1000.01, 1000.02, 999.99]).repeat(8)
    assert math.isclose(normalised(values, torch.ones_like(values)).std().item(), 1, rel_tol=1e-2)
    tiny = torch.tensor([0.0, 1e-9]).repeat(8)
    assert bool((normalised(tiny, torch.ones_like(tiny)) != 0).all())


def test_what_is_not_finite_is_not_flat():
    for odd in (math.inf, math.nan):
        got = normalised(torch.tensor([odd, 1.0, 1.0]), torch.ones(3))
        assert bool(got.isnan().any())
