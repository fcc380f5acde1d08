"""The Triton kernels on the CPU, by Triton's interpreter: other tests of ops, kernels and games, in another process.

Triton decides at import whether it interprets, hence the process. The interpreter is a Python loop over programs: few
tests in the default run, all that take less than minutes by hand (`-m long`).
"""

import importlib
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_tools
from denizen import ops
from denizen.nn import kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HERE = Path(__file__).parent
FEW = (
    "worlds-5 or published_vectors or frozen or each-5 or poisons or hardly or few_and_many or strides"
    " or weights_of_a_hub or first_flagged or backward_sums or adam or values_and_gradients and (tanh or shape1)"
    " or against_a_matrix and 3-True or convolutions and shape1 or several_layers and shape0"
    " or of_a_linear or two_layers or packed or way_changes_no_bit or ties or in_groups and 2"
    " or moved_rows and shape1 and (float32 or bool) or in_couples and 64-4-False"
    " or form_ties and 300 or sum_tree and 5000"
    " or pairs_of_causes and 16-True-3 or appended and 4-3 or races_of_rows and 3-2"
    " or near_pairs and (2-9-3.1-2-True or 1-1-2.0-3-False)"
)
GAMES = "interpreted or in_short and (20-3 or 4-2 or 0-1-1) or bad_actions"
ALL = "not large_number and not threads and not hub and not number_of and not repeats"


def interpret(expression: str, examples: int, *games: Path) -> str:
    """Run tests of ops, and of games of the zoo, under the interpreter; what pytest says, a line a test.

    Args:
        expression: picks them by name.
        examples: of a property.
        *games: files of their tests.
    """
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", "-p", "no:logging", "--color=no"]
    of_ops = [
        "attribution",
        "attribution_internals",
        "couples",
        "philox_internals",
        "packed",
        "moves",
        "near",
        "pairs",
        "slots",
        "edges",
        "edges_internals",
        "gradients",
        "worlds",
        "properties",
    ]
    files = [*(HERE / f"test_{name}.py" for name in of_ops), HERE.parent / "nn/kernels", *games, Path(__file__)]
    command += ["-o", "addopts=", "-m", "not cuda", "-k", f"({expression}) or every_kernel"]
    # NumPy warns where lanes that are masked out compute inf * 0.
    command += ["-W", "ignore::RuntimeWarning", *map(str, files)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "DENIZEN_EXAMPLES": str(examples)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


missing = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@missing
@pytest.mark.skipif(INTERPRETED, reason="the interpreter runs already")
def test_kernels_by_the_interpreter() -> None:
    games = [HERE.parent / "zoo" / f"test_{name}_fast.py" for name in ("fruits", "foraging")]
    told = interpret(f"{FEW} or {GAMES}", 5, *games)
    assert [len(re.findall(rf"{game.name}::.* PASSED", told)) for game in games] == [9, 4]


@missing
@pytest.mark.long
@pytest.mark.skipif(INTERPRETED, reason="the interpreter runs already")
def test_kernels_by_the_interpreter_at_length() -> None:
    interpret(ALL, 15)


@pytest.mark.skipif(not INTERPRETED, reason="runs last in the interpreter's process")
def test_every_kernel_was_launched() -> None:
    expected = {
        name
        for package in (ops, kernels)
        for module in pkgutil.iter_modules(package.__path__)
        if module.name.startswith("_cuda") and "message" not in module.name  # those of messages: tests/nn
        for name in vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        if name.endswith("_kernel")
    }
    expected.add("pairs")  # written for a function of two neighbours
    assert kernel_tools.launched == expected - {"_lap_kernel"}  # reads a GPU's clock, which the interpreter has none of
