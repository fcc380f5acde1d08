"""Chunks of a program's steps as CUDA graphs: one launch from Python for each chunk."""

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fx import GraphModule

from denizen.run._chunks import Call, Chunks
from denizen.run._cuda_graph import CapturedFunction, aside
from denizen.run._device_time import device_ms
from denizen.run._engine import Carry, Stepper, one_graph
from denizen.run._program import build
from denizen.run._trace import trace

if TYPE_CHECKING:
    from denizen.run._snapshots import Group, SnapshotStore

GRAPHS = 12  # kept; a run asks for few lengths
WARM_UP = 2  # chunks before capture


class Capture:
    """Replayable chunks of a stepper's steps.

    Graphs are captured when a length is first asked for: the longest, and what remains after it. All share one memory
    pool, and parameters and step counter live in device memory: a replay draws fresh numbers and follows parameters
    that changed in place. Snapshots that are due within a graph are gathered by its last kernels.

    Attributes:
        longest: most steps in one graph.
        seconds: spent on recording graphs.
    """

    def __init__(self, stepper: Stepper, carry: Carry, longest: int, backend: str) -> None:
        """Compile the step; the carry is left untouched. The caller holds `Settled` here and at every call.

        Args:
            stepper: on a CUDA device, without interventions that ask the host.
            carry: after at least one step, so that every buffer's shape is known.
            longest: most steps in one graph.
            backend: of torch.compile.
        """

        def compile(module: GraphModule) -> Call:
            return one_graph(module, backend)

        self.longest, self.seconds = longest, 0.0
        # By length and the steps within it after which a snapshot is due.
        self._graphs: dict[tuple[int, range], CapturedFunction[tuple[list[Tensor], Group | None]]] = {}
        self._pool = None  # made with the first graph, shared by all
        self._stepper = stepper
        with torch.no_grad():
            program = build(trace(stepper, carry), stepper.masks)
            program = dataclasses.replace(program, sums=[one.measured() for one in program.sums])
            self._chunks = Chunks(program, carry, longest, compile)
            self._stream = self._warm_up()
        self._chunks.load(carry)

    def run(
        self, carry: Carry, count: int, start: int = 0, store: "SnapshotStore | None" = None
    ) -> tuple[Carry, list[Tensor]]:
        """`count` steps: the carry after them, and each record `[worlds, count, …]`; copies, not the buffers.

        Args:
            carry: after `start` steps.
            count: of steps.
            start: matters for snapshots alone.
            store: gets the snapshots that are due.

        Raises:
            NotCapturedError: a chunk could not be captured; the carry is as it was.
        """
        self._chunks.load(carry)
        self._chunks.forget()  # should something end this half-way, the next call starts from its carry
        rows: list[Tensor] = []
        every, most = (store.every, store.ring.most) if store is not None else (0, 0)
        for begin, end in pieces(start, start + count, self.longest, every, most):
            length = end - begin
            due = range(every - begin % every, length + 1, every) if every else range(0)
            whole, group = self._replay(length, due, store)
            if store is not None and group is not None:
                store.put_group(begin + due[0], group)
            rows = rows or [record.new_empty(count, *record.shape[1:]) for record in whole]
            _copy_all([row[begin - start : end - start] for row in rows], [record[:length] for record in whole])
        return self._chunks.take(), [row.movedim(0, 1).contiguous() for row in rows]

    def device_seconds(self, carry: Carry, count: int) -> float:
        """What `count` steps take the device, whatever the host does before and after; the carry is left untouched.

        Their graphs should exist: recording one would count as well.
        """
        self._chunks.load(carry)
        self._chunks.forget()

        def replay() -> None:
            for begin, end in pieces(0, count, self.longest):
                self._replay(end - begin, range(0), None)

        return device_ms(replay) / 1e3

    def _warm_up(self) -> torch.cuda.Stream:
        stream = aside(lambda: self._chunks.steps(2), WARM_UP)  # the second may find the state laid out in another way
        self._chunks.forget()
        return stream

    def _warm_up_again(self) -> torch.cuda.Stream:
        """Within a run: the buffers hold what they held. Later graphs have a pool of their own, as a stream."""
        kept = self._chunks.take()
        self._stream, self._pool = self._warm_up(), None
        self._chunks.load(kept)
        self._chunks.forget()
        return self._stream

    def _replay(self, length: int, due: range, store: "SnapshotStore | None") -> "tuple[list[Tensor], Group | None]":
        """Each record of `length` further steps, and the snapshots within them: the graph's own buffers."""
        key = length, due
        if key not in self._graphs:
            began = time.perf_counter()
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            chunk = CapturedFunction(
                lambda: self._plain(length, due, store),
                "steps",
                warm_up=0,
                again=self._warm_up_again,
                stream=self._stream,
                pool=self._pool,
                backward=False,
            )
            with torch.no_grad():
                chunk.capture()
            if len(self._graphs) == GRAPHS:
                del self._graphs[min(self._graphs, key=lambda old: old[0])]  # the one that is captured again soonest
            self._graphs[key] = chunk
            self.seconds += time.perf_counter() - began
        return self._graphs[key]()

    def _plain(self, length: int, due: range, store: "SnapshotStore | None") -> "tuple[list[Tensor], Group | None]":
        """What a graph records, by plain calls."""
        if store is None or not due:
            return self._chunks.steps(length), None
        taking = Taking(store, self._stepper, due)
        return self._chunks.steps(length, taking), taking.group


class Taking:
    """Snapshots within a chunk: references until its end, then one group.

    Attributes:
        group: once the chunk is finished.
    """

    def __init__(self, store: "SnapshotStore", stepper: Stepper, due: range) -> None:
        """Args:
        store: knows the fields and narrows them.
        stepper: makes states of leaves.
        due: steps of the chunk after which a snapshot is taken.
        """
        self._store, self._stepper, self._due = store, stepper, due
        self._taken: list[list[Tensor]] = []
        self.group: Group | None = None

    def see(self, count: int, carry: Carry) -> None:
        """See `Watch`; fields that are not kept are let go."""
        if count in self._due:
            self._taken.append(self._store.fields(self._stepper.state(carry)))

    def finish(self) -> None:
        """See `Watch`."""
        self.group = self._store.group(self._taken)
        self._taken.clear()


def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy each into its place, by one kernel for all of a dtype: between two graphs the device waits for the host."""
    for dtype in {source.dtype for source in sources}:
        of_it = [place for place, source in enumerate(sources) if source.dtype == dtype]
        torch._foreach_copy_([targets[place] for place in of_it], [sources[place] for place in of_it])


def pieces(start: int, stop: int, longest: int, every: int = 0, most: int = 1) -> Iterator[tuple[int, int]]:
    """(first step, step after the last) of one graph after the other; of few kinds, since each is captured once.

    Args:
        start: first step.
        stop: step after the last.
        longest: most steps in a graph.
        every: steps between snapshots; 0 for none. A piece begins at a snapshot or ends at the next one, and holds a
            power of two of them where it does not hold as many as it may.
        most: snapshots in a graph.
    """
    while start < stop:
        left = min(longest, stop - start)
        if every and start % every:
            left = min(left, every - start % every)
        elif every and every <= left:
            whole, count = min(most, longest // every), min(most, left // every)
            left = every * (count if count == whole else 1 << (count.bit_length() - 1))
        yield start, start + left
        start += left
