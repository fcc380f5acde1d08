"""A step of foraging worlds as one operation against the plain form: equal bits of everything, step after step."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.studies.foraging.evaluate import forage
from denizen.zoo.foraging import MODES, Foraging, Mode, TrueTypes, foraging
from denizen.zoo.foraging.agents import OmniscientSeeker

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TINY = {"height": 12, "width": 64, "food_range": (30, 60), "poison_range": (20, 50), "view_radius": 2, "steps": 9}
NAMES = ("reward", "terminated", "truncated", "valid", "flows", "observed", "final", "final_index")


def tensors_of(step):
    for name in NAMES:
        value = getattr(step, name)
        parts = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, tuple) else [value])
        yield from ((f"{name} {key}", part) for key, part in parts if part is not None)


def compared(env, worlds, steps, device, *, bad_action=False):
    """Runs both forms from one state and compares them after every step; returns how many lives ended and waited."""
    assert worlds._fast is not None
    worlds.reset()
    plain, fast = worlds.run_state.tensors(), worlds.run_state.clone().tensors()
    generator = torch.Generator(device).manual_seed(3)
    ended = 0
    for number in range(steps):
        actions = torch.randint(0, env.action_space.n, (worlds.num_envs,), generator=generator, device=device)
        if bad_action and number == 3:
            actions[1], actions[2] = env.action_space.n, -4
        run_state, wanted = worlds.advance(worlds.run_state_of(plain), actions)
        plain = run_state.tensors()
        fast, got = worlds.next_in_place(fast, actions)
        for (name, a), (_, b) in zip(tensors_of(wanted), tensors_of(got), strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b), (number, name, (a != b).nonzero()[:3])
        for place, (a, b) in enumerate(zip(plain, fast, strict=True)):
            assert torch.equal(a, b), (number, f"tensor {place} of the run state", (a != b).nonzero()[:3])
        ended += int(wanted.ended.sum())
    return ended, int(run_state.waited.sum())


@pytest.fixture
def triton(inside):
    """Triton's kernels in the interpreter, for tensors of the CPU."""
    if not INTERPRETED:
        pytest.skip("needs Triton's interpreter")
    inside.triton_of("foraging")


@pytest.mark.parametrize("lifetime", ["persist", "life"])
@pytest.mark.parametrize("mode", MODES)
def test_equal_bits(triton, mode, lifetime):
    env = foraging(mode, grid_lifetime=lifetime, **TINY)
    ended, waited = compared(env, dz.rl.Worlds(env, 11, max_resets=2, device="cpu"), 25, "cpu")
    assert ended > 10
    assert waited > 0


@pytest.mark.parametrize("lifetime", ["persist", "life"])
@pytest.mark.parametrize(("count", "most"), [(20, 20), (20, 3), (1, 1)])
@pytest.mark.parametrize("few", [0, 99])
def test_equal_bits_by_several_programs(triton, inside, lifetime, count, most, few):
    inside.few_foragers(few)
    env = foraging("ground_truth_handhold", grid_lifetime=lifetime, **TINY)
    ended, _ = compared(env, dz.rl.Worlds(env, count, max_resets=most, device="cpu"), 12, "cpu")
    assert ended > 0


@pytest.mark.parametrize(
    ("few", "count", "most", "lifetime"),
    [
        (0, 20, 20, "persist"),
        (0, 20, 3, "persist"),
        (0, 1, 1, "life"),
        # Each world is a program there, so that fewer do.
        (99, 4, 4, "persist"),
        (99, 4, 2, "persist"),
        (99, 1, 1, "life"),
    ],
)
def test_equal_bits_in_short(triton, inside, few, count, most, lifetime):
    """Lives of three steps: as many begin anew as in longer ones."""
    inside.few_foragers(few)
    env = foraging("ground_truth_handhold", grid_lifetime=lifetime, **{**TINY, "steps": 3})
    ended, _ = compared(env, dz.rl.Worlds(env, count, max_resets=most, device="cpu"), 5, "cpu")
    assert ended > 0


@pytest.mark.parametrize("options", [{"max_move": 2, "view_radius": 7}, {"height": 2, "width": 32, "steps": None}])
def test_equal_bits_of_other_sizes(triton, options):
    env = foraging(**{**TINY, "food_range": (9, 9), "poison_range": (0, 12), **options})
    compared(env, dz.rl.Worlds(env, 5, device="cpu"), 30, "cpu")


def test_bad_actions_are_told(triton):
    env = foraging(**TINY)
    worlds = dz.rl.Worlds(env, 5, device="cpu")
    compared(env, worlds, 6, "cpu", bad_action=True)
    worlds.run_state, _ = worlds.begin()
    tensors, _ = worlds.next_in_place(worlds.run_state.tensors(), torch.tensor([0, 2**32, 1, 2, 3]))
    assert worlds.run_state_of(tensors).faults.tolist() == [-1, 0, -1, -1, -1]


COUNTED = ("food", "poison", "deaths", "steps", "died", "censored", "first_age", "first_died", "shares", "fed")


@pytest.mark.parametrize(
    "options",
    [
        {"width": 48},
        {"height": 1025},
        {"mode": Mode("own", TrueTypes(), lambda outcome: outcome.food * 1.0)},
        {"food_share": 0.5},
        {"grid_lifetime": "life", "height": 8, "width": 32, "food_range": (50, 60), "poison_range": (0, 9)},
    ],
)
def test_what_the_operation_cannot_do_is_left_to_the_plain_form(inside, options):
    inside.triton_of("foraging")
    assert Foraging().in_place(torch.device("cpu"), 1) is not None
    assert Foraging(**options).in_place(torch.device("cpu"), 1) is None
    assert type("Own", (Foraging,), {})().in_place(torch.device("cpu"), 1) is None


def both_evaluations(monkeypatch, device, worlds, budget, **options):
    """An agent's evaluation by the fast form and by the plain one."""
    env = foraging(**options)
    fast = forage(env, OmniscientSeeker(env), num_envs=worlds, steps=budget, device=device)
    monkeypatch.setattr(Foraging, "in_place", dz.Env.in_place)
    return fast, forage(env, OmniscientSeeker(env), num_envs=worlds, steps=budget, device=device)


@pytest.mark.parametrize("lifetime", ["persist", "life"])
def test_evaluations_count_the_same(triton, monkeypatch, lifetime):
    fast, plain = both_evaluations(monkeypatch, "cpu", 6, 30, grid_lifetime=lifetime, **TINY)
    for name in COUNTED:
        assert (getattr(fast, name) == getattr(plain, name)).all(), name
    assert fast.food.sum() > 0


def both_rollouts(device, backend, rounds, **options):
    """Rollouts by the fast form and by the plain one, compared after each; the worlds' buffers stay where they are."""
    made, algorithm = [], dz.PPO(num_envs=7, num_steps=4, num_minibatches=1, max_resets=2)
    for fast in (True, False):
        env = foraging("ground_truth_handhold", **options)
        with pytest.MonkeyPatch.context() as patched:
            if not fast:
                patched.setattr(Foraging, "in_place", dz.Env.in_place)  # has none
            training = algorithm.init(env, dz.rl.mlp(env, hidden=(8,)), total_steps=28, seed=3, device=device)
        assert training.worlds.in_place == fast
        if fast and backend is not None:
            training.rollout.compile(backend)
        made.append(training.rollout)
    places = [tensor.data_ptr() for tensor in made[0].state.tensors()]
    for _ in range(rounds):
        for rollout in made:
            rollout.collect()
        fast, plain = made
        for name in fast.fields:
            assert torch.equal(fast.fields[name], plain.fields[name]), name
        for a, b in zip(fast.state.tensors(), plain.state.tensors(), strict=True):
            assert torch.equal(a, b)
        assert torch.equal(fast.lives, plain.lives)
        assert torch.equal(fast.flows, plain.flows)
    assert places == [tensor.data_ptr() for tensor in made[0].state.tensors()]


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_rollouts_hold_the_same(triton, backend):
    both_rollouts("cpu", backend, 4, **TINY)


def interpret(expression):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:logging", __file__]
    command += ["-o", "addopts=", "-m", "not cuda", "-k", expression, "-W", "ignore::RuntimeWarning"]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


missing = pytest.mark.skipif(
    INTERPRETED or importlib.util.find_spec("triton") is None, reason="triton is not installed, or interprets already"
)


@missing
@pytest.mark.slow
def test_by_the_interpreter():
    """What the default run leaves out: there tests/ops/test_interpreter.py runs others."""
    interpret("in_short and (20-20 or 4-4 or 99-1-1) or bad_actions")


@missing
@pytest.mark.long
def test_by_the_interpreter_at_length():
    interpret("not interpreter")


@missing
@pytest.mark.slow
def test_kernels_compile():
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("compile_foraging.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["_few_kernel", "_life_kernel", "_step_kernel"]


@pytest.mark.cuda
@pytest.mark.parametrize("lifetime", ["persist", "life"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("count", "most"), [(192, None), (192, 192), (192, 2), (3000, 20), (5000, 5000)])
def test_equal_bits_on_cuda(mode, lifetime, count, most):
    env = foraging(mode, grid_lifetime=lifetime, steps=70)
    ended, waited = compared(env, dz.rl.Worlds(env, count, max_resets=most, device="cuda"), 200, "cuda")
    assert ended > 100
    assert waited > 0 or most not in (2, 20)
    assert waited == 0 or most != count


@pytest.mark.cuda
@pytest.mark.parametrize("few", [0, 999])
def test_equal_bits_of_whole_lives_on_cuda(inside, few):
    inside.few_foragers(few)
    env = foraging()
    ended, _ = compared(env, dz.rl.Worlds(env, 192, max_resets=192, device="cuda"), 700, "cuda")
    assert ended > 1000


@pytest.mark.cuda
@pytest.mark.parametrize("lifetime", ["persist", "life"])
def test_evaluations_count_the_same_on_cuda(monkeypatch, lifetime):
    fast, plain = both_evaluations(monkeypatch, "cuda", 100, 150, grid_lifetime=lifetime)
    for name in COUNTED:
        assert (getattr(fast, name) == getattr(plain, name)).all(), name
    assert fast.food.sum() > 0


@pytest.mark.cuda
def test_rollouts_hold_the_same_on_cuda():
    both_rollouts("cuda", None, 30, steps=20)


@pytest.mark.cuda
@pytest.mark.parametrize("lifetime", ["persist", "life"])
def test_training_in_place_captured(lifetime):
    env = foraging("ground_truth_handhold", grid_lifetime=lifetime, steps=20)
    training = dz.rl.PPO(num_envs=192, num_steps=16).init(env, dz.rl.mlp(env), total_steps=10**6, device="cuda")
    iteration = dz.rl.Updates(training, compile=True)
    iteration.warm_up()
    run_state, before = training.rollout.state.worlds, training.rollout.state.worlds.clone()
    items = [before.leaves[place].clone() for place in (2, 3)]
    for _ in range(20):
        iteration()
    assert iteration.path == "captured"
    assert int(run_state.clock) == int(before.clock) + 320
    observed = training.worlds._see(run_state.leaves, run_state.age, {})
    assert torch.equal(observed.observation, training.rollout.state.observed.observation)
    planes, taken, foods, poisons = run_state.leaves[:4]
    bits = ((planes[..., None] >> torch.arange(32, device="cuda")) & 1).sum((2, 3, 4))
    assert torch.equal(bits, torch.stack([foods, poisons], 1))
    assert torch.equal(taken.sum(1), foods + poisons)
    assert all(torch.equal(a, b) for a, b in zip(items, (foods, poisons), strict=True)) == (lifetime == "persist")
