"""Chunks of steps of a program: buffers that stay where they are, and what a chunk does in order.

    for each step    the sums over neighbours, the compiled body, the tallies
    at the end       the epilogue over all steps at once; the state goes back to where the next chunk starts

A step's new state is written where there is room and read by the next step, so nothing is copied between steps. The
step counter lives on the device, so a replayed chunk draws fresh numbers.
"""

from collections.abc import Callable, Hashable
from typing import Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from denizen import ops
from denizen.run._engine import Carry
from denizen.run._program import Function, Program
from denizen.run._trace import shape

Call = Callable[..., list[Tensor]]


class Watch(Protocol):
    """Sees the states along a chunk."""

    def see(self, count: int, carry: Carry) -> None:
        """What holds after so many steps of the chunk; nothing writes to its leaves before `finish`."""
        ...

    def finish(self) -> None:
        """The steps are done; what was seen is written over from now on."""
        ...


class Chunks:
    """Runs chunks of up to `longest` steps of a program, by plain calls."""

    def __init__(self, program: Program, carry: Carry, longest: int, compile: Callable[[GraphModule], Call]) -> None:
        """Make the buffers; the carry is left untouched.

        Args:
            program: the step, taken apart.
            carry: after at least one step.
            longest: most steps in a chunk.
            compile: makes a function of a module.
        """
        assert carry.bad is not None, "chunks follow a step"
        self._program, self.longest = program, longest
        self._static = carry.clone()
        self._at: Carry | None = carry  # what the buffers hold
        traced = program.traced
        constants = [traced.constant(node) for node in traced.module.graph.nodes if node.op == "get_attr"]
        # The model's own parameters are constants, which are the very tensors.
        self._watched = [*traced.values, *(old for old, _ in traced.copies), *constants]
        self._seen = self._versions()
        device, worlds = carry.step.device, carry.bad.shape[0]
        # A step's counter every 16 bytes: what a compiled function is promised about addresses.
        self._steps = torch.zeros(longest + 1, 2, dtype=torch.int64, device=device)
        self._ahead = torch.arange(longest + 1, device=device)[:, None]
        self._totals = [
            [torch.zeros(shape(one.node), dtype=one.width, device=device) for _ in range(2)] for one in program.sums
        ]
        # For each sum and step how many agents are active and eligible; and, for fixed point, whether a value was bad.
        self._traffic = [torch.zeros(longest + 1, worlds, 4, dtype=torch.int32, device=device) for _ in program.sums]
        self._bad = [_bad_buffer(longest, worlds, device) if one.fixed else None for one in program.sums]
        self._counts = [_count_buffer(node, longest, worlds, device) for node in program.tallies]
        self._groups = program.groups.module(*self._resolve(program.groups, {}))
        self._body = compile(program.body.module)
        self._tables = self._make_tables()
        self._arguments = self._heads()
        self._rings = self._make_rings()
        self._epilogue = self._make_epilogue(compile)

    def load(self, carry: Carry) -> None:
        """Start from a carry, and from the parameters as they are: those that changed in place count from here on."""
        versions = self._versions()
        if carry is not self._at or versions != self._seen:
            if versions != self._seen:
                for old, copy in self._program.traced.copies:
                    copy.copy_(old)
                self._seen = self._versions()
            self._tables = self._make_tables()
            for old, new in zip(self._static.tensors(), carry.tensors(), strict=True):
                old.copy_(new)
            _copy(self._arguments, self._heads())
            self._at = carry

    def forget(self) -> None:
        """The buffers hold no carry that is known: the next `load` fills them."""
        self._at = None

    def take(self) -> Carry:
        """A copy of the carry that the buffers hold."""
        self._at = self._static.clone()
        return self._at

    def steps(self, count: int, watch: Watch | None = None) -> list[Tensor]:
        """`count` steps from where the buffers are: each record `[longest, worlds, …]`. Reads no value on the host.

        Args:
            count: up to `longest`.
            watch: is shown the state after each step.
        """
        static = self._static
        assert static.bad is not None
        torch.add(self._ahead, static.step, out=self._steps[:, :1])
        for seen in self._traffic:
            seen[1:].zero_()
        flags = (bad for bad in self._bad if bad is not None)
        for buffer in (*self._counts, *flags, *(totals[0] for totals in self._totals)):
            buffer.zero_()
        self._tables = self._make_tables()
        leaves, switches, arguments = static.leaves, static.switches, self._arguments
        rows = []
        for k in range(count):
            leaves, switches, arguments, kept = self._step(k, leaves, switches, arguments)
            rows.append(kept)
            if watch is not None:
                watch.see(k + 1, Carry(leaves, self._steps[k + 1, 0], switches, static.bad))
        if watch is not None:
            watch.finish()
        for ring, column in zip(self._rings, zip(*rows, strict=True), strict=True):
            torch.stack(column, out=ring[:count])
        *records, bad = self._epilogue(*self._late())
        if bad.numel():
            torch.maximum(static.bad, bad[:count].amax(dim=0), out=static.bad)
        _copy([*static.leaves, static.switches, *self._arguments], [*leaves, switches, *arguments])
        for seen in self._traffic:
            seen[0].copy_(seen[count])  # what the last step saw decides the way of the next
        static.step.copy_(self._steps[count, 0])
        return records

    # --- a step -------------------------------------------------------------------------------------------------------

    def _step(
        self, k: int, leaves: list[Tensor], switches: Tensor, arguments: list[Tensor]
    ) -> tuple[list[Tensor], Tensor, list[Tensor], list[Tensor]]:
        """One step: (leaves, switches, arguments of the next sums, what the epilogue keeps)."""
        program = self._program
        now = self._now(leaves, switches, self._steps[k, 0])
        self._sum(k, now, arguments)
        out = list(self._body(*self._resolve(program.body, now)))
        ends = [len(leaves), len(leaves) + 1, len(leaves) + 1 + len(arguments)]
        ends.append(ends[-1] + len(program.kept))
        for buffer, code, group in zip(self._counts, out[ends[3] :], self._groups, strict=True):
            ops.add_histogram(buffer[k], code, group if group.numel() else None)
        return out[: ends[0]], out[ends[0]], out[ends[1] : ends[2]], out[ends[2] : ends[3]]

    def _sum(self, k: int, now: dict[Hashable, Tensor], given: list[Tensor]) -> None:
        place = 0
        for one, seen, bad, totals in zip(self._program.sums, self._traffic, self._bad, self._totals, strict=True):
            arguments = given[place : place + len(one.arguments)]
            place += len(arguments)
            total, clear = totals[k % 2], totals[(k + 1) % 2]
            now[one.node] = total
            flags = None if bad is None else bad[k]
            if flags is not None:
                now["bad", one.node] = flags
            one.run(arguments, total, clear, flags, ops.Traffic(seen[k], seen[k + 1], one.switch))

    def _heads(self) -> list[Tensor]:
        """The arguments of the first sums."""
        static, prologue = self._static, self._program.prologue
        now = self._now(static.leaves, static.switches, static.step)
        return [argument.clone() for argument in prologue.module(*self._resolve(prologue, now))]

    # --- setting up ---------------------------------------------------------------------------------------------------

    def _versions(self) -> list[int]:
        """How often parameters were written to; the arguments of the first sums were made of one of these states."""
        return [0 if value.is_inference() else value._version for value in self._watched]

    def _make_tables(self) -> dict[Hashable, Tensor]:
        """What parameters and constants determine, from their present values."""
        program = self._program
        now = self._now(self._static.leaves, self._static.switches, self._static.step, tables=False)
        made = program.tables.module(*self._resolve(program.tables, now))
        return dict(zip(program.fixed, made, strict=True))

    def _make_rings(self) -> list[Tensor]:
        """A place for what each step keeps, of the shapes that a step on copies shows."""
        arguments = [argument.clone() for argument in self._arguments]
        *_, kept = self._step(0, self._static.leaves, self._static.switches, arguments)
        return [one.new_zeros(self.longest, *one.shape) for one in kept]

    def _late(self) -> list[Tensor]:
        """Arguments of the epilogue."""
        static = self._static
        now = self._now(static.leaves, static.switches, static.step)
        return self._resolve(self._program.epilogue, {**now, **self._each()})

    def _each(self) -> dict[Hashable, Tensor]:
        """What differs from step to step, `[longest, …]` each."""
        kept: dict[Hashable, Tensor] = dict(zip(self._program.kept, self._rings, strict=True))
        return {**kept, **dict(zip(self._program.tallies, self._counts, strict=True))}

    def _make_epilogue(self, compile: Callable[[GraphModule], Call]) -> Call:
        """The epilogue over all steps of a chunk."""
        program, each, arguments = self._program, self._each(), self._late()
        dims = tuple(0 if key in each else None for key in program.epilogue.inputs)
        late = program.epilogue.module

        def over_steps(*args: Tensor) -> list[Tensor]:
            rows = torch.zeros(self.longest, device=args[0].device if args else None)  # also where nothing varies
            return list(torch.vmap(lambda row, *rest: late(*rest), in_dims=(0, *dims))(rows, *args))

        with torch.no_grad():
            return compile(make_fx(over_steps)(*arguments))

    def _now(self, leaves: list[Tensor], switches: Tensor, step: Tensor, tables: bool = True) -> dict[Hashable, Tensor]:
        """What traced nodes stand for in a step."""
        traced = self._program.traced
        now: dict[Hashable, Tensor] = dict(zip(traced.leaves, leaves, strict=True))
        now.update({traced.switches: switches, traced.step: step})
        now.update(zip(traced.invariants, traced.values, strict=True))
        if tables:
            now.update(self._tables)
        return now

    def _resolve(self, function: Function, now: dict[Hashable, Tensor]) -> list[Tensor]:
        constant = self._program.traced.constant
        return [now[key] if key in now else constant(key) for key in function.inputs]  # type: ignore[arg-type]


def _bad_buffer(longest: int, worlds: int, device: torch.device) -> Tensor:
    """For each step the flags of bad values `[worlds]`, each row aligned."""
    return torch.zeros(longest, -(-worlds // 4) * 4, dtype=torch.int32, device=device)[:, :worlds]


def _count_buffer(node: Node, longest: int, worlds: int, device: torch.device) -> Tensor:
    groups, codes = node.args[2:4]
    return torch.zeros(longest, worlds, groups, codes, dtype=torch.int32, device=device)  # type: ignore[arg-type]


def _copy(old: list[Tensor], new: list[Tensor]) -> None:
    """Copy each into its place, also where one of the new tensors lies in another one's place."""
    held = {tensor.untyped_storage().data_ptr() for tensor in old}
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if _place(a) != _place(b)]
    apart = [(a, b.clone() if b.untyped_storage().data_ptr() in held else b) for a, b in pairs]
    for a, b in apart:
        a.copy_(b)


def _place(tensor: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    """Where a tensor's entries lie; those of a transposed one lie in another order."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()
