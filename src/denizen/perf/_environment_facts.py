"""Reading the settings that `environment` reports."""

import platform
from collections.abc import Callable, Iterator
from typing import Any

import torch

from denizen.perf._environment import OK, Fact


def found(step: Callable[[], Any] | None) -> Iterator[Fact]:
    """All facts, in the order in which they are shown."""
    yield Fact("versions", f"torch {torch.__version__}, Python {platform.python_version()}", OK, "torch.__version__")
