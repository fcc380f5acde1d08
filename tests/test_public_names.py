"""The public surface is frozen here: a new name is a decision (design: at most 20), a lost one breaks a user."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import denizen as dz

PUBLIC = {"State", "Model", "Env", "Graph", "mask", "stage", "count", "real", "history", "param", "series"}
PUBLIC |= {"check", "simulate", "calibrate", "train", "PPO", "GRPO", "budget", "doctor", "__version__"}

# What models with kernels, checks or kinds of fields of their own take; the zoo, which is user code, stands on it.
DOORS = {
    "model": {
        "alive",
        "deaths",
        "in_order",
        "shuffle",
        "InPlace",
        "Advanced",
        "Kind",
        "whole",
        "number",
        "share",
        "one_of",
    },
    "nn": {"SocialBias", "EdgeBias"},
    "ops": {"variant", "register_mutating", "for_numba", "for_triton"},
    "rng": {"stream_number"},
    "run": {"choose_device", "CapturedFunction", "NotCapturedError", "StateFolder", "TorchSwitches"},
}

# Imported late, by the extra that needs them: `import denizen` must stay quick and work without them.
HEAVY = {"numba", "polars", "xarray", "zarr", "matplotlib", "scipy", "networkx", "pandas", "pyarrow", "torch._inductor"}
HEAVY |= {"cmaes", "optuna", "sqlalchemy", "sbi", "zuko", "sklearn", "SALib", "ray"}


def test_all_is_the_frozen_list():
    assert set(dz.__all__) == PUBLIC
    assert len(dz.__all__) == len(set(dz.__all__)) <= 20


def test_every_public_name_exists():
    missing = [name for name in dz.__all__ if not hasattr(dz, name)]
    assert not missing


def test_every_public_name_has_its_page():
    pages = "".join(page.read_text() for page in (Path(__file__).parents[1] / "docs" / "api").glob("*.md"))
    told = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", pages, re.MULTILINE)}
    learning = {
        name for name, value in vars(dz.rl).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert not (PUBLIC | learning).union(*DOORS.values()) - told - {"__version__"}
    modules = [(importlib.import_module(f"denizen.{name}"), names) for name, names in DOORS.items()]
    missing = [f"{module.__name__}.{name}" for module, names in modules for name in names if not hasattr(module, name)]
    assert not set(missing) - {"denizen.ops.for_numba", "denizen.ops.for_triton"}  # modules, which are imported late


def test_nothing_else_looks_public():
    """Namespaces (modules) aside, what has no underscore is listed."""
    found = {name for name, value in vars(dz).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    assert found <= set(dz.__all__)


def test_import_brings_nothing_heavy():
    code = "import sys, torch, numpy; before = set(sys.modules); import denizen; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & set(loaded)
