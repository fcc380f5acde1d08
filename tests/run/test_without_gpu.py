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


def compiled(*cases: str) -> dict[str, dict[str, Any]]:
    """What each case compiles to, of one process."""
    command = [sys.executable, "-W", "ignore", str(SCRIPT), *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(cases, map(json.loads, done.stdout.splitlines()[-len(cases) :]), strict=True))


@pytest.mark.slow  # in the default run tests/run/test_capture_internals.py holds that a step is one graph
def test_all_but_the_sums_is_one_kernel() -> None:
    most = {"covid:1": 1, "seir:1": 1, "sir:1": 1, "covid-expected:1": 1, "seir:3": 1, "covid:3": 2}
    for case, counts in compiled(*most).items():
        assert counts["launches"] <= most[case], case
        assert counts["unfused"] == [], case
        assert counts["padded"] == [], case  # which torch 2.11 may write in one layout and read in another
        assert counts["pairs"], case
        assert not any(counts["pairs"].values()), case  # which the assembler of CUDA 12.8 gets wrong
