"""Values that are computed after a rollout, from features kept at each step: CUDA's form, here on the CPU."""

import pytest
import torch
from torch import nn

import denizen as dz
from as_on_cuda import as_on_cuda
from denizen.zoo.cartpole import CartPole
from denizen.zoo.foraging import foraging

FORAGING = foraging(steps=3)


def narrow():
    return dz.rl.conv(FORAGING, (4,), 16, critic_hidden=(16,))


def remembering():
    env = CartPole()
    return dz.rl.ActorCritic(
        env, nn.Linear(4, 8), critic=nn.Sequential(nn.Linear(6, 8), nn.ReLU()), memory_size=6, head=dz.rl.PopArt
    )


@pytest.mark.parametrize("make", [narrow, remembering])
def test_the_rollout_is_the_same(make, device, monkeypatch):
    found = []
    for late in (False, True):
        as_on_cuda(monkeypatch, late, only="launches")
        torch.manual_seed(0)
        policy = make()
        held = dz.rl.PPO(num_envs=4, num_steps=8).init(policy.env, policy, total_steps=10**4, device=device)
        assert policy.judges_late(4) == late
        for _ in range(2):
            held.rollout.collect()
        found.append({**held.rollout.fields, "bootstrap": held.rollout.bootstrap, "lives": held.rollout.lives})
    for name, one in found[0].items():
        if name in ("value", "bootstrap"):  # a product of more rows may add in another order
            torch.testing.assert_close(found[1][name], one, rtol=1e-4, atol=1e-5)
            assert one.unique().numel() > 2
        else:
            assert torch.equal(found[1][name], one), name


def test_code_of_others_is_run_at_every_step(monkeypatch):
    as_on_cuda(monkeypatch, only="launches")

    class Own(dz.rl.ActorCritic):
        def forward(self, *args, **more):
            return super().forward(*args, **more)

    critic = nn.Linear(5, 3)
    body = nn.Linear(4, 5)
    assert dz.rl.ActorCritic(CartPole(), body, critic=critic).judges_late(4)
    assert not dz.rl.ActorCritic(CartPole(), body, critic=critic).judges_late(10_000)
    assert not Own(CartPole(), body, critic=critic).judges_late(4)
    assert not dz.rl.ActorCritic(CartPole(), body, critic_body=nn.Linear(4, 5), critic=critic).judges_late(4)
    assert not dz.rl.mlp(CartPole()).judges_late(4)
    critic.register_forward_hook(lambda *_: None)
    assert not dz.rl.ActorCritic(CartPole(), body, critic=critic).judges_late(4)


@pytest.mark.cuda
def test_captured_updates_of_convolutions_equal_uncaptured_ones():
    runs = []
    for captured in (True, False):
        torch.manual_seed(0)
        policy = dz.rl.conv(FORAGING, (16, 32), 64, critic_hidden=(32,), head=dz.rl.PopArt)
        algorithm = dz.rl.PPO(num_envs=64, num_steps=8, num_minibatches=1, precision="bfloat16")
        held = algorithm.init(FORAGING, policy, total_steps=10**6, device="cuda")
        assert held.policy.judges_late(4)
        iteration = dz.rl.Updates(held, compile=True)
        iteration.warm_up()
        assert iteration.path == "captured"
        for _ in range(3):
            told = iteration() if captured else algorithm.update(held)
        runs.append([*(p.detach().clone() for p in held.policy.parameters()), held.rollout.fields["value"], told["kl"]])
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)
