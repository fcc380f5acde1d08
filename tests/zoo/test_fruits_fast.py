"""A step of fruit catchers as one operation against the plain form: equal bits of everything, step after step."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.zoo.fruits import Fruits, fruits, fruits_match, fruits_original

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
NAMES = ("reward", "terminated", "truncated", "valid", "flows", "observed", "final", "final_index")
OPTIONS = {
    "plain": {},
    "raw and clock": {"raw": True, "clock": True},
    "one slot": {"max_fruits": 1, "clock": True},
    "many slots": {"max_fruits": 6, "min_fruits": 3, "min_interval": 1, "sprite_width": 5, "height": 4},
    "small": {"width": 2, "height": 2, "sprite_width": 1, "spawn_prob": 1.0, "max_steps": 7},
    "thresholds": {"stop_at_thresholds": True, "win_score": 1, "fail_score": -2, "max_steps": None},
    "never": {"spawn_prob": 0.0, "min_fruits": 0},
}


def tensors_of(step):
    for name in NAMES:
        value = getattr(step, name)
        parts = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, tuple) else [value])
        yield from ((f"{name} {key}", part) for key, part in parts if part is not None)


def compared(env, count, steps, device, *, bad_action=False):
    """Runs both forms from one state and compares them after every step; returns how many lives ended."""
    worlds = dz.rl.Worlds(env, count, max_resets=0, seed=3, device=device)
    assert worlds.in_place
    worlds.reset()
    plain, fast = worlds.run_state.tensors(), worlds.run_state.clone().tensors()
    generator = torch.Generator(device).manual_seed(3)
    ended = 0
    for number in range(steps):
        actions = torch.randint(0, 3, (count,), generator=generator, device=device)
        if bad_action and number == 3:
            actions[1], actions[2] = 3, -4
        run_state, wanted = worlds.advance(worlds.run_state_of(plain), actions)
        plain = run_state.tensors()
        fast, got = worlds.next_in_place(fast, actions)
        for (name, a), (_, b) in zip(tensors_of(wanted), tensors_of(got), strict=True):
            assert a.dtype == b.dtype, name
            assert torch.equal(a, b), (number, name, (a != b).nonzero()[:3])
        for place, (a, b) in enumerate(zip(plain, fast, strict=True)):
            assert a.dtype == b.dtype
            assert torch.equal(a, b), (number, f"tensor {place} of the run state", (a != b).nonzero()[:3])
        ended += int(wanted.ended.sum())
    return ended


@pytest.fixture
def triton(inside):
    """Triton's kernels in the interpreter, for tensors of the CPU."""
    if not INTERPRETED:
        pytest.skip("needs Triton's interpreter")
    inside.triton_of("fruits")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equal_bits(options):
    ended = compared(fruits(**options), 600 if not options else 37, 40, "cpu")
    assert ended > 0 or options.get("max_steps", 100) == 100


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equal_bits_interpreted(triton, options):
    steps = 8 if "max_steps" in options else 5  # where lives end
    compared(fruits(**options), 33, steps, "cpu")


def test_bad_actions_are_told():
    compared(fruits(), 5, 6, "cpu", bad_action=True)


def test_bad_actions_are_told_interpreted(triton):
    compared(fruits(), 5, 6, "cpu", bad_action=True)


def test_what_the_operation_cannot_do_is_left_to_the_plain_form():
    cpu = torch.device("cpu")
    assert Fruits().in_place(cpu, 0) is not None
    assert fruits_match().in_place(cpu, 0) is not None
    assert Fruits().in_place(cpu, 1) is None
    assert fruits_original().in_place(cpu, 0) is None  # another reward
    assert type("Own", (Fruits,), {})().in_place(cpu, 0) is None
    assert not dz.rl.Worlds(fruits(), 2, max_resets=0, params={"spawn_prob": [0.1, 0.9]}, device="cpu").in_place
    with dz.ops.reference_only():
        assert Fruits().in_place(cpu, 0) is None


def both_trainings(device, compile, updates, **changes):
    """GRPO in worlds of both forms: the rollouts and the policies are the same."""
    algorithm = dz.GRPO(**{"groups": 3, "group_size": 4, "max_steps": 20, "update_epochs": 1, **changes})
    made = []
    for fast in (True, False):
        env = fruits(stop_at_thresholds=True, win_score=1, fail_score=-2)
        held = algorithm.init(env, dz.rl.mlp(env, (8,), shared=True), total_steps=10**4, device=device)
        assert held.worlds.in_place
        if not fast:
            held.worlds._fast = None
            held.rollout._step._in_place = False
        iteration = dz.rl.Updates(held, compile=compile and fast)
        iteration.warm_up()
        for _ in range(updates):
            iteration()
        made.append((held, iteration.path))
    (fast, path), (plain, _) = made
    for name, field in fast.rollout.fields.items():
        torch.testing.assert_close(field, plain.rollout.fields[name], rtol=0, atol=1e-5)
    for a, b in zip(fast.rollout.state.tensors(), plain.rollout.state.tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    torch.testing.assert_close(fast.rollout.flows, plain.rollout.flows)
    return path


@pytest.mark.parametrize("shared", [True, False])
def test_trainings_are_the_same(shared):
    assert both_trainings("cpu", False, 3, shared_stream=shared) == "eager"


@pytest.mark.slow
def test_trainings_are_the_same_compiled():
    assert both_trainings("cpu", True, 2) == "compiled"


missing = pytest.mark.skipif(
    INTERPRETED or importlib.util.find_spec("triton") is None, reason="triton is not installed, or interprets already"
)


@missing
@pytest.mark.slow
def test_kernels_compile():
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("compile_fruits.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["_step_kernel"]


@pytest.mark.cuda
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equal_bits_on_cuda(options):
    compared(fruits(**options), 544, 150, "cuda")


@pytest.mark.cuda
def test_captured_trainings_are_the_same_on_cuda():
    assert both_trainings("cuda", True, 5) == "captured"
