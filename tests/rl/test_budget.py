"""An iteration of learning, with what the loop does around it, within a budget of no host read and no transfer."""

import pytest

import denizen as dz
from denizen.rl import _train
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


def iteration(guard, make_env, make_policy, algorithm, **more):
    """What the loop does between two looks at the clock, done once before."""
    env = make_env()
    steps = 100 * algorithm.samples
    loop = _train.new_loop(env, make_policy(env), algorithm, steps, device=guard.device, **more)

    def go():
        metrics = dict(algorithm.update(loop.training))
        loop._judge(metrics)
        return metrics

    go()
    return go


@pytest.mark.parametrize("name", CASES)
def test_an_iteration_reads_nothing_on_the_host_and_moves_nothing(name, guard):
    go = iteration(guard, *CASES[name], patience=dz.rl.Patience())
    with guard:
        go()
        go()


def test_a_curriculum_is_decided_on_the_device(guard):
    params = {"spawn_prob": dz.rl.Earned(0.1, 0.7, score=-100.0, lives=1)}
    for algorithm in (dz.PPO(**PPO), dz.GRPO(**GRPO)):
        go = iteration(guard, fruits, lambda env: dz.rl.mlp(env, (8,)), algorithm, params=params)
        with guard:
            go()
            go()


def test_the_budget_sees_a_read_within_it(guard):
    go = iteration(guard, *CASES["PPO that stops by its KL"])
    with pytest.raises(dz.errors.BudgetError, match=r"test_budget\.py"), guard:
        float(go()["kl"])
