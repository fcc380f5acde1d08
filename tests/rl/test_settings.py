"""Arguments of the algorithms: the names that everybody knows, and what is said of others."""

import dataclasses
import json

import pytest

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
