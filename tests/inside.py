"""What tests of behaviour turn inside of denizen: every switch that no argument and no variable of the environment has.

A test takes the fixture `inside`, so that a module that moves is mended here alone.
"""

import pkgutil
from typing import Any

import pytest
import torch


class Inside:
    """The switches; each is turned back when the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set, self._item = monkeypatch.setattr, monkeypatch.setitem

    def backend(self, backend: Any) -> None:
        """Runs are compiled by this backend of torch.compile, such as one without the C++ compiler's minutes."""
        self._set("denizen.run._compile.BACKEND", backend)

    def without_native(self) -> None:
        """Steps are compiled by torch, also where a native loop would do."""
        self._set("denizen.run._run.try_native", lambda *_: False)

    def saves_always(self) -> None:
        """Runs save whenever they could."""
        self._set("denizen._run_folder.RunFolder.every", 0.0)

    def snapshots_to_a_chunk(self, count: int) -> None:
        """The files of snapshots hold so many at most."""
        self._set("denizen.run._zarr.EACH", count)

    def pieces(self, steps: int) -> None:
        """A gradient is compiled in pieces of so many steps."""
        self._set("denizen.run._rollout.PIECE", steps)

    def chunks(self, steps: int) -> None:
        """Runs look at their state after so many steps, at the latest."""
        self._set("denizen.run._run.CHUNK", steps)

    def patient_chunks(self) -> None:
        """Chunks are as long as they may be, however slow the machine."""
        self._set("denizen.run._run.CHUNK_SECONDS", 1e9)

    def threads_from(self, elements: int) -> None:
        """The CPU's ops use several threads from so many elements on."""
        self._set("denizen.ops._cpu._PARALLEL_FROM", elements)

    def push_up_to(self, share: float) -> None:
        """Sums over neighbours push from active senders up to this share of them, and pull beyond."""
        self._set("denizen.ops._cpu_neighbours._PUSH_UP_TO", share)

    def sorted_pairs(self) -> None:
        """Near pairs on a GPU are sorted as those of many agents."""
        self._set("denizen.ops._cuda_pairs._GATHERED", 0)

    def triton_of(self, game: str) -> None:
        """The kernels of this game of the zoo are Triton's, also for tensors of the CPU."""
        self._set(f"denizen.zoo.{game}._fast.variant", lambda device: "triton")

    def few_foragers(self, count: int) -> None:
        """So many worlds of foragers or fewer are stepped by several programs each."""
        self._set("denizen.zoo.foraging._launch.FEW", count)

    def short_films(self, steps: int) -> None:
        """The film at the end of a training has so many steps."""
        self._set("denizen.app._trained.FILM_STEPS", steps)

    def short_rounds(self, seconds: float) -> None:
        """A bench measures for so long in a round."""
        self._set("denizen.perf._bench.measure.ROUND", seconds)

    def gradients_up_to(self, agents: int) -> None:
        """A check follows gradients in models of so many agents at most."""
        self._set("denizen.model._check_rules.GRADIENT_UP_TO", agents)

    def between_lines(self, seconds: float) -> None:
        """So long a notebook's progress waits between two of its lines."""
        self._set("denizen._printing.BETWEEN", seconds)

    def small_launches(self, agents: int) -> None:
        """Sweeps launch so many agents at once on a CPU; of functions, so many rows."""
        self._item(pkgutil.resolve_name("denizen.sweeps._sweep.MOST_AGENTS"), "cpu", agents)
        self._set("denizen.sweeps._sweep.MOST_CALLED", agents)

    def memory_for_sweeps(self, count: int) -> None:
        """So many bytes are free for a sweep."""
        self._set("denizen.sweeps._sweep.free", lambda device: count)

    def unpacks_up_to(self, count: int) -> None:
        """Compressed files may unpack to so many bytes, and none is so small that it is always fine."""
        self._set("denizen.space.files._npz._COMPRESSED_LIMIT", count)
        self._set("denizen.space.files._reading._ALWAYS_FINE", 0)

    def careful_reader(self) -> None:
        """Text is read line by line, as where a quick reader gives up."""
        self._set("denizen.space.files._csv._fast", lambda *_: None)

    def one_lot_for_all(self) -> None:
        """Who is paired draws the same lot as everybody else."""
        self._set("denizen.ops._pairing.draw_words", lambda ids, num, *rest: torch.zeros(1, num).long())

    def processes_at_once(self, entries: int) -> None:
        """Series are drawn for so many entries of covariances at once."""
        self._set("denizen.nn._series._MOST", entries)

    def programs_of_adam(self, count: int) -> None:
        """Adam's kernel is launched as so many programs."""
        self._set("denizen.nn.kernels._cuda_adam._PROGRAMS", count)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    """The switches inside of denizen."""
    return Inside(monkeypatch)
