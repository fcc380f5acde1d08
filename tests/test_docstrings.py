"""Examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import denizen

# Modules that need an optional device package at import.
NEEDS_GPU = {"denizen.ops._cuda_draws", "denizen.ops._cuda_neighbours"}
MODULES = [m.name for m in pkgutil.walk_packages(denizen.__path__, "denizen.") if m.name not in NEEDS_GPU]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    if ">>>" not in Path(module.__file__).read_text(encoding="utf-8"):
        return  # to look for examples takes longer than most of them
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).failed == 0
