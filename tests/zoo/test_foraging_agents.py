"""Written agents: what they do in pictures of a few cells, and what they come to."""

import pytest
import torch

import denizen as dz
from denizen.rl import Observed
from denizen.studies.foraging.evaluate import forage
from denizen.zoo.foraging import foraging
from denizen.zoo.foraging.agents import Learnt, OmniscientSeeker, ProxySeeker, Uniform

ENV = foraging()
MOVES = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]


def look(items, times=1):
    """Of one world with items {(dx, dy): 1 or 2} around the agent, repeated."""
    seen = torch.zeros(2, 11, dtype=torch.int16)
    for (dx, dy), item in items.items():
        seen[item - 1, 5 + dy] += 1 << (5 + dx)
    return Observed(seen.expand(times, 2, 11), None, None, None)


def moves(agent, items, times=1):
    uniform = ((torch.arange(times) + 0.5) / times)[:, None]
    return [MOVES[action] for action in agent.act(look(items, times), uniform).tolist()]


def test_the_omniscient_seeker_goes_for_the_nearest_food():
    seeker = OmniscientSeeker(ENV)
    assert moves(seeker, {(3, 0): 1, (0, -2): 1, (1, 1): 2}) == [(0, -1)]
    assert moves(seeker, {(-4, 3): 1}) == [(-1, 1)]
    assert moves(seeker, {(2, 0): 1, (0, 2): 1, (0, -2): 1, (-2, 0): 1}) == [(0, -1)]  # the first row of equals
    assert moves(seeker, {(-2, 0): 1, (2, 0): 1}) == [(-1, 0)]


def test_it_goes_around_poison():
    seeker = OmniscientSeeker(ENV)
    assert moves(seeker, {(2, 2): 1, (1, 1): 2}) == [(1, 0)]
    assert moves(seeker, {(2, 2): 1, (1, 1): 2, (1, 0): 2}) == [(0, 1)]
    safe = moves(seeker, {(2, 0): 1, (1, 0): 2, (0, 1): 2}, times=600)  # neither diagonal: at random over what is safe
    assert set(safe) == set(MOVES) - {(1, 0), (0, 1)}
    assert all(safe.count(move) == 100 for move in set(safe))
    everywhere = dict.fromkeys(MOVES, 2)
    assert set(moves(seeker, {(3, 3): 1, **everywhere}, times=80)) == set(MOVES)


def test_without_food_it_walks_over_safe_cells():
    seeker = OmniscientSeeker(ENV)
    walk = moves(seeker, {(1, 1): 2, (-1, 0): 2, (5, 5): 1, (4, 4): 1}, times=60)  # corners lie outside the disc
    assert set(walk) == set(MOVES) - {(1, 1), (-1, 0)}


def test_the_proxy_seeker_goes_for_what_is_interesting():
    seeker = ProxySeeker(ENV)
    assert moves(seeker, {(1, 0): 2, (-5, 0): 1}) == [(-1, 0)]
    assert moves(seeker, {(1, 0): 2, (0, 4): 2}) == [(1, 0)]
    assert moves(seeker, {(1, 1): 2}) == [(1, 1)]
    assert set(moves(seeker, {(5, 5): 1}, times=80)) == set(MOVES)
    blind = ProxySeeker(ENV, food=1.0, poison=1.0)
    assert moves(blind, {(0, -1): 2, (1, 0): 1}) == [(0, -1)]


def test_longer_moves_have_other_numbers():
    env = foraging(max_move=2)
    assert OmniscientSeeker(env).act(look({(3, 0): 1}), torch.tensor([[0.5]])).tolist() == [16]  # (1, 0) of 24
    assert set(Uniform(env).act(look({}, 240), ((torch.arange(240) + 0.5) / 240)[:, None]).tolist()) == set(range(24))


def test_seekers_come_to_what_they_know():
    env = foraging(height=32, width=32, food_range=(16, 16), poison_range=(16, 16))
    found = {
        type(agent): forage(env, agent, num_envs=32, steps=100, device="cpu")
        for agent in (OmniscientSeeker(env), ProxySeeker(env), Uniform(env))
    }
    assert found[OmniscientSeeker].efficiency.value > 0.99
    assert found[OmniscientSeeker].deaths.sum() < 12
    assert 0.5 < found[ProxySeeker].efficiency.value < 0.75
    assert found[ProxySeeker].per_thousand("food").value > 3 * found[Uniform].per_thousand("food").value
    assert abs(found[Uniform].efficiency.value - 0.5) < 4 * found[Uniform].efficiency.error


def test_a_policy_forages_sampled_or_greedy():
    env = foraging("proxy", height=16, width=16, food_range=(3, 9), poison_range=(3, 9))
    policy = dz.rl.conv(env, channels=(4,), hidden=8, critic_hidden=(8,))
    policy.train()
    sampled = forage(env, Learnt(policy), num_envs=8, steps=60)
    again = forage(env, Learnt(policy), num_envs=8, steps=60)
    greedy = forage(env, Learnt(policy, greedy=True), num_envs=8, steps=60)
    assert policy.training
    assert sampled.food.tolist() == again.food.tolist()
    assert sampled.died.tolist() == again.died.tolist()
    assert sampled.died.tolist() != greedy.died.tolist()
    with pytest.raises(dz.errors.InputError, match="memory is not supported"):
        Learnt(dz.rl.mlp(env, hidden=(4,), memory_size=4))
