"""Small networks as one operation with their heads, as on CUDA: here by the operation's plain form."""

import pytest
import torch

import denizen as dz
from as_on_cuda import small_networks_at_once
from denizen.nn import kernels
from denizen.zoo.breakout import Breakout
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum


@pytest.fixture
def at_once(monkeypatch):
    """The operation wherever it would be taken on CUDA; how often it was."""
    return small_networks_at_once(monkeypatch)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("head", [dz.rl.ValueHead, dz.rl.PopArt])
@pytest.mark.parametrize("env", [CartPole(), Pendulum(), Breakout()])
def test_values_and_gradients_are_those_of_the_layers(env, shared, head, at_once):
    policy = dz.rl.mlp(env, (16, 8), shared=shared, head=head, activation=torch.nn.ReLU)
    if head is dz.rl.PopArt:
        policy.head.std.fill_(3.0)
    looks, memory = torch.randn(20, *env.observation_space.shape), policy.first_memory(20, torch.device("cpu"))
    looks = (looks > 1).to(env.observation_space.dtype) if env.observation_space.dtype == torch.uint8 else looks
    for learnt in (False, True):
        plain = policy(looks, memory)
        told = []
        for judged, value in (
            (plain, (policy.head.training_value if learnt else policy.head.value)(plain.features)),
            policy.with_value(looks, memory, learnt=learnt),
        ):
            loss = (judged.actions.log_prob(judged.actions.mode()) + judged.actions.entropy() + value.square()).sum()
            told.append([value, *torch.autograd.grad(loss, list(policy.parameters()))])
        for mine, expected in zip(*told, strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)
    assert at_once == [12, 12]


def test_what_does_not_fit_takes_the_layers(at_once):
    env = CartPole()
    looks, none = torch.randn(5, 4), torch.zeros(5, 0)

    class Doubled(dz.rl.ValueHead):
        def value(self, features):
            return 2 * self.training_value(features)

    for policy in (
        dz.rl.mlp(env, (16, 8, 8)),
        dz.rl.mlp(env, (16,)),
        dz.rl.mlp(env, (8, 8), memory_size=4),
        dz.rl.mlp(env, (8, 8), head=Doubled),
        dz.rl.mlp(env, (8, 8), activation=torch.nn.GELU),
    ):
        memory = policy.first_memory(5, none.device)
        judged, value = policy.with_value(looks, memory)
        assert torch.equal(value, policy.head.value(policy(looks, memory).features))
        assert judged.features.shape[1]
    assert not at_once
    seen = looks.clone().requires_grad_()
    policy(seen, memory, actor_only=True).actions.log_probs[:, 0].sum().backward()
    assert seen.grad.any()


def test_a_value_head_needs_no_linear_layer():
    class Deep(dz.rl.ValueHead):
        def __init__(self, features):
            torch.nn.Module.__init__(self)
            self.layers = torch.nn.Sequential(torch.nn.Linear(features, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))

        def training_value(self, features):
            return self.layers(features)[:, 0]

    env, algorithm = CartPole(), dz.PPO(num_envs=4, num_steps=4)
    training = algorithm.init(env, dz.rl.mlp(env, (8, 8), head=Deep), total_steps=16, device="cpu")
    training.precompile()  # as before it is compiled on CUDA
    algorithm.update(training)
    training.check()


def test_code_of_others_within_a_policy_runs(at_once):
    """A hook, a layer that derives from torch's, a policy that looks otherwise: the layers, which run them."""

    class Noisy(torch.nn.Linear):
        def forward(self, input):
            return super().forward(input) + 1

    class Scaled(dz.rl.ActorCritic):
        def forward(self, observation, *args, **kwargs):
            return super().forward(observation / 2, *args, **kwargs)

    hooked, derived, scaled = (dz.rl.mlp(CartPole(), (8, 8)) for _ in range(3))
    seen = []
    hooked.body[1].register_forward_hook(lambda module, given, out: seen.append(out))
    derived.body[1] = Noisy(4, 8)
    scaled.__class__ = Scaled
    looks, memory = torch.randn(5, 4), torch.zeros(5, 0)
    for policy in (hooked, derived, scaled):
        judged, value = policy.with_value(looks, memory)
        plain = policy(looks, memory)
        assert torch.equal(judged.actions.log_probs, plain.actions.log_probs)
        assert torch.equal(value, policy.head.value(plain.features))
    assert len(seen) == 2
    assert not at_once


def test_layers_without_bias_and_other_actors_are_taken_as_they_are(at_once):
    looks, memory = torch.randn(5, 4), torch.zeros(5, 0)
    unbiased, other = dz.rl.mlp(CartPole(), (8, 8)), dz.rl.mlp(CartPole(), (8, 8))
    unbiased.body[1] = torch.nn.Linear(4, 8, bias=False)
    other.actor = torch.nn.Sequential(torch.nn.Linear(8, 2), torch.nn.Identity())
    for policy in (unbiased, other):
        assert policy.with_value(looks, memory)[1].shape == (5,)
        assert policy(looks, memory, actor_only=True).actions.mode().shape == (5,)
    assert not at_once


def test_what_asks_for_hooks_is_one_graph(at_once, monkeypatch):
    monkeypatch.setattr(kernels, "mlp_fits", lambda weights: True)
    policy = dz.rl.mlp(CartPole(), (8, 8))
    looks, memory = torch.randn(5, 4), torch.zeros(5, 0)
    compiled = torch.compile(lambda looks: policy.with_value(looks, memory)[1], backend="eager", fullgraph=True)
    assert torch.equal(compiled(looks), policy.with_value(looks, memory)[1])
    assert at_once


@pytest.mark.slow
def test_updates_are_those_of_the_layers(at_once, monkeypatch):
    env = CartPole()
    algorithm = dz.PPO(num_envs=8, num_steps=8, update_epochs=2, num_minibatches=2)

    def learnt(compile):
        held = algorithm.init(env, dz.rl.mlp(env, (16, 16)), total_steps=128, device="cpu")
        iteration = dz.rl.Updates(held, compile=compile)
        iteration.warm_up()
        iteration()
        assert iteration.path == ("compiled" if compile else "eager")
        return torch.cat([p.detach().flatten() for p in held.policy.parameters()])

    eager, compiled = learnt(False), learnt(True)
    assert at_once
    monkeypatch.setattr(kernels, "mlp_fits", lambda weights: False)
    torch.testing.assert_close(eager, learnt(False), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(eager, compiled, rtol=1e-4, atol=1e-5)
