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


def launched(*cases):
    """What a step of each case launches, of one process."""
    command = [sys.executable, "-W", "ignore", str(SCRIPT), *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()[-len(cases) :]]


def test_a_step_is_two_launches_of_cartpole_and_seven_of_foraging():
    """Of foraging: looks unpacked, convolutions, features and actor (two), actions, the worlds, and the books."""
    few, many, foraging = launched("cartpole:64", "cartpole:4096", "foraging:192")
    for found, count in ((few, 64), (many, 4096)):
        assert found == {"kernels": [count], "others": ["denizen.mlp.default"], "rows": 2}
    others = ["denizen.conv.default", "denizen.two_layers.default", "denizen.foraging_step.default"]
    assert foraging["others"] == others
    assert len(foraging["kernels"]) == 3
