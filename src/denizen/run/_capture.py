"""Chunks of a program's steps as CUDA graphs: one launch from Python for each chunk."""

import dataclasses
import time

import torch
from torch import Tensor
from torch.fx import GraphModule

from denizen.run._chunks import Call, Chunks
from denizen.run._engine import Carry, Stepper
from denizen.run._program import build
from denizen.run._trace import trace

GRAPHS = 8  # kept; a run asks for few lengths
WARM_UP = 2  # chunks before capture: compilation, autotuning and lazy initialisation happen there


class Capture:
    """Replayable chunks of a stepper's steps.

    Graphs are captured when a length is first asked for: the longest, and what remains after it. All share one memory
    pool, and parameters and step counter live in device memory: a replay draws fresh numbers and follows parameters
    that changed in place.

    Attributes:
        seconds: spent on recording graphs.
    """

    def __init__(self, stepper: Stepper, carry: Carry, longest: int, backend: str) -> None:
        """Compile the step; the carry is left untouched.

        Args:
            stepper: on a CUDA device, without interventions that ask the host.
            carry: after at least one step, so that every buffer's shape is known.
            longest: most steps in one graph.
            backend: of torch.compile.
        """

        def compile(module: GraphModule) -> Call:
            return torch.compile(module, fullgraph=True, dynamic=False, backend=backend)  # type: ignore[return-value]

        self._longest, self.seconds = longest, 0.0
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        self._pool = None  # made with the first graph, shared by all
        with torch.no_grad():
            program = build(trace(stepper, carry), stepper.masks)
            program = dataclasses.replace(program, sums=[one.measured() for one in program.sums])
            self._chunks = Chunks(program, carry, longest, compile)
            self._warm_up()
        self._chunks.load(carry)

    def run(self, carry: Carry, count: int) -> tuple[Carry, list[Tensor]]:
        """`count` steps: the carry after them, and each record `[worlds, count, …]`; copies, not the buffers."""
        self._chunks.load(carry)
        self._chunks.forget()  # should something end this half-way, the next call starts from its carry
        rows: list[Tensor] = []
        for start in range(0, count, self._longest):
            length = min(self._longest, count - start)
            records = [record[:length].movedim(0, 1) for record in self._replay(length)]
            if not rows:
                rows = [one.new_empty(one.shape[0], count, *one.shape[2:]) for one in records]
            for row, one in zip(rows, records, strict=True):
                row[:, start : start + length].copy_(one)
        return self._chunks.take(), rows

    def _warm_up(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._chunks.steps(2)  # the second may find the state laid out in another way
        torch.cuda.current_stream().wait_stream(side)
        self._chunks.forget()

    def _replay(self, length: int) -> list[Tensor]:
        """Each record of `length` further steps: the graph's own buffers."""
        if length not in self._graphs:
            began = time.perf_counter()
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph, pool=self._pool):
                records = self._chunks.steps(length)
            if len(self._graphs) == GRAPHS:
                del self._graphs[next(old for old in self._graphs if old != self._longest)]
            self._graphs[length] = graph, records
            self.seconds += time.perf_counter() - began
        graph, records = self._graphs[length]
        graph.replay()
        return records
