"""Launches of a rollout step of GRPO on CUDA, counted without a GPU."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_rollout_step_is_ten_launches():
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("grpo_without_gpu.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["products"]) == 3
    assert told["operations"] == ["denizen.fruits_step"], "draws are part of other kernels"
    # Observations in bfloat16, LayerNorm with GELU, GELU, sampling, books, flows.
    assert told["kernels"] <= 6
