"""Advantages of groups against loops in float64, written from the formulae one value at a time."""

import math

import pytest
import torch

import denizen as dz

STEPS, GROUPS, REPLICAS = 7, 4, 3
ADVANTAGES = ("reward_to_go", "outcome", "process", "original")
SCALES = ("none", "group", "batch", "group_time")


def rollout(seed=0, lengths=None, discrete=True):
    """Random rewards and lives of different lengths; group 0 has equal rewards and lengths everywhere."""
    generator = torch.Generator().manual_seed(seed)
    shape = (STEPS, GROUPS, REPLICAS)
    reward = torch.randint(-1, 2, shape, generator=generator).double()
    if not discrete:
        reward = torch.randn(shape, generator=generator, dtype=torch.float64)
    if lengths is None:
        lengths = torch.randint(1, STEPS + 1, (GROUPS, REPLICAS), generator=generator)
    reward[:, 0], lengths[0] = reward[:, 0, :1], lengths[0, 0]
    return reward, torch.arange(STEPS)[:, None, None] < lengths


def spread_of(values, sample):
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / max(len(values) - sample, 1))


def to_go(life, t, discount):
    return math.fsum(discount ** (k - t) * life[k] for k in range(t, len(life)))


def centred_by_loops(lives, advantage, gamma):
    """(t, p, i) -> value; with outcomes t is 0."""
    centred = {}
    for p, group in enumerate(lives):
        for i, life in enumerate(group):
            for t in range(1 if advantage == "outcome" else len(life)):
                if advantage == "outcome":
                    value, peers = math.fsum(life), [math.fsum(other) for other in group]
                elif advantage == "process":
                    value, peers = life[t], [r for other in group for r in other]
                else:
                    value = to_go(life, t, gamma)
                    peers = [to_go(other, t, gamma) for other in group if len(other) > t]
                same = max(peers) - min(peers) < 1e-12
                centred[t, p, i] = 0.0 if same else value - math.fsum(peers) / len(peers)
    return centred


def by_loops(reward, valid, advantage, scale, gamma, eps, sample):
    """A[t][p][i], and which groups are flat, by plain numbers."""
    lives = [
        [[float(reward[t, p, i]) for t in range(STEPS) if valid[t, p, i]] for i in range(REPLICAS)]
        for p in range(GROUPS)
    ]
    centred = centred_by_loops(lives, advantage, gamma)
    scaled = {}
    for (t, p, i), value in centred.items():
        peers = {
            "none": [],
            "batch": list(centred.values()),
            "group": [v for (_, q, _), v in centred.items() if q == p],
            "group_time": [v for (u, q, _), v in centred.items() if q == p and u == t],
        }[scale]
        scaled[t, p, i] = value / (spread_of(peers, sample) + eps) if peers else value
    result = torch.zeros(STEPS, GROUPS, REPLICAS, dtype=torch.float64)
    whole = {"outcome": lambda t, p, i: scaled[0, p, i], "reward_to_go": lambda t, p, i: scaled[t, p, i]}
    whole["process"] = lambda t, p, i: math.fsum(scaled[u, p, i] for u in range(t, len(lives[p][i])))
    for p, group in enumerate(lives):
        for i, life in enumerate(group):
            for t in range(len(life)):
                result[t, p, i] = whole[advantage](t, p, i)
    flat = [all(v == 0 for (_, q, _), v in centred.items() if q == p) for p in range(GROUPS)]
    return result, torch.tensor(flat)


@pytest.mark.parametrize("sample_std", [False, True])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("advantage", [name for name in ADVANTAGES if name != "original"])
def test_equals_loops_over_numbers(advantage, scale, sample_std):
    for seed in range(3):
        reward, valid = rollout(seed)
        given = {"advantage": advantage, "scale": scale, "gamma": 0.9, "std_eps": 1e-6, "sample_std": sample_std}
        found = dz.rl.group_advantages(reward, valid, **given)
        wanted, flat = by_loops(reward, valid, advantage, scale, 0.9, 1e-6, sample_std)
        torch.testing.assert_close(found.advantage, wanted, rtol=1e-9, atol=1e-9)
        assert torch.equal(found.flat, flat)
        assert bool(flat[0]) is (advantage != "process"), "a group of equal lives is flat; process compares steps"


def test_the_original_equals_its_formula():
    reward, valid = rollout(1)
    found = dz.rl.group_advantages(reward, valid, advantage="original", scale="none", gamma=0.9)
    values = {}
    for p in range(GROUPS):
        for i in range(REPLICAS):
            life = [float(reward[t, p, i]) for t in range(STEPS) if valid[t, p, i]]
            for t in range(len(life)):
                values[t, p, i] = math.fsum(0.9 ** (k - t) * life[k] for k in range(t, len(life)))
    mean, std = math.fsum(values.values()) / len(values), spread_of(list(values.values()), True)
    for place, value in values.items():
        wanted = min(max((value - 0.5 * mean) / (max(std, 0.5) + 1e-6), -2), 2)
        assert float(found.advantage[place]) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_what_is_masked_may_be_anything(advantage):
    reward, valid = rollout(2)
    given = {"advantage": advantage, "scale": "group", "gamma": 0.9}
    clean = dz.rl.group_advantages(reward, valid, **given)
    dirty = dz.rl.group_advantages(torch.where(valid, reward, torch.nan), valid, **given)
    assert torch.equal(clean.advantage, dirty.advantage)
    assert bool((clean.advantage[~valid] == 0).all())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("advantage", [name for name in ADVANTAGES if name != "original"])
def test_groups_of_equal_lives_give_exactly_zero_and_others_are_unmoved(advantage, scale):
    reward, valid = rollout(3, discrete=False)
    reward[:, 0] = 0.1  # not a number of float: sums over it round
    found = dz.rl.group_advantages(reward.float(), valid, advantage=advantage, scale=scale, gamma=0.99)
    assert bool((found.advantage[:, 0] == 0).all())
    assert found.flat.tolist() == [True, False, False, False]
    assert bool(torch.isfinite(found.advantage).all())


def test_the_centre_is_zero_where_it_is_promised():
    reward, valid = rollout(4)
    valid[:] = True
    outcome = dz.rl.group_advantages(reward, valid, advantage="outcome", scale="group", gamma=1.0).advantage
    torch.testing.assert_close(outcome.sum(2), torch.zeros(STEPS, GROUPS, dtype=torch.float64), atol=1e-9, rtol=0)
    to_go = dz.rl.group_advantages(reward, valid, advantage="reward_to_go", scale="group", gamma=0.9).advantage
    torch.testing.assert_close(to_go.sum(2), torch.zeros(STEPS, GROUPS, dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("advantage", [name for name in ADVANTAGES if name != "original"])
def test_a_constant_more_in_every_step_changes_nothing_where_lives_are_equally_long(advantage):
    reward, valid = rollout(5, lengths=torch.full((GROUPS, REPLICAS), STEPS))
    given = {"advantage": advantage, "scale": "group", "gamma": 0.9}
    less, more = (dz.rl.group_advantages(reward + c, valid, **given).advantage for c in (0.0, 0.75))
    torch.testing.assert_close(less, more, atol=1e-9, rtol=0)


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_the_order_of_groups_and_replicas_does_not_matter(advantage):
    reward, valid = rollout(6)
    groups, replicas = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
    given = {"advantage": advantage, "scale": "batch", "gamma": 0.9}
    whole = dz.rl.group_advantages(reward, valid, **given).advantage
    moved = dz.rl.group_advantages(reward[:, groups][:, :, replicas], valid[:, groups][:, :, replicas], **given)
    torch.testing.assert_close(moved.advantage, whole[:, groups][:, :, replicas], atol=1e-12, rtol=0)


def shuffled_lives(steps, replicas, seed=0):
    """One group, `[steps, 1, replicas]`: each replica has the same rewards in an order of its own."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(steps, generator=generator) * 10
    orders = [torch.randperm(steps, generator=generator) for _ in range(replicas)]
    return torch.stack([rewards[order] for order in orders], 1)[:, None], torch.ones(steps, 1, replicas, dtype=bool)


@pytest.mark.parametrize("scale", SCALES)
def test_returns_that_differ_by_rounding_alone_are_flat(scale):
    given = {"advantage": "outcome", "scale": scale, "gamma": 1.0, "std_eps": 1e-8}
    few = torch.tensor([[[0.1, 0.1]], [[0.1, 0.6]], [[0.6, 0.1]]])
    for reward in (few, *(shuffled_lives(steps, 16, steps)[0] for steps in (10, 300, 3000))):
        for dtype in (torch.float32, torch.float64):
            found = dz.rl.group_advantages(reward.to(dtype), torch.ones_like(reward, dtype=torch.bool), **given)
            assert bool((found.advantage == 0).all()), float(found.advantage.abs().max())
            assert found.flat.tolist() == [True]


def test_rewards_to_go_that_differ_by_rounding_alone_are_flat_at_their_step():
    reward, valid = shuffled_lives(300, 8)
    found = dz.rl.group_advantages(reward, valid, advantage="reward_to_go", scale="group_time", gamma=1.0)
    assert bool((found.advantage[0] == 0).all()), "all lives come to the same"
    assert bool((found.advantage[1:] != 0).any(-1).all()), "what is still to come differs"
    halves = torch.tensor([[[0.1, 0.0]], [[0.0, 0.1 / 0.7]]])  # 0.1 now, or in a step what 0.7 makes 0.1
    found = dz.rl.group_advantages(halves, valid[:2, :, :2], advantage="reward_to_go", scale="group_time", gamma=0.7)
    assert bool((found.advantage[0] == 0).all())
    assert bool((found.advantage[1] != 0).all())


def test_steps_that_differ_by_rounding_alone_are_flat_in_process_supervision():
    reward = torch.tensor([0.3, 0.1 + 0.2, 0.6 / 2, 0.9 - 0.6]).mul(7).div(7).repeat(5, 1)[:, None].clone()
    reward[2] *= 1 + 2**-22
    assert bool((reward.amax() > reward.amin()).all())
    found = dz.rl.group_advantages(
        reward, torch.ones_like(reward, dtype=torch.bool), advantage="process", scale="group", gamma=1.0
    )
    assert bool((found.advantage == 0).all())
    assert bool(found.flat.all())


@pytest.mark.parametrize("steps", [3, 300, 3000])
def test_a_small_difference_that_is_real_stays_and_is_not_drowned(steps):
    reward, valid = shuffled_lives(steps, 4, 1)
    reward[steps // 2, 0, 0] += 1e-5 * float(reward.abs().sum(0).max())
    given = {"advantage": "outcome", "scale": "group", "gamma": 1.0}
    found = dz.rl.group_advantages(reward, valid, **given)
    truth = dz.rl.group_advantages(reward.double(), valid, **given)
    assert not bool(found.flat.any())
    torch.testing.assert_close(found.advantage.double(), truth.advantage, rtol=0, atol=0.05)
    assert float(found.advantage[0, 0, 0]) == pytest.approx(3**0.5, abs=0.05)


@pytest.mark.parametrize("scale", SCALES)
def test_a_centre_that_is_a_little_off_does_not_add_up_over_long_lives(scale):
    reward = 1 + 1e-3 * torch.rand(2000, 2, 8, generator=torch.Generator().manual_seed(0))
    given = {"advantage": "process", "scale": scale, "gamma": 1.0}
    valid = torch.ones_like(reward, dtype=torch.bool)
    found, truth = (dz.rl.group_advantages(of, valid, **given).advantage for of in (reward, reward.double()))
    assert float((found - truth).abs().max() / truth.abs().max()) < 0.01


def test_a_group_beside_a_flat_one_is_unmoved():
    reward, valid = rollout(7, discrete=False)
    reward = reward.float()
    same, alive = shuffled_lives(STEPS, REPLICAS)
    given = {"advantage": "outcome", "scale": "group", "gamma": 1.0}
    both = dz.rl.group_advantages(torch.cat([reward, same], 1), torch.cat([valid, alive], 1), **given)
    assert torch.equal(both.advantage[:, :GROUPS], dz.rl.group_advantages(reward, valid, **given).advantage)
    assert both.flat.tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("scale", ["none", "group"])
def test_ordinary_groups_have_the_bits_of_plain_float32(scale):
    reward, valid = rollout(8, lengths=torch.full((GROUPS, REPLICAS), STEPS), discrete=False)
    reward = reward.float()[:, 1:]
    found = dz.rl.group_advantages(reward, valid[:, 1:], advantage="outcome", scale=scale, gamma=1.0).advantage
    values = reward.sum(0, keepdim=True)
    centred = values - values.sum(2, keepdim=True) / REPLICAS
    middle = centred.sum(2, keepdim=True) / REPLICAS
    spread = ((centred - middle).square().sum(2, keepdim=True) / REPLICAS).sqrt()
    assert torch.equal(found, (centred if scale == "none" else centred / (spread + 1e-6)).expand_as(found))
