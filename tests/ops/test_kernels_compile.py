"""Every Triton kernel compiles for an H100: see compile_kernels.py."""

import importlib
import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from denizen import ops
from denizen.nn import kernels


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_every_kernel_compiles() -> None:
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("compile_kernels.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {
        name
        for package in (ops, kernels)
        for module in pkgutil.iter_modules(package.__path__)
        if module.name.startswith("_cuda")
        for name in vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        if name.endswith("_kernel")
    }
    assert set(json.loads(done.stdout.splitlines()[-1])) == expected | {"pairs"}  # written for a function
