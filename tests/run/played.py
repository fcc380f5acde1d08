"""What tests of captured runs share: the chunks of a run, and a capture whose graphs are plain calls.

What these tests need of the engine's inside is imported here alone.
"""

from collections.abc import Callable
from typing import Any

import torch

from denizen._run_folder import RunFolder
from denizen.run import Run, _run, _zarr
from denizen.run import one_graph as one_graph
from denizen.run import own_code as own_code
from denizen.run._chunks import CapturedSteps as CapturedSteps
from denizen.run._chunks import Chunks as Chunks
from denizen.run._program import build
from denizen.run._trace import trace

Compile = Callable[[Any], Any]


def program_of(run: Run, *least: int) -> Any:
    """The step of a run that has begun, taken apart; sums over fewer agents than `least` are not cut into rows."""
    return build(trace(run._stepper, run._run_state), run._stepper.masks, *least)


def chunks_of(run: Run, longest: int, *least: int, compile: Compile = lambda module: module) -> Chunks:
    """Its steps from here on, in chunks."""
    return Chunks(program_of(run, *least), run._run_state, longest, compile, run._log)


class Played(CapturedSteps):
    """A capture whose chunks are plain calls, instead of graphs."""

    def __init__(self, run: Run, longest: int = 8, *least: int) -> None:
        self.seconds, self.longest, self._stepper = 0.0, longest, run._stepper
        self._chunks = chunks_of(run, longest, *least)

    def _record(self, length: Any, due: Any, store: Any) -> None:
        """There is no graph."""

    def _replay(self, length: Any, due: Any, store: Any) -> Any:
        with torch.no_grad():
            return self._plain(length, due, store)


def save_always() -> None:
    """Runs of this process save whenever they could."""
    RunFolder.every = 0.0


def small_chunks() -> None:
    """Runs of this process look at their state every few steps, and files of snapshots are replaced by longer ones."""
    _run.CHUNK, _run.CAPTURED_CHUNK, _zarr.EACH = 3, 17, 7
