"""Chunks of compiled steps as CUDA graphs: static buffers, one launch from Python for each chunk.

The step counter, the parameters and the place to record to live in device memory, so a replay draws fresh numbers and
follows changed parameters without a new capture.
"""

from typing import Any

import torch
from torch import Tensor

from denizen.run._engine import Carry, Stepper, own_code

WARM_UP = 3  # calls before capture: compilation and lazy initialisation happen there


class Capture:
    """Replayable chunks of a stepper's steps.

    Graphs are captured when a length is first asked for; any number of steps is made up of powers of two, so that a
    run needs few of them. All share one memory pool.
    """

    def __init__(self, stepper: Stepper, carry: Carry, longest: int, backend: str) -> None:
        """Compile the step; the carry is left untouched.

        Args:
            stepper: on a CUDA device, without interventions that ask the host.
            carry: after at least one step, so that every buffer's shape is known.
            longest: most steps in one graph, a power of two.
            backend: of torch.compile.
        """
        self._stepper, self._longest = stepper, longest
        self._static = carry.clone()
        self._index = torch.zeros(1, dtype=torch.int64, device=carry.step.device)
        _, records = stepper.advance(carry, {})
        self._records = [record.new_zeros(longest, *record.shape) for record in records]
        self._step = torch.compile(own_code(self._compiled), fullgraph=True, dynamic=False, backend=backend)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None  # made with the first graph, shared by all
        self._warm_up()

    def run(self, carry: Carry, count: int) -> tuple[Carry, list[Tensor]]:
        """`count` steps: the carry after them, and each record `[worlds, count, …]`; copies, not the buffers."""
        self._load(carry)
        rows: list[list[Tensor]] = []
        for length in self._lengths(count):
            self._graph(length).replay()
            rows.append([buffer[:length].movedim(0, 1).clone() for buffer in self._records])
        return self._static.clone(), [torch.cat(parts, dim=1) for parts in zip(*rows, strict=True)]

    def _lengths(self, count: int) -> list[int]:
        lengths = [self._longest] * (count // self._longest)
        rest = count % self._longest
        return lengths + [1 << bit for bit in reversed(range(rest.bit_length())) if rest >> bit & 1]

    def _warm_up(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._index.zero_()
                self._call()
        torch.cuda.current_stream().wait_stream(side)

    def _graph(self, length: int) -> torch.cuda.CUDAGraph:
        if length not in self._graphs:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph, pool=self._pool):
                self._index.zero_()
                for _ in range(length):
                    self._call()
            self._graphs[length] = graph
        return self._graphs[length]

    def _call(self) -> None:
        static, stepper = self._static, self._stepper
        assert static.bad is not None, "capture follows a step"
        new = self._step(
            static.leaves, static.switches, stepper.keys, stepper.values, static.step, static.bad, self._records,
            self._index,
        )  # fmt: skip
        # Not inside the compiled function: there torch 2.11 gave wrong states for COVID in several worlds (log.md).
        held = {leaf.untyped_storage().data_ptr() for leaf in static.leaves}
        changed = [
            (old, leaf) for old, leaf in zip(static.leaves, new, strict=True) if leaf.data_ptr() != old.data_ptr()
        ]
        # A field that took over another's buffer is copied first: that buffer is overwritten in its turn.
        apart = [(old, leaf.clone() if leaf.untyped_storage().data_ptr() in held else leaf) for old, leaf in changed]
        for old, leaf in apart:
            old.copy_(leaf)

    def _compiled(
        self, leaves: list[Tensor], switches: Tensor, keys: Tensor, values: dict[str, Tensor], step: Tensor,
        bad: Tensor, buffers: list[Tensor], index: Tensor,
    ) -> list[Tensor]:  # fmt: skip
        """One step: the new state is returned, everything small is written to where it belongs."""
        one = self._stepper.batched_step
        new_leaves, new_switches, records, new_bad = one(leaves, switches, keys, values, step, {})
        for buffer, record in zip(buffers, records, strict=True):
            buffer.index_copy_(0, index, record[None])
        switches.copy_(new_switches)
        bad.copy_(torch.maximum(bad, new_bad))
        step.add_(1)
        index.add_(1)
        return new_leaves

    def _load(self, carry: Carry) -> None:
        for old, new in zip(self._static.tensors(), carry.tensors(), strict=True):
            old.copy_(new)
