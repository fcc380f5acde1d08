"""What a captured step compiles to on CUDA, counted on machines without a GPU: see without_gpu.py."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("without_gpu.py")

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def compiled(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


SLOW = [("seir", 1, 1), ("sir", 1, 1), ("covid-expected", 1, 1), ("seir", 3, 1), ("covid", 3, 2)]


@pytest.mark.parametrize(
    ("model", "replicates", "most"),
    [
        ("covid", 1, 1),  # which does what the others do, and more
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
def test_all_but_the_sums_is_one_kernel(model: str, replicates: int, most: int) -> None:
    counts = compiled(model, str(replicates))
    assert counts["launches"] <= most
    assert counts["unfused"] == []
    assert counts["padded"] == []  # which torch 2.11 may write in one layout and read in another
    assert counts["pairs"]
    assert not any(counts["pairs"].values())  # which the assembler of CUDA 12.8 gets wrong
