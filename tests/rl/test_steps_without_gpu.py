"""What a step of a rollout launches on CUDA, counted on machines without a GPU: see steps_without_gpu.py."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("steps_without_gpu.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
]


def launched(world, count):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), world, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("count", [64, 4096])
def test_a_step_of_cartpole_is_two_launches(count):
    assert launched("cartpole", count) == {"kernels": [count], "others": ["denizen.mlp.default"], "rows": 2}


def test_a_step_of_foraging_is_seven_launches():
    """Looks unpacked, convolutions, features and actor (two), actions, the worlds, and the books."""
    found = launched("foraging", 192)
    others = ["denizen.conv.default", "denizen.two_layers.default", "denizen.foraging_step.default"]
    assert found["others"] == others
    assert len(found["kernels"]) == 3
