"""SAC, TD3 and DQN learn what each probe is about: values within 0.05 of their size, and the better action."""

import json

import pytest
import torch

import denizen as dz
from denizen.zoo.probes import Action, Both, Continuous, Delayed, Endless, Mortal

GAMMA = 0.8
SETTINGS = {
    "num_envs": 32,
    "num_steps": 1,
    "gradient_steps": 4,
    "batch_size": 64,
    "buffer_size": 4096,
    "learning_starts": 128,
    "gamma": GAMMA,
    "learning_rate": dz.rl.Linear(1e-2, 1e-3),
}


def looks(env):
    """Observations of the first steps of some lives."""
    worlds = dz.rl.Worlds(env, 64, device="cpu", seed=9)
    seen, space = [worlds.reset().observation], env.action_space
    for _ in range(6):
        action = torch.zeros(64, *space.shape, dtype=space.dtype)
        seen.append(worlds.step(action).observed.observation)
    return torch.cat(seen)


def learned(policy, algorithm, updates=160):
    return dz.train(policy.env, policy, algorithm, 32 * updates, device="cpu", progress=False).policy


@pytest.mark.parametrize(
    ("env", "n_steps"),
    [
        (Endless(), 3),
        *[pytest.param(env, n, marks=pytest.mark.slow) for env in (Delayed(), Mortal()) for n in (2, 3)],
        *[pytest.param(env, 1, marks=pytest.mark.slow) for env in (Delayed(), Endless(), Mortal(), Action(), Both())],
    ],
    ids=lambda given: str(given) if isinstance(given, int) else type(given).__name__,
)
def test_values_of_choices_become_those_of_the_probe(env, n_steps):
    algorithm = dz.rl.DQN(**SETTINGS, n_steps=n_steps, target_every=8, huber=None)
    policy, seen = learned(dz.rl.q_mlp(env, (32,)), algorithm), looks(env)
    with torch.no_grad():
        values = policy.values(seen)
    expected = env.value(seen, GAMMA)
    torch.testing.assert_close(values.amax(1), expected, rtol=0.03, atol=0.05)
    if isinstance(env, Action | Both):
        right = seen[:, 0] > 0 if isinstance(env, Both) else torch.ones(len(seen))
        assert torch.equal(values.argmax(1), right.to(torch.int64))


@pytest.mark.parametrize("kind", ["sac", pytest.param("td3", marks=pytest.mark.slow)])
def test_actions_become_what_the_probe_asks_for(kind):
    env = Continuous()
    if kind == "sac":
        policy, algorithm = dz.rl.soft_mlp(env, (32,)), dz.rl.SAC(**SETTINGS, target_entropy=-3.0, temperature=0.1)
    else:
        policy, algorithm = dz.rl.deterministic_mlp(env, (32,)), dz.rl.TD3(**SETTINGS)
    policy = learned(policy, algorithm, 200)
    seen = torch.linspace(-0.9, 0.9, 7)[:, None]
    with torch.no_grad():
        action = policy.act(seen).mode()
    assert (action.flatten() - seen.flatten()).abs().max() < 0.1


@pytest.mark.long
def test_held_noise_gets_the_car_out_of_its_valley(prepared, tmp_path):
    folder, told = tmp_path / "run", tmp_path / "told.json"
    prepared("train", "mountaincar_continuous", "--algo", "sac", "--device", "cpu", "--quiet", "--out", folder)
    prepared("evaluate", folder, "--worlds", 64, "--greedy", "--quiet", "--json", told)
    assert json.loads(told.read_text())[0]["mean"] > 90
