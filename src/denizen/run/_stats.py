"""What a run did, and, where asked, what a few of its steps do, read and write when counted on a copy."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen import ops
from denizen.errors import InputError
from denizen.model import per_agent_fallbacks
from denizen.perf.watch import (
    SIMULATED,
    Allocations,
    Counts,
    Span,
    allocations,
    busy,
    collapsed,
    copy_rate,
    counting,
    distinct_bytes,
    is_copy,
    profiled,
    repeating,
    sync_warnings,
)
from denizen.run._engine import RunState

if TYPE_CHECKING:
    from denizen.run._chunks import Chunks
    from denizen.run._run import Run


# What a captured step runs beside its compiled part.
APART = ("denizen::sum_counts", "denizen::sum_fixed", "denizen::sum_real", "denizen::histogram")


class Neighbours:
    """Weighs what sums over neighbours read, for `denizen.perf.watch.counting`.

    An edge must be read where its sender has something to say, or where its receiver listens; of both the smaller
    number counts, over all worlds together. A sum of unbounded values is always pulled.

    Attributes:
        sending: share of senders that are not 0, for each sum seen.
        at_risk: share of receivers that listen, for each sum seen.
    """

    def __init__(self) -> None:
        self.sending: list[Tensor] = []
        self.at_risk: list[Tensor] = []

    def __call__(self, func: Any, args: tuple[Any, ...]) -> dict[int, int]:
        """Bytes read of the arguments that are not read in full, by position."""
        if func.namespace != "denizen":
            return {}
        places = _places(func)
        if not {"values", "where", "in_ptr", "in_idx", "out_ptr", "out_idx"} <= places.keys():
            return {}
        given: dict[str, Any] = {name: args[place] if place < len(args) else None for name, place in places.items()}
        values, where = given["values"], given["where"]
        listening = torch.ones_like(values[:1], dtype=torch.bool) if where is None else where != 0
        self.sending.append((values != 0).to(torch.float32).mean())
        self.at_risk.append(listening.to(torch.float32).mean())
        rows = {"out": (values != 0).any(dim=0), "in": listening.any(dim=0)}
        edges = {side: _edges(given[f"{side}_ptr"], rows[side]) for side in rows}
        best = "in" if "sum_real" in func._schema.name or edges["in"] < edges["out"] else "out"
        other = "in" if best == "out" else "out"
        pointer, weighted = given[f"{best}_ptr"], given.get("weight") is not None
        read = {
            f"{best}_ptr": min(pointer.nbytes, 2 * int(rows[best].sum()) * pointer.element_size()),
            f"{best}_idx": edges[best] * given[f"{best}_idx"].element_size(),
            f"{other}_ptr": 0,
            f"{other}_idx": 0,
        }
        if "out_edge" in places:  # where the weight of an edge stands, when it is found from its sender
            read["out_edge"] = edges["out"] * given["out_edge"].element_size() if weighted and best == "out" else 0
        if weighted:
            read["weight"] = edges[best] * given["weight"].element_size()
        return {places[name]: count for name, count in read.items()}


@functools.cache
def _places(func: Any) -> dict[str, int]:
    return {argument.name: place for place, argument in enumerate(func._schema.arguments)}


def _edges(pointer: Tensor, rows: Tensor) -> int:
    """Number of edges in rows of a graph."""
    return int(((pointer[1:] - pointer[:-1]) * rows).sum())


def body_bytes(chunks: "Chunks", run_state: RunState) -> int:
    """Bytes that the compiled part of a captured step reads and writes, each tensor once; the state stays."""
    body, moved = chunks._body, 0

    def noted(*given: Tensor) -> list[Tensor]:
        nonlocal moved
        out = body(*given)
        moved = sum({_place(tensor): distinct_bytes(tensor) for tensor in (*given, *out)}.values())
        return out

    chunks.load(run_state)
    try:
        chunks._body = noted
        with torch.no_grad():
            chunks.steps(1)
    finally:
        chunks._body = body
        chunks.forget()
    return moved


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())


STEPS = {"cpu": 4, "cuda": 16}  # counted
PLAIN = 2  # of these also stepped in plain torch, where every operation is seen
ROUNDS = 5  # timings, of which the quickest counts
QUICK = 0.1  # seconds that timings of a captured chunk may take, which are as many as that allows: see `_quickest`


@dataclasses.dataclass(frozen=True)
class Counted:
    """What steps were counted to do; None where the device or the path cannot say. See docs/guides/counters.md."""

    counted_after: int | None = None
    counted_steps: int | None = None
    launches_per_step: float | None = None
    torch_ops_per_step: float | None = None
    vectorised_ops_per_step: float | None = None
    fallback_ops_per_step: float | None = None
    host_reads: int | None = None
    transfers_to_device: int | None = None
    transfers_to_host: int | None = None
    bytes_to_device: int | None = None
    bytes_to_host: int | None = None
    allocations_per_step: float | None = None
    device_mallocs: int | None = None
    pool_reuse: float | None = None
    active_fraction: float | None = None
    at_risk_fraction: float | None = None
    changed_fraction: float | None = None
    busy_share: float | None = None
    bytes_moved_per_step: float | None = None
    bytes_needed_per_step: float | None = None
    copy_bytes_per_second: float | None = None
    copy_share: float | None = None


def stats(run: "Run", count: bool) -> dict[str, Any]:
    """See `Run.stats`."""
    if count and run._timed_steps and (run._counted is None or run._counted.counted_after != run._steps):
        run._counted = _count(run)
    return _facts(run) | dataclasses.asdict(run._counted or Counted())


def _facts(run: "Run") -> dict[str, Any]:
    """What is known without counting."""
    agents, worlds, times = run._stepper.ids.numel(), len(run.worlds), run._times
    seconds = times["steps"]
    return {
        "steps": run._steps,
        "agents": agents,
        "replicates": worlds,
        "device": str(run.device),
        "device_reason": run._device_reason,
        "path": run._path,
        "ops": ops.variant(run.device),
        "seconds_load": times["load"],
        "seconds_init": times["init"],
        "seconds_compile": times["compile"],
        "seconds_capture": times["capture"],
        "seconds_steps": seconds - times["snapshot"] - times["capture"],
        "seconds_snapshot": times["snapshot"],
        "snapshot_waits": run._snapshots.ring.waits if run._snapshots else 0,
        "seconds_snapshot_waits": run._snapshots.ring.seconds_waited if run._snapshots else 0.0,
        "seconds_per_step": run._step_cost() or seconds,
        "agent_steps_per_second": agents * worlds * run._timed_steps / seconds if seconds else 0.0,
        "state_bytes": sum(leaf.numel() * leaf.element_size() for leaf in run._run_state.leaves),
        "fallback_calls": per_agent_fallbacks(),
        "looks": run._looks,
        "graphs": run._graphs,
        "recompiles": run._recompiles,
    }


# --- counting ---------------------------------------------------------------------------------------------------------


def _count(run: "Run") -> Counted:
    _refuse_simulated(run)
    cuda, count = run.device.type == "cuda", STEPS[run.device.type]
    with run._as_compiled():
        _take(run, _copy(run._run_state), count)  # warm: what is set up at a first call is no part of a step
        seconds = _seconds(run)
        plain = _plain(run)
        kernels = step_spans(run)
        rate = copy_rate(run.device)
        host = _watched(run) if cuda else _HostSide.of_plain(run, plain, count)
    reached = plain.needed / seconds
    return Counted(
        counted_after=run._steps,
        counted_steps=count,
        launches_per_step=_launches(run, plain, kernels),
        torch_ops_per_step=plain.mean(lambda counts: sum(not own(name) for name in counts.ops)),
        vectorised_ops_per_step=0.0 if plain.reference else plain.own_ops,
        fallback_ops_per_step=plain.loops + (plain.own_ops if plain.reference else 0.0),
        **dataclasses.asdict(host),
        active_fraction=_mean(plain.neighbours.sending),
        at_risk_fraction=_mean(plain.neighbours.at_risk),
        changed_fraction=plain.changed,
        busy_share=None if kernels is None else _busy_share(run, kernels, seconds),
        bytes_moved_per_step=_moved(run, plain),
        bytes_needed_per_step=plain.needed,
        copy_bytes_per_second=rate,
        copy_share=reached / rate,
    )


def _refuse_simulated(run: "Run") -> None:
    if run.device.type == SIMULATED:
        raise InputError(
            f"the run is on {run.device}, which has neither kernels nor rates; run it on device='cpu' to count, "
            "or open a dz.budget around steps here"
        )


def _moved(run: "Run", plain: "_Plain") -> float | None:
    """Bytes that the pieces of a step read and write; None where torch fuses them out of sight."""
    if run._path == "captured":
        assert run._capture is not None
        apart = plain.mean(lambda counts: sum(counts.moved[name] for name in APART))
        return body_bytes(run._capture._chunks, _copy(run._run_state)) + apart
    return plain.mean(lambda counts: counts.moved.total()) if run._path == "eager" else None


def own(name: str) -> bool:
    """Whether an operation is one of denizen's."""
    return name.startswith("denizen::")


def _mean(values: list[Tensor]) -> float | None:
    return float(torch.stack(values).mean()) if values else None


def _copy(run_state: RunState) -> RunState:
    """A run_state that steps like the given one, gradients included, and shares no memory with it."""

    def copy(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    return dataclasses.replace(
        run_state,
        leaves=[copy(leaf) for leaf in run_state.leaves],
        step=copy(run_state.step),
        switches=copy(run_state.switches),
        bad=None if run_state.bad is None else copy(run_state.bad),
    )


def _take(run: "Run", run_state: RunState, count: int) -> RunState:
    """Steps from the run's present place, as the run itself would take them; who answers on the host is not asked."""
    if run._path == "captured":
        return run._take(run_state, run._steps, run._steps + count)[0]
    for _ in range(count):
        run_state, _records = run._stepper.advance(run_state, run._answered[1])
    return run_state


def _seconds(run: "Run") -> float:
    """Seconds of one of the counted steps, without instruments; not of later ones, which may have less to do."""
    count = STEPS[run.device.type]
    if run._path != "captured":
        return _quickest(run, count) / count
    # What surrounds the steps of a chunk takes as long as several of them, and one step has it too.
    alone, more = _quickest(run, 1), _quickest(run, count + 1)
    return (more - alone) / count if more > alone else more / (count + 1)


def _quickest(run: "Run", count: int) -> float:
    """Seconds of so many steps at once."""
    if run._path == "captured":
        _take(run, _copy(run._run_state), count)  # a graph of a new length is captured here
    best, spent, rounds = float("inf"), 0.0, 0
    # A chunk takes some 100 us, and what is looked for is the difference of two.
    while rounds < ROUNDS or (run._path == "captured" and spent < QUICK):
        run_state = _copy(run._run_state)
        _wait(run)
        began = time.perf_counter()
        if run._path == "captured" and run.device.type == "cuda":
            assert run._capture is not None
            took = run._capture.device_seconds(run_state, count)
        else:
            _take(run, run_state, count)
            _wait(run)
            took = time.perf_counter() - began
        best, spent, rounds = min(best, took), spent + time.perf_counter() - began, rounds + 1
    return best


def _wait(run: "Run") -> None:
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)


# --- steps in plain torch ---------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Plain:
    """Steps in plain torch, seen by the dispatcher one by one."""

    counts: list[Counts]
    neighbours: Neighbours
    reference: bool
    loops: float
    needed: float
    changed: float

    def mean(self, what: Any) -> float:
        return sum(what(counts) for counts in self.counts) / len(self.counts)

    @property
    def own_ops(self) -> float:
        return self.mean(lambda counts: sum(own(name) for name in counts.ops))


def _plain(run: "Run") -> _Plain:
    neighbours, counted, needed, changed = Neighbours(), [], 0, []
    loops, run_state = per_agent_fallbacks(), _copy(run._run_state)
    with _uncompiled(run):
        for _ in range(PLAIN):
            with counting(run.device, neighbours) as counts:
                after, records = run._stepper.advance(run_state, run._answered[1])
            counted.append(counts)
            held = {leaf.untyped_storage()._cdata for leaf in run_state.leaves}
            new = [leaf for leaf in after.leaves if leaf.untyped_storage()._cdata not in held]
            needed += sum(counts.inputs.values()) + sum(distinct_bytes(tensor) for tensor in (*new, *records))
            changed.append(_changed(run_state, after, run._stepper.ids.numel()))
            run_state = after
    return _Plain(
        counts=counted,
        neighbours=neighbours,
        reference=ops.variant(run.device) == "reference",
        loops=(per_agent_fallbacks() - loops) / PLAIN,
        needed=needed / PLAIN,
        changed=_mean(changed) or 0.0,
    )


@contextlib.contextmanager
def _uncompiled(run: "Run") -> Generator[None]:
    """Steps run in plain torch within, which no compiled function does under a dispatch mode, nor a native one."""
    compiled = run._path in ("compiled", "captured")
    with torch.compiler.set_stance("force_eager") if compiled else run._stepper.in_torch():
        yield


def _changed(before: RunState, after: RunState, agents: int) -> Tensor:
    """Share of agents of all worlds whose state differs after a step, 0-d."""
    differs = torch.zeros(after.switches.shape[0], agents, dtype=torch.bool, device=after.step.device)
    for old, new in zip(before.leaves, after.leaves, strict=True):
        axis = next((axis for axis in range(1, new.dim()) if new.shape[axis] == agents), None)
        if axis is not None and new is not old:
            differs |= (new != old).movedim(axis, 1).reshape(*differs.shape, -1).any(dim=2)
    return differs.to(torch.float32).mean()


# --- steps as they run ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _HostSide:
    """What the host had to do for the counted steps."""

    host_reads: int
    transfers_to_device: int
    transfers_to_host: int
    bytes_to_device: int
    bytes_to_host: int
    allocations_per_step: float | None
    device_mallocs: int | None
    pool_reuse: float | None

    @classmethod
    def of_plain(cls, run: "Run", plain: _Plain, count: int) -> "_HostSide":
        """On the CPU: what would wait for a GPU; nothing crosses, and there is no pool."""
        reads = round(count * plain.mean(lambda counts: counts.host_reads.total()))
        new = plain.mean(lambda counts: counts.allocations) if run._path == "eager" else None
        return cls(reads, 0, 0, 0, 0, new, None, None)


def _watched(run: "Run") -> _HostSide:
    """On CUDA: by the dispatcher, torch's warnings of waits, and the allocator, twice to tell a step from a chunk."""
    count = STEPS["cuda"]
    half, _ = _asked(run, count // 2)
    whole, waits = _asked(run, count)
    run_state = _copy(run._run_state)
    with _uncompiled(run), counting(run.device) as counts:
        _take(run, run_state, count)
    return _HostSide(
        host_reads=max(len(waits), counts.host_reads.total()),
        transfers_to_device=counts.to_device.count,
        transfers_to_host=counts.to_host.count,
        bytes_to_device=counts.to_device.bytes,
        bytes_to_host=counts.to_host.bytes,
        allocations_per_step=(whole.count - half.count) / (count - count // 2),
        device_mallocs=whole.device_mallocs,
        pool_reuse=1.0 if whole.reuse is None else whole.reuse,
    )


def _asked(run: "Run", count: int) -> tuple[Allocations, list[str]]:
    """What steps ask of the allocator, and where they wait."""
    _take(run, _copy(run._run_state), count)  # the graph of this length exists, the pool has its blocks
    run_state = _copy(run._run_state)
    with sync_warnings() as waits, allocations(run.device) as memory:
        _take(run, run_state, count)
    return memory, waits


def step_spans(run: "Run") -> tuple[list[Span], int] | None:
    """Kernels and copies of whole steps, in order, and how many steps they are; None where they cannot be seen.

    What surrounds the steps of a chunk, loading and storing, is left out where the steps can be told from it.
    """
    if run.device.type == "cpu" and run._path != "eager":
        return None
    count, run_state = STEPS[run.device.type], _copy(run._run_state)
    _take(run, _copy(run._run_state), count)
    with profiled(run.device) as profile:
        _take(run, run_state, count)
    launched = sorted([*profile.kernels, *profile.copies])
    block = repeating([span.name for span in launched], count)
    if block is None:
        return launched, count
    start, length = block
    return launched[start : start + length * count], count


def _busy_share(run: "Run", kernels: tuple[list[Span], int], seconds: float) -> float | None:
    spans, count = kernels
    if not spans:
        return None
    if run.device.type == "cpu":  # both from one pass: on a busy machine two passes differ several times over
        return busy(spans) / (max(span.end for span in spans) - min(span.start for span in spans))
    return busy(span for span in spans if not is_copy(span)) / count / 1e9 / seconds


def _launches(run: "Run", plain: _Plain, kernels: tuple[list[Span], int] | None) -> float | None:
    if kernels is None:
        return None
    if run.device.type == "cpu":  # views take time and launch nothing
        return plain.mean(lambda counts: len(counts.ops))
    return len(kernels[0]) / kernels[1]


def step_kernels(run: "Run") -> list[tuple[str, int, float | None]]:
    """What a step launches, in order: name, how often in a row, microseconds of one (None on the CPU)."""
    if not run._timed_steps:
        return []
    _refuse_simulated(run)
    if run.device.type == "cpu":
        return [(name, times, None) for name, times in collapsed(_plain(run).counts[0].ops)]
    found = step_spans(run)
    assert found is not None
    spans, count = found
    length = len(spans) // count if len(spans) % count == 0 else len(spans)
    repeats, rows, place = len(spans) // max(length, 1), list[tuple[str, int, float | None]](), 0
    for name, times in collapsed(span.name for span in spans[:length]):
        same = [spans[k * length + place + i] for k in range(repeats) for i in range(times)]
        rows.append((name, times, sum(span.end - span.start for span in same) / len(same) / 1e3))
        place += times
    return rows
