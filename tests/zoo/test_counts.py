"""A step of every world of the zoo reads nothing on the host and moves nothing; captured, it allocates nothing.

Models that are simulated are counted in tests/run/test_stats.py. What a step launches is printed on a GPU and asserted
to be few; `benchmarks/launches_gpu.py` counts the same for the documentation.
"""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import denizen as dz

WORLDS = dz.zoo.entries(dz.zoo.WorldEntry)
SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/launches_gpu.py"))
MOST = 40  # launches of a step, resets included
SMALL: dict[str, dict[str, Any]] = {
    "foraging": {"height": 16, "width": 16, "food_range": (4, 6), "poison_range": (4, 6)},
    "control": {"size": 1000},
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_step_of_worlds_reads_nothing_and_moves_nothing(name: str) -> None:
    guard = dz.budget(host_reads=0, transfers=0)
    env = WORLDS[name].build(**SMALL.get(name, {}))
    actions = SCRIPT["actions"](env, 6, "cpu", 5)
    host = dz.rl.Worlds(env, 6, seed=2, device="cpu")
    host.reset()
    worlds = dz.rl.Worlds(env, 6, seed=2, device=guard.device)
    worlds.reset()
    assert worlds.run_state is not None
    assert host.run_state is not None
    run_state, there = worlds.run_state, host.run_state
    given = [pytree.tree_map(lambda part: part.to(guard.device), action) for action in actions]
    run_state, _ = worlds.advance(run_state, given[0])  # which records the step
    with guard:
        for action in given[1:]:
            run_state, step = worlds.advance(run_state, action)
    assert guard.report.ops > 4
    for action in actions:
        there, seen = host.advance(there, action)
    assert torch.equal(step.reward.cpu(), seen.reward)
    looks = [pytree.tree_leaves(each.observed.observation) for each in (step, seen)]
    assert all(torch.equal(one.cpu(), other) for one, other in zip(*looks, strict=True))


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_captured_steps_of_worlds(name: str) -> None:
    found = SCRIPT["counted"](name)
    print(name, found)
    assert found["graphs"] <= 1  # none for a world with a form of its own
    assert found["launches"] <= (7 * MOST if name == "control" else MOST)  # whose step is a week
