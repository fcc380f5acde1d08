"""SAC, TD3 and DQN: targets by hand, when learning begins, resume, evaluation, and what is refused."""

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.errors import InputError
from denizen.zoo import probes
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum
from trainings import read_manifest

SMALL = {"num_envs": 4, "num_steps": 2, "gradient_steps": 2, "batch_size": 8, "buffer_size": 200, "learning_starts": 32}
KINDS = {
    "sac": (Pendulum, dz.rl.soft_mlp, dz.rl.SAC),
    "td3": (Pendulum, dz.rl.deterministic_mlp, dz.rl.TD3),
    "dqn": (CartPole, dz.rl.q_mlp, dz.rl.DQN),
}


def made(kind, normalise=False, **changes):
    """(environment, policy, algorithm), all of them small."""
    world, policy, algorithm = KINDS[kind]
    return world(), policy(world(), (8,), normalise=normalise), algorithm(**{**SMALL, **changes})


def begun(kind, **changes):
    env, policy, algorithm = made(kind, **changes)
    return algorithm.init(env, policy, total_steps=1000, device="cpu")


def test_duelling_values_differ_by_centred_advantages():
    network = dz.rl.q_mlp(CartPole(), (8,), duelling=True)
    look = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    features = network.body(look)
    assert torch.allclose(network.values(look).mean(1), network.state_value(features)[:, 0], atol=1e-6)
    gap = network.q(features)[:, 1] - network.q(features)[:, 0]
    assert torch.allclose(network.values(look)[:, 1] - network.values(look)[:, 0], gap, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_learnt_before_its_time(kind):
    training = begun(kind)
    update = dz.rl.Updates(training, compile=False)
    weights = [p.detach().clone() for p in training.policy.parameters()]
    for _ in range(3):
        update()
    assert all(torch.equal(now, then) for now, then in zip(training.policy.parameters(), weights, strict=True))
    assert training.learnt == 0
    update()  # 32 steps are there
    assert training.learnt == 2
    assert not all(torch.equal(now, then) for now, then in zip(training.policy.parameters(), weights, strict=True))


def test_targets_follow_by_copies_or_by_shares():
    training = begun("dqn", target_every=3, gradient_steps=1)
    update, target = dz.rl.Updates(training, compile=False), training.followers["q"]
    now = lambda: torch.cat([p.detach().flatten() for p in training.policy.parameters()])
    first = target.flat.clone()
    for number in range(1, 7):  # learning begins in the fourth
        update()
        assert torch.equal(target.flat, now() if number == 6 else first)
    training = begun("sac", tau=0.25, gradient_steps=1)
    update, target = dz.rl.Updates(training, compile=False), training.followers["critics"]
    for _ in range(4):
        before = target.flat.clone()
        update()
    leader = torch.cat([p.detach().flatten() for p in training.policy.critics.parameters()])
    assert torch.allclose(target.flat, 0.75 * before + 0.25 * leader, atol=1e-7)


@pytest.mark.parametrize("gradient_steps", [2, 3])
def test_the_actor_of_td3_learns_every_second_time(gradient_steps):
    training = begun("td3", gradient_steps=gradient_steps, learning_starts=8, policy_delay=2)
    update = dz.rl.Updates(training, compile=False)
    for _ in range(4):
        update()
    assert training.learnt == 4 * gradient_steps
    assert training.optimizers["critics"].tensors()["0.step"] == 4 * gradient_steps
    assert training.optimizer.tensors()["0.step"] == 2 * gradient_steps


NORMALISED = {"normalise": True, "normalise_rewards": True}


@pytest.mark.parametrize("more", [{}, NORMALISED], ids=["plain", "normalised"])
@pytest.mark.parametrize("kind", KINDS)
def test_resume_goes_on_bit_for_bit(kind, more, tmp_path):
    changes = {"buffer_size": 48} | ({"epsilon": 0.2} if kind == "dqn" else {})  # the ring is full before the resume
    changes |= more | ({"noise_steps": 3} if more and kind != "dqn" else {})
    options = {"device": "cpu", "progress": False}
    through = dz.train(*made(kind, **changes), 160, **options)
    dz.train(*made(kind, **changes), 120, folder=tmp_path / "run", **options)
    resumed = dz.rl.resume(tmp_path / "run", *made(kind, **changes), steps=40, progress=False)
    assert (len(resumed.metrics), resumed.updates) == (5, 20)
    for name, tensor in through.policy.state_dict().items():
        assert torch.equal(tensor, resumed.policy.state_dict()[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_is_raw_and_what_is_drawn_is_told_in_units_of_the_moment(kind):
    priority = {"priority": 0.5} if kind == "dqn" else {}
    training = begun(kind, **NORMALISED, n_steps=2, learning_starts=8, **priority)
    update, seen, rewards, ends = dz.rl.Updates(training, compile=False), [], [], []
    own, units = training.policy.normaliser, []
    for _ in range(6):
        before, metrics = own.mean.clone(), update()
        seen.append(training.rollout.fields["observation"].clone())
        rewards.append(training.rollout.fields["reward"].clone())
        ends.append(training.rollout.fields["terminated"].clone())
        units.append(metrics["reward_scale"].item())
        assert not torch.equal(own.mean, before)  # a rollout is taken in once it has been learnt from
    looks = torch.cat(seen).flatten(0, 1).double()
    torch.testing.assert_close(own.mean, looks.mean(0), rtol=1e-6, atol=1e-9)
    replay, age = training.replay, torch.arange(10).repeat_interleave(4)
    row = torch.arange(4).repeat(10)
    raw, drawn = replay.batch(age, row), replay.batch(age, row, torch.tensor(units[-1]))
    assert torch.equal(raw.observation, torch.cat(seen)[:10].flatten(0, 1))
    told = (torch.cat(rewards) / units[-1]).clamp(-10, 10)
    later = torch.where(torch.cat(ends)[:10], 0.0, training.algorithm.gamma * told[1:11])
    torch.testing.assert_close(drawn.reward, (told[:10] + later).flatten())
    for follower in training.followers.values():  # a target network has no statistics of its own
        assert getattr(follower.module, "normaliser", own) is own
    if kind == "td3":
        given = training.policy.normalised(raw.observation)
        assert torch.equal(training.target_share(given), torch.tanh(training.followers["actor"].module(given)))


def test_held_noise_pushes_the_same_way_for_some_steps():
    pushed = {}
    for steps in (1, 4):
        training = begun("td3", noise_steps=steps, num_steps=8, learning_starts=900)
        dz.rl.Updates(training, compile=False)()
        pushed[steps] = training.rollout.fields["action"][..., 0]
    assert torch.equal(pushed[4], pushed[4][::4].repeat_interleave(4, 0))
    assert not torch.equal(pushed[4][0], pushed[4][4])
    assert not torch.equal(pushed[1][0], pushed[1][1])
    assert torch.equal(pushed[1][0], pushed[4][0])


def test_a_replay_that_is_not_saved_begins_anew_and_is_told_of(tmp_path):
    options = {"device": "cpu", "progress": False}
    dz.train(*made("sac", save_replay=False), 80, folder=tmp_path / "run", **options)
    with pytest.warns(UserWarning, match="its replay was not saved .* before it holds 32 steps again"):
        resumed = dz.rl.resume(tmp_path / "run", *made("sac", save_replay=False), steps=80, progress=False)
    assert resumed.updates == 20
    held = {one.name: one.stat().st_size for one in (tmp_path / "run" / "checkpoints").glob("update-*")}
    dz.train(*made("sac"), 80, folder=tmp_path / "whole", **options)
    whole = {one.name: one.stat().st_size for one in (tmp_path / "whole" / "checkpoints").glob("update-*")}
    assert max(held.values()) < min(whole.values()) - 4000  # 200 steps of 5 numbers


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_lives_have_no_noise(kind):
    env, policy, algorithm = made(kind)
    trained = dz.train(env, policy, algorithm, 160, device="cpu", progress=False)
    options = {"num_envs": 3, "max_steps": 20, "device": "cpu"}
    one, other = (dz.rl.evaluate(env, trained.policy, greedy=True, **options) for _ in range(2))
    assert torch.equal(one.returns, other.returns)
    drawn = dz.rl.evaluate(env, trained.policy, **options)
    assert torch.equal(drawn.returns, one.returns) == (kind != "sac")  # whose policy draws by itself
    assert len(list(dz.rl.play(env, trained.policy, 2, greedy=True, brain=kind != "sac"))) == 3


def test_validation_keeps_the_best_policy():
    env, policy, algorithm = made("sac")
    validation = {"num_envs": 2, "max_steps": 5, "greedy": True}
    patience = dz.rl.Patience(updates=100)
    trained = dz.train(
        env,
        policy,
        algorithm,
        160,
        device="cpu",
        progress=False,
        validate_every=10,
        validation=validation,
        patience=patience,
    )
    assert [update for update, _ in trained.evaluations] == [10, 20]
    assert max(one.mean for _, one in trained.evaluations) == pytest.approx(trained["best_score"][-1])


def test_worlds_that_wait_are_never_learnt_from():
    env = probes.Both()
    algorithm = dz.rl.DQN(**{**SMALL, "max_resets": 1})  # each life is one step, so three of four worlds wait
    training = algorithm.init(env, dz.rl.q_mlp(env, (8,)), total_steps=1000, device="cpu")
    update = dz.rl.Updates(training, compile=False)
    for _ in range(20):
        update()
    assert training.rollout.state.worlds.waited.sum() > 0
    replay = training.replay
    assert replay.stored() < replay.filled * 4
    age, row = replay.draw(torch.arange(0, 2**32, 2**22))
    assert bool((replay.batch(age, row).discount == 0).all())  # of those that act every life ends


def test_several_actors_share_a_policy():
    env = probes.Padded(actors=3, garbage=1e4)
    weights = []
    for garbage in (0.0, 1e4):
        env = probes.Padded(actors=3, garbage=garbage)
        trained = dz.train(
            env, dz.rl.q_mlp(env, (8,)), dz.rl.DQN(**{**SMALL, "buffer_size": 600}), 64, device="cpu", progress=False
        )
        weights.append(torch.cat([p.detach().flatten() for p in trained.policy.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: dz.rl.soft_mlp(CartPole()), "expected a dz.rl.Box"),
        (lambda: dz.rl.q_mlp(Pendulum()), "expected a dz.rl.Discrete"),
        (lambda: dz.rl.deterministic_mlp(Pendulum(), (0,)), "hidden"),
        (lambda: dz.rl.SAC(buffer_size=100), "buffer_size=100, expected at least batch_size=256"),
        (lambda: dz.rl.SAC(learning_starts=100), "learning_starts=100 steps, expected at least batch_size=256"),
        (lambda: dz.rl.SAC(tau=2.0), "tau"),
        (lambda: dz.rl.TD3(policy_delay=0), "policy_delay"),
        (lambda: dz.rl.DQN(epsilon=1.5), "epsilon"),
        (lambda: dz.rl.DQN(num_env=2), "num_envs"),
        (
            lambda: start("sac", total_steps=20),
            "total_steps=20, expected more than learning_starts=32, .* train for longer",
        ),
        (lambda: start("sac", other="td3"), "expected a dz.rl.SoftActorCritic, such as dz.rl.soft_mlp"),
        (lambda: start("dqn", other="ppo"), "expected a dz.rl.QNetwork, such as dz.rl.q_mlp"),
        (lambda: start("sac", num_envs=300), "buffer_size=200, expected at least 600"),
        (lambda: start("sac", buffer_size=10**14), "its looks alone are 1,200,000.0 GB; take a smaller one"),
        (lambda: dz.train(*made("sac")[:2], dz.PPO(), 1000), "expected a dz.rl.ActorCritic"),
        (lambda: dropped(), "the policy has Dropout"),
        (lambda: shared(), "actor and critics of the policy share body.0.weight, expected networks of their own"),
        (lambda: dz.rl.soft_mlp(Wide(), (8,)), "whose width is beyond float32"),
    ],
)
def test_what_does_not_fit_is_told_at_the_door(make, told):
    with pytest.raises(InputError, match=told.replace("(", r"\(")):
        make()


def start(kind, total_steps=1000, other=None, **changes):
    env, policy, algorithm = made(kind, **changes)
    if other == "ppo":
        policy = dz.rl.mlp(env)
    elif other is not None:
        policy = made(other)[1]
    return algorithm.init(env, policy, total_steps=total_steps, device="cpu")


def dropped():
    env, _, algorithm = made("dqn")
    body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1))
    return algorithm.init(env, dz.rl.QNetwork(env, body), total_steps=1000, device="cpu")


class Odd(Pendulum):
    """An action that is one number without an axis, and looks of two parts."""

    action_space = dz.rl.Box(-2.0, 2.0, ())
    observation_space = dz.rl.Dict({"side": dz.rl.Box(-1.0, 1.0, (2,)), "speed": dz.rl.Box(-8.0, 8.0, (1,))})

    def step(self, now, action, rng):
        return super().step(now, action[None], rng)

    def reward(self, before, action, now):
        return super().reward(before, action[None], now)

    def observe(self, now):
        seen = super().observe(now)
        return {"side": seen[:2], "speed": seen[2:]}


class Sides(nn.Module):
    def __init__(self, critics=0):
        super().__init__()
        self.critics, self.linear = critics, nn.Linear(3 + (critics > 0), critics or 4)

    def forward(self, given, action=None):
        out = self.linear(torch.cat([*given.values(), *([] if action is None else [action])], 1))
        return out.T if self.critics else out


@pytest.mark.parametrize(("kind", "policy"), [("sac", dz.rl.SoftActorCritic), ("td3", dz.rl.DeterministicActorCritic)])
def test_one_number_without_an_axis_and_networks_of_trees(kind, policy):
    env, algorithm = Odd(), KINDS[kind][2](**SMALL)
    given = policy(env, Sides(), Sides(2), normaliser=dz.rl.Normaliser((3,)))
    training = algorithm.init(env, given, total_steps=1000, device="cpu")
    for _ in range(6):
        told = algorithm.update(training)
    assert told["critic_loss"] > 0
    action = training.replay.batch(*training.replay.draw(torch.arange(8) * 2**29)).action
    assert action.shape == (8,)
    assert torch.equal(given.unscaled(given.scaled(action)), action)
    assert dz.rl.evaluate(env, given, num_envs=2, max_steps=5).returns.shape == (2,)


class Wide(Pendulum):
    """Bounds as far apart as numbers go."""

    action_space = dz.rl.Box(-3e38, 3e38, (1,))


class Weak(Pendulum):
    """Bounds of its own."""

    action_space = dz.rl.Box(-1.0, 1.0, (1,))


@pytest.mark.parametrize(
    "policy",
    [
        dz.rl.soft_mlp(Pendulum(), (8,)),
        dz.rl.deterministic_mlp(Pendulum(), (8,)),
        dz.rl.mlp(Pendulum(), (8,), distribution=dz.rl.Beta),
        dz.rl.mlp(Pendulum(), (8,), distribution=dz.rl.SquashedGaussian),
    ],
    ids=["sac", "td3", "beta", "squashed"],
)
def test_a_world_that_would_clip_what_a_policy_fills_is_told(policy):
    with pytest.raises(InputError, match=r"actions fill Box\(low=-2.0.* Weak has Box\(low=-1.0.* would clip them"):
        dz.rl.evaluate(Weak(), policy, num_envs=2, max_steps=2, device="cpu")


def shared():
    env, _, algorithm = made("sac")
    body, critics = nn.Sequential(nn.Linear(3, 8), nn.ReLU()), dz.rl.soft_mlp(env, (8,)).critics
    critics.body = body
    policy = dz.rl.SoftActorCritic(env, body, critics)
    return algorithm.init(env, policy, total_steps=1000, device="cpu")


@pytest.mark.parametrize(
    ("kind", "world", "steps"),
    [("sac", "pendulum", 30_000), ("td3", "pendulum", 30_000), ("dqn", "cartpole", 50_000), ("dqn", "breakout", None)],
)
def test_the_command_line_builds_them(kind, world, steps, command_line, monkeypatch, tmp_path):
    def stops(algorithm, training):
        begun.append((algorithm, training.policy))
        raise InputError("enough")

    begun, folder = [], tmp_path / "run"
    monkeypatch.setattr(KINDS[kind][2], "update", stops)
    words = ("--set", "tau=0.5", "--policy", "normalise=true", "--device", "cpu", "--quiet", "--out", folder)
    code, _, said = command_line("train", world, "--algo", kind, *words)
    assert code
    assert "enough" in said
    ((algorithm, policy),) = begun
    assert policy.normaliser is not None
    assert type(algorithm).__name__ == kind.upper()
    assert algorithm.tau == 0.5
    assert steps in (read_manifest(folder)["total_steps"], None)
    assert isinstance(policy, type(KINDS[kind][1](KINDS[kind][0]())))
    if world == "cartpole":  # smaller networks do not learn it by these settings
        assert policy.q.in_features == 256
