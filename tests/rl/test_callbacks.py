"""Functions that a training calls after saves and validations, and what goes on from the folder that is left."""

import pytest
import torch

import denizen as dz
from denizen.zoo.cartpole import CartPole
from trainings import read_manifest, read_metrics

PPO_ = dz.PPO(
    num_envs=4,
    num_steps=8,
    segment_length=4,
    update_epochs=1,
    learning_rate=dz.rl.AdaptiveKL(),
    normalise_rewards=True,
)


def made(seed=0):
    """An environment and a policy with everything that a checkpoint has to hold."""
    env = dz.rl.FrameStack(CartPole(), 2)
    return env, dz.rl.mlp(env, (4,), memory=dz.rl.LSTM(4), normalise=True, seed=seed)


def go(folder, **more):
    env, policy = made()
    options = {"validate_every": 2, "validation": {"num_envs": 2, "max_steps": 3}, "save_every": 0, **more}
    return dz.train(env, policy, PPO_, 4 * 32, folder=folder, device="cpu", progress=False, **options)


def test_both_are_told_in_order_and_what_they_raise_leaves_the_folder_safe(tmp_path):
    told = []

    def saved(folder, updates):
        assert read_manifest(folder)["updates"] == updates
        told.append(updates)

    def validated(evaluation, updates):
        told.append((updates, evaluation.mean))
        if updates == 4:
            raise RuntimeError("no disk of mine")

    with pytest.raises(RuntimeError, match="no disk of mine") as caught:
        go(tmp_path / "a", on_save=saved, on_validation=validated)
    assert [one if isinstance(one, int) else one[0] for one in told] == [1, 2, 2, 3, 4]
    assert "safe on disk: 3 updates" in caught.value.__notes__[0]
    assert read_manifest(tmp_path / "a")["status"] == "failed"

    whole = go(None, save_every=None)
    assert told[1] == (2, whole.evaluations[0][1].mean)
    later, (env, policy) = [], made(9)
    again = dz.rl.resume(
        tmp_path / "a",
        env,
        policy,
        PPO_,
        progress=False,
        save_every=0,
        on_save=lambda folder, updates: later.append(updates),
        on_validation=lambda evaluation, updates: later.append(evaluation.mean),
    )
    assert later == [whole.evaluations[1][1].mean, 4, 4]
    assert [row["step"] for row in read_metrics(tmp_path / "a")] == [1, 2, 3, 4]
    mine = policy.state_dict()
    assert all(torch.equal(tensor, mine[name]) for name, tensor in whole.policy.state_dict().items())
    assert again["learning_rate"] == whole["learning_rate"][3:]
    assert again["reward_scale"] == whole["reward_scale"][3:]


def test_what_would_never_be_called_is_told(tmp_path):
    for given, said in [
        ({"on_save": print, "folder": None, "save_every": None}, "on_save= without folder="),
        (
            {"on_save": lambda folder: None},
            r"on_save is <lambda>\(folder\), expected a function of \(folder, up",
        ),
        ({"on_validation": 3}, "on_validation=3, expected a function of"),
        (
            {"on_validation": print, "validate_every": None, "validation": None},
            "on_validation= without validate_ev",
        ),
    ]:
        with pytest.raises(dz.errors.InputError, match=said):
            go(**{"folder": tmp_path / "a", **given})
    assert not (tmp_path / "a").exists()
