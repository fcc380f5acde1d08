"""Convolutions channels last and as products: the numbers of the plain layers."""

import contextlib
import copy

import pytest
import torch
from torch import nn

import denizen as dz
from as_on_cuda import as_on_cuda
from denizen.zoo.cartpole import CartPole

SHAPES = [((2, 11, 11), (32, 64, 64)), ((2, 5, 9), (8,)), ((7, 10, 10), (16, 12)), ((4, 10, 10), (3, 5))]


class Looking(CartPole):
    """Shows planes of this shape."""

    shape: tuple

    @property
    def observation_space(self):
        return dz.rl.Box(0.0, 1.0, self.shape)

    def observe(self, now):
        return torch.zeros(self.shape)


def pair(planes, channels, hidden=24):
    """A network, and the same one as plain layers."""
    net = dz.rl.conv(Looking(shape=planes), channels, hidden, critic_hidden=()).body
    torch.manual_seed(1)
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()  # as torch has them: the policy's biases begin at 0
    plain = nn.Sequential(*[copy.deepcopy(layer) for layer in net])
    return net, plain


@pytest.mark.parametrize(("planes", "channels"), SHAPES)
@pytest.mark.parametrize("rows", [1, 6, 32])
def test_values_and_gradients_are_those_of_the_plain_layers(planes, channels, rows):
    net, plain = pair(planes, channels)
    assert {k: v.shape for k, v in net.state_dict().items()} == {k: v.shape for k, v in plain.state_dict().items()}
    given = (torch.rand(rows, *planes) < 0.3).to(torch.float32)
    one, other = given.clone().requires_grad_(), given.clone().requires_grad_()
    shown, expected = net.spread_out(one), plain(other)
    torch.testing.assert_close(shown, expected, rtol=1e-5, atol=1e-6)
    weight = torch.randn_like(shown)
    (shown * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-5, atol=1e-4)


def test_on_a_cpu_the_layers_run_as_they_are():
    net, plain = pair((2, 11, 11), (8, 8))
    given = torch.rand(3, 2, 11, 11)
    assert torch.equal(net(given), plain(given))


def test_without_convolutions_there_is_nothing_to_prepare(monkeypatch):
    as_on_cuda(monkeypatch)
    net, plain = pair((2, 3, 3), ())
    given = torch.rand(3, 2, 3, 3)
    with net.prepared(torch.float32):
        assert torch.equal(net(given), plain(given))


def test_in_bfloat16_the_error_is_that_of_the_plain_layers():
    net, plain = pair((2, 11, 11), (32, 64, 64))
    given = (torch.rand(64, 2, 11, 11) < 0.3).to(torch.float32)
    exact = plain(given)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        shown, rounded = net.spread_out(given), plain(given)
    assert shown.dtype == torch.bfloat16
    assert (shown - exact).norm() < 1.5 * (rounded - exact).norm()


def test_prepared_weights_give_the_same_bits_and_leave_no_trace():
    net, _ = pair((4, 10, 10), (8, 16))
    given, keys = torch.rand(4, 4, 10, 10), list(net.state_dict())
    expected = net.spread_out(given)
    with net.prepared(torch.float32):
        assert torch.equal(net.spread_out(given), expected)
        assert list(net.state_dict()) == keys
    assert not list(net.buffers())


def test_a_prepared_policy_acts_the_same_to_the_bit_and_keeps_its_parameters():
    env = dz.zoo.entry("breakout").build()
    policy = dz.rl.conv(env, (4,), 16, critic_hidden=(16,))
    look, before = torch.rand(3, *env.observation_space.shape).round().to(torch.bool), list(policy.parameters())

    def judged():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            seen = policy(look, policy.first_memory(3, torch.device("cpu")))
            return seen.actions.log_probs, policy.head.value(seen.features)

    expected = judged()
    with policy.prepared(torch.bfloat16):
        assert policy.actor.weight.dtype == torch.bfloat16
        assert all(torch.equal(a, b) for a, b in zip(judged(), expected, strict=True))
    assert all(a is b for a, b in zip(policy.parameters(), before, strict=True))


@pytest.mark.parametrize("prepared", [False, True])
def test_rows_of_a_critic_that_are_filled_up_change_no_number(monkeypatch, prepared):
    env = dz.zoo.entry("foraging").build()
    policy = dz.rl.conv(env, (4,), 8, critic_hidden=(16,))
    look, known = torch.zeros(3, 2, 11, dtype=torch.int16), torch.rand(3, 2)
    look[:, 0, 3] = 5

    def judged():
        with policy.prepared(torch.float32) if prepared else contextlib.nullcontext():
            values = policy.head.value(policy(look, policy.first_memory(3, look.device), None, known).features)
        return values, [] if prepared else torch.autograd.grad(values.sum(), list(policy.critic.parameters()))

    expected, slopes = judged()
    as_on_cuda(monkeypatch)
    keys = {name: value.shape for name, value in policy.state_dict().items()}
    assert policy.critic[0].in_features % 8
    found, others = judged()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(others, slopes)
    assert {name: value.shape for name, value in policy.state_dict().items()} == keys


def test_a_critic_with_a_layer_of_others_keeps_its_parameters(monkeypatch):
    class Own(nn.Module):
        def forward(self, input):
            return input

    as_on_cuda(monkeypatch)
    policy = dz.rl.conv(Looking(shape=(1, 2, 2)), (2,), 6, critic_hidden=(4, 4))
    policy.critic[1] = Own()
    before = list(policy.parameters())
    with policy.prepared(torch.bfloat16):
        pass
    assert all(a is b for a, b in zip(policy.parameters(), before, strict=True))


def test_a_layer_on_top_is_taken_with_the_features(monkeypatch):
    net, top = pair((2, 5, 9), (8,))[0], nn.Linear(24, 3)
    given = torch.rand(4, 2, 5, 9)
    with torch.no_grad():
        assert net.with_top(given, top) is None
        as_on_cuda(monkeypatch)
        shown, numbers = net.with_top(given, top)
        assert torch.equal(shown, net(given))
        assert torch.equal(numbers, top(shown))
        assert net.with_top(given, nn.Linear(24, 3, bias=False)) is None
        assert net.with_top(given, nn.Sequential(top)) is None
        top.register_forward_hook(lambda *_: None)
        assert net.with_top(given, top) is None
    assert net.with_top(given, nn.Linear(24, 3)) is None


def test_hooks_on_convolutions_are_called(monkeypatch):
    net, seen = pair((2, 4, 4), (3,), 8)[0], []
    as_on_cuda(monkeypatch)
    looks = torch.rand(2, 2, 4, 4)
    net(looks)
    assert not seen
    net[0].register_forward_hook(lambda module, given, out: seen.append(out.shape))
    net(looks)
    assert seen == [(2, 3, 4, 4)]


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "norm", [nn.utils.spectral_norm, nn.utils.weight_norm, nn.utils.parametrizations.spectral_norm]
)
def test_weights_that_are_made_of_others_stay_as_they_are(norm):
    policy = dz.rl.ActorCritic(CartPole(), nn.Sequential(nn.Flatten(), norm(nn.Linear(4, 8)), nn.Tanh())).eval()
    look, memory = torch.rand(3, 4), torch.zeros(3, 0)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        expected = policy(look, memory).actions.log_probs
        with policy.prepared(torch.bfloat16):
            assert torch.equal(policy(look, memory).actions.log_probs, expected)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch, as it compiles
@pytest.mark.parametrize(
    ("name", "backend"),
    [("breakout", None), ("breakout", "aot_eager"), pytest.param("foraging", "aot_eager", marks=pytest.mark.slow)],
)
def test_ppo_learns_the_same_in_either_form(monkeypatch, name, backend):
    """Two updates; compiled, the rollout takes the prepared weights of each, not those of the first."""
    runs = []
    for spread in (False, True):
        as_on_cuda(monkeypatch, spread)
        env = dz.zoo.entry(name).build()
        policy = dz.rl.conv(env, (4, 8), 16, critic_hidden=(16,))
        algorithm = dz.rl.PPO(num_envs=4, num_steps=4, num_minibatches=1, learning_rate=1e-3)
        training = algorithm.init(env, policy, total_steps=10**6, device="cpu")
        training.compile(backend if spread else None)
        for _ in range(2):
            algorithm.update(training)
        runs.append([*policy.parameters(), training.rollout.fields["value"], training.rollout.fields["log_prob"]])
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize(("planes", "channels"), SHAPES)
def test_on_cuda_the_numbers_are_those_of_the_plain_layers(planes, channels, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    net, plain = (one.cuda() for one in pair(planes, channels))
    given = (torch.rand(32, *planes, device="cuda") < 0.3).to(torch.float32)
    weight = torch.randn(32, 24, device="cuda")
    exact = plain.double()(given.double())
    slopes = torch.autograd.grad((exact * weight).sum(), list(plain.parameters()))
    plain = plain.float()
    assert torch.equal(net(given), net.spread_out(given))
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32, cache_enabled=False):
            shown, rounded = net(given), plain(given)
        mine = torch.autograd.grad((shown * weight).sum(), list(net.parameters()))
        theirs = torch.autograd.grad((rounded * weight).sum(), list(plain.parameters()))
        for a, b, c in zip((shown, *mine), (rounded, *theirs), (exact, *slopes), strict=True):
            assert (a - c).norm() <= 2 * (b - c).norm() + 1e-5 * c.norm()
