"""GRPO: groups, rollouts of one life, settings, resume."""

import pytest

import denizen as dz
from denizen.zoo.cartpole import CartPole


def training(algorithm, *, env=None, seed=0, updates=4, **arguments):
    env = env or CartPole()
    policy = dz.rl.mlp(env, (16,), shared=True)
    return algorithm.init(env, policy, total_steps=algorithm.samples * updates, seed=seed, device="cpu", **arguments)


def small(**changes):
    return dz.rl.GRPO(**{"groups": 3, "group_size": 4, "max_steps": 20, "learning_rate": 1e-3, **changes})


def test_ratios_are_one_before_the_first_step():
    algorithm = small(epochs=1)
    metrics = algorithm.update(training(algorithm))
    assert abs(float(metrics["ratio_min"]) - 1) < 1e-5
    assert abs(float(metrics["ratio_max"]) - 1) < 1e-5
    assert float(metrics["clip_fraction"]) == 0
    assert abs(float(metrics["kl_old"])) < 1e-6


def test_group_size_one_is_refused():
    with pytest.raises(dz.errors.InputError, match="at least 2"):
        small(group_size=1)


def test_unknown_names_are_told_with_the_valid_ones():
    with pytest.raises(dz.errors.InputError, match=r"GRPO\(kl='k33'\).*did you mean 'k3'"):
        small(kl="k33")
