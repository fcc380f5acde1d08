"""Normalisers of observations and rewards: statistics against float64 loops, frozen within an update, checkpoints."""

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.rl import play
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum
from denizen.zoo.probes import Padded
from trainings import judged_while_learning

SMALL = {"num_envs": 8, "num_steps": 16, "num_minibatches": 2, "learning_rate": 1e-3}


def training(env=None, policy=None, total=8 * 16 * 10, **settings):
    env = env or CartPole()
    policy = policy or dz.rl.mlp(env, (8,), normalise=True)
    return dz.PPO(**{**SMALL, **settings}).init(env, policy, total_steps=total, device="cpu")


# --- moments ----------------------------------------------------------------------------------------------------------


def test_moments_are_those_of_all_rows_that_count_and_do_not_drift():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 97, 3, generator=generator) * torch.tensor([1e-3, 1.0, 50.0])
    rows += torch.tensor([1.0, 1e5, -3.0])
    counts = torch.rand(40, 97, generator=generator) < 0.7
    held = dz.rl.Normaliser((3,))
    held.take([(torch.where(c[:, None], r, torch.nan), c) for r, c in zip(rows, counts, strict=True)])
    wanted = rows[counts].double()
    assert held.count.item() == len(wanted)
    torch.testing.assert_close(held.mean, wanted.mean(0), rtol=1e-12, atol=0)
    torch.testing.assert_close(held.variance, wanted.var(0, unbiased=False), rtol=1e-6, atol=0)


def test_rows_of_which_none_counts_change_nothing():
    held = dz.rl.Normaliser((2,))
    held.take([(torch.full((5, 2), torch.nan), torch.zeros(5, dtype=torch.bool))])
    assert (held.count, held.mean.tolist(), held.variance.tolist()) == (0, [0, 0], [1, 1])


def test_inputs_that_do_not_vary_become_nothing_and_far_ones_are_clipped():
    norm = dz.rl.Normaliser((3,))
    rows = torch.tensor([[0.1, 1e6, -1.0], [0.1, 1e6, 1.0]])
    norm.take([(rows, torch.ones(2, dtype=torch.bool))])
    shown = norm(torch.cat([rows, torch.tensor([[0.1, 1e6, 1e9]])]))
    assert shown[:, :2].abs().max() < 1e-3
    assert shown[:, 2].tolist() == pytest.approx([-1, 1, 10])
    assert dz.rl.Normaliser((3,), clip=None)(torch.full((1, 3), 1e9)).min() > 1e8


# --- of observations --------------------------------------------------------------------------------------------------


def test_statistics_are_those_of_what_was_acted_on_and_ratios_begin_at_one(monkeypatch):
    held, seen = training(num_envs=8, num_steps=32, num_minibatches=1, update_epochs=1), []
    norm = held.policy.normaliser
    for _ in range(2):
        before = {name: value.clone() for name, value in norm.state_dict().items()}
        held.rollout.collect()
        judged = judged_while_learning(held, monkeypatch)
        assert torch.allclose(judged, held.rollout.fields["log_prob"], atol=1e-6)
        assert all(torch.equal(before[name], value) for name, value in norm.state_dict().items())
        assert held.algorithm.update(held)["kl"] < 1  # goes on from the state above with a rollout of its own
        seen.append(held.rollout.fields["observation"].flatten(0, 1).double())
        wanted = torch.cat(seen)
        torch.testing.assert_close(norm.mean, wanted.mean(0), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(norm.variance, wanted.var(0, unbiased=False), rtol=1e-6, atol=0)


class Waiting(CartPole):
    """Its critic sees twice what the policy sees."""

    def privileged(self, now):
        return 2 * self.observe(now)


def test_worlds_that_wait_do_not_count_and_what_is_privileged_has_its_own_statistics():
    held = training(Waiting(), num_envs=16, num_steps=64, max_resets=1)
    held.algorithm.update(held)
    fields = held.rollout.fields
    seen = fields["observation"][fields["valid"]].double()
    assert 0 < len(seen) < fields["valid"].numel()
    torch.testing.assert_close(held.policy.normaliser.mean, seen.mean(0), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(held.policy.privileged_normaliser.mean, 2 * seen.mean(0), rtol=1e-9, atol=1e-12)


def test_rubbish_of_actors_that_are_out_changes_no_statistics():
    told = []
    for garbage in (0.0, 1e4):
        held = training(Padded(garbage=garbage, actors=3), normalise_rewards=True)
        for _ in range(2):
            held.algorithm.update(held)
        told.append(held.shared_tensors())
    assert all(torch.equal(value, told[1][name]) for name, value in told[0].items())
    assert told[0]["policy.normaliser.count"] < 2 * 8 * 16 * 3


def test_evaluation_and_play_leave_statistics_alone_and_a_reload_acts_alike(tmp_path):
    env, ppo = CartPole(), dz.PPO(**SMALL, normalise_rewards=True)
    policy = dz.rl.mlp(env, (8,), normalise=True)
    whole = dz.train(env, policy, ppo, 2 * 128, folder=tmp_path / "a", device="cpu", progress=False)
    kept = {name: value.clone() for name, value in policy.state_dict().items()}
    assert kept["normaliser.count"] == 2 * 128
    told = dz.rl.evaluate(env, policy, num_envs=4, max_steps=20)
    list(play(env, policy, 2))
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in kept.items())

    other = dz.rl.mlp(env, (8,), normalise=True, seed=9)
    dz.rl.resume(tmp_path / "a", env, other, ppo, progress=False)
    again = dz.rl.evaluate(env, other, num_envs=4, max_steps=20)
    assert torch.equal(told.returns, again.returns)
    looks = torch.randn(50, 4)
    with torch.no_grad():
        one, two = (p(looks, p.first_memory(50, looks.device)).actions.log_probs for p in (policy, other))
    assert torch.equal(one, two)

    assert whole["reward_scale"][-1] > 0


# --- of rewards -------------------------------------------------------------------------------------------------------


def test_rewards_are_divided_by_the_deviation_of_discounted_returns():
    generator = torch.Generator().manual_seed(1)
    scale = training(
        Pendulum(), dz.rl.mlp(Pendulum(), (4,)), num_envs=5, gamma=0.9, normalise_rewards=True
    ).reward_scale
    going, returns = np.zeros(5), []
    for _ in range(3):
        reward = torch.randn(7, 5, generator=generator) * 3 + 1
        ended, valid = (torch.rand(7, 5, generator=generator) < p for p in (0.2, 0.8))
        ended = ended & valid
        told = scale.scaled(torch.where(valid, reward, torch.nan), ended, valid)
        for t in range(7):
            for row in range(5):
                if not valid[t, row]:
                    going[row] = 0.0
                    continue
                going[row] = going[row] * 0.9 + reward[t, row].item()
                returns.append(going[row])
                going[row] *= not ended[t, row]
        deviation = np.std(returns)
        assert scale.deviation().item() == pytest.approx(deviation, rel=1e-5)
        wanted = torch.where(valid, reward / deviation, 0.0).clamp(-10, 10)
        torch.testing.assert_close(told, wanted.float(), rtol=1e-5, atol=1e-6)


def test_learning_goes_by_scaled_rewards_and_metrics_by_raw_ones():
    held = training(Pendulum(), dz.rl.mlp(Pendulum(), (8,)), num_envs=8, num_steps=200, normalise_rewards=True)
    told = held.algorithm.update(held)
    assert told["return_mean"] < -500
    assert told["reward_mean"].item() == pytest.approx(held.rollout.fields["reward"].mean().item())
    assert 10 < told["reward_scale"] < 1000
    assert told["value_loss"] < 50, "raw it would be some ten thousand"


class Tagged(CartPole):
    """Looks with a number that has no axis."""

    observation_space = dz.rl.Dict({"all": CartPole.observation_space, "x": dz.rl.Box(-5.0, 5.0, ())})

    def observe(self, now):
        return {"all": super().observe(now), "x": super().observe(now)[0]}


def test_a_number_without_an_axis_stands_beside_others():
    env = Tagged()
    policy = dz.rl.mlp(env, (8,), normalise=True)
    algorithm = dz.PPO(num_envs=4, num_steps=8, num_minibatches=1)
    training = algorithm.init(env, policy, total_steps=100, device="cpu")
    algorithm.update(training)
    assert policy.normaliser.mean.shape == (5,)
    assert policy.normaliser.mean[0] == policy.normaliser.mean[4] != 0


# --- what does not fit ------------------------------------------------------------------------------------------------


def test_wrong_normalisers_are_told():
    env = CartPole()
    with pytest.raises(dz.errors.InputError, match="normalise='yes'"):
        dz.rl.mlp(env, normalise="yes")
    with pytest.raises(dz.errors.InputError, match=r"shape=\(3,\), expected \(4,\)"):
        dz.rl.ActorCritic(env, torch.nn.Linear(4, 8), normaliser=dz.rl.Normaliser((3,)))
    with pytest.raises(dz.errors.InputError, match="normaliser is bool"):
        dz.rl.ActorCritic(env, torch.nn.Linear(4, 8), normaliser=True)
    with pytest.raises(dz.errors.InputError, match="clip=0"):
        dz.rl.Normaliser((4,), clip=0)
    with pytest.raises(dz.errors.InputError, match=r"shape=4, expected sizes, such as \(4,\)"):
        dz.rl.Normaliser(4)
    with pytest.raises(dz.errors.InputError, match="normalise_rewards=1"):
        dz.PPO(normalise_rewards=1)


def test_trainings_without_one_are_described_as_before(tmp_path):
    env, told = CartPole(), []
    for number, more in enumerate(({}, {"normalise_rewards": True})):
        ppo, folder = dz.PPO(**SMALL, **more), tmp_path / str(number)
        dz.train(env, dz.rl.mlp(env, (4,)), ppo, 128, folder=folder, device="cpu", progress=False)
        told.append(dz.rl.read_manifest(folder)["algorithm"])
    assert "normalise_rewards" not in told[0]
    assert "normalise_rewards=True" in told[1]
    assert not any("normaliser" in name for name in dz.rl.mlp(CartPole()).state_dict())


def test_without_a_critic_ratios_are_one_as_well():
    env = CartPole()
    grpo = dz.GRPO(groups=2, group_size=2, max_steps=8, update_epochs=1, learning_rate=0.0)
    held = grpo.init(env, dz.rl.mlp(env, (4,), normalise=True), total_steps=320, device="cpu")
    for _ in range(2):
        told = grpo.update(held)
        assert [told[name].item() for name in ("ratio_min", "ratio_max")] == pytest.approx([1, 1], abs=1e-6)
    assert held.policy.normaliser.count == 2 * held.rollout.fields["valid"].sum()


def test_a_cloned_policy_has_the_statistics_of_its_states():
    env = CartPole()
    policy = dz.rl.mlp(env, (4,), normalise=True)
    dz.rl.imitate(
        env,
        policy,
        lambda seen, uniform: (seen.observation[:, 2] > 0).long(),
        updates=2,
        num_envs=4,
        num_steps=4,
        progress=False,
    )
    assert policy.normaliser.count == 2 * 4 * 4
    assert bool((policy.normaliser.mean != 0).all())


@pytest.mark.slow
def test_pendulum_is_learnt_with_both():
    env = Pendulum()
    ppo = dz.PPO(
        num_envs=16,
        num_steps=128,
        update_epochs=6,
        num_minibatches=8,
        gamma=0.9,
        learning_rate=1e-3,
        ent_coef=0.0,
        value_clip=None,
        vf_coef=0.5,
        normalise_rewards=True,
    )
    policy = dz.rl.mlp(env, normalise=True)
    dz.train(env, policy, ppo, 60_000, device="cpu", progress=False)
    assert dz.rl.evaluate(env, policy, num_envs=64, greedy=True).mean > -400, "about -1,200 at the beginning"
