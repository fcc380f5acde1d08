"""The guard of a run's first step (placeholder until the check lands)."""

from collections.abc import Iterator
from contextlib import contextmanager

from denizen.model._model import Model


@contextmanager
def guard(model: Model) -> Iterator[None]:
    """Watch one step."""
    yield
