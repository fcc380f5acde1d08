"""Early stopping on the device."""

import pytest
import torch

import denizen as dz
from denizen.rl import Patience
from denizen.zoo.cartpole import CartPole


@pytest.mark.parametrize("settings", [{"updates": 0}, {"updates": 1.5}, {"min_delta": -1}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(dz.errors.InputError, match="Patience"):
        Patience(**settings)


def stopping(folder, **changes):
    """A training that cannot get better: its steps are too small."""
    env, algorithm = CartPole(), dz.GRPO(groups=2, group_size=4, max_steps=10, learning_rate=1e-12)
    given = {"patience": Patience(updates=5, min_delta=100.0), "device": "cpu", "progress": False, "compile": False}
    result = dz.train(env, dz.rl.mlp(env, (8,)), algorithm, 60 * algorithm.samples, folder=folder, **given, **changes)
    return env, algorithm, result


def test_a_training_stops_keeps_the_best_policy_and_stays_stopped(tmp_path):
    env, algorithm, result = stopping(tmp_path / "run")
    assert result.stopped
    assert 6 <= result.updates < 60, "the first score is the best, five updates later patience ends"
    for name, tensor in result.policy.state_dict().items():
        assert torch.equal(tensor, result.best_weights[name])
    assert "no better score since update 1" in (tmp_path / "run/log.txt").read_text()
    with pytest.raises(dz.errors.InputError, match="a training that its patience has ended"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (8,)), algorithm, steps=100, progress=False)
    again = dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (8,), seed=4), algorithm, progress=False)
    assert again.updates == result.updates
    for name, tensor in again.policy.state_dict().items():
        assert torch.equal(tensor, result.best_weights[name])


def test_validation_may_tell_the_score():
    _, _, result = stopping(None, validate_every=2, validation={"num_envs": 8, "max_steps": 10})
    assert result.stopped
    assert result.updates >= 8, "scores of updates 2, 4, 6 and 8"
