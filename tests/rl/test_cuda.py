"""Training on a CUDA device: captured updates, equal to uncaptured ones, without a host read."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

import denizen as dz
from denizen import ops
from denizen.perf.watch import sync_warnings
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum

pytestmark = pytest.mark.cuda


def training(**more):
    env = CartPole()
    algorithm = dz.PPO(num_envs=64, num_steps=16, **more)
    return algorithm.init(env, dz.rl.mlp(env, (32,), head=dz.rl.PopArt), total_steps=64 * 16 * 20, device="cuda")


def weights(held):
    return torch.cat([p.detach().flatten() for p in held.policy.parameters()])


@pytest.mark.parametrize(
    "more", [{}, {"target_kl": 0.01}, {"precision": "bfloat16"}, {"precision": "float16"}], ids=str
)
def test_captured_updates_equal_uncaptured_ones(more):
    captured, plain = training(**more), training(**more)
    iteration = dz.rl.Updates(captured, compile=True)
    iteration.warm_up()
    assert iteration.path == "captured"
    plain.compile()
    for _ in range(4):
        one, other = iteration(), plain.algorithm.update(plain)
        assert torch.equal(weights(captured), weights(plain))
        assert torch.equal(one["value_loss"], other["value_loss"])


def test_replays_never_repeat_random_numbers():
    held = training(learning_rate=0.0)
    iteration = dz.rl.Updates(held, compile=True)
    iteration.warm_up()
    iteration()
    first = held.rollout.fields["action"].clone()
    iteration()
    assert not torch.equal(first, held.rollout.fields["action"])


@pytest.mark.parametrize("world", dz.zoo.entries(dz.zoo.WorldEntry))
def test_worlds_of_the_zoo_begin_under_the_guard(world):
    worlds = dz.rl.Worlds(dz.zoo.entry(world).build(), 70, device="cuda", max_resets=2)
    observed = worlds.reset()
    assert all(look.is_cuda for look in tree_leaves(observed.observation))
    worlds.check()


class Drawing(CartPole):
    def step(self, now, action, rng):
        return super().step(now, action, rng).replace(angle=torch.rand((), device=action.device))


def test_a_rule_that_is_broken_is_told_with_its_line_and_bad_actions_leave_the_device_whole():
    with pytest.raises(dz.errors.ModelError, match=r"(?s)Drawing at .*global generator"):
        dz.rl.Worlds(Drawing(), 4, device="cuda").reset()
    worlds = dz.rl.Worlds(CartPole(), 4, device="cuda")
    worlds.reset()
    worlds.step(torch.tensor([0, 9, 1, 0], device="cuda"))
    with pytest.raises(dz.errors.ModelError, match="outside the action space, in world 1 at step 0"):
        worlds.check()
    assert worlds.step(torch.zeros(4, dtype=torch.int64, device="cuda")).valid.all()


class Blinding(CartPole):
    def observe(self, now):
        return torch.stack([now.x, torch.where(now.time.step == 2, torch.nan, now.speed), now.angle])

    observation_space = dz.rl.Box(-torch.inf, torch.inf, (3,))


@pytest.mark.parametrize("most", [None, 3])
def test_compiled_steps_tell_observations_that_are_not_finite_as_plain_ones_do(most):
    told = []
    for backend in (None, "inductor"):
        worlds = dz.rl.Worlds(Blinding(), 40, device="cuda", max_resets=most)
        worlds.reset()
        ops.fuse_draws()
        worlds._advance.compile(backend)
        for _ in range(4):
            worlds.step(torch.ones(40, dtype=torch.int64, device="cuda"))
        with pytest.raises(dz.errors.ModelError, match="an observation that is not finite, in world 0 at step 1"):
            worlds.check()
        told.append(worlds.run_state)
    assert torch.equal(told[0].faults, told[1].faults)


@pytest.mark.parametrize("count", [7, 1000, 2048])
def test_observations_of_compiled_steps_are_the_states(count):
    worlds = dz.rl.Worlds(CartPole(), count, device="cuda")
    worlds.reset()
    ops.fuse_draws()
    worlds._advance.compile("inductor")
    for _ in range(30):
        step = worlds.step(torch.randint(0, 2, (count,), device="cuda"))
        assert torch.equal(step.observed.observation, torch.stack(worlds.run_state.leaves, 1))
        lasting = ~step.ended
        assert torch.equal(step.final.observation[lasting], step.observed.observation[lasting])


def test_an_update_makes_the_host_wait_for_nothing():
    held = training()
    iteration = dz.rl.Updates(held, compile=True)
    iteration.warm_up()
    with sync_warnings() as told:
        iteration()
    assert not told


FURTHER = {
    "normalised": (CartPole(), {"normalise": True}, {"normalise_rewards": True, "learning_rate": dz.rl.AdaptiveKL()}),
    "lstm": (CartPole(), {"memory": dz.rl.LSTM(16)}, {"segment_length": 8}),
    "attention": (CartPole(), {"memory": dz.rl.Attention(16, window=4, heads=2)}, {"segment_length": 8}),
    "around": (dz.rl.FrameStack(dz.rl.ActionRepeat(CartPole(), 2), 3), {}, {}),
}


@pytest.mark.parametrize("case", FURTHER)
def test_what_policies_and_worlds_may_have_besides_is_captured_as_it_is(case):
    env, options, settings = FURTHER[case]
    algorithm = dz.PPO(num_envs=64, num_steps=16, **settings)

    def made():
        return algorithm.init(env, dz.rl.mlp(env, (32,), **options), total_steps=64 * 16 * 20, device="cuda")

    captured, plain = made(), made()
    iteration = dz.rl.Updates(captured, compile=True)
    iteration.warm_up()
    assert iteration.path == "captured"
    plain.compile()
    for number in range(4):
        with sync_warnings() as told:
            iteration()
        assert not told
        plain.algorithm.update(plain)
        for name, tensor in captured.shared_tensors().items():
            assert torch.equal(tensor, plain.shared_tensors()[name]), (name, number)


def test_numbers_of_cpu_and_cuda_agree():
    env = CartPole()
    algorithm = dz.PPO(num_envs=8, num_steps=16, update_epochs=1, num_minibatches=1)
    told = []
    for device in ("cpu", "cuda"):
        held = algorithm.init(env, dz.rl.mlp(env, (8,)), total_steps=128, device=device)
        metrics = algorithm.update(held)
        told.append((weights(held).cpu(), metrics["value_loss"].cpu()))
    assert torch.allclose(told[0][0], told[1][0], atol=1e-4)
    assert torch.allclose(told[0][1], told[1][1], rtol=1e-3)


@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.ReLU])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("head", [dz.rl.ValueHead, dz.rl.PopArt])
def test_small_networks_are_one_operation_of_the_same_values(activation, shared, head):
    env = CartPole()
    policy = dz.rl.mlp(env, (64, 64), activation=activation, shared=shared, head=head)
    looks, told = torch.randn(300, 4), []
    for device in ("cpu", "cuda"):
        policy.to(device)
        judged, value = policy.with_value(looks.to(device), policy.first_memory(300, torch.device(device)))
        found = torch.autograd.grad((judged.actions.entropy() + value).mean(), list(policy.parameters()))
        assert judged.features.shape[1] == (64 if device == "cpu" else 0)
        told.append([judged.actions.log_probs, value, *found])
    for one, other in zip(*told, strict=True):
        assert torch.allclose(one, other.cpu(), atol=1e-5)
    seen = looks.cuda().requires_grad_()  # to look into the network, its layers are taken one by one
    policy(seen, policy.first_memory(300, seen.device), actor_only=True).actions.entropy().sum().backward()
    assert seen.grad.any()


@pytest.mark.parametrize("kind", ["sac", "dqn"])
def test_a_captured_update_from_a_replay_equals_an_uncaptured_one_with_normalisers(kind):
    sizes = {"num_steps": 4, "gradient_steps": 2, "batch_size": 32, "buffer_size": 2000, "learning_starts": 64}
    held = []
    for _ in range(2):
        env = Pendulum() if kind == "sac" else CartPole()
        more = {"noise_steps": 4} if kind == "sac" else {"priority": 0.5}
        algorithm = (dz.rl.SAC if kind == "sac" else dz.rl.DQN)(normalise_rewards=True, **sizes, **more)
        policy = (dz.rl.soft_mlp if kind == "sac" else dz.rl.q_mlp)(env, (32,), normalise=True)
        held.append(algorithm.init(env, policy, total_steps=10_000, device="cuda"))
    captured, plain = held
    iteration = dz.rl.Updates(captured, compile=True)
    iteration.warm_up()
    assert iteration.path == "captured"
    for _ in range(6):
        iteration()
        plain.algorithm.update(plain)
    assert captured.learnt == plain.learnt > 0
    torch.testing.assert_close(weights(captured), weights(plain), rtol=1e-4, atol=1e-5)
    mean = captured.policy.normaliser.mean, plain.policy.normaliser.mean  # of states that those weights lead to
    torch.testing.assert_close(*mean, rtol=1e-4, atol=1e-5)
