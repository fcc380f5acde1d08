"""What tests of runs share: CUDA graphs played on the CPU, and compiling by a backend that takes no time."""

from collections.abc import Callable
from typing import Any

import pytest

from denizen.run import CapturedFunction, _cuda_graph
from inside import Inside


@pytest.fixture
def eager_backend(inside: Inside) -> None:
    """Compiled runs have the graphs that they have anyway, without the C++ compiler's minutes."""
    inside.backend("eager")


class PlayedGraph:
    """Stands in for a CUDA graph: a replay runs what would have been captured."""

    def __init__(self, captured: CapturedFunction[Any], function: Callable[[], Any]) -> None:
        self._captured, self._function = captured, function

    def replay(self) -> None:
        self._captured._result = self._function()


@pytest.fixture
def played_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream and no graph, but every call that is made on them."""

    def aside(function: Callable[[], Any], times: int = 1, side: Any = None) -> Any:
        for _ in range(times):
            function()
        return object()

    monkeypatch.setattr(_cuda_graph, "aside", aside)
    monkeypatch.setattr(CapturedFunction, "_attempt", lambda self, pool: (PlayedGraph(self, self._function), None))
