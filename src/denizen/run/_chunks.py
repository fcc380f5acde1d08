"""Chunks of steps of a program, on CUDA as CUDA graphs: one launch from Python for each chunk.

    for each step    the sums over neighbours, the compiled body, the tallies, the rows of logged events
    at the end       the epilogue over all steps at once; the state goes back to where the next chunk starts

A step's new state is written where there is room and read by the next step, so nothing is copied between steps. The
step counter lives on the device, so a replayed chunk draws fresh numbers.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from denizen import ops
from denizen._device import device_ms
from denizen.run._cuda_graph import CapturedFunction, aside
from denizen.run._engine import RunState, Stepper, one_graph
from denizen.run._logged import alike, base, race_of
from denizen.run._program import Function, Program, build
from denizen.run._trace import ancestors, one_mode, shape, trace

if TYPE_CHECKING:
    from denizen.run._event_log import Recorder
    from denizen.run._sieve import Sieve
    from denizen.run._snapshots import Group, SnapshotStore


Call = Callable[..., list[Tensor]]


class Watch(Protocol):
    """Sees the states along a chunk."""

    def see(self, count: int, run_state: RunState) -> None:
        """What holds after so many steps of the chunk; nothing writes to its leaves before `finish`."""
        ...

    def finish(self) -> None:
        """The steps are done; what was seen is written over from now on."""
        ...


class Chunks:
    """Runs chunks of up to `longest` steps of a program, by plain calls."""

    def __init__(
        self,
        program: Program,
        run_state: RunState,
        longest: int,
        compile: Callable[[GraphModule], Call],
        log: "Recorder | None" = None,
    ) -> None:
        """Make the buffers; the run's state is left untouched.

        Args:
            program: the step, taken apart.
            run_state: after at least one step.
            longest: most steps in a chunk.
            compile: makes a function of a module.
            log: gets the rows of logged events, of trials as well; whoever runs steps begins it anew before them.
        """
        assert run_state.bad is not None, "chunks follow a step"
        self._program, self.longest, self._log = program, longest, log
        self._static = run_state.clone()
        self._at: RunState | None = run_state  # what the buffers hold
        traced = program.traced
        constants = [traced.constant(node) for node in traced.module.graph.nodes if node.op == "get_attr"]
        # The model's own parameters are constants, which are the very tensors.
        self._watched = [*traced.values, *(old for old, _ in traced.copies), *constants]
        self._seen = self._versions()
        made_of = ancestors(node for node in program.prologue.inputs if isinstance(node, Node))
        self._alike = made_of.isdisjoint(traced.invariants)  # worlds of one state give the first sums the same
        device, worlds = run_state.step.device, run_state.bad.shape[0]
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

    def load(self, run_state: RunState) -> None:
        """Start from a state, and from the parameters as they are: those that changed in place count from here on."""
        versions = self._versions()
        if run_state is not self._at or versions != self._seen:
            if versions != self._seen:
                self._renew()
            self._tables = self._make_tables()
            for old, new in zip(self._static.tensors(), run_state.tensors(), strict=True):
                old.copy_(new)
            _copy(self._arguments, self._heads())
            self._at = run_state

    def forget(self) -> None:
        """The buffers hold no run_state that is known: the next `load` fills them."""
        self._at = None

    def move(self, rows: Tensor | None) -> None:
        """Row k goes on as row `rows[k]`, in place, and all go on with the parameters as they are.

        Args:
            rows: int64 `[worlds]`; rows that others go on from stay themselves. None: all do.
        """
        renewed = self._versions() != self._seen
        if renewed:
            self._renew()
        if rows is not None:
            moving = [*self._static.leaves, self._static.switches]
            if self._alike:
                moving += [argument for argument in self._arguments if len(argument) == len(rows)]
            for buffer in moving:
                ops.move_rows(buffer, rows)
        if renewed or not (rows is None or self._alike):
            self._tables = self._make_tables()  # those of the last chunk may lie where a graph writes
            _copy(self._arguments, self._heads())

    def take(self) -> RunState:
        """A copy of the run's state that the buffers hold."""
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
                watch.see(k + 1, RunState(leaves, self._steps[k + 1, 0], switches, static.bad))
        if watch is not None:
            watch.finish()
        if self._log is not None:
            self._log.write()
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
        ends.append(ends[-1] + len(program.tallies))
        for buffer, code, group in zip(self._counts, out[ends[3] : ends[4]], self._groups, strict=True):
            ops.add_histogram(buffer[k], code, group if group.numel() else None)
        if self._log is not None:
            self._append(now, arguments, dict(zip(program.logged, out[ends[4] :], strict=True)), self._log)
        return out[: ends[0]], out[ends[0]], out[ends[1] : ends[2]], out[ends[2] : ends[3]]

    def _append(
        self, now: dict[Hashable, Tensor], arguments: list[Tensor], made: dict[Node, Tensor], log: "Recorder"
    ) -> None:
        """Rows of logged events.

        Args:
            now: what traced nodes stand for.
            arguments: of the sums of this step.
            made: what the body returned for events.
            log: gets the rows.
        """
        program, constant = self._program, self._program.traced.constant
        given = [one for sum_ in program.sums for one in sum_.arguments]
        others = [*zip(given, arguments, strict=True), *made.items()]  # which may be what other nodes compute as well

        def tensor(node: Node) -> Tensor:
            if not math.prod(shape(node)):
                return torch.empty(shape(node), dtype=node.meta["val"].dtype, device=self._steps.device)
            origin = base(node, program.fixed)
            found = made.get(origin, now.get(origin))
            if found is None and origin.op == "get_attr":
                found = constant(origin)
            if found is None:
                found = next(held for one, held in others if alike(origin, one))
            return found.reshape(shape(node))

        logged, races = [], []
        for event in program.events:
            logged += [tensor(event.mask), *(None if one is None else tensor(one) for one in event.columns.values())]
            races.append(race_of(event, tensor))
        passing = {total.data_ptr() for totals in self._totals for total in totals}  # written to by the next steps
        given = [one for one in logged if one is not None]
        given += [one for race in races if race is not None for one in (*race.values, *race.where, race.factor)]
        wait = not any(one.untyped_storage().data_ptr() in passing for one in given)
        log.append(logged, program.traced.columns, now[program.traced.step], races, wait=wait)

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

    def _renew(self) -> None:
        """Copies of parameters that changed, anew."""
        for old, copy in self._program.traced.copies:
            copy.copy_(old)
        self._seen = self._versions()

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
        if self._log is not None:
            self._log.begin()
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
            with one_mode():
                module = make_fx(over_steps)(*arguments)
            return compile(module)

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


GRAPHS = 12  # kept; a run asks for few lengths
WARM_UP = 2  # chunks before capture


class CapturedSteps:
    """Replayable chunks of a stepper's steps.

    Graphs are captured when a length is first asked for: the longest, and what remains after it. All share one memory
    pool, and parameters and step counter live in device memory: a replay draws fresh numbers and follows parameters
    that changed in place. Snapshots that are due within a graph are gathered by its last kernels.

    Attributes:
        longest: most steps in one graph.
        seconds: spent on recording graphs.
    """

    def __init__(
        self, stepper: Stepper, run_state: RunState, longest: int, backend: str, log: "Recorder | None" = None
    ) -> None:
        """Compile the step; the run's state stays. The caller holds the `TorchSwitches` here and at every call.

        Args:
            stepper: on a CUDA device, without interventions that ask the host.
            run_state: after at least one step, so that every buffer's shape is known.
            longest: most steps in one graph.
            backend: of torch.compile.
            log: gets the rows of logged events.
        """

        def compile(module: GraphModule) -> Call:
            return one_graph(module, backend)

        self.longest, self.seconds = longest, 0.0
        # By length and the steps within it after which a snapshot is due.
        self._graphs: dict[tuple[int, range], CapturedFunction[tuple[list[Tensor], Group | None]]] = {}
        self._pool = None  # made with the first graph, shared by all
        self._stepper = stepper
        with torch.no_grad():
            program = build(trace(stepper, run_state), stepper.masks)
            program = dataclasses.replace(program, sums=[one.measured() for one in program.sums])
            self._chunks = Chunks(program, run_state, longest, compile, log)
            self._stream = self._warm_up()
        self._chunks.load(run_state)

    def run(
        self, run_state: RunState, count: int, start: int = 0, store: "SnapshotStore | None" = None
    ) -> tuple[RunState, list[Tensor]]:
        """`count` steps: the run's state after them, and each record `[worlds, count, …]`; copies, not the buffers.

        Args:
            run_state: after `start` steps.
            count: of steps.
            start: matters for snapshots alone.
            store: gets the snapshots that are due.

        Raises:
            NotCapturedError: a chunk could not be captured; the run's state is as it was.
        """
        self._chunks.load(run_state)
        self._chunks.forget()  # should something end this half-way, the next call starts from its own state
        records = self._go(start, start + count, store)
        return self._chunks.take(), records

    def holds(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether the graphs of (first step, step after the last) are few enough to be kept side by side."""
        return len(self._lengths(spans)) <= GRAPHS

    def sift(
        self, run_state: RunState, spans: Sequence[tuple[int, int]], sieve: "Sieve", names: Sequence[str]
    ) -> tuple[RunState, list[Tensor]]:
        """Steps with choices of rows in between, made in the buffers: only the rows that move are copied.

        Args:
            run_state: before the first step.
            spans: (first step, step after the last) of what lies between two choices.
            sieve: chooses.
            names: of the records.

        Returns:
            The run's state after the last choice, and the records of the last span.

        Raises:
            NotCapturedError: a chunk could not be captured; no step was taken, and nothing was shown to the sieve.
        """
        self._chunks.load(run_state)
        for length in self._lengths(spans):
            self._record(length, range(0), None)
        self._chunks.load(run_state)
        self._chunks.forget()
        records: list[Tensor] = []
        for begin, end in spans:
            records = self._go(begin, end, None)
            self._chunks.move(sieve.see(end, dict(zip(names, records, strict=True))))
        return self._chunks.take(), records

    def _lengths(self, spans: Sequence[tuple[int, int]]) -> list[int]:
        return sorted({end - begin for span in spans for begin, end in pieces(*span, self.longest)})

    def _go(self, start: int, stop: int, store: "SnapshotStore | None") -> list[Tensor]:
        """Steps from where the buffers are: each record `[worlds, steps, …]`."""
        rows: list[Tensor] = []
        every, most = (store.every, store.ring.most) if store is not None else (0, 0)
        for begin, end in pieces(start, stop, self.longest, every, most):
            length = end - begin
            due = range(every - begin % every, length + 1, every) if every else range(0)
            whole, group = self._replay(length, due, store)
            if store is not None and group is not None:
                store.put_group(begin + due[0], group)
            rows = rows or [record.new_empty(stop - start, *record.shape[1:]) for record in whole]
            _copy_all([row[begin - start : end - start] for row in rows], [record[:length] for record in whole])
        return [row.movedim(0, 1).contiguous() for row in rows]

    def device_seconds(self, run_state: RunState, count: int) -> float:
        """What `count` steps take the device, whatever the host does before and after; the run's state stays.

        Their graphs should exist: recording one would count as well.
        """
        self._chunks.load(run_state)
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
        self._record(length, due, store)
        return self._graphs[length, due]()

    def _record(self, length: int, due: range, store: "SnapshotStore | None") -> None:
        """The graph of so many steps, where it is not there yet; the buffers stay as they are."""
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

    def see(self, count: int, run_state: RunState) -> None:
        """See `Watch`; fields that are not kept are let go."""
        if count in self._due:
            self._taken.append(self._store.fields(self._stepper.state(run_state)))

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
