"""Strict, repeatable surroundings for every test: one thread, fixed seeds, no display, data found or skipped."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported
os.environ.setdefault("MPLBACKEND", "Agg")

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# Compilation and a loaded machine make single examples slow without being wrong, hence no deadline.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

REPOSITORY = Path(__file__).resolve().parents[1]
DATA_VARIABLE = "DENIZEN_DATA_ROOT"


def find_data_root() -> tuple[Path | None, str]:
    """The folder of public data files, or None and the reason to skip."""
    named = os.environ.get(DATA_VARIABLE)
    root = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if root.is_dir():
        return root, ""
    return None, f"no real data: {root} is absent (set {DATA_VARIABLE} to a folder with astoria/, sample/, nyc/)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    root, reason = find_data_root()
    for item in items:
        if root is None and item.get_closest_marker("real"):
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same global seeds before each test, for tests that draw their inputs without naming a generator."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - it is the global generator that has to be fixed
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the public data files (astoria/, sample/, nyc/); skips the test where it is absent."""
    root, reason = find_data_root()
    if root is None:
        pytest.skip(reason)
    return root
