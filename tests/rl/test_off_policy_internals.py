"""SAC, TD3 and DQN: what their losses are, by hand."""

import math

import pytest
import torch

import denizen as dz
from denizen.rl._replay import Batch
from denizen.rl._sac import temperature_loss
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum

KINDS = {
    "sac": (Pendulum(), dz.rl.soft_mlp, dz.rl.SAC),
    "td3": (Pendulum(), dz.rl.deterministic_mlp, dz.rl.TD3),
    "dqn": (CartPole(), dz.rl.q_mlp, dz.rl.DQN),
}


def begun(kind, **changes):
    env, policy, algorithm = KINDS[kind]
    settings = {"num_envs": 4, "batch_size": 8, "buffer_size": 200, "learning_starts": 32, **changes}
    return algorithm(**settings).init(env, policy(env, (8,)), total_steps=1000, device="cpu")


def rows(training, count=5):
    """A minibatch of any numbers, one row of which ended for good."""
    env, draw = training.worlds.env, torch.Generator().manual_seed(0)
    size = env.observation_space.shape[0]
    seen, later = torch.randn(2, count, size, generator=draw)
    if isinstance(env, CartPole):
        action = torch.randint(2, (count,), generator=draw)
    else:
        action = 2 * torch.rand(count, 1, generator=draw) - 1
    discount = torch.tensor([0.9, 0.0, 0.81, 0.9, 0.9])
    return Batch(seen, action, torch.randn(count, generator=draw), discount, later, None)


def test_the_temperature_rises_while_the_entropy_is_below_its_aim():
    log_temperature = torch.tensor(math.log(0.5), requires_grad=True)
    loss = temperature_loss(log_temperature, torch.tensor(2.0), -1.0)  # the entropy is -2, and is to be -1
    assert loss.item() == pytest.approx(0.5 * (-2.0 + 1.0))
    (slope,) = torch.autograd.grad(loss, log_temperature)
    assert slope.item() == pytest.approx(-0.5)  # downhill is a higher temperature


def test_the_entropy_aimed_at_is_minus_the_number_of_components():
    training = begun("sac")
    assert training.algorithm._aim(training) == -1.0
    assert begun("sac", target_entropy=-0.3).algorithm._aim(training) == -0.3


def test_sac_learns_the_soft_value_by_the_lesser_critic():
    training = begun("sac", temperature=0.25)
    batch, uniform = rows(training), torch.rand(5, 1, generator=torch.Generator().manual_seed(3))
    policy, algorithm = training.policy, training.algorithm
    loss, _ = algorithm._critic_loss(training, batch, uniform)
    normal, number = torch.distributions.Normal(0, 1), policy.actor(policy.body(batch.following))
    mean, std = number[:, :1], number[:, 1:].exp()
    noise = normal.icdf(uniform)
    share = torch.tanh(mean + std * noise)
    log_prob = (normal.log_prob(noise) - std.log() - torch.log(1 - share**2))[:, 0]
    later = training.followers["critics"].module(batch.following, share).min(0).values - 0.25 * log_prob
    target = batch.reward + batch.discount * later
    value = policy.critics(batch.observation, batch.action / 2)  # torques go from -2 to 2
    assert loss.item() == pytest.approx(float(((value - target) ** 2).mean(1).sum().detach()), rel=1e-4)


def test_td3_smooths_its_target_and_keeps_it_within_bounds():
    training = begun("td3", target_noise=0.4, noise_clip=0.3)
    batch, uniform = rows(training), torch.tensor([0.5, 0.999, 0.001, 0.6, 0.3])[:, None]
    loss, _ = training.algorithm._critic_loss(training, batch, uniform)
    noise = (0.4 * torch.distributions.Normal(0, 1).icdf(uniform)).clamp(-0.3, 0.3)
    assert noise[1:3].flatten().tolist() == pytest.approx([0.3, -0.3])
    policy, target_actor = training.policy, training.followers["actor"].module
    share = (torch.tanh(target_actor(batch.following)) + noise).clamp(-1, 1)
    target = batch.reward + batch.discount * training.followers["critics"].module(batch.following, share).min(0).values
    value = policy.critics(batch.observation, batch.action / 2)
    assert loss.item() == pytest.approx(float(((value - target) ** 2).mean(1).sum().detach()), rel=1e-4)


@pytest.mark.parametrize("double", [True, False])
def test_dqn_judges_the_best_choice_by_its_target_network(double):
    training = begun("dqn", double=double, huber=None)
    target = training.followers["q"]
    with torch.no_grad():
        target.flat.add_(torch.randn(target.flat.shape, generator=torch.Generator().manual_seed(4)))
    batch = rows(training)._replace(following_mask=torch.tensor([[True, True]] * 4 + [[False, True]]))
    loss, *_ = training.algorithm._loss(training, batch)
    own, its = training.policy.values(batch.following), target.module.values(batch.following)
    best = (own if double else its).argmax(1)
    best[4] = 1  # the other one is closed
    aim = batch.reward + batch.discount * its[torch.arange(5), best]
    value = training.policy.values(batch.observation)[torch.arange(5), batch.action]
    assert loss.item() == pytest.approx(float((0.5 * (value - aim) ** 2).mean().detach()), rel=1e-5)


def test_errors_count_by_their_size_beyond_the_huber_limit():
    training = begun("dqn", huber=0.5)
    batch = rows(training)
    loss, *_ = training.algorithm._loss(training, batch)
    with torch.no_grad():
        its, own = training.followers["q"].module.values(batch.following), training.policy.values(batch.following)
        aim = batch.reward + batch.discount * its.gather(1, own.argmax(1)[:, None])[:, 0]
        error = (training.policy.values(batch.observation).gather(1, batch.action[:, None])[:, 0] - aim).abs()
    plain = torch.where(error <= 0.5, 0.5 * error**2, 0.5 * (error - 0.25))
    assert loss.item() == pytest.approx(plain.mean().item(), rel=1e-5)
