"""Arguments of the algorithms: the names that everybody knows, and what is said of others."""

import dataclasses
import json

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.cartpole import CartPole

FORMER = {
    "epochs": "update_epochs",
    "minibatches": "num_minibatches",
    "clip": "clip_coef",
    "value_coefficient": "vf_coef",
    "entropy_coefficient": "ent_coef",
    "max_gradient_norm": "max_grad_norm",
}
GRPO_HAS_NONE = ("value_coefficient",)


@pytest.mark.parametrize("cls", [dz.PPO, dz.GRPO])
@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_is_told_with_the_present_one(cls, name):
    if cls is dz.GRPO and name in GRPO_HAS_NONE:
        expected = f"GRPO: {name}=0.2: unknown; "
    else:
        expected = f"{cls.__name__}: {name}=0.2: renamed; write {FORMER[name]}=0.2"
    with pytest.raises(InputError) as caught:
        cls(**{name: 0.2})
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("cls", [dz.PPO, dz.GRPO])
def test_an_unknown_name_is_told_with_the_nearest(cls):
    with pytest.raises(InputError, match=r"clip_coeff=0.1: unknown; did you mean 'clip_coef'\?"):
        cls(clip_coeff=0.1)
    with pytest.raises(InputError, match=r"clip=0.1: renamed; write clip_coef"):
        dataclasses.replace(cls(), clip=0.1)


def test_every_present_name_is_an_argument():
    assert set(FORMER.values()) <= {field.name for field in dataclasses.fields(dz.PPO)}
    assert not set(FORMER) & {field.name for field in dataclasses.fields(dz.PPO)}


def test_a_manifest_of_former_names_is_read_with_present_ones(tmp_path):
    def read(entries):
        kept = {"format": "denizen training 1", "updates": 0, **entries}
        (tmp_path / "manifest.json").write_text(json.dumps(kept))
        found = dz.rl.read_manifest(tmp_path)
        assert found.keys() == kept.keys()
        return {name: found[name] for name in entries}

    old = {
        "algorithm": "PPO(num_envs=4, epochs=4, minibatches=2, clip=0.2, value_clip=0.1, max_gradient_norm=0.5)",
        "settings": {"set": {"entropy_coefficient": "0.1:0", "value_clip": "none"}, "steps": "5k"},
    }
    assert read(old) == {
        "algorithm": "PPO(num_envs=4, update_epochs=4, num_minibatches=2, clip_coef=0.2, value_clip=0.1, "
        "max_grad_norm=0.5)",
        "settings": {"set": {"ent_coef": "0.1:0", "value_clip": "none"}, "steps": "5k"},
    }
    assert read({"settings": None}) == {"settings": None}


def test_a_folder_of_former_names_goes_on(tmp_path):
    env, algorithm, out = CartPole(), dz.PPO(num_envs=4, num_steps=8), tmp_path / "run"
    given = {"progress": False, "device": "cpu"}
    dz.train(env, dz.rl.mlp(env), algorithm, 64, folder=out, **given)
    file = out / "manifest.json"
    manifest = json.loads(file.read_text())
    for former, now in FORMER.items():
        assert f"{now}=" in manifest["algorithm"]
        manifest["algorithm"] = manifest["algorithm"].replace(f"{now}=", f"{former}=")
    file.write_text(json.dumps(manifest))
    assert dz.rl.resume(out, env, dz.rl.mlp(env), algorithm, progress=False).updates == 2
    other = dataclasses.replace(algorithm, clip_coef=0.3)
    with pytest.raises(InputError, match="algorithm differs"):
        dz.rl.resume(out, env, dz.rl.mlp(env), other, progress=False)


# --- a learning rate that follows the KL ------------------------------------------------------------------------------


def rate_of(learning_rate):
    """That of a training."""
    env = CartPole()
    algorithm = dz.PPO(num_envs=2, num_steps=2, num_minibatches=1, learning_rate=learning_rate)
    return algorithm.init(env, dz.rl.mlp(env, (2,)), total_steps=4, device="cpu").rate


def test_the_rate_follows_the_rule():
    rule = dz.rl.AdaptiveKL(target=0.01, start=1e-3, low=5e-4, high=2e-3)
    rate, go = rate_of(rule), torch.tensor(False)

    def told(kl, stopped=go):
        return rate.after(torch.tensor(kl), stopped).item()

    assert rate.at(torch.tensor(0.5)).item() == pytest.approx(1e-3)
    assert told(0.0201) == pytest.approx(1e-3 / 1.5)
    assert told(float("inf")) == pytest.approx(5e-4), "not below the lowest"
    assert [told(kl) for kl in (0.02, 0.005, float("nan"))] == pytest.approx([5e-4] * 3)
    assert [told(0.0049) for _ in range(4)] == pytest.approx([7.5e-4, 1.125e-3, 1.6875e-3, 2e-3])
    assert told(1.0, torch.tensor(True)) == pytest.approx(2e-3), "who has stopped judges nothing"
    assert rate.tensors()["learning_rate"].item() == pytest.approx(2e-3)
    assert rate_of(1e-3).tensors() == {}


def test_a_training_without_a_critic_follows_its_kl_and_resumes_with_its_rate(tmp_path):
    env, rule = CartPole(), dz.rl.AdaptiveKL(target=0.005, start=1e-5, high=0.1)
    algorithm = dz.GRPO(
        groups=2, group_size=4, max_steps=16, update_epochs=3, micro_batches=2, learning_rate=rule, loss="dapo"
    )

    def go(name, updates):
        policy = dz.rl.mlp(env, (8,))
        steps = updates * algorithm.samples
        told = dz.train(env, policy, algorithm, steps, folder=tmp_path / name, device="cpu", progress=False)
        return policy, told["learning_rate"]

    whole, rates = go("whole", 12)
    assert rates[0] > 1e-5, "nothing moves yet"
    assert max(rates) > 1e-4, "until it comes to where the KL is"
    part, first = go("part", 5)
    rest = dz.rl.resume(tmp_path / "part", env, part, algorithm, steps=7 * algorithm.samples, progress=False)
    assert first + rest["learning_rate"] == rates
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), part.parameters(), strict=True))


def test_rules_that_cannot_be_are_told():
    for wrong, said in [
        ({"target": 0}, "AdaptiveKL: target=0"),
        ({"factor": 1}, "AdaptiveKL: factor=1"),
        ({"low": 1e-2, "high": 1e-3}, "AdaptiveKL: high=0.001"),
        ({"start": 1.0}, "AdaptiveKL: start=1.0"),
    ]:
        with pytest.raises(InputError, match=said):
            dz.rl.AdaptiveKL(**wrong)
    with pytest.raises(InputError, match=r"PPO: clip_coef=AdaptiveKL\("):
        dz.PPO(clip_coef=dz.rl.AdaptiveKL())
    with pytest.raises(InputError, match="one step an update"):
        dz.GRPO(update_epochs=1, learning_rate=dz.rl.AdaptiveKL())


def test_the_command_line_writes_it_with_a_word(command_line, monkeypatch, tmp_path):
    begun, plain = [], dz.PPO.init
    monkeypatch.setattr(dz.PPO, "init", lambda ppo, *given, **more: begun.append(ppo) or plain(ppo, *given, **more))

    def written(number, text):
        words = (
            "num_envs=2",
            "num_steps=2",
            "num_minibatches=1",
            f"learning_rate={text}",
            "--device",
            "cpu",
            "--quiet",
        )
        begun.clear()
        told = command_line("train", "cartpole", "--steps", 4, "--out", tmp_path / str(number), "--set", *words)
        return told, [ppo.learning_rate for ppo in begun]

    assert written(0, "kl:0.02")[1] == [dz.rl.AdaptiveKL(0.02)]
    assert [rate.start for rate in written(1, "kl:0.02:1e-4")[1]] == [1e-4]
    assert written(2, "1e-3:0")[1] == [dz.rl.Linear(1e-3, 0.0)]
    (code, _, said), none = written(3, "kl")
    assert code
    assert "expected a number or START:END or kl:TARGET" in " ".join(said.split())
    assert not none
