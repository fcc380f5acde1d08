"""A village of five agents in the folder form, and a way to hide optional packages."""

import importlib.util
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five agents: pickled age, stages with a header, one network, labels."""
    root = tmp_path / "village"
    (root / "mobility_networks").mkdir(parents=True)
    (root / "age.pickle").write_bytes(pickle.dumps(np.array([0, 1, 2, 0, 1])))
    (root / "disease_stages.csv").write_text("stages\n" + "0.0e+00\n" * 4 + "1.0e+00\n")
    (root / "mobility_networks" / "0.csv").write_text("0,1\n1,2\n3,3\n")
    (root / "mapping.json").write_text(json.dumps({"age": ["U19", "20t29", "65A"]}))
    return root


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that makes optional packages look as if they were not installed."""
    found = importlib.util.find_spec

    def hidden(*names: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *rest: None if name in names else found(name, *rest)
        )
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hidden
