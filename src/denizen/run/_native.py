"""A hard step on the CPU as native code: the traced step as loops that numba compiles, with denizen's own within them.

What comes between two draws, sums over neighbours or sums over agents is one loop over the agents. An operation that
has no loop here, such as a logarithm, whose last bits differ between libraries, is torch's own call between two native
functions. So the bits are those of eager steps. Where no call is torch's, many steps are one call of Python.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from denizen import ops
from denizen.ops import _cpu_calls, _cpu_meeting
from denizen.ops._cpu import over_parts
from denizen.run import _native_calls as calls
from denizen.run import _native_loops as loops
from denizen.run._checks import version
from denizen.run._engine import RunState, Stepper
from denizen.run._native_parts import Choice, Line, cost, grouped, most_parts
from denizen.run._native_writer import Foreign, NotNativeError, Writer
from denizen.run._trace import Traced, trace

SMALL = 1024  # entries of a parameter's copy that is made anew for each call
MOST_FOREIGN = 32  # calls of torch within a step; 30 of them take a third to a half of the eager step's time


class NativeStep:
    """A step of all worlds; called as a stepper's own.

    Attributes:
        source: its code.
        alone: entries of the largest tensor that one thread goes over, however many there are.
    """

    def __init__(self, stepper: Stepper, run_state: RunState) -> None:
        """Record, write and compile the step; the run's state stays.

        Raises:
            NotNativeError: too much of it has no loop.
        """
        with ops.gates_kept():
            traced = trace(stepper, run_state)
        self._leaves, self._records = len(traced.leaves), len(traced.records) + len(traced.logged)
        self._most = most_parts()  # for which there is scratch
        written = Writer(traced, stepper.worlds)
        self._copies = traced.copies + written.copies
        self._seen = [version(old) for old, _ in self._copies]
        self._busy = threading.Lock()  # what is kept serves one call at a time
        foreign = [part for part in written.parts if isinstance(part, Foreign)]
        if len(foreign) > MOST_FOREIGN:
            names = sorted({str(part.target) for part in foreign})
            raise NotNativeError(f"{len(foreign)} operations have no loop: {', '.join(names)}")
        self._buffers, self._foreign = written.buffers, {name for part in foreign for name in part.buffers}
        slots = {buffer.name: slot for slot, buffer in enumerate(self._buffers)}
        self._inputs = [(place, name, slots[name]) for place, name in written.inputs]
        self._outputs = [
            None if name is None else _Output(slots, place, name, traced) for place, name in enumerate(written.outputs)
        ]
        self._made = [one for one in self._outputs if one is not None]
        self._moves = np.array([[one.slot, one.into, one.bytes] for one in self._made], np.int64).reshape(-1, 3)
        made = {one.name for one in self._made}
        self._kept = {
            one.name: torch.zeros(one.size, dtype=one.dtype) if one.tensor is None else one.tensor.reshape(-1)
            for one in self._buffers
            if one.kind != "input" and one.name not in made
        }
        self._addresses = np.zeros(len(self._buffers), np.int64)
        self._placed = [(slots[name], tensor) for name, tensor in self._kept.items()]
        self.source, self.alone = "", 0
        self._parts = [part if isinstance(part, Foreign) else self._segment(part, written) for part in written.parts]

    def _segment(self, lines: list[str], written: Writer) -> Callable[..., None]:
        groups = grouped(lines, written.named)
        nests = (written.named(line) for line in lines if not isinstance(line, Line))
        self.alone = max(self.alone, *(size for named in nests for size in named.values()), 0)
        code = calls.segment(groups, written.arrays, moves=len(written.parts) == 1)
        self.source += "\n".join([*(text for name, text in written.loops.items() if f"{name}," in code), code])
        compiled = calls.compiled(code, tuple(written.loops.items()), loops.compiled)
        return partial(_run, compiled, cost(groups), self._most)

    def __call__(
        self,
        leaves: list[Tensor],
        switches: Tensor,
        keys: Tensor,
        values: dict[str, Tensor],
        step: Tensor,
        answers: dict[str, Tensor],
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """See `FlatWorld.step`."""
        leaves, switches, records, bad = self.several(1, leaves, switches, keys, values, step)
        return leaves, switches, [record[0] for record in records], bad[0]

    def several(
        self,
        count: int,
        leaves: list[Tensor],
        switches: Tensor,
        keys: Tensor,
        values: dict[str, Tensor],
        step: Tensor,
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """So many steps; records and checks have them as their first axis."""
        with self._busy:
            out = self._run(count, [*leaves, switches, step.clone(), keys, *values.values()])
        return out[: self._leaves], out[self._leaves], out[self._leaves + 1 : -1], out[-1]

    def __deepcopy__(self, memo: dict[int, Any]) -> "NativeStep":
        """Itself, as functions are: its code goes by the addresses of what is kept."""
        return self

    def _run(self, count: int, given: list[Tensor]) -> list[Tensor]:
        self._renew()
        for slot, tensor in self._placed:  # `share_memory_` moves what the model holds
            self._addresses[slot] = tensor.data_ptr()
        tensors = {}
        for place, name, slot in self._inputs:
            tensors[name] = tensor = given[place].detach().contiguous()
            self._addresses[slot] = tensor.data_ptr()
        turns = [one.buffers(count) for one in self._made]
        buffers = np.array([[turn.data_ptr() for turn in pair] for pair in turns], np.int64).reshape(-1, 2)
        self._addresses[self._moves[:, 0]] = buffers[:, 0]
        fixed = self._addresses, self._moves, buffers, given[self._leaves + 1].numpy().reshape(1)
        first, *others = self._parts
        if isinstance(first, Foreign) or others:
            self._in_parts(count, fixed, tensors, turns)
        else:
            first(*fixed, count)
        made = iter(turns)
        return [given[k] if one is None else next(made)[one.last(count)] for k, one in enumerate(self._outputs)]

    def _in_parts(
        self, count: int, fixed: tuple[Any, Any, Any, Any], tensors: dict[str, Tensor], turns: list[Any]
    ) -> None:
        """Steps whose native parts have calls of torch between them."""
        known = self._kept | {name: tensor.reshape(-1) for name, tensor in tensors.items()}
        named = [(one, turn) for one, turn in zip(self._made, turns, strict=True) if one.named & self._foreign]
        for number in range(count):
            for one, turn in named:
                known[one.name] = one.written(turn, number)
                if number and one.from_:
                    known[one.from_] = one.written(turn, number - 1)
            for part in self._parts:
                if isinstance(part, Foreign):
                    part.run(known)
                else:
                    part(*fixed, 1)
            _cpu_calls.moved(*fixed, number)

    def _renew(self) -> None:
        """Copies of parameters that were written to, anew; small ones always, since not all writes are counted."""
        for place, (old, copy) in enumerate(self._copies):
            now = version(old)
            if now is None or now != self._seen[place] or old.numel() <= SMALL:
                copy.copy_(old)
                self._seen[place] = now


_choices: WeakKeyDictionary[Callable[..., None], Choice] = WeakKeyDictionary()


def _run(segment: Callable[..., None], cost: float, most: int, *given: Any) -> None:
    """Run a segment on as many threads as its work is worth, as was quick, and as it has scratch for."""
    choice = _choices.setdefault(segment, Choice())
    number, at = choice.threads(cost, most), _cpu_meeting.gate()

    def part(_: int, __: int, which: int) -> None:
        try:
            segment(*given, at, which, number)
        except BaseException:
            _cpu_meeting.leave(at)
            raise

    began = time.perf_counter()
    over_parts(part, number, number, ended=partial(_cpu_meeting.leave, at))
    choice.took(number, (time.perf_counter() - began) / given[-1])


class _Output:
    """What a step writes and returns at a place.

    Attributes:
        name: of its buffer.
        slot: place of its address.
        from_: name of the buffer through which it comes in at the next step; None for what is recorded.
        into: place of the address of that, or -1.
        bytes: of a record.
        named: names of both buffers.
    """

    def __init__(self, slots: dict[str, int], place: int, name: str, traced: Traced) -> None:
        value = traced.outputs[place].meta["val"]
        self.name, self.slot = name, slots[name]
        self._shape, self._dtype = tuple(value.shape), value.dtype
        self.from_ = f"given{place}" if place <= len(traced.leaves) else None
        self.into = -1 if self.from_ is None else slots[self.from_]
        self.bytes = value.numel() * value.dtype.itemsize
        self.named = {name, self.from_}

    def buffers(self, count: int) -> tuple[Tensor, Tensor]:
        """Where so many steps write: two by turns, or records one after the other."""
        if self.from_ is None:
            rows = torch.empty(count, *self._shape, dtype=self._dtype)
            return rows, rows
        one = torch.empty(self._shape, dtype=self._dtype)
        return one, one if count == 1 else torch.empty(self._shape, dtype=self._dtype)

    def written(self, turn: tuple[Tensor, Tensor], number: int) -> Tensor:
        """What the step of a number writes, flat."""
        return (turn[0][number] if self.from_ is None else turn[number & 1]).reshape(-1)

    def last(self, count: int) -> int:
        """Which of two was written last."""
        return 0 if self.from_ is None else (count - 1) & 1
