"""PPO: parity with a plain reference, invariants of learning, memory, masks, precision, capture."""

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import denizen as dz
from denizen.rl import play
from denizen.zoo.cartpole import CartPole
from trainings import judged_while_learning

SMALL = {"num_envs": 8, "num_steps": 16}


def training(algorithm, env=None, policy=None, seed=0, total=8 * 16 * 10):
    env = env or CartPole()
    return algorithm.init(env, policy or dz.rl.mlp(env, (16,)), total_steps=total, seed=seed, device="cpu")


def weights(held):
    return torch.cat([p.detach().flatten() for p in held.policy.parameters()])


class Lever(dz.Env):
    """Pays for small actions; a world sees an action only within its space."""

    acts: dz.rl.Box
    time_limit = 6
    observation_space = dz.rl.Box([-1.0, 0.0], 1.0, (2,))

    @property
    def action_space(self):
        return self.acts

    def init(self, rng):
        return Pulled(by=torch.zeros(()))

    def step(self, now, action, rng):
        return now.replace(by=now.by + action.to(torch.float32).sum())

    def observe(self, now):
        return torch.stack([now.by.sin(), now.by.cos().abs()])

    def reward(self, before, action, now):
        return -(now.by - before.by).abs()

    def terminated(self, now):
        return now.by.abs() > 1e6


class Pulled(dz.State):
    by: torch.Tensor = dz.real()


class Showing(Lever):
    """Shows the action that it took last."""

    observation_space = dz.rl.Box(-torch.inf, torch.inf, (3,))

    def init(self, rng):
        return Taken(last=torch.zeros(3))

    def step(self, now, action, rng):
        return now.replace(last=action)

    def observe(self, now):
        return now.last

    def reward(self, before, action, now):
        return -now.last.abs().sum()

    def terminated(self, now):
        return now.last[0] > 1e6


class Taken(dz.State):
    last: torch.Tensor = dz.real("numbers")


BOUNDS = [
    (0.0, torch.inf),
    (-torch.inf, -0.5),
    ([-1.0, 0.0, 0.0], [1.0, 1.0, torch.inf]),
    ([0.2, 0.2, 0.3], [0.2, 0.3, 0.3]),
]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_actions_come_within_bounds_of_one_side_and_of_each_number(low, high):
    env = Showing(acts=dz.rl.Box(torch.tensor(low), high, (3,)))
    ppo = dz.PPO(num_envs=4, num_steps=6, num_minibatches=1, update_epochs=1)
    held = training(ppo, env, dz.rl.mlp(env, (4,)))
    ppo.update(held)
    held.check()
    drawn = held.rollout.fields["action"]
    assert bool(env.acts.fault(drawn).any()), "the policy learns from what it drew"
    given = held.rollout.fields["observation"][1:]
    assert torch.equal(given, drawn[:-1].clamp(torch.tensor(low), torch.tensor(high)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_worlds_and_ratios_see_actions_of_the_dtype_of_their_space(dtype):
    seen = set()

    class Telling(Lever):
        def step(self, now, action, rng):
            seen.add(action.dtype)
            return super().step(now, action, rng)

        def draw(self, now):
            return torch.zeros(2, 2, 3, dtype=torch.uint8)

    env = Telling(acts=dz.rl.Box([-1.0, 0.2], [0.3, 0.2], (2,), dtype))
    ppo = dz.PPO(num_envs=4, num_steps=4, num_minibatches=1, update_epochs=1)
    held = training(ppo, env, dz.rl.mlp(env, (4,)))
    with torch.no_grad():
        held.policy.log_std.fill_(-6.0)  # a rounded action is far off
    assert float(ppo.update(held)["kl"].abs()) < 1e-5
    held.check()
    dz.rl.evaluate(env, held.policy, num_envs=3)
    assert len(list(play(env, held.policy, 3))) == 4
    dz.rl.imitate(
        env,
        held.policy,
        lambda observed, _: env.acts.nearest(torch.zeros(len(observed.observation), 2).to(dtype)),
        updates=1,
        num_envs=2,
        num_steps=2,
        device="cpu",
        progress=False,
    )
    assert seen == {dtype}


def test_bounds_of_each_number_are_learnt_with_by_all_and_compiled():
    class Property(Lever):
        action_space = property(lambda self: dz.rl.Box(torch.tensor([-1.0, 0.0]), [1.0, torch.inf], (2,)))

    env = Property(acts=dz.rl.Box(0, 1, (2,)))
    ppo = dz.PPO(num_envs=4, num_steps=4, num_minibatches=1, update_epochs=1)
    held, same = (training(ppo, env, dz.rl.mlp(env, (4,))) for _ in range(2))
    same.compile("eager")
    for one in (held, same):
        ppo.update(one)
        one.check()
    assert torch.equal(weights(same), weights(held))
    grpo = dz.GRPO(groups=2, group_size=2, max_steps=4, update_epochs=1)
    grouped = training(grpo, env, dz.rl.mlp(env, (4,)))
    grpo.update(grouped)
    grouped.check()
    for greedy in (False, True):
        assert bool(dz.rl.evaluate(env, held.policy, num_envs=3, greedy=greedy).finished.all())


def test_two_sided_bounds_of_all_numbers_have_the_bits_that_they_had():
    box, drawn = dz.rl.Box(-1.0, 1.0, (3,)), torch.randn(50, 3) * 2
    assert torch.equal(box.nearest(drawn), drawn.clamp(-1.0, 1.0))
    assert dz.rl.Box(-torch.inf, torch.inf, (3,)).nearest(drawn) is drawn


# --- one update against a plain implementation in float64 -------------------------------------------------------------


def reference_update(held, algorithm):
    """A full update of the same rollout by plain torch in float64: loops, torch's Adam, torch's clipping."""
    policy = copy.deepcopy(held.policy).double()
    fields = {n: f.double() if f.is_floating_point() else f for n, f in held.rollout.fields.items()}
    value, reward = fields["value"], fields["reward"]
    gained, later = torch.zeros_like(value), torch.zeros(value.shape[1], dtype=torch.float64)
    for t in reversed(range(value.shape[0])):
        ends, dead = fields["terminated"][t] | fields["truncated"][t], fields["terminated"][t]
        delta = reward[t] + algorithm.gamma * held.rollout.bootstrap[t].double() * ~dead - value[t]
        later = delta + algorithm.gamma * algorithm.gae_lambda * later * ~ends
        gained[t] = later
    returns = gained + value
    flat = {n: f.flatten(0, 1) for n, f in {**fields, "gain": gained, "returns": returns}.items()}
    adam = torch.optim.Adam(policy.parameters(), lr=algorithm.learning_rate, eps=algorithm.adam_eps)
    for epoch in range(algorithm.update_epochs):
        for index in held.minibatches.parts(held.updates * algorithm.update_epochs + epoch, *value.shape):
            part = {n: f[index] for n, f in flat.items()}
            shown = policy.body(part["observation"])
            spread = torch.distributions.Categorical(logits=policy.actor(shown))
            new = policy.head.linear(policy.critic_body(part["observation"])).squeeze(-1)
            gain = (part["gain"] - part["gain"].mean()) / (part["gain"].std() + 1e-8)
            ratio = (spread.log_prob(part["action"]) - part["log_prob"]).exp()
            surrogate = torch.minimum(
                ratio * gain, ratio.clamp(1 - algorithm.clip_coef, 1 + algorithm.clip_coef) * gain
            ).mean()
            near = part["value"] + (new - part["value"]).clamp(-algorithm.value_clip, algorithm.value_clip)
            error = torch.maximum((new - part["returns"]) ** 2, (near - part["returns"]) ** 2).mean()
            loss = -surrogate + algorithm.vf_coef * error
            loss = loss - algorithm.ent_coef * spread.entropy().mean()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), algorithm.max_grad_norm)
            adam.step()
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


def test_a_full_update_equals_a_plain_one_in_float64():
    algorithm = dz.PPO(**SMALL, learning_rate=3e-3, update_epochs=3, num_minibatches=4)
    held = training(algorithm)
    for _ in range(2):
        held.rollout.collect()
    before = weights(held)
    wanted = reference_update(held, algorithm)
    algorithm.learn(held)
    assert (weights(held) - before).abs().max() > 1e-3
    assert torch.allclose(weights(held).double(), wanted, atol=2e-6)


# --- invariants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, 8])
def test_the_ratio_is_exactly_one_before_the_first_step(memory, monkeypatch):
    algorithm = dz.PPO(num_envs=8, num_steps=64, update_epochs=1, num_minibatches=1, learning_rate=1e-3)
    env = CartPole()
    held = training(algorithm, env, dz.rl.mlp(env, (16,), memory_size=memory))
    for _ in range(2):  # lives end within the rollouts, and go on from one to the next
        algorithm.update(held)
        held.rollout.collect()
        assert held.rollout.fields["terminated"].any()
        judged = judged_while_learning(held, monkeypatch)
        assert torch.allclose(judged, held.rollout.fields["log_prob"], atol=1e-6)


def test_a_life_begins_after_each_end_and_is_stored_so():
    env = CartPole()
    held = training(dz.PPO(num_envs=8, num_steps=64), env, dz.rl.mlp(env, (16,), memory_size=4))
    assert bool(held.rollout.state.first.all())
    held.rollout.collect()
    fields = held.rollout.fields
    ended = fields["terminated"] | fields["truncated"]
    assert int(ended.sum()) > 8
    assert bool(fields["first"][0].all())
    assert torch.equal(fields["first"][1:], ended[:-1])
    assert torch.equal(held.rollout.state.first, ended[-1])


class Narrow(CartPole):
    """Every third step leaves one choice only."""

    def action_mask(self, now):
        free = now.time.step % 3 != 0
        return torch.stack([free, torch.ones_like(free)])


@pytest.mark.parametrize("memory", [0, 4])
def test_with_closed_choices_the_loss_begins_at_a_ratio_of_one(memory):
    env = Narrow()
    algorithm = dz.PPO(num_envs=8, num_steps=16, num_minibatches=2, learning_rate=0.0)
    held = training(algorithm, env, dz.rl.mlp(env, (16,), memory_size=memory))
    for _ in range(2):
        told = algorithm.update(held)
        assert told["kl"].item() < 1e-9
        assert told["clip_fraction"].item() == 0
        fields = held.rollout.fields
        assert bool((fields["action_mask"].all(-1) | (fields["action"] == 1)).all())
        free = fields["action_mask"].all(-1).float().mean()
        assert told["entropy"].item() == pytest.approx(0.693 * float(free), abs=0.01)


class Doubled(CartPole):
    """Its critic sees twice what the policy sees."""

    def privileged(self, now):
        return 2 * self.observe(now)


def test_what_a_critic_sees_belongs_to_what_the_policy_sees():
    env = Doubled()
    held = training(dz.PPO(num_envs=8, num_steps=64), env, dz.rl.mlp(env, (16,)))
    held.rollout.collect()
    fields = held.rollout.fields
    assert bool(fields["terminated"].any())
    assert torch.equal(fields["privileged"], 2 * fields["observation"])
    judged, value = held.policy.with_value(
        fields["observation"].flatten(0, 1), torch.zeros(1, 0), None, fields["privileged"].flatten(0, 1)
    )
    assert torch.allclose(value, fields["value"].flatten(), atol=1e-6)
    assert judged.features.shape[1] == 16 + 4


def test_the_critic_is_clipped_apart_where_asked():
    held = training(dz.PPO(**SMALL, clip_apart=True, max_grad_norm=0.01, num_minibatches=1, update_epochs=1))
    policy, (actor, critic) = held.policy, held.optimizer.groups
    assert {id(p) for p in critic} == {id(p) for part in (policy.critic_body, policy.head) for p in part.parameters()}
    assert {id(p) for p in actor} == {id(p) for p in policy.parameters()} - {id(p) for p in critic}
    held.algorithm.update(held)
    norms = [torch.cat([p.grad.flatten() for p in group]).norm().item() for group in (actor, critic)]
    assert norms == pytest.approx([0.01, 0.01], rel=1e-3)
    assert len(training(dz.PPO(**SMALL)).optimizer.groups) == 1


def test_memory_is_cleared_where_a_life_begins_and_nowhere_else():
    env = CartPole()
    policy = dz.rl.mlp(env, (8,), memory_size=4)
    looks = torch.randn(5, 3, 4)
    first = torch.zeros(5, 3, dtype=torch.bool)
    first[2, 1] = True
    start = torch.randn(3, 4)
    whole = policy(looks.flatten(0, 1), start, first=first.flatten()).features.unflatten(0, (5, 3))
    alone = policy(looks[2:, 1], torch.zeros(1, 4)).features
    assert torch.allclose(whole[2:, 1], alone, atol=1e-6)
    other = policy(looks[:, [0, 2]].flatten(0, 1), start[[0, 2]]).features.unflatten(0, (5, 2))
    assert torch.allclose(whole[:, [0, 2]], other, atol=1e-6)


def test_no_draw_repeats_from_step_to_step_from_world_to_world_or_in_the_next_rollout():
    held = training(dz.PPO(num_envs=64, num_steps=64, learning_rate=0.0))
    nn.init.zeros_(held.policy.actor.weight)  # every action is a fair coin
    actions = []
    for _ in range(2):
        held.algorithm.update(held)
        actions.append(held.rollout.fields["action"].clone())
    coins = torch.cat(actions)
    assert len(coins.unique(dim=0)) == 128
    assert len(coins.unique(dim=1).T) == 64
    signs = 2.0 * coins - 1
    for agreement in (signs.mean(), (signs[1:] * signs[:-1]).mean(), (signs[:, 1:] * signs[:, :-1]).mean()):
        assert abs(float(agreement)) < 4 / 8192**0.5


def test_two_runs_with_one_seed_are_equal_and_seeds_differ():
    algorithm = dz.PPO(**SMALL)
    runs = [training(algorithm, seed=seed) for seed in (3, 3, 4)]
    told = [[algorithm.update(held) for _ in range(3)][-1] for held in runs]
    assert torch.equal(weights(runs[0]), weights(runs[1]))
    assert all(
        torch.equal(a, b) or (a.isnan() and b.isnan()) for a, b in zip(told[0].values(), told[1].values(), strict=True)
    )
    assert not torch.equal(weights(runs[0]), weights(runs[2]))


def test_a_compiled_step_gives_the_same_numbers():
    algorithm = dz.PPO(**SMALL)
    eager, compiled = training(algorithm), training(algorithm)
    compiled.compile("aot_eager")
    for _ in range(3):
        one, other = algorithm.update(eager), algorithm.update(compiled)
    assert torch.equal(weights(eager), weights(compiled))
    assert torch.equal(one["value_loss"], other["value_loss"])


def test_a_step_is_compiled_once():
    held, graphs = training(dz.PPO(**SMALL)), CompileCounter()
    held.rollout.compile(graphs)
    for _ in range(2):
        held.algorithm.update(held)
    assert graphs.frame_count == 1


def test_what_is_frozen_meanwhile_has_no_gradient():
    held = training(dz.PPO(**SMALL))
    held.algorithm.update(held)
    held.policy.actor.requires_grad_(False)
    held.algorithm.update(held)
    assert not held.policy.actor.weight.grad.any()
    assert held.policy.body[1].weight.grad.any()


def test_rewards_are_never_clamped_and_metrics_are_those_of_the_rollout():
    class Rich(CartPole):
        def reward(self, before, action, now):
            return torch.ones_like(now.x) * 100

    algorithm = dz.PPO(num_envs=4, num_steps=64)
    held = training(algorithm, Rich())
    told = algorithm.update(held)
    fields = held.rollout.fields
    ended = fields["terminated"] | fields["truncated"]
    totals, now = [], torch.zeros(4)
    for t in range(64):
        now = now + fields["reward"][t]
        totals += now[ended[t]].tolist()
        now = torch.where(ended[t], 0.0, now)
    assert told["episodes"] == len(totals)
    assert told["return_mean"].item() == pytest.approx(sum(totals) / len(totals))
    assert told["return_sum"].item() == sum(totals)
    assert told["reward_mean"].item() == 100.0
    assert told["return_max"].item() == max(totals)
    assert told["return_min"].item() == min(totals)
    assert told["length_mean"].item() == pytest.approx(sum(totals) / len(totals) / 100)
    counted = fields["action"][fields["valid"]]
    for action in range(2):
        assert told[f"action_{action}"].item() == pytest.approx((counted == action).double().mean().item())


def test_losses_that_are_told_are_means_over_all_minibatches(monkeypatch):
    algorithm = dz.PPO(**SMALL, update_epochs=2, num_minibatches=2, learning_rate=1e-2)
    held, seen = training(algorithm), []
    plain = dz.PPO._loss
    monkeypatch.setattr(dz.PPO, "_loss", lambda *given: seen.append(plain(*given)) or seen[-1])
    told = algorithm.update(held)
    assert len(seen) == 4
    names = {"policy_loss": "policy", "value_loss": "value", "kl": "kl", "clip_fraction": "clipped"}
    for name, part in {**names, "entropy": "entropy"}.items():
        assert told[name].item() == pytest.approx(sum(float(getattr(one, part)) for one in seen) / 4, rel=1e-5), name
    fields = held.rollout.fields
    flags = (fields[name] for name in ("terminated", "truncated", "valid"))
    returns = dz.rl.advantages(
        fields["reward"], fields["value"], held.rollout.bootstrap, *flags, algorithm.gamma, algorithm.gae_lambda
    ).returns
    share = 1 - (returns - fields["value"]).var() / returns.var()
    assert told["explained_variance"].item() == pytest.approx(float(share), rel=1e-3)


def test_target_kl_stops_without_a_host_read():
    strict = dz.PPO(**SMALL, learning_rate=0.05, target_kl=1e-6, update_epochs=4, num_minibatches=2)
    held, free = training(strict), training(dataclasses.replace(strict, target_kl=None))
    strict.update(held)
    free.algorithm.update(free)
    assert int(held.optimizer.tensors()["0.step"]) == 1  # the second minibatch is too far
    assert int(free.optimizer.tensors()["0.step"]) == 8


def test_schedules_follow_progress():
    algorithm = dz.PPO(**SMALL, learning_rate=dz.rl.Linear(1.0, 0.0), entropy_floor=dz.rl.Linear(0.5, 0.0, 0.5, 1.0))
    held = training(algorithm, total=8 * 16 * 4)
    told = [algorithm._settings(torch.tensor(p), held.rate) for p in (0.0, 0.5, 1.0)]
    assert [round(t["learning_rate"].item(), 6) for t in told] == [1.0, 0.5, 0.0]
    assert [round(t["entropy_floor"].item(), 6) for t in told] == [0.5, 0.5, 0.0]
    assert [algorithm.update(held)["learning_rate"].item() for _ in range(4)] == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_low_precision_learns_in_float32_parameters(precision):
    algorithm = dz.PPO(**SMALL, precision=precision, learning_rate=1e-3)
    held = training(algorithm)
    before = weights(held)
    for _ in range(2):
        told = algorithm.update(held)
    assert weights(held).dtype == torch.float32
    assert torch.isfinite(weights(held)).all()
    assert not torch.equal(weights(held), before)
    assert torch.isfinite(told["value_loss"])


# --- wrong settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"num_envs": 0}, "num_envs=0"),
        ({"num_envs": 3, "num_steps": 3, "num_minibatches": 2}, "ragged minibatch"),
        ({"gamma": 1.5}, "gamma=1.5"),
        ({"target_kl": -1}, "target_kl=-1"),
        ({"precision": "fp8"}, "valid: bfloat16, float16, float32"),
    ],
)
def test_wrong_settings_are_named(settings, told):
    with pytest.raises(dz.errors.InputError, match=told):
        dz.PPO(**settings)


def test_a_policy_of_the_wrong_width_is_named():
    with pytest.raises(dz.errors.InputError, match=r"body does not take inputs of shape \('rows', 4\)"):
        dz.rl.ActorCritic(CartPole(), nn.Linear(5, 8))
    with pytest.raises(dz.errors.InputError, match=r"expected a dz\.rl\.ActorCritic"):
        dz.PPO().init(CartPole(), nn.Linear(4, 2), total_steps=1)


@pytest.mark.parametrize("widths", [(0,), (64, -1), (2.5,)])
def test_widths_that_are_none_are_named(widths):
    with pytest.raises(dz.errors.InputError, match=r"policy: hidden\[\d\]="):
        dz.rl.mlp(CartPole(), widths)
    with pytest.raises(dz.errors.InputError, match="memory_size=-1"):
        dz.rl.mlp(CartPole(), memory_size=-1)
