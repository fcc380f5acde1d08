"""An iteration of learning, with what the loop does around it, within a budget of no host read and no transfer."""

import itertools

import pytest

import denizen as dz
from denizen.zoo.breakout import Breakout
from denizen.zoo.cartpole import CartPole
from denizen.zoo.foraging import foraging
from denizen.zoo.fruits import fruits
from denizen.zoo.pendulum import Pendulum

PPO = {"num_envs": 8, "num_steps": 8}
GRPO = {
    "groups": 2,
    "group_size": 4,
    "max_steps": 8,
    "beta": 0.1,
    "refresh_reference": 2,
    "num_minibatches": 2,
    "micro_batches": 2,
    "drop_flat_groups": True,
}


def popart(env):
    return dz.rl.mlp(env, (8,), head=dz.rl.PopArt, memory_size=4)


def forager():
    return foraging("proxy", height=16, width=16, food_range=(4, 6), poison_range=(4, 6), steps=12)


CASES = {
    "PPO that stops by its KL": (CartPole, lambda env: dz.rl.mlp(env, (8,)), dz.PPO(**PPO, target_kl=0.01)),
    "a memory and PopArt": (CartPole, popart, dz.PPO(**PPO)),
    "numbers as actions": (Pendulum, lambda env: dz.rl.mlp(env, (8,)), dz.PPO(**PPO)),
    "planes": (Breakout, lambda env: dz.rl.mlp(env, (8,)), dz.PPO(**PPO)),
    "views that are packed, a critic that sees more": (
        forager,
        lambda env: dz.rl.conv(env, (4,), hidden=8),
        dz.PPO(**PPO, clip_apart=True),
    ),
    "GRPO": (CartPole, lambda env: dz.rl.mlp(env, (8,)), dz.GRPO(**GRPO)),
}


@pytest.fixture
def guard():
    return dz.budget(host_reads=0, transfers=0)


class Enough(Exception):
    """Ends a training."""


def trained(guard, make_env, make_policy, algorithm, look=lambda metrics: None, **more):
    """A training whose second and third iteration, with all that the loop does around updates, are in the budget."""
    given = {"device": guard.device, "progress": False}
    env, plain, begun = make_env(), type(algorithm).update, itertools.count(1)

    def update(algorithm, training):
        number = next(begun)
        if number == 2:
            guard.__enter__()
        if number == 4:
            guard.__exit__(None, None, None)
            raise Enough
        metrics = plain(algorithm, training)
        if number == 3:
            look(metrics)
        return metrics

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dz.rl.Updates, "warm_up", lambda self: None)
        patched.setattr(type(algorithm), "update", update)
        with pytest.raises(Enough):
            dz.train(env, make_policy(env), algorithm, 100 * algorithm.samples, **given, **more)


@pytest.mark.parametrize("name", CASES)
def test_an_iteration_reads_nothing_on_the_host_and_moves_nothing(name, guard):
    trained(guard, *CASES[name], patience=dz.rl.Patience())
    assert guard.report.ok


def test_a_curriculum_is_decided_on_the_device(guard):
    params = {"spawn_prob": dz.rl.Earned(0.1, 0.7, score=-100.0, lives=1)}
    for algorithm in (dz.PPO(**PPO), dz.GRPO(**GRPO)):
        trained(guard, fruits, lambda env: dz.rl.mlp(env, (8,)), algorithm, params=params)
        assert guard.report.ok


def test_the_budget_sees_a_read_within_it(guard):
    with pytest.raises(dz.errors.BudgetError, match=r"test_budget\.py"):
        trained(guard, *CASES["PPO that stops by its KL"], look=lambda metrics: float(metrics["kl"]))
