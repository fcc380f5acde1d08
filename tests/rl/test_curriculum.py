"""Parameters of worlds that change as a training goes on: by progress or by what was reached, saved and resumed."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.fruits import fruits
from denizen.zoo.probes import Endless
from trainings import TIMES, interrupt_after, read_metrics

SETTINGS = dz.PPO(num_envs=4, num_steps=10)
STEPS = 8 * SETTINGS.samples
RISING = {"pay": dz.rl.Linear(2.0, 4.0, until=0.5)}
EARNED = {"spawn_prob": dz.rl.Earned(0.1, 0.7, score=-100.0, stages=3, lives=8)}


def go(env, params, algorithm=SETTINGS, steps=STEPS, **more):
    policy = dz.rl.mlp(env, (8,))
    return dz.train(env, policy, algorithm, steps, device="cpu", params=params, progress=False, **more)


def untimed(folder):
    return str([{name: value for name, value in row.items() if name not in TIMES} for row in read_metrics(folder)])


@pytest.mark.parametrize(
    ("algorithm", "compile"),
    [
        pytest.param(SETTINGS, False, id="ppo"),
        pytest.param(SETTINGS, True, id="ppo, compiled", marks=pytest.mark.compile),
        pytest.param(dz.GRPO(groups=2, group_size=2, max_steps=5), False, id="grpo"),
        pytest.param(
            dz.GRPO(groups=2, group_size=2, max_steps=5),
            True,
            id="grpo, compiled",
            marks=[pytest.mark.compile, pytest.mark.slow],
        ),
    ],
)
def test_a_schedule_is_what_the_worlds_run_under(algorithm, compile):
    trained = go(Endless(), RISING, algorithm, 8 * algorithm.samples, compile=compile)
    assert trained.path == ("compiled" if compile else "eager")
    wanted = [2.0, 2.5, 3.0, 3.5, 4.0, 4.0, 4.0, 4.0]
    assert trained["param_pay"] == wanted
    assert trained["reward_mean"] == wanted


@pytest.mark.cuda
@pytest.mark.parametrize("algorithm", [SETTINGS, dz.GRPO(groups=2, group_size=2, max_steps=5)], ids=["ppo", "grpo"])
def test_a_captured_graph_sees_what_changes(algorithm):
    env, more = Endless(), {"device": "cuda", "progress": False}
    for params, wanted in (
        (RISING, [2.0, 2.5, 3.0, 3.5, 4.0, 4.0, 4.0, 4.0]),
        ({"pay": dz.rl.Earned(1.0, 2.0, score=5.0, stages=2, lives=1)}, [1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]),
    ):
        trained = dz.train(env, dz.rl.mlp(env, (8,)), algorithm, 8 * algorithm.samples, params=params, **more)
        assert trained.path == "captured"
        assert trained["param_pay"] == wanted
        assert trained["reward_mean"] == wanted


def test_values_that_do_not_change_are_those_of_plain_parameters():
    constant = go(fruits(), {"spawn_prob": dz.rl.Linear(0.25, 0.25)})
    plain = go(fruits(), {"spawn_prob": [0.25] * 4})
    other = go(fruits(), {"spawn_prob": [0.5] * 4})
    weights = [one.policy.actor.weight for one in (constant, plain, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_stages_are_earned_by_means_of_lives_and_never_lost():
    earned, held = dz.rl.Earned(1.0, 3.0, score=10.0, stages=2, lives=4), torch.zeros(3)
    values = []
    for lives, mean in ((3, 20.0), (1, 20.0), (4, 9.9), (0, 0.0), (5, 10.0), (9, -5.0), (9, 50.0)):
        held = earned.after(held, torch.tensor(float(lives)), torch.tensor(lives * mean))
        values.append(earned.at(held[0]).item())
    assert values == [1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0]


def test_a_stage_that_is_out_of_reach_is_never_left():
    assert set(go(Endless(), {"pay": dz.rl.Earned(1.0, 2.0, score=5.1, lives=1)})["param_pay"]) == {1.0}
    assert go(Endless(), {"pay": dz.rl.Earned(1.0, 2.0, score=5.0, stages=2, lives=1)})["param_pay"][:4] == [
        1,
        1.5,
        2,
        2,
    ]


def test_a_resumed_curriculum_equals_the_uninterrupted_one(tmp_path, monkeypatch):
    env, algorithm, steps = fruits(max_steps=10), dz.PPO(num_envs=4, num_steps=10), 400
    go(env, EARNED, algorithm, steps, folder=tmp_path / "whole")
    with monkeypatch.context() as patched:
        interrupt_after(5, patched)  # in the middle of a stage
        with pytest.raises(KeyboardInterrupt):
            go(env, EARNED, algorithm, steps, folder=tmp_path / "part")
    policy, other = dz.rl.mlp(env, (8,), seed=3), {"spawn_prob": dataclasses.replace(EARNED["spawn_prob"], end=0.9)}
    with pytest.raises(InputError, match=r"the params differs .* spawn_prob: Earned\(.* then, .*0.9.* now"):
        dz.rl.resume(tmp_path / "part", env, policy, algorithm, params=other, progress=False)
    dz.rl.resume(tmp_path / "part", env, policy, algorithm, params=EARNED, progress=False)
    assert untimed(tmp_path / "part") == untimed(tmp_path / "whole")
    values = [row["param_spawn_prob"] for row in read_metrics(tmp_path / "whole")]
    assert [values.count(value) for value in sorted(set(values))] == [2, 2, 2, 4]


def test_several_seeds_at_once_earn_their_own():
    env = fruits(max_steps=10)
    more = {"device": "cpu", "params": EARNED, "progress": False}
    several = dz.rl.train_seeds(
        env, lambda seed: dz.rl.mlp(env, (8,), seed=seed), SETTINGS, STEPS, seeds=(0, 5), **more
    )
    for seed, mine in zip((0, 5), several, strict=True):
        lone = dz.train(env, dz.rl.mlp(env, (8,), seed=seed), SETTINGS, STEPS, seed=seed, **more)
        assert torch.equal(mine.policy.actor.weight, lone.policy.actor.weight)
        assert mine["param_spawn_prob"] == lone["param_spawn_prob"]


@pytest.mark.slow
def test_two_processes_earn_what_one_does(tmp_path):
    script = Path(__file__).with_name("programs") / "earned_in_processes.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    for words in (["one"], [str(Path(__file__).parents[1] / "ranks.py"), "two"]):
        call = [sys.executable, *words[:-1], str(script), words[-1]]
        subprocess.run(call, cwd=tmp_path, env=environment, check=True, capture_output=True)
    rows = [read_metrics(tmp_path / name) for name in ("one", "two")]
    assert len(rows[0]) == 8
    assert len({row["param_spawn_prob"] for row in rows[0]}) == 4
    for mine, theirs in zip(*rows, strict=True):
        for name in ("param_spawn_prob", "episodes", "return_mean"):
            assert mine[name] == theirs[name], name


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"pays": dz.rl.Linear(0, 1)}, "params has 'pays', which Endless has not; did you mean 'pay'"),
        ({"pay": dz.rl.Linear(0, 1), "limit": [5] * 4}, "params has 'limit'"),
    ],
)
def test_parameters_that_there_are_not_are_named(params, told):
    with pytest.raises(InputError, match=told):
        go(Endless(), params)


def test_values_that_are_no_numbers_are_named():
    for use in (
        lambda value: dz.rl.Worlds(Endless(), 4, params={"pay": value}, device="cpu"),
        lambda value: go(Endless(), {"pay": value}),
        lambda value: go(Endless(), {"pay": value}, dz.GRPO(groups=4, group_size=2, max_steps=5)),
    ):
        with pytest.raises(InputError, match=r"params\['pay'\] = 'much': expected numbers, one for each world"):
            use("much")
    with pytest.raises(InputError, match=r"params=\['pay'\]: expected values by name"):
        go(Endless(), ["pay"])
    with pytest.raises(InputError, match="a schedule is for dz"):
        dz.rl.Worlds(Endless(), 4, params=RISING, device="cpu")


def test_values_out_of_bounds_are_named():
    for algorithm in (SETTINGS, dz.GRPO(groups=2, group_size=2, max_steps=5)):
        with pytest.raises(InputError, match=r"params\['spawn_prob'\] = Linear\(.*: value = 1.5: expected 0 to 1"):
            go(fruits(), {"spawn_prob": dz.rl.Linear(0.5, 1.5)}, algorithm)


@pytest.mark.parametrize(
    "settings",
    [{"start": None}, {"end": float("inf")}, {"score": "high"}, {"stages": 0}, {"stages": 2.0}, {"lives": True}],
)
def test_wrong_settings_are_named(settings):
    ((name, value),) = settings.items()
    with pytest.raises(InputError, match=rf"Earned: {name}={value!r}, expected a"):
        dz.rl.Earned(**{"start": 0.0, "end": 1.0, "score": 1.0, **settings})
