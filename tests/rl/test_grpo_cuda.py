"""GRPO on a CUDA device: captured updates, equal to uncaptured ones, new starts in every replay, no host read."""

import pytest
import torch

import denizen as dz
from denizen.perf.watch import sync_warnings
from denizen.zoo.fruits import fruits

pytestmark = pytest.mark.cuda


def training(device="cuda", **changes):
    env = fruits()
    algorithm = dz.GRPO(**{"groups": 4, "group_size": 8, "max_steps": 30, **changes})
    policy = dz.rl.mlp(env, (32,), shared=True)
    return algorithm.init(env, policy, total_steps=algorithm.samples * 20, device=device)


def weights(held):
    return torch.cat([p.detach().flatten() for p in held.policy.parameters()])


@pytest.mark.parametrize(
    "changes",
    [{}, {"beta": 0.1, "refresh_reference": 2, "kl": "exact"}, {"precision": "bfloat16", "num_minibatches": 4}],
    ids=str,
)
def test_captured_updates_equal_uncaptured_ones(changes):
    captured, plain = training(**changes), training(**changes)
    iteration = dz.rl.Updates(captured, compile=True)
    iteration.warm_up()
    assert iteration.path == "captured"
    plain.compile()
    for _ in range(4):
        one, other = iteration(), plain.algorithm.update(plain)
        assert torch.equal(weights(captured), weights(plain))
        assert torch.equal(one["policy_loss"], other["policy_loss"])


def test_replays_begin_anew_each_time():
    held = training(learning_rate=1e-12)
    iteration = dz.rl.Updates(held, compile=True)
    iteration.warm_up()
    looks = []
    for _ in range(2):
        iteration()
        looks.append({name: held.rollout.fields[name].clone() for name in ("observation", "action")})
    assert not torch.equal(looks[0]["observation"][0], looks[1]["observation"][0])
    assert not torch.equal(looks[0]["action"], looks[1]["action"])
    first = looks[0]["observation"][0].unflatten(0, (4, 8))
    assert torch.equal(first, first[:, :1].expand_as(first))


def test_an_update_makes_the_host_wait_for_nothing():
    held = training(beta=0.1, refresh_reference=2)
    iteration = dz.rl.Updates(held, compile=True)
    iteration.warm_up()
    with sync_warnings() as told:
        iteration()
    assert not told


def test_the_fruits_are_the_same_on_cpu_and_cuda():
    seen = []
    for device in ("cpu", "cuda"):
        held = training(device)
        held.begin()
        seen.append(held.rollout.state.observed.observation.cpu())
    torch.testing.assert_close(seen[0], seen[1])
