"""Tests of ops: which way sums go and how many threads work; `tools` is of `kernel_tools`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from denizen import ops
from inside import Inside

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_tools import HOST, INTERPRETED, _triton_on_the_cpu, tools

__all__ = ["_triton_on_the_cpu", "tools"]

NONE = SimpleNamespace(params={})  # of tests without parameters


@pytest.fixture(params=["auto", "push", "pull"])
def direction(request: pytest.FixtureRequest, device: torch.device, inside: Inside) -> Iterator[str]:
    """Runs a test as it comes, pushing always and pulling always."""
    if request.param == "auto":
        yield "auto"
    elif device != HOST or INTERPRETED:
        with ops.direction(request.param):
            yield request.param
    else:
        at = {"push": float("inf"), "pull": -1.0}[request.param]
        inside.push_up_to(at)
        yield request.param


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Threads are the CPU's: tests of two are none of a GPU's, nor of the interpreter's."""

    def elsewhere(params: dict[str, Any]) -> bool:
        return params.get("threads") == 2 and (INTERPRETED or params.get("device") == "cuda")

    items[:] = [item for item in items if not elsewhere(getattr(item, "callspec", NONE).params)]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, device: torch.device, inside: Inside) -> Iterator[int]:
    """One and two threads, with the work split at once instead of from 200,000 elements on."""
    if device != HOST or INTERPRETED:
        yield 1
        return
    inside.threads_from(1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
