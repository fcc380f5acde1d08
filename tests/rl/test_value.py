"""Value heads: PopArt keeps its outputs and normalises its targets."""

import torch

import denizen as dz
from as_on_cuda import as_on_cuda
from denizen.zoo.cartpole import CartPole


def head_after_steps():
    """A head that has learnt a little, what moves it, and features."""
    env, algorithm = CartPole(), dz.PPO(num_envs=4, num_steps=8, max_grad_norm=None)
    training = algorithm.init(env, dz.rl.mlp(env, (4,), head=dz.rl.PopArt), total_steps=64, device="cpu")
    head, adam = training.policy.head, training.optimizer
    features = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        adam.backward((head.training_value(features) - 3).square().mean())
        adam.step(torch.tensor(1e-2), torch.tensor(False))
    return head, adam, features


def test_a_sum_of_products_is_the_linear_layer(monkeypatch):
    head, features = dz.rl.ValueHead(5), torch.randn(7, 5)
    expected = head.training_value(features)
    slopes = torch.autograd.grad(expected.sum(), list(head.parameters()))
    as_on_cuda(monkeypatch)
    found = head.training_value(features)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), list(head.parameters())), slopes)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        rounded = head.training_value(features.to(torch.bfloat16))
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, expected, rtol=2e-2, atol=2e-2)


def test_outputs_are_preserved_and_targets_normalised():
    head, _, features = head_after_steps()
    returns = 100 + 20 * torch.randn(64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = head.value(features)
        targets, old = head.prepare_targets(returns, before, torch.ones(64))
        after = head.value(features)
    assert torch.allclose(before, after, rtol=1e-5, atol=1e-4)
    assert abs(targets.mean().item()) < 1e-5
    assert abs(targets.std(correction=0).item() - 1) < 1e-5
    assert torch.allclose(old * head.std + head.mean, before, rtol=1e-5, atol=1e-4)


def test_moments_are_rescaled_with_the_weights():
    head, adam, _ = head_after_steps()
    first, second = (moment.clone() for moment in adam.moments(head.linear.weight))
    weight = head.linear.weight.detach().clone()
    head.prepare_targets(torch.full((8,), 7.0) + torch.arange(8), torch.zeros(8), torch.ones(8))
    factor = head.linear.weight.detach() / weight
    now = adam.moments(head.linear.weight)
    assert torch.allclose(now[0], first * factor)
    assert torch.allclose(now[1], second * factor.square())


def test_entries_that_do_not_count_change_nothing():
    head, _, _ = head_after_steps()
    other, _, _ = head_after_steps()
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0])
    head.prepare_targets(torch.tensor([1.0, 2.0, 5.0, 0.0]), torch.zeros(4), weight)
    other.prepare_targets(torch.tensor([1.0, 2.0, 5.0, 1e6]), torch.zeros(4), weight)
    assert torch.equal(head.mean, other.mean)
    assert torch.equal(head.std, other.std)


def test_a_third_head_needs_no_change_of_the_trainer():
    class Doubled(dz.rl.ValueHead):
        """Learns half of the value."""

        def value(self, features):
            return 2 * self.training_value(features)

        def prepare_targets(self, returns, old_values, weight):
            return returns / 2, old_values / 2

    env = CartPole()
    algorithm = dz.PPO(num_envs=4, num_steps=8)
    training = algorithm.init(env, dz.rl.mlp(env, (8,), head=Doubled), total_steps=64, device="cpu")
    assert torch.isfinite(algorithm.update(training)["value_loss"])


def test_returns_that_differ_by_rounding_alone_give_one_target():
    head, weight = dz.rl.PopArt(4), torch.ones(48)
    returns = torch.tensor([0.1, 0.1, 0.6]).repeat(16) * 1e4
    returns[:] = 1e4 / 3
    returns[::2] *= 1 + 2**-22
    for _ in range(2000):
        targets, _ = head.prepare_targets(returns, returns, weight)
    assert float(targets.max() - targets.min()) == 0
    assert abs(float(targets[0])) < 1
    returns[::2] += 0.01  # what is real still counts
    targets, _ = head.prepare_targets(returns, returns, weight)
    assert float(targets.max() - targets.min()) > 0
