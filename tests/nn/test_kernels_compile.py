"""The kernels of the message steps compile for an H100: the interpreter accepts what the compiler does not."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_every_kernel_compiles():
    from denizen.nn.kernels import _cuda_message_kernels

    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("compile_kernels.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(json.loads(done.stdout.splitlines()[-1])) == {
        name for name in vars(_cuda_message_kernels) if name.endswith("_kernel")
    }
